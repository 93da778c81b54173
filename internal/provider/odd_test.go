package provider

import (
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
)

// The odd cases of the wire that providers are known for, numbered. Those about sockets (10 compression, 21 back-off) are
// the gateway's.

// stream meters data lines as one stream of a chat or another endpoint.
func stream(t *testing.T, name, path string, lines ...string) (Metered, *Meter) {
	t.Helper()
	m := endpoint(t, name, path).NewMeter(MeterOptions{ContentType: "text/event-stream", Stream: true})
	in := "data: " + strings.Join(lines, "\n\ndata: ") + "\n\n"
	if out := feed(m, []byte(in)); string(out) != in {
		t.Errorf("changed to %q", out)
	}
	return m.Result(), m
}

func spent(u counts) Usage { return Usage{Usage: u} }

// T18 is the same case.
func TestOdd01EmptyUsageBeforeTheRealOne(t *testing.T) {
	t.Parallel()
	final := `{"choices":[],"usage":{"prompt_tokens":120,"completion_tokens":48,"total_tokens":168}}`
	for _, early := range []string{`null`, `{}`, `{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}`, `{"prompt_tokens":null}`, `[]`, `"none"`, `0`} {
		lines := slices.Repeat([]string{`{"choices":[{"delta":{"content":"x"}}],"usage":` + early + `}`}, 20)
		for _, tail := range [][]string{{final, "[DONE]"}, {final, `{"choices":[{"delta":{}}],"usage":` + early + `}`, "[DONE]"}} {
			got, _ := stream(t, OpenAI, chatPath, append(lines, tail...)...)
			if got.Usage != spent(counts{Input: 120, Output: 48}) || !got.HasUsage || !got.Complete {
				t.Errorf("%s: %+v", early, got)
			}
		}
	}
}

func TestOdd02NoUsageAtAll(t *testing.T) {
	t.Parallel()
	for _, usage := range []string{``, `,"usage":null`, `,"usage":{}`, `,"usage":{"prompt_tokens":0,"completion_tokens":0}`} {
		got, _ := stream(t, OpenAI, chatPath, `{"choices":[{"delta":{"content":"hello"}}]`+usage+`}`, `{"choices":[{"delta":{},"finish_reason":"stop"}]`+usage+`}`, "[DONE]")
		if got.HasUsage || got.TextBytes != 5 || !got.Complete || got.FinishReason != "stop" {
			t.Errorf("%q: %+v", usage, got)
		}
	}
}

