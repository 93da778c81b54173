package arbiter

// owned finds a lease for a principal. Another principal's lease looks like an unknown one.
func (s *State) owned(id LeaseID, principal uint64, d *Decision) *lease {
	if l, slot := s.findSlot(id); l != nil && l.principal == principal {
		d.slot = slot
		return l
	}
	return nil
}

// maxCount bounds what one row or meter may gather, so that sums of figures up to MaxAmount never wrap.
const maxCount = 1 << 60

// full reports whether the account is so near the end of its counters that the next figure might wrap.
func (a *account) full() bool {
	return a.committedTokens()+a.held.tokens > maxCount || a.committedNanos()+a.held.nanos > maxCount
}

func (s *State) counterFull() *Error {
	return Errorf(CodeResource, "counter_full", "pool %s has counted 2^60 tokens or nano-dollars this period: no counter can hold more", s.pool)
}

func (s *State) decideCommit(c *Commit, d *Decision) *Error {
	if err := c.Usage.Valid(); c.HasUsage && err != nil {
		return Errorf(CodeInvalid, "usage", "usage: every count and their sum %v, reasoning at most output", err)
	}
	if c.HasActual && !validAmount(int64(c.Actual)) {
		return Errorf(CodeInvalid, "actual_tokens", "actual_tokens: %v", ErrAmount)
	}
	if !validAmount(int64(c.Longest)) {
		return Errorf(CodeInvalid, "longest_prompt", "longest_prompt: %v", ErrAmount)
	}
	l := s.owned(c.Lease, c.Principal, d)
	if l == nil {
		if s.balance(s.current(), 0).full() {
			return s.counterFull()
		}
		return s.commitUnknown(c, d)
	}
	if s.balance(s.book(l.period), 0).full() || l.task != 0 && s.balance(nil, l.task).full() || l.workflow != 0 && s.balance(nil, l.workflow).full() {
		return s.counterFull()
	}
	usage, tokens, nanos, flags := s.bill(c, l)
	d.Answer.Lease = s.leaseState(l)
	switch l.phase() {
	case Committed:
		d.Answer.Tokens, d.Answer.Nanos = Tokens(l.spentTokens), Nanos(l.spentNanos)
		d.Answer.Flags = l.flags() & commitFlags
		d.Answer.Result = Conflict
		if int64(tokens) == l.spentTokens {
			d.Answer.Result = AlreadyRecorded
		}
		return nil
	case ReleasedPhase:
		flags |= FlagAfterRelease
		if tokens == 0 || c.Outcome == OutcomeNotSent {
			d.Answer.Flags = flags & commitFlags
			return nil
		}
	case Reserved, Active, RevokedPhase, Held, Assumed:
		if l.phase() > Active {
			flags |= FlagLate
		}
		if tokens > Tokens(l.tokens()) || nanos > Nanos(l.nanos) { // dearer tokens than were held count too
			flags |= FlagOverrun
		}
	case Returned:
		flags |= FlagLate
		if s.wouldOverrun(l, tokens, nanos) {
			flags |= FlagOverrun
		}
	}
	s.commitFacts(c, l, usage, tokens, nanos, flags, d)
	return nil
}

// commitFlags are the flags that a commit answers with.
const commitFlags = FlagLate | FlagAfterRelease | FlagRecreated | FlagEstimated | FlagOverrun

// commitFacts settles a lease and tells its rung how the call went.
func (s *State) commitFacts(c *Commit, l *lease, usage Usage, tokens Tokens, nanos Nanos, flags Flags, d *Decision) {
	f := d.emit(FactCommitted, c.Lease)
	f.slot = d.slot
	f.End = EndFact{
		Usage: usage, Tokens: tokens, Nanos: nanos, Outcome: c.Outcome, Flags: flags, Latency: c.Latency, KeepWindow: c.Outcome != OutcomeNotSent || tokens > 0,
		Forget: s.now + s.rules.policy.Lease.Forget,
	}
	if l.flags()&FlagRecreated != 0 { // its token would bring it back once more
		f.End.Forget = max(f.End.Forget, l.deadline)
	}
	outcome := c.Outcome
	if outcome == OutcomeUnset && tokens > 0 && flags&FlagEstimated == 0 {
		outcome = OutcomeOK // a client that tells no outcome but what was used: the provider answered
	}
	s.signalled(l, outcome, &c.Signal, d)
	s.unheard(l, outcome, d)
	d.Answer.Result, d.Answer.Tokens, d.Answer.Nanos, d.Answer.Flags = Recorded, tokens, nanos, flags&commitFlags
}

