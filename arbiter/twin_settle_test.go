package arbiter

import "fmt"

// How the model ends leases: the table of lease life, written down row by row.

// owned is the lease if it is this principal's.
func (m *twin) owned(id LeaseID, principal uint64) *record {
	if r := m.known[id]; r != nil && r.request.Principal == principal {
		return r
	}
	return nil
}

// bill is what a commit is worth.
func (m *twin) bill(c *Commit, r *record) (tokens, nanos int64) {
	u := Usage{}
	switch {
	case c.HasUsage:
		u = c.Usage
	case c.HasActual:
		u.Input = min(c.Actual, Tokens(r.input))
		u.Output = c.Actual - u.Input
	case c.Outcome == OutcomeNotSent:
		return 0, 0
	default:
		return r.tokens(), r.nanos
	}
	return int64(u.Total()), -1 // the price: see commit
}

func (m *twin) commit(c *Commit, got reply) error {
	a := &got.Answer
	if got.Err != nil {
		return expect(got.Err.Code == CodeInvalid || got.Err.Code == CodePrecondition && c.Token != nil, "a commit is never refused for another reason")
	}
	r := m.owned(c.Lease, c.Principal)
	if r == nil {
		return m.commitUnknown(c, got)
	}
	tokens, nanos := m.bill(c, r)
	flags := Flags(0)
	switch r.phase {
	case Committed:
		want := Conflict
		if tokens == r.spent {
			want = AlreadyRecorded
		}
		return expect(a.Result == want && got.Facts == 0 && int64(a.Tokens) == r.spent, "want %d: the first commit wins", want)
	case ReleasedPhase:
		flags = FlagAfterRelease
		if tokens == 0 || c.Outcome == OutcomeNotSent {
			return expect(a.Result == Recorded && got.Facts == 0 && a.Tokens == 0, "nothing used after a release changes nothing")
		}
	case RevokedPhase, Held, Assumed, Returned:
		flags = FlagLate
	}
	if a.Result != Recorded || int64(a.Tokens) != tokens || nanos >= 0 && int64(a.Nanos) != nanos || a.Flags&(FlagLate|FlagAfterRelease) != flags {
		return fmt.Errorf("want %d tokens recorded, flags %b", tokens, flags)
	}
	if _, model := m.rung(r.provider, r.model); c.HasUsage && model != nil {
		if want := m.price(c, r, model); want >= 0 && int64(a.Nanos) != want {
			return fmt.Errorf("%d nanos, the price is %d", a.Nanos, want)
		}
	}
	if over := tokens > r.tokens() || int64(a.Nanos) > r.nanos; over && r.phase != ReleasedPhase && r.phase != Returned && a.Flags&FlagOverrun == 0 {
		return fmt.Errorf("more than was held must be flagged overrun")
	}
	end := m.now + m.p.Lease.Forget
	if r.recreated { // its token stays good
		end = max(end, r.end)
	}
	r.phase, r.spent, r.spentNanos, r.end = Committed, tokens, int64(a.Nanos), end
	return nil
}

// price is what exact usage costs by what served it; -1 for the fallback price.
func (m *twin) price(c *Commit, r *record, model *Model) int64 {
	p, served := m.rung(r.provider, c.Model)
	switch {
	case served != nil && c.Model != "":
		model = served
	case r.fallback():
		return -1
	}
	prompt := max(c.Longest, 0)
	if prompt == 0 {
		prompt = c.Usage.InputTotal()
	}
	if p == nil {
		p, _ = m.rung(r.provider, r.model)
	}
	return priceOf(p, model, c.Tier, c.Usage, prompt)
}

// priceOf is a price in a service tier.
func priceOf(p *Provider, model *Model, tier string, u Usage, prompt Tokens) int64 {
	for _, own := range model.ServiceRates {
		if own.Name == tier {
			return cost([]Price{{Rates: own.Rates}}, u, 0)
		}
	}
	for _, t := range p.ServiceTiers {
		if t.Name == tier {
			return costBy(model.Prices, u, prompt, t.Factor)
		}
	}
	return cost(model.Prices, u, prompt)
}

func (r *record) fallback() bool { return r.request.Model != r.model && r.request.Model != "" }

func (m *twin) commitUnknown(c *Commit, got reply) error {
	a, t := &got.Answer, c.Token
	switch {
	case t == nil || m.known[c.Lease] != nil:
		return expect(a.Result == UnknownLease && got.Facts == 0, "an unknown or foreign lease is unknown")
	case m.now >= t.CommitBy:
		return expect(a.Result == TooOld, "after commit_by it is too old")
	case t.Epoch == 1: // its seq, 0, is part of this history
		return expect(a.Result == AlreadyRecorded && got.Facts == 0, "committed and forgotten is not charged again")
	}
	r := m.recreate(t)
	tokens, nanos := m.bill(c, r)
	if a.Result != Recorded || a.Flags&FlagRecreated == 0 || int64(a.Tokens) != tokens || nanos >= 0 && int64(a.Nanos) != nanos {
		return fmt.Errorf("a lost lease is brought back and charged %d", tokens)
	}
	r.phase, r.spent, r.spentNanos, r.end = Committed, tokens, int64(a.Nanos), max(m.now+m.p.Lease.Forget, t.CommitBy)
	return nil
}

