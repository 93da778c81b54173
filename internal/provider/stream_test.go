package provider

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// recorded is one stream of testdata/streams and what is true of it.
type recorded struct {
	file, dialect, path string
	want                Metered
	json                bool // Gemini's array
}

func tokens(model, tier string, u counts) Metered {
	return Metered{Usage: Usage{Usage: u, Model: model, Tier: tier}, HasUsage: true, Complete: true}
}

func (m Metered) says(text, finish string) Metered {
	m.TextBytes, m.FinishReason = int64(len(text)), finish
	return m
}

func (m Metered) broken(status int, body string) Metered {
	m.Fault, m.Complete = &Fault{Status: status, Body: []byte(body)}, false
	return m
}

const (
	chatPath, responsesPath, messagesPath = "/v1/chat/completions", "/v1/responses", "/v1/messages"
	generatePath                          = "/v1beta/models/gemini-4-carbon:streamGenerateContent"
)

func recordedStreams() []recorded {
	none := func(model string) Metered { return Metered{Usage: Usage{Model: model}, Complete: true} }
	return []recorded{
		{file: "openai_chat.sse", dialect: OpenAI, path: chatPath, want: tokens("gpt-6.2-sol-2026-11-17", "default",
			counts{Input: 40, CacheRead: 64, CacheWrite: 16, Output: 48}).says("The capital of France is Paris.\nÇa va, 世界 🙂", "stop")},
		{file: "openai_chat_tools.sse", dialect: OpenAI, path: chatPath, want: tokens("gpt-6.2-sol-2026-11-17", "default",
			counts{Input: 31, CacheRead: 256, Output: 8}).says(`{"city":"Paris"}{"zone":"Europe/Paris"}`, "tool_calls")},
		{file: "openai_chat_nousage.sse", dialect: OpenAI, path: chatPath, want: func() Metered {
			m := none("gpt-6.2-sol-2026-11-17").says("no usage at all", "stop")
			m.Usage.Tier = "default"
			return m
		}()},
		{file: "azure_chat.sse", dialect: OpenAI, path: chatPath, want: tokens("gpt-4o-2024-08-06", "", counts{Input: 31, Output: 4}).says("Azure says hi", "stop")},
		{file: "deepseek_reasoning.sse", dialect: OpenAI, path: chatPath, want: tokens("deepseek-v4-pro", "",
			counts{Input: 64, CacheRead: 960, Output: 60, Reasoning: 45}).says("Let me think about it.42.", "stop")},
		{file: "groq_chat.sse", dialect: OpenAI, path: chatPath, want: tokens("llama-5-70b", "", counts{Input: 38, Output: 3}).says("Fast answer", "stop")},
		{file: "openrouter_chat.sse", dialect: OpenAI, path: chatPath, want: tokens("meta/llama", "", counts{Input: 19, Output: 7}).says("Hi there", "stop")},
		{file: "openrouter_error.sse", dialect: OpenAI, path: chatPath, want: none("meta/llama").says("Hi the", "error").
			broken(502, `{"error":{"code":502,"message":"Upstream idle timeout exceeded"}}`)},
		{file: "vllm_continuous.sse", dialect: OpenAI, path: chatPath, want: tokens("qwen3", "", counts{Input: 25, Output: 9}).says(" w1 w2 w3 w4 w5 w6 w7 w8", "stop")},
		{file: "gemini_compat_chat.sse", dialect: OpenAI, path: chatPath, want: tokens("gemini-3.8-flash", "",
			counts{Input: 41, Output: 348}).says("Thought and said.", "stop")},
		{file: "openai_completions.sse", dialect: OpenAI, path: "/v1/completions", want: tokens("gpt-3.5-turbo-instruct", "",
			counts{Input: 5, Output: 7}).says("Once upon a time", "length")},

		{file: "openai_responses.sse", dialect: OpenAI, path: responsesPath, want: tokens("gpt-6.2-sol", "default",
			counts{Input: 16, CacheRead: 12, CacheWrite: 5, CacheWriteLong: 3, Output: 87, Reasoning: 64}).says("Greeting the user.Hello there, how may I help?", "completed")},
		{file: "openai_responses_incomplete.sse", dialect: OpenAI, path: responsesPath, want: tokens("gpt-6.2-sol", "default",
			counts{Input: 16, CacheRead: 12, CacheWrite: 5, CacheWriteLong: 3, Output: 9}).says(`{"q":"x"}`, "max_output_tokens")},
		{file: "openai_responses_failed.sse", dialect: OpenAI, path: responsesPath, want: Metered{Usage: Usage{Model: "gpt-6.2-sol", Tier: "default"}, FinishReason: "failed"}.
			broken(503, `{"error":{"type":"service_unavailable_error","code":"server_is_overloaded","message":"Our servers are currently overloaded. Please try again later.","param":null}}`)},

		{file: "anthropic_text.sse", dialect: Anthropic, path: messagesPath, want: tokens("claude-opus-5-5", "", counts{Input: 25, Output: 15}).says("Hello! I’m Claude.\n", "end_turn")},
		{file: "anthropic_thinking_tools.sse", dialect: Anthropic, path: messagesPath, want: tokens("claude-opus-5-5", "standard",
			counts{Input: 472, Output: 89, Reasoning: 31}).says(`I need the weather in Paris.I’ll check.{"location": "Paris"}`, "tool_use")},
		{file: "anthropic_cached.sse", dialect: Anthropic, path: messagesPath, want: tokens("claude-opus-5-5", "priority",
			counts{Input: 12, CacheRead: 20000, CacheWrite: 3000, CacheWriteLong: 2000, Output: 7}).says("From the cache.", "end_turn")},
		{file: "anthropic_late_input.sse", dialect: Anthropic, path: messagesPath, want: tokens("claude-opus-5-5", "",
			counts{Input: 4522, CacheWrite: 4511, Output: 5}).says("late input", "end_turn")}, // T15
		{file: "anthropic_compatible.sse", dialect: Anthropic, path: messagesPath, want: tokens("claude-opus-5-5", "",
			counts{Input: 18, CacheRead: 8831, Output: 426}).says("Kimi answers", "end_turn")},
		{file: "anthropic_overloaded.sse", dialect: Anthropic, path: messagesPath, want: tokens("claude-opus-5-5", "", counts{Input: 25, Output: 1}).says("So far", "").
			broken(529, `{"type":"error","error":{"details":null,"type":"overloaded_error","message":"Overloaded"},"request_id":"req_011CSHoEeqs5C35K2UUqR7Fy"}`)},

		{file: "gemini_generate.sse", dialect: Gemini, path: generatePath, want: tokens("gemini-4-carbon", "",
			counts{Input: 3914, CacheRead: 16298, Output: 931}).says("The sea is wide — 海は広い.\n", "STOP")}, // T24
		{file: "gemini_array.json", dialect: Gemini, path: generatePath, json: true, want: tokens("gemini-4-carbon", "",
			counts{Input: 3914, CacheRead: 16298, Output: 931}).says("The sea is wide — 海は広い.\n", "STOP")},
		{file: "gemini_thinking.sse", dialect: Gemini, path: generatePath, want: tokens("gemini-4-carbon", "",
			counts{Input: 41, Output: 349, Reasoning: 344}).says(`Planning.Rome{"city":"Rome"}`, "STOP")},
		{file: "gemini_blocked.sse", dialect: Gemini, path: generatePath, want: tokens("gemini-4-carbon", "", counts{Input: 9}).says("", "PROHIBITED_CONTENT")},
		{file: "gemini_interactions.sse", dialect: Gemini, path: "/v1beta/interactions", want: tokens("gemini-4-argon", "",
			counts{Input: 60, CacheRead: 40, Output: 40, Reasoning: 29}).says("Consider it.It is so.", "completed")},

		{file: "mistral_chat.sse", dialect: Mistral, path: chatPath, want: tokens("mistral-large-2512", "", counts{Input: 11, CacheRead: 16, Output: 4}).says("Coca Cola", "stop")},
		{file: "mistral_thinking.sse", dialect: Mistral, path: chatPath, want: tokens("mistral-large-2512", "", counts{Input: 16, Output: 34}).says("First, consider.Yes.", "stop")},
		{file: "mistral_conversations.sse", dialect: Mistral, path: "/v1/conversations", want: tokens("mistral-medium-2604", "",
			counts{Input: 12, Output: 4}).says(`Hello{"a": 1}`, "")},

		{file: "openai_images.sse", dialect: OpenAI, path: "/v1/images/generations", want: func() Metered {
			m := tokens("", "", counts{Input: 50, Output: 1056})
			m.TextBytes = partialImageText + imageText
			return m
		}()},
		{file: "openai_transcript.sse", dialect: OpenAI, path: "/v1/audio/transcriptions", want: tokens("", "", counts{Input: 14, Output: 45}).says("I see skies of blue", "")},
	}
}

