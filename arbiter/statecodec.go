package arbiter

import (
	"crypto/sha256"
	"fmt"
)

// Versions of the canonical encoding. The second ends with what rungs have learned since; a state without any of that is written as the
// first, so that equal states have equal bytes whatever version wrote them.
const (
	stateFormat1 = 1
	stateFormat2 = 2
)

// AppendTo appends the canonical encoding of the state: equal histories give equal bytes, whatever the replica did in between. It
// holds no pointer order, no map order and nothing of the undo log, and it is the snapshot.
func (s *State) AppendTo(dst []byte) []byte {
	w := writer{dst}
	learned := s.learned()
	w.uint(stateFormat1 + uint64(min(len(learned), 1)))
	w.string(s.pool)
	w.int(s.now)
	w.int(s.wall)
	w.uint(s.epoch)
	w.uint(s.seq)
	w.uint(uint64(len(s.survivors)))
	for _, v := range s.survivors {
		w.uint(v.epoch)
		w.uint(v.seq)
	}
	w.int(s.adoptions)
	w.int(s.firstBucket)
	u := &s.unattributed
	w.int(u.calls)
	w.int(u.tokens)
	w.int(u.nanos)
	for i := range min(u.calls, rememberedLate) {
		w.id(joinID(u.ids[i][0], u.ids[i][1]))
	}
	w.bool(s.rules != nil)
	if s.rules != nil {
		w.b = append(w.b, s.rules.hash[:]...)
		w.bytes(s.rules.packed)
	}
	s.appendRows(&w)
	s.appendMeters(&w)
	s.appendBooks(&w)
	s.appendLeases(&w)
	if len(learned) > 0 {
		w.uint(uint64(len(learned)))
		for _, number := range learned {
			w.uint(uint64(number))
			s.rungs.at(number).learned(func(p *int64) { w.int(*p) })
		}
	}
	return w.b
}

// learned lists the rungs that have anything for the second format.
func (s *State) learned() (list []uint32) {
	for i := range s.rungs.n {
		any := int64(0)
		if s.rungs.at(i).learned(func(p *int64) { any |= *p }); any != 0 {
			list = append(list, i)
		}
	}
	return list
}

// learned visits the numbers of a rung that the second format added, in its order.
func (r *rung) learned(f func(*int64)) {
	for _, p := range [...]*int64{&r.uncached, &r.ramp.part, &r.ramp.from, &r.cut, &r.cutAt} {
		f(p)
	}
	for dim := DimRPM; dim <= DimOutputTPM; dim++ {
		f(&r.ramp.used[dim])
	}
}

func (s *State) readLearned(r *reader) {
	n, next := r.count(2), uint32(0)
	if n == 0 {
		r.fail()
	}
	for range n {
		number := r.number()
		if number < next || number >= s.rungs.n {
			r.fail()
			return
		}
		any, g := int64(0), s.rungs.at(number)
		g.learned(func(p *int64) {
			*p = r.int()
			any |= *p
		})
		if next = number + 1; any == 0 || !g.plausible() {
			r.fail()
			return
		}
	}
}

// plausible reports whether what a rung has learned is in the range of its unit.
func (r *rung) plausible() bool {
	for _, used := range r.ramp.used {
		if used < 0 || used > maxCount {
			return false
		}
	}
	return r.uncached >= 0 && r.uncached <= 1+billion && r.ramp.from >= 0 && r.cutAt >= 0 &&
		r.ramp.part >= 0 && r.ramp.part <= int64(Whole) && r.cut >= 0 && r.cut <= int64(Whole-leastPart)
}

// Digest is the SHA-256 of the canonical encoding.
func (s *State) Digest() [32]byte { return sha256.Sum256(s.AppendTo(nil)) }

func (s *State) appendRows(w *writer) {
	w.uint(uint64(s.nodes.n))
	for i := range s.nodes.n {
		n := s.nodes.at(i)
		w.uint(uint64(n.kind))
		w.string(n.name)
		w.uint(uint64(n.parent))
		w.uint(uint64(n.rung))
		w.int(n.refs)
		w.int(n.open)
		w.int(n.idle)
		w.int(n.virtual)
	}
	w.uint(uint64(len(s.nodeFree)))
	for _, row := range s.nodeFree {
		w.uint(uint64(row))
	}
	w.uint(uint64(s.rungs.n))
	for i := range s.rungs.n {
		r := s.rungs.at(i)
		w.uint(uint64(r.provider))
		w.uint(uint64(r.model))
		r.words(func(p *int64) { w.int(*p) })
	}
	queue := s.tombQueue[s.tombHead:]
	w.uint(uint64(len(queue)))
	for _, e := range queue {
		w.fixed(e.key)
		w.int(e.until)
		t, ok := s.tombs[e.key]
		ok = ok && t.until == e.until
		if w.bool(ok); ok {
			w.int(t.spent.tokens)
			w.int(t.spent.nanos)
			w.int(t.assumed.tokens)
			w.int(t.assumed.nanos)
			w.int(t.calls)
		}
	}
}

