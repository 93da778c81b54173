package arbiter

import "fmt"

// Pressure is how congested the pool is, by the published table (docs/algorithms.md §9): the level follows from the consumed part of the
// global budget and from the smallest rate headroom of the providers that are neither open nor held; no hysteresis.
type Pressure struct {
	Level Level
	// Consumed is (S+A)/L of the global budget, the larger of tokens and money; 0 without a limit.
	Consumed PPM
	// Providers has each provider's rate headroom, in the order of the policy; 0 while it is held or open.
	Providers []ProviderHeadroom
	// DelayMS is the recommended delay before a call.
	DelayMS int32
	// ShedLow asks to drop or defer low-priority work; true from SEVERE on.
	ShedLow bool
	// Message says what to do, with the figures.
	Message string
}

// ProviderHeadroom is the free part of one provider's ceilings.
type ProviderHeadroom struct {
	Provider string
	Headroom PPM
}

// Pressure computes the backpressure of now. The zero Pressure is a calm pool, and the answer before the first policy.
func (s *State) Pressure() Pressure {
	if s.rules == nil {
		return Pressure{Message: "no policy yet"}
	}
	var p Pressure
	for i := range s.rules.providers {
		headroom, _ := s.providerHeadroom(&s.rules.providers[i])
		p.Providers = append(p.Providers, ProviderHeadroom{s.rules.providers[i].name, headroom})
	}
	var least PPM
	p.Level, p.Consumed, least = s.congestion()
	if p.Level > LevelNone {
		p.DelayMS = s.rules.policy.Backpressure.DelayMS[p.Level-1]
	}
	p.ShedLow = p.Level >= LevelSevere
	p.Message = pressureMessage(&p, least)
	return p
}

// congestion is the level of now with the two figures that it follows from.
func (s *State) congestion() (level Level, consumed, least PPM) {
	global := &s.nodes.at(0).limit
	a := s.balance(s.current(), 0)
	if global.Tokens != Unlimited {
		consumed = ratio(a.committedTokens(), int64(global.Tokens))
	}
	if global.Nanos != Unlimited {
		consumed = max(consumed, ratio(a.committedNanos(), int64(global.Nanos)))
	}
	least, usable := Whole, false
	for i := range s.rules.providers {
		if headroom, up := s.providerHeadroom(&s.rules.providers[i]); up {
			least, usable = min(least, headroom), true
		}
	}
	if !usable {
		least = 0
	}
	table := &s.rules.policy.Backpressure
	for i := range table.Consumed {
		if consumed >= table.Consumed[i] || least <= table.Headroom[i] {
			level = Level(i + 1)
		}
	}
	return level, consumed, least
}

// providerHeadroom is the rate headroom of a provider's best rung; up is false when all are open or held.
func (s *State) providerHeadroom(p *providerRules) (best PPM, up bool) {
	for _, number := range p.rungs {
		if h := s.health(number); h.reason == ReasonNone && !h.probe {
			best, up = max(best, s.windowHeadroom(s.rules.rungs[number])), true
		}
	}
	return best, up
}

// windowHeadroom is the smallest free part of a rung's rate windows; slots are not a rate.
func (s *State) windowHeadroom(r *rungRules) PPM {
	least, rung := Whole, s.rungs.at(r.number)
	for i := range r.gauges {
		g := &r.gauges[i]
		if !g.dim.paced() {
			continue
		}
		used, held := s.load(g)
		least = min(least, Whole-min(ratio(used+held, rung.inForce(g)), Whole))
	}
	return least
}

func pressureMessage(p *Pressure, headroom PPM) string {
	figures := fmt.Sprintf("%.1f %% of the budget used, smallest provider headroom %.1f %%", float64(p.Consumed)/1e4, float64(headroom)/1e4)
	switch p.Level {
	case LevelMild:
		return "prefer cheap providers: " + figures
	case LevelModerate:
		return fmt.Sprintf("wait %d ms before each call: %s", p.DelayMS, figures)
	case LevelSevere:
		return "drop low-priority work: " + figures
	case LevelCritical:
		return "halt all but critical agents: " + figures
	}
	return "go on: " + figures
}
