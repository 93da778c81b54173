package gateway_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/engine"
	"github.com/token-budget-arbiter/tba/internal/gateway"
)

// The odd cases of providers from one end to the other: what the agent gets, what is booked, what becomes of the rung, how often the
// provider is asked. How the bytes are read is package provider's matter, whose tests have the same numbers.

// ledger keeps what a gateway tells its hooks.
type ledger struct {
	mu       sync.Mutex
	bills    []gateway.Bill
	answered []gateway.Answered
}

func (l *ledger) hooks() gateway.Hooks {
	return gateway.Hooks{
		Settled: func(b gateway.Bill) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.bills = append(l.bills, b)
		},
		Upstream: func(a gateway.Answered) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.answered = append(l.answered, a)
		},
	}
}

// committed are the bills so far.
func (l *ledger) committed() []gateway.Bill {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.bills)
}

// rung is how the arbiter sees a provider's model.
func (w *world) rung(provider, model string) (found arbiter.RungRow) {
	w.t.Helper()
	err := w.engine.View(w.t.Context(), engine.DefaultPool, func(s *arbiter.State) error {
		for _, r := range s.RungRows() {
			if r.Provider == provider && r.Model == model {
				found = r
				return nil
			}
		}
		return fmt.Errorf("no rung %s/%s", provider, model)
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return found
}

// events are the newest of a kind.
func (w *world) events(kind arbiter.EventKind) []engine.Event {
	w.t.Helper()
	page, err := w.engine.Events(engine.DefaultPool, 0, 100, kind)
	if err != nil {
		w.t.Fatal(err)
	}
	return page.Events
}

// The calls that the odd answers are given to, by dialect, and the rung of each.
var (
	chatCall   = oddCall{"/v1/chat/completions", hello, "openai", "gpt-5.4"}
	chatStream = oddCall{"/v1/chat/completions", helloStream, "openai", "gpt-5.4"}
	responses  = oddCall{"/v1/responses", `{"model":"gpt-5.4","input":"Say hello.","stream":true,"max_output_tokens":50}`, "openai", "gpt-5.4"}
	messages   = oddCall{"/anthropic/v1/messages", `{"model":"claude-sonnet-5","max_tokens":50,"messages":[{"role":"user","content":"Say hello."}]}`, "anthropic", "claude-sonnet-5"}
	messageSSE = oddCall{"/anthropic/v1/messages", `{"model":"claude-sonnet-5","max_tokens":50,"stream":true,"messages":[{"role":"user","content":"Say hello."}]}`, "anthropic", "claude-sonnet-5"}
	generate   = oddCall{"/gemini/v1beta/models/gemini-3.5-flash:generateContent", `{"contents":[{"parts":[{"text":"Say hello."}]}],"generationConfig":{"maxOutputTokens":50}}`, "gemini", "gemini-3.5-flash"}
	genStream  = oddCall{"/gemini/v1beta/models/gemini-3.5-flash:streamGenerateContent?alt=sse", `{"contents":[{"parts":[{"text":"Say hello."}]}],"generationConfig":{"maxOutputTokens":50}}`, "gemini", "gemini-3.5-flash"}
	mistral    = oddCall{"/mistral/v1/chat/completions", `{"model":"mistral-small-2603","max_tokens":50,"stream":true,"messages":[{"role":"user","content":"Say hello."}]}`, "mistral", "mistral-small-2603"}
)

type oddCall struct{ path, body, provider, model string }

// prompt is what the prompt of these calls is estimated at: ten bytes of text and one message.
const prompt = 3 + 4

// odd is one odd answer and what must come of it. The provider is asked once, no lease is left, and the figure of the budget is the bill's.
type odd struct {
	call   oddCall
	header []string // of the answer: name, value
	status int      // of the answer; 0 is 200
	body   string
	cut    bool // the connection breaks after body

	gets     int // status that the agent gets; 0 is 200
	same     bool
	has      string // in what the agent gets
	lacks    string
	broken   bool // the agent sees its answer break off
	usage    arbiter.Usage
	guessed  bool
	released bool // nothing is booked
	failures int64
}

func (o *odd) play(t *testing.T) (w *world, got reply) {
	t.Helper()
	var calls atomic.Int64
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		_, _ = io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		if strings.HasPrefix(o.body, "data:") || strings.HasPrefix(o.body, "event:") || strings.HasPrefix(o.body, ":") {
			w.Header().Set("Content-Type", "text/event-stream")
		}
		for i := 0; i < len(o.header); i += 2 {
			w.Header().Set(o.header[i], o.header[i+1])
		}
		if o.status != 0 {
			w.WriteHeader(o.status)
		}
		_, _ = io.WriteString(w, o.body)
		if o.cut {
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
	})
	var l ledger
	w = newWorld(t, setup{file: fourProviders(up), hooks: l.hooks()})
	got = w.post(o.call.path, o.call.body, "X-Tba-Max-Wait-Ms", "0")
	want := o.gets
	if want == 0 {
		want = http.StatusOK
	}
	if got.status != want || (got.err != nil) != o.broken {
		t.Errorf("%d %v %v %.300q", got.status, got.err, got.header, got.body)
	}
	if o.same && got.body != o.body {
		t.Errorf("the agent got %q, the provider said %q", got.body, o.body)
	}
	if !strings.Contains(got.body, o.has) || o.lacks != "" && strings.Contains(got.body, o.lacks) {
		t.Errorf("the agent got %.500q", got.body)
	}
	if n := calls.Load(); n != 1 {
		t.Errorf("the provider was asked %d times", n)
	}
	b, bills := w.settled(), l.committed()
	switch {
	case o.released:
		if len(bills) != 0 || b.spent != 0 {
			t.Errorf("booked %d, bills %+v", b.spent, bills)
		}
	case len(bills) != 1 || bills[0].Usage != o.usage || bills[0].Estimated != o.guessed || b.spent != o.usage.Total():
		t.Errorf("booked %d, bills %+v, want %+v (%d)", b.spent, bills, o.usage, o.usage.Total())
	}
	if r := w.rung(o.call.provider, o.call.model); r.Failures != o.failures {
		t.Errorf("failures of the rung: %d, want %d", r.Failures, o.failures)
	}
	return w, got
}

func playAll(t *testing.T, cases map[string]odd) {
	t.Parallel()
	for name, o := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o.play(t)
		})
	}
}