// words visits every number of a rung, in the order of the encoding.
func (r *rung) words(f func(*int64)) {
	for i := range r.holds {
		f(&r.holds[i])
		f(&r.shadowed[i])
	}
	b, l := &r.breaker, &r.latency
	for _, p := range [...]*int64{&r.exhausted, &b.state, &b.failures, &b.until, &b.epoch, &b.moved, &b.probeLow, &b.probeHigh, &l.seen, &l.count, &l.p50, &l.p99, &r.scope, &r.scoped} {
		f(p)
	}
	for i := range l.buckets {
		f(&l.buckets[i])
	}
}

func (s *State) appendMeters(w *writer) {
	w.uint(uint64(s.meters.n))
	for i := range s.meters.n {
		m := s.meters.at(i)
		w.string(m.key)
		w.uint(uint64(m.dim))
		w.int(m.born)
		w.int(m.sum)
		w.int(m.held)
		w.int(m.tat)
		w.int(m.resets)
		w.int(m.rolled)
		if m.buckets == nil {
			w.uint(0)
			continue
		}
		full := uint64(0)
		for _, x := range m.buckets {
			if x != 0 {
				full++
			}
		}
		w.uint(full)
		for b, x := range m.buckets {
			if x != 0 {
				w.uint(uint64(b))
				w.int(x)
			}
		}
	}
}

func (s *State) appendBooks(w *writer) {
	w.uint(uint64(len(s.books)))
	for _, b := range s.books {
		w.uint(uint64(b.number))
		w.period(b.period)
		w.int(b.leases)
		w.accounts(&b.accounts)
	}
	w.accounts(&s.tasks.accounts)
}

func (a *account) words() [11]*int64 {
	return [...]*int64{&a.spent.tokens, &a.spent.nanos, &a.held.tokens, &a.held.nanos, &a.assumed.tokens, &a.assumed.nanos, &a.shadow.tokens, &a.shadow.nanos, &a.shadowCalls.tokens, &a.shadowCalls.nanos, &a.calls}
}

func (w *writer) accounts(t *slab[account]) {
	used := uint64(0)
	for i := range t.n {
		if !t.at(i).empty() {
			used++
		}
	}
	w.uint(used)
	for i := range t.n {
		if a := t.at(i); !a.empty() {
			w.uint(uint64(i))
			for _, p := range a.words() {
				w.int(*p)
			}
		}
	}
}

func (l *lease) numbers() [9]*uint32 {
	return [...]*uint32{&l.agent, &l.class, &l.task, &l.workflow, &l.model, &l.credential, &l.rung, &l.period, &l.adopted}
}

func (l *lease) words() [11]*int64 {
	return [...]*int64{&l.input, &l.output, &l.nanos, &l.charged, &l.word, &l.granted, &l.startBy, &l.deadline, &l.commitBy, &l.spentTokens, &l.spentNanos}
}

func (s *State) appendLeases(w *writer) {
	w.uint(uint64(s.leases.n))
	for i := range s.leases.n {
		l := s.leases.at(i)
		if l.phase() == PhaseNone {
			w.uint(0)
			continue
		}
		w.uint(1)
		w.id(l.id)
		w.bool(l.parent != LeaseID{})
		if l.parent != (LeaseID{}) {
			w.id(l.parent)
		}
		w.fixed(l.fingerprint)
		w.fixed(l.principal)
		for _, p := range l.numbers() {
			w.uint(uint64(*p))
		}
		for _, p := range l.words() {
			w.int(*p)
		}
	}
	w.uint(uint64(len(s.leaseFree)))
	for _, slot := range s.leaseFree {
		w.uint(uint64(slot))
	}
}

