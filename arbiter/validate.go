package arbiter

import (
	"fmt"
	"slices"
)

// maxLeaseTime bounds times that are added to now: the sum stays far from the end of int64.
const maxLeaseTime = 366 * 24 * Hour

// Validate checks all that Decide and Apply rely on. The configuration says the same with file positions; this is the last line of
// defence, for a policy that came from elsewhere.
func (p *Policy) Validate() error {
	for _, check := range [...]func() error{p.validTimes, p.validLease, p.validProviders, p.validLadders, p.validClasses, p.validTables} {
		if err := check(); err != nil {
			return fmt.Errorf("policy: %w", err)
		}
	}
	return nil
}

func (p *Policy) validTimes() error {
	b := &p.Breaker
	switch {
	case p.Guard < 0 || p.Guard > MaxGuard:
		return fmt.Errorf("guard must be 0 to %d s", MaxGuard/Second)
	case p.Lease.StartBy < 0 || p.Lease.StartBy > MaxStartBy:
		return fmt.Errorf("lease.start_by must be 0 to %d s", MaxStartBy/Second)
	case b.Failures < 1 || b.Recovery < 1 || b.Recovery > maxLeaseTime:
		return fmt.Errorf("breaker needs at least 1 failure and a recovery time of at most 366 days")
	case !fraction(b.Ratio) || b.MinCalls < 0 || b.Window < 0 || b.Window > maxLeaseTime || b.Ramp < 0 || b.Ramp > maxLeaseTime:
		return fmt.Errorf("breaker.ratio must be 0 to 1, min_calls not negative, window and ramp 0 to 366 days")
	}
	kinds := []string{"hourly", "daily", "weekly", "monthly", "quarterly", "every"}
	if k := &p.Period; !slices.Contains(kinds, k.Kind) || (k.Kind == "every") != (k.Every > 0) || k.Every < 0 {
		return fmt.Errorf("period is %q of %d ns: take one of %v, with a length for every and for no other", k.Kind, k.Every, kinds)
	}
	return nil
}

func (p *Policy) validLease() error {
	l := &p.Lease
	for _, t := range [...]int64{l.TTL, l.Max} { // 0 is learned, and no bound
		if t < 0 || t > maxLeaseTime {
			return fmt.Errorf("lease.ttl and lease.max must be 0 to 366 days")
		}
	}
	for _, t := range [...]int64{l.Grace, l.CommitBy, l.Forget} { // 0 would forget bills at once
		if t <= 0 || t > maxLeaseTime {
			return fmt.Errorf("lease.grace, lease.commit_by and the forgetting of commits must be above 0, up to 366 days")
		}
	}
	if l.OnExpiry > ExpiryAssume {
		return fmt.Errorf("lease.on_expiry %d is not return 0 or assume 1", l.OnExpiry)
	}
	if !fraction(l.MaxHoldShare) || !validAmount(int64(l.MaxOpen)) || !validAmount(int64(l.MaxHeld)) {
		return fmt.Errorf("lease.max_hold_share must be 0 to 1, max_open and max_held_tokens %w", ErrAmount)
	}
	return nil
}

func (p *Policy) validProviders() error {
	if len(p.Providers) == 0 {
		return fmt.Errorf("no provider")
	}
	if p.FallbackPrice != nil {
		if err := p.FallbackPrice.validate(); err != nil {
			return fmt.Errorf("fallback price: %w", err)
		}
	}
	seen := map[string]bool{}
	for i := range p.Providers {
		pr := &p.Providers[i]
		if pr.Name == "" || seen[pr.Name] {
			return fmt.Errorf("provider name %q is empty or double", pr.Name)
		}
		seen[pr.Name] = true
		if err := pr.validate(); err != nil {
			return fmt.Errorf("provider %s: %w", pr.Name, err)
		}
	}
	return nil
}

