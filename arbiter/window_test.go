package arbiter

import (
	"fmt"
	"slices"
	"testing"
)

// The window against an exact log kept at the provider's side: when each call really arrives, anywhere between its grant and
// start_by + guard. In no 60 s may more arrive than the ceiling allows (P5), and under saturation nearly all of it is used.

// arrival is a call at the provider: when, and what it counts.
type arrival struct {
	at, x int64
	sent  bool
}

// fullest is the largest sum in any closed span of the log.
func fullest(log []*arrival, span int64) (most int64) {
	sent := slices.DeleteFunc(slices.Clone(log), func(a *arrival) bool { return !a.sent })
	slices.SortFunc(sent, func(a, b *arrival) int { return int(a.at - b.at) })
	var sum int64
	for i, first := 0, 0; i < len(sent); i++ {
		sum += sent[i].x
		for ; sent[i].at-sent[first].at > span; first++ {
			sum -= sent[first].x
		}
		most = max(most, sum)
	}
	return most
}

// stream is a fleet that asks for one rung and a provider that keeps the log.
type stream struct {
	dice
	s         *State
	d         Decision
	now       int64
	guard     int64
	startBy   int64
	generated bool
	lateness  string // when calls arrive: "early", "late", "any" or "trap": late at first, then at once
	loyal     bool   // every call is made: nothing of the window is wasted; those of each other minute are reserved first, and extended
	n         int
	calls     []*call
	tokens    []*arrival // what the token window is about
	requests  []*arrival
	granted   int
	paths     map[string]int
}

// call is a lease that is not settled yet.
type call struct {
	id            LeaseID
	reserved      bool
	last          int64 // the latest arrival that is allowed
	input, output int64
	count, use    *arrival
	next          int64 // when something happens to it
	end           string
	extended      int
}

func newStream(tb failer, d dice, p *Policy, lateness string) *stream {
	tb.Helper()
	f := &stream{dice: d, s: NewState("pool"), now: 100 * Hour, guard: p.Guard, startBy: p.Lease.StartBy, generated: p.Providers[0].Generated, lateness: lateness, paths: map[string]int{}}
	f.s.Advance(at(f.now))
	if err := f.decide(tb, p.adopt(tb, Period{0, 1 << 62})); err != nil {
		tb.Fatalf("adopt: %v", err)
	}
	return f
}

func (f *stream) decide(tb failer, c Command) *Error {
	tb.Helper()
	err := f.s.Decide(c, &f.d)
	for i := range f.d.Facts {
		f.s.Apply(&f.d.Facts[i])
	}
	return err
}

// arrives draws when a call reaches the provider.
func (f *stream) arrives(from, to int64) int64 {
	switch {
	case f.lateness == "early" || f.lateness == "trap" && f.now/Minute%2 == 1:
		return from
	case f.lateness == "late" || f.lateness == "trap":
		return to
	}
	return from + int64(f.pick("arrives", int(to-from)/1000+1))*1000
}

// ask requests one lease and decides its fate.
func (f *stream) ask(tb failer, input, output int64) bool {
	tb.Helper()
	f.n++
	r := Request{Lease: leaseID(f.n), Input: Tokens(input), Output: Tokens(output), Priority: Critical, Deferred: f.pick("deferred", 4) == 0}
	if f.loyal {
		r.Deferred = f.now/Minute%2 == 0
	}
	if err := f.decide(tb, &r); err != nil {
		tb.Fatalf("request: %v", err)
	}
	if f.d.Answer.Status != Granted {
		return false
	}
	f.granted++
	c := &call{id: r.Lease, reserved: r.Deferred, last: f.now + f.startBy + f.guard, input: input, output: output,
		count: &arrival{x: 1}, use: &arrival{x: max(1, input+output)}}
	f.requests, f.tokens, f.calls = append(f.requests, c.count), append(f.tokens, c.use), append(f.calls, c)
	if !c.reserved {
		f.send(c, f.now)
	}
	c.end = [...]string{"commit", "commit", "commit", "cancel", "not sent", "silence"}[f.pick("end", 6)]
	if f.loyal {
		c.end = "commit"
	}
	c.next = f.now + int64(f.pick("next", 40))*100*Millisecond
	if c.reserved && f.startBy > 0 {
		c.next = f.now + int64(f.pick("activate", int(f.startBy/Millisecond)+500))*Millisecond
		if f.loyal {
			c.next = f.now + f.startBy*7/10
		}
	}
	return true
}

// send decides when the call that begins at from arrives.
func (f *stream) send(c *call, from int64) {
	c.count.at, c.count.sent = f.arrives(from, c.last), true
	c.use.at, c.use.sent = c.count.at, true
}