// wouldOverrun reports whether spend that comes after its hold was given back passes a limit.
func (s *State) wouldOverrun(l *lease, tokens Tokens, nanos Nanos) bool {
	b, p := s.book(l.period), s.path(l)
	for _, row := range p.rows[:p.n] {
		limit, a := &s.nodes.at(row).limit, s.balance(b, row)
		if limit.Tokens != Unlimited && a.committedTokens()+a.held.tokens+int64(tokens) > int64(limit.Tokens) ||
			limit.Nanos != Unlimited && a.committedNanos()+a.held.nanos+int64(nanos) > int64(limit.Nanos) {
			return true
		}
	}
	return false
}

// commitUnknown answers a commit whose lease is not in the table (the row "none" of the table of lease life).
func (s *State) commitUnknown(c *Commit, d *Decision) *Error {
	t := c.Token
	if t == nil || t.Lease != c.Lease || t.Principal != c.Principal || s.find(c.Lease) != nil {
		d.Answer.Result = UnknownLease
		return nil
	}
	if s.now >= t.CommitBy { // the lease was forgotten at this instant: nothing tells a first commit from a second
		tokens := c.Actual
		if c.HasUsage {
			tokens = c.Usage.Total()
		} else if !c.HasActual {
			tokens = t.Input + t.Output
		}
		nanos := Nanos(mulDivUp(int64(t.Nanos), int64(tokens), max(int64(t.Input+t.Output), 1)))
		if !s.unattributed.has(c.Lease) {
			d.fact(Fact{Kind: FactUnattributed, Lease: c.Lease, End: EndFact{Tokens: tokens, Nanos: min(nanos, MaxAmount)}})
		}
		d.Answer.Result, d.Answer.Tokens, d.Answer.Nanos = TooOld, tokens, min(nanos, MaxAmount)
		return nil
	}
	if s.survived(t.Epoch, t.Seq) {
		d.Answer.Result = AlreadyRecorded
		return nil
	}
	l, err := s.recreate(t, d)
	if err != nil {
		return err
	}
	usage, tokens, nanos, flags := s.bill(c, l)
	end := len(d.Facts)
	s.commitFacts(c, l, usage, tokens, nanos, flags|FlagRecreated, d)
	// Its token stays good until then and would bring it back once more.
	d.Facts[end].End.Forget = max(d.Facts[end].End.Forget, t.CommitBy)
	return nil
}

