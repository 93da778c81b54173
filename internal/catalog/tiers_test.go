package catalog

import (
	"maps"
	"testing"

	"github.com/token-budget-arbiter/tba/arbiter"
)

func TestServiceTiers(t *testing.T) {
	t.Parallel()
	own, err := Parse("own", []byte("multipliers: {groq: {flex: 1, performance: 1.25}, openai: {flex: 0.6}}\nmodels: [{id: m, provider: p, prices: [{in: 1, out: 1}]}]"))
	if err != nil {
		t.Fatal(err)
	}
	const half = arbiter.Whole / 2
	for name, c := range map[string]struct {
		catalog  *Catalog
		provider string
		want     map[string]arbiter.PPM
	}{
		"openai":    {Embedded(), "openai", map[string]arbiter.PPM{"batch": half, "flex": half, "priority": 2_000_000, "fast": 2_000_000}},
		"anthropic": {Embedded(), "Anthropic", map[string]arbiter.PPM{"batch": half}},
		"gemini": {Embedded(), "google", map[string]arbiter.PPM{"batch": half, "flex": half, "priority": 1_800_000,
			"ON_DEMAND": arbiter.Whole, "TRAFFIC_TYPE_UNSPECIFIED": arbiter.Whole, "ON_DEMAND_FLEX": half, "ON_DEMAND_PRIORITY": 1_800_000, "ON_DEMAND_BATCH": half}},
		"unlisted":         {Embedded(), "deepseek", nil},
		"an operator's":    {Embedded().Override(own), "groq", map[string]arbiter.PPM{"flex": arbiter.Whole, "performance": 1_250_000}},
		"an operator's, 2": {Embedded().Override(own), "openai", map[string]arbiter.PPM{"batch": half, "flex": 600_000, "priority": 2_000_000, "fast": 2_000_000}},
	} {
		got := map[string]arbiter.PPM{}
		for _, tier := range c.catalog.ServiceTiers(c.provider) {
			got[tier.Name] = tier.Factor
		}
		if c.want != nil {
			for _, word := range [...]string{"default", "standard", "auto", "on_demand"} {
				c.want[word] = arbiter.Whole
			}
		}
		if !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
