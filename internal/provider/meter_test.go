package provider

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// FuzzMeter holds the law of metering: however the bytes are cut, the same bytes come out and the same is read; and
// without StripUsage what comes out is what went in.
func FuzzMeter(f *testing.F) {
	for i, r := range recordedStreams() {
		b := r.bytes(f)
		f.Add(b, uint64(i), uint8(i))
		f.Add(bytes.ReplaceAll(b, []byte("\n"), []byte("\r")), uint64(i), uint8(i))
		f.Add(b[:len(b)*2/3], uint64(i), uint8(i))
	}
	for _, s := range []string{"", "\n\n", "data:\n\n", "data: [DONE]", ": c\n\ndata: {\"error\":{}}\r\r", "{\"error\":{\"code\":429}}", "[{\"error\":{\"code\":503}}]",
		"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1}}\r\n\r\ndata: {\"choices\":[],\"usage\":{}}\r\r\ndata: [DONE]\n\n", "event: error\ndata: nothing\n\n",
		"\xef\xbb\xbfdata: {}\n\n", " \r\n {\"usage\":null}", "<html>", "[[]]{", "data: {\"type\":\"ping\"}\n\n"} {
		f.Add([]byte(s), uint64(len(s)), uint8(len(s)))
	}
	kinds := [...]string{"text/event-stream", "application/json", "", "text/plain", "audio/mpeg"}
	streams := recordedStreams()
	f.Fuzz(func(t *testing.T, b []byte, seed uint64, which uint8) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		r := streams[int(which)%len(streams)]
		o := MeterOptions{ContentType: kinds[seed%5], Stream: seed/5%2 == 0}
		for _, o.StripUsage = range []bool{false, true} {
			one := endpoint(t, r.dialect, r.path).NewMeter(o)
			whole := feed(one, b)
			if !o.StripUsage && !bytes.Equal(whole, b) {
				t.Fatalf("changed to %q", whole)
			}
			want := one.Result()
			if err := want.Usage.Valid(); err != nil {
				t.Fatalf("%+v: %v", want, err)
			}
			for _, cuts := range [][]int{everyByte(b), randomCuts(rnd, len(b))} {
				m := endpoint(t, r.dialect, r.path).NewMeter(o)
				if out := feed(m, b, cuts...); !bytes.Equal(out, whole) {
					t.Fatalf("strip %v, cut at %v: %q, want %q", o.StripUsage, cuts, out, whole)
				}
				if got := m.Result(); !reflect.DeepEqual(got, want) {
					t.Fatalf("strip %v, cut at %v:\ngot  %+v\nwant %+v", o.StripUsage, cuts, got, want)
				}
				if m.Started() != one.Started() {
					t.Fatalf("strip %v: started %v, in one piece %v", o.StripUsage, m.Started(), one.Started())
				}
			}
		}
	})
}

