package gateway

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/client"
)

// books are the money spent and the leases, as the pool has them.
func (f *far) books(t testing.TB) (nanos int64, leases []arbiter.LeaseRow) {
	t.Helper()
	err := f.engine.View(context.Background(), "default", func(s *arbiter.State) error {
		s.EachBudget(0, func(r *arbiter.BudgetRow) {
			if r.Unit == arbiter.UnitNanos {
				nanos = r.Spent
			}
		}, arbiter.KindGlobal)
		leases = s.LeaseRows(arbiter.LeaseFilter{})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return nanos, leases
}

// TestServedReachesTheArbiter asserts that what served is the price, in this process and across a network.
func TestServedReachesTheArbiter(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]func(*far) Leaser{"in process": func(f *far) Leaser { return f.local }, "far": func(f *far) Leaser { return f.remote }} {
		f := newFar(t, RemoteOptions{})
		p := farPolicy()
		p.Version = 2
		p.Providers[0].ServiceTiers = []arbiter.ServiceTier{{Name: "flex", Factor: arbiter.Whole / 2}}
		p.Providers[0].Models = append(p.Providers[0].Models, arbiter.Model{Name: "tiny", Limit: arbiter.NoLimit, Prices: []arbiter.Price{{
			Rates: arbiter.Rates{Input: 100_000, Output: 100_000}, Tiers: []arbiter.Tier{{OverInput: 500, Rates: arbiter.Rates{Input: 200_000, Output: 200_000}}}}}})
		if err := f.engine.Adopt(t.Context(), "default", p); err != nil {
			t.Fatal(err)
		}
		sum := int64(0)
		for _, c := range []struct {
			Report
			want int64
		}{
			{Report{}, 700*2000 + 100*10_000},
			{Report{Tier: "flex"}, (700*2000 + 100*10_000) / 2},
			{Report{Model: "tiny"}, 800 * 200},
			{Report{Model: "tiny", Tier: "flex", Longest: 400}, 800 * 100 / 2},
		} {
			a := ask("", "wide-1")
			a.Pool = "default"
			g, err := of(f).Acquire(t.Context(), a)
			if err != nil || g.Status != arbiter.Granted {
				t.Fatalf("%s: %+v, %v", name, g, err)
			}
			c.Report.HasUsage, c.Report.Usage, c.Report.Outcome = true, arbiter.Usage{Input: 700, Output: 100}, arbiter.OutcomeOK
			if name == "far" {
				err = f.commit(g.Lease, c.Report)
			} else {
				err = g.Lease.Commit(c.Report)
			}
			if err != nil {
				t.Fatal(err)
			}
			sum += c.want
			if got := f.spends(t, sum); got != sum {
				t.Errorf("%s: %+v: %d nano-USD in all, want %d", name, c.Report, got, sum)
			}
		}
	}
}

// spends waits until the pool has spent as much, for a while, and returns what it has spent.
func (f *far) spends(t testing.TB, want int64) (nanos int64) {
	t.Helper()
	deadline, tick := time.After(5*time.Second), time.NewTicker(2*time.Millisecond)
	defer tick.Stop()
	for {
		if nanos, _ = f.books(t); nanos == want {
			return nanos
		}
		select {
		case <-tick.C:
		case <-deadline:
			return nanos
		}
	}
}

// TestRemoteAsksAsLocalDoes asserts that a lease from far away begins at once, in the tier and at the priority that were asked for, LOW too.
func TestRemoteAsksAsLocalDoes(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]func(*far) Leaser{"in process": func(f *far) Leaser { return f.local }, "far": func(f *far) Leaser { return f.remote }} {
		f := newFar(t, RemoteOptions{})
		p := farPolicy()
		p.Version, p.Classes[1].Priority = 2, arbiter.High
		p.Providers[0].ServiceTiers = []arbiter.ServiceTier{{Name: "flex", Factor: arbiter.Whole / 2}}
		if err := f.engine.Adopt(t.Context(), "default", p); err != nil {
			t.Fatal(err)
		}
		a := ask("", "wide-1")
		a.Pool, a.Class, a.Priority, a.Tier = "default", "batch", arbiter.Low, "flex"
		if g, err := of(f).Acquire(t.Context(), a); err != nil || g.Status != arbiter.Granted {
			t.Fatalf("%s: %+v, %v", name, g, err)
		}
		_, leases := f.books(t)
		if len(leases) != 1 || leases[0].Priority != arbiter.Low || leases[0].StartBy != leases[0].Granted || leases[0].Nanos != (1000*2000+2000*10_000)/2 {
			t.Errorf("%s: %+v", name, leases)
		}
	}
}

