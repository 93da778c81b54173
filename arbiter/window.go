package arbiter

// Windows are exact: a charge sits in the 100 ms bucket of the last moment at which its call may start and counts until
// windowSpan + Guard later. Why that bounds every 60 s of provider time: a call that arrives at t has t ≤ start + Guard, so of the
// calls that arrive within any 60 s the last one granted saw all others in its sum. (One-second buckets without the extra bucket
// do not: 120 calls went against a ceiling of 60.)

const (
	windowSpan   = Minute
	bucketLength = 100 * Millisecond
	// windowBuckets bounds Guard + StartBy: 1,024 buckets are 102.4 s, of which the window takes 60.
	windowBuckets = 1024
	// MaxGuard and MaxStartBy are the largest values a policy may set, ns: an extension may date a lease two start_by ahead.
	MaxGuard   = 20 * Second
	MaxStartBy = 10 * Second
	// noAdoption is the birth of a meter that the policy does not use.
	noAdoption = 1<<63 - 1
)

// meter counts one rate: a sliding window (rpm, tpm, ...) with its pacing, or a calendar day (rpd).
type meter struct {
	key string
	dim Dim
	meterWords
	buckets *[windowBuckets]int64 // allocated on first charge
}

// meterWords are the numbers of a meter.
type meterWords struct {
	// born is the adoption that brought the ceiling; leases of earlier ones never charged it.
	born int64
	// sum is what the window counts, held what running calls will be charged at commit (generated accounting).
	sum, held int64
	// tat is the theoretical arrival time of the pacing (GCRA).
	tat int64
	// resets is the end of the calendar day, Unix ns; rolled is the logical time at which that day began here.
	resets, rolled int64
	saved          int64 // undoLog.epoch
}

// chargeAt counts x from the moment at.
func (s *State) chargeAt(m *meter, at, x int64) {
	if x = min(x, maxCount-m.sum); x <= 0 {
		return
	}
	s.keepMeter(&m.meterWords)
	m.sum += x
	if m.dim == DimRPD {
		return
	}
	if m.buckets == nil {
		m.buckets = new([windowBuckets]int64)
	}
	s.add(&m.buckets[at/bucketLength%windowBuckets], x)
}

// dropAt takes back x that was counted from the moment at. A bucket that has left the window is not touched.
func (s *State) dropAt(m *meter, at, x int64) {
	b := at / bucketLength
	if b < s.firstBucket || m.buckets == nil {
		return
	}
	p := &m.buckets[b%windowBuckets]
	x = min(x, *p)
	s.add(p, -x)
	s.keepMeter(&m.meterWords)
	m.sum -= x
}

// moveAt dates x that was counted from the moment from as of to. Both are in the window, or nothing moves.
func (s *State) moveAt(m *meter, from, to, x int64) {
	b, c := from/bucketLength, to/bucketLength
	if b == c || b < s.firstBucket || c < s.firstBucket || m.buckets == nil {
		return
	}
	p, q := &m.buckets[b%windowBuckets], &m.buckets[c%windowBuckets]
	x = min(x, *p)
	s.add(p, -x)
	s.add(q, x)
}

// rotateWindows lets go of the buckets that left the window. After a long idle it costs the number of buckets, not the length of the gap.
func (s *State) rotateWindows() {
	guard := int64(0)
	if s.rules != nil {
		guard = s.rules.policy.Guard
	}
	// Before the first policy too: grants of the batch that adopts it are charged from here on.
	first := max(s.now-windowSpan-guard, 0) / bucketLength
	if first <= s.firstBucket {
		return
	}
	old := s.firstBucket
	s.set(&s.firstBucket, first)
	for i := range s.meters.n {
		m := s.meters.at(i)
		if m.buckets == nil || m.sum == 0 {
			continue
		}
		for b := old; b < min(first, old+windowBuckets); b++ {
			if p := &m.buckets[b%windowBuckets]; *p != 0 {
				s.add(&m.sum, -*p)
				s.set(p, 0)
			}
		}
	}
}

// roomAt is the earliest logical time at which the window's sum has fallen to at most target, if nothing else is charged. It is 0 when it is so already.
func (s *State) roomAt(m *meter, target int64) int64 {
	sum := m.sum
	if sum <= target {
		return 0
	}
	for b := s.firstBucket; m.buckets != nil && b < s.firstBucket+windowBuckets; b++ {
		if sum -= m.buckets[b%windowBuckets]; sum <= target {
			return (b+1)*bucketLength + windowSpan + s.rules.policy.Guard
		}
	}
	return s.now + windowSpan
}

// gauge is one ceiling of a rung as the policy of the day has it.
type gauge struct {
	dim     Dim
	meter   uint32
	ceiling int64
	// burst is what may go at once beside the pace.
	burst             int64
	generated, shadow bool
	// uncached leaves out what was read from a cache.
	uncached bool
	kind     NodeKind // provider or model
	name     string
	rows     []uint32 // slots: the rows whose open leases count
}

// use is what a call counts on this dimension: itself, or tokens of one kind.
func (g *gauge) use(input, output, total int64) int64 {
	switch g.dim {
	case DimTPM:
		return total
	case DimInputTPM:
		return input
	case DimOutputTPM:
		return output
	}
	return 1
}

// counted is the tokens of one call as windows count them.
type counted struct {
	// input is the whole prompt, fresh the part of it that was not read from a cache.
	input, fresh, output int64
}

// count is what a call counts on this dimension.
func (g *gauge) count(c counted) int64 {
	if g.uncached {
		c.input = c.fresh
	}
	return g.use(c.input, c.output, c.input+c.output)
}

