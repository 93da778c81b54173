package provider

import (
	"strings"
	"testing"

	"github.com/token-budget-arbiter/tba/arbiter"
)

type counts = arbiter.Usage

func dialect(t testing.TB, name string) *Dialect {
	t.Helper()
	d, ok := Lookup(name)
	if !ok {
		t.Fatalf("no dialect %q", name)
	}
	return d
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, dialect, body string
		want                Usage
		ok                  bool
	}{
		{"inclusive prompt with cache read and write", OpenAI,
			`{"model":"gpt-6.2-sol","service_tier":"default","usage":{"prompt_tokens":869,"completion_tokens":0,"total_tokens":869,"prompt_tokens_details":{"cached_tokens":11,"cache_write_tokens":5}}}`,
			Usage{Usage: counts{Input: 853, CacheRead: 11, CacheWrite: 5}, Model: "gpt-6.2-sol", Tier: "default"}, true},
		{"reasoning is inside the completion", OpenAI,
			`{"usage":{"prompt_tokens":10,"completion_tokens":50,"total_tokens":60,"completion_tokens_details":{"reasoning_tokens":40}}}`,
			Usage{Usage: counts{Input: 10, Output: 50, Reasoning: 40}}, true},
		{"total above its parts was generated", OpenAI,
			`{"usage":{"prompt_tokens":41,"completion_tokens":5,"total_tokens":389}}`, Usage{Usage: counts{Input: 41, Output: 348}}, true},
		{"embeddings", OpenAI, `{"usage":{"prompt_tokens":8,"total_tokens":8}}`, Usage{Usage: counts{Input: 8}}, true},
		{"an explicit zero is zero", OpenAI, `{"usage":{"prompt_tokens":0,"completion_tokens":0}}`, Usage{}, true},
		{"null is not known", OpenAI, `{"usage":null}`, Usage{}, false},
		{"empty is not known", OpenAI, `{"usage":{}}`, Usage{}, false},
		{"absent is not known", OpenAI, `{"choices":[]}`, Usage{}, false},
		{"not JSON", OpenAI, `<html>`, Usage{}, false},
		{"half a body", OpenAI, `{"usage":{"prompt_tokens":1`, Usage{}, false},
		{"blank lines before the body", OpenAI, "\n\n {\"usage\":{\"prompt_tokens\":7}}", Usage{Usage: counts{Input: 7}}, true},
		{"floats and strings", OpenAI, `{"usage":{"prompt_tokens":12.0,"completion_tokens":"34"}}`, Usage{Usage: counts{Input: 12, Output: 34}}, true},
		{"negative", OpenAI, `{"usage":{"prompt_tokens":-3,"completion_tokens":4}}`, Usage{Usage: counts{Output: 4}, Adjusted: true}, true},
		{"beyond a double", OpenAI, `{"usage":{"prompt_tokens":9223372036854775807}}`, Usage{Usage: counts{Input: maxCount}, Adjusted: true}, true},
		{"more cached than there is", OpenAI, `{"usage":{"prompt_tokens":5,"prompt_tokens_details":{"cached_tokens":8}}}`,
			Usage{Usage: counts{CacheRead: 8}, Adjusted: true}, true},
		{"more reasoning than output", OpenAI, `{"usage":{"completion_tokens":5,"completion_tokens_details":{"reasoning_tokens":8}}}`,
			Usage{Usage: counts{Output: 5, Reasoning: 5}, Adjusted: true}, true},
		{"deepseek names", OpenAI, `{"usage":{"prompt_tokens":10,"prompt_cache_hit_tokens":6,"prompt_cache_miss_tokens":4,"completion_tokens":1}}`,
			Usage{Usage: counts{Input: 4, CacheRead: 6, Output: 1}}, true},

		{"input excludes both cache counts", Anthropic,
			`{"model":"claude-opus-4-8","usage":{"input_tokens":4522,"cache_creation_input_tokens":4511,"cache_read_input_tokens":100,"output_tokens":5,"service_tier":"standard"}}`,
			Usage{Usage: counts{Input: 4522, CacheRead: 100, CacheWrite: 4511, Output: 5}, Model: "claude-opus-4-8", Tier: "standard"}, true},
		{"writes split by life", Anthropic,
			`{"usage":{"input_tokens":1,"cache_creation_input_tokens":30,"cache_creation":{"ephemeral_5m_input_tokens":10,"ephemeral_1h_input_tokens":20},"output_tokens":9,"output_tokens_details":{"thinking_tokens":7}}}`,
			Usage{Usage: counts{Input: 1, CacheWrite: 10, CacheWriteLong: 20, Output: 9, Reasoning: 7}}, true},
		{"split without a total", Anthropic,
			`{"usage":{"input_tokens":1,"cache_creation":{"ephemeral_5m_input_tokens":10,"ephemeral_1h_input_tokens":20}}}`,
			Usage{Usage: counts{Input: 1, CacheWrite: 10, CacheWriteLong: 20}}, true},
		{"split that does not add up", Anthropic,
			`{"usage":{"cache_creation_input_tokens":15,"cache_creation":{"ephemeral_5m_input_tokens":10,"ephemeral_1h_input_tokens":20}}}`,
			Usage{Usage: counts{CacheWriteLong: 15}, Adjusted: true}, true},
		{"null cache fields", Anthropic, `{"usage":{"input_tokens":3,"cache_read_input_tokens":null,"output_tokens":1}}`,
			Usage{Usage: counts{Input: 3, Output: 1}}, true},

		{"cached is inside the prompt", Gemini,
			`{"modelVersion":"gemini-4-carbon","usageMetadata":{"promptTokenCount":20212,"cachedContentTokenCount":16298,"candidatesTokenCount":931,"totalTokenCount":21143,"trafficType":"ON_DEMAND"}}`,
			Usage{Usage: counts{Input: 3914, CacheRead: 16298, Output: 931}, Model: "gemini-4-carbon", Tier: "ON_DEMAND"}, true},
		{"thoughts are outside the candidates", Gemini,
			`{"usageMetadata":{"promptTokenCount":41,"candidatesTokenCount":5,"thoughtsTokenCount":344,"totalTokenCount":390}}`,
			Usage{Usage: counts{Input: 41, Output: 349, Reasoning: 344}}, true},
		{"thoughts only in the total", Gemini,
			`{"usageMetadata":{"promptTokenCount":41,"candidatesTokenCount":5,"totalTokenCount":389}}`, Usage{Usage: counts{Input: 41, Output: 348}}, true},
		{"tool prompt is input", Gemini,
			`{"usageMetadata":{"promptTokenCount":10,"toolUsePromptTokenCount":7,"candidatesTokenCount":1,"totalTokenCount":18}}`,
			Usage{Usage: counts{Input: 17, Output: 1}}, true},
		{"nothing produced", Gemini, `{"usageMetadata":{"promptTokenCount":10,"totalTokenCount":10}}`, Usage{Usage: counts{Input: 10}}, true},
		{"no metadata", Gemini, `{"candidates":[]}`, Usage{}, false},

		{"plain", Mistral, `{"model":"mistral-large-4","usage":{"prompt_tokens":16,"completion_tokens":34,"total_tokens":50,"prompt_audio_seconds":{}}}`,
			Usage{Usage: counts{Input: 16, Output: 34}, Model: "mistral-large-4"}, true},
		{"spelling variant of the cache", Mistral, `{"usage":{"prompt_tokens":16,"completion_tokens":1,"prompt_token_details":{"cached_tokens":6}}}`,
			Usage{Usage: counts{Input: 10, CacheRead: 6, Output: 1}}, true},
		{"cache count at the top", Mistral, `{"usage":{"prompt_tokens":16,"completion_tokens":1,"num_cached_tokens":6}}`,
			Usage{Usage: counts{Input: 10, CacheRead: 6, Output: 1}}, true},
	} {
		t.Run(c.dialect+"/"+c.name, func(t *testing.T) {
			t.Parallel()
			got, ok := dialect(t, c.dialect).Usage([]byte(c.body))
			if got != c.want || ok != c.ok {
				t.Errorf("got %+v, %v\nwant %+v, %v", got, ok, c.want, c.ok)
			}
		})
	}
}

