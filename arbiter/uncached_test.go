package arbiter

import (
	"testing"

	"pgregory.net/rapid"
)

// cachedCall asks for a prompt of 9,500 tokens and an answer of 500.
func cachedCall(n int) *Request {
	r := &Request{Lease: leaseID(n), Agent: "a", Input: 9500, Output: 500, Priority: ClassPriority, NoStartDelay: true}
	r.Fingerprint = r.Sum()
	return r
}

// mostlyCached is its bill: 10,000 tokens, 8,000 of them from the cache.
var mostlyCached = Usage{Input: 1500, CacheRead: 8000, Output: 500}

// T27: cached tokens were counted against TPM although the provider does not count them.
func TestT27(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		uncached bool
		fit      int
	}{{true, 5}, {false, 1}} {
		p := onePolicy()
		p.Providers[0].Ceilings = Ceilings{TPM: 10_000, Burst: Whole, UncachedOnly: c.uncached}
		k := openDesk(t, p)
		commit := func(n int, now int64) {
			k.do(t, at(now), &Commit{Lease: leaseID(n), HasUsage: true, Usage: mostlyCached, Outcome: OutcomeOK})
		}
		k.grant(t, Hour, cachedCall(0))
		if used, _ := used(t, k.w, "openai", "", DimTPM); used != 10_000 {
			t.Errorf("the first call is charged %d: nothing is learned yet", used)
		}
		commit(0, Hour+Second) // the ratio is learned
		if used, _ := used(t, k.w, "openai", "", DimTPM); c.uncached && used != 2000 || !c.uncached && used != 10_000 {
			t.Errorf("uncached only %v: after its commit %d", c.uncached, used)
		}
		now, fit := Hour+2*Minute, 0
		for n := 1; n < 20; n++ { // one after the other, within the minute
			got := k.do(t, at(now), cachedCall(n))
			if got.Answer.Status != Granted {
				if a := got.Answer; a.Status != Deferred || a.Check.Reason != ReasonTPM || a.Check.Used != 10_000 || c.uncached && a.Check.Asked != 2000 {
					t.Errorf("uncached only %v: %v", c.uncached, got)
				}
				break
			}
			if got.Answer.Lease.Tokens() != 10_000 {
				t.Errorf("the lease holds %d: budgets count cached tokens", got.Answer.Lease.Tokens())
			}
			fit++
			commit(n, now+500*Millisecond)
			now += Second
		}
		if fit != c.fit {
			t.Errorf("uncached only %v: %d calls fit into a minute, want %d", c.uncached, fit, c.fit)
		}
	}
}

// TestUncachedDebt: a cold cache is debt in the current bucket, an answer after the entry has left the window refunds nothing.
func TestUncachedDebt(t *testing.T) {
	t.Parallel()
	p := onePolicy()
	p.Lease.TTL = 10 * Minute
	p.Providers[0].Ceilings = Ceilings{InputTPM: 20_000, Burst: Whole, UncachedOnly: true}
	k := openDesk(t, p)
	in := func(want int64, when string) {
		t.Helper()
		if used, _ := used(t, k.w, "openai", "", DimInputTPM); used != want {
			t.Errorf("%s: %d in the window, want %d", when, used, want)
		}
	}
	k.grant(t, Hour, cachedCall(1))
	in(9500, "not learned")
	k.do(t, at(Hour), &Commit{Lease: leaseID(1), HasUsage: true, Usage: mostlyCached})
	in(1500, "corrected")
	k.grant(t, Hour, cachedCall(2))
	in(3000, "by the learned ratio")
	k.do(t, at(Hour+30*Second), &Commit{Lease: leaseID(2), HasUsage: true, Usage: Usage{Input: 9500, Output: 1}})
	in(11_000, "a cold cache")
	k.w.Advance(at(Hour + 61*Second))
	in(8000, "the debt counts from its own time")
	k.w.Advance(at(Hour + 91*Second))
	in(0, "and goes")
	// The ratio is now 1500/9500 + (1 − 1500/9500)/8 = 0.263157: ceil(9500 × 0.263157) = 2500.
	k.grant(t, Hour+91*Second, cachedCall(3))
	in(2500, "learned from both")
	k.grant(t, Hour+140*Second, cachedCall(4))
	k.do(t, at(Hour+160*Second), &Commit{Lease: leaseID(3), HasUsage: true, Usage: Usage{Input: 100, CacheRead: 9400}})
	in(2500, "too late to refund")
	// A figure without parts teaches nothing and refunds nothing.
	k.do(t, at(Hour+160*Second), &Commit{Lease: leaseID(4), HasActual: true, Actual: 10})
	in(2500, "no parts")
}