// T22: of what goes to the caller only the chunk that we caused is gone.
func TestStripUsage(t *testing.T) {
	t.Parallel()
	for _, r := range recordedStreams() {
		b := r.bytes(t)
		var want []byte
		for _, block := range bytes.SplitAfter(b, []byte("\n\n")) {
			if !bytes.Contains(block, []byte(`"choices":[],`)) || !bytes.Contains(block, []byte(`"usage":{`)) {
				want = append(want, block...)
			}
		}
		for _, cuts := range [][]int{nil, everyByte(b)} {
			m := r.meter(t, true)
			if out := feed(m, b, cuts...); !bytes.Equal(out, want) {
				t.Errorf("%s:\n%q\nwant\n%q", r.file, out, want)
			}
			if got := m.Result(); !reflect.DeepEqual(got, r.want) {
				t.Errorf("%s: %+v", r.file, got)
			}
		}
	}
	chunk := func(s string) string { return "data: " + s + "\n\n" }
	for name, s := range map[string]string{
		"Azure's filter results":       chunk(`{"choices":[],"prompt_filter_results":[{"prompt_index":0}]}`),
		"filter results beside usage":  chunk(`{"choices":[],"usage":{"prompt_tokens":1},"prompt_filter_results":[]}`),
		"null usage":                   chunk(`{"choices":[],"usage":null}`),
		"usage beside content":         chunk(`{"choices":[{"delta":{"content":"x"}}],"usage":{"prompt_tokens":1}}`),
		"usage without a list":         chunk(`{"usage":{"prompt_tokens":1}}`),
		"larger than usage ever is":    chunk(`{"choices":[],"usage":{"prompt_tokens":1},"x":"` + strings.Repeat("x", maxHeld) + `"}`),
		"comments around":              ": a\n: b\n\n: c\n\n",
		"an event without any data":    "event: x\n\n",
		"a half event at the very end": `data: {"choices":[],"usage":{"prompt_tok`,
	} {
		in := chunk(`{"choices":[{"delta":{"content":"hi"}}]}`) + s
		m := endpoint(t, OpenAI, chatPath).NewMeter(MeterOptions{ContentType: "text/event-stream", Stream: true, StripUsage: true})
		if out := feed(m, []byte(in), everyByte([]byte(in))...); string(out) != in {
			t.Errorf("%s: changed to %q", name, out)
		}
	}
	// Comments beside the chunk stay, and so does the line end of the event before it.
	in := "data: {\"choices\":[{}]}\r\n\r\n: keep\r\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":9}}\r\n\r\n: too\r\n\r\ndata: [DONE]\r\n\r\n"
	want := "data: {\"choices\":[{}]}\r\n\r\n: keep\r\n: too\r\n\r\ndata: [DONE]\r\n\r\n"
	m := endpoint(t, OpenAI, chatPath).NewMeter(MeterOptions{ContentType: "text/event-stream", Stream: true, StripUsage: true})
	if out := feed(m, []byte(in), everyByte([]byte(in))...); string(out) != want {
		t.Errorf("%q, want %q", out, want)
	}
}

// Bytes go on at once; what waits is the first event, and nothing longer than an event.
func TestNothingWaitsLongerThanItsEvent(t *testing.T) {
	t.Parallel()
	for _, strip := range []bool{false, true} {
		m := endpoint(t, OpenAI, chatPath).NewMeter(MeterOptions{ContentType: "text/event-stream", Stream: true, StripUsage: strip})
		for _, step := range []struct {
			in, out string
			started bool
		}{
			{": comment\n\n", "", false},
			{"data: {\"choices\":[{\"de", "", false},
			{"lta\":{\"content\":\"a\"}}]}\n", "", false},
			{"\n", ": comment\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n", true},
			{": comment\n", ": comment\n", true},
			{"\r", "\r", true},
		} {
			if out := m.Pass([]byte(step.in)); string(out) != step.out || m.Started() != step.started {
				t.Errorf("strip %v: %q gave %q, started %v", strip, step.in, out, m.Started())
			}
		}
		half := "data: {\"choices\":[{\"delta\":{\"content\":\"b\"}}]}\n"
		if out := m.Pass([]byte(half)); string(out) != half && !strip || len(out) != 0 && strip {
			t.Errorf("strip %v: half an event gave %q", strip, out)
		}
	}
	long := endpoint(t, OpenAI, chatPath).NewMeter(MeterOptions{ContentType: "text/event-stream", Stream: true, StripUsage: true})
	if out := long.Pass([]byte("data: " + strings.Repeat("x", maxHeld))); len(out) != maxHeld+6 || !long.Started() {
		t.Errorf("a first event above the bound waits: %d bytes, started %v", len(out), long.Started())
	}
}

// A stream of large events does not make the meter keep large buffers.
func TestMeterForgetsLargeEvents(t *testing.T) {
	t.Parallel()
	m := endpoint(t, OpenAI, chatPath).NewMeter(MeterOptions{ContentType: "text/event-stream", Stream: true, StripUsage: true})
	large := []byte("data: {\"choices\":[{\"delta\":{\"content\":\"" + strings.Repeat("x", 4<<20) + "\"}}]}\n\ndata: [DONE]\n\n")
	for piece := range slices.Chunk(large, 32<<10) {
		m.Pass(piece)
	}
	m.Pass([]byte(": c\n\n"))
	if kept := cap(m.held) + cap(m.out) + cap(m.sse.line) + cap(m.sse.data); kept > 64<<10 {
		t.Errorf("%d bytes are kept", kept)
	}
	if got := m.Result(); got.TextBytes != 4<<20 || !got.Complete {
		t.Errorf("%+v", got)
	}
}