// The published examples of what cached tokens cost, from the counts alone: pico-USD per token times tokens.
func TestUsagePricesCachedTokensOnce(t *testing.T) {
	t.Parallel()
	openaiBody := `{"usage":{"prompt_tokens":869,"completion_tokens":0,"prompt_tokens_details":{"cached_tokens":11,"cache_write_tokens":5}}}`
	geminiBody := `{"usageMetadata":{"promptTokenCount":20212,"cachedContentTokenCount":16298,"candidatesTokenCount":931}}`
	for _, c := range []struct {
		dialect, body               string
		in, read, write, out, costs arbiter.Tokens // pico-USD
	}{
		{OpenAI, openaiBody, 2_000_000, 200_000, 2_500_000, 0, 1_720_700_000},
		{Gemini, geminiBody, 500_000, 50_000, 0, 3_000_000, 5_564_900_000},
	} {
		u, _ := dialect(t, c.dialect).Usage([]byte(c.body))
		if cost := u.Input*c.in + u.CacheRead*c.read + u.CacheWrite*c.write + u.Output*c.out; cost != c.costs {
			t.Errorf("%s: %d pico-USD, want %d", c.dialect, cost, c.costs)
		}
	}
}

func FuzzUsage(f *testing.F) {
	for _, s := range []string{
		`{"usage":{"prompt_tokens":869,"completion_tokens":1,"total_tokens":870,"prompt_tokens_details":{"cached_tokens":11}}}`,
		`{"usage":{"input_tokens":1,"cache_creation_input_tokens":30,"cache_creation":{"ephemeral_1h_input_tokens":20},"output_tokens":9}}`,
		`{"usageMetadata":{"promptTokenCount":41,"candidatesTokenCount":5,"totalTokenCount":389}}`,
		`[{"usage":{"prompt_tokens":1e308,"completion_tokens":"-1"}}]`, `{"usage":null}`, "", "\n", `{"usage":{"prompt_tokens":NaN}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, name := range Names() {
			u, ok := dialect(t, name).Usage(body)
			for _, n := range []arbiter.Tokens{u.Input, u.CacheRead, u.CacheWrite, u.CacheWriteLong, u.Output, u.Reasoning, u.Total()} {
				if n < 0 || n > maxCount {
					t.Fatalf("%s: %+v out of range", name, u)
				}
			}
			if err := u.Valid(); err != nil {
				t.Fatalf("%s: %+v: %v", name, u, err)
			}
			if u.Reasoning > u.Output {
				t.Fatalf("%s: %+v reasons more than it puts out", name, u)
			}
			if !ok && u != (Usage{}) {
				t.Fatalf("%s: %+v without usage", name, u)
			}
		}
	})
}

func TestChatRoundTrip(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("word ", 100) + "\"<é>\""
	for _, name := range Names() {
		d := dialect(t, name)
		for _, limit := range []int64{0, 256} {
			body, err := d.ChatBody(ChatRequest{Model: "b:c", Text: text, MaxOutput: limit})
			if err != nil {
				t.Fatal(err)
			}
			path := d.ChatPath("b:c")
			e, _, ok := d.Endpoint("POST", path)
			if !ok {
				t.Fatalf("%s: no endpoint at its own chat path %s", name, path)
			}
			got, err := e.Parse(path, body)
			got.plan = nil
			want := Call{Model: "b:c", MaxOutput: limit, Choices: 1, TextBytes: int64(len(text)), Messages: 1}
			if name == Anthropic && limit == 0 {
				want.MaxOutput = anthropicDefaultCap
			}
			if err != nil || got != want {
				t.Errorf("%s: %+v, %v; want %+v", name, got, err, want)
			}
		}
	}
}
