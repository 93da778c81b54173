package arbiter

// lease is one record of the lease table: 192 bytes. Strings live in budget rows.
type lease struct {
	id                     LeaseID
	parent                 LeaseID
	fingerprint, principal uint64
	// rows; 0 is none, except that row 0 is also the global budget, which is always on the path.
	agent, class, task, workflow, model, credential uint32
	rung, period, adopted                           uint32
	// input, output and nanos are what the lease holds while it lives; charged is what token windows counted for it.
	input, output, nanos, charged int64
	// word holds phase, priority and flags (see pack), and above them what part of its prompt is not cached (see fresh).
	word                       int64
	granted, startBy, deadline int64
	// commitBy is how long after its end a bill counts, as promised at the grant: a reload changes it for later leases only.
	commitBy int64
	// wake is the time of the lease's entry in the wheel; not part of the canonical state.
	wake int64
	// spentTokens and spentNanos are what was committed or assumed.
	spentTokens, spentNanos int64
}

func pack(p Phase, pr Priority, f Flags) int64 { return int64(p) | int64(pr)<<8 | int64(f)<<16 }

func (l *lease) phase() Phase       { return Phase(l.word) }
func (l *lease) priority() Priority { return Priority(l.word >> 8) }
func (l *lease) flags() Flags       { return Flags(l.word >> 16) }
func (l *lease) tokens() int64      { return l.input + l.output }

// fresh is the part of the prompt that windows without cached tokens count: as its rung had learned it at the grant.
func (l *lease) fresh() int64 {
	if part := l.word >> partShift; part > 0 {
		return freshPart(PPM(part-1), l.input)
	}
	return l.input
}

// counted is what windows counted for the lease.
func (l *lease) counted() counted { return counted{l.input, l.fresh(), l.output} }

// partShift is where a lease's word has 1 + the uncached part of its prompt in millionths; 0 stands for all of it.
const partShift = 32

// leaseState is the public form of a lease.
func (s *State) leaseState(l *lease) LeaseState {
	m := s.nodes.at(l.model)
	commitBy := l.deadline // of an ended lease: when it is forgotten
	if l.phase().Live() {
		commitBy += l.commitBy
	}
	return LeaseState{
		Lease: l.id, Provider: s.nodes.at(m.parent).name, Model: m.name, Phase: l.phase(),
		Class: s.nodes.at(l.class).name, Priority: l.priority(),
		Input: Tokens(l.input), Output: Tokens(l.output), Nanos: Nanos(l.nanos), Period: l.period,
		Granted: l.granted, StartBy: l.startBy, Deadline: l.deadline, CommitBy: commitBy,
	}
}

// Lease returns what is known of a lease; false when it is unknown or forgotten.
func (s *State) Lease(id LeaseID) (LeaseState, bool) {
	l := s.find(id)
	if l == nil {
		return LeaseState{}, false
	}
	return s.leaseState(l), true
}

func (s *State) find(id LeaseID) *lease {
	l, _ := s.findSlot(id)
	return l
}

func (s *State) findSlot(id LeaseID) (*lease, uint32) {
	if slot, ok := s.leaseIndex.get(&s.leases, id); ok {
		return s.leases.at(slot), slot
	}
	return nil, 0
}

// newLease takes a slot for a lease and indexes it. The caller fills it.
func (s *State) newLease(id LeaseID) (*lease, uint32) {
	var slot uint32
	reused := int64(0)
	if free := len(s.leaseFree); free > 0 {
		slot, reused = s.leaseFree[free-1], 1
		s.leaseFree = s.leaseFree[:free-1]
	} else {
		slot = s.leases.push()
	}
	s.leaseIndex.put(id, slot)
	s.note(undoLeaseNew, slot, reused)
	l := s.leases.at(slot)
	*l = lease{id: id}
	return l, slot
}

// freeLease gives a slot back: to the free list, or to the end of the table when it was new.
func (s *State) freeLease(slot uint32, reused bool) {
	*s.leases.at(slot) = lease{}
	if reused {
		s.leaseFree = append(s.leaseFree, slot)
	} else {
		s.leases.n--
	}
}

// forget drops an ended lease.
func (s *State) forget(slot uint32) {
	l := s.leases.at(slot)
	p := s.path(l)
	for _, row := range p.rows[:p.n] {
		n := s.nodes.at(row)
		s.keepTally(&n.tally)
		if n.refs--; n.refs == 0 {
			n.idle = s.now
		}
	}
	b := s.book(l.period)
	s.add(&b.leases, -1)
	s.add(&s.live[l.phase()], -1)
	if s.undo.on {
		s.undo.saved = append(s.undo.saved, *l)
	}
	s.note(undoLeaseGone, slot, 0)
	s.leaseIndex.remove(l.id, slot)
	*l = lease{}
	s.leaseFree = append(s.leaseFree, slot)
}

// path is the rows a lease counts on: global, provider, model, class, agent and credential by period, then task and workflow.
type path struct {
	rows [8]uint32
	// n rows in all, of which the first periodic are of the period's book.
	n, periodic int
}

func (s *State) path(l *lease) (p path) {
	p.rows = [8]uint32{0, s.nodes.at(l.model).parent, l.model, l.class}
	p.n = 4
	for _, row := range [...]uint32{l.agent, l.credential} {
		if row != 0 {
			p.rows[p.n] = row
			p.n++
		}
	}
	p.periodic = p.n
	for _, row := range [...]uint32{l.workflow, l.task} {
		if row != 0 {
			p.rows[p.n] = row
			p.n++
		}
	}
	return p
}

// pathAccount is the account of a path's i-th row, to be changed.
func (s *State) pathAccount(p *path, i int, b *book) *account {
	if i >= p.periodic {
		b = &s.tasks
	}
	return b.at(p.rows[i])
}

