package arbiter

import (
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

// slowMulDiv is mulDiv and mulDivUp with big numbers.
func slowMulDiv(a, b, c int64, up bool) int64 {
	n := new(big.Int).Mul(big.NewInt(a), big.NewInt(b))
	if up {
		n.Add(n, big.NewInt(c-1))
	}
	if n.Div(n, big.NewInt(c)); !n.IsInt64() {
		return math.MaxInt64
	}
	return n.Int64()
}

func TestMulDiv(t *testing.T) {
	t.Parallel()
	check := func(a, b, c int64) bool {
		return mulDiv(a, b, c) == slowMulDiv(a, b, c, false) && mulDivUp(a, b, c) == slowMulDiv(a, b, c, true)
	}
	edges := []int64{0, 1, 2, 999, 1_000_000, MaxAmount, MaxAmount + 1, 1 << 62, math.MaxInt64 - 1, math.MaxInt64}
	for _, a := range edges {
		for _, b := range edges {
			for _, c := range edges[1:] {
				if !check(a, b, c) {
					t.Errorf("%d · %d / %d = %d, up %d", a, b, c, mulDiv(a, b, c), mulDivUp(a, b, c))
				}
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := rapid.Int64Min(0).Draw(t, "a"), rapid.Int64Min(0).Draw(t, "b"), rapid.Int64Min(1).Draw(t, "c")
		if !check(a, b, c) {
			t.Fatalf("%d · %d / %d = %d, up %d", a, b, c, mulDiv(a, b, c), mulDivUp(a, b, c))
		}
	})
}

func TestRatioAndShare(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b int64
		want PPM
	}{{0, 0, Whole}, {5, 0, Whole}, {0, 10, 0}, {5, 10, Whole / 2}, {10, 10, Whole}, {20, 10, 2 * Whole}, {-3, 10, 0}, {1, 3, 333_333}, {MaxAmount, MaxAmount, Whole}} {
		if got := ratio(c.a, c.b); got != c.want {
			t.Errorf("ratio(%d, %d) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
	for _, c := range []struct {
		f       PPM
		n, want int64
	}{{Whole, 7, 7}, {Whole / 10, 99, 9}, {0, 99, 0}, {Whole / 3, 1000, 333}, {Whole, MaxAmount, MaxAmount}} {
		if got := c.f.share(c.n); got != c.want {
			t.Errorf("%d of %d = %d, want %d", c.f, c.n, got, c.want)
		}
	}
}

// T23 and T24: cached tokens were charged at the input rate and at the cache rate. Usage comes apart: see provider.
func TestCost(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		rates Rates
		usage Usage
		want  Nanos
	}{
		{"T23", Rates{Input: 2_000_000, CacheRead: 200_000, CacheWrite: 2_500_000}, Usage{Input: 853, CacheRead: 11, CacheWrite: 5}, 1_720_700},
		{"T24", Rates{Input: 500_000, CacheRead: 50_000, Output: 3_000_000}, Usage{Input: 20_212 - 16_298, CacheRead: 16_298, Output: 931}, 5_564_900},
		{"one token of 0.0028 $/M is rounded up", Rates{Input: 2800}, Usage{Input: 1}, 3},
		{"rounded once, not per kind", Rates{Input: 100, Output: 100, CacheRead: 100}, Usage{Input: 1, Output: 1, CacheRead: 1}, 1},
		{"free", Rates{}, Usage{Input: MaxAmount}, 0},
		{"nothing", Rates{Input: 1 << 40}, Usage{}, 0},
		{"held at the bound", Rates{Input: math.MaxInt64, Output: math.MaxInt64}, Usage{Input: MaxAmount / 2, Output: MaxAmount / 2}, MaxAmount},
	} {
		if got := c.rates.Cost(c.usage); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		tokens, pico := rapid.Int64Range(0, 1<<40), rapid.Int64Range(0, 1<<40)
		u := Usage{Input: Tokens(tokens.Draw(t, "in")), CacheRead: Tokens(tokens.Draw(t, "read")), CacheWrite: Tokens(tokens.Draw(t, "write")), CacheWriteLong: Tokens(tokens.Draw(t, "long")), Output: Tokens(tokens.Draw(t, "out"))}
		p := Price{Rates: Rates{Pico(pico.Draw(t, "a")), Pico(pico.Draw(t, "b")), Pico(pico.Draw(t, "c")), Pico(pico.Draw(t, "d")), Pico(pico.Draw(t, "e"))},
			Tiers: []Tier{{OverInput: Tokens(tokens.Draw(t, "over")), Rates: Rates{Input: 7, Output: 9}}}}
		if got, want := p.Cost(u), cost([]Price{p}, u, u.InputTotal()); int64(got) != want {
			t.Fatalf("%+v at %+v: %d, want %d", u, p, got, want)
		}
		factor := PPM(rapid.Int64Range(0, int64(MaxFactor)).Draw(t, "factor"))
		if got, want := p.RatesFor(u.InputTotal()).cost(u, factor), costBy([]Price{p}, u, u.InputTotal(), factor); int64(got) != want {
			t.Fatalf("%+v at %+v × %d: %d, want %d", u, p, factor, got, want)
		}
	})
}

func TestUsageValid(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		u  Usage
		ok bool
	}{
		{Usage{}, true}, {Usage{Input: MaxAmount}, true}, {Usage{Output: 5, Reasoning: 5}, true},
		{Usage{Input: -1}, false}, {Usage{Input: MaxAmount + 1}, false}, {Usage{Input: MaxAmount, Output: 1}, false},
		{Usage{Output: 5, Reasoning: 6}, false}, {Usage{Reasoning: -1}, false}, {Usage{Input: math.MaxInt64, Output: math.MaxInt64}, false},
	} {
		if err := c.u.Valid(); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c.u, err)
		}
	}
}

