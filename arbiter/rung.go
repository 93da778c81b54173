package arbiter

import "math/bits"

// rung is one model at one provider: its health and its speed.
type rung struct {
	provider, model uint32 // rows
	// holds are the times until which the provider asked to wait, by dimension; index DimNone holds the whole rung.
	holds [dimCount]int64
	// exhausted shuts the rung until then because its account is used up.
	exhausted int64
	// shadowed counts what a limit of the rung would have refused, by dimension; index DimNone counts what has none.
	shadowed [dimCount]int64
	breaker  breaker
	latency  latency
	// uncached is 1 + the part of prompts that is not read from a cache, in billionths; 0 until exact usage was seen.
	uncached int64
	ramp     ramp
	// cut is what throttles took off the ceilings, in millionths; cutAt is when the last did.
	cut, cutAt int64
	// scope is a hash of whose model ceilings count for it, its own or a limit group's; scoped is the adoption since when.
	scope, scoped int64
}

// breaker is a rung's circuit breaker (docs/algorithms.md §8), as words so that it can be undone.
type breaker struct {
	state               int64 // BreakerState
	failures            int64 // consecutive
	until               int64 // open: probe from then on; probing: the probe's deadline
	epoch               int64 // counts moves; verdicts on leases granted before the last move change nothing
	moved               int64 // logical time of the last move
	probeLow, probeHigh int64 // the probing lease's id
}

func (b *breaker) probe() LeaseID { return joinID(b.probeLow, b.probeHigh) }

// The latency histogram has four buckets an octave from 2²⁰ ns (about 1 ms) to 2⁴⁰ ns (18 min).
const (
	latencyBuckets = 80
	latencyLow     = 20
	latencyHalve   = 2048
	// learnedCalls is how many calls must be seen before latency counts in any rule.
	learnedCalls = 50
)

type latency struct {
	seen     int64 // all samples
	count    int64 // samples in buckets
	p50, p99 int64
	buckets  [latencyBuckets]int64
}

func latencyBucket(ns int64) int {
	octave := bits.Len64(uint64(max(ns, 1))) - 1
	if octave < latencyLow {
		return 0
	}
	quarter := int(ns>>(octave-2)) & 3
	return min((octave-latencyLow)*4+quarter, latencyBuckets-1)
}

// latencyEdge is the upper edge of a bucket.
func latencyEdge(b int) int64 { return int64(4+b%4+1) << (b/4 + latencyLow - 2) }

// observe adds one call's time. Old samples fade: counts halve when 2,048 have gathered.
func (s *State) observe(l *latency, ns int64) {
	if ns <= 0 {
		return
	}
	s.add(&l.seen, 1)
	s.add(&l.count, 1)
	s.add(&l.buckets[latencyBucket(ns)], 1)
	if l.count >= latencyHalve {
		var n int64
		for i := range l.buckets {
			if v := l.buckets[i]; v != 0 {
				s.set(&l.buckets[i], v/2)
				n += v / 2
			}
		}
		s.set(&l.count, n)
	}
	if l.seen > learnedCalls && l.seen%16 != 0 {
		return
	}
	var sum, p50, p99 int64
	for i := range l.buckets {
		sum += l.buckets[i]
		if p50 == 0 && 2*sum >= l.count {
			p50 = latencyEdge(i)
		}
		if 100*sum >= 99*l.count {
			p99 = latencyEdge(i)
			break
		}
	}
	s.set(&l.p50, p50)
	s.set(&l.p99, p99)
}

// freshRatio is the learned part of prompts that is not read from a cache; all of it until exact usage was seen.
func (r *rung) freshRatio() PPM {
	if r.uncached == 0 {
		return Whole
	}
	return PPM((r.uncached - 1) / (billion / int64(Whole)))
}

// freshPart is that part of a prompt, rounded up.
func freshPart(part PPM, input int64) int64 { return mulDivUp(input, int64(part), int64(Whole)) }

const (
	billion = 1_000_000_000
	// freshWeight is how much of the newest call's ratio enters the learned one: an eighth, so that it follows within a few calls.
	freshWeight = 8
)

// learnFresh averages how much of the prompts is not read from a cache, over calls whose usage is exact: the moving average of
// (input − cache_read)/input. The first call sets it. Worked example: 200,000,000 (0.2) and a call of 0.6 give 250,000,000.
func (s *State) learnFresh(r *rung, u *Usage) {
	prompt := int64(u.InputTotal())
	if prompt == 0 {
		return
	}
	now := mulDiv(prompt-int64(u.CacheRead), billion, prompt)
	if r.uncached == 0 {
		s.set(&r.uncached, 1+now)
	} else if old := r.uncached - 1; old != now {
		s.set(&r.uncached, 1+old+(now-old)/freshWeight)
	}
}

const (
	learnedTTL           = 120 * Second
	minTTL, maxTTL       = 30 * Second, 15 * Minute
	defaultHold          = Second
	exhaustedHold        = Hour
	maxHold              = 366 * 24 * Hour
	maxBackoff           = 10 * Second
	minProbeWait         = 10 * Second
	typicalCall          = Second
	farFuture      int64 = 1 << 62
)

