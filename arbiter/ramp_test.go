package arbiter

import (
	"testing"

	"pgregory.net/rapid"
)

// rampPolicy has one provider whose breaker opens at once.
func rampPolicy(c Ceilings) *Policy {
	p := onePolicy()
	p.Providers[0].Ceilings = c
	p.Breaker.Failures, p.Lease.TTL = 1, 10*Minute
	return p
}

// comeBack opens the rung and brings it back by a good probe, at the time that it returns.
func (k *desk) comeBack(tb failer) int64 {
	tb.Helper()
	k.grant(tb, Hour, requestOf(900_001))
	k.do(tb, at(Hour), &Commit{Lease: leaseID(900_001), HasActual: true, Actual: 1, Outcome: OutcomeError})
	now := Hour + 2*Minute // the window is empty
	if r := k.do(tb, at(now), requestOf(900_002)); r.Answer.Flags&FlagProbe == 0 {
		tb.Fatalf("no probe: %v", r)
	}
	k.do(tb, at(now), &Commit{Lease: leaseID(900_002), HasActual: true, Actual: 1, Outcome: OutcomeOK})
	return now
}

// TestRampBounds: in any story of grants, ends, 429s and time, what was started since the rung came back stays below its part of each
// ceiling, and what runs below its part of the slots; a 429 halves the part once for all that were granted before it.
func TestRampBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := Ceilings{RPM: Requests(rapid.IntRange(1, 200).Draw(t, "rpm")), TPM: Tokens(rapid.IntRange(150, 40_000).Draw(t, "tpm")), MaxConcurrent: Requests(rapid.IntRange(1, 50).Draw(t, "slots")), Burst: Whole}
		p := rampPolicy(c)
		k := openDesk(t, p)
		start := k.comeBack(t)
		now, from, part := start, start, 0.1
		calls, running := 0, map[int]int64{}
		for n := range rapid.IntRange(1, 150).Draw(t, "steps") {
			now += rapid.SampledFrom([]int64{0, 0, 0, 100 * Millisecond, Second, 3 * Second}).Draw(t, "wait")
			f := min(part+0.9*float64(now-from)/float64(p.Breaker.Ramp), 1)
			if end := rapid.IntRange(0, 2*n+1).Draw(t, "end"); running[end] != 0 {
				granted := running[end]
				delete(running, end)
				if !rapid.Bool().Draw(t, "throttled") {
					k.do(t, at(now), &Commit{Lease: leaseID(end), HasActual: true, Actual: 150, Outcome: OutcomeOK})
					continue
				}
				k.do(t, at(now), &Release{Lease: leaseID(end), Outcome: OutcomeThrottled, Signal: ProviderSignal{RetryAfter: 1}})
				if f < 1 && granted > from {
					from, part = now, max(f/2, 0.01)
				}
				now += Millisecond // the hold
				continue
			}
			r := k.do(t, at(now), requestOf(n))
			if r.Answer.Status != Granted {
				continue
			}
			calls++
			running[n] = now
			for _, b := range []struct {
				what    string
				n       int
				ceiling int64
			}{{"calls", calls, int64(c.RPM)}, {"tokens", 150 * calls, int64(c.TPM)}, {"slots", len(running), int64(c.MaxConcurrent)}} {
				if most := max(f*float64(b.ceiling)+1e-6, 1); float64(b.n) > most && f < 1 {
					t.Fatalf("%d ms after the probe: %d %s, the ramp is at %.3f of %d", (now-start)/Millisecond, b.n, b.what, f, b.ceiling)
				}
			}
		}
	})
}

// TestRampTellsWhen: a request that the ramp defers is granted at the time it was told, and not before; after the ramp all is open.
func TestRampTellsWhen(t *testing.T) {
	t.Parallel()
	k := openDesk(t, rampPolicy(Ceilings{RPM: 50, Burst: Whole}))
	start := k.comeBack(t)
	now, n := start, 0
	for ; n < 49; n++ { // the probe is in the window too
		r := k.do(t, at(now), requestOf(n))
		if a := r.Answer; a.Status == Deferred {
			if a.Check.Reason != ReasonRPM || a.Check.Limit >= 50 || a.RetryAfter > 10*Second {
				t.Fatalf("call %d: %v", n, r)
			}
			if early := k.do(t, at(now+a.RetryAfter-Millisecond), requestOf(n)); early.Answer.Status == Granted {
				t.Fatalf("call %d is granted before it was told", n)
			}
			now += a.RetryAfter
			r = k.do(t, at(now), requestOf(n))
		}
		if r.Answer.Status != Granted {
			t.Fatalf("call %d after %d ms: %v", n, (now-start)/Millisecond, r)
		}
	}
	if took := now - start; took < 9*Second || took > 10*Second {
		t.Errorf("the whole ceiling after %d ms, want just below 10 s", took/Millisecond)
	}
	if r := k.do(t, at(start+10*Second), requestOf(n)); r.Answer.Check.Limit != 50 {
		t.Errorf("after the ramp: %v", r)
	}
}