// TestRemoteFigures asserts that a grant from far away tells what is left, as one in this process does.
func TestRemoteFigures(t *testing.T) {
	t.Parallel()
	f := newFar(t, RemoteOptions{})
	a := ask("", "slow-1")
	a.Pool, a.Task = "default", "t"
	deadline, tick := time.After(10*time.Second), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for {
		a.Model = "wide-1"
		g := f.grant(t, a)
		if g.Figures != nil {
			break
		}
		if _, _, err := g.Lease.Release(t.Context(), Report{Outcome: arbiter.OutcomeNotSent}); err != nil {
			t.Fatal(err)
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("no figures")
		}
	}
	a.Model, a.Task = "slow-1", ""
	g := f.grant(t, a)
	tightest, limits := g.Figures()
	if tightest == nil || tightest.ScopeKind != arbiter.KindGlobal || tightest.Unit != arbiter.UnitTokens || tightest.Limit != 100_000 || tightest.ResetsAt == 0 {
		t.Errorf("budget %+v", tightest)
	}
	if len(limits) != 1 || limits[0].Dim != arbiter.DimRPM || limits[0].Limit != 1 || limits[0].Per != time.Minute || !limits[0].HasReset {
		t.Errorf("ceilings %+v", limits)
	}
}

// TestFiguresOfTheWire asserts that limits come back as they were told.
func TestFiguresOfTheWire(t *testing.T) {
	t.Parallel()
	day := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	tightest, limits := toFigures([]client.LimitState{
		{Name: "model/openai/gpt-5.4", Unit: "nano_usd", Limit: 100, Used: 20, Held: 5, ResetsAt: day},
		{Name: "tpm", Unit: "tokens", Limit: 10, Used: 8, Held: 5, Reset: time.Minute, HasReset: true},
		{Name: "rpd", Unit: "requests", Limit: 7},
		{Name: "class/next", Unit: "tokens", Limit: 1}, // of a later server: only the first is the tightest
	})
	if c := tightest; c == nil || c.ScopeKind != arbiter.KindModel || c.Provider != "openai" || c.Scope != "gpt-5.4" || c.Unit != arbiter.UnitNanos || c.Limit-c.Used-c.Held != 75 || c.ResetsAt != day.UnixNano() {
		t.Errorf("%+v", c)
	}
	if len(limits) != 2 || limits[0].Remaining != 0 || limits[0].Reset != time.Minute || limits[1].Per != 24*time.Hour || limits[1].HasReset || limits[1].Remaining != 7 {
		t.Errorf("%+v", limits)
	}
	if tightest, limits = toFigures(nil); tightest != nil || limits != nil {
		t.Errorf("of nothing: %+v, %+v", tightest, limits)
	}
}

// TestRemoteTellsItsWords asserts that what the arbiter says of a model without a price reaches the gateway.
func TestRemoteTellsItsWords(t *testing.T) {
	t.Parallel()
	f := newFar(t, RemoteOptions{})
	g, err := f.remote.Acquire(t.Context(), ask("", "nobody-1"))
	if err != nil || g.Status != arbiter.Denied || !strings.Contains(g.Message, `unpriced model "nobody-1"`) {
		t.Errorf("%+v, %v", g, err)
	}
	if r := refuseGrant(&g, dialects(t)[0], refusedAt, refuseOptions{}); r.message != g.Message {
		t.Errorf("refused with %q", r.message)
	}
}