// ttl is the life of a lease on this rung.
func (s *State) ttl(r *rung) int64 {
	if t := s.rules.policy.Lease.TTL; t > 0 {
		return t
	}
	if r.latency.seen < learnedCalls {
		return learnedTTL
	}
	return min(max(2*r.latency.p99, minTTL), maxTTL)
}

// callTime predicts how long a call takes: the wait for a slot.
func (r *rung) callTime() int64 {
	if r.latency.seen < learnedCalls {
		return typicalCall
	}
	return max(r.latency.p50, Millisecond)
}

// health is whether the rung may serve a call now.
type health struct {
	reason Reason
	until  int64 // when to ask again
	probe  bool  // this call would be the probe
}

func (s *State) health(number uint32) health {
	r := s.rungs.at(number)
	if r.exhausted > s.now {
		return health{reason: ReasonExhausted, until: r.exhausted}
	}
	held, b := r.heldUntil(), s.breaker(r)
	shut := BreakerState(b.state) != BreakerClosed
	until := b.until // of a probe: until then it may answer
	if !shut {
		until = s.providerOpen(r.provider)
	}
	switch {
	case until > s.now:
		return health{reason: ReasonBreaker, until: max(until, held)}
	case held > s.now: // a probe too waits as long as the provider asked
		return health{reason: ReasonHold, until: held}
	}
	return health{probe: shut}
}

func (r *rung) heldUntil() int64 {
	var last int64
	for _, until := range r.holds {
		last = max(last, until)
	}
	return last
}

// providerOpen is until when the whole provider is shut because two or more of its models are open: until the first of them may be
// probed. After that its other models may serve again even if nobody asks for the open ones; their own breakers judge. 0 when it is not shut.
func (s *State) providerOpen(provider uint32) int64 {
	if s.shut < 2 {
		return 0
	}
	var open, until int64
	for _, number := range s.rules.byProviderRow[provider] {
		if b := s.breaker(s.rungs.at(number)); BreakerState(b.state) != BreakerClosed {
			open++
			if until == 0 || b.until < until {
				until = b.until
			}
		}
	}
	if open < 2 {
		return 0
	}
	return until
}

// breaker is a rung's breaker as it stands now: a probe that has not answered by its deadline has failed then. The next probe's grant
// writes it down.
func (s *State) breaker(r *rung) breaker {
	b := r.breaker
	if BreakerState(b.state) == BreakerProbing && b.until <= s.now {
		b.state, b.failures, b.epoch, b.probeLow, b.probeHigh = int64(BreakerOpen), b.failures+1, b.epoch+1, 0, 0
		b.until += recoveryWait(&s.rules.policy.Breaker, b.failures, b.epoch)
	}
	return b
}

// probing reports whether the lease is the probe whose answer a rung waits for.
func (s *State) probing(l *lease) bool {
	b := s.breaker(s.rungs.at(l.rung))
	return BreakerState(b.state) == BreakerProbing && b.probe() == l.id
}

// unprobed gives the permit of a probe back that ended without a verdict: the next request is the probe.
func (s *State) unprobed(l *lease) HealthFact {
	b := &s.rungs.at(l.rung).breaker
	return HealthFact{State: BreakerOpen, Failures: b.failures, Until: s.now, Epoch: b.epoch}
}

// verdict says what an outcome tells about the rung: the fact that moves its breaker, if any.
func (s *State) verdict(number uint32, l *lease, ok bool, d *Decision) {
	b := s.breaker(s.rungs.at(number))
	state := BreakerState(b.state)
	isProbe := state == BreakerProbing && b.probe() == l.id
	if state != BreakerClosed && !isProbe || l.granted < b.moved && !isProbe {
		return // an old call's verdict on a breaker that has moved since
	}
	rules := &s.rules.policy.Breaker
	h := HealthFact{State: state, Failures: b.failures, Until: b.until, Epoch: b.epoch, Probe: b.probe()}
	switch {
	case ok && state == BreakerClosed && b.failures == 0:
		return
	case ok && state == BreakerClosed:
		h.Failures = 0
	case ok:
		h = HealthFact{State: BreakerClosed, Epoch: b.epoch + 1}
		if rules.Ramp > 0 {
			h.Ramp = rampStart
		}
	default:
		h.Failures++
		if isProbe || h.Failures >= rules.Failures || s.ramped(s.rungs.at(number)) < Whole {
			h.State, h.Probe, h.Epoch = BreakerOpen, LeaseID{}, b.epoch+1
			h.Until = s.now + recoveryWait(rules, h.Failures, h.Epoch)
		}
	}
	d.fact(Fact{Kind: FactBreakerMoved, Rung: number, Lease: l.id, Health: h})
}

// recoveryWait is how long an open rung waits for its probe: recovery, doubled with each failed probe up to 10 s, ±20 % by a hash of the epoch so that rungs do not probe in step.
func recoveryWait(rules *Breaker, failures, epoch int64) int64 {
	wait := rules.Recovery
	for n := rules.Failures; n < failures && wait < maxBackoff; n++ {
		wait = min(2*wait, maxBackoff)
	}
	wait = max(wait, rules.Recovery)
	h := uint64(epoch) * 0x9E3779B97F4A7C15 >> 40 // 24 bits
	return wait - wait/5 + mulDiv(wait, int64(h)*2, 5<<24)
}