// TestUncachedLikeTheModel: random calls against a list of charges.
func TestUncachedLikeTheModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := onePolicy()
		p.Lease.TTL = 2 * Hour
		p.Providers[0].Ceilings = Ceilings{TPM: 1 << 40, Burst: Whole, UncachedOnly: true}
		k := openDesk(t, p)
		type charge struct{ at, x int64 }
		type open struct{ charge, in int64 }
		var charges []charge
		running := map[int]open{}
		ratio, now := int64(-1), Hour
		for n := range rapid.IntRange(1, 60).Draw(t, "steps") {
			now += rapid.SampledFrom([]int64{0, 50 * Millisecond, Second, 20 * Second, 59 * Second}).Draw(t, "wait")
			if id := rapid.IntRange(0, n).Draw(t, "id"); running[id] != (open{}) {
				o := running[id]
				delete(running, id)
				u := Usage{Input: Tokens(rapid.IntRange(0, 3000).Draw(t, "in")), CacheRead: Tokens(rapid.IntRange(0, 3000).Draw(t, "read")), Output: Tokens(rapid.IntRange(0, 500).Draw(t, "out"))}
				k.do(t, at(now), &Commit{Lease: leaseID(id), HasUsage: true, Usage: u})
				actual, c := int64(u.Input+u.Output), &charges[o.charge]
				if actual > c.x {
					charges = append(charges, charge{now, actual - c.x})
				} else if c.at/bucketLength >= (now-Minute-p.Guard)/bucketLength {
					c.x = actual
				}
				if prompt := int64(u.InputTotal()); prompt > 0 {
					if sample := int64(u.Input) * billion / prompt; ratio < 0 {
						ratio = sample
					} else {
						ratio += (sample - ratio) / 8
					}
				}
			} else {
				in, out := rapid.IntRange(0, 5000).Draw(t, "prompt"), rapid.IntRange(0, 500).Draw(t, "answer")
				k.grant(t, now, &Request{Lease: leaseID(n), Input: Tokens(in), Output: Tokens(out), Priority: ClassPriority, NoStartDelay: true})
				fresh := int64(in)
				if ratio >= 0 {
					fresh = (int64(in)*(ratio/1000) + 999_999) / 1_000_000
				}
				running[n] = open{int64(len(charges)), int64(in)}
				charges = append(charges, charge{now, max(fresh+int64(out), 1)})
			}
			var want int64
			for _, c := range charges {
				if c.at/bucketLength >= (now-Minute-p.Guard)/bucketLength {
					want += c.x
				}
			}
			if got, _ := used(t, k.w, "openai", "", DimTPM); got != want {
				t.Fatalf("step %d: %d in the window, the model has %d", n, got, want)
			}
		}
	})
}

// TestLearnedSurvivesTheSnapshot: a state that has learned is written in the second format, one that has not in the first.
func TestLearnedSurvivesTheSnapshot(t *testing.T) {
	t.Parallel()
	k := openDesk(t, onePolicy())
	if format := k.w.AppendTo(nil)[0]; format != stateFormat1 {
		t.Errorf("format %d before anything is learned", format)
	}
	k.grant(t, Hour, cachedCall(1))
	k.do(t, at(Hour), &Commit{Lease: leaseID(1), HasUsage: true, Usage: mostlyCached})
	b := k.w.AppendTo(nil)
	s, err := DecodeState(b)
	if err != nil || b[0] != stateFormat2 || s.RungRows()[0].Uncached != 157_894 {
		t.Fatalf("format %d, %v", b[0], err)
	}
	k.compare(t, k.w, s, "writer and its snapshot")
}
