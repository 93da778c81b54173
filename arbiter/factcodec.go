package arbiter

// AppendFact appends the journal form of a fact. Kind travels in the journal's frame; strings go through intern, which gives each
// its number in the entry's string table.
func AppendFact(dst []byte, f *Fact, intern func(string) uint32) []byte {
	w := writer{dst}
	switch f.Kind {
	case FactNodeAdded:
		w.uint(uint64(f.Node))
		w.uint(uint64(f.NodeKind))
		w.uint(uint64(f.Parent))
		w.uint(uint64(intern(f.Name)))
	case FactNodeDropped:
		w.uint(uint64(f.Node))
	case FactGranted:
		w.id(f.Lease)
		w.uint(uint64(f.Rung))
		w.grant(&f.Grant)
	case FactActivated:
		w.id(f.Lease)
		w.int(f.At)
		w.int(f.End.Forget)
	case FactExtended:
		w.id(f.Lease)
		w.int(f.At)
	case FactCommitted, FactReleased, FactRevoked, FactUnattributed:
		w.id(f.Lease)
		w.end(&f.End)
	case FactThrottled, FactBreakerMoved:
		w.id(f.Lease)
		w.uint(uint64(f.Rung))
		w.int(f.At)
		w.health(&f.Health)
	case FactPolicyAdopted:
		w.uint(f.Version)
		w.b = append(w.b, f.Hash[:]...)
		w.period(f.Period)
		w.bytes(f.Policy)
	case FactPeriodRolled:
		w.period(f.Period)
	case FactDayRolled:
		w.uint(uint64(f.Node))
		w.period(f.Period)
	case FactPeriodFinal:
		w.uint(uint64(f.Number))
	}
	return w.b
}

func (w *writer) period(p Period) {
	w.int(p.Start)
	w.int(p.End)
}

func (w *writer) grant(g *GrantFact) {
	w.fixed(g.Fingerprint)
	w.fixed(g.Principal)
	for _, row := range [...]uint32{g.Agent, g.Class, g.Task, g.Workflow, g.Model, g.Credential, g.Period, g.ShadowNode} {
		w.uint(uint64(row))
	}
	w.uint(uint64(g.Priority))
	w.uint(uint64(g.Flags))
	w.uint(uint64(g.Shadow))
	w.uint(uint64(g.ShadowUnit))
	for _, n := range [...]int64{int64(g.Input), int64(g.Output), int64(g.Nanos), int64(g.Charge), g.StartBy, g.Deadline, g.CommitBy} {
		w.int(n)
	}
	w.bool(g.Reserved)
	if w.bool(g.Parent != LeaseID{}); g.Parent != (LeaseID{}) {
		w.id(g.Parent)
	}
	if g.Uncached != 0 { // facts of before have no such field
		w.uint(uint64(g.Uncached))
	}
}

func (w *writer) end(e *EndFact) {
	w.usage(&e.Usage)
	w.int(int64(e.Tokens))
	w.int(int64(e.Nanos))
	w.uint(uint64(e.Outcome))
	w.uint(uint64(e.Flags))
	w.int(e.Latency)
	w.bool(e.KeepWindow)
	w.int(e.Forget)
}

func (w *writer) usage(u *Usage) {
	for _, n := range [...]Tokens{u.Input, u.CacheRead, u.CacheWrite, u.CacheWriteLong, u.Output, u.Reasoning} {
		w.int(int64(n))
	}
}

func (w *writer) health(h *HealthFact) {
	w.uint(uint64(h.State))
	w.int(h.Failures)
	w.int(h.Until)
	w.int(h.Epoch)
	w.id(h.Probe)
	w.uint(uint64(h.Dim))
	w.bool(h.Exhausted)
	if h.Ramp != 0 || h.Factor != 0 { // facts of before have no such fields
		w.uint(uint64(h.Ramp))
		w.uint(uint64(h.Factor))
	}
}

