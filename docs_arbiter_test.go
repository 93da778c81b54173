package tba_test

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/token-budget-arbiter/tba/arbiter"
)

// pool drives one state by the public API of arbiter, to ask it what the worked tables of docs/algorithms.md say.
type pool struct {
	t    *testing.T
	s    *arbiter.State
	d    arbiter.Decision
	time arbiter.Time
	ids  uint64
}

// newPool starts at logical and wall time 1 h, in a period of 1,000 h that began at 0, with one provider and no limits
// but those that change sets. Bursts are whole, so that only the rule in question refuses.
func newPool(t *testing.T, change func(*arbiter.Policy)) *pool {
	t.Helper()
	policy := &arbiter.Policy{
		Version: 1, Period: arbiter.PeriodSpec{Kind: "daily"}, Guard: 250 * arbiter.Millisecond, Global: arbiter.NoLimit, Tasks: arbiter.NoLimit,
		Providers: []arbiter.Provider{{
			Name: "p", Limit: arbiter.NoLimit, Ceilings: arbiter.Ceilings{Burst: arbiter.Whole},
			Models: []arbiter.Model{{Limit: arbiter.NoLimit, Prices: []arbiter.Price{{}}}},
		}},
		Classes: []arbiter.Class{{Name: arbiter.DefaultClass, Limit: arbiter.NoLimit}},
		Lease:   arbiter.DefaultLeaseRules, Breaker: arbiter.DefaultBreaker,
		Weights: arbiter.DefaultWeights, Backpressure: arbiter.DefaultBackpressure,
	}
	policy.Lease.StartBy = 0
	change(policy)
	packed, hash, err := policy.Encode()
	if err != nil {
		t.Fatal(err)
	}
	p := &pool{t: t, s: arbiter.NewState("worked")}
	p.advance(arbiter.Hour)
	p.do(&arbiter.Adopt{Version: 1, Hash: hash, Policy: packed, Period: arbiter.Period{Start: 0, End: 1000 * arbiter.Hour}})
	p.advance(arbiter.Second)
	return p
}

func (p *pool) advance(ns int64) {
	p.time.Now += ns
	p.time.Wall += ns
	p.s.Advance(p.time)
}

func (p *pool) do(c arbiter.Command) *arbiter.Answer {
	p.t.Helper()
	if err := p.s.Decide(c, &p.d); err != nil {
		p.t.Fatal(err)
	}
	for i := range p.d.Facts {
		p.s.Apply(&p.d.Facts[i])
	}
	return &p.d.Answer
}

// ask requests n tokens.
func (p *pool) ask(n int64, class string, priority arbiter.Priority) *arbiter.Answer {
	p.t.Helper()
	p.ids++
	r := arbiter.Request{Agent: "a", Class: class, Priority: priority, Output: arbiter.Tokens(n)}
	binary.LittleEndian.PutUint64(r.Lease[:], p.ids)
	r.Fingerprint = r.Sum()
	return p.do(&r)
}

// hold asks for n tokens, which must be granted.
func (p *pool) hold(n int64, class string) arbiter.LeaseID {
	p.t.Helper()
	a := p.ask(n, class, arbiter.ClassPriority)
	if a.Status != arbiter.Granted {
		p.t.Fatalf("%d tokens for %q are refused: %+v", n, class, a.Check)
	}
	return a.Lease.Lease
}

// spend also commits what was used.
func (p *pool) spend(asked, actual int64, class string) {
	p.t.Helper()
	p.do(&arbiter.Commit{Lease: p.hold(asked, class), HasActual: true, Actual: arbiter.Tokens(actual), Outcome: arbiter.OutcomeOK})
}

func perMille(n string) arbiter.PPM { return arbiter.PPM(whole(n)) * arbiter.Whole / 1000 }

