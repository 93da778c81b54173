package arbiter

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

func TestMinusLog2(t *testing.T) {
	t.Parallel()
	const unit = 1 << logBits
	for _, c := range []struct {
		x    uint64
		want int64
	}{{1<<64 - 1, 0}, {1<<63 - 1, unit}, {3<<62 - 1, 6_963_174}, {1<<62 - 1, 2 * unit}, {0, 64 * unit}, {1, 63 * unit}} {
		if got := minusLog2(c.x); got < c.want-1 || got > c.want+1 {
			t.Errorf("%#x: %d, want %d", c.x, got, c.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		x := rapid.Uint64().Draw(t, "x")
		want := (64 - math.Log2(float64(x)+1)) * unit
		if got := float64(minusLog2(x)); math.Abs(got-want) > 2 {
			t.Fatalf("%#x: %v, want %v", x, got, want)
		}
	})
}

// ladderPolicy has providers p0.. with these requests a minute, in tiers of one ladder "l".
func ladderPolicy(tiers ...[]Requests) *Policy {
	p := onePolicy()
	model := p.Providers[0].Models[0]
	p.Providers = nil
	l := Ladder{Name: "l"}
	for _, tier := range tiers {
		var rungs []Rung
		for _, rpm := range tier {
			name := "p" + strconv.Itoa(len(p.Providers))
			p.Providers = append(p.Providers, Provider{Name: name, Limit: NoLimit, Ceilings: Ceilings{RPM: rpm, Burst: Whole}, Models: []Model{model}})
			rungs = append(rungs, Rung{Provider: name})
		}
		l.Tiers = append(l.Tiers, rungs)
	}
	p.Ladders = []Ladder{l}
	return p
}

func onLadder(n int, task string, except ...string) *Request {
	r := requestOf(n)
	r.Ladder, r.Task, r.Except = "l", task, except
	r.Fingerprint = r.Sum()
	return r
}

// placed is where the ladder would put each of n tasks now.
func placed(tb failer, s *State, n int) []string {
	tb.Helper()
	var d Decision
	list := make([]string, n)
	for i := range list {
		if err := s.Decide(onLadder(1_000_000+i, "task-"+strconv.Itoa(i)), &d); err != nil || d.Answer.Status != Granted {
			tb.Fatalf("task %d: %v %+v", i, err, d.Answer)
		}
		list[i] = d.Answer.Lease.Provider
	}
	return list
}

// near reports whether got of n is within five standard deviations of the share that weight has of all.
func near(got, n int, weight, all float64) bool {
	share := weight / all
	return math.Abs(float64(got)-share*float64(n)) <= 5*math.Sqrt(float64(n)*share*(1-share))+1
}

func perRung(list []string) map[string]int {
	count := map[string]int{}
	for _, name := range list {
		count[name]++
	}
	return count
}

// fail opens the breaker of a provider's rung.
func (k *desk) fail(tb failer, now int64, provider string) {
	tb.Helper()
	for n := range int(k.w.rules.policy.Breaker.Failures) {
		r := requestOf(2_000_000 + int(mix(tombKey(KindProvider, provider))%1_000_000)*100 + n)
		for i := range k.w.rules.policy.Providers {
			if name := k.w.rules.policy.Providers[i].Name; name != provider {
				r.Except = append(r.Except, name)
			}
		}
		k.grant(tb, now, r)
		k.do(tb, at(now), &Commit{Lease: r.Lease, HasActual: true, Actual: 1, Outcome: OutcomeError})
	}
}

// TestLadderSpread: tasks are spread over a tier by what its rungs can do and stay there. When a rung fails its own tasks alone move, to
// the rest of the tier by their weights; when the tier is gone they spread over all of the next one; and they come back.
func TestLadderSpread(t *testing.T) {
	t.Parallel()
	const tasks = 4000
	k := openDesk(t, ladderPolicy([]Requests{100_000, 200_000, 500_000}, []Requests{300_000, 300_000, 600_000}, []Requests{900_000}))
	calm := placed(t, k.w, tasks)
	for name, weight := range map[string]float64{"p0": 1, "p1": 2, "p2": 5} {
		if n := perRung(calm)[name]; !near(n, tasks, weight, 8) {
			t.Errorf("%s has %d of %d tasks for its %v/8", name, n, tasks, weight)
		}
	}
	if !slices.Equal(calm, placed(t, k.w, tasks)) {
		t.Error("a task moved for nothing")
	}

	k.fail(t, Hour, "p2")
	one := placed(t, k.w, tasks)
	moved := 0
	for i := range one {
		if calm[i] != "p2" && one[i] != calm[i] {
			t.Fatalf("task %d left %s, which is healthy", i, calm[i])
		}
		if calm[i] == "p2" && one[i] == "p1" {
			moved++
		}
	}
	if all := perRung(calm)["p2"]; !near(moved, all, 2, 3) || perRung(one)["p2"] != 0 {
		t.Errorf("of %d tasks of p2 %d went to p1, want two thirds: %v", all, moved, perRung(one))
	}

	k.fail(t, Hour, "p0")
	k.fail(t, Hour, "p1")
	all := perRung(placed(t, k.w, tasks))
	for name, weight := range map[string]float64{"p3": 1, "p4": 1, "p5": 2} {
		if !near(all[name], tasks, weight, 4) {
			t.Errorf("the tier is gone: %v, want %s to have %v/4", all, name, weight)
		}
	}

	// The names decide, not the order of the file, nor what else there is.
	p := ladderPolicy([]Requests{100_000, 200_000, 500_000}, []Requests{300_000, 300_000, 600_000}, []Requests{900_000})
	slices.Reverse(p.Providers)
	slices.Reverse(p.Ladders[0].Tiers[0])
	if other := openDesk(t, p); !slices.Equal(calm, placed(t, other.w, tasks)) {
		t.Error("another order of the file places tasks elsewhere")
	}
}

// TestLadderComesBack: a probe and its answer bring every task home.
func TestLadderComesBack(t *testing.T) {
	t.Parallel()
	p := ladderPolicy([]Requests{100_000, 100_000}, []Requests{100_000})
	p.Breaker.Ramp = 0
	k := openDesk(t, p)
	calm := placed(t, k.w, 100)
	k.fail(t, Hour, "p0")
	now := Hour + 20*Second
	probe := k.do(t, at(now), onLadder(1, "any"))
	if l := probe.Answer.Lease; probe.Answer.Flags&FlagProbe == 0 || l.Provider != "p0" {
		t.Fatalf("the due probe: %v", probe)
	}
	k.do(t, at(now), &Commit{Lease: leaseID(1), HasActual: true, Actual: 10, Outcome: OutcomeOK})
	if !slices.Equal(calm, placed(t, k.w, 100)) {
		t.Error("not all tasks are where they were")
	}
}

// TestLadderFull: a rung that is full is passed over by each call in its own order: a crowd of one task fills the tier and goes on.
func TestLadderFull(t *testing.T) {
	t.Parallel()
	k := openDesk(t, ladderPolicy([]Requests{10, 20}, []Requests{40, 40}))
	b := &batch{t: at(Hour)}
	for n := range 120 {
		b.commands = append(b.commands, onLadder(n, ""))
	}
	got := map[string]int{}
	for i, r := range k.run(t, b) {
		if r.Answer.Status == Granted {
			got[r.Answer.Lease.Provider]++
			if first := r.Answer.Lease.Provider < "p2"; first != (i < 30) {
				t.Errorf("call %d went to %s", i, r.Answer.Lease.Provider)
			}
		} else if r.Answer.Status != Deferred || r.Answer.Check.Reason != ReasonRPM {
			t.Errorf("call %d: %v", i, r)
		}
	}
	if want := map[string]int{"p0": 10, "p1": 20, "p2": 40, "p3": 40}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestLadderNoRung: nothing is left, or the ladder is unknown.
func TestLadderNoRung(t *testing.T) {
	t.Parallel()
	k := openDesk(t, ladderPolicy([]Requests{10}, []Requests{10}))
	if r := k.do(t, at(Hour), onLadder(1, "", "p0", "p1", "ghost")); r.Answer.Status != Denied || r.Answer.Check.Reason != ReasonNoRung {
		t.Errorf("all excepted: %v", r)
	}
	r := onLadder(2, "")
	r.Ladder = "main"
	if got := k.do(t, at(Hour), r); got.Err == nil || got.Err.Code != CodeInvalid || got.Err.Reason != "unknown_ladder" {
		t.Errorf("unknown: %v", got)
	}
	r.Ladder, r.Model = "l", "m"
	if got := k.do(t, at(Hour), r); got.Err == nil || got.Err.Reason != "ladder_and_model" {
		t.Errorf("both: %v", got)
	}
}

func TestLadderValidation(t *testing.T) {
	t.Parallel()
	base := ladderPolicy([]Requests{10}, []Requests{10})
	for want, l := range map[string][]Ladder{
		"policy: ladder name \"\" is empty or double":                               {{Tiers: base.Ladders[0].Tiers}},
		"policy: ladder name \"l\" is empty or double":                              {base.Ladders[0], base.Ladders[0]},
		"policy: ladder l: no tier: name at least one rung":                         {{Name: "l"}},
		"policy: ladder l: tier 2 has no rung":                                      {{Name: "l", Tiers: [][]Rung{{{Provider: "p0"}}, {}}}},
		"policy: ladder l: tier 1: rung p9/m: provider \"p9\" is not in the policy": {{Name: "l", Tiers: [][]Rung{{{"p9", "m"}}}}},
		"policy: ladder l: tier 1: rung p0/m: provider p0 has no model \"m\"":       {{Name: "l", Tiers: [][]Rung{{{"p0", "m"}}}}},
		"policy: ladder l: rung p0 is in it twice":                                  {{Name: "l", Tiers: [][]Rung{{{Provider: "p0"}}, {{Provider: "p0"}}}}},
	} {
		p := *base
		p.Ladders = l
		if err := p.Validate(); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestLadderLikeTheFormula holds each placement on a ladder against the formula in floating point and against each rung asked alone: the
// first that takes the call, of the due probes, then tier by tier, those with headroom first, by −ln(u)/weight.
func TestLadderLikeTheFormula(t *testing.T) {
	t.Parallel()
	granted, probes := 0, 0
	seeds := 40
	if underRace {
		seeds = 5
	}
	for seed := range seeds {
		m := newDirector(t, newSeed(uint64(7000+seed)), 30)
		m.tame = true
		m.open(t)
		for range 60 {
			m.k.run(t, m.next(t, 8))
			s := m.k.w
			if s.rules.ladders["l0"] == nil {
				continue
			}
			q := m.request()
			q.Ladder, q.Model, q.Provider, q.Min, q.Blocked = "l0", "", "", 0, nil
			if s.find(q.Lease) != nil {
				continue
			}
			q.Fingerprint = q.Sum()
			if _, err := s.validRequest(q); err != nil {
				continue
			}
			want, probe := naiveLadder(s, q)
			var d Decision
			if err := s.Decide(q, &d); err != nil {
				continue
			}
			got := ""
			if d.Answer.Status == Granted {
				granted++
				got = Rung{d.Answer.Lease.Provider, d.Answer.Lease.Model}.String()
			}
			if probe {
				probes++
			}
			if got != want {
				t.Fatalf("seed %d: %+v\nplaced on %q, the formula says %q", seed, q, got, want)
			}
		}
	}
	if granted < 50 && !underRace || probes == 0 && !underRace {
		t.Errorf("only %d grants, %d probes", granted, probes)
	}
}

// naiveLadder is where the rule puts a request; empty when no rung takes it.
func naiveLadder(s *State, q *Request) (name string, probe bool) {
	type place struct {
		rung          Rung
		probe, narrow bool
		tier          int
		rank          float64
	}
	var places []place
	p := s.rules.policy
	for tier, rungs := range p.Ladders[0].Tiers {
		for _, r := range rungs {
			provider, model, _ := p.find(r)
			number := s.rules.providers[provider].rungs[model]
			r.Model = p.Providers[provider].Models[model].Name
			if excepted(q, r.Provider, r.Model) {
				continue
			}
			rr, h := s.rules.rungs[number], s.health(number)
			x := place{rung: r, probe: h.probe, tier: tier}
			x.narrow = s.rateHeadroom(rr, h) < Whole/20 || s.budgetHeadroom(rr) < Whole/20
			u := (float64(mix((&request{Request: q}).spot()^mix(tombKey(KindProvider, r.Provider+"\x00"+r.Model)))) + 1) / math.Exp2(64)
			if len(rungs) > 1 {
				weight := naiveWeight(p, rungs, r)
				for part := Whole; part > s.ramped(s.rungs.at(number)); part /= 2 {
					weight /= 2
				}
				x.rank = -math.Log(u) / weight
			}
			places = append(places, x)
		}
	}
	yes := func(b bool) int {
		if b {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(places, func(a, b place) int {
		return cmp.Or(yes(b.probe)-yes(a.probe), a.tier-b.tier, yes(a.narrow)-yes(b.narrow), cmp.Compare(a.rank, b.rank))
	})
	for _, x := range places {
		alone := *q
		alone.Ladder, alone.Model, alone.Except = "alone", "", nil
		s.rules.ladders["alone"] = &ladderRules{rungs: []ladderRung{{number: s.numberOf(x.rung)}}}
		var d Decision
		err := s.Decide(&alone, &d)
		delete(s.rules.ladders, "alone")
		if err == nil && d.Answer.Status == Granted {
			return x.rung.String(), x.probe
		}
	}
	return "", false
}

func (s *State) numberOf(r Rung) uint32 {
	provider, model, _ := s.rules.policy.find(r)
	return s.rules.providers[provider].rungs[model]
}

// naiveWeight is a rung's capacity in the first dimension that all of the tier have.
func naiveWeight(p *Policy, tier []Rung, r Rung) float64 {
	of := func(r Rung, dim Dim) float64 {
		provider, model, _ := p.find(r)
		least := math.Inf(1)
		for _, c := range [...]*Ceilings{&p.Providers[provider].Ceilings, &p.Providers[provider].Models[model].Ceilings} {
			if n := map[Dim]int64{DimTPM: int64(c.TPM), DimRPM: int64(c.RPM), DimSlots: int64(c.MaxConcurrent), DimInputTPM: int64(c.InputTPM), DimOutputTPM: int64(c.OutputTPM), DimRPD: int64(c.RPD)}[dim]; n > 0 {
				least = min(least, float64(n))
			}
		}
		return least
	}
	for _, dim := range []Dim{DimTPM, DimRPM, DimSlots, DimInputTPM, DimOutputTPM, DimRPD} {
		if !slices.ContainsFunc(tier, func(r Rung) bool { return math.IsInf(of(r, dim), 1) }) {
			return of(r, dim)
		}
	}
	return 1
}

func TestLadderAllocatesNothing(t *testing.T) { //nolint:paralleltest // it counts allocations
	k := openDesk(t, ladderPolicy([]Requests{1_000_000, 2_000_000, 3_000_000}, []Requests{3_000_000}))
	r := onLadder(1, "task", "p1", "p9/m")
	k.grant(t, Hour, onLadder(2, "task"))
	if n := testing.AllocsPerRun(100, func() {
		if err := k.w.Decide(r, &k.d); err != nil || k.d.Answer.Status != Granted {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
