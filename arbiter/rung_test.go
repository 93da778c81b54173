package arbiter

import "testing"

func TestLatencyBuckets(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		ns     int64
		bucket int
	}{{0, 0}, {1, 0}, {1 << 20, 0}, {1<<20 - 1, 0}, {5 << 18, 1}, {1 << 21, 4}, {1<<21 - 1, 3}, {1 << 40, 79}, {1<<40 - 1, 79}, {1 << 62, 79}} {
		if got := latencyBucket(c.ns); got != c.bucket {
			t.Errorf("%d ns: bucket %d, want %d", c.ns, got, c.bucket)
		}
	}
	for b := range latencyBuckets - 1 {
		if edge := latencyEdge(b); latencyBucket(edge) != b+1 || latencyBucket(edge-1) != b {
			t.Errorf("bucket %d: its edge %d belongs to %d, one less to %d", b, edge, latencyBucket(edge), latencyBucket(edge-1))
		}
	}
}

func TestLatencyLearnsAndForgets(t *testing.T) {
	t.Parallel()
	k := openDesk(t, onePolicy())
	l := &k.w.rungs.at(0).latency
	for range 5000 {
		k.w.observe(l, 100*Millisecond)
	}
	if l.p50 < 100*Millisecond || l.p50 > 125*Millisecond+latencyEdge(0) || l.count >= latencyHalve || l.seen != 5000 {
		t.Errorf("after 5,000 calls of 100 ms: p50 %d ms, %d samples", l.p50/Millisecond, l.count)
	}
	for range 8000 {
		k.w.observe(l, 10*Second)
	}
	if l.p50 < 10*Second || l.p50 > 13*Second {
		t.Errorf("after 8,000 calls of 10 s: p50 %d ms", l.p50/Millisecond)
	}
	seen := l.seen
	k.w.observe(l, 0)
	k.w.observe(l, -5)
	if l.seen != seen {
		t.Error("an unknown time counts")
	}
}

// TestLearnedTTL: 120 s until 50 calls are seen, then 2 × p99 within 30 s to 15 min.
func TestLearnedTTL(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ call, low, high int64 }{{100 * Millisecond, 30 * Second, 30 * Second}, {40 * Second, 80 * Second, 110 * Second}, {20 * Minute, 15 * Minute, 15 * Minute}} {
		p := onePolicy()
		p.Lease.TTL = 0
		k := openDesk(t, p)
		for n := range 51 {
			got := k.do(t, at(Hour), requestOf(n)).Answer.Lease
			if ttl := got.Deadline - got.Granted; n < 50 && ttl != 120*Second || n == 50 && (ttl < c.low || ttl > c.high) {
				t.Fatalf("calls of %d ms: the %dth lease lives %d ms", c.call/Millisecond, n, ttl/Millisecond)
			}
			k.do(t, at(Hour), &Commit{Lease: leaseID(n), HasActual: true, Outcome: OutcomeOK, Latency: c.call})
		}
	}
}

func TestRecoveryWait(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ recovery, failures, base int64 }{{5 * Second, 5, 5 * Second}, {5 * Second, 6, 10 * Second}, {5 * Second, 99, 10 * Second}, {60 * Second, 5, 60 * Second}, {60 * Second, 9, 60 * Second}, {Second, 7, 4 * Second}, {Second, 5000, 10 * Second}} {
		rules := Breaker{Failures: 5, Recovery: c.recovery}
		low, high := int64(1<<62), int64(0)
		for epoch := range int64(2000) {
			w := recoveryWait(&rules, c.failures, epoch)
			low, high = min(low, w), max(high, w)
		}
		if low < c.base-c.base/5 || high > c.base+c.base/5 || high-low < c.base/4 {
			t.Errorf("recovery %d s, %d failures: waits %d to %d ms, want %d ms ± 20 %%", c.recovery/Second, c.failures, low/Millisecond, high/Millisecond, c.base/Millisecond)
		}
	}
}

// TestPace: with 60 a minute and a burst of 6, six go at once and then one a second; a cost above the burst goes when the pace has
// caught up.
func TestPace(t *testing.T) {
	t.Parallel()
	p := onePolicy()
	p.Providers[0].Ceilings = Ceilings{RPM: 60}
	k := openDesk(t, p)
	granted, n := 0, 0
	for now := Hour; now < Hour+20*Second; now += 100 * Millisecond {
		for {
			n++
			got := k.do(t, at(now), requestOf(n))
			if got.Answer.Status == Granted {
				granted++
				continue
			}
			if got.Answer.RetryAfter > Second || got.Answer.Check.Reason != ReasonRPM {
				t.Fatalf("after %d ms: %v", (now-Hour)/Millisecond, got)
			}
			break
		}
		if want := 6 + int((now-Hour)/Second); granted != want {
			t.Fatalf("after %d ms: %d granted, want %d", (now-Hour)/Millisecond, granted, want)
		}
	}
	g := gauge{dim: DimTPM, ceiling: 7, burst: 1}
	if got := paceStep(1, g.ceiling); got != 8571428572 {
		t.Errorf("a seventh of a minute is %d, rounded up", got)
	}
	if got := paceStep(1<<60, g.ceiling); got != Minute {
		t.Errorf("more than the ceiling paces %d", got)
	}
}