// DecodeFact reads what AppendFact wrote into f. lookup gives the string with a number in the entry's table. It fails with ErrCorrupt;
// f is then undefined. An unknown kind fails too: every kind is critical.
func DecodeFact(kind FactKind, payload []byte, lookup func(uint32) (string, bool), f *Fact) error {
	r := reader{b: payload}
	*f = Fact{Kind: kind}
	name := func() {
		s, ok := lookup(r.number())
		if !ok {
			r.fail()
		}
		f.Name = s
	}
	switch kind {
	case FactNodeAdded:
		f.Node, f.NodeKind, f.Parent = r.number(), NodeKind(r.small(uint64(kindCount)-1)), r.number()
		name()
	case FactNodeDropped:
		f.Node = r.number()
	case FactGranted:
		f.Lease, f.Rung = r.id(), r.number()
		r.grant(&f.Grant)
	case FactActivated:
		f.Lease, f.At, f.End.Forget = r.id(), r.int(), r.int()
	case FactExtended:
		f.Lease, f.At = r.id(), r.int()
	case FactCommitted, FactReleased, FactRevoked, FactUnattributed:
		f.Lease = r.id()
		r.end(&f.End)
	case FactThrottled, FactBreakerMoved:
		f.Lease, f.Rung, f.At = r.id(), r.number(), r.int()
		r.health(&f.Health)
	case FactPolicyAdopted:
		f.Version = r.uint()
		copy(f.Hash[:], r.take(32))
		f.Period = r.period()
		f.Policy = append([]byte(nil), r.bytes()...)
	case FactPeriodRolled:
		f.Period = r.period()
	case FactDayRolled:
		f.Node, f.Period = r.number(), r.period()
	case FactPeriodFinal:
		f.Number = r.number()
	default:
		return ErrCorrupt
	}
	return r.done()
}

// small reads a number of a closed set, at most most.
func (r *reader) small(most uint64) uint64 {
	n := r.uint()
	if n > most {
		r.fail()
		return 0
	}
	return n
}

func (r *reader) period() Period {
	start := r.int()
	return Period{start, r.int()}
}

func (r *reader) grant(g *GrantFact) {
	g.Fingerprint, g.Principal = r.fixed(), r.fixed()
	for _, row := range [...]*uint32{&g.Agent, &g.Class, &g.Task, &g.Workflow, &g.Model, &g.Credential, &g.Period, &g.ShadowNode} {
		*row = r.number()
	}
	g.Priority, g.Flags, g.Shadow = Priority(r.small(uint64(Critical))), Flags(r.small(1<<16-1)), Reason(r.small(uint64(reasonCount)-1))
	g.ShadowUnit = Unit(r.small(uint64(UnitRequests)))
	for _, n := range [...]*int64{(*int64)(&g.Input), (*int64)(&g.Output), (*int64)(&g.Nanos), (*int64)(&g.Charge), &g.StartBy, &g.Deadline, &g.CommitBy} {
		*n = r.int()
	}
	g.Reserved = r.bool()
	if r.bool() {
		g.Parent = r.id()
	}
	if len(r.b) > 0 {
		if g.Uncached = PPM(r.small(uint64(Whole + 1))); g.Uncached == 0 {
			r.fail()
		}
	}
}

func (r *reader) end(e *EndFact) {
	r.usage(&e.Usage)
	e.Tokens, e.Nanos = Tokens(r.int()), Nanos(r.int())
	e.Outcome, e.Flags = Outcome(r.small(uint64(OutcomeNotSent))), Flags(r.small(1<<16-1))
	e.Latency, e.KeepWindow, e.Forget = r.int(), r.bool(), r.int()
}

func (r *reader) usage(u *Usage) {
	for _, n := range [...]*Tokens{&u.Input, &u.CacheRead, &u.CacheWrite, &u.CacheWriteLong, &u.Output, &u.Reasoning} {
		*n = Tokens(r.int())
	}
}

func (r *reader) health(h *HealthFact) {
	h.State, h.Failures, h.Until, h.Epoch = BreakerState(r.small(uint64(BreakerProbing))), r.int(), r.int(), r.int()
	h.Probe, h.Dim, h.Exhausted = r.id(), Dim(r.small(uint64(dimCount)-1)), r.bool()
	if len(r.b) > 0 {
		if h.Ramp, h.Factor = PPM(r.small(uint64(Whole))), PPM(r.small(uint64(Whole))); h.Ramp == 0 && h.Factor == 0 {
			r.fail()
		}
	}
}
