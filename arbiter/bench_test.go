package arbiter

import (
	"encoding/binary"
	"runtime"
	"strconv"
	"testing"
)

// benchPolicy has one provider with RPM, TPM and slots, and limits on four budgets: global, provider, class and task.
func benchPolicy() *Policy {
	huge := Limit{Tokens: MaxAmount, Nanos: MaxAmount}
	return &Policy{
		Version: 1, Period: PeriodSpec{Kind: "daily"}, Guard: 250 * Millisecond, Global: huge, Tasks: huge,
		Providers: []Provider{{Name: "openai", Limit: huge, Ceilings: Ceilings{RPM: 1 << 40, TPM: 1 << 50, MaxConcurrent: 1 << 40}, Models: []Model{{Limit: NoLimit, Prices: []Price{{Rates: Rates{Input: 2_500_000, Output: 10_000_000}}}}}}},
		Classes:   []Class{{Name: DefaultClass, Limit: NoLimit}, {Name: "planner", Share: Whole, Priority: High, Limit: huge}},
		Lease:     DefaultLeaseRules, Breaker: DefaultBreaker, Weights: DefaultWeights, Backpressure: DefaultBackpressure,
	}
}

func adoptForTest(tb testing.TB, s *State, p *Policy, period Period) {
	tb.Helper()
	packed, hash, err := p.Encode()
	if err != nil {
		tb.Fatal(err)
	}
	var d Decision
	if err := s.Decide(&Adopt{Version: p.Version, Hash: hash, Policy: packed, Period: period}, &d); err != nil {
		tb.Fatal(err)
	}
	for i := range d.Facts {
		s.Apply(&d.Facts[i])
	}
}

// step is the time between two cycles: with the 10 min in which a committed lease is remembered, the table settles at 60,000 records.
const step = 10 * Millisecond

// cycler runs request + commit cycles under the undo log, as the writer does.
type cycler struct {
	s       *State
	d       Decision
	now     int64
	n       uint64
	request Request
	commit  Commit
}

func newCycler(tb testing.TB) *cycler {
	c := &cycler{s: NewState("bench"), now: Hour}
	c.s.Advance(Time{c.now, c.now})
	adoptForTest(tb, c.s, benchPolicy(), Period{0, 1 << 62})
	c.request = Request{Agent: "agent-000000000000000001", Class: "planner", Task: "task-0000000000000000001", Input: 1000, Output: 500, Priority: ClassPriority}
	c.request.Fingerprint = c.request.Sum()
	c.commit = Commit{HasUsage: true, Usage: Usage{Input: 1000, Output: 300}, Outcome: OutcomeOK, Latency: 2 * Second}
	return c
}

func (c *cycler) do(tb testing.TB, cmd Command) {
	if err := c.s.Decide(cmd, &c.d); err != nil {
		tb.Fatal(err)
	}
	for i := range c.d.Facts {
		c.s.Apply(&c.d.Facts[i])
	}
}

func (c *cycler) grant(tb testing.TB) LeaseID {
	c.n++
	binary.LittleEndian.PutUint64(c.request.Lease[:], c.n*0x9E3779B97F4A7C15)
	c.do(tb, &c.request)
	if c.d.Answer.Status != Granted {
		tb.Fatalf("refused: %+v", c.d.Answer.Check)
	}
	return c.request.Lease
}

func (c *cycler) settle(tb testing.TB, id LeaseID) {
	c.commit.Lease = id
	c.do(tb, &c.commit)
}

// BenchmarkCycle is one lease cycle, request and commit, in a table that remembers a hundred leases. Target: at most 1 µs and 0 allocations.
func BenchmarkCycle(b *testing.B) {
	benchmarkCycle(b, Second)
}

// BenchmarkCycleRemembered is the same with the default memory of 10 min: 60,000 ended leases beside the live ones.
func BenchmarkCycleRemembered(b *testing.B) {
	benchmarkCycle(b, DefaultLeaseRules.Forget)
}

func benchmarkCycle(b *testing.B, forget int64) {
	c := newCycler(b)
	p := benchPolicy()
	p.Version, p.Lease.Forget = 2, forget
	adoptForTest(b, c.s, p, Period{0, 1 << 62})
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i&15 == 0 { // a batch of 32 decisions
			c.s.Confirm()
			c.s.Begin()
			c.now += 16 * step
			c.s.Advance(Time{c.now, c.now})
		}
		c.settle(b, c.grant(b))
	}
}

// BenchmarkCycleMillionLive is the same beside 1,000,000 live leases. Targets: at most 3 µs; at most 300 bytes a lease.
func BenchmarkCycleMillionLive(b *testing.B) {
	c := newCycler(b)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	live := make([]LeaseID, 1_000_000)
	for i := range live {
		c.request.Agent = "agent-0000000000000" + strconv.Itoa(100000+i%1000)
		live[i] = c.grant(b)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	perLease := float64(after.HeapAlloc-before.HeapAlloc-uint64(16*len(live))) / float64(len(live))
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if i&15 == 0 {
			c.s.Confirm()
			c.s.Begin()
			c.now += 16 * 20 * Microsecond
			c.s.Advance(Time{c.now, c.now})
		}
		// the oldest of a million ends and a new one takes its place
		k := i * 7919 % len(live)
		c.settle(b, live[k])
		live[k] = c.grant(b)
		i++
	}
	b.ReportMetric(perLease, "bytes/lease")
}