// validLadders comes after validProviders: rungs are looked up there.
func (p *Policy) validLadders() error {
	names := map[string]bool{}
	for i := range p.Ladders {
		l := &p.Ladders[i]
		if l.Name == "" || names[l.Name] {
			return fmt.Errorf("ladder name %q is empty or double", l.Name)
		}
		names[l.Name] = true
		if len(l.Tiers) == 0 {
			return fmt.Errorf("ladder %s: no tier: name at least one rung", l.Name)
		}
		seen := map[[2]int]bool{}
		for t, tier := range l.Tiers {
			if len(tier) == 0 {
				return fmt.Errorf("ladder %s: tier %d has no rung", l.Name, t+1)
			}
			for _, r := range tier {
				provider, model, err := p.find(r)
				if err != nil {
					return fmt.Errorf("ladder %s: tier %d: %w", l.Name, t+1, err)
				}
				if seen[[2]int{provider, model}] {
					return fmt.Errorf("ladder %s: rung %s is in it twice", l.Name, r)
				}
				seen[[2]int{provider, model}] = true
			}
		}
	}
	return nil
}

// find is where the policy has a rung: the index of its provider and of its model there.
func (p *Policy) find(r Rung) (provider, model int, err error) {
	provider = slices.IndexFunc(p.Providers, func(o Provider) bool { return o.Name == r.Provider })
	if provider < 0 {
		return 0, 0, fmt.Errorf("rung %s: provider %q is not in the policy", r, r.Provider)
	}
	models := p.Providers[provider].Models
	if r.Model == "" && len(models) > 0 {
		return provider, 0, nil
	}
	model = slices.IndexFunc(models, func(o Model) bool { return o.Name == r.Model })
	if model < 0 {
		return 0, 0, fmt.Errorf("rung %s: provider %s has no model %q", r, r.Provider, r.Model)
	}
	return provider, model, nil
}

func (p *Provider) validate() error {
	if len(p.Models) == 0 {
		return fmt.Errorf("no model")
	}
	if err := p.Limit.validate(); err != nil {
		return err
	}
	if err := p.Ceilings.validate(); err != nil {
		return err
	}
	tiers := map[string]bool{}
	for _, t := range p.ServiceTiers {
		if t.Name == "" || tiers[t.Name] {
			return fmt.Errorf("service tier %q is empty or double", t.Name)
		}
		tiers[t.Name] = true
		if t.Factor < 0 || t.Factor > MaxFactor {
			return fmt.Errorf("service tier %s: factor must be 0 to %d", t.Name, MaxFactor/Whole)
		}
	}
	seen := map[string]bool{}
	for i := range p.Models {
		m := &p.Models[i]
		if seen[m.Name] {
			return fmt.Errorf("model %q is double", m.Name)
		}
		seen[m.Name] = true
		if err := m.validate(); err != nil {
			return fmt.Errorf("model %q: %w", m.Name, err)
		}
	}
	return nil
}

func (m *Model) validate() error {
	if err := m.Limit.validate(); err != nil {
		return err
	}
	if err := m.Ceilings.validate(); err != nil {
		return err
	}
	if !validAmount(int64(m.MaxInput)) || !validAmount(int64(m.MaxOutput)) {
		return fmt.Errorf("max_input and max_output: %w", ErrAmount)
	}
	tiers := map[string]bool{}
	for i := range m.ServiceRates {
		t := &m.ServiceRates[i]
		if t.Name == "" || tiers[t.Name] {
			return fmt.Errorf("service tier %q is empty or double", t.Name)
		}
		tiers[t.Name] = true
		if err := t.Rates.validate(); err != nil {
			return err
		}
	}
	for i := range m.Prices {
		p := &m.Prices[i]
		if err := p.Rates.validate(); err != nil {
			return err
		}
		over := Tokens(-1)
		for j := range p.Tiers {
			t := &p.Tiers[j]
			if err := t.Rates.validate(); err != nil {
				return err
			}
			if t.OverInput <= over || !validAmount(int64(t.OverInput)) {
				return fmt.Errorf("price tiers must ascend")
			}
			over = t.OverInput
		}
	}
	return nil
}

