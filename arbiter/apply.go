package arbiter

import "fmt"

// ApplyEntry does what a follower does with one journal entry: facts that were decided before the entry's time come first
// (extensions that arrived before a lease's end), then time advances, then the rest.
func (s *State) ApplyEntry(t Time, facts []Fact) {
	i := 0
	for i < len(facts) && facts[i].Kind == FactExtended {
		s.Apply(&facts[i])
		i++
	}
	s.Advance(t)
	for ; i < len(facts); i++ {
		s.Apply(&facts[i])
	}
}

// Apply makes a fact true. It is arithmetic on the fact's own numbers. It panics when the fact contradicts the state: that is a
// broken invariant, never bad input.
func (s *State) Apply(f *Fact) {
	switch f.Kind {
	case FactNodeAdded:
		if row := s.addRow(f.NodeKind, f.Parent, f.Name); row != f.Node {
			panic(fmt.Sprintf("arbiter: row %s %q got number %d, decided as %d", f.NodeKind, f.Name, row, f.Node))
		}
	case FactNodeDropped:
		s.dropRow(f.Node)
	case FactGranted:
		s.applyGrant(f)
	case FactActivated:
		l, slot := s.must(f)
		s.restart(l, f.At)
		s.enter(l, Active, FlagStarted)
		s.dueAt(slot, l, f.End.Forget)
	case FactExtended:
		l, slot := s.must(f)
		if l.phase() == Reserved && f.At > l.startBy { // it may begin until then: its window entry goes along
			s.redate(l, f.At)
		}
		s.dueAt(slot, l, f.At)
	case FactCommitted:
		s.applyCommit(f)
	case FactReleased:
		s.applyRelease(f)
	case FactRevoked:
		s.applyRevoke(f)
	case FactThrottled:
		r := s.rungs.at(f.Rung)
		hold := &r.holds[f.Health.Dim]
		if f.Health.Exhausted {
			hold = &r.exhausted
		}
		s.set(hold, max(*hold, f.At)) // a later, shorter hint never shortens a longer one
		if f.Health.Factor > 0 {
			s.set(&r.cut, int64(Whole-f.Health.Factor))
			s.set(&r.cutAt, s.now)
		}
		s.throttleEvent(f, *hold)
	case FactBreakerMoved:
		s.moveBreaker(f.Rung, f.Lease, f.Health)
	case FactPolicyAdopted:
		s.applyPolicy(f)
	case FactPeriodRolled:
		s.applyRoll(f.Period)
	case FactDayRolled:
		m := s.meters.at(f.Node)
		s.set(&m.sum, 0)
		s.set(&m.resets, f.Period.End)
		s.set(&m.rolled, s.now)
	case FactPeriodFinal:
		s.applyFinal(f.Number)
	case FactUnattributed:
		s.applyUnattributed(f)
	default:
		panic(fmt.Sprintf("arbiter: unknown fact kind %d", f.Kind))
	}
}

// must finds the lease of a fact: by the slot that Decide saw, or by its id where the fact came from the journal.
func (s *State) must(f *Fact) (*lease, uint32) {
	if f.slot < s.leases.n {
		if l := s.leases.at(f.slot); l.id == f.Lease {
			return l, f.slot
		}
	}
	slot, ok := s.leaseIndex.get(&s.leases, f.Lease)
	if !ok {
		panic(fmt.Sprintf("arbiter: fact %d about unknown lease %x", f.Kind, f.Lease))
	}
	return s.leases.at(slot), slot
}

func (s *State) applyGrant(f *Fact) {
	g := &f.Grant
	l, slot := s.newLease(f.Lease)
	phase := Active
	if g.Reserved {
		phase = Reserved
	}
	flags := g.Flags
	if g.StartBy <= s.now {
		flags |= FlagStarted
	}
	*l = lease{
		id: f.Lease, parent: g.Parent, fingerprint: g.Fingerprint, principal: g.Principal,
		agent: g.Agent, class: g.Class, task: g.Task, workflow: g.Workflow, model: g.Model, credential: g.Credential,
		rung: f.Rung, period: g.Period, adopted: uint32(s.adoptions),
		input: int64(g.Input), output: int64(g.Output), nanos: int64(g.Nanos), charged: int64(g.Charge),
		word: int64(g.Uncached)<<partShift | pack(phase, g.Priority, flags), granted: s.now, startBy: g.StartBy, deadline: g.Deadline, commitBy: g.CommitBy, wake: g.Deadline,
	}
	s.ends.add(endEntry{l.wake, slot})
	s.add(&s.live[phase], 1)

	b := s.book(g.Period)
	s.add(&b.leases, 1)
	held := amounts{l.tokens(), l.nanos}
	p := s.path(l)
	for i := range p.n {
		n, a := s.nodes.at(p.rows[i]), s.pathAccount(&p, i, b)
		s.keepTally(&n.tally)
		s.keepAccount(a)
		n.refs++
		n.open++
		a.held.add(held)
		a.calls++
	}
	if g.Shadow != ReasonNone {
		s.countShadow(g, b, held)
	}
	if r := s.rules.rungs[f.Rung]; r != nil {
		s.chargeGauges(r, l)
	}
	if i, ok := s.rules.classByRow[g.Class]; ok {
		c := &s.rules.classes[i]
		s.chargeAt(s.meters.at(c.meters[0]), g.StartBy, 1)
		s.chargeAt(s.meters.at(c.meters[1]), g.StartBy, max(1, l.charged))
		s.spendVirtual(c, max(1, l.charged))
	}
}