func TestEventAboveTheBoundPassesUnread(t *testing.T) {
	t.Parallel()
	in := []byte("data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"" + strings.Repeat("x", maxEvent) +
		"\"}}]}\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"bc\"}}],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":7}}\n\ndata: [DONE]\n\n")
	for _, size := range []int{len(in), 1 << 20} {
		m := endpoint(t, OpenAI, chatPath).NewMeter(MeterOptions{ContentType: "text/event-stream", Stream: true})
		n := 0
		for piece := range slices.Chunk(in, size) {
			n += len(m.Pass(piece))
		}
		if got := m.Result(); n != len(in) || got.TextBytes != 3 || got.Usage.Output != 7 || !got.Complete {
			t.Errorf("pieces of %d: %d bytes of %d, %+v", size, n, len(in), got)
		}
	}
	// One event of nearly 32 MiB is read.
	in = []byte("data: {\"choices\":[{\"delta\":{\"content\":\"" + strings.Repeat("x", maxEvent-100) + "\"}}]}\n\n")
	m := endpoint(t, OpenAI, chatPath).NewMeter(MeterOptions{ContentType: "text/event-stream", Stream: true})
	for piece := range slices.Chunk(in, 1<<20) {
		m.Pass(piece)
	}
	if got := m.Result(); got.TextBytes != maxEvent-100 {
		t.Errorf("%d bytes of text", got.TextBytes)
	}
}

