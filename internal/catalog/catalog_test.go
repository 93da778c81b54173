package catalog

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
)

func day(s string) time.Time {
	t, err := time.Parse(time.DateOnly, s)
	if err != nil {
		panic(err)
	}
	return t
}

func TestEmbeddedIsComplete(t *testing.T) {
	t.Parallel()
	c := Embedded()
	if got := c.AsOf(); !got.Equal(day("2026-11-29")) {
		t.Errorf("as of %v", got)
	}
	if n := len(c.Models()); n < 65 {
		t.Errorf("%d models", n)
	}
	for _, m := range c.Models() {
		if m.Source == "" || m.Confidence == "" {
			t.Errorf("%s: a row needs its source and confidence", m.ID)
		}
		for _, r := range m.Prices {
			if r.Input == 0 || (r.Output == 0 && m.MaxOutput != 0) {
				t.Errorf("%s: free by accident: %+v", m.ID, r)
			}
		}
	}
}

func TestLookup(t *testing.T) {
	t.Parallel()
	tests := []struct{ provider, id, want string }{
		{"openai", "gpt-5.4", "gpt-5.4"},
		{"openai", "gpt-5.4-2026-03-01", "gpt-5.4"},
		{"", "gpt-5.4-20260301", "gpt-5.4"},
		{"anthropic", "claude-haiku-4-5@20251001", "claude-haiku-4-5"},
		{"anthropic", "claude-mythos-5", "claude-fable-5"},
		{"gemini", "gemini-2.5-pro", "gemini-2.5-pro"},
		{"google", "gemini-2.5-pro", "gemini-2.5-pro"},
		{"Google", "gemini-2.5-pro", "gemini-2.5-pro"},
		{"mistral", "mistral-large-2512", "mistral-large-2512"},
	}
	for _, tt := range tests {
		m, err := Embedded().Lookup(tt.provider, tt.id)
		if err != nil || m.ID != tt.want {
			t.Errorf("Lookup(%q, %q) = %q, %v; want %q", tt.provider, tt.id, m.ID, err, tt.want)
		}
	}
}

func TestUnknownModelNamesTheNearest(t *testing.T) {
	t.Parallel()
	tests := []struct{ provider, id, nearest string }{
		{"anthropic", "claude-opus-4.1", "claude-opus-4-5"},
		{"", "claude-opus-4.1", "claude-opus-4-5"},
		{"anthropic", "claude-opus-4.8", "claude-opus-4-8"},
		{"openai", "gtp-5.4", "gpt-5.4"},
		{"openai", "GPT_4o_mini", "gpt-4o-mini"},
		{"gemini", "models/gemini-2.5-pro", "gemini-2.5-pro"},
		{"openai", "anthropic/claude-haiku-4.5", "claude-haiku-4-5"}, // not openai's: the id exists elsewhere
		{"openai", "claude-haiku-4-5", "claude-haiku-4-5"},
		{"mistral", "codestral-latest", "codestral-2508"},
		{"openai", "my-own-finetune-of-something", ""},
		{"openai", strings.Repeat("x", 5000), ""},
		{"openai", "", ""},
	}
	for _, tt := range tests {
		_, err := Embedded().Lookup(tt.provider, tt.id)
		var unpriced *UnpricedError
		if !errors.As(err, &unpriced) {
			t.Errorf("Lookup(%q, %q): %v", tt.provider, tt.id, err)
			continue
		}
		if unpriced.Nearest != tt.nearest {
			t.Errorf("Lookup(%q, %.40q): nearest %q, want %q", tt.provider, tt.id, unpriced.Nearest, tt.nearest)
		}
		if tt.nearest != "" && !strings.Contains(err.Error(), tt.nearest) {
			t.Errorf("the error does not name %q: %v", tt.nearest, err)
		}
	}
}

func TestPricesChangeAtTheirDate(t *testing.T) {
	t.Parallel()
	tests := []struct {
		id   string
		at   time.Time
		want arbiter.Pico
	}{
		{"gemini-4-carbon", day("2026-12-01").Add(-time.Nanosecond), 2_000_000},
		{"gemini-4-carbon", day("2026-12-01"), 4_000_000},
		{"gpt-5.6-luna", day("2026-07-29"), 1_000_000},
		{"gpt-5.6-luna", day("2026-07-30"), 200_000},
		// A clock before the first row, or at its zero, does not make a model free.
		{"gpt-6.2-astra", day("2020-01-01"), 8_000_000},
		{"gpt-6.2-astra", time.Time{}, 8_000_000},
		{"deepseek-v4-flash", day("2099-01-01"), 140_000},
	}
	for _, tt := range tests {
		m, err := Embedded().Lookup("", tt.id)
		if err != nil {
			t.Fatal(err)
		}
		if got := m.At(tt.at).Input; got != tt.want {
			t.Errorf("%s at %v: %v a million, want %v", tt.id, tt.at, got, tt.want)
		}
	}
}

