package arbiter

// bill is what a commit charges. Exact usage is priced by what served: model, service tier, length of the prompt, on the day of the grant.
// One number is taken as the held prompt first and answer after. No number at all settles at the hold, flagged estimated: a success is
// never free for want of a figure.
func (s *State) bill(c *Commit, l *lease) (u Usage, tokens Tokens, nanos Nanos, flags Flags) {
	if c.Estimated {
		flags |= FlagEstimated
	}
	switch {
	case c.HasUsage:
		if u = c.Usage; !c.Estimated {
			flags |= FlagExact
		}
	case c.HasActual:
		u.Input = min(c.Actual, Tokens(l.input))
		u.Output = c.Actual - u.Input
	case c.Outcome == OutcomeNotSent:
		return Usage{}, 0, 0, flags
	default:
		u = Usage{Input: Tokens(l.input), Output: Tokens(l.output)}
		return u, Tokens(l.tokens()), Nanos(l.nanos), flags | FlagEstimated
	}
	rates, factor, known := s.served(c, l, u)
	if !known {
		flags |= FlagEstimated
	}
	if rates == nil { // the price is no longer known: what the hold was priced at
		return u, u.Total(), Nanos(min(mulDivUp(l.nanos, int64(u.Total()), max(l.tokens(), 1)), MaxAmount)), flags | FlagEstimated
	}
	return u, u.Total(), rates.cost(u, factor), flags
}

// served is the price of the model and the service tier that answered: of the lease's own model when the answer names none that the provider
// has. known is false for a tier that the policy cannot price: it costs as much as the standard one. rates is nil when no price is in force.
func (s *State) served(c *Commit, l *lease, u Usage) (rates *Rates, factor PPM, known bool) {
	r := s.rules.rungs[l.rung]
	if r == nil {
		return s.rules.policy.FallbackPrice, Whole, c.Tier == ""
	}
	provider, model := &s.rules.policy.Providers[r.provider], r.model
	if l.flags()&FlagFallback != 0 {
		model = nil
	}
	if m := provider.model(c.Model); m != nil {
		model = m
	}
	if model == nil {
		factor, known = provider.factor(c.Tier)
		return s.rules.policy.FallbackPrice, factor, known
	}
	if own := model.serviceRates(c.Tier); own != nil {
		return own, Whole, true
	}
	factor, known = provider.factor(c.Tier)
	prompt := u.InputTotal()
	if c.Longest > 0 {
		prompt = c.Longest
	}
	if p := PriceAt(model.Prices, s.wall-(s.now-l.granted)); p != nil {
		return p.RatesFor(prompt), factor, known
	}
	return s.rules.policy.FallbackPrice, factor, known
}

// model finds a model by name; nil for an empty or unknown one.
func (p *Provider) model(name string) *Model {
	if name == "" {
		return nil
	}
	for i := range p.Models {
		if p.Models[i].Name == name {
			return &p.Models[i]
		}
	}
	return nil
}

// factor is what a service tier multiplies prices with. A provider without such tiers has one price for all of them.
func (p *Provider) factor(tier string) (f PPM, known bool) {
	if tier == "" || len(p.ServiceTiers) == 0 {
		return Whole, true
	}
	for i := range p.ServiceTiers {
		if p.ServiceTiers[i].Name == tier {
			return p.ServiceTiers[i].Factor, true
		}
	}
	return Whole, false
}

// serviceRates are the model's own rates in a service tier; nil when the provider's factor holds.
func (m *Model) serviceRates(tier string) *Rates {
	if tier == "" {
		return nil
	}
	for i := range m.ServiceRates {
		if m.ServiceRates[i].Name == tier {
			return &m.ServiceRates[i].Rates
		}
	}
	return nil
}