// twoProviders is cheap (5 $/M output) and dear (50 $/M).
func twoProviders() *Policy {
	p := onePolicy()
	p.Providers[0].Name = "cheap"
	p.Providers[0].Models[0].Prices = []Price{{Rates: Rates{Input: 1_000_000, Output: 5_000_000}}}
	p.Providers = append(p.Providers, Provider{Name: "dear", Limit: NoLimit, Models: []Model{{Limit: NoLimit, Prices: []Price{{Rates: Rates{Input: 10_000_000, Output: 50_000_000}}}}}})
	return p
}

// TestScore is the worked example of admission: HIGH, headroom 0.8, 10 $/M, preferred: 0.7·0.8 + 0.3·0.417 + 0.15 = 0.835; and the order it makes.
func TestScore(t *testing.T) {
	t.Parallel()
	p := onePolicy()
	p.Providers[0].Ceilings = Ceilings{RPM: 10, Burst: Whole}
	k := openDesk(t, p)
	k.grant(t, Hour, requestOf(1))
	k.grant(t, Hour, requestOf(2))
	c := candidate{rules: k.w.rules.rungs[0]}
	k.w.score(&request{Request: &Request{Provider: "openai"}, priority: High}, &c, false)
	if got := c.score / int64(Whole); got < 835_000 || got > 835_200 {
		t.Errorf("score %d, want 835,1xx", got)
	}
	if c.narrow {
		t.Error("0.8 of headroom is not narrow")
	}
	// Latency with its weight taken evenly: p50 = 5 s gives l = 0.5, so 0.625·0.8 + 0.225·0.417 + 0.15 + 0.15·0.5.
	k.w.rungs.at(0).latency.p50 = 5 * Second
	c.score = 0
	k.w.score(&request{Request: &Request{Provider: "openai"}, priority: High}, &c, true)
	if got := c.score / int64(Whole); got < 818_700 || got > 818_900 {
		t.Errorf("score with latency %d, want 818,8xx", got)
	}

	p = twoProviders()
	for i := range p.Providers {
		p.Providers[i].Ceilings = Ceilings{RPM: 100, Burst: Whole}
	}
	k = openDesk(t, p)
	ask := func(n int, level Priority, prefer string) string {
		r := requestOf(n)
		r.Priority, r.Provider = level, prefer
		return k.do(t, at(Hour), r).Answer.Lease.Provider
	}
	for n, c := range []struct {
		level  Priority
		prefer string
		want   string
	}{{Low, "", "cheap"}, {High, "", "cheap"}, {Critical, "dear", "dear"}, {Low, "dear", "cheap"}} {
		if got := ask(n, c.level, c.prefer); got != c.want {
			t.Errorf("%s, prefers %q: %s, want %s", c.level, c.prefer, got, c.want)
		}
	}

	// Below 5 % of headroom a rung is out of the choice, not out of use.
	p.Weights[Low] = Weights{Cost: Whole}
	p.Providers[1].Ceilings.RPM = 10
	k = openDesk(t, p)
	for n := range 109 {
		want := "cheap"
		if n >= 96 && n < 106 {
			want = "dear"
		}
		if n >= 106 { // both are narrow: by price again
			want = "cheap"
		}
		if got := ask(n, Low, ""); got != want {
			t.Fatalf("request %d: %s, want %s", n, got, want)
		}
	}
}

