package arbiter

import "fmt"

// Due is something of the calendar that is over: the budget period (Provider empty) or a provider's day. The engine computes the
// next bounds and sends Roll.
type Due struct {
	Provider string
	Zone     string
	Spec     PeriodSpec
	Current  Period
}

// Due appends to buf what is over at this Unix time, ns.
func (s *State) Due(wall int64, buf []Due) []Due {
	if s.rules == nil {
		return buf
	}
	if c := s.current(); wall >= c.period.End {
		buf = append(buf, Due{Spec: s.rules.policy.Period, Zone: s.rules.policy.Period.TimeZone, Current: c.period})
	}
	for i := range s.rules.providers {
		if m := s.dayMeter(i); m != nil && wall >= m.resets {
			p := &s.rules.policy.Providers[i]
			buf = append(buf, Due{Provider: p.Name, Zone: p.Zone, Current: Period{End: m.resets}})
		}
	}
	return buf
}

// dayMeter is one RPD meter of a provider: they all reset together. nil when it has none.
func (s *State) dayMeter(provider int) *meter {
	var found *meter
	s.eachDay(provider, func(i uint32) { found = s.meters.at(i) })
	return found
}

func (s *State) eachDay(provider int, f func(i uint32)) {
	last := uint32(1<<32 - 1)
	for _, number := range s.rules.providers[provider].rungs {
		for i := range s.rules.rungs[number].gauges {
			if g := &s.rules.rungs[number].gauges[i]; g.dim == DimRPD && g.meter != last {
				last = g.meter
				f(g.meter)
			}
		}
	}
}

func (s *State) decideRoll(c *Roll, d *Decision) *Error {
	if c.Next.End <= c.Next.Start {
		return Errorf(CodeInvalid, "period", "period must end after it starts")
	}
	if c.Provider == "" {
		if s.wall < s.current().period.End {
			return nil // another writer was first
		}
		d.fact(Fact{Kind: FactPeriodRolled, Period: c.Next})
		return nil
	}
	i, ok := s.rules.byName[c.Provider]
	if !ok {
		return Errorf(CodeInvalid, "unknown_provider", "provider %q is not in the policy of pool %s", c.Provider, s.pool)
	}
	s.eachDay(i, func(m uint32) {
		if s.wall >= s.meters.at(m).resets {
			d.fact(Fact{Kind: FactDayRolled, Node: m, Period: c.Next})
		}
	})
	return nil
}

func (s *State) decideAdopt(c *Adopt, d *Decision) *Error {
	if s.rules != nil && (c.Version < s.rules.policy.Version || c.Hash == s.rules.hash) {
		return nil // the higher version wins; the same policy is no news
	}
	if s.rules != nil && c.Version == s.rules.policy.Version {
		return Errorf(CodeConflict, "policy_version", "pool %s: version %d is in force with another content: take a higher one", s.pool, c.Version)
	}
	p, hash, err := decodePolicy(c.Policy)
	if err == nil && hash != c.Hash {
		err = fmt.Errorf("policy: its hash is not the one announced")
	}
	if err == nil && p.Version != c.Version {
		err = fmt.Errorf("policy: version %d is announced as %d", p.Version, c.Version)
	}
	if err == nil {
		err = p.Validate()
	}
	if err != nil {
		return Errorf(CodeInvalid, "policy", "pool %s: %v", s.pool, err)
	}
	period := c.Period
	if s.rules != nil && s.rules.policy.Period == p.Period {
		period = Period{} // the open period goes on
	} else if period.End <= period.Start {
		return Errorf(CodeInvalid, "period", "pool %s: the period must end after it starts", s.pool)
	}
	d.fact(Fact{Kind: FactPolicyAdopted, Version: c.Version, Hash: c.Hash, Policy: c.Policy, Period: period})
	return nil
}

// untouched reports whether no period that is still kept has counted anything on the row.
func (s *State) untouched(row uint32) bool {
	for _, b := range s.books {
		if !s.balance(b, row).empty() {
			return false
		}
	}
	return true
}

// decideTick drops a bounded number of idle rows and makes closed periods final when nothing of them is left.
func (s *State) decideTick(c *Tick, d *Decision) *Error {
	row, end := c.From, min(uint64(c.From)+sweepRows, uint64(s.nodes.n))
	for ; uint64(row) < end; row++ {
		n := s.nodes.at(row)
		if n.refs > 0 || s.now-n.idle < idleRow {
			continue
		}
		switch n.kind {
		case KindTask, KindWorkflow:
			d.fact(Fact{Kind: FactNodeDropped, Node: row})
		case KindAgent, KindCredential:
			if s.untouched(row) {
				d.fact(Fact{Kind: FactNodeDropped, Node: row})
			}
		}
	}
	if d.Answer.Next = row; uint64(row) >= uint64(s.nodes.n) {
		d.Answer.Next = 0
	}
	for _, b := range s.books[:len(s.books)-1] {
		if b.leases == 0 {
			d.fact(Fact{Kind: FactPeriodFinal, Number: b.number})
		}
	}
	return nil
}