// lines are data events.
func lines(events ...string) string { return "data: " + strings.Join(events, "\n\ndata: ") + "\n\n" }

// named are events with names, as Anthropic and the Responses endpoint send them.
func named(pairs ...string) string {
	var b strings.Builder
	for i := 0; i < len(pairs); i += 2 {
		fmt.Fprintf(&b, "event: %s\ndata: %s\n\n", pairs[i], pairs[i+1])
	}
	return b.String()
}

func says(text, rest string) string {
	return fmt.Sprintf(`{"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":%q},"finish_reason":null}]%s}`, text, rest)
}

const stops = `{"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`

// T18 is the same case.
func TestOdd01EmptyUsageBeforeTheRealOne(t *testing.T) {
	cases := map[string]odd{}
	for _, early := range []string{`null`, `{}`, `{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}`} {
		var events []string
		for range 20 {
			events = append(events, says("x", `,"usage":`+early))
		}
		events = append(events, `{"choices":[],"usage":{"prompt_tokens":120,"completion_tokens":48,"total_tokens":168}}`, "[DONE]")
		cases[early] = odd{call: chatStream, body: lines(events...), has: `"content":"x"`, lacks: `"prompt_tokens":120`, usage: arbiter.Usage{Input: 120, Output: 48}}
	}
	playAll(t, cases)
}

func TestOdd02NoUsageAtAll(t *testing.T) {
	answer := strings.Repeat("word ", 20) // a hundred bytes
	playAll(t, map[string]odd{
		"chat": {call: chatStream, body: lines(says(answer, ""), stops, "[DONE]"), same: true, usage: arbiter.Usage{Input: prompt, Output: 25}, guessed: true},
		"not a stream": {call: chatCall, body: `{"choices":[{"message":{"role":"assistant","content":"` + answer + `"},"finish_reason":"stop"}]}`, same: true,
			usage: arbiter.Usage{Input: prompt, Output: 25}, guessed: true},
		"null":    {call: mistral, body: lines(says(answer, `,"usage":null`), stops, "[DONE]"), same: true, usage: arbiter.Usage{Input: prompt, Output: 25}, guessed: true},
		"nothing": {call: chatStream, body: lines(stops, "[DONE]"), same: true, usage: arbiter.Usage{Input: prompt}, guessed: true},
	})
}

// T19 is the same case: the figures of its three shapes.
func TestOdd03UsageWhereverItComes(t *testing.T) {
	const final = `{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}}`
	playAll(t, map[string]odd{
		"after the finish, without choices": {call: chatStream, body: lines(says("hi", ""), stops, final, "[DONE]"), has: "[DONE]", lacks: `"choices":[]`, usage: arbiter.Usage{Input: 10, Output: 5}},
		"with an empty delta": {call: chatStream, body: lines(says("hi", ""), `{"choices":[{"index":0,"delta":{}}],"usage":{"prompt_tokens":287,"completion_tokens":8,"total_tokens":295,"prompt_tokens_details":{"cached_tokens":256}}}`, "[DONE]"),
			same: true, usage: arbiter.Usage{Input: 31, CacheRead: 256, Output: 8}},
		"with the finish": {call: chatStream, body: lines(says("hi", ""), `{"choices":[{"index":0,"delta":{"role":"assistant"},"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}}`, "[DONE]"),
			same: true, usage: arbiter.Usage{Input: 10, Output: 5}},
		"with content":          {call: chatStream, body: lines(says("hi", `,"usage":{"prompt_tokens":10,"completion_tokens":5}`), stops, "[DONE]"), same: true, usage: arbiter.Usage{Input: 10, Output: 5}},
		"Mistral, on the last":  {call: mistral, body: lines(says("hi", ""), strings.TrimSuffix(stops, "}")+`,"usage":{"prompt_tokens":10,"completion_tokens":5}}`, "[DONE]"), same: true, usage: arbiter.Usage{Input: 10, Output: 5}},
		"filters before it all": {call: chatStream, body: lines(`{"choices":[],"prompt_filter_results":[]}`, says("hi", ""), stops, final, "[DONE]"), has: "prompt_filter_results", lacks: "total_tokens", usage: arbiter.Usage{Input: 10, Output: 5}},
	})
}