// countShadow counts a lease that a shadowed limit would have refused: on the budget, in its unit, or on the rung.
func (s *State) countShadow(g *GrantFact, b *book, held amounts) {
	if g.Shadow != ReasonBudget {
		dim := DimNone
		if g.Shadow <= ReasonSlots {
			dim = Dim(g.Shadow)
		}
		s.add(&s.rungs.at(s.nodes.at(g.ShadowNode).rung).shadowed[dim], 1)
		return
	}
	a := s.account(b, g.ShadowNode)
	s.keepAccount(a)
	if g.ShadowUnit == UnitNanos {
		a.shadow.nanos += held.nanos
		a.shadowCalls.nanos++
	} else {
		a.shadow.tokens += held.tokens
		a.shadowCalls.tokens++
	}
}

// applyCommit settles a lease from whatever phase it is in: the bill is stronger than a promise.
func (s *State) applyCommit(f *Fact) {
	l, slot := s.must(f)
	e := &f.End
	used := counted{input: int64(e.Usage.InputTotal()), output: int64(e.Usage.Output)}
	exact := e.Flags&FlagExact != 0
	if used.fresh = used.input - int64(e.Usage.CacheRead); !exact && l.input > 0 { // the figure says nothing of caches
		used.fresh = mulDivUp(used.input, l.fresh(), l.input)
	}
	s.closeWindows(l, e, used)
	s.leave(l, amounts{int64(e.Tokens), int64(e.Nanos)}, amounts{})
	s.enter(l, Committed, e.Flags)
	s.dueAt(slot, l, e.Forget)
	if e.Outcome == OutcomeOK || e.Outcome == OutcomeUnset {
		s.observe(&s.rungs.at(l.rung).latency, e.Latency)
		s.regrow(s.rungs.at(l.rung), l)
	}
	if exact {
		s.learnFresh(s.rungs.at(l.rung), &e.Usage)
	}
	if e.Flags&FlagOverrun != 0 {
		s.leaseEvent(EventOverrun, l, s.now)
	}
}

// closeWindows settles what a running call counts on its ceilings: what it used, or nothing when it was never sent.
func (s *State) closeWindows(l *lease, e *EndFact, used counted) {
	switch {
	case !l.phase().running():
	case e.KeepWindow:
		s.restart(l, min(l.startBy, s.now))
		s.settleGauges(l, used, e.Flags&FlagExact != 0)
	default:
		s.unsend(l)
	}
}

func (s *State) applyRelease(f *Fact) {
	l, slot := s.must(f)
	e := &f.End
	s.closeWindows(l, e, l.counted())
	s.leave(l, amounts{}, amounts{})
	s.enter(l, ReleasedPhase, e.Flags)
	s.dueAt(slot, l, e.Forget)
}

func (s *State) applyRevoke(f *Fact) {
	l, slot := s.must(f)
	if l.phase() == Reserved {
		s.unsend(l)
		s.leave(l, amounts{}, amounts{})
		s.enter(l, Returned, 0)
		s.neverProbed(l)
		s.dueAt(slot, l, f.End.Forget)
	} else {
		s.enter(l, RevokedPhase, 0)
	}
	s.leaseEvent(EventLeaseRevoked, l, s.now)
}

// neverProbed gives the permit of a probe back whose call never began, however late that is seen.
func (s *State) neverProbed(l *lease) {
	if b := &s.rungs.at(l.rung).breaker; BreakerState(b.state) == BreakerProbing && b.probe() == l.id {
		s.moveBreaker(l.rung, l.id, s.unprobed(l))
	}
}