// DecodeState reads a canonical encoding. It fails when the bytes are of a newer format, cut or inconsistent; it never returns a part.
func DecodeState(b []byte) (s *State, err error) {
	r := reader{b: b}
	format := r.uint()
	if r.err == nil && format != stateFormat1 && format != stateFormat2 {
		return nil, fmt.Errorf("decode state: format %d, this version reads up to %d: use the version that wrote it, or a newer one", format, stateFormat2)
	}
	s = NewState(r.string())
	s.now, s.wall, s.epoch, s.seq = r.int(), r.int(), r.uint(), r.uint()
	for range r.count(2) {
		s.survivors = append(s.survivors, survivor{r.uint(), r.uint()})
	}
	s.adoptions, s.firstBucket = r.int(), r.int()
	s.readUnattributed(&r)
	var policy *Policy
	var packed []byte
	var hash [32]byte
	if r.bool() {
		copy(hash[:], r.take(32))
		packed = append([]byte(nil), r.bytes()...)
		var got [32]byte
		if policy, got, err = decodePolicy(packed); err == nil && got != hash {
			err = ErrCorrupt
		}
		if err == nil {
			err = policy.Validate()
		}
		if err != nil {
			return nil, fmt.Errorf("decode state: %w", err)
		}
	}
	s.readRows(&r)
	s.readMeters(&r)
	s.readBooks(&r)
	s.readLeases(&r)
	if format == stateFormat2 && r.err == nil {
		s.readLearned(&r)
	}
	if err = r.done(); err == nil && !s.sound(policy != nil) {
		err = ErrCorrupt
	}
	if err != nil {
		return nil, fmt.Errorf("decode state: %w", err)
	}
	if policy != nil {
		if err := s.readopt(policy, packed, hash); err != nil {
			return nil, fmt.Errorf("decode state: %w", err)
		}
	}
	return s, nil
}

func (s *State) readUnattributed(r *reader) {
	u := &s.unattributed
	u.calls, u.tokens, u.nanos = r.int(), r.int(), r.int()
	if u.calls < 0 {
		r.fail()
	}
	if u.calls <= 0 {
		return
	}
	u.ids = new([rememberedLate][2]int64)
	for i := range min(u.calls, rememberedLate) {
		u.ids[i][0], u.ids[i][1] = splitID(r.id())
	}
}

// sound reports whether every reference leads somewhere and every free place is on its free list once: what the rest of the package
// relies on. Sums are Check's affair.
func (s *State) sound(ruled bool) bool {
	if s.now < 0 || s.firstBucket < 0 || !ruled && (s.nodes.n > 0 || s.leases.n > 0 || len(s.books) > 0) {
		return false
	}
	free := map[uint32]bool{}
	for _, row := range s.nodeFree {
		free[row] = true
	}
	named := 0
	for i := range s.nodes.n {
		n := s.nodes.at(i)
		if n.kind == KindGlobal && i > 0 {
			if !free[i] {
				return false
			}
			continue
		}
		named++
		if (n.kind == KindGlobal) != (i == 0) || free[i] || n.parent >= s.nodes.n {
			return false
		}
		if n.kind == KindModel && (n.rung >= s.rungs.n || s.rungs.at(n.rung).model != i || s.rungs.at(n.rung).provider != n.parent || s.nodes.at(n.parent).kind != KindProvider) {
			return false
		}
	}
	indexed := 0
	for _, names := range s.nodeIndex {
		indexed += len(names)
	}
	if indexed != named || named+len(s.nodeFree) != int(s.nodes.n) || len(s.meterIndex) != int(s.meters.n) {
		return false
	}
	clear(free)
	for _, slot := range s.leaseFree {
		free[slot] = true
	}
	for i := range s.leases.n {
		l := s.leases.at(i)
		if l.phase() == PhaseNone {
			if !free[i] {
				return false
			}
			continue
		}
		for _, r := range [...]struct {
			row  uint32
			kind NodeKind
		}{{l.agent, KindAgent}, {l.class, KindClass}, {l.task, KindTask}, {l.workflow, KindWorkflow}, {l.model, KindModel}, {l.credential, KindCredential}} {
			if r.row != 0 && s.nodes.at(r.row).kind != r.kind {
				return false
			}
		}
		if l.model == 0 || l.class == 0 || l.rung != s.nodes.at(l.model).rung || l.startBy < 0 {
			return false
		}
		if got, _ := s.leaseIndex.get(&s.leases, l.id); got != i { // the id is another's too
			return false
		}
	}
	return s.leaseIndex.used+len(s.leaseFree) == int(s.leases.n)
}