func TestCachePricesThatAreNotListedAreNotFree(t *testing.T) {
	t.Parallel()
	m, err := Embedded().Lookup("openai", "gpt-4o")
	if err != nil {
		t.Fatal(err)
	}
	r := m.At(day("2026-11-29"))
	if r.CacheRead != 1_250_000 || r.CacheWrite != r.Input || r.CacheWriteLong != r.Input {
		t.Errorf("gpt-4o: %+v", r.Rates)
	}
}

func TestDefaultRates(t *testing.T) {
	t.Parallel()
	for provider, want := range map[string]string{"openai": "2.5 10", "anthropic": "3 15", "gemini": "1.25 5", "google": "1.25 5", "mistral": "0.7 2.8"} {
		r, ok := DefaultRates(provider)
		if got := Format(r.Input) + " " + Format(r.Output); !ok || got != want {
			t.Errorf("%s: %s, want %s", provider, got, want)
		}
	}
	if _, ok := DefaultRates("vllm"); ok {
		t.Error("an unknown provider has a price")
	}
}

func TestParseDecimal(t *testing.T) {
	t.Parallel()
	good := []struct {
		text  string
		scale int
		want  int64
	}{
		{"0.0028", 6, 2800}, {"2.50", 6, 2_500_000}, {"2.5000000000", 6, 2_500_000}, {"0", 6, 0}, {"0.000", 6, 0},
		{"500_000_000", 0, 500_000_000}, {".5", 6, 500_000}, {"0.000000000001", 12, 1}, {"9007199254740991", 0, maxDecimal}, {"007", 0, 7},
	}
	for _, tt := range good {
		if got, err := ParseDecimal(tt.text, tt.scale); err != nil || got != tt.want {
			t.Errorf("ParseDecimal(%q, %d) = %d, %v; want %d", tt.text, tt.scale, got, err, tt.want)
		}
	}
	for _, bad := range []string{"", ".", "1.", "-1", "+1", "1e3", "0x10", "NaN", "inf", "1 2", "_1", "1_", "1__0", "0.1_0", "1,5", "9007199254740992", "0.0000000000001", strings.Repeat("9", 400)} {
		if got, err := ParseDecimal(bad, 12); !errors.Is(err, ErrDecimal) {
			t.Errorf("ParseDecimal(%.30q) = %d, %v", bad, got, err)
		}
	}
}

func TestUnitsTypedWrong(t *testing.T) {
	t.Parallel()
	if p, err := PerToken("0.000008"); err != nil || p != 8_000_000 {
		t.Errorf("PerToken: %v, %v", p, err)
	}
	for _, tt := range []struct {
		read       func(string) (arbiter.Pico, error)
		text, want string
	}{
		{PerToken, "8", "8 USD per token is 8000000 USD per million tokens: did you mean 8 per million?"},
		{PerMillion, "8000000", "8000000 USD per million tokens is above 10000: did you mean 8?"},
		{PerMillion, "0.000008", "0.000008 USD per million tokens is next to nothing: did you mean per_token, which is 8 per million?"},
		{PerMillion, "0.0000025", "0.0000025 USD per million tokens is next to nothing: did you mean per_token, which is 2.5 per million?"},
		{PerToken, "0.00000000001", "0.00000000001 USD per token is 0.00001 USD per million tokens, next to nothing"},
	} {
		if _, err := tt.read(tt.text); err == nil || err.Error() != tt.want {
			t.Errorf("%s: %v\nwant %s", tt.text, err, tt.want)
		}
	}
	for _, read := range []func(string) (arbiter.Pico, error){PerToken, PerMillion} {
		if p, err := read("0"); p != 0 || err != nil {
			t.Errorf("an explicit 0 is a price: %v, %v", p, err)
		}
	}
}