// T19 is the same case.
func TestOdd03UsageWhereverItComes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lines []string
		want  counts
	}{
		"after the finish, without choices": {[]string{`{"choices":[{"delta":{},"finish_reason":"stop"}]}`, `{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}}`}, counts{Input: 10, Output: 5}},
		"with an empty delta":               {[]string{`{"choices":[{"delta":{},"finish_reason":null}],"usage":{"prompt_tokens":287,"completion_tokens":8,"total_tokens":295,"prompt_tokens_details":{"cached_tokens":256}}}`}, counts{Input: 31, CacheRead: 256, Output: 8}},
		"with the finish":                   {[]string{`{"choices":[{"delta":{"role":"assistant"},"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}}`}, counts{Input: 10, Output: 5}},
		"with content":                      {[]string{`{"choices":[{"delta":{"content":"x"}}],"usage":{"prompt_tokens":10,"completion_tokens":5}}`}, counts{Input: 10, Output: 5}},
		"without choices":                   {[]string{`{"usage":{"prompt_tokens":10,"completion_tokens":5}}`}, counts{Input: 10, Output: 5}},
		"choices null":                      {[]string{`{"choices":null,"usage":{"prompt_tokens":10,"completion_tokens":5}}`}, counts{Input: 10, Output: 5}},
	} {
		got, _ := stream(t, OpenAI, chatPath, append(c.lines, "[DONE]")...)
		if got.Usage != spent(c.want) || !got.Complete {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// T15 and T16 are of its kind.
func TestOdd04CumulativeCountsAreNotAdded(t *testing.T) {
	t.Parallel()
	start := func(usage string) string { return `{"type":"message_start","message":{"usage":` + usage + `}}` }
	delta := func(usage string) string { return `{"type":"message_delta","delta":{},"usage":` + usage + `}` }
	const stop = `{"type":"message_stop"}`
	for name, c := range map[string]struct {
		dialect, path string
		lines         []string
		want          counts
	}{
		"start and delta":  {Anthropic, messagesPath, []string{start(`{"input_tokens":25,"output_tokens":1}`), delta(`{"output_tokens":15}`), stop}, counts{Input: 25, Output: 15}},
		"two deltas":       {Anthropic, messagesPath, []string{start(`{"input_tokens":25,"output_tokens":1}`), delta(`{"output_tokens":7}`), delta(`{"output_tokens":15}`), stop}, counts{Input: 25, Output: 15}},
		"input repeated":   {Anthropic, messagesPath, []string{start(`{"input_tokens":25,"output_tokens":1}`), delta(`{"input_tokens":25,"output_tokens":15}`), stop}, counts{Input: 25, Output: 15}},
		"zeros and nulls":  {Anthropic, messagesPath, []string{start(`{"input_tokens":25,"cache_read_input_tokens":9,"output_tokens":1}`), delta(`{"input_tokens":0,"cache_read_input_tokens":null,"cache_creation_input_tokens":0,"output_tokens":15}`), stop}, counts{Input: 25, CacheRead: 9, Output: 15}},
		"moved into cache": {Anthropic, messagesPath, []string{start(`{"input_tokens":8834,"output_tokens":0}`), delta(`{"input_tokens":0,"cache_read_input_tokens":8834,"output_tokens":4}`), stop}, counts{CacheRead: 8834, Output: 4}},
		"only the delta":   {Anthropic, messagesPath, []string{start(`{}`), delta(`{"input_tokens":4522,"cache_creation_input_tokens":4511,"output_tokens":5}`), stop}, counts{Input: 4522, CacheWrite: 4511, Output: 5}},
		"continuous": {OpenAI, chatPath, []string{`{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":1}}`, `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2}}`,
			`{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3}}`}, counts{Input: 9, Output: 3}},
		"twice the same": {OpenAI, chatPath, []string{`{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3},"x_groq":{"usage":{"prompt_tokens":9,"completion_tokens":3}}}`}, counts{Input: 9, Output: 3}},
		"every chunk": {Gemini, generatePath, []string{`{"usageMetadata":{"promptTokenCount":8,"candidatesTokenCount":3,"totalTokenCount":11}}`, `{"usageMetadata":{"promptTokenCount":8,"totalTokenCount":8}}`,
			`{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":8,"candidatesTokenCount":7,"totalTokenCount":15}}`}, counts{Input: 8, Output: 7}},
	} {
		got, _ := stream(t, c.dialect, c.path, c.lines...)
		if got.Usage.Usage != c.want {
			t.Errorf("%s: %+v, want %+v", name, got.Usage, c.want)
		}
	}
}

func TestOdd05ThoughtsAreOutput(t *testing.T) {
	t.Parallel()
	for _, usage := range []string{
		`{"promptTokenCount":41,"candidatesTokenCount":5,"totalTokenCount":389}`,
		`{"promptTokenCount":41,"candidatesTokenCount":5,"thoughtsTokenCount":344}`,
		`{"promptTokenCount":41,"candidatesTokenCount":5,"thoughtsTokenCount":344,"totalTokenCount":390}`,
	} {
		got, _ := stream(t, Gemini, generatePath, `{"candidates":[{"content":{"parts":[{"text":"x"}]},"finishReason":"STOP"}],"usageMetadata":`+usage+`}`)
		if u := got.Usage; u.Input != 41 || u.Output < 348 || u.Output > 349 {
			t.Errorf("%s: %+v", usage, u)
		}
	}
}

func TestOdd06ImpossibleLimits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limit, remaining, reset string
		known, hasReset         bool
		wait                    time.Duration
	}{
		{"-1", "-1", "0", false, false, 0},
		{"-1", "5", "1s", false, false, 0},
		{"100", "-1", "1s", false, false, 0},
		{"100", "5", "0", true, false, 0},
		{"100", "5", "0s", true, false, 0},
		{"100", "100", "0s", true, true, 0},
		{"100", "0", "", true, false, 0},
		{"", "", "1s", false, false, 0},
		{"100", "0", "-1", true, false, 0},
		{"0", "0", "1s", true, true, time.Second},
	} {
		h := http.Header{"X-Ratelimit-Limit-Tokens": {c.limit}, "X-Ratelimit-Remaining-Tokens": {c.remaining}, "X-Ratelimit-Reset-Tokens": {c.reset}}
		l := dialect(t, OpenAI).Limits(h, noon)
		if len(l.List) == 1 != c.known || c.known && (l.List[0].HasReset != c.hasReset || l.List[0].Reset != c.wait) {
			t.Errorf("%+v: %+v", c, l)
		}
	}
}