func (r recorded) bytes(t testing.TB) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "streams", r.file))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (r recorded) meter(t testing.TB, strip bool) *Meter {
	t.Helper()
	kind := "text/event-stream; charset=utf-8"
	if r.json {
		kind = "application/json; charset=UTF-8"
	}
	return endpoint(t, r.dialect, r.path).NewMeter(MeterOptions{ContentType: kind, Stream: true, StripUsage: strip})
}

func endpoint(t testing.TB, name, path string) *Endpoint {
	t.Helper()
	e, _, ok := dialect(t, name).Endpoint("POST", path)
	if !ok {
		t.Fatalf("%s has no endpoint %s", name, path)
	}
	return e
}

// feed passes b in pieces cut at the offsets and returns all that came out.
func feed(m *Meter, b []byte, cuts ...int) (out []byte) {
	at := 0
	for _, c := range append(cuts, len(b)) {
		out = append(out, m.Pass(bytes.Clone(b[at:c]))...)
		at = c
	}
	return append(out, m.Finish()...)
}

func everyByte(b []byte) (cuts []int) {
	for i := range b {
		cuts = append(cuts, i)
	}
	return cuts
}

func randomCuts(r *rand.Rand, n int) (cuts []int) {
	for range r.IntN(20) {
		cuts = append(cuts, r.IntN(n+1))
	}
	slices.Sort(cuts)
	return cuts
}