// T16 is the case of Anthropic, T15 the one whose input comes last.
func TestOdd04CumulativeCountsAreNotAdded(t *testing.T) {
	start := func(in, out int) string {
		return fmt.Sprintf(`{"type":"message_start","message":{"id":"m","type":"message","role":"assistant","model":"claude-sonnet-5","content":[],"usage":{"input_tokens":%d,"output_tokens":%d}}}`, in, out)
	}
	delta := func(usage string) string {
		return `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":` + usage + `}`
	}
	const stop = `{"type":"message_stop"}`
	playAll(t, map[string]odd{
		"on each chunk": {call: chatStream, body: lines(
			says("a", `,"usage":{"prompt_tokens":100,"completion_tokens":1}`), says("b", `,"usage":{"prompt_tokens":100,"completion_tokens":2}`),
			says("c", `,"usage":{"prompt_tokens":100,"completion_tokens":3}`), stops, "[DONE]"), same: true, usage: arbiter.Usage{Input: 100, Output: 3}},
		"Gemini": {call: genStream, body: lines(
			`{"candidates":[{"content":{"parts":[{"text":"a"}]}}],"usageMetadata":{"promptTokenCount":40,"candidatesTokenCount":1,"totalTokenCount":41}}`,
			`{"candidates":[{"content":{"parts":[{"text":"b"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":40,"candidatesTokenCount":9,"totalTokenCount":49}}`),
			same: true, usage: arbiter.Usage{Input: 40, Output: 9}},
		"T16 one delta":  {call: messageSSE, body: named("message_start", start(25, 1), "message_delta", delta(`{"output_tokens":15}`), "message_stop", stop), same: true, usage: arbiter.Usage{Input: 25, Output: 15}},
		"T16 two deltas": {call: messageSSE, body: named("message_start", start(25, 1), "message_delta", delta(`{"output_tokens":7}`), "message_delta", delta(`{"output_tokens":15}`), "message_stop", stop), same: true, usage: arbiter.Usage{Input: 25, Output: 15}},
		"T15 the input last": {call: messageSSE, body: named("message_start", `{"type":"message_start","message":{"id":"m","model":"claude-sonnet-5","content":[]}}`,
			"message_delta", delta(`{"input_tokens":4522,"cache_creation_input_tokens":4511,"output_tokens":5}`), "message_stop", stop), same: true,
			usage: arbiter.Usage{Input: 4522, CacheWrite: 4511, Output: 5}},
	})
}

func TestOdd05ThoughtsAreOutput(t *testing.T) {
	const usage = `"usageMetadata":{"promptTokenCount":41,"candidatesTokenCount":5,"totalTokenCount":389`
	const answer = `{"candidates":[{"content":{"parts":[{"text":"ok"}]},"finishReason":"STOP"}],` + usage
	want := arbiter.Usage{Input: 41, Output: 348, Reasoning: 343}
	playAll(t, map[string]odd{
		"told":           {call: generate, body: answer + `,"thoughtsTokenCount":343}}`, same: true, usage: want},
		"told in stream": {call: genStream, body: lines(answer + `,"thoughtsTokenCount":343}}`), same: true, usage: want},
		"only in total":  {call: generate, body: answer + `}}`, same: true, usage: arbiter.Usage{Input: 41, Output: 348}},
	})
}

// A limit header that cannot be true neither shuts a rung nor opens one, and a wait of nothing is no reason to spin.
func TestOdd06ImpossibleLimits(t *testing.T) {
	t.Parallel()
	for name, headers := range map[string][]string{
		"minus one": {"X-Ratelimit-Limit-Tokens", "-1", "X-Ratelimit-Remaining-Tokens", "-1", "X-Ratelimit-Reset-Tokens", "0"},
		"nothing":   {"X-Ratelimit-Limit-Requests", "", "X-Ratelimit-Remaining-Requests", "", "X-Ratelimit-Reset-Requests", ""},
		"zeros":     {"X-Ratelimit-Limit-Requests", "0", "X-Ratelimit-Remaining-Requests", "0", "X-Ratelimit-Reset-Requests", "0s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, _ := (&odd{call: chatCall, header: headers, body: chatReply(11, 7), same: true, usage: arbiter.Usage{Input: 11, Output: 7}}).play(t)
			for range 3 {
				if got := w.post(chatCall.path, chatCall.body, "X-Tba-Max-Wait-Ms", "0"); got.status != http.StatusOK {
					t.Errorf("the next call: %d %s", got.status, got.body)
				}
			}
		})
	}
	t.Run("a throttle without a wait", func(t *testing.T) {
		t.Parallel()
		var calls atomic.Int64
		w := newWorld(t, setup{file: oneProvider(answering(t, &calls, failing(429, `{"error":{"message":"slow","type":"requests","code":"rate_limit_exceeded"}}`, "Retry-After", "0", "X-Ratelimit-Reset-Requests", "0s")))})
		got := w.post(chatCall.path, chatCall.body, "X-Tba-Max-Wait-Ms", "1200")
		if n := calls.Load(); got.status != http.StatusTooManyRequests || n < 1 || n > 6 {
			t.Errorf("%d after %d calls in 1.2 s: %s", got.status, n, got.body)
		}
		if b := w.settled(); b.spent != 0 {
			t.Errorf("books: %+v", b)
		}
	})
}

// shut plays an error of the only rung and makes a second call: the provider hears of it only if the rung is open.
func shut(t *testing.T, o odd, closed bool) (first, second reply) {
	t.Helper()
	var calls atomic.Int64
	up := answering(t, &calls, failing(o.status, o.body, o.header...))
	w := newWorld(t, setup{file: fourProviders(up)})
	first = w.post(o.call.path, o.call.body, "X-Tba-Max-Wait-Ms", "0")
	second = w.post(o.call.path, o.call.body, "X-Tba-Max-Wait-Ms", "0")
	if want := map[bool]int64{true: 1, false: 2}[closed]; calls.Load() != want {
		t.Errorf("the provider was asked %d times, want %d; the second call: %d %s", calls.Load(), want, second.status, second.body)
	}
	if origin := second.header.Get("X-Tba-Origin"); (origin == "arbiter") != closed {
		t.Errorf("the second call is answered by %q: %d %s", origin, second.status, second.body)
	}
	if b := w.settled(); b.spent != 0 {
		t.Errorf("books: %+v", b)
	}
	return first, second
}