func TestOdd07AbsurdWaits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		h     http.Header
		body  string
		class Class
		wait  time.Duration
	}{
		{http.Header{"Retry-After-Ms": {"302539000"}}, ``, Exhausted, 302539 * time.Second},
		{nil, `{"error":{"code":"429","message":"Please retry after 86400 seconds."}}`, Exhausted, 24 * time.Hour},
		{http.Header{"Retry-After": {"Wed, 21 Oct 2026 07:28:00 GMT"}, "Date": {"Wed, 21 Oct 2026 08:00:00 GMT"}}, ``, Throttle, 0},
		{http.Header{"Retry-After": {"Wed, 21 Oct 2026 07:28:30 GMT"}, "Date": {"Wed, 21 Oct 2026 07:28:00 GMT"}}, ``, Throttle, 30 * time.Second},
		{http.Header{"Retry-After": {"1e3"}}, ``, Exhausted, 1000 * time.Second},
		{http.Header{"Retry-After": {"60, 120"}}, ``, Throttle, time.Minute},
		{http.Header{"Retry-After": {"NaN"}}, ``, Throttle, 30 * time.Second}, // the default of an edge
		{http.Header{"Retry-After": {"900"}}, ``, Throttle, longestThrottle},
		{http.Header{"Retry-After": {"901"}}, ``, Exhausted, 901 * time.Second},
	} {
		v := dialect(t, OpenAI).Classify(429, c.h, []byte(c.body), noon)
		if v.Class != c.class || v.Wait != c.wait {
			t.Errorf("%v %s: %s for %v", c.h, c.body, v.Class, v.Wait)
		}
	}
}

