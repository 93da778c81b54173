package catalog

import (
	"fmt"
	"testing"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
)

// priced parses one price row as an operator would write it.
func priced(t *testing.T, row string) *Model {
	t.Helper()
	c, err := Parse("test", []byte("models: [{id: m, provider: p, prices: ["+row+"]}]"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := c.Lookup("p", "m")
	if err != nil {
		t.Fatal(err)
	}
	return &m
}

func TestCost(t *testing.T) {
	t.Parallel()
	const (
		t26 = "{in: 2, out: 8, tiers: [{over_input: 200000, in: 4, out: 12}]}"
		// Writes at 1.25 times input: $3/M below the cliff, $6/M above.
		t26write = "{in: 3, cache_write: 3.75, out: 15, tiers: [{over_input: 200000, in: 6, cache_write: 7.5, out: 22.5}]}"
		t23      = "{in: 2, cache_read: 0.2, cache_write: 2.5, out: 0}"
		t24      = "{in: 0.50, cache_read: 0.05, out: 3.00}"
	)
	tests := []struct {
		name, row string
		u         arbiter.Usage
		nanos     arbiter.Nanos
	}{
		{"at the cliff", t26, arbiter.Usage{Input: 200_000}, 400_000_000},
		{"one above it", t26, arbiter.Usage{Input: 200_001}, 800_004_000},
		{"far above it", t26, arbiter.Usage{Input: 250_000}, 1_000_000_000},
		{"the cliff counts cached input", t26, arbiter.Usage{Input: 1, CacheRead: 200_000}, 800_004_000},
		{"output has the tier of the input", t26, arbiter.Usage{Input: 200_001, Output: 1000}, 812_004_000},
		{"output alone reaches no tier", t26, arbiter.Usage{Output: 300_000}, 2_400_000_000},
		{"cached writes above the cliff, 5,000 of them $0.0375", t26write, arbiter.Usage{CacheRead: 0, CacheWrite: 5000, Input: 200_000}, 1_200_000_000 + 37_500_000},
		{"OpenAI's inclusive shape", t23, arbiter.Usage{Input: 853, CacheRead: 11, CacheWrite: 5}, 1_720_700},
		{"Gemini's cached prompt", t24, arbiter.Usage{Input: 20_212 - 16_298, CacheRead: 16_298, Output: 931}, 5_564_900},
		{"a fraction of a nano is a nano", "{in: 0.0028, out: 0}", arbiter.Usage{Input: 1}, 3},
		{"rounded once, not per class", "{in: 0.0028, out: 0.0028}", arbiter.Usage{Input: 1, Output: 1}, 6},
		{"reasoning is part of the output", "{in: 1, out: 1}", arbiter.Usage{Output: 10, Reasoning: 10}, 10_000},
		{"free", "{in: 0, out: 0}", arbiter.Usage{Input: 1_000_000, Output: 1_000_000}, 0},
		{"nothing", t23, arbiter.Usage{}, 0},
		{"more than can be counted", "{in: 10000, out: 0}", arbiter.Usage{Input: arbiter.MaxAmount}, arbiter.MaxAmount},
	}
	for _, tt := range tests {
		if got := priced(t, tt.row).Cost(tt.u, day("2026-11-29")); got != tt.nanos {
			t.Errorf("%s: %d nano-USD, want %d", tt.name, got, tt.nanos)
		}
	}
}

func TestEveryEmbeddedTierIsACliff(t *testing.T) {
	t.Parallel()
	for _, m := range Embedded().Models() {
		for _, p := range m.Prices {
			for _, tier := range p.Tiers {
				below, above := p.Cost(arbiter.Usage{Input: tier.OverInput}), p.Cost(arbiter.Usage{Input: tier.OverInput + 1})
				if above < below+below/2 {
					t.Errorf("%s: %d tokens cost %d, one more %d", m.ID, tier.OverInput, below, above)
				}
			}
		}
	}
}

func TestScale(t *testing.T) {
	t.Parallel()
	m, err := Embedded().Lookup("openai", "gpt-5.4")
	if err != nil {
		t.Fatal(err)
	}
	p := *m.At(day("2026-11-29"))
	batch, _ := Embedded().Multiplier("openai", "batch")
	half := Scale(p, batch)
	u := arbiter.Usage{Input: 300_000, Output: 100}
	if full, got := p.Cost(u), half.Cost(u); got*2 != full {
		t.Errorf("batch: %d, want half of %d", got, full)
	}
	if p.Tiers[0].Input != 5_000_000 {
		t.Error("Scale changed its argument")
	}
	odd := Scale(arbiter.Price{Rates: arbiter.Rates{CacheRead: 3625}}, RatioOne/2)
	if odd.CacheRead != 1813 {
		t.Errorf("rounded to %d, want up", odd.CacheRead)
	}
	if big := Scale(arbiter.Price{Rates: arbiter.Rates{Input: MaxPrice}}, maxRatio); big.Input != 100*MaxPrice {
		t.Errorf("overflow: %d", big.Input)
	}
}

func ExampleCatalog_Lookup() {
	m, err := Embedded().Lookup("anthropic", "claude-haiku-4-5-20251001")
	if err != nil {
		fmt.Println(err)
		return
	}
	at := time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC)
	fmt.Println(m.ID, m.Cost(arbiter.Usage{Input: 1000, Output: 200}, at), "nano-USD")
	_, err = Embedded().Lookup("anthropic", "claude-opus-4.1")
	fmt.Println(err)
	// Output:
	// claude-haiku-4-5 2000000 nano-USD
	// unpriced model "claude-opus-4.1" of provider "anthropic"; did you mean "claude-opus-4-5"?
}
