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

		{"the newer names", OpenAI,
			`{"model":"m","usage":{"input_tokens":36,"input_tokens_details":{"cached_tokens":12,"cache_write_tokens":8,"cache_write_tokens_details":{"ttl_30m_tokens":5,"ttl_12h_tokens":3}},"output_tokens":87,"output_tokens_details":{"reasoning_tokens":64},"total_tokens":123}}`,
			Usage{Usage: counts{Input: 16, CacheRead: 12, CacheWrite: 5, CacheWriteLong: 3, Output: 87, Reasoning: 64}, Model: "m"}, true},
		{"seconds are no tokens", OpenAI, `{"text":"x","usage":{"type":"duration","seconds":9.5}}`, Usage{}, false},
		{"nested without end", OpenAI, `{"usage":` + strings.Repeat("[", 8<<20), Usage{}, false},

		{"fast mode", Anthropic, `{"usage":{"input_tokens":1,"output_tokens":1,"service_tier":"standard","speed":"fast"}}`,
			Usage{Usage: counts{Input: 1, Output: 1}, Tier: "fast"}, true},
		{"interactions", Gemini, `{"model":"g","usage":{"total_input_tokens":100,"total_cached_tokens":40,"total_output_tokens":11,"total_tool_use_tokens":5,"total_thought_tokens":29,"total_tokens":145}}`,
			Usage{Usage: counts{Input: 65, CacheRead: 40, Output: 40, Reasoning: 29}, Model: "g"}, true},
		{"connectors", Mistral, `{"usage":{"prompt_tokens":7,"completion_tokens":4,"connector_tokens":5,"total_tokens":16}}`, Usage{Usage: counts{Input: 12, Output: 4}}, true},

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

// What published bills cost, by the price of the arbiter: cached tokens once (T23, T24), tiers on the whole request, cache
// writes too (T26).
func TestUsageCosts(t *testing.T) {
	t.Parallel()
	perMillion := func(in, read, write, long, out arbiter.Pico) arbiter.Rates {
		return arbiter.Rates{Input: in, CacheRead: read, CacheWrite: write, CacheWriteLong: long, Output: out}
	}
	const cent = 10_000 // pico-USD per token of $0.01 per million
	tiered := arbiter.Price{Rates: perMillion(200*cent, 20*cent, 250*cent, 0, 800*cent), Tiers: []arbiter.Tier{
		{OverInput: 200_000, Rates: perMillion(400*cent, 40*cent, 500*cent, 0, 1200*cent)}}}
	writes := arbiter.Price{Rates: perMillion(300*cent, 30*cent, 375*cent, 600*cent, 1500*cent), Tiers: []arbiter.Tier{
		{OverInput: 200_000, Rates: perMillion(600*cent, 60*cent, 750*cent, 1200*cent, 2250*cent)}}}
	for _, c := range []struct {
		name, dialect, body string
		price               arbiter.Price
		nanos               arbiter.Nanos
	}{
		{"T23", OpenAI, `{"usage":{"prompt_tokens":869,"completion_tokens":0,"prompt_tokens_details":{"cached_tokens":11,"cache_write_tokens":5}}}`,
			arbiter.Price{Rates: perMillion(200*cent, 20*cent, 250*cent, 0, 0)}, 1_720_700},
		{"T23 in the newer shape", OpenAI, `{"usage":{"input_tokens":869,"output_tokens":0,"input_tokens_details":{"cached_tokens":11,"cache_write_tokens":5}}}`,
			arbiter.Price{Rates: perMillion(200*cent, 20*cent, 250*cent, 0, 0)}, 1_720_700},
		{"T24", Gemini, `{"usageMetadata":{"promptTokenCount":20212,"cachedContentTokenCount":16298,"candidatesTokenCount":931,"totalTokenCount":21143}}`,
			arbiter.Price{Rates: perMillion(50*cent, 5*cent, 0, 0, 300*cent)}, 5_564_900},
		{"T26 at the cliff", OpenAI, `{"usage":{"prompt_tokens":200000,"completion_tokens":0}}`, tiered, 400_000_000},
		{"T26 over it", OpenAI, `{"usage":{"prompt_tokens":200001,"completion_tokens":0}}`, tiered, 800_004_000},
		{"T26 far over it", OpenAI, `{"usage":{"prompt_tokens":250000,"completion_tokens":0}}`, tiered, 1_000_000_000},
		{"T26 with cached input", OpenAI, `{"usage":{"prompt_tokens":200001,"completion_tokens":0,"prompt_tokens_details":{"cached_tokens":200000}}}`, tiered, 4_000 + 200_000*400},
		{"T26 cache writes", Anthropic, `{"usage":{"input_tokens":200000,"cache_creation_input_tokens":5000,"cache_creation":{"ephemeral_5m_input_tokens":5000,"ephemeral_1h_input_tokens":0},"output_tokens":0}}`,
			writes, 1_200_000_000 + 37_500_000},
		{"writes of both lives", Anthropic, `{"usage":{"input_tokens":0,"cache_creation_input_tokens":3000,"cache_creation":{"ephemeral_5m_input_tokens":1000,"ephemeral_1h_input_tokens":2000},"output_tokens":0}}`,
			writes, 1000*3_750 + 2000*6_000},
	} {
		u, ok := dialect(t, c.dialect).Usage([]byte(c.body))
		if cost := c.price.Cost(u.Usage); cost != c.nanos || !ok {
			t.Errorf("%s: %d nano-USD for %+v, want %d", c.name, cost, u, c.nanos)
		}
	}
}

// Anthropic's iterations: the steps are the bill when the numbers at the top leave some out, and the longest of them is
// what price tiers go by.
func TestUsageOfIterations(t *testing.T) {
	t.Parallel()
	const steps = `"iterations":[{"type":"compaction","input_tokens":180000,"output_tokens":3500},{"type":"message","input_tokens":23000,"cache_read_input_tokens":500,"cache_creation_input_tokens":70,"cache_creation":{"ephemeral_1h_input_tokens":50},"output_tokens":1000}]`
	for _, c := range []struct {
		name, body string
		want       Usage
	}{
		{"the top leaves a step out", `{"usage":{"input_tokens":23000,"cache_read_input_tokens":500,"output_tokens":1000,` + steps + `}}`,
			Usage{Usage: counts{Input: 203000, CacheRead: 500, CacheWrite: 20, CacheWriteLong: 50, Output: 4500}, Longest: 180000}},
		{"the top has them all", `{"usage":{"input_tokens":203000,"cache_read_input_tokens":500,"cache_creation_input_tokens":70,"output_tokens":4500,` + steps + `}}`,
			Usage{Usage: counts{Input: 203000, CacheRead: 500, CacheWrite: 70, Output: 4500}, Longest: 180000}},
		{"the top has more", `{"usage":{"input_tokens":203001,"cache_read_input_tokens":500,"cache_creation_input_tokens":70,"output_tokens":4500,` + steps + `}}`,
			Usage{Usage: counts{Input: 203001, CacheRead: 500, CacheWrite: 70, Output: 4500}, Longest: 180000}},
		{"none", `{"usage":{"input_tokens":1,"output_tokens":2,"iterations":[]}}`, Usage{Usage: counts{Input: 1, Output: 2}}},
		{"null", `{"usage":{"input_tokens":1,"output_tokens":2,"iterations":null}}`, Usage{Usage: counts{Input: 1, Output: 2}}},
	} {
		if got, ok := dialect(t, Anthropic).Usage([]byte(c.body)); got != c.want || !ok {
			t.Errorf("%s: %+v\nwant %+v", c.name, got, c.want)
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