func TestPlainBodies(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, dialect, path, kind, body string
		want                            Metered
	}{
		{"chat", OpenAI, chatPath, "application/json", `{"id":"x","model":"gpt","choices":[{"index":0,"message":{"role":"assistant","content":"Hi \"you\"","tool_calls":[{"function":{"name":"f","arguments":"{}"}}]},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":4,"total_tokens":13}}`,
			tokens("gpt", "", counts{Input: 9, Output: 4}).says(`Hi "you"{}`, "stop")},
		{"blank lines first", OpenAI, chatPath, "application/json", "\n\n\n" + `{"model":"d","choices":[],"usage":{"prompt_tokens":9}}`, tokens("d", "", counts{Input: 9})},
		{"embeddings", OpenAI, "/v1/embeddings", "application/json", `{"object":"list","data":[{"embedding":[0.1]}],"model":"e","usage":{"prompt_tokens":8,"total_tokens":8}}`, tokens("e", "", counts{Input: 8})},
		{"response", OpenAI, responsesPath, "application/json", `{"object":"response","status":"completed","error":null,"model":"m","output":[{"type":"reasoning","summary":[{"type":"summary_text","text":"why"}]},{"type":"message","content":[{"type":"output_text","text":"so"}]},{"type":"function_call","arguments":"{}"}],"usage":{"input_tokens":3,"output_tokens":5,"total_tokens":8}}`,
			tokens("m", "", counts{Input: 3, Output: 5}).says("whyso{}", "completed")},
		{"queued in the background", OpenAI, responsesPath, "application/json", `{"object":"response","status":"queued","error":null,"model":"m","output":[],"usage":null}`,
			Metered{Usage: Usage{Model: "m"}, Complete: true}},
		{"images without usage", OpenAI, "/v1/images/generations", "application/json", `{"created":1,"data":[{"url":"u"},{"b64_json":"x"}]}`, Metered{TextBytes: 2 * imageText, Complete: true}},
		{"images with usage", OpenAI, "/v1/images/generations", "application/json", `{"data":[{"b64_json":"x"}],"usage":{"input_tokens":5,"output_tokens":272,"total_tokens":277,"input_tokens_details":{"text_tokens":5,"image_tokens":0}}}`,
			tokens("", "", counts{Input: 5, Output: 272})},
		{"transcription by time", OpenAI, "/v1/audio/transcriptions", "application/json", `{"text":"hello","usage":{"type":"duration","seconds":3.5}}`, Metered{TextBytes: 5, Complete: true}},
		{"transcription by tokens", OpenAI, "/v1/audio/transcriptions", "application/json", `{"text":"hello","usage":{"type":"tokens","input_tokens":14,"output_tokens":3,"total_tokens":17}}`, tokens("", "", counts{Input: 14, Output: 3}).says("hello", "")},
		{"transcription as text", OpenAI, "/v1/audio/transcriptions", "text/plain", "hello\n", Metered{TextBytes: 6, Complete: true}},
		{"speech", OpenAI, "/v1/audio/speech", "audio/mpeg", "\xff\xfb\x90{", Metered{Complete: true}},
		{"message", Anthropic, messagesPath, "application/json", `{"type":"message","model":"c","content":[{"type":"thinking","thinking":"hm","signature":"zzz"},{"type":"text","text":"ok"},{"type":"tool_use","input":{"a":1}}],"stop_reason":"tool_use","usage":{"input_tokens":1,"output_tokens":2,"speed":"fast","service_tier":"standard"}}`,
			tokens("c", "fast", counts{Input: 1, Output: 2}).says(`hmok{"a":1}`, "tool_use")},
		{"count", Anthropic, "/v1/messages/count_tokens", "application/json", `{"input_tokens":2095}`, Metered{HasUsage: true, Complete: true}},
		{"count of OpenAI", OpenAI, "/v1/responses/input_tokens", "application/json", `{"object":"response.input_tokens","input_tokens":11}`, Metered{HasUsage: true, Complete: true}},
		{"count of Google", Gemini, "/v1beta/models/m:countTokens", "application/json", `{"totalTokens":31,"promptTokensDetails":[]}`, Metered{HasUsage: true, Complete: true}},
		{"generate", Gemini, "/v1beta/models/m:generateContent", "application/json", `{"candidates":[{"content":{"parts":[{"text":"a"},{"inlineData":{"mimeType":"image/png","data":"iVBOR"}}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":1,"candidatesTokenCount":1291},"modelVersion":"g"}`,
			func() Metered {
				m := tokens("g", "", counts{Input: 1, Output: 1291}).says("a", "STOP")
				m.TextBytes += imageText
				return m
			}()},
		{"interaction", Gemini, "/v1beta/interactions", "application/json", `{"id":"v1","status":"completed","model":"g","outputs":[{"type":"thought","signature":"s"},{"type":"text","text":"yes"}],"usage":{"total_input_tokens":7,"total_output_tokens":2,"total_thought_tokens":20,"total_tokens":29}}`,
			tokens("g", "", counts{Input: 7, Output: 22, Reasoning: 20}).says("yes", "completed")},
		{"conversation", Mistral, "/v1/conversations", "application/json", `{"object":"conversation.response","conversation_id":"c","outputs":[{"type":"message.output","content":[{"type":"text","text":"hey"}]}],"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}}`,
			tokens("", "", counts{Input: 3, Output: 1}).says("hey", "")},
		{"not JSON", OpenAI, chatPath, "application/json", `<html>`, Metered{}},
		{"nothing", OpenAI, chatPath, "application/json", ``, Metered{}},
		{"half", OpenAI, chatPath, "application/json", `{"choices":[{"message":{"content":"ab\n\u00e9c`, Metered{TextBytes: 5}},
	} {
		e := endpoint(t, c.dialect, c.path)
		for _, cuts := range [][]int{nil, everyByte([]byte(c.body))} {
			m := e.NewMeter(MeterOptions{ContentType: c.kind})
			if out := feed(m, []byte(c.body), cuts...); string(out) != c.body {
				t.Errorf("%s: changed to %q", c.name, out)
			}
			if got := m.Result(); !reflect.DeepEqual(got, c.want) {
				t.Errorf("%s:\ngot  %+v %+v\nwant %+v", c.name, got, got.Fault, c.want)
			}
		}
	}
}

// A plain body that breaks off has its text counted as far as it came.
func TestCutBodyEverywhere(t *testing.T) {
	t.Parallel()
	text := strings.Repeat(`Gr\u00fc\u00dfe, "Welt" \\ `, 3)
	body := `{"id":"id","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":` + fmt.Sprintf("%q", text) + `},"finish_reason":"stop"}],"usage":{"prompt_tokens":120,"completion_tokens":48}}`
	var before int64
	for n := range len(body) {
		m := endpoint(t, OpenAI, chatPath).NewMeter(MeterOptions{ContentType: "application/json"})
		m.Pass([]byte(body[:n]))
		got := m.Result()
		if got.Complete || got.HasUsage || got.TextBytes < before || got.TextBytes > int64(len(text)) {
			t.Fatalf("cut at %d: %+v after %d bytes of text", n, got, before)
		}
		before = got.TextBytes
	}
	if before < int64(len(text))*9/10 {
		t.Errorf("%d bytes of text, want nearly %d", before, len(text))
	}
}