// validate refuses negative prices and those above MaxAmount.
func (r *Rates) validate() error {
	for _, n := range [...]Pico{r.Input, r.CacheRead, r.CacheWrite, r.CacheWriteLong, r.Output} {
		if !validAmount(int64(n)) {
			return fmt.Errorf("a price: %w", ErrAmount)
		}
	}
	return nil
}

func (l *Limit) validate() error {
	for _, n := range [...]int64{int64(l.Tokens), int64(l.Nanos)} {
		if n != Unlimited && !validAmount(n) {
			return fmt.Errorf("a limit: %w, or %d for none", ErrAmount, Unlimited)
		}
	}
	return nil
}

func (c *Ceilings) validate() error {
	for _, n := range [...]int64{int64(c.RPM), int64(c.TPM), int64(c.InputTPM), int64(c.OutputTPM), int64(c.RPD), int64(c.MaxConcurrent)} {
		if !validAmount(n) {
			return fmt.Errorf("a ceiling: %w", ErrAmount)
		}
	}
	if !fraction(c.Burst) {
		return fmt.Errorf("burst must be 0 to 1")
	}
	return nil
}

func fraction(f PPM) bool { return f >= 0 && f <= Whole }

func (p *Policy) validClasses() error {
	classes, sum := map[string]bool{}, PPM(0)
	for i := range p.Classes {
		c := &p.Classes[i]
		if classes[c.Name] || c.Name == "" || !fraction(c.Share) || c.Priority > Critical {
			return fmt.Errorf("class %q is nameless, double or has a wrong share or priority", c.Name)
		}
		if err := c.Limit.validate(); err != nil {
			return fmt.Errorf("class %q: %w", c.Name, err)
		}
		classes[c.Name] = true
		sum += c.Share
	}
	if !classes[DefaultClass] {
		return fmt.Errorf("no class named %s", DefaultClass)
	}
	var rate, budget PPM
	for _, r := range p.Reserves {
		if !fraction(r.Rate) || !fraction(r.Budget) {
			return fmt.Errorf("a reserve must be 0 to 1")
		}
		rate, budget = rate+r.Rate, budget+r.Budget
	}
	if sum > Whole || rate > Whole || budget > Whole {
		return fmt.Errorf("class shares and reserves must sum to at most 1")
	}
	return nil
}

// validTables checks the limits outside providers and classes, the weights and the backpressure table.
func (p *Policy) validTables() error {
	for _, l := range [...]struct {
		what  string
		limit *Limit
	}{{"the global budget", &p.Global}, {"the tasks' budget", &p.Tasks}} {
		if err := l.limit.validate(); err != nil {
			return fmt.Errorf("%s: %w", l.what, err)
		}
	}
	for what, list := range map[string][]NamedLimit{"agent": p.Agents, "workflow": p.Workflows} {
		seen := map[string]bool{}
		for i := range list {
			if seen[list[i].Name] {
				return fmt.Errorf("%s %q is double", what, list[i].Name)
			}
			seen[list[i].Name] = true
			if err := list[i].Limit.validate(); err != nil {
				return fmt.Errorf("%s %q: %w", what, list[i].Name, err)
			}
		}
	}
	for i := range p.Weights {
		if w := &p.Weights[i]; !fraction(w.Headroom) || !fraction(w.Cost) || !fraction(w.Preferred) || !fraction(w.Latency) {
			return fmt.Errorf("weights of %s: each must be 0 to 1", Priority(i))
		}
	}
	b := &p.Backpressure
	for i := range b.Consumed {
		if b.Consumed[i] < 0 || !fraction(b.Headroom[i]) || b.DelayMS[i] < 0 {
			return fmt.Errorf("backpressure %s: thresholds and delays must not be negative, headroom at most 1", Level(i+1))
		}
		if i > 0 && (b.Consumed[i] < b.Consumed[i-1] || b.Headroom[i] > b.Headroom[i-1] || b.DelayMS[i] < b.DelayMS[i-1]) {
			return fmt.Errorf("backpressure %s must come after %s: consumed and delay not lower, headroom not higher", Level(i+1), Level(i))
		}
	}
	return nil
}