func TestOdd08ErrorInsideA200(t *testing.T) {
	t.Parallel()
	const hello = `{"choices":[{"delta":{"content":"hello"}}]}`
	for _, c := range []struct {
		name, dialect, path, in string
		status                  int
		body                    string
		class                   Class
		first                   bool
	}{
		{"openrouter at once", OpenAI, chatPath, ": OPENROUTER PROCESSING\n\ndata: {\"id\":\"g\",\"choices\":[],\"error\":{\"code\":502,\"message\":\"bad\"}}\n\n", 502, `{"error":{"code":502,"message":"bad"}}`, Provider, true},
		{"openrouter later", OpenAI, chatPath, "data: " + hello + "\n\ndata: {\"choices\":[],\"error\":{\"code\":429,\"message\":\"slow\"}}\n\n", 429, `{"error":{"code":429,"message":"slow"}}`, Throttle, false},
		{"in the choice", OpenAI, chatPath, "data: {\"choices\":[{\"delta\":{\"content\":\"\"},\"finish_reason\":\"error\",\"error\":{\"code\":503,\"message\":\"x\"}}]}\n\n", 503, `{"error":{"code":503,"message":"x"}}`, Provider, true},
		{"only the reason", OpenAI, chatPath, "data: " + hello + "\n\ndata: {\"choices\":[{\"delta\":{},\"finish_reason\":\"error\"}]}\n\ndata: [DONE]\n\n", 502, `{"error":{"message":"the answer ended with finish_reason error","code":502}}`, Provider, false},
		{"groq", OpenAI, chatPath, "data: " + hello + "\n\ndata: {\"choices\":[],\"x_groq\":{\"id\":\"r\",\"error\":\"over capacity\"}}\n\n", 502, `{"error":"over capacity"}`, Provider, false},
		{"as text", OpenAI, chatPath, "data: {\"error\":\"no slots\"}\n\n", 502, `{"error":"no slots"}`, Provider, true},
		{"vllm's older form", OpenAI, chatPath, "data: {\"object\":\"error\",\"message\":\"too long\",\"type\":\"BadRequestError\",\"param\":null,\"code\":400}\n\n", 400, `{"error":{"object":"error","message":"too long","type":"BadRequestError","param":null,"code":400}}`, Caller, true},
		{"anthropic at once", Anthropic, messagesPath, "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"},\"request_id\":\"r\"}\n\n", 529, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"r"}`, Overload, true},
		{"anthropic after a ping", Anthropic, messagesPath, "event: ping\ndata: {\"type\":\"ping\"}\n\nevent: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"rate_limit_error\",\"message\":\"x\"}}\n\n", 429, `{"type":"error","error":{"type":"rate_limit_error","message":"x"}}`, Throttle, true},
		{"anthropic later", Anthropic, messagesPath, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{}}\n\nevent: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"x\"}}\n\n", 500, `{"type":"error","error":{"type":"api_error","message":"x"}}`, Provider, false},
		{"responses, as documented", OpenAI, responsesPath, "event: error\ndata: {\"type\":\"error\",\"code\":\"rate_limit_exceeded\",\"message\":\"slow\",\"param\":null,\"sequence_number\":0}\n\n", 429, `{"error":{"type":"error","code":"rate_limit_exceeded","message":"slow","param":null,"sequence_number":0}}`, Throttle, true},
		{"responses, as seen", OpenAI, responsesPath, "data: {\"type\":\"error\",\"error\":{\"type\":\"service_unavailable_error\",\"code\":\"server_is_overloaded\",\"message\":\"x\"},\"sequence_number\":2}\n\n", 503, `{"error":{"type":"service_unavailable_error","code":"server_is_overloaded","message":"x"}}`, Overload, true},
		{"responses, failed alone", OpenAI, responsesPath, "data: {\"type\":\"response.failed\",\"response\":{\"status\":\"failed\",\"error\":{\"code\":\"invalid_prompt\",\"message\":\"x\"}}}\n\n", 400, `{"error":{"code":"invalid_prompt","message":"x"}}`, Caller, true},
		{"gemini's bare line", Gemini, generatePath, "{\"error\":{\"code\":503,\"message\":\"x\",\"status\":\"UNAVAILABLE\"}}\r\n\r\n", 503, `{"error":{"code":503,"message":"x","status":"UNAVAILABLE"}}`, Overload, true},
		{"over several lines", Gemini, generatePath, "{\n  \"error\": {\n    \"code\": 429,\n    \"status\": \"RESOURCE_EXHAUSTED\"\n  }\n}\n", 429, "{\"error\":{\n    \"code\": 429,\n    \"status\": \"RESOURCE_EXHAUSTED\"\n  }}", Throttle, true},
		{"interactions", Gemini, "/v1beta/interactions", "event: error\ndata: {\"event_type\":\"error\",\"error\":{\"code\":\"rate_limit_exceeded\",\"message\":\"x\"}}\n\n", 429, `{"error":{"code":"rate_limit_exceeded","message":"x"}}`, Throttle, true},
		{"conversations", Mistral, "/v1/conversations", "event: conversation.response.error\ndata: {\"type\":\"conversation.response.error\",\"message\":\"x\",\"code\":3505}\n\n", 503, `{"error":{"type":"conversation.response.error","message":"x","code":3505}}`, Overload, true},
		{"mistral", Mistral, chatPath, "data: {\"object\":\"error\",\"message\":\"x\",\"type\":\"rate_limited\",\"param\":null,\"code\":\"1300\"}\n\n", 429, `{"object":"error","message":"x","type":"rate_limited","param":null,"code":"1300"}`, Throttle, true},
		{"an event without JSON", OpenAI, chatPath, "event: error\ndata: upstream <b>died</b>\n\n", 502, `{"error":{"message":"upstream \u003cb\u003edied\u003c/b\u003e"}}`, Provider, true},
	} {
		for _, cuts := range [][]int{nil, everyByte([]byte(c.in))} {
			m := endpoint(t, c.dialect, c.path).NewMeter(MeterOptions{ContentType: "text/event-stream", Stream: true})
			if out := feed(m, []byte(c.in), cuts...); string(out) != c.in {
				t.Errorf("%s: changed to %q", c.name, out)
			}
			got := m.Result()
			want := &Fault{Status: c.status, Body: []byte(c.body), First: c.first}
			if !reflect.DeepEqual(got.Fault, want) || got.Complete || m.Started() == c.first {
				t.Errorf("%s: %+v %s, started %v, complete %v", c.name, got.Fault, got.Fault.Body, m.Started(), got.Complete)
				continue
			}
			if v := dialect(t, c.dialect).Classify(got.Fault.Status, http.Header{}, got.Fault.Body, noon); v.Class != c.class {
				t.Errorf("%s: judged %s by %s", c.name, v.Class, v.Rule)
			}
		}
	}
	for _, c := range []struct{ name, dialect, path, kind, in string }{
		{"plain", OpenAI, chatPath, "application/json", `{"error":{"code":429,"message":"x"}}`},
		{"a stream under a wrong name", OpenAI, chatPath, "application/json", "data: {\"error\":{\"code\":429,\"message\":\"x\"}}\n\n"},
		{"plain for a stream", OpenAI, chatPath, "application/json", "\n\n" + `{"error":{"code":429,"message":"x"},"user_id":"u"}`},
		{"without a content type", OpenAI, chatPath, "", `{"error":{"code":429,"message":"x"}}`},
		{"in an array", Gemini, generatePath, "application/json", "[{\"error\":{\"code\":429,\"message\":\"x\"}}\n]"},
		{"count", Gemini, "/v1beta/models/m:countTokens", "application/json", `{"error":{"code":429,"message":"x"}}`},
		{"embeddings", Mistral, "/v1/embeddings", "application/json", `{"error":{"code":429,"message":"x"}}`},
	} {
		for _, cuts := range [][]int{nil, everyByte([]byte(c.in))} {
			m := endpoint(t, c.dialect, c.path).NewMeter(MeterOptions{ContentType: c.kind, Stream: true})
			if out := feed(m, []byte(c.in), cuts...); string(out) != c.in {
				t.Errorf("%s: changed to %q", c.name, out)
			}
			if got := m.Result(); got.Fault == nil || got.Fault.Status != 429 || !got.Fault.First || got.Complete || got.HasUsage || m.Started() {
				t.Errorf("%s: %+v %+v", c.name, got, got.Fault)
			}
		}
	}
	// What good answers carry is no error.
	for _, in := range []string{`{"error":null,"choices":[]}`, `{"error":"","choices":[]}`, `{"error":{},"choices":[]}`, `{"choices":[{"delta":{"content":"{\"error\":{\"code\":500}}"}}]}`, `{"choices":[{"finish_reason":"stop","error":null}]}`} {
		if got, m := stream(t, OpenAI, chatPath, in, "[DONE]"); got.Fault != nil || !m.Started() {
			t.Errorf("%s: %+v", in, got.Fault)
		}
	}
}

func TestOdd09ErrorsThatAreNoJSON(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status  int
		body    string
		class   Class
		message string
	}{
		{429, "<html><head><title>429 Too Many Requests</title></head><body><center>nginx</center></body></html>", Throttle, "429 Too Many Requests"},
		{429, "error code: 1015", Throttle, "error code: 1015"},
		{429, "", Throttle, ""},
		{502, "upstream connect error or disconnect/reset before headers\n", Provider, "upstream connect error or disconnect/reset before headers"},
		{522, "<!DOCTYPE html><script>var x = '<b>';</script><p>Connection timed out</p>", Provider, "Connection timed out"},
		{413, "<html><h1>413 Request Entity Too Large</h1></html>", Caller, "413 Request Entity Too Large"},
		{401, "<html>insufficient_quota</html>", Auth, "insufficient_quota"}, // words of a page are no codes
		{429, `{"error":{"code":"insufficient_quota"`, Throttle, `{"error":{"code":"insufficient_quota"`},
		{500, "\xff\xfe\x00\x01", Provider, ""},
	} {
		for _, name := range Names() {
			v := dialect(t, name).Classify(c.status, http.Header{"Content-Type": {"application/json"}}, []byte(c.body), noon)
			if v.Class != c.class || strings.TrimSpace(v.Message) != c.message {
				t.Errorf("%s %d %q: %s, %q", name, c.status, c.body, v.Class, v.Message)
			}
		}
	}
	if v := dialect(t, OpenAI).Classify(503, nil, []byte("<html>"+strings.Repeat("long ", 40000)), noon); len(v.Message) > maxMessage {
		t.Errorf("%d bytes of message", len(v.Message))
	}
}

func TestOdd11CommentsAndBlankLines(t *testing.T) {
	t.Parallel()
	m := endpoint(t, OpenAI, chatPath).NewMeter(MeterOptions{ContentType: "text/event-stream", Stream: true})
	for range 100 {
		m.Pass([]byte(": OPENROUTER PROCESSING\n\n"))
	}
	if m.Started() {
		t.Error("a comment was taken for the first event")
	}
	if out := m.Pass([]byte("data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n")); strings.Count(string(out), ": OPENROUTER PROCESSING\n\n") != 100 || !m.Started() {
		t.Errorf("%q", out)
	}
	body := "\n\n\n\n  " + `{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":1}}` + "\n"
	for _, kind := range []string{"application/json", ""} {
		m := endpoint(t, OpenAI, chatPath).NewMeter(MeterOptions{ContentType: kind})
		if out := feed(m, []byte(body), everyByte([]byte(body))...); string(out) != body {
			t.Errorf("changed to %q", out)
		}
		if got := m.Result(); got.Usage != spent(counts{Input: 5, Output: 1}) || got.TextBytes != 2 || !got.Complete {
			t.Errorf("%+v", got)
		}
	}
}

// TestFramingDoesNotMatter and FuzzMeter go through the rest of this case.
func TestOdd12Framing(t *testing.T) {
	t.Parallel()
	var s sse
	in := "\xef\xbb\xbf: hi\r\ndata:one\rdata: two\ndata\r\n\r\n\nid: 1\n\nevent: error\n: x\ndata:  spaced\n\n{\"a\":\n1}\n\ndata: tail"
	want := []string{"one\ntwo\n", "", " spaced", "{\"a\":\n1}", "tail"}
	for size := 1; size <= len(in); size++ {
		s = sse{}
		var got []string
		for at := 0; at < len(in); {
			piece := []byte(in[at:min(at+size, len(in))])
			at += len(piece)
			for n := 0; n < len(piece); {
				ev, k, ok := s.next(piece[n:])
				if n += k; !ok {
					break
				}
				got = append(got, string(ev.data))
			}
			for i := range piece {
				piece[i] = '#' // nothing may still look at it
			}
		}
		if ev, ok := s.finish(); ok {
			got = append(got, string(ev.data))
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("pieces of %d: %q, want %q", size, got, want)
		}
	}
}

func TestOdd13TruncatedEnd(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, dialect, path, in string }{
		{"no [DONE]", OpenAI, chatPath, "data: {\"choices\":[{\"delta\":{\"content\":\"x\"},\"finish_reason\":\"stop\"}]}\n\n"},
		{"half of [DONE]", OpenAI, chatPath, "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\ndata: [DON"},
		{"half an object", OpenAI, chatPath, "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":1"},
		{"no message_stop", Anthropic, messagesPath, "data: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"x\"}}\n\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\n"},
		{"[DONE] is not Anthropic's end", Anthropic, messagesPath, "data: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"x\"}}\n\ndata: [DONE]\n\n"},
		{"no response.completed", OpenAI, responsesPath, "data: {\"type\":\"response.output_text.delta\",\"delta\":\"x\"}\n\ndata: {\"type\":\"response.output_text.done\",\"text\":\"x\"}\n\n"},
		{"no finish reason", Gemini, generatePath, "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"x\"}]}}]}\r\n\r\n"},
		{"no interaction.completed", Gemini, "/v1beta/interactions", "data: {\"event_type\":\"step.delta\",\"delta\":{\"type\":\"text\",\"text\":\"x\"}}\n\n"},
	} {
		m := endpoint(t, c.dialect, c.path).NewMeter(MeterOptions{ContentType: "text/event-stream", Stream: true})
		if out := feed(m, []byte(c.in)); string(out) != c.in {
			t.Errorf("%s: an end was made up: %q", c.name, out)
		}
		if got := m.Result(); got.Complete || got.TextBytes != 1 || got.HasUsage {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
	// A finish reason alone is not the end while bytes may come.
	m := endpoint(t, Gemini, generatePath).NewMeter(MeterOptions{ContentType: "text/event-stream", Stream: true})
	m.Pass([]byte("data: {\"candidates\":[{\"finishReason\":\"STOP\"}]}\r\n\r\n"))
	if m.Result().Complete {
		t.Error("complete before the end")
	}
	if m.Finish(); !m.Result().Complete {
		t.Error("not complete at the end")
	}
	array := endpoint(t, Gemini, generatePath).NewMeter(MeterOptions{ContentType: "application/json", Stream: true})
	if feed(array, []byte(`[{"candidates":[{"finishReason":"STOP"}]},`)); array.Result().Complete {
		t.Error("complete without its bracket")
	}
}

func TestOdd14FinishReasons(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]string{`""`: "", `null`: "", `"stop"`: "stop", `"eos_of_the_future"`: "eos_of_the_future", `7`: ""} {
		got, _ := stream(t, OpenAI, chatPath, `{"choices":[{"delta":{"content":"x"},"finish_reason":`+reason+`}]}`, `{"choices":[{"delta":{},"finish_reason":""}]}`, "[DONE]")
		if got.FinishReason != want || !got.Complete {
			t.Errorf("%s: %+v", reason, got)
		}
	}
}

func TestOdd15RequestsThatNeverFit(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]Class{
		"Request too large for gpt-4 on tokens per min (TPM): Limit 30000, Requested 342389": Impossible,
		"Rate limit reached on tokens per min (TPM): Limit 30000, Used 29999, Requested 2":   Throttle,
		"Request too large on TPM: Limit 30000, Requested 200. Please try again in 4s.":      Throttle, // the numbers decide
		"Rate limit of 50000 per 60s exceeded for UserByModelByMinuteUncachedInputTokens":    Throttle,
		"Limit 30000, Requested soon":                                    Throttle,
		"Limit 99999999999999999999, Requested 999999999999999999999999": Throttle,
	} {
		body := `{"error":{"code":"rate_limit_exceeded","type":"tokens","message":"` + message + `"}}`
		if v := dialect(t, OpenAI).Classify(429, nil, []byte(body), noon); v.Class != want {
			t.Errorf("%s: %s by %s", message, v.Class, v.Rule)
		}
	}
}

func TestOdd16DailyAndMinuteQuota(t *testing.T) {
	t.Parallel()
	body := func(wait string, ids ...string) []byte {
		details := `{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaId":"` + strings.Join(ids, `"},{"quotaId":"`) + `"}]}`
		if wait != "" {
			details += `,{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"` + wait + `"}`
		}
		return []byte(`{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"You exceeded your current quota, please check your plan and billing details.","details":[` + details + `]}}`)
	}
	const day, minute = "GenerateRequestsPerDayPerProjectPerModel-FreeTier", "GenerateContentInputTokensPerModelPerMinute-FreeTier"
	for _, c := range []struct {
		body    []byte
		class   Class
		repeats Class
		dim     arbiter.Dim
	}{
		{body("", day), Exhausted, NoError, arbiter.DimRPD},
		{body("36s", day), Throttle, Exhausted, arbiter.DimRPD},
		{body("36s", minute), Throttle, NoError, arbiter.DimInputTPM},
		{body("", minute), Throttle, NoError, arbiter.DimInputTPM},
		{body("36s", day, minute), Throttle, NoError, arbiter.DimInputTPM},
		{body("7201s", minute), Exhausted, NoError, arbiter.DimNone},
	} {
		if v := dialect(t, Gemini).Classify(429, nil, c.body, noon); v.Class != c.class || v.Repeats != c.repeats || v.Dim != c.dim {
			t.Errorf("%s: %+v", c.body, v)
		}
	}
}

func TestOdd17InsufficientQuota(t *testing.T) {
	t.Parallel()
	v := dialect(t, OpenAI).Classify(429, http.Header{"Retry-After": {"1"}}, []byte(`{"error":{"type":"insufficient_quota","code":"insufficient_quota","message":"x"}}`), noon)
	if v.Class != Exhausted || v.Until != UntilOperator || v.Class.Outcome() != arbiter.OutcomeExhausted {
		t.Errorf("%+v", v)
	}
	// Nor inside a stream that said 200.
	got, _ := stream(t, OpenAI, chatPath, `{"error":{"type":"insufficient_quota","code":"insufficient_quota","message":"x"}}`)
	if v := dialect(t, OpenAI).Classify(got.Fault.Status, nil, got.Fault.Body, noon); v.Class != Exhausted || got.Fault.Status != 429 {
		t.Errorf("%+v of %+v", v, got.Fault)
	}
}

func TestOdd18UnusualStatuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status int
		class  Class
		until  Until
	}{{408, Provider, UntilShort}, {409, Caller, UntilShort}, {413, Caller, UntilNever}, {529, Overload, UntilBackoff}, {599, Provider, UntilBackoff}, {700, Provider, UntilBackoff}} {
		if v := dialect(t, Anthropic).Classify(c.status, nil, []byte("<html>"), noon); v.Class != c.class || v.Until != c.until {
			t.Errorf("%d: %+v", c.status, v)
		}
	}
}

func TestOdd19WrappedErrors(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		`{"error":{"code":"insufficient_quota","message":"gone"}}`,
		`[{"error":{"code":"insufficient_quota","message":"gone"}}]`,
		"\n\n" + `{"error":{"type":"insufficient_quota","message":"gone"}}`,
		`{"error":{"message":"{\"error\":{\"code\":\"insufficient_quota\",\"message\":\"gone\"}}"}}`,
		`{"error":{"message":"OpenAIException - {\"error\":{\"code\":\"insufficient_quota\",\"message\":\"gone\"}}"}}`,
		`{"error":"insufficient_quota","message":"gone"}`,
		`{"code":"insufficient_quota","message":"gone"}`,
	} {
		if v := dialect(t, OpenAI).Classify(429, nil, []byte(body), noon); v.Class != Exhausted || v.Message != "gone" {
			t.Errorf("%s: %+v", body, v)
		}
	}
	if v := dialect(t, OpenAI).Classify(400, nil, []byte(`{"error":{"code":400,"message":"m"}}`), noon); v.Code != "400" {
		t.Errorf("a code that is a number: %+v", v)
	}
}

func TestOdd20MissingLimitHeaders(t *testing.T) {
	t.Parallel()
	for _, name := range append(Names(), HTTP) {
		l := dialect(t, name).Limits(http.Header{"Content-Type": {"application/json"}}, noon)
		if _, ok := l.Wait(arbiter.DimNone); ok || len(l.List) != 0 || l.Exhausted() != arbiter.DimNone {
			t.Errorf("%s: %+v", name, l)
		}
	}
}

func TestOdd22Numbers(t *testing.T) {
	t.Parallel()
	for prompt, want := range map[string]Usage{
		`12.0`: spent(counts{Input: 12}), `"12"`: spent(counts{Input: 12}), `4294967296`: spent(counts{Input: 1 << 32}), `1e3`: spent(counts{Input: 1000}),
		`-5`:   {Adjusted: true},
		`12.5`: {Usage: counts{Input: 13}, Adjusted: true},
		`1e99`: {Usage: counts{Input: maxCount}, Adjusted: true},
	} {
		got, _ := stream(t, OpenAI, chatPath, `{"choices":[],"usage":{"prompt_tokens":`+prompt+`}}`, "[DONE]")
		if got.Usage != want || !got.HasUsage {
			t.Errorf("%s: %+v", prompt, got)
		}
	}
	for _, prompt := range []string{`"many"`, `true`, `{}`, `[1]`, `""`} {
		if got, _ := stream(t, OpenAI, chatPath, `{"choices":[],"usage":{"prompt_tokens":`+prompt+`}}`, "[DONE]"); got.HasUsage {
			t.Errorf("%s: %+v", prompt, got)
		}
	}
}

// Parts inside parts without end are not followed to their end.
func TestNestedPartsAreBounded(t *testing.T) {
	t.Parallel()
	const levels = 1 << 20
	deep := strings.Repeat(`[{"content":`, levels) + `"x"` + strings.Repeat(`}]`, levels)
	got, _ := stream(t, OpenAI, chatPath, `{"choices":[{"delta":{"content":`+deep+`}}]}`, `{"choices":[{"delta":{"content":"ab"}}]}`, "[DONE]")
	if got.TextBytes != 2 || !got.Complete {
		t.Errorf("%+v", got)
	}
}