func (s *State) applyUnattributed(f *Fact) {
	u := &s.unattributed
	if u.ids == nil {
		u.ids = new([rememberedLate][2]int64)
	}
	place := &u.ids[u.calls%rememberedLate]
	low, high := splitID(f.Lease)
	s.set(&place[0], low)
	s.set(&place[1], high)
	s.add(&u.calls, 1)
	s.set(&u.tokens, min(u.tokens+int64(f.End.Tokens), maxCount))
	s.set(&u.nanos, min(u.nanos+int64(f.End.Nanos), maxCount))
	s.event(Event{Kind: EventUnattributed, Lease: f.Lease, Tokens: f.End.Tokens, Nanos: f.End.Nanos})
}

// moveBreaker brings a rung's breaker where a fact, or an end that time brought, says.
func (s *State) moveBreaker(rung uint32, lease LeaseID, h HealthFact) {
	r := s.rungs.at(rung)
	b := &r.breaker
	low, high := splitID(h.Probe)
	s.set(&b.probeLow, low)
	s.set(&b.probeHigh, high)
	moved := BreakerState(b.state) != h.State
	if closed := BreakerState(b.state) == BreakerClosed; closed && h.State != BreakerClosed {
		s.add(&s.shut, 1)
	} else if !closed && h.State == BreakerClosed {
		s.add(&s.shut, -1)
	}
	s.set(&b.state, int64(h.State))
	s.set(&b.failures, h.Failures)
	s.set(&b.until, h.Until)
	s.set(&b.epoch, h.Epoch)
	switch {
	case h.Ramp > 0:
		s.startRamp(r, h.Ramp, moved)
	case moved && r.ramp.part != 0:
		s.set(&r.ramp.part, 0)
	}
	if moved {
		s.set(&b.moved, s.now)
		s.rungEvent(EventBreaker, rung, Event{Lease: lease, State: h.State, Until: h.Until})
	}
}

func (s *State) applyPolicy(f *Fact) {
	p, err := DecodePolicy(f.Policy)
	if err == nil {
		err = p.Validate()
	}
	if err != nil {
		panic(fmt.Sprintf("arbiter: adopted policy %d: %v", f.Version, err))
	}
	s.adopt(p, f.Policy, f.Hash)
	if s.current() == nil {
		s.applyRoll(f.Period)
	} else if f.Period != (Period{}) {
		c := s.current()
		s.set(&c.period.Start, f.Period.Start)
		s.set(&c.period.End, f.Period.End)
	}
	s.event(Event{Kind: EventPolicy, Version: f.Version})
}

// applyRoll closes the open period, if any, and opens the next. Leases of the old one settle there.
func (s *State) applyRoll(p Period) {
	b := &book{number: 1, period: p}
	if c := s.current(); c != nil {
		b.number = c.number + 1
		a := c.at(0)
		s.event(Event{Kind: EventPeriodClosed, Period: c.number, Tokens: Tokens(a.committedTokens()), Nanos: Nanos(a.committedNanos())})
	}
	s.books = append(s.books, b)
	s.note(undoBookNew, 0, 0)
}

func (s *State) applyFinal(number uint32) {
	for i, b := range s.books {
		if b.number == number {
			a := b.at(0)
			s.event(Event{Kind: EventPeriodFinal, Period: number, Tokens: Tokens(a.committedTokens()), Nanos: Nanos(a.committedNanos())})
			if s.undo.on {
				s.undo.savedBooks = append(s.undo.savedBooks, b)
			}
			s.note(undoBookGone, uint32(i), 0)
			s.books = append(s.books[:i:i], s.books[i+1:]...)
			return
		}
	}
}

// spendVirtual moves a class's virtual time by the larger part of capacity that a grant takes, over its share. A class that was
// idle starts at the smallest time of the active ones, so that it neither owes nor has saved anything.
func (s *State) spendVirtual(c *classRules, charge int64) {
	if len(s.rules.classes) < 2 {
		return
	}
	n := s.nodes.at(c.row)
	v := n.virtual
	if n.open <= 1 { // this grant is its only open one
		if least, ok := s.leastVirtual(c.row); ok {
			v = max(v, least)
		}
	}
	cost := s.rules.perCall
	if s.rules.tokens > 0 {
		cost = max(cost, min(ratio(charge, s.rules.tokens), Whole))
	}
	s.keepTally(&n.tally)
	n.virtual = v + mulDiv(int64(cost), int64(Whole), int64(max(c.Share, minShare)))
}

// minShare is the weight of a class without a share among the borrowers.
const minShare PPM = 1000

func (s *State) leastVirtual(except uint32) (least int64, ok bool) {
	for i := range s.rules.classes {
		c := &s.rules.classes[i]
		if n := s.nodes.at(c.row); c.row != except && n.open > 0 && (!ok || n.virtual < least) {
			least, ok = n.virtual, true
		}
	}
	return least, ok
}