// Nesting without end is forwarded, not followed: a recursive parser would end the process.
func TestDeepNestingIsNotFollowed(t *testing.T) {
	t.Parallel()
	deep := bytes.Repeat([]byte("["), 8<<20)
	for _, kind := range []string{"application/json", "text/event-stream"} {
		in := deep
		if kind != "application/json" {
			in = append(append([]byte("data: {\"choices\":"), deep...), "\n\n"...)
		}
		m := endpoint(t, OpenAI, chatPath).NewMeter(MeterOptions{ContentType: kind, Stream: true})
		n := 0
		for piece := range slices.Chunk(in, 1<<20) {
			n += len(m.Pass(piece))
		}
		n += len(m.Finish())
		if got := m.Result(); n != len(in) || got.HasUsage || got.Fault != nil {
			t.Errorf("%s: %d bytes of %d, %+v", kind, n, len(in), got)
		}
	}
}

func TestToolsAreNotRead(t *testing.T) {
	t.Parallel()
	d := dialect(t, HTTP)
	e, _, _ := d.Endpoint("GET", "/search")
	body := `{"error":{"message":"the tool's own"}}`
	m := e.NewMeter(MeterOptions{ContentType: "application/json"})
	if out := m.Pass([]byte(body)); string(out) != body || !m.Started() {
		t.Errorf("%q", out)
	}
	m.Finish()
	if got := m.Result(); !got.HasUsage || got.Usage.Total() != 0 || !got.Complete || got.Fault != nil {
		t.Errorf("%+v", got)
	}
}

func BenchmarkMeter(b *testing.B) {
	const events = 200
	stream := func(event func(i int) string, end string) []byte {
		var s strings.Builder
		for i := range events {
			s.WriteString(event(i))
		}
		return []byte(s.String() + end)
	}
	chat := stream(func(int) string {
		return `data: {"id":"chatcmpl-B9MHDbslfkBeAs8l4bebGdFOJ6PeG","object":"chat.completion.chunk","created":1795910400,"model":"gpt-6.2-sol","service_tier":"default","system_fingerprint":"fp_44709d6fcb","choices":[{"index":0,"delta":{"content":" token"},"logprobs":null,"finish_reason":null}],"usage":null}` + "\n\n"
	}, `data: {"choices":[],"usage":{"prompt_tokens":120,"completion_tokens":200,"total_tokens":320}}`+"\n\ndata: [DONE]\n\n")
	messages := stream(func(int) string {
		return "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\" token\"}}\n\n"
	}, "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n")
	generate := stream(func(i int) string {
		return fmt.Sprintf("data: {\"candidates\": [{\"content\": {\"parts\": [{\"text\": \" token\"}],\"role\": \"model\"},\"index\": 0}],\"usageMetadata\": {\"promptTokenCount\": 20,\"candidatesTokenCount\": %d,\"totalTokenCount\": %d},\"modelVersion\": \"gemini-4-carbon\"}\r\n\r\n", i, i+20)
	}, "")
	for _, c := range []struct {
		name, dialect, path string
		in                  []byte
		strip               bool
	}{
		{"chat", OpenAI, chatPath, chat, false}, {"chat stripped", OpenAI, chatPath, chat, true},
		{"messages", Anthropic, messagesPath, messages, false}, {"generate", Gemini, generatePath, generate, false},
	} {
		for _, size := range []int{4096, 100} {
			b.Run(fmt.Sprintf("%s/%d bytes at a time", c.name, size), func(b *testing.B) {
				e := endpoint(b, c.dialect, c.path)
				b.SetBytes(int64(len(c.in)))
				b.ReportAllocs()
				for b.Loop() {
					m := e.NewMeter(MeterOptions{ContentType: "text/event-stream", Stream: true, StripUsage: c.strip})
					for piece := range slices.Chunk(c.in, size) {
						m.Pass(piece)
					}
					m.Finish()
					if m.Result().TextBytes != events*6 {
						b.Fatal(m.Result())
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/events, "ns/event")
			})
		}
	}
}