// TestHold: the longest wait that the provider asked for stands, whatever comes later; it holds every rung that shares the ceiling; a
// probe of an open breaker waits for it too.
func TestHold(t *testing.T) {
	t.Parallel()
	p := onePolicy()
	p.Providers[0].Ceilings = Ceilings{TPM: 100_000}
	m := p.Providers[0].Models[0]
	a, b := m, m
	a.Name, b.Name = "a", "b"
	p.Providers[0].Models = []Model{a, b}
	p.Breaker = Breaker{Failures: 1, Recovery: Second}
	k := openDesk(t, p)
	for n := range 5 {
		k.grant(t, Hour, requestOf(n))
	}
	throttle := func(n int, dim Dim, wait int64) reply {
		return k.do(t, at(Hour), &Release{Lease: leaseID(n), Outcome: OutcomeThrottled, Signal: ProviderSignal{Dim: dim, RetryAfter: wait}})
	}
	for n, c := range []struct{ asked, told int64 }{{30 * Second, 30 * Second}, {5 * Second, 30 * Second}, {0, 30 * Second}, {40 * Second, 40 * Second}} {
		if got := throttle(n, DimTPM, c.asked); got.Answer.RetryAfter != c.told {
			t.Errorf("asked to wait %d s: told %d s, want %d s", c.asked/Second, got.Answer.RetryAfter/Second, c.told/Second)
		}
	}
	k.do(t, at(Hour+20*Second), &Commit{Lease: leaseID(4), HasActual: true, Outcome: OutcomeError}) // opens a, to be probed after a second
	for model, reason := range map[string]Reason{"a": ReasonHold, "b": ReasonHold} {
		r := requestOf(20)
		r.Model = model
		got := k.do(t, at(Hour+30*Second), r)
		if got.Answer.Check.Reason != reason || got.Answer.RetryAfter != 10*Second {
			t.Errorf("model %s: %v, want it held for ten more seconds", model, got)
		}
	}
	r := requestOf(21)
	r.Model = "a"
	if got := k.do(t, at(Hour+30*Second), r); got.Answer.Status != Deferred || got.Answer.Check.Reason != ReasonHold {
		t.Errorf("probe in the hold: %v", got)
	}
	if got := k.do(t, at(Hour+40*Second), r); got.Answer.Flags != FlagProbe {
		t.Errorf("probe after it: %v", got)
	}
}

// TestProviderWideBreaker: two open models shut the third, but only until one of them may be probed: nobody may ever ask for those.
func TestProviderWideBreaker(t *testing.T) {
	t.Parallel()
	p := onePolicy()
	m := p.Providers[0].Models[0]
	p.Providers[0].Models = nil
	for _, name := range []string{"a", "b", "c"} {
		m.Name = name
		p.Providers[0].Models = append(p.Providers[0].Models, m)
	}
	p.Breaker = Breaker{Failures: 1, Recovery: 5 * Second}
	k := openDesk(t, p)
	on := func(n int, model string) *Request {
		r := requestOf(n)
		r.Model = model
		return r
	}
	for n, model := range []string{"a", "b"} {
		k.grant(t, Hour, on(n, model))
		k.do(t, at(Hour), &Commit{Lease: leaseID(n), HasActual: true, Outcome: OutcomeError})
	}
	got := k.do(t, at(Hour), on(3, "c"))
	if got.Answer.Check.Reason != ReasonBreaker || got.Answer.RetryAfter < 3*Second {
		t.Fatalf("third model: %v", got)
	}
	if after := k.do(t, at(Hour+got.Answer.RetryAfter), on(3, "c")); after.Answer.Status != Granted {
		t.Errorf("after the wait it was told: %v", after)
	}
}