// move lets something happen to a call; done when it is over.
func (f *stream) move(tb failer, c *call) (done bool) {
	tb.Helper()
	if c.reserved {
		return f.begin(tb, c)
	}
	f.paths[c.end]++
	switch c.end {
	case "commit": // the call is over, so it has arrived
		c.count.at, c.use.at = min(c.count.at, f.now), min(c.use.at, f.now)
		u := Usage{Input: Tokens(c.input), Output: Tokens(c.output)}
		if f.generated { // counted as produced: here all at the end
			u.Output = Tokens(f.pick("used", int(c.output)+1))
			c.use.at, c.use.x = f.now, int64(u.Total())
		}
		f.decide(tb, &Commit{Lease: c.id, HasUsage: true, Usage: u, Outcome: OutcomeOK})
	case "cancel": // on its way at most
		c.count.at, c.use.at = min(c.count.at, f.now+f.guard), min(c.use.at, f.now+f.guard)
		f.decide(tb, &Release{Lease: c.id, Outcome: OutcomeCancelled})
	case "not sent":
		if c.count.at <= f.now { // too late to say so
			c.end = "commit"
			return f.move(tb, c)
		}
		c.count.sent, c.use.sent = false, false
		f.decide(tb, &Release{Lease: c.id, Outcome: OutcomeNotSent})
	case "silence": // the lease ends by itself; a silent call may produce until then
		if f.generated {
			c.use.at = f.now + int64(f.pick("silent", 20))*Second
		}
	}
	return true
}

// begin activates a reserved lease, extends it, or finds that it is over.
func (f *stream) begin(tb failer, c *call) (done bool) {
	tb.Helper()
	switch way := f.pick("begin", 5); {
	case (way < 2 || f.loyal) && c.extended < 3:
		c.extended++
		if f.decide(tb, &Extend{Lease: c.id, Arrival: f.now}) == nil {
			f.paths["extended"]++
			c.next += f.startBy * 7 / 10
			return false
		}
	case way == 2 && !f.loyal:
		f.paths["never begun"]++
		return true
	}
	if f.decide(tb, &Signal{Lease: c.id, Activate: true}) != nil {
		f.paths["too late"]++
		return true // the caller was told: it must not call
	}
	f.paths["activated"]++
	c.reserved, c.last = false, f.now+f.guard
	f.send(c, f.now)
	c.next = f.now + int64(f.pick("next", 40))*100*Millisecond
	return false
}

// tick moves time and everything that is due.
func (f *stream) tick(tb failer, d int64) {
	tb.Helper()
	f.now += d
	f.s.Advance(at(f.now))
	f.calls = slices.DeleteFunc(f.calls, func(c *call) bool {
		for c.next <= f.now {
			if f.move(tb, c) {
				return true
			}
		}
		return false
	})
}

func windowPolicy(rpm Requests, tpm Tokens, startBy int64, burst PPM, generated bool) *Policy {
	p := onePolicy()
	p.Providers[0].Ceilings = Ceilings{RPM: rpm, TPM: tpm, Burst: burst, Generated: generated}
	p.Lease.StartBy, p.Lease.TTL, p.Lease.CommitBy, p.Lease.Forget = startBy, 20*Second, Minute, Second
	return p
}

// TestWindowNeverOverfull asks in random bursts, gaps and floods, with every way a lease can go, and looks at the log.
func TestWindowNeverOverfull(t *testing.T) {
	t.Parallel()
	minutes, admitted, paths := int64(8), 0, map[string]int{}
	switch {
	case soak:
		minutes = 120
	case underRace:
		minutes = 3
	}
	seed := uint64(0)
	for _, startBy := range []int64{0, 2 * Second, 10 * Second} {
		for _, lateness := range []string{"early", "late", "any", "trap"} {
			for _, burst := range []PPM{0, Whole} {
				for _, generated := range []bool{false, true} {
					seed++
					p := windowPolicy(900, 300_000, startBy, burst, generated)
					f := newStream(t, newSeed(seed), p, lateness)
					if startBy > 0 && burst == Whole {
						f.loyal = true
					}
					for end := f.now + minutes*Minute; f.now < end; {
						switch f.pick("mood", 12) {
						case 0:
							f.tick(t, int64(f.pick("gap", 70))*Second)
						case 1, 2:
							for f.ask(t, int64(f.pick("in", 1500)), int64(f.pick("out", 800))) {
							}
						case 3: // as much as is given, for a while
							for range 900 {
								f.tick(t, 150*Millisecond)
								for f.ask(t, int64(f.pick("in", 300)), int64(f.pick("out", 200))) {
								}
							}
						}
						f.tick(t, int64(1+f.pick("step", 400))*Millisecond)
						for range f.pick("some", 20) {
							f.ask(t, int64(f.pick("in", 300)), int64(f.pick("out", 200)))
						}
					}
					name := fmt.Sprintf("start_by %d ms, %s, burst %d, generated %v", startBy/Millisecond, lateness, burst, generated)
					requests, tokens := fullest(f.requests, Minute), fullest(f.tokens, Minute)
					if requests > 900 {
						t.Errorf("%s: %d calls in 60 s against 900", name, requests)
					}
					if tokens > 300_000 {
						t.Errorf("%s: %d tokens in 60 s against 300,000", name, tokens)
					}
					if startBy == 0 && max(1000*requests/900, 1000*tokens/300_000) < 900 {
						t.Errorf("%s: at most %d calls and %d tokens in 60 s: no ceiling was tried", name, requests, tokens)
					}
					admitted += f.granted
					for k, n := range f.paths {
						paths[k] += n
					}
				}
			}
		}
	}
	if admitted < 100_000 && !underRace {
		t.Errorf("%d admissions prove little", admitted)
	}
	for _, k := range []string{"commit", "cancel", "not sent", "silence", "extended", "never begun", "too late", "activated"} {
		if paths[k] == 0 {
			t.Errorf("no call went the way %q", k)
		}
	}
	t.Logf("%d admissions, %v", admitted, paths)
}