// recreate emits the facts that bring a lost lease back from its token and returns it as it will be.
func (s *State) recreate(t *Claims, d *Decision) (*lease, *Error) {
	provider, ok := s.row(KindProvider, 0, t.Provider)
	if !ok {
		return nil, Errorf(CodePrecondition, "unknown_provider", "the lease's provider %q is not in the policy of pool %s", t.Provider, s.pool)
	}
	model, ok := s.row(KindModel, provider, t.Model)
	if !ok {
		return nil, Errorf(CodePrecondition, "unknown_model", "the lease's model %q is not in the policy of pool %s", t.Model, s.pool)
	}
	class, ok := s.row(KindClass, 0, t.Class)
	if !ok {
		class, _ = s.row(KindClass, 0, DefaultClass)
	}
	q := request{Request: &Request{Agent: t.Agent, Task: t.Task, Workflow: t.Workflow, Principal: t.Principal}}
	q.class = &s.rules.classes[s.rules.classByRow[class]]
	if err := s.findRows(&q, d); err != nil {
		return nil, err
	}
	s.addRows(&q, d)
	period := t.Period
	if s.book(period) == nil {
		period = s.current().number
	}
	g := GrantFact{
		Principal: t.Principal, Agent: q.rows.agent, Class: class, Task: q.rows.task, Workflow: q.rows.workflow, Model: model, Credential: q.rows.credential,
		Priority: t.Priority, Flags: FlagRecreated, Input: t.Input, Output: t.Output, Nanos: t.Nanos, Charge: t.Input + t.Output,
		Period: period, StartBy: s.now, Deadline: s.now + s.rules.policy.Lease.CommitBy,
		CommitBy: max(t.CommitBy-t.Deadline, 0),
	}
	rung := s.nodes.at(model).rung
	d.fact(Fact{Kind: FactGranted, Lease: t.Lease, Rung: rung, Grant: g})
	return &lease{id: t.Lease, model: model, rung: rung, period: period, input: int64(t.Input), output: int64(t.Output), nanos: int64(t.Nanos), granted: s.now}, nil
}

func (s *State) decideRelease(c *Release, d *Decision) *Error {
	l := s.owned(c.Lease, c.Principal, d)
	rules := &s.rules.policy.Lease
	if l == nil {
		t := c.Token
		switch {
		case t == nil || t.Lease != c.Lease || t.Principal != c.Principal || s.find(c.Lease) != nil:
			d.Answer.Result = UnknownLease
		case s.now >= t.CommitBy:
			d.Answer.Result = TooOld
		case s.survived(t.Epoch, t.Seq):
			d.Answer.Result = AlreadyCommitted
		default:
			if _, err := s.recreate(t, d); err != nil {
				return err
			}
			d.fact(Fact{Kind: FactReleased, Lease: c.Lease, End: EndFact{Outcome: c.Outcome, KeepWindow: true, Forget: max(s.now+rules.CommitBy, t.CommitBy)}})
			d.Answer.Result, d.Answer.Flags = Released, FlagRecreated
		}
		return nil
	}
	d.Answer.Lease = s.leaseState(l)
	var flags Flags
	switch l.phase() {
	case Committed:
		d.Answer.Result = AlreadyCommitted
		d.Answer.Tokens, d.Answer.Nanos = Tokens(l.spentTokens), Nanos(l.spentNanos)
		return nil
	case ReleasedPhase:
		d.Answer.Result = AlreadyReleased
		return nil
	case Assumed: // only an operator may say that nothing was used
		return Errorf(CodePrecondition, "lease_assumed", "the lease ended without a word and counts as spent: commit what was used, or ask an operator to release it")
	case Returned:
		d.Answer.Result = Released
		return nil
	case Held, RevokedPhase:
		flags |= FlagLate
	}
	if c.Void {
		flags |= FlagVoid
	}
	d.fact(Fact{Kind: FactReleased, Lease: c.Lease, End: EndFact{
		Outcome: c.Outcome, Flags: flags, KeepWindow: c.Outcome != OutcomeNotSent && l.phase() != Reserved,
		Forget: max(s.now, l.deadline) + l.commitBy, // as long as a bill may come
	}})
	s.signalled(l, c.Outcome, &c.Signal, d)
	s.unheard(l, c.Outcome, d)
	d.Answer.Result, d.Answer.Flags = Released, flags
	if c.Outcome == OutcomeThrottled || c.Outcome == OutcomeExhausted { // an earlier, longer wait stands
		rung := s.rungs.at(l.rung)
		d.Answer.RetryAfter = max(s.holdFor(c.Outcome, &c.Signal), rung.heldUntil()-s.now, rung.exhausted-s.now)
	}
	return nil
}