func (m *twin) recreate(t *Claims) *record {
	r := &record{request: Request{Lease: t.Lease, Principal: t.Principal, Agent: t.Agent, Task: t.Task, Workflow: t.Workflow, Model: t.Model}, provider: t.Provider, model: t.Model, class: DefaultClass,
		input: int64(t.Input), output: int64(t.Output), nanos: int64(t.Nanos), granted: m.now, startBy: m.now, period: m.period, recreated: true,
		capped: t.Principal != 0 && (m.p.Lease.MaxOpen > 0 || m.p.Lease.MaxHeld > 0)}
	if m.classes[t.Class] {
		r.class = t.Class
	}
	m.all = append(m.all, r)
	m.known[t.Lease] = r
	return r
}

func (m *twin) release(c *Release, got reply) error {
	a := &got.Answer
	if got.Err != nil {
		r := m.owned(c.Lease, c.Principal)
		return expect(got.Err.Code == CodePrecondition && (r != nil && r.phase == Assumed || r == nil && c.Token != nil), "only what is assumed cannot be released")
	}
	r := m.owned(c.Lease, c.Principal)
	if r == nil {
		t := c.Token
		switch {
		case t == nil || m.known[c.Lease] != nil:
			return expect(a.Result == UnknownLease && got.Facts == 0, "an unknown or foreign lease is unknown")
		case m.now >= t.CommitBy:
			return expect(a.Result == TooOld && got.Facts == 0, "after commit_by it is too old")
		case t.Epoch == 1:
			return expect(a.Result == AlreadyCommitted && got.Facts == 0, "ended and forgotten")
		}
		r = m.recreate(t)
		r.phase, r.end = ReleasedPhase, max(m.now+m.p.Lease.CommitBy, t.CommitBy)
		return expect(a.Result == Released, "a lost lease is released")
	}
	switch r.phase {
	case Committed:
		return expect(a.Result == AlreadyCommitted && got.Facts == 0, "committed stays")
	case ReleasedPhase:
		return expect(a.Result == AlreadyReleased && got.Facts == 0, "released stays")
	case Returned:
		return expect(a.Result == Released && got.Facts == 0, "returned stays")
	}
	if a.Result != Released || a.Flags&FlagLate != 0 != (r.phase > Active) {
		return fmt.Errorf("a lease that is %s can be released", r.phase)
	}
	r.phase, r.end = ReleasedPhase, max(m.now, r.end)+r.commitBy
	return nil
}

func (m *twin) extend(c *Extend, got reply) error {
	r := m.owned(c.Lease, c.Principal)
	if r == nil {
		return expect(got.Err != nil && got.Err.Code == CodeNotFound, "an unknown or foreign lease is unknown")
	}
	if r.phase > Active || c.Arrival > r.end {
		return expect(got.Err != nil && got.Err.Code == CodePrecondition, "%s cannot be extended", r.phase)
	}
	end := c.Arrival + m.p.Lease.TTL
	if r.phase == Reserved {
		end = min(c.Arrival+min(m.p.Lease.TTL, m.deferredStart()), r.granted+4*m.p.Lease.TTL)
	} else if m.p.Lease.Max > 0 {
		end = min(end, r.granted+m.p.Lease.Max)
	}
	if r.phase == Reserved && end > r.end {
		r.startBy = max(r.startBy, end)
	}
	r.end = max(r.end, end)
	return expect(got.Err == nil && got.Answer.Result == Extended && got.Answer.Lease.Deadline == r.end, "want an end at %d", r.end)
}

func (m *twin) signal(c *Signal, got reply) error {
	r := m.owned(c.Lease, c.Principal)
	if r == nil {
		return expect(got.Err != nil && got.Err.Code == CodeNotFound, "an unknown or foreign lease is unknown")
	}
	if r.phase > Active {
		return expect(got.Err != nil && got.Err.Code == CodePrecondition && got.Facts == 0, "%s takes no signal", r.phase)
	}
	if c.Activate {
		r.startBy = min(r.startBy, m.now)
		if r.phase == Reserved {
			r.phase, r.end = Active, max(r.end, m.now+m.p.Lease.TTL)
		}
	}
	return expect(got.Err == nil && got.Answer.Result == Signalled, "want it signalled")
}

func (m *twin) revoke(c *Revoke, got reply) error {
	if m.known[c.Lease] == nil {
		return expect(got.Err != nil && got.Err.Code == CodeNotFound, "an unknown lease is unknown")
	}
	tree := map[LeaseID]bool{c.Lease: true}
	for grown := c.Tree; grown; {
		grown = false
		for id, r := range m.known {
			if !tree[id] && tree[r.request.Parent] {
				tree[id], grown = true, true
			}
		}
	}
	n := 0
	for id := range tree {
		switch r := m.known[id]; r.phase {
		case Reserved:
			r.phase, r.end = Returned, max(m.now, r.end)+r.commitBy
			n++
		case Active:
			r.phase = RevokedPhase
			n++
		}
	}
	return expect(got.Err == nil && got.Answer.Revoked == n, "want %d revoked", n)
}