// TestWindowIsUsed saturates one ceiling for ten minutes: docs/algorithms.md §3 says 99.4 % with start_by 0 and 96 % with 2 s.
func TestWindowIsUsed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		startBy   int64
		burst     PPM
		atLeast   PPM
		lateness  string
		admission string
	}{
		{0, 0, 992_000, "early", "paced"}, {0, Whole, 980_000, "early", "by windows alone"},
		{2 * Second, 0, 960_000, "any", "paced"},
	} {
		const ceiling, minutes = 1200, 10
		p := windowPolicy(ceiling, 0, c.startBy, c.burst, false)
		f := newStream(t, newSeed(7), p, c.lateness)
		request := Request{Priority: Critical, Input: 10, Output: 10}
		for f.s.Advance(at(f.now)); f.now < 100*Hour+minutes*Minute+5*Second; f.tick(t, 10*Millisecond) {
			for {
				f.n++
				request.Lease = leaseID(f.n)
				if f.decide(t, &request); f.d.Answer.Status != Granted {
					break
				}
				a := &arrival{at: f.arrives(f.now, f.now+f.startBy+f.guard), x: 1, sent: true}
				f.requests = append(f.requests, a)
			}
		}
		if n := fullest(f.requests, Minute); n > ceiling {
			t.Errorf("start_by %d: %d in 60 s against %d", c.startBy, n, ceiling)
		}
		sent := 0
		for _, a := range f.requests {
			if a.at < 100*Hour+minutes*Minute {
				sent++
			}
		}
		if used := ratio(int64(sent), ceiling*minutes); used < c.atLeast {
			t.Errorf("start_by %d ms, %s: %d of %d used, %d ppm, want %d", c.startBy/Millisecond, c.admission, sent, ceiling*minutes, used, c.atLeast)
		}
	}
}

// TestWindowRing puts charges at the edges of the largest guard and start_by: they leave neither early nor twice.
func TestWindowRing(t *testing.T) {
	t.Parallel()
	p := windowPolicy(1, 0, MaxStartBy, Whole, false)
	p.Guard = MaxGuard
	f := newStream(t, newSeed(1), p, "late")
	for round := range 40 {
		r := &Request{Lease: leaseID(round), Deferred: round%2 == 1}
		if f.decide(t, r); f.d.Answer.Status != Granted {
			t.Fatalf("round %d: %+v", round, f.d.Answer)
		}
		start := f.now + MaxStartBy
		if r.Deferred { // dated as far ahead as an extension can: two start_by from here
			f.tick(t, MaxStartBy-Millisecond)
			if err := f.decide(t, &Extend{Lease: r.Lease, Arrival: f.now}); err != nil {
				t.Fatal(err)
			}
			f.tick(t, MaxStartBy-Millisecond)
			if err := f.decide(t, &Signal{Lease: r.Lease, Activate: true}); err != nil {
				t.Fatal(err)
			}
			start = f.now
		}
		full := start + windowSpan + MaxGuard
		for f.now < full {
			f.tick(t, min(7*Second+int64(round)*13*Millisecond, full-f.now))
			f.decide(t, &Request{Lease: leaseID(1000 + round)})
			if f.d.Answer.Status == Granted && f.now <= full {
				t.Fatalf("round %d: granted %d ms before the entry leaves", round, (full-f.now)/Millisecond)
			}
		}
		f.tick(t, 2*bucketLength)
		if err := f.s.Check(); err != nil {
			t.Fatal(err)
		}
		f.tick(t, int64(round%3)*10*Minute) // and after an idle time of any length
	}
}