func (s *State) decideExtend(c *Extend, d *Decision) *Error {
	l := s.owned(c.Lease, c.Principal, d)
	if l == nil {
		return Errorf(CodeNotFound, "unknown_lease", "no such lease: it was never granted, has been forgotten, or belongs to another credential")
	}
	d.Answer.Lease = s.leaseState(l)
	rung := s.rungs.at(l.rung)
	ttl := s.ttl(rung)
	var end int64
	switch l.phase() {
	case Reserved: // a call that has not begun must begin in time: the end is a new start_by, and windows look no further ahead
		end = min(c.Arrival+min(ttl, s.rules.policy.Lease.deferredStart()), l.granted+4*ttl)
	case Active:
		end = c.Arrival + ttl
		if m := s.rules.policy.Lease.Max; m > 0 {
			end = min(end, l.granted+m)
		}
	default:
		return endedError(l)
	}
	if c.Arrival > l.deadline {
		return endedError(l)
	}
	d.Answer.Result = Extended
	if end > l.deadline {
		d.fact(Fact{Kind: FactExtended, Lease: c.Lease, At: end})
		d.Answer.Lease.Deadline = end
		d.Answer.Lease.CommitBy = end + l.commitBy
		if l.phase() == Reserved {
			d.Answer.Lease.StartBy = end
		}
	}
	return nil
}

func endedError(l *lease) *Error {
	switch l.phase() {
	case Committed, ReleasedPhase:
		return Errorf(CodePrecondition, "lease_resolved", "the lease is %s already", l.phase())
	case RevokedPhase:
		return Errorf(CodePrecondition, "lease_revoked", "the lease was revoked: stop the call and commit what it used")
	}
	return Errorf(CodePrecondition, "lease_expired", "the lease has ended: commit what was used, then ask for a new one")
}

func (s *State) decideSignal(c *Signal, d *Decision) *Error {
	l := s.owned(c.Lease, c.Principal, d)
	if l == nil {
		return Errorf(CodeNotFound, "unknown_lease", "no such lease: it was never granted, has been forgotten, or belongs to another credential")
	}
	d.Answer.Lease = s.leaseState(l)
	switch l.phase() {
	case Reserved:
		if c.Activate && s.now > l.startBy {
			return Errorf(CodePrecondition, "lease_expired", "the call should have begun by start_by: ask for a new lease")
		}
		if c.Activate {
			end := max(l.deadline, s.now+s.ttl(s.rungs.at(l.rung)))
			d.fact(Fact{Kind: FactActivated, Lease: c.Lease, At: s.now, End: EndFact{Forget: end}})
			d.Answer.Lease.Phase, d.Answer.Lease.Deadline, d.Answer.Lease.StartBy = Active, end, s.now
		}
	case Active:
		if c.Activate && l.startBy > s.now {
			d.fact(Fact{Kind: FactActivated, Lease: c.Lease, At: s.now, End: EndFact{Forget: l.deadline}})
		}
	default:
		return endedError(l)
	}
	outcome := c.Outcome
	if c.FirstByte && outcome == OutcomeUnset {
		outcome = OutcomeOK
	}
	s.signalled(l, outcome, &c.Signal, d)
	d.Answer.Result = Signalled
	return nil
}

// signalled tells a rung's health how a call went: a 429 is an instruction to wait, never a failure.
func (s *State) signalled(l *lease, o Outcome, sig *ProviderSignal, d *Decision) {
	switch o {
	case OutcomeOK:
		s.verdict(l.rung, l, true, d)
	case OutcomeError, OutcomeTimeout, OutcomeOverloaded:
		s.verdict(l.rung, l, false, d)
	case OutcomeThrottled, OutcomeExhausted:
		until := s.now + s.holdFor(o, sig)
		h := HealthFact{Dim: sig.Dim, Exhausted: o == OutcomeExhausted}
		for _, number := range s.throttledWith(l.rung, o, sig) {
			if h.Factor = 0; !h.Exhausted {
				h.Factor = s.cutFor(number, l)
			}
			d.fact(Fact{Kind: FactThrottled, Rung: number, Lease: l.id, At: until, Health: h})
		}
		s.slowRamp(l, d)
		s.verdict(l.rung, l, true, d) // it answered: healthy
	}
}