// readopt joins the policy with rows and meters that exist already: nothing may be created or changed.
func (s *State) readopt(p *Policy, packed []byte, hash [32]byte) error {
	if s.current() == nil {
		return ErrCorrupt
	}
	s.adoptions--
	s.Begin()
	defer s.Confirm()
	s.adopt(p, packed, hash)
	for _, r := range s.undo.records {
		if r.op != undoPolicy && r.op != undoWord || r.op == undoWord && r.p != &s.adoptions && *r.p != r.old {
			return ErrCorrupt
		}
	}
	return nil
}

func (s *State) readRows(r *reader) {
	for range r.count(8) {
		row := s.nodes.push()
		n := s.nodes.at(row)
		*n = node{kind: NodeKind(r.small(uint64(kindCount) - 1)), name: r.string(), parent: r.number(), rung: r.number(),
			tally: tally{refs: r.int(), open: r.int(), idle: r.int(), virtual: r.int()}, limit: NoLimit}
		if n.kind != KindGlobal || row == 0 {
			s.indexRow(row, n)
		}
	}
	for range r.count(1) {
		s.nodeFree = append(s.nodeFree, r.number())
	}
	for range r.count(16) {
		g := s.rungs.at(s.rungs.push())
		g.provider, g.model = r.number(), r.number()
		g.words(func(p *int64) { *p = r.int() })
		if BreakerState(g.breaker.state) != BreakerClosed {
			s.shut++
		}
		if g.provider >= s.nodes.n || g.model >= s.nodes.n {
			r.fail()
		}
	}
	for range r.count(10) {
		e := tombEntry{r.fixed(), r.int()}
		s.tombQueue = append(s.tombQueue, e)
		if r.bool() {
			_, double := s.tombs[e.key]
			r.ascends(!double)
			s.tombs[e.key] = tombstone{amounts{r.int(), r.int()}, amounts{r.int(), r.int()}, r.int(), e.until}
		}
	}
}

func (s *State) readMeters(r *reader) {
	for range r.count(9) {
		i := s.meters.push()
		m := s.meters.at(i)
		*m = meter{key: r.string(), dim: Dim(r.small(uint64(dimCount) - 1)), meterWords: meterWords{born: r.int(), sum: r.int(), held: r.int(), tat: r.int(), resets: r.int(), rolled: r.int()}}
		s.meterIndex[m.key] = i
		previous := int64(-1)
		for range r.count(2) {
			if m.buckets == nil {
				m.buckets = new([windowBuckets]int64)
			}
			b := r.small(windowBuckets - 1)
			r.ascends(int64(b) > previous)
			previous = int64(b)
			m.buckets[b] = r.int()
		}
	}
}

// ascends fails unless keys come in the order in which they are written.
func (r *reader) ascends(ok bool) {
	if !ok {
		r.fail()
	}
}

func (s *State) readBooks(r *reader) {
	for range r.count(5) {
		b := &book{number: r.number(), period: r.period(), leases: r.int()}
		s.readAccounts(r, &b.accounts)
		s.books = append(s.books, b)
	}
	s.readAccounts(r, &s.tasks.accounts)
}

func (s *State) readAccounts(r *reader, t *slab[account]) {
	for range r.count(12) {
		row := r.number()
		if row >= s.nodes.n || row < t.n {
			r.fail()
			return
		}
		t.grow(row + 1)
		for _, p := range t.at(row).words() {
			*p = r.int()
		}
	}
}

func (s *State) readLeases(r *reader) {
	for range r.count(1) {
		slot := s.leases.push()
		l := s.leases.at(slot)
		*l = lease{}
		if !r.bool() {
			continue
		}
		l.id = r.id()
		if r.bool() {
			l.parent = r.id()
		}
		l.fingerprint, l.principal = r.fixed(), r.fixed()
		for _, p := range l.numbers() {
			*p = r.number()
		}
		for _, p := range l.words() {
			*p = r.int()
		}
		if l.rung >= s.rungs.n || l.phase() == PhaseNone || l.phase() > Returned || l.word>>partShift < 0 || l.word>>partShift > int64(Whole)+1 || s.book(l.period) == nil {
			r.fail()
			return
		}
		for _, row := range [...]uint32{l.agent, l.class, l.task, l.workflow, l.model, l.credential} {
			if row >= s.nodes.n {
				r.fail()
				return
			}
		}
		l.wake = l.deadline
		s.leaseIndex.put(l.id, slot)
		s.live[l.phase()]++
		s.ends.add(endEntry{l.wake, slot})
	}
	for range r.count(1) {
		s.leaseFree = append(s.leaseFree, r.number())
	}
}