const throttleBody = `{"error":{"message":"Rate limit reached","type":"requests","code":"rate_limit_exceeded"}}`

// T41 is the same case: its forms of a wait.
func TestOdd07AbsurdWaits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		header []string
		closed bool
		wait   string // Retry-After of the first answer
		final  bool   // no SDK is to try it again
	}{
		"3.5 days in ms": {[]string{"Retry-After-Ms", "302539000"}, true, "", true},
		"a day":          {[]string{"Retry-After", "86400"}, true, "", true},
		"ms win":         {[]string{"Retry-After", "86400", "Retry-After-Ms", "20000"}, true, "20", false},
		"a thousand":     {[]string{"Retry-After", "1e3"}, true, "", true},
		"the first":      {[]string{"Retry-After", "60, 120"}, true, "60", false},
		"a past date":    {[]string{"Retry-After", "Wed, 21 Oct 2026 07:28:00 GMT", "Date", "Wed, 21 Oct 2026 07:30:00 GMT"}, true, "", false},
		"a date in 20 s": {[]string{"Retry-After", "Wed, 21 Oct 2026 07:28:20 GMT", "Date", "Wed, 21 Oct 2026 07:28:00 GMT"}, true, "20", false},
		"no number":      {[]string{"Retry-After", "NaN"}, true, "", false},
		"below nothing":  {[]string{"Retry-After", "-5"}, true, "", false},
		"beyond measure": {[]string{"Retry-After", "1e99"}, true, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, second := shut(t, odd{call: chatCall, status: 429, body: throttleBody, header: c.header}, c.closed)
			if first.status != http.StatusTooManyRequests || first.body != throttleBody || (first.header.Get("X-Should-Retry") == "false") != c.final {
				t.Errorf("%d %v %s", first.status, first.header, first.body)
			}
			if first.header.Get("Retry-After") != c.wait {
				t.Errorf("the agent is told to wait %q, want %q", first.header["Retry-After"], c.wait)
			}
			if hint := second.header.Get("Retry-After"); (hint == "") != c.final || len(hint) > 2 {
				t.Errorf("who comes next is told to wait %q: %s", hint, second.body)
			}
		})
	}
}

func TestOdd08ErrorInsideA200(t *testing.T) {
	const router = `{"error":{"code":502,"message":"Provider disconnected"},"choices":[]}`
	const overloaded = `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"req_1"}`
	const begun = `{"type":"message_start","message":{"id":"m","model":"claude-sonnet-5","content":[],"usage":{"input_tokens":25,"output_tokens":1}}}`
	playAll(t, map[string]odd{
		"OpenRouter, first":     {call: chatStream, body: lines(router), gets: 502, has: "Provider disconnected", lacks: "data:", released: true, failures: 1},
		"Anthropic, first":      {call: messageSSE, body: named("error", overloaded), gets: 529, has: "overloaded_error", lacks: "event:", released: true, failures: 1},
		"Responses, first":      {call: responses, body: named("error", `{"type":"error","error":{"type":"service_unavailable_error","code":"server_is_overloaded","message":"busy"},"sequence_number":2}`), gets: 503, has: "server_is_overloaded", lacks: "event:", released: true, failures: 1},
		"a whole answer":        {call: chatCall, body: `{"error":{"code":502,"message":"upstream broke"}}`, gets: 502, same: true, released: true, failures: 1},
		"Gemini, first":         {call: genStream, body: lines(`{"error":{"code":503,"status":"UNAVAILABLE","message":"The model is overloaded."}}`), gets: 503, has: "UNAVAILABLE", lacks: "data:", released: true, failures: 1},
		"OpenRouter, later":     {call: chatStream, body: lines(says("hi", ""), router), same: true, usage: arbiter.Usage{Input: prompt, Output: 1}, guessed: true, failures: 1},
		"a finish of error":     {call: chatStream, body: lines(says("hi", ""), `{"choices":[{"index":0,"delta":{},"finish_reason":"error"}]}`, "[DONE]"), same: true, usage: arbiter.Usage{Input: prompt, Output: 1}, guessed: true, failures: 1},
		"Anthropic, later":      {call: messageSSE, body: named("message_start", begun, "error", overloaded), same: true, usage: arbiter.Usage{Input: 25, Output: 1}, guessed: true, failures: 1},
		"Responses, later":      {call: responses, body: named("response.created", `{"type":"response.created","response":{"id":"r","model":"gpt-5.4","usage":null}}`, "response.output_text.delta", `{"type":"response.output_text.delta","delta":"hi"}`, "response.failed", `{"type":"response.failed","response":{"id":"r","error":{"code":"server_error","message":"broke"},"usage":{"input_tokens":30,"output_tokens":2,"total_tokens":32}}}`), same: true, usage: arbiter.Usage{Input: 30, Output: 2}, guessed: true, failures: 1},
		"a throttle, the first": {call: chatStream, body: lines(`{"error":{"code":429,"message":"Rate limit reached, retry after 20 seconds","type":"requests"}}`), gets: 429, lacks: "data:", released: true},
	})
}