// amount is what a grant charges or holds: its estimated use, at least 1, so that a full window refuses an unknown estimate too.
func (g *gauge) amount(c counted) int64 { return max(1, g.count(c)) }

// tokens reports whether the dimension counts tokens.
func (d Dim) tokens() bool { return d == DimTPM || d == DimInputTPM || d == DimOutputTPM }

// held reports whether running calls hold this dimension and are charged at their end.
func (g *gauge) held() bool { return g.generated && g.dim.tokens() }

// running is how many open leases hold this gauge's slots.
func (s *State) running(g *gauge) int64 {
	var n int64
	for _, row := range g.rows {
		n += s.nodes.at(row).open
	}
	return n
}

// load is what counts against the ceiling now, apart from what is held for running calls.
func (s *State) load(g *gauge) (used, held int64) {
	if g.dim == DimSlots {
		return 0, s.running(g)
	}
	m := s.meters.at(g.meter)
	return m.sum, m.held
}

// paceStep is how long the pace takes for x at a ceiling: x·60 s/ceiling, rounded up (GCRA; 128-bit product). What passes a ceiling (shadow)
// paces as the whole of it.
func paceStep(x, ceiling int64) int64 { return mulDivUp(min(x, ceiling), windowSpan, ceiling) }

// paceAt is when the pace allows x at a ceiling: tat − (burst − min(x, burst))·T.
func (s *State) paceAt(g *gauge, x, ceiling int64) int64 {
	return s.meters.at(g.meter).tat - paceStep(g.burst-min(x, g.burst), ceiling)
}

// unpace gives back the pace of x that was never used, as the whole ceiling would have taken it: never more than was taken.
func (g *gauge) unpace(m *meter, x int64) { m.tat -= paceStep(x, g.ceiling) }

// paced reports whether the dimension has a pace: windows do, slots and calendar days do not.
func (d Dim) paced() bool { return d >= DimRPM && d <= DimOutputTPM }

// chargeGauges counts a grant on the rung's ceilings, from the last moment at which the call may start.
func (s *State) chargeGauges(r *rungRules, l *lease) {
	c, rung := l.counted(), s.rungs.at(r.number)
	s.countRamp(r, c)
	for i := range r.gauges {
		g := &r.gauges[i]
		if g.dim == DimSlots {
			continue
		}
		m, x := s.meters.at(g.meter), g.amount(c)
		if s.keepMeter(&m.meterWords); g.held() {
			m.held += x
		} else {
			s.chargeAt(m, l.startBy, x)
		}
		if g.dim.paced() {
			m.tat = min(max(m.tat, s.now)+paceStep(x, rung.inForce(g)), s.now+2*windowSpan)
		}
	}
}

// eachCharge calls f for every meter that this lease charged and the policy still has.
func (s *State) eachCharge(l *lease, f func(g *gauge, m *meter, x int64)) {
	r := s.rules.rungs[l.rung]
	if r == nil {
		return
	}
	scoped := s.rungs.at(l.rung).scoped
	for i := range r.gauges {
		g := &r.gauges[i]
		if g.dim == DimSlots {
			continue
		}
		if g.kind == KindModel && scoped > int64(l.adopted) {
			continue
		}
		if m := s.meters.at(g.meter); m.born <= int64(l.adopted) {
			f(g, m, g.amount(l.counted()))
		}
	}
}

// restart dates the lease's window entries from the true start of the call.
func (s *State) restart(l *lease, at int64) {
	if at < l.startBy {
		s.redate(l, at)
	}
}

// redate moves the lease's window entries, and with them the last moment at which its call may start.
func (s *State) redate(l *lease, at int64) {
	s.eachCharge(l, func(g *gauge, m *meter, x int64) {
		if !g.held() && g.dim != DimRPD {
			s.moveAt(m, l.startBy, at, x)
		}
	})
	if c := s.classMeters(l); c != nil {
		s.moveAt(s.meters.at(c[0]), l.startBy, at, 1)
		s.moveAt(s.meters.at(c[1]), l.startBy, at, max(1, l.charged))
	}
	s.set(&l.startBy, at)
}

// unsend takes the lease's window entries back: its call never began.
func (s *State) unsend(l *lease) {
	s.eachCharge(l, func(g *gauge, m *meter, x int64) {
		switch s.keepMeter(&m.meterWords); {
		case g.held():
			m.held -= min(x, m.held)
		case g.dim != DimRPD:
			s.dropAt(m, l.startBy, x)
		case l.granted > m.rolled: // today's
			m.sum -= min(x, m.sum)
		}
		if g.dim.paced() {
			g.unpace(m, x)
		}
	})
	if c := s.classMeters(l); c != nil {
		s.dropAt(s.meters.at(c[0]), l.startBy, 1)
		s.dropAt(s.meters.at(c[1]), l.startBy, max(1, l.charged))
	}
}

// settleGauges turns what the lease held on its ceilings into what it used. Where the estimate was charged up front it stays; only
// use above it is debt in the current bucket. A window that leaves cached tokens out was charged by a guess: exact usage corrects it in
// both directions, as long as the entry is in the window.
func (s *State) settleGauges(l *lease, c counted, exact bool) {
	s.eachCharge(l, func(g *gauge, m *meter, x int64) {
		if !g.dim.tokens() {
			return
		}
		switch actual := g.count(c); {
		case g.held():
			s.keepMeter(&m.meterWords)
			m.held -= min(x, m.held)
			s.chargeAt(m, s.now, actual)
		case actual > x:
			s.chargeAt(m, s.now, actual-x)
		case g.uncached && exact:
			s.dropAt(m, l.startBy, x-actual)
			s.keepMeter(&m.meterWords)
			g.unpace(m, x-actual)
		}
	})
}