// TestBreakerVerdicts: a success resets; verdicts of calls from before the last move change nothing; a probe is one call; one that
// never answers is followed by another; a client that tells no outcome but its usage has answered.
func TestBreakerVerdicts(t *testing.T) {
	t.Parallel()
	p := onePolicy()
	p.Breaker = Breaker{Failures: 3, Recovery: 5 * Second}
	k := openDesk(t, p)
	state := func() BreakerState { return k.w.RungRows()[0].Breaker }
	now := Hour
	end := func(n int, o Outcome) {
		k.do(t, at(now), &Commit{Lease: leaseID(n), HasActual: true, Actual: 10, Outcome: o})
	}
	for n := range 12 {
		k.grant(t, now, requestOf(n))
	}
	now += Second
	for n, o := range []Outcome{OutcomeError, OutcomeTimeout, OutcomeOK, OutcomeOverloaded, OutcomeError, OutcomeThrottled, OutcomeError, OutcomeUnset} {
		if end(n, o); state() != BreakerClosed {
			t.Fatalf("%s after call %d", state(), n)
		}
	}
	now += 5 * Second // the throttle is over
	for n := 8; n < 11; n++ {
		end(n, OutcomeError)
	}
	if state() != BreakerOpen {
		t.Fatalf("%s after three failures", state())
	}
	end(11, OutcomeOK) // of before: it closes nothing
	if got := k.do(t, at(now), requestOf(20)); got.Answer.Check.Reason != ReasonBreaker || state() != BreakerOpen {
		t.Fatalf("open: %v", got)
	}
	now += 6 * Second
	if got := k.do(t, at(now), requestOf(21)); got.Answer.Flags != FlagProbe || state() != BreakerProbing {
		t.Fatalf("probe: %v", got)
	}
	if got := k.do(t, at(now), requestOf(22)); got.Answer.Check.Reason != ReasonBreaker || got.Answer.RetryAfter != minProbeWait {
		t.Fatalf("beside the probe: %v", got)
	}
	now += minProbeWait
	got := k.do(t, at(now), requestOf(23)) // the probe never answered: it has failed, and the wait doubles
	if wait := got.Answer.RetryAfter; got.Answer.Check.Reason != ReasonBreaker || wait < 8*Second || wait > 12*Second {
		t.Fatalf("the probe never answered: %v", got)
	}
	k.do(t, at(now), &Signal{Lease: leaseID(21), FirstByte: true}) // too late
	if state() == BreakerClosed {
		t.Fatalf("%s by a late probe", state())
	}
	epoch := k.w.rungs.at(0).breaker.epoch
	now += got.Answer.RetryAfter
	if got := k.do(t, at(now), requestOf(23)); got.Answer.Flags != FlagProbe {
		t.Fatalf("the second probe: %v", got)
	}
	if b := &k.w.rungs.at(0).breaker; b.epoch != epoch+1 || b.failures != 4 {
		t.Errorf("after an unanswered probe: epoch %d, want %d; %d failures, want 4", b.epoch, epoch+1, b.failures)
	}
	k.do(t, at(now), &Signal{Lease: leaseID(21), FirstByte: true}) // the first probe: too late
	if state() != BreakerProbing {
		t.Fatalf("%s by a late probe", state())
	}
	k.do(t, at(now), &Signal{Lease: leaseID(23), FirstByte: true})
	if state() != BreakerClosed {
		t.Fatalf("%s after the first byte", state())
	}
	k.grant(t, now, requestOf(24))
}

// TestProbeGivesItsPermitBack when it ends without a verdict: the next request is the probe, at once.
func TestProbeGivesItsPermitBack(t *testing.T) {
	t.Parallel()
	p := onePolicy()
	p.Breaker = Breaker{Failures: 1, Recovery: 5 * Second}
	p.Lease.StartBy = 2 * Second
	commit := func(o Outcome) Command { return &Commit{Lease: leaseID(2), Outcome: o} }
	release := func(o Outcome) Command { return &Release{Lease: leaseID(2), Outcome: o} }
	for _, c := range []struct {
		name     string
		deferred bool
		end      Command // nil: the call never begins
		state    BreakerState
	}{
		{"commit cancelled", false, commit(OutcomeCancelled), BreakerOpen},
		{"commit not sent", false, commit(OutcomeNotSent), BreakerOpen},
		{"commit unset", false, commit(OutcomeUnset), BreakerOpen},
		{"release unset", false, release(OutcomeUnset), BreakerOpen},
		{"release cancelled", false, release(OutcomeCancelled), BreakerOpen},
		{"release not sent", true, release(OutcomeNotSent), BreakerOpen},
		{"never begun", true, nil, BreakerOpen},
		{"revoked before it began", true, &Revoke{Lease: leaseID(2)}, BreakerOpen},
		{"revoked", false, &Revoke{Lease: leaseID(2)}, BreakerProbing},
		{"commit ok", false, commit(OutcomeOK), BreakerClosed},
		{"commit usage", false, &Commit{Lease: leaseID(2), HasActual: true, Actual: 10}, BreakerClosed},
		{"activated", true, &Signal{Lease: leaseID(2), Activate: true}, BreakerProbing},
	} {
		k := openDesk(t, p)
		k.grant(t, Hour, requestOf(1))
		k.do(t, at(Hour), &Commit{Lease: leaseID(1), HasActual: true, Outcome: OutcomeError})
		now := Hour + 7*Second
		r := requestOf(2)
		r.Deferred = c.deferred
		if got := k.do(t, at(now), r); got.Answer.Flags != FlagProbe {
			t.Fatalf("%s: no probe: %v", c.name, got)
		}
		if now += 3 * Second; c.end != nil {
			now -= 2 * Second
			k.do(t, at(now), c.end)
		}
		got := k.do(t, at(now), requestOf(3))
		if state := k.w.RungRows()[0].Breaker; c.state == BreakerOpen && (got.Answer.Flags != FlagProbe || state != BreakerProbing) ||
			c.state == BreakerProbing && got.Answer.Check.Reason != ReasonBreaker || c.state == BreakerClosed && (got.Answer.Flags != 0 || state != BreakerClosed) {
			t.Errorf("%s: the next request: %v, breaker %s", c.name, got, state)
		}
	}
}