// TestCutOncePerEpoch: a wall of 429s cuts the ceilings once; those that were granted after it may cut again; successes give it back.
func TestCutOncePerEpoch(t *testing.T) {
	t.Parallel()
	p := onePolicy()
	p.Lease.TTL = Hour
	p.Providers[0].Ceilings = Ceilings{RPM: 100, MaxConcurrent: 2, Burst: Whole}
	p.Providers[0].MaxConcurrent = 1000
	k := openDesk(t, p)
	inForce := func(want int64, when string) {
		t.Helper()
		if g := k.w.RungRows()[0].Gauges[0]; g.InForce != want || g.Ceiling != 100 {
			t.Errorf("%s: %d of %d in force, want %d", when, g.InForce, g.Ceiling, want)
		}
	}
	throttle := func(n int, now int64) {
		k.do(t, at(now), &Release{Lease: leaseID(n), Outcome: OutcomeThrottled, Signal: ProviderSignal{Dim: DimRPM, RetryAfter: Second}})
	}
	for n := range 60 {
		k.grant(t, Hour, requestOf(n))
	}
	for n := range 50 {
		throttle(n, Hour+Second)
	}
	inForce(93, "a wall of 429s")
	now := Hour + 3*Second
	k.grant(t, now, requestOf(100))
	throttle(55, now) // from before the cut
	inForce(93, "a straggler")
	throttle(100, now+Second)
	inForce(87, "the next epoch") // 0.8649, rounded up
	now += 3 * Second
	for n := 200; n < 226; n++ { // 61 are in the window
		k.grant(t, now, requestOf(n))
	}
	if r := k.do(t, at(now), requestOf(226)); r.Answer.Status != Deferred || r.Answer.Check.Limit != 87 || r.Answer.Check.Used != 87 {
		t.Errorf("above what is in force: %v", r)
	}
	k.do(t, at(now), &Commit{Lease: leaseID(56), HasActual: true, Actual: 1, Outcome: OutcomeOK}) // from before
	for n := 200; n < 225; n++ {
		k.do(t, at(now), &Commit{Lease: leaseID(n), HasActual: true, Actual: 1, Outcome: OutcomeOK})
	}
	if got := k.w.rungs.at(0).factor(); got != 864_900+25*200 {
		t.Errorf("after 25 successes %d", got)
	}
	k.w.rungs.at(0).cut = 150
	k.f.rungs.at(0).cut = 150
	k.do(t, at(now), &Commit{Lease: leaseID(225), HasActual: true, Actual: 1, Outcome: OutcomeOK})
	inForce(100, "never above the ceiling")
}

// TestCutLeavesOneCall: cuts end at a hundredth, and a call that is larger than what is left in force still goes, alone.
func TestCutLeavesOneCall(t *testing.T) {
	t.Parallel()
	p := onePolicy()
	p.Providers[0].Ceilings = Ceilings{TPM: 200, MaxConcurrent: 3, Burst: Whole}
	k := openDesk(t, p)
	now := Hour
	for n := range 100 {
		k.grant(t, now, requestOf(n)) // 150 tokens
		k.do(t, at(now+Second), &Release{Lease: leaseID(n), Outcome: OutcomeThrottled, Signal: ProviderSignal{RetryAfter: Second}})
		now += 2 * Minute
	}
	if got := k.w.rungs.at(0).factor(); got != leastPart {
		t.Errorf("after 100 cuts %d", got)
	}
	k.grant(t, now, requestOf(1000))
	if r := k.do(t, at(now), requestOf(1001)); r.Answer.Status != Deferred {
		t.Errorf("two at once: %v", r)
	}
	if r := k.do(t, at(now), &Request{Lease: leaseID(1002), Output: 201, Priority: ClassPriority}); r.Answer.Check.Reason != ReasonTooLarge || r.Answer.Check.Limit != 200 {
		t.Errorf("larger than the ceiling: %v", r)
	}
}
