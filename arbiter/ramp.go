package arbiter

// How a rung's ceilings adapt (docs/algorithms.md §13). Two factors come between what the policy allows and what is in force: the ramp of a rung
// that comes back, and what 429s have cut. Neither ever raises a ceiling.

// ramp is the way back of a rung whose probe was good: from a tenth of its ceilings to all of them.
type ramp struct {
	// part is the part of the ceilings allowed at the time from, in millionths; 0 is no ramp.
	part, from int64
	// used is what was granted since the probe's answer, by dimension.
	used [dimCount]int64
}

const (
	// rampStart is the part of its ceilings with which a rung comes back.
	rampStart = Whole / 10
	// leastPart is where halving and cutting stop: a rung that may do nothing would never learn that it may do more.
	leastPart = Whole / 100
	// cutFactor in hundredths is what a 429 leaves of the ceilings, cutRegrowth what each success gives back, in millionths.
	cutFactor   = 93
	cutRegrowth = 200
)

// ramped is the part of its ceilings that a rung may use since it came back: Whole but for the ramp. It grows from the ramp's part by 0.9
// in the policy's breaker.ramp, so a ramp that nothing disturbs is over after that time.
//
// Worked example: ramp 10 s. At 0: 0.1; after 5 s: 0.55. A 429 then halves it to 0.275, and it is 1 after 8.06 s more.
func (s *State) ramped(r *rung) PPM {
	length := s.rules.policy.Breaker.Ramp
	if r.ramp.part == 0 || length == 0 {
		return Whole
	}
	return min(PPM(r.ramp.part)+PPM(mulDiv(int64(Whole-rampStart), max(s.now-r.ramp.from, 0), length)), Whole)
}

// rampReaches is when the ramp allows a part.
func (s *State) rampReaches(r *rung, part PPM) int64 {
	return r.ramp.from + mulDivUp(max(int64(min(part, Whole))-r.ramp.part, 0), s.rules.policy.Breaker.Ramp, int64(Whole-rampStart))
}

// examineRamp asks the ramp: what was granted since the rung came back, and what runs on it, stay below the part of each ceiling that is
// allowed now.
func (s *State) examineRamp(r *rungRules, c counted, v *verdict) {
	rung := s.rungs.at(r.number)
	part := s.ramped(rung)
	if part == Whole {
		return
	}
	for i := range r.gauges {
		g := &r.gauges[i]
		if g.dim == DimRPD {
			continue
		}
		x, used, held := g.amount(c), rung.ramp.used[g.dim], int64(0)
		if g.dim == DimSlots {
			used, held = 0, s.nodes.at(r.row).open
		}
		limit := max(part.share(g.ceiling), 1)
		if used+held+x <= limit {
			continue
		}
		at := s.rampReaches(rung, PPM(mulDivUp(used+held+x, int64(Whole), g.ceiling)))
		if g.dim == DimSlots {
			at = min(at, s.now+rung.callTime())
		}
		v.limitObjects(g.shadow, r.row, g.check(Reason(g.dim), limit, used, held, x), max(at, s.now+1))
	}
}

// countRamp counts a grant on the ramp of its rung: of two ceilings in one dimension the larger amount.
func (s *State) countRamp(r *rungRules, c counted) {
	rung := s.rungs.at(r.number)
	if s.ramped(rung) == Whole {
		return
	}
	var most [dimCount]int64
	for i := range r.gauges {
		if g := &r.gauges[i]; g.dim.paced() {
			most[g.dim] = max(most[g.dim], g.amount(c))
		}
	}
	for dim, x := range most {
		if x > 0 {
			s.set(&rung.ramp.used[dim], min(rung.ramp.used[dim]+x, maxCount))
		}
	}
}

// startRamp begins a ramp, or sets another one back.
func (s *State) startRamp(r *rung, part PPM, anew bool) {
	s.set(&r.ramp.part, int64(part))
	s.set(&r.ramp.from, s.now)
	if !anew {
		return
	}
	for dim := range r.ramp.used {
		if r.ramp.used[dim] != 0 {
			s.set(&r.ramp.used[dim], 0)
		}
	}
}

// slowRamp emits the fact that halves a ramp: a 429 says that it goes too fast. Verdicts on leases from before it was last set change nothing.
func (s *State) slowRamp(l *lease, d *Decision) {
	r := s.rungs.at(l.rung)
	part := s.ramped(r)
	if part == Whole || l.granted <= r.ramp.from || BreakerState(s.breaker(r).state) != BreakerClosed {
		return
	}
	d.fact(Fact{Kind: FactBreakerMoved, Rung: l.rung, Lease: l.id, Health: HealthFact{
		State: BreakerClosed, Failures: r.breaker.failures, Until: r.breaker.until, Epoch: r.breaker.epoch, Ramp: max(part/2, leastPart)}})
}

// factor is the part of its ceilings that 429s have left in force. Source: additive increase, multiplicative decrease (D. Chiu, R. Jain,
// 1989), the decrease once per epoch: verdicts on leases granted before the last cut say nothing new.
func (r *rung) factor() PPM { return Whole - PPM(r.cut) }

// cutFor is the factor that a 429 on this lease leaves a rung with; 0 when it changes nothing.
func (s *State) cutFor(number uint32, l *lease) PPM {
	r := s.rungs.at(number)
	if r.cutAt > 0 && l.granted <= r.cutAt {
		return 0
	}
	return max(r.factor()*cutFactor/100, leastPart)
}

// regrow gives back a little of the cut after a success. 350 of them undo one cut.
func (s *State) regrow(r *rung, l *lease) {
	if r.cut > 0 && l.granted > r.cutAt {
		s.set(&r.cut, max(r.cut-cutRegrowth, 0))
	}
}

// inForce is a ceiling as 429s have left it, rounded up: one cut must not halve two slots. What resets by the day is not a rate.
func (r *rung) inForce(g *gauge) int64 {
	if r.cut == 0 || g.dim == DimRPD {
		return g.ceiling
	}
	return mulDivUp(g.ceiling, int64(r.factor()), int64(Whole))
}
