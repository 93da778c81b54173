package arbiter

import (
	"strings"
	"testing"
)

// TestValidateRefuses what would break a rule of Decide, whoever sends the policy.
func TestValidateRefuses(t *testing.T) {
	t.Parallel()
	for want, spoil := range map[string]func(p *Policy){
		"guard":                 func(p *Policy) { p.Guard = MaxGuard + 1 },
		"start_by":              func(p *Policy) { p.Lease.StartBy = -1 },
		"recovery":              func(p *Policy) { p.Breaker.Recovery = 0 },
		"breaker.ratio":         func(p *Policy) { p.Breaker.Ratio = Whole + 1 },
		"period is":             func(p *Policy) { p.Period.Kind = "yearly" },
		"with a length":         func(p *Policy) { p.Period.Kind = "every" },
		"lease.ttl":             func(p *Policy) { p.Lease.TTL = -Second },
		"lease.grace":           func(p *Policy) { p.Lease.Grace = 0 },
		"lease.commit_by":       func(p *Policy) { p.Lease.CommitBy = 0 },
		"forgetting of commits": func(p *Policy) { p.Lease.Forget = 0 },
		"on_expiry":             func(p *Policy) { p.Lease.OnExpiry = 2 },
		"max_hold_share":        func(p *Policy) { p.Lease.MaxHoldShare = -1 },
		"max_open":              func(p *Policy) { p.Lease.MaxOpen = -1 },
		"max_held_tokens":       func(p *Policy) { p.Lease.MaxHeld = MaxAmount + 1 },
		"no provider":           func(p *Policy) { p.Providers = nil },
		"fallback price":        func(p *Policy) { p.FallbackPrice = &Rates{Input: -1} },
		"is empty or double":    func(p *Policy) { p.Providers = append(p.Providers, p.Providers[0]) },
		"no model":              func(p *Policy) { p.Providers[0].Models = nil },
		"provider openai: a limit": func(p *Policy) {
			p.Providers[0].Limit.Tokens = -2
		},
		"provider openai: a ceiling":      func(p *Policy) { p.Providers[0].RPM = -1 },
		"burst":                           func(p *Policy) { p.Providers[0].Burst = -1 },
		"model \"\" is double":            func(p *Policy) { p.Providers[0].Models = append(p.Providers[0].Models, p.Providers[0].Models[0]) },
		"model \"\": a limit":             func(p *Policy) { p.Providers[0].Models[0].Limit.Nanos = MaxAmount + 1 },
		"model \"\": a ceiling":           func(p *Policy) { p.Providers[0].Models[0].TPM = -1 },
		"max_input":                       func(p *Policy) { p.Providers[0].Models[0].MaxInput = -1 },
		"model \"\": a price":             func(p *Policy) { p.Providers[0].Models[0].Prices[0].Output = -1 },
		"a price: amount":                 func(p *Policy) { p.Providers[0].Models[0].Prices[0].Tiers = []Tier{{Rates: Rates{CacheRead: -1}}} },
		"tiers must ascend":               func(p *Policy) { p.Providers[0].Models[0].Prices[0].Tiers = []Tier{{OverInput: 5}, {OverInput: 5}} },
		"class \"default\" is nameless":   func(p *Policy) { p.Classes = append(p.Classes, p.Classes[0]) },
		"class \"default\": a limit":      func(p *Policy) { p.Classes[0].Limit.Tokens = -7 },
		"no class named default":          func(p *Policy) { p.Classes = nil },
		"a reserve must":                  func(p *Policy) { p.Reserves[1].Rate = -1 },
		"sum to at most":                  func(p *Policy) { p.Reserves[1].Rate, p.Reserves[2].Rate = Whole, 1 },
		"the global budget":               func(p *Policy) { p.Global.Nanos = -2 },
		"the tasks' budget":               func(p *Policy) { p.Tasks.Tokens = MaxAmount + 1 },
		"agent \"a\" is double":           func(p *Policy) { p.Agents = []NamedLimit{{"a", NoLimit}, {"a", NoLimit}} },
		"workflow \"w\": a limit":         func(p *Policy) { p.Workflows = []NamedLimit{{"w", Limit{Tokens: -9}}} },
		"weights of HIGH":                 func(p *Policy) { p.Weights[High].Cost = -1 },
		"backpressure MODERATE":           func(p *Policy) { p.Backpressure.DelayMS[1] = -1 },
		"backpressure SEVERE must come":   func(p *Policy) { p.Backpressure.Consumed[2] = 0 },
		"backpressure CRITICAL must come": func(p *Policy) { p.Backpressure.Headroom[3] = Whole },
		"backpressure MILD: thresholds":   func(p *Policy) { p.Backpressure.Consumed[0] = -1 },
		"CRITICAL must come after SEVERE": func(p *Policy) { p.Backpressure.DelayMS[3] = 0 },
		"policy: no provider":             func(p *Policy) { p.Providers = []Provider{} },
		"window and ramp":                 func(p *Policy) { p.Breaker.Ramp = -1 },
		"take one of":                     func(p *Policy) { p.Period.Every = Hour },
	} {
		p := onePolicy()
		spoil(p)
		if err := p.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if err := onePolicy().Validate(); err != nil {
		t.Error(err)
	}
}