func TestOdd09ErrorsThatAreNoJSON(t *testing.T) {
	const page = "<html><head><title>502 Bad Gateway</title></head><body><center>cloudflare</center></body></html>"
	cases := map[string]odd{}
	for _, call := range []oddCall{chatCall, messages, generate, mistral} {
		cases[call.provider+" 502 page"] = odd{call: call, status: 502, header: []string{"Content-Type", "text/html"}, body: page, gets: 502, has: `"error"`, lacks: "<html", released: true, failures: 1}
		cases[call.provider+" 522 words"] = odd{call: call, status: 522, header: []string{"Content-Type", "text/plain"}, body: "error code: 522", gets: 522, has: `error`, lacks: "<html", released: true, failures: 1}
		cases[call.provider+" 500 empty"] = odd{call: call, status: 500, gets: 500, has: `rror`, released: true, failures: 1}
		cases[call.provider+" 429 page"] = odd{call: call, status: 429, header: []string{"Content-Type", "text/html"}, body: "<html>1015</html>", gets: 429, has: `rror`, lacks: "<html", released: true}
		cases[call.provider+" 429 JSON that is none"] = odd{call: call, status: 429, body: `{"error":`, gets: 429, has: `rror`, released: true}
	}
	delete(cases, "mistral 429 JSON that is none")
	t.Parallel()
	for name, o := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, got := o.play(t)
			if !gjson.Valid(got.body) || !strings.HasPrefix(got.header.Get("Content-Type"), "application/json") || len(got.body) > 4<<10 {
				t.Errorf("%s: %.300q", got.header.Get("Content-Type"), got.body)
			}
		})
	}
	t.Run("a page holds the rung", func(t *testing.T) {
		t.Parallel()
		shut(t, odd{call: chatCall, status: 429, body: page, header: []string{"Content-Type", "text/html"}}, true)
	})
	t.Run("a page of 4 MiB", func(t *testing.T) {
		t.Parallel()
		_, got := (&odd{call: chatCall, status: 503, body: strings.Repeat("x", 4<<20), gets: 503, has: "error", released: true, failures: 1}).play(t)
		if len(got.body) > 4<<10 {
			t.Errorf("%d bytes went on", len(got.body))
		}
	})
}

func TestOdd10Compression(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		call   oddCall
		answer string
	}{
		"whole":  {chatCall, chatReply(11, 7)},
		"stream": {chatStream, lines(says("hi", ""), stops, `{"choices":[],"usage":{"prompt_tokens":11,"completion_tokens":7}}`, "[DONE]")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var l ledger
			up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if r.Header.Get("Content-Encoding") != "" || !gjson.ValidBytes(body) {
					t.Errorf("went up as %q %q", r.Header.Get("Content-Encoding"), body)
				}
				w.Header().Set("Content-Type", map[bool]string{true: "application/json", false: "text/event-stream"}[name == "whole"])
				var packed bytes.Buffer
				z := gzip.NewWriter(&packed)
				_, _ = io.WriteString(z, c.answer)
				_ = z.Close()
				w.Header().Set("Content-Encoding", "gzip")
				w.Header().Set("Content-Length", fmt.Sprint(packed.Len()))
				_, _ = w.Write(packed.Bytes())
			})
			w := newWorld(t, setup{file: oneProvider(up), hooks: l.hooks()})
			got := w.post(c.call.path, c.call.body, "Accept-Encoding", "gzip, br, zstd")
			if got.status != http.StatusOK || got.header.Get("Content-Encoding") != "" || !strings.Contains(got.body, `"choices":[{`) || strings.Contains(got.body, `"choices":[]`) {
				t.Errorf("%d %v %q", got.status, got.header, got.body)
			}
			if b := w.settled(); b.spent != 18 || len(l.committed()) != 1 || l.committed()[0].Estimated {
				t.Errorf("booked %+v, %+v", b, l.committed())
			}
		})
	}
	t.Run("a request in an unknown encoding", func(t *testing.T) {
		t.Parallel()
		var calls atomic.Int64
		w := newWorld(t, setup{file: oneProvider(answering(t, &calls, fine))})
		got := w.post(chatCall.path, chatCall.body, "Content-Encoding", "snappy")
		if got.status != http.StatusUnsupportedMediaType || calls.Load() != 0 || !gjson.Get(got.body, "error.message").Exists() {
			t.Errorf("%d after %d calls: %s", got.status, calls.Load(), got.body)
		}
		if b := w.settled(); b.calls != 0 {
			t.Errorf("books: %+v", b)
		}
	})
}

func TestOdd11CommentsAndBlankLines(t *testing.T) {
	playAll(t, map[string]odd{
		"OpenRouter": {call: chatStream, body: ": OPENROUTER PROCESSING\n\n: OPENROUTER PROCESSING\n\n" + lines(says("hi", ""), stops, `{"choices":[],"usage":{"prompt_tokens":11,"completion_tokens":7}}`, "[DONE]"),
			has: ": OPENROUTER PROCESSING\n\n: OPENROUTER PROCESSING\n\ndata: {", lacks: "data: :", usage: arbiter.Usage{Input: 11, Output: 7}},
		"DeepSeek, whole":              {call: chatCall, body: "\n\n\n\n" + chatReply(11, 7), same: true, usage: arbiter.Usage{Input: 11, Output: 7}},
		"comments, then an error":      {call: chatStream, body: ": wait\n\n: wait\n\n" + lines(`{"error":{"code":502,"message":"no"},"choices":[]}`), gets: 502, lacks: "wait", released: true, failures: 1},
		"blank lines, then an error":   {call: chatCall, body: "\n\n" + `{"error":{"code":502,"message":"no"}}`, gets: 502, has: `"no"`, released: true, failures: 1},
		"a comment between its events": {call: messageSSE, body: named("message_start", `{"type":"message_start","message":{"id":"m","usage":{"input_tokens":25,"output_tokens":1}}}`) + ": keep-alive\n\n" + named("ping", `{"type":"ping"}`, "message_delta", `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":3}}`, "message_stop", `{"type":"message_stop"}`), same: true, usage: arbiter.Usage{Input: 25, Output: 3}},
	})
}