// enter moves the lease to another phase.
func (s *State) enter(l *lease, p Phase, add Flags) {
	s.add(&s.live[l.phase()], -1)
	s.set(&l.word, l.word>>partShift<<partShift|pack(p, l.priority(), l.flags()|add))
	s.add(&s.live[p], 1)
}

// dueAt sets when the lease moves next by itself.
func (s *State) dueAt(slot uint32, l *lease, at int64) {
	s.set(&l.deadline, at)
	if at < l.wake {
		s.set(&l.wake, at)
		s.addEnd(endEntry{at, slot})
	}
}

// addEnd is ends.add for entries whose lease existed before.
func (s *State) addEnd(e endEntry) {
	s.ends.add(e)
	s.note(undoEndNew, e.slot, e.at)
}

// running reports whether the lease holds a slot.
func (p Phase) running() bool { return p == Reserved || p == Active || p == RevokedPhase }

// leave takes back what a lease counts in its present phase (its slot, what it holds, what was assumed of it) and counts spent and assumed instead.
func (s *State) leave(l *lease, spent, assumed amounts) {
	phase, b, p := l.phase(), s.book(l.period), s.path(l)
	var held amounts
	if phase.Live() {
		held = amounts{l.tokens(), l.nanos}
	}
	change := assumed
	if phase == Assumed {
		change.add(amounts{-l.spentTokens, -l.spentNanos})
	}
	for i := range p.n {
		if phase.running() {
			n := s.nodes.at(p.rows[i])
			s.keepTally(&n.tally)
			n.open--
		}
		a := s.pathAccount(&p, i, b)
		s.keepAccount(a)
		a.held.add(amounts{-held.tokens, -held.nanos})
		a.assumed.add(change)
		a.spent.add(spent)
	}
	s.set(&l.spentTokens, spent.tokens+assumed.tokens)
	s.set(&l.spentNanos, spent.nanos+assumed.nanos)
}

// Advance makes the changes that follow from time alone: windows rotate, leases whose time is over end in (time, slot) order, at
// most maxEnds of them a call; the rest stay counted. It reports whether a lease moved: then the journal needs an entry even
// without facts, so that followers move it in the same step. A t.Now before Now counts as Now.
func (s *State) Advance(t Time) (moved bool) {
	// Where nothing can be taken back that a lease's end depends on, stale entries go for good: a batch that is taken back because
	// nothing came of it must not find them again.
	untouched := len(s.undo.records) == 0
	s.set(&s.now, max(s.now, t.Now))
	s.set(&s.wall, t.Wall)
	s.rotateWindows()
	if s.level = LevelNone; s.rules != nil && len(s.rules.defaults) > 1 {
		s.level, _, _ = s.congestion()
	}
	s.ends.turn(s.now)
	for ends := 0; ends < maxEnds && len(s.ends.due) > 0 && s.ends.due[0].at <= s.now; {
		e := s.ends.due.pop()
		var l *lease
		if e.slot < s.leases.n {
			l = s.leases.at(e.slot)
		}
		switch stale := l == nil || l.phase() == PhaseNone || l.wake != e.at; {
		case !stale && l.deadline <= e.at:
			s.note(undoEnd, e.slot, e.at)
		case untouched:
			if !stale { // moved later since: in its turn
				l.wake = l.deadline
				s.ends.add(endEntry{l.deadline, e.slot})
			}
			continue
		default:
			s.note(undoEnd, e.slot, e.at)
			if !stale {
				s.set(&l.wake, l.deadline)
				s.addEnd(endEntry{l.deadline, e.slot})
			}
			continue
		}
		s.end(e.slot, l)
		ends++
		moved = true
	}
	return moved
}

// maxEnds bounds the lease ends of one Advance.
const maxEnds = 4096

// NextEnd is a logical time before which no lease moves by itself, never late. It is early only for a lease whose end has moved later, and
// for one lease and time once: the Advance of that time sees it. ok is false when there is no lease.
func (s *State) NextEnd() (at int64, ok bool) {
	return s.ends.next()
}

// end moves a lease whose time is over (docs/concepts.md, life of a lease, columns "TTL over" and "grace over").
func (s *State) end(slot uint32, l *lease) {
	rules := &s.rules.policy.Lease
	at := l.deadline
	// The wheel has lost this lease's entry: whatever comes next gets a new one.
	s.set(&l.wake, farFuture)
	switch p := l.phase(); p {
	case Reserved: // never begun is proof
		s.unsend(l)
		s.leave(l, amounts{}, amounts{})
		s.enter(l, Returned, 0)
		s.neverProbed(l)
		s.dueAt(slot, l, at+l.commitBy)
		s.leaseEvent(EventLeaseExpired, l, at)
	case Active, RevokedPhase:
		s.settleGauges(l, l.counted(), false)
		if rules.OnExpiry == ExpiryAssume {
			p := s.path(l)
			for _, row := range p.rows[:p.n] { // the slot frees, the tokens stay held
				s.add(&s.nodes.at(row).open, -1)
			}
			s.enter(l, Held, 0)
			s.dueAt(slot, l, at+rules.Grace)
		} else {
			s.leave(l, amounts{}, amounts{})
			s.enter(l, Returned, 0)
			s.dueAt(slot, l, at+l.commitBy)
		}
		s.leaseEvent(EventLeaseExpired, l, at)
	case Held:
		s.leave(l, amounts{}, amounts{l.tokens(), l.nanos})
		s.enter(l, Assumed, 0)
		s.dueAt(slot, l, at+l.commitBy)
		s.leaseEvent(EventLeaseAssumed, l, at)
	default:
		s.forget(slot)
	}
}