func TestRecordedStreams(t *testing.T) {
	t.Parallel()
	names, err := filepath.Glob("testdata/streams/[a-z]*")
	if err != nil || len(names) != len(recordedStreams()) {
		t.Errorf("%d files, %d in the table (%v)", len(names), len(recordedStreams()), err)
	}
	for _, r := range recordedStreams() {
		t.Run(r.file, func(t *testing.T) {
			t.Parallel()
			b := r.bytes(t)
			rnd := rand.New(rand.NewPCG(1, 2))
			splits := [][]int{nil, everyByte(b)}
			for range 50 {
				splits = append(splits, randomCuts(rnd, len(b)))
			}
			for _, cuts := range splits {
				m := r.meter(t, false)
				if out := feed(m, b, cuts...); !bytes.Equal(out, b) {
					t.Fatalf("cut at %v: the bytes were changed: %q", cuts, out)
				}
				if got := m.Result(); !reflect.DeepEqual(got, r.want) {
					t.Fatalf("cut at %v:\ngot  %+v %+v\nwant %+v %+v", cuts, got, got.Fault, r.want, r.want.Fault)
				}
				if !m.Started() {
					t.Fatal("not started at the end")
				}
			}
		})
	}
}

// The same streams with other line ends, a byte order mark, comments between and data split over lines say the same.
func TestFramingDoesNotMatter(t *testing.T) {
	t.Parallel()
	for _, r := range recordedStreams() {
		if r.json {
			continue
		}
		b := strings.ReplaceAll(string(r.bytes(t)), "\r\n", "\n")
		for name, changed := range map[string]string{
			"crlf":         strings.ReplaceAll(b, "\n", "\r\n"),
			"cr":           strings.ReplaceAll(b, "\n", "\r"),
			"mixed":        strings.ReplaceAll(strings.ReplaceAll(b, "\n\n", "\r\n\n"), "}\n", "}\r"),
			"mark":         "\xef\xbb\xbf" + b,
			"no space":     strings.ReplaceAll(b, "data: ", "data:"),
			"comments":     ": one\n\n" + strings.ReplaceAll(b, "data: ", ": two\nid: 7\nretry: 10\ndata: "),
			"more lines":   strings.NewReplacer(`,"index"`, ",\ndata: \"index\"", `,"delta"`, ",\ndata:\"delta\"", `,"usage"`, ",\ndata: \ndata: \"usage\"").Replace(b),
			"no last line": strings.TrimRight(b, "\n"),
			"blank lines":  "\n\n\n" + strings.ReplaceAll(b, "\n\n", "\n\n\n\n"),
		} {
			for _, cuts := range [][]int{nil, everyByte([]byte(changed))} {
				m := r.meter(t, false)
				if out := feed(m, []byte(changed), cuts...); string(out) != changed {
					t.Fatalf("%s, %s: the bytes were changed", r.file, name)
				}
				got := m.Result()
				if !reflect.DeepEqual(got, r.want) {
					t.Errorf("%s, %s:\ngot  %+v %+v\nwant %+v %+v", r.file, name, got, got.Fault, r.want, r.want.Fault)
				}
			}
		}
	}
}

// A stream that is cut at any byte is either known to be whole, with its exact bill, or known not to be, with what it
// produced so far: never more than the truth, never nothing after text went out.
func TestCutEverywhere(t *testing.T) {
	t.Parallel()
	for _, r := range recordedStreams() {
		t.Run(r.file, func(t *testing.T) {
			t.Parallel()
			b := r.bytes(t)
			for n := range len(b) {
				for _, proper := range []bool{false, true} {
					m := r.meter(t, n%2 == 0)
					m.Pass(bytes.Clone(b[:n]))
					if proper {
						m.Finish()
					}
					got := m.Result()
					switch {
					case got.Complete && (got.HasUsage != r.want.HasUsage || got.Usage != r.want.Usage):
						t.Fatalf("cut at %d: complete with %+v", n, got)
					case got.Usage.Total() > r.want.Usage.Total(), got.Usage.Output > r.want.Usage.Output, got.TextBytes > r.want.TextBytes:
						t.Fatalf("cut at %d: more than the truth: %+v", n, got)
					case got.Complete && r.want.Fault != nil:
						t.Fatalf("cut at %d: a failed answer is complete", n)
					}
				}
			}
			// After the last whole event that has text, all of it is counted whatever comes then.
			m := r.meter(t, false)
			var seen int64
			for i := range b {
				m.Pass(b[i : i+1])
				if now := m.Result().TextBytes; now < seen {
					t.Fatalf("byte %d: %d bytes of text after %d", i, now, seen)
				} else {
					seen = now
				}
			}
			if seen != r.want.TextBytes {
				t.Fatalf("%d bytes of text, want %d", seen, r.want.TextBytes)
			}
		})
	}
}