func TestOdd12Framing(t *testing.T) {
	cased := lines(says("hi", ""), `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":11,"completion_tokens":7}}`, "[DONE]")
	want := arbiter.Usage{Input: 11, Output: 7}
	header := []string{"Content-Type", "text/event-stream"}
	playAll(t, map[string]odd{
		"CRLF":              {call: chatStream, body: strings.ReplaceAll(cased, "\n", "\r\n"), same: true, usage: want},
		"CR":                {call: chatStream, body: strings.ReplaceAll(cased, "\n", "\r"), same: true, usage: want},
		"without the blank": {call: chatStream, body: strings.ReplaceAll(cased, "data: ", "data:"), same: true, usage: want},
		"a mark before it":  {call: chatStream, header: header, body: "\ufeff" + cased, same: true, usage: want},
		"several lines":     {call: chatStream, body: strings.ReplaceAll(cased, `"usage":{`, `"usage":`+"\ndata: {"), same: true, usage: want},
		"no blank line at the end": {call: genStream, body: strings.TrimRight(lines(`{"candidates":[{"content":{"parts":[{"text":"hi"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":11,"candidatesTokenCount":7,"totalTokenCount":18}}`), "\n"),
			same: true, usage: want},
		"a line of 300 KB": {call: chatStream, body: lines(says(strings.Repeat("é", 150_000), ""), stops, `{"choices":[],"usage":{"prompt_tokens":11,"completion_tokens":7}}`, "[DONE]"), has: "[DONE]", lacks: "completion_tokens", usage: want},
	})
}