// answers gives the last cells of a row as the arbiter has them.
var answers = map[string]func(t *testing.T, row []string) []string{
	"budget": func(t *testing.T, r []string) []string {
		limit := whole(r[0])
		p := newPool(t, func(policy *arbiter.Policy) {
			policy.Global.Tokens = arbiter.Tokens(limit)
			policy.Lease.OnExpiry, policy.Lease.TTL = arbiter.ExpiryAssume, arbiter.Minute
		})
		if n := whole(r[2]); n > 0 {
			p.hold(n, "")
			p.advance(arbiter.Minute + policyGrace + arbiter.Second)
		}
		if n := whole(r[1]); n > 0 {
			p.spend(min(n, limit), n, "")
		}
		if n := whole(r[3]); n > 0 {
			p.hold(n, "")
		}
		granted := p.ask(whole(r[4]), "", arbiter.ClassPriority).Status == arbiter.Granted
		row := p.s.BudgetRows(0)[0]
		return []string{yes(granted), strconv.FormatInt(row.Limit-row.Spent-row.Assumed-row.Held, 10)}
	},
	"cost": func(_ *testing.T, r []string) []string {
		rates := arbiter.Rates{
			Input: arbiter.Pico(whole(r[1])), CacheRead: arbiter.Pico(whole(r[3])),
			CacheWrite: arbiter.Pico(whole(r[5])), Output: arbiter.Pico(whole(r[7])),
		}
		return []string{fmt.Sprint(int64(rates.Cost(arbiter.Usage{
			Input: arbiter.Tokens(whole(r[0])), CacheRead: arbiter.Tokens(whole(r[2])),
			CacheWrite: arbiter.Tokens(whole(r[4])), Output: arbiter.Tokens(whole(r[6])),
		})))}
	},
	"pacing-times": func(t *testing.T, r []string) []string {
		p := newPool(t, func(policy *arbiter.Policy) {
			policy.Providers[0].Ceilings = arbiter.Ceilings{RPM: 60} // burst: a tenth, 6
		})
		start := p.time.Now
		for range whole(r[0]) {
			if a := p.ask(1, "", arbiter.ClassPriority); a.Status == arbiter.Deferred {
				p.advance(a.RetryAfter)
				p.hold(1, "")
			}
		}
		return []string{strconv.FormatInt((p.time.Now-start)/arbiter.Millisecond, 10)}
	},
	"reserve": func(t *testing.T, r []string) []string {
		may := func(level arbiter.Priority) (n int) {
			p := newPool(t, func(policy *arbiter.Policy) {
				policy.Providers[0].RPM = arbiter.Requests(whole(r[0]))
				policy.Reserves[arbiter.High].Rate, policy.Reserves[arbiter.Critical].Rate = perMille(r[1]), perMille(r[2])
			})
			for {
				switch a := p.ask(1, "", level); {
				case a.Status == arbiter.Granted:
					n++
				case a.RetryAfter <= arbiter.Millisecond: // the pace, which rounds each step up
					p.advance(a.RetryAfter)
				default:
					return n
				}
			}
		}
		low, medium := may(arbiter.Low), may(arbiter.Medium)
		if low != medium {
			t.Errorf("LOW may use %d, MEDIUM %d", low, medium)
		}
		return []string{fmt.Sprint(low), fmt.Sprint(may(arbiter.High)), fmt.Sprint(may(arbiter.Critical))}
	},
	"class-share": func(t *testing.T, r []string) []string {
		classes := []arbiter.Class{{Name: "own", Share: perMille(r[1]), Limit: arbiter.NoLimit}}
		others := strings.Fields(r[4])
		for i, o := range others {
			share, _, _ := strings.Cut(o, "/")
			classes = append(classes, arbiter.Class{Name: fmt.Sprint("other", i), Share: perMille(share), Limit: arbiter.NoLimit})
		}
		p := newPool(t, func(policy *arbiter.Policy) {
			policy.Global.Tokens = arbiter.Tokens(whole(r[0]))
			policy.Classes = append(policy.Classes, classes...)
		})
		for i, o := range others {
			if _, used, _ := strings.Cut(o, "/"); used != "0" {
				p.spend(1, whole(used), fmt.Sprint("other", i))
			}
		}
		// Wall time alone decides how much of the period is gone; 0 must be reached from the start at 1 h.
		p.time.Wall = whole(r[3]) * arbiter.Hour
		p.s.Advance(p.time)
		most := whole(r[5])
		above := p.ask(most+1, "own", arbiter.ClassPriority)
		if above.Status != arbiter.Deferred || above.Check.Reason != arbiter.ReasonClass {
			t.Errorf("row %v: one token more: %v %v", r, above.Status, above.Check.Reason)
		}
		allowed := above.Check.Limit
		p.hold(most, "own")
		return []string{strconv.FormatInt(allowed, 10)}
	},
	"ladder": func(t *testing.T, r []string) []string {
		p := newPool(t, func(policy *arbiter.Policy) {
			var tier []arbiter.Rung
			model := policy.Providers[0]
			policy.Providers = nil
			for i, name := range []string{"a", "b", "c"} {
				model.Name, model.Ceilings = name, arbiter.Ceilings{RPM: []arbiter.Requests{100, 200, 500}[i]}
				policy.Providers = append(policy.Providers, model)
				tier = append(tier, arbiter.Rung{Provider: name})
			}
			policy.Ladders = []arbiter.Ladder{{Name: "l", Tiers: [][]arbiter.Rung{tier}}}
		})
		return []string{p.do(&arbiter.Request{Lease: arbiter.LeaseID{1}, Agent: "a", Output: 1, Ladder: "l", Task: r[0], Except: []string{r[1]}}).Lease.Provider}
	},
	"ramp": func(t *testing.T, r []string) []string {
		p := newPool(t, func(policy *arbiter.Policy) {
			policy.Providers[0].Ceilings = arbiter.Ceilings{RPM: arbiter.Requests(whole(r[2])), Burst: arbiter.Whole}
			policy.Breaker.Failures, policy.Breaker.Ramp = 1, whole(r[0])*arbiter.Millisecond
		})
		p.do(&arbiter.Commit{Lease: p.hold(1, ""), HasActual: true, Outcome: arbiter.OutcomeError})
		p.advance(2 * arbiter.Minute)
		p.do(&arbiter.Commit{Lease: p.hold(1, ""), HasActual: true, Actual: 1, Outcome: arbiter.OutcomeOK})
		p.advance(whole(r[1]) * arbiter.Millisecond)
		n := 0
		for p.ask(1, "", arbiter.ClassPriority).Status == arbiter.Granted {
			n++
		}
		return []string{strconv.Itoa(n)}
	},
	"uncached": func(t *testing.T, r []string) []string {
		p := newPool(t, func(policy *arbiter.Policy) {
			policy.Providers[0].TPM, policy.Providers[0].UncachedOnly = 1_000_000, true
		})
		for _, call := range strings.Fields(r[0]) {
			if fresh, prompt, parts := strings.Cut(call, "/"); parts {
				p.do(&arbiter.Commit{Lease: p.hold(1, ""), HasUsage: true, Usage: arbiter.Usage{Input: arbiter.Tokens(whole(fresh)), CacheRead: arbiter.Tokens(whole(prompt) - whole(fresh))}})
			}
		}
		p.advance(2 * arbiter.Minute)
		p.do(&arbiter.Request{Lease: arbiter.LeaseID{9, 9}, Agent: "a", Input: arbiter.Tokens(whole(r[1])), Output: arbiter.Tokens(whole(r[2]))})
		rung := p.s.RungRows()[0]
		return []string{fmt.Sprintf("%d.%06d", rung.Uncached/arbiter.Whole, rung.Uncached%arbiter.Whole), strconv.FormatInt(rung.Gauges[0].Used, 10)}
	},
	"backpressure": func(t *testing.T, r []string) []string {
		p := newPool(t, func(policy *arbiter.Policy) {
			policy.Global.Tokens, policy.Providers[0].TPM = 100_000, 1000
		})
		if spent := int64(decimal(r[0])*100_000 + 0.5); spent > 0 {
			p.spend(1, spent, "")
		}
		p.advance(2 * arbiter.Minute) // the debt leaves the window
		if full := 1000 - int64(decimal(r[1])*1000+0.5); full > 0 {
			p.hold(full, "")
		}
		got := p.s.Pressure()
		return []string{got.Level.String(), fmt.Sprint(got.DelayMS), yes(got.ShedLow)}
	},
}

const policyGrace = 10 * arbiter.Minute

// TestWorkedTablesOfTheArbiter asks the arbiter for what the tables say, through its public API.
func TestWorkedTablesOfTheArbiter(t *testing.T) {
	t.Parallel()
	found := tables(read(t, "docs/algorithms.md"))
	for name, ask := range answers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, row := range found[name] {
				got := ask(t, row)
				if want := row[len(row)-len(got):]; strings.Join(got, " ") != strings.Join(want, " ") {
					t.Errorf("row %v: the arbiter says %v", row, got)
				}
			}
		})
	}
}