// unheard gives the permit of a probe back that ended with an outcome that says nothing about the provider.
func (s *State) unheard(l *lease, o Outcome, d *Decision) {
	if (o == OutcomeUnset || o == OutcomeCancelled || o == OutcomeNotSent) && s.probing(l) {
		d.fact(Fact{Kind: FactBreakerMoved, Rung: l.rung, Lease: l.id, Health: s.unprobed(l)})
	}
}

// throttledWith is the rungs that a throttle holds: all of the provider when the ceiling is the provider's, and when its account is used up
// or its key refused, because every model of it would answer alike. A 403 may be about one model, and a signal may say that it is about one.
func (s *State) throttledWith(number uint32, o Outcome, sig *ProviderSignal) []uint32 {
	r := s.rules.rungs[number]
	if r == nil {
		return []uint32{number}
	}
	if sig.ModelOnly {
		return []uint32{number}
	}
	all := s.rules.providers[r.provider].rungs
	if o == OutcomeExhausted && sig.Dim == DimNone && sig.Status != 403 {
		return all
	}
	for i := range r.gauges {
		if g := &r.gauges[i]; g.dim == sig.Dim && sig.Dim != DimNone && g.kind == KindProvider {
			return all
		}
	}
	return []uint32{number}
}

// holdFor is how long a provider asked to wait; a second when it did not say, an hour when its account is used up.
func (s *State) holdFor(o Outcome, sig *ProviderSignal) int64 {
	if sig.RetryAfter > 0 {
		return min(sig.RetryAfter, maxHold)
	}
	if o == OutcomeExhausted {
		return exhaustedHold
	}
	return defaultHold
}

// maxRevoked bounds the leases that one Revoke tells to stop, so that its facts fit one journal entry.
const maxRevoked = 1024

func (s *State) decideRevoke(c *Revoke, d *Decision) *Error {
	l, root := s.findSlot(c.Lease)
	if l == nil {
		return Errorf(CodeNotFound, "unknown_lease", "no such lease: it was never granted or has been forgotten")
	}
	s.revoke(l, root, d)
	if c.Tree {
		tree := kinship{state: s, known: make([]kin, s.leases.n)}
		tree.known[root] = inTree
		for slot := range s.leases.n {
			if l := s.leases.at(slot); l.phase() != Reserved && l.phase() != Active || slot == root || !tree.has(slot) {
				continue
			}
			if d.Answer.Revoked == maxRevoked {
				d.Answer.More = true
				break
			}
			s.revoke(s.leases.at(slot), slot, d)
		}
	}
	d.Answer.Lease = s.leaseState(l)
	return nil
}

// revoke emits the fact for a lease that can still be told to stop.
func (s *State) revoke(l *lease, slot uint32, d *Decision) {
	if l.phase() != Reserved && l.phase() != Active {
		return
	}
	d.fact(Fact{Kind: FactRevoked, Lease: l.id, slot: slot, End: EndFact{Forget: max(s.now, l.deadline) + l.commitBy}})
	d.Answer.Revoked++
}

// kinship finds which leases descend from one: each lease is asked for its parent at most once. Parents are named by callers: they
// may be unknown or form a ring.
type kinship struct {
	state *State
	known []kin // by slot
	walk  []uint32
}

type kin uint8

const (
	kinUnknown kin = iota
	inTree
	outside // or on the present walk, which then is a ring
)

func (k *kinship) has(slot uint32) bool {
	k.walk = k.walk[:0]
	for k.known[slot] == kinUnknown {
		k.known[slot] = outside
		k.walk = append(k.walk, slot)
		parent, ok := k.state.leaseIndex.get(&k.state.leases, k.state.leases.at(slot).parent)
		if !ok {
			break
		}
		slot = parent
	}
	for _, w := range k.walk {
		k.known[w] = k.known[slot]
	}
	return k.known[slot] == inTree
}
