package config

import (
	"testing"

	"github.com/token-budget-arbiter/tba/arbiter"
)

// TestServiceTiers: whose service tiers hold at a provider, and which rates a model has in a tier of its own.
func TestServiceTiers(t *testing.T) {
	t.Parallel()
	c := must(t, `
budget:
  pool: p
  period: daily
  global_tokens: 1_000_000
  providers:
    openai: {base_url: "https://openai.example/v1", price: {input: 1, output: 2}}
    openai-eu: {kind: openai}
    anthropic: {models: {claude-opus-5-5: {}, claude-opus-5: {}}}
    mine: {kind: anthropic, models: {claude-opus-5-5: {price: {input: 1, output: 2}}}}
    gemini: {}
    vllm: {kind: openai, base_url: "https://vllm.example/v1", price: {input: 0, output: 0}}
    search: {kind: http, base_url: "https://search.example"}
`)
	const half = arbiter.Whole / 2
	p := c.Pools[0].Policy
	for i, want := range []struct {
		flex, batch arbiter.PPM
		tool        bool
	}{{half, half, false}, {half, half, false}, {0, half, false}, {0, half, false}, {half, half, false}, {0, 0, false}, {0, 0, true}} {
		pr := &p.Providers[i]
		factor := map[string]arbiter.PPM{}
		for _, tier := range pr.ServiceTiers {
			factor[tier.Name] = tier.Factor
		}
		if factor["flex"] != want.flex || factor["batch"] != want.batch || pr.Tool != want.tool {
			t.Errorf("%s: %v, tool %v", pr.Name, factor, pr.Tool)
		}
	}
	if m := p.Providers[2].Models[0]; len(m.ServiceRates) != 1 || m.ServiceRates[0].Name != "fast" || m.ServiceRates[0].Input != 8_000_000 || m.ServiceRates[0].Output != 40_000_000 {
		t.Errorf("fast mode of %s: %+v", m.Name, m.ServiceRates)
	}
	if m := p.Providers[2].Models[1]; m.ServiceRates != nil {
		t.Errorf("fast mode of %s, which has none: %+v", m.Name, m.ServiceRates)
	}
	if m := p.Providers[3].Models[0]; m.ServiceRates != nil {
		t.Errorf("fast mode at a price of the file's: %+v", m.ServiceRates)
	}
}
