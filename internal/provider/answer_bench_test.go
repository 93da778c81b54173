package provider

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
)

// plainAnswers are short answers that are not streamed, as each dialect sends them.
var plainAnswers = []struct{ dialect, path, body string }{
	{OpenAI, "/v1/chat/completions", `{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"gpt-5.4","choices":[{"index":0,"message":{"role":"assistant",` +
		`"content":"` + strings.Repeat("word ", 40) + `"},"finish_reason":"stop"}],"usage":{"prompt_tokens":250,"completion_tokens":40,"total_tokens":290}}`},
	{Anthropic, "/v1/messages", `{"id":"msg_1","type":"message","role":"assistant","model":"claude","content":[{"type":"text","text":"` + strings.Repeat("word ", 40) +
		`"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":250,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":40,"service_tier":"standard"}}`},
	{Gemini, "/v1beta/models/g:generateContent", `{"candidates":[{"content":{"parts":[{"text":"` + strings.Repeat("word ", 40) +
		`"}],"role":"model"},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":250,"candidatesTokenCount":40,"totalTokenCount":290},"modelVersion":"g"}`},
}

// BenchmarkPlainAnswer meters a whole answer of about 500 bytes that comes in one piece.
func BenchmarkPlainAnswer(b *testing.B) {
	for _, a := range plainAnswers {
		b.Run(a.dialect, func(b *testing.B) {
			e, _, ok := dialect(b, a.dialect).Endpoint("POST", a.path)
			if !ok {
				b.Fatal("no endpoint")
			}
			body := []byte(a.body)
			b.ReportAllocs()
			for b.Loop() {
				m := e.NewMeter(MeterOptions{ContentType: "application/json"})
				if out := m.Last(body); len(out) != len(body) {
					b.Fatal("bytes are missing")
				}
				if r := m.Result(); !r.Complete || !r.HasUsage {
					b.Fatalf("%+v", r)
				}
			}
		})
	}
}

// BenchmarkSetLimits writes the limits of a rung into an answer that states none itself.
func BenchmarkSetLimits(b *testing.B) {
	now := time.Now()
	limits := []Limit{
		{Dim: arbiter.DimRPM, Per: time.Minute, Limit: 1000, Remaining: 900, Reset: time.Minute, HasReset: true},
		{Dim: arbiter.DimTPM, Per: time.Minute, Limit: 1_000_000, Remaining: 900_000, Reset: time.Minute, HasReset: true},
	}
	for _, name := range []string{OpenAI, Anthropic} {
		b.Run(name, func(b *testing.B) {
			d := dialect(b, name)
			b.ReportAllocs()
			for b.Loop() {
				d.SetLimits(http.Header{"Date": {"Sat, 25 Jul 2026 11:59:50 GMT"}, "Content-Type": {"application/json"}}, limits, now)
			}
		})
	}
}

// BenchmarkJoin makes the URL of a call.
func BenchmarkJoin(b *testing.B) {
	d := dialect(b, OpenAI)
	base, _ := url.Parse("http://127.0.0.1:8080/v1")
	e, _, _ := d.Endpoint("POST", "/v1/chat/completions")
	t, _ := d.Target(e, "/v1/chat/completions")
	b.ReportAllocs()
	for b.Loop() {
		d.Join(base, t, "gpt-5.4", "")
	}
}