func TestPriceAt(t *testing.T) {
	t.Parallel()
	prices := []Price{{From: 100, To: 200, Rates: Rates{Input: 1}}, {From: 200, Rates: Rates{Input: 2}}}
	for at, want := range map[int64]Pico{99: -1, 100: 1, 199: 1, 200: 2, 1 << 60: 2} {
		got := Pico(-1)
		if p := PriceAt(prices, at); p != nil {
			got = p.Input
		}
		if got != want {
			t.Errorf("at %d: %d, want %d", at, got, want)
		}
	}
}

func TestCheapness(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		output Pico
		want   PPM
	}{{0, Whole}, {1, Whole}, {1_000_000, Whole}, {1_718_281, Whole}, {2_800_000, 749_063}, {10_000_000, 417_032}, {15_000_000, 360_673}, {75_000_000, 230_907}} {
		if got := cheapness(c.output); got < c.want-1 || got > c.want+1 {
			t.Errorf("%d pico: %d, want %d", c.output, got, c.want)
		}
	}
}

// TestAmountsAtTheEdge asks and commits figures at, above and far above the bound, with no limit and in shadow mode: nothing wraps.
func TestAmountsAtTheEdge(t *testing.T) {
	t.Parallel()
	for _, shadow := range []bool{false, true} {
		p := onePolicy()
		p.Shadow = shadow
		p.Providers[0].Models[0].Prices[0].Output = 1 << 50
		p.Classes = append(p.Classes, Class{Name: "c", Share: Whole / 2, Limit: NoLimit})
		if shadow {
			p.Providers[0].Ceilings = Ceilings{RPM: 1, TPM: 1, Generated: true}
		}
		k := openDesk(t, p)
		for _, q := range []*Request{{Input: -1}, {Output: -1}, {Input: MaxAmount + 1}, {Input: MaxAmount, Output: 1}, {Input: math.MaxInt64, Output: math.MaxInt64}, {Min: -1}, {Min: MaxAmount + 1}} {
			q.Lease, q.Class = leaseID(1), "c"
			if got := k.do(t, at(Hour), q); got.Err == nil || got.Err.Code != CodeInvalid || got.Facts != 0 {
				t.Errorf("%+v: %v", q, got)
			}
		}
		full := 0
		for n := range 3000 { // within one window, held, spent and given back
			q := &Request{Lease: leaseID(n), Class: "c", Task: "t", Output: MaxAmount, Undivided: true}
			got := k.w.Decide(q, &k.d)
			if got != nil && got.Reason == "counter_full" {
				full++
				continue
			}
			if got != nil || k.d.Answer.Status != Granted {
				t.Fatalf("%d: %v %+v", n, got, k.d.Answer)
			}
			for i := range k.d.Facts {
				k.w.Apply(&k.d.Facts[i])
			}
			var end Command = &Commit{Lease: q.Lease, HasActual: true, Actual: MaxAmount}
			if n%2 == 0 {
				end = &Release{Lease: q.Lease}
			}
			if n%3 == 0 {
				continue
			}
			if err := k.w.Decide(end, &k.d); err != nil {
				t.Fatal(err)
			}
			for i := range k.d.Facts {
				k.w.Apply(&k.d.Facts[i])
			}
		}
		if err := k.w.Check(); err != nil {
			t.Errorf("shadow %v: %v", shadow, err)
		}
		if full == 0 {
			t.Errorf("shadow %v: 3,000 leases of 2^53 tokens found no end", shadow)
		}
		for _, r := range k.w.BudgetRows(0) {
			if r.Spent < 0 || r.Held < 0 || r.Shadow < 0 {
				t.Errorf("shadow %v: wrapped: %+v", shadow, r)
			}
		}
		if v := k.w.ClassRank("c", Low); v < 0 {
			t.Errorf("class rank %d", v)
		}
		if got := k.do(t, at(Hour), &Commit{Lease: leaseID(0), Outcome: OutcomeThrottled, Signal: ProviderSignal{RetryAfter: math.MaxInt64}}); got.Err == nil {
			if until := k.w.RungRows()[0].Until; until < Hour {
				t.Errorf("a hold of for ever ends at %d", until)
			}
		}
	}
}