// An answer that stops before its end is a failure, books a guess, and breaks off for the agent too. Nobody invents the end.
func TestOdd13TruncatedEnd(t *testing.T) {
	begun := lines(says("hello you", ""))
	guess := arbiter.Usage{Input: prompt, Output: 3}
	playAll(t, map[string]odd{
		"no [DONE]":          {call: chatStream, body: begun, broken: true, same: true, lacks: "[DONE]", usage: guess, guessed: true, failures: 1},
		"reset":              {call: chatStream, body: begun, cut: true, broken: true, same: true, usage: guess, guessed: true, failures: 1},
		"half an object":     {call: chatStream, body: begun + `data: {"choices":[{"ind`, broken: true, same: true, usage: guess, guessed: true, failures: 1},
		"no message_stop":    {call: messageSSE, body: named("message_start", `{"type":"message_start","message":{"id":"m","usage":{"input_tokens":25,"output_tokens":1}}}`, "content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hello you"}}`), broken: true, same: true, usage: arbiter.Usage{Input: 25, Output: 3}, guessed: true, failures: 1},
		"no finishReason":    {call: genStream, body: lines(`{"candidates":[{"content":{"parts":[{"text":"hello you"}]}}],"usageMetadata":{"promptTokenCount":11,"candidatesTokenCount":2,"totalTokenCount":13}}`), broken: true, same: true, usage: arbiter.Usage{Input: 11, Output: 3}, guessed: true, failures: 1},
		"no completed":       {call: responses, body: named("response.created", `{"type":"response.created","response":{"id":"r","usage":null}}`, "response.output_text.delta", `{"type":"response.output_text.delta","delta":"hello you"}`), broken: true, same: true, usage: guess, guessed: true, failures: 1},
		"half a body, reset": {call: chatCall, body: chatReply(11, 7)[:150], cut: true, gets: 503, lacks: "choices", usage: guess, guessed: true, failures: 1},
		"nothing at all":     {call: chatStream, header: []string{"Content-Type", "text/event-stream"}, body: "", gets: 503, has: "gave no answer", usage: arbiter.Usage{Input: prompt}, guessed: true, failures: 1},
	})
}

func TestOdd14FinishReasons(t *testing.T) {
	empty := strings.Replace(says("hi", ""), `"finish_reason":null`, `"finish_reason":""`, 1)
	final := `{"choices":[],"usage":{"prompt_tokens":11,"completion_tokens":7}}`
	playAll(t, map[string]odd{
		"empty":   {call: chatStream, body: lines(empty, empty, stops, final, "[DONE]"), has: `"finish_reason":""`, usage: arbiter.Usage{Input: 11, Output: 7}},
		"unknown": {call: chatStream, body: lines(says("hi", ""), strings.Replace(stops, "stop", "model_tired", 1), final, "[DONE]"), has: "model_tired", usage: arbiter.Usage{Input: 11, Output: 7}},
		"none":    {call: chatStream, body: lines(`{"choices":[{"index":0,"delta":{"content":"hi"}}]}`, final, "[DONE]"), has: "hi", usage: arbiter.Usage{Input: 11, Output: 7}},
		"unknown of Anthropic": {call: messages, body: `{"id":"m","type":"message","role":"assistant","model":"claude-sonnet-5","content":[{"type":"text","text":"hi"}],"stop_reason":"model_tired","usage":{"input_tokens":11,"output_tokens":7}}`,
			same: true, usage: arbiter.Usage{Input: 11, Output: 7}},
	})
}

func TestOdd15A429ThatCanNeverSucceed(t *testing.T) {
	t.Parallel()
	t.Run("too large", func(t *testing.T) {
		t.Parallel()
		const body = `{"error":{"message":"Request too large for gpt-5.4 on tokens per min (TPM): Limit 30000, Requested 342389. Please try again in 1s.","type":"tokens","code":"rate_limit_exceeded"}}`
		first, second := shut(t, odd{call: chatCall, status: 429, body: body, header: []string{"Retry-After", "1"}}, false)
		for _, got := range []reply{first, second} { // others of another size may go up: the rung stays open
			if got.status != 429 || got.header.Get("X-Should-Retry") != "false" || got.header.Get("Retry-After") != "" || got.body != body {
				t.Errorf("%d %v %s", got.status, got.header, got.body)
			}
		}
	})
	t.Run("Azure's that only looks like it", func(t *testing.T) {
		t.Parallel()
		first, second := shut(t, odd{call: chatCall, status: 429, header: []string{"Retry-After", "20"},
			body: `{"error":{"code":"RateLimitReached","message":"Rate limit of 50000 per 60s exceeded for UserByModelByMinuteUncachedInputTokens. Please wait 20 seconds before retrying."}}`}, true)
		if first.header.Get("X-Should-Retry") == "false" || first.header.Get("Retry-After") != "20" || second.header.Get("X-Should-Retry") != "true" {
			t.Errorf("%v, then %v", first.header, second.header)
		}
	})
}

func TestOdd16DailyAndMinuteQuota(t *testing.T) {
	t.Parallel()
	quota := func(text, retry string, ids ...string) string {
		for i, id := range ids {
			ids[i] = `{"quotaId":"` + id + `","quotaValue":"20"}`
		}
		details := `{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[` + strings.Join(ids, ",") + `]}`
		if retry != "" {
			details += `,{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"` + retry + `"}`
		}
		return `{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"` + text + `","details":[` + details + `]}}`
	}
	const plan = "You exceeded your current quota, please check your plan and billing details."
	for name, c := range map[string]struct {
		body  string
		final bool
	}{
		"a day":               {quota(plan, "", "GenerateRequestsPerDayPerProjectPerModel-FreeTier"), true},
		"a minute says quota": {quota(plan, "36.429760048s", "GenerateRequestsPerMinutePerProjectPerModel"), false},
		"both":                {quota(plan, "36s", "GenerateRequestsPerDayPerProjectPerModel-FreeTier", "GenerateRequestsPerMinutePerProjectPerModel-FreeTier"), false},
		"a day with a wait":   {quota(plan, "36s", "GenerateRequestsPerDayPerProjectPerModel-FreeTier"), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, second := shut(t, odd{call: generate, status: 429, body: c.body}, true)
			if (first.header.Get("X-Should-Retry") == "false") != c.final || (first.header.Get("Retry-After") == "") != c.final {
				t.Errorf("first: %d %v", first.status, first.header)
			}
			if want := map[bool]int{true: http.StatusForbidden, false: http.StatusTooManyRequests}[c.final]; second.status != want {
				t.Errorf("then: %d %v %s", second.status, second.header, second.body)
			}
		})
	}
}

func TestOdd17InsufficientQuota(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"insufficient_quota", "billing_not_active", "credit_balance_exhausted"} {
		body := `{"error":{"message":"You exceeded your current quota, please check your plan and billing details.","type":"` + kind + `","param":null,"code":"` + kind + `"}}`
		first, second := shut(t, odd{call: chatCall, status: 429, body: body, header: []string{"Retry-After", "1"}}, true)
		for _, got := range []reply{first, second} {
			if got.status != http.StatusTooManyRequests || got.header.Get("X-Should-Retry") != "false" || got.header.Get("Retry-After") != "" {
				t.Errorf("%s: %d %v %s", kind, got.status, got.header, got.body)
			}
		}
	}
}

// Statuses that are handled by the number elsewhere: what each means to the agent's SDK, which tries 408, 409 and 5xx again.
func TestOdd18UnusualStatuses(t *testing.T) {
	const anthropicError = `{"type":"error","error":{"type":"%s","message":"m"},"request_id":"req_1"}`
	playAll(t, map[string]odd{
		"408":           {call: chatCall, status: 408, body: serverError, gets: 408, same: true, usage: arbiter.Usage{Input: prompt}, guessed: true, failures: 1}, // it may have run
		"409":           {call: messages, status: 409, body: fmt.Sprintf(anthropicError, "conflict_error"), gets: 409, same: true, released: true},
		"413":           {call: messages, status: 413, body: fmt.Sprintf(anthropicError, "request_too_large"), gets: 413, same: true, released: true},
		"413 as a page": {call: messages, status: 413, header: []string{"Content-Type", "text/html"}, body: "<html>413 Payload Too Large</html>", gets: 413, has: `"type":"error"`, lacks: "<html", released: true},
		"529":           {call: messages, status: 529, body: fmt.Sprintf(anthropicError, "overloaded_error"), gets: 529, same: true, released: true, failures: 1},
		"599":           {call: chatCall, status: 599, body: serverError, gets: 599, same: true, released: true, failures: 1},
		"499":           {call: chatCall, status: 499, body: serverError, gets: 499, same: true, released: true},
	})
}

func TestOdd19WrappedErrors(t *testing.T) {
	quota := `{"error":{"code":"insufficient_quota","type":"insufficient_quota","message":"You exceeded your current quota"}}`
	for name, c := range map[string]struct {
		odd
		final bool
	}{
		"an array":            {odd{call: generate, status: 429, body: `[{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"Resource has been exhausted (e.g. check quota).","errors":[{"reason":"rateLimitExceeded","domain":"global"}]}}]`}, false},
		"a plain string":      {odd{call: chatCall, status: 429, body: `{"error":"Too many requests"}`}, false},
		"a number as code":    {odd{call: chatCall, status: 429, body: `{"error":{"code":429,"message":"Too many requests"}}`}, false},
		"JSON in the message": {odd{call: generate, status: 429, body: `{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"{\"error\":{\"code\":429,\"status\":\"RESOURCE_EXHAUSTED\",\"message\":\"retry\",\"details\":[{\"@type\":\"type.googleapis.com/google.rpc.RetryInfo\",\"retryDelay\":\"20s\"}]}}"}}`}, false},
		"a quota":             {odd{call: chatCall, status: 429, body: quota}, true},
		"a quota in an array": {odd{call: chatCall, status: 429, body: "[" + quota + "]"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, _ := shut(t, c.odd, true)
			if first.status != 429 || first.body != c.body || (first.header.Get("X-Should-Retry") == "false") != c.final {
				t.Errorf("%d %v %s", first.status, first.header, first.body)
			}
		})
	}
}

// A provider that says nothing of its limits has the ones of the file: not none, and not zero.
func TestOdd20WithoutLimitHeaders(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	w := newWorld(t, setup{file: strings.Replace(oneProvider(answering(t, &calls, fine)), "      models:", "      rpm_ceiling: 3\n      burst: 1\n      models:", 1)})
	for n := range 5 {
		got := w.post(chatCall.path, chatCall.body, "X-Tba-Max-Wait-Ms", "0")
		if want := n < 3; (got.status == http.StatusOK) != want {
			t.Errorf("call %d: %d %s", n, got.status, got.body)
		}
		if n >= 3 && (got.header.Get("X-Tba-Origin") != "arbiter" || gjson.Get(got.body, "error.tba.reason").String() != "rpm") {
			t.Errorf("call %d: %v %s", n, got.header, got.body)
		}
	}
	if b := w.settled(); calls.Load() != 3 || b.spent != 3*18 {
		t.Errorf("%d calls, books %+v", calls.Load(), b)
	}
}

// A 429 is an instruction and a 500 a failure: the first holds the rung as long as it says and leaves the breaker alone, the second
// opens the breaker and holds nothing.
func TestOdd21A429IsNoFailure(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status  int
		body    string
		breaker arbiter.BreakerState
		told    int // throttled events
		asked   int64
		then    int // status of the call that does not go up any more
	}{
		"429": {429, throttleBody, arbiter.BreakerClosed, 1, 1, 429},
		"500": {500, serverError, arbiter.BreakerOpen, 0, 5, 503},
		"529": {529, `{"error":{"message":"overloaded","type":"overloaded_error"}}`, arbiter.BreakerOpen, 0, 5, 503},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int64
			w := newWorld(t, setup{file: oneProvider(answering(t, &calls, failing(c.status, c.body, "Retry-After", "20")))})
			var last reply
			for range 7 {
				last = w.post(chatCall.path, chatCall.body, "X-Tba-Max-Wait-Ms", "0")
			}
			if last.status != c.then || last.header.Get("X-Tba-Origin") != "arbiter" || last.header.Get("X-Should-Retry") != "true" || calls.Load() != c.asked {
				t.Errorf("%d after %d calls: %v %s", last.status, calls.Load(), last.header, last.body)
			}
			r := w.rung("openai", "gpt-5.4")
			if r.Breaker != c.breaker || c.breaker == arbiter.BreakerClosed && r.Failures != 0 || len(w.events(arbiter.EventThrottled)) != c.told {
				t.Errorf("%+v, events %+v", r, w.events(arbiter.EventThrottled))
			}
			if b := w.settled(); b.spent != 0 {
				t.Errorf("books: %+v", b)
			}
		})
	}
}

// Counts that no provider means: nothing is booked below zero, and what is not a number is no bill.
func TestOdd22Numbers(t *testing.T) {
	body := func(prompt, completion string) string {
		return `{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":` + prompt + `,"completion_tokens":` + completion + `}}`
	}
	playAll(t, map[string]odd{
		"floats":       {call: chatCall, body: body("11.0", "7.0"), same: true, usage: arbiter.Usage{Input: 11, Output: 7}},
		"strings":      {call: chatCall, body: body(`"11"`, `"7"`), same: true, usage: arbiter.Usage{Input: 11, Output: 7}},
		"above 2^31":   {call: chatCall, body: body("11", "4294967296"), same: true, usage: arbiter.Usage{Input: 11, Output: 2 * 1_050_000}, guessed: true}, // twice the context
		"beyond all":   {call: messages, body: `{"id":"m","type":"message","content":[],"usage":{"input_tokens":4294967296000,"output_tokens":7}}`, same: true, usage: arbiter.Usage{Input: 2 * 1_128_000, Output: 7}, guessed: true},
		"negative":     {call: chatCall, body: body("11", "-7"), same: true, usage: arbiter.Usage{Input: 11, Output: 1}, guessed: true},
		"all negative": {call: chatCall, body: body("-11", "-7"), same: true, usage: arbiter.Usage{Input: prompt, Output: 1}, guessed: true},
		"zero":         {call: chatCall, body: body("0", "0"), same: true, usage: arbiter.Usage{}},
		"words":        {call: chatCall, body: body(`"many"`, "true"), same: true, usage: arbiter.Usage{Input: prompt, Output: 1}, guessed: true},
	})
}