func TestOverride(t *testing.T) {
	t.Parallel()
	over, err := Parse("mine.yaml", []byte(`
as_of: 2026-12-24
multipliers: {openai: {batch: 0.4}}
models:
  - {id: gpt-5.4, provider: openai, prices: [{in: 1, out: 2}]}
  - {id: house-model, provider: vllm, aliases: [hm], prices: [{in: 0, out: 0}]}
  - {id: claude-mythos-5, provider: anthropic, prices: [{in: 11, out: 55}]}
`))
	if err != nil {
		t.Fatal(err)
	}
	c := Embedded().Override(over)
	price := func(provider, id string) string {
		m, err := c.Lookup(provider, id)
		if err != nil {
			return err.Error()
		}
		r := m.At(day("2026-11-29"))
		return Format(r.Input) + " " + Format(r.Output)
	}
	for id, want := range map[[2]string]string{
		{"openai", "gpt-5.4"}:            "1 2",
		{"vllm", "hm"}:                   "0 0",
		{"anthropic", "claude-mythos-5"}: "11 55",
		{"anthropic", "claude-fable-5"}:  "10 50",
		{"openai", "gpt-5.5"}:            "5 30",
	} {
		if got := price(id[0], id[1]); got != want {
			t.Errorf("%v: %s, want %s", id, got, want)
		}
	}
	if r, ok := c.Multiplier("openai", "batch"); !ok || r != 400_000 {
		t.Errorf("batch: %v %v", r, ok)
	}
	if r, ok := c.Multiplier("openai", "flex"); !ok || r != RatioOne/2 {
		t.Errorf("flex: %v %v", r, ok)
	}
	if _, ok := c.Multiplier("openai", "warp"); ok {
		t.Error("an unlisted service tier has a price")
	}
	if r, _ := Embedded().Multiplier("openai", "batch"); r != RatioOne/2 {
		t.Error("the override changed the embedded catalogue")
	}
}

func TestParseFaults(t *testing.T) {
	t.Parallel()
	tests := []struct{ text, want string }{
		{"models: []", "no models"},
		{"models: [{id: a, provider: p, prices: []}]", "model a: no prices"},
		{"models: [{id: a, provider: p, prices: [{in: 1}]}]", "in and out are required"},
		{"models: [{id: a, provider: p, prices: [{in: -1, out: 1}]}]", "negative"},
		{"models: [{id: a, provider: p, prices: [{in: 1e3, out: 1}]}]", "not a plain decimal"},
		{"models: [{id: a, provider: p, prices: [{in: [1], out: 1}]}]", "want a number"},
		{"models: [{provider: p, prices: [{in: 1, out: 1}]}]", "models[0]: id and provider are required"},
		{"models: [{id: a, provider: p, prises: 1}]", "prises"},
		{"models: [{id: a, provider: p, prices: [{in: 1, out: 1}]}, {id: b, provider: p, aliases: [a], prices: [{in: 1, out: 1}]}]", "names the id twice"},
		{"models: [{id: a, provider: p, prices: [{to: 2026-01-01, in: 1, out: 1}, {from: 2026-01-02, in: 1, out: 1}]}]", "must follow each other"},
		{"models: [{id: a, provider: p, prices: [{from: 2026-01-02, to: 2026-01-01, in: 1, out: 1}]}]", "ends before it begins"},
		{"models: [{id: a, provider: p, prices: [{from: yesterday, in: 1, out: 1}]}]", "is not a date"},
		{"models: [{id: a, provider: p, prices: [{in: 1, out: 1, tiers: [{in: 1, out: 1}]}]}]", "over_input above 0"},
		{"models: [{id: a, provider: p, prices: [{in: 1, out: 1, tiers: [{over_input: 5, in: 1, out: 1}, {over_input: 5, in: 1, out: 1}]}]}]", "two tiers over 5"},
		{"currency: EUR\nmodels: [{id: a, provider: p, prices: [{in: 1, out: 1}]}]", "only USD"},
		{"unit: per_token\nmodels: [{id: a, provider: p, prices: [{in: 1, out: 1}]}]", "per_1M_tokens"},
		{"multipliers: {p: {batch: -1}}\nmodels: [{id: a, provider: p, prices: [{in: 1, out: 1}]}]", "multipliers.p.batch"},
		{"models: {", "read price file"},
		{"", "price file"},
	}
	for _, tt := range tests {
		_, err := Parse("x.yaml", []byte(tt.text))
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "x.yaml: ") {
			t.Errorf("%s:\n got %v\nwant %q", tt.text, err, tt.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("models: [{id: a, provider: p, prices: [{in: 1, out: 1}]}]"))
	f.Add([]byte("models: &a [*a]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := Parse("x", text)
		if err != nil {
			return
		}
		for _, m := range c.Models() {
			if m.At(time.Time{}).Input < 0 {
				t.Fatal("negative price")
			}
		}
	})
}
