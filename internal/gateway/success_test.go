package gateway

import (
	"net/http"
	"testing"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/provider"
)

func TestSucceed(t *testing.T) {
	t.Parallel()
	d, _ := provider.Lookup(provider.OpenAI)
	h := http.Header{}
	succeed(h, &Grant{
		ID: "01J", Provider: "openai", Model: "gpt-5.4", Decision: "1-2-3", Waited: 1234567 * time.Microsecond, Level: arbiter.Level(2), DelayMS: 800,
		Figures: func() (*arbiter.Check, []provider.Limit) {
			return &arbiter.Check{ScopeKind: arbiter.KindClass, Scope: "batch", Unit: arbiter.UnitNanos, Limit: 5_000, Used: 1_000, Held: 500, ResetsAt: refusedAt.Add(time.Hour).UnixNano()}, nil
		},
	}, d, refusedAt)
	for name, want := range map[string]string{
		"x-tba-origin": "upstream", "x-tba-lease": "01J", "x-tba-provider": "openai", "x-tba-model": "gpt-5.4", "x-tba-decision": "1-2-3",
		"x-tba-wait-ms": "1234", "x-tba-backpressure": "moderate;delay-ms=800", "x-tba-budget": "class/batch;remaining=3500;unit=nano_usd;resets=2026-11-29T13:00:00Z",
	} {
		if got := h.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	h = http.Header{}
	succeed(h, &Grant{ID: "01J", Provider: "tool"}, d, refusedAt)
	for _, name := range []string{"X-Tba-Model", "X-Tba-Budget", "X-Tba-Decision"} {
		if v, ok := h[name]; ok {
			t.Errorf("%s: %q although nothing is known", name, v)
		}
	}
	if got := h.Get("x-tba-backpressure"); got != "none" {
		t.Errorf("backpressure %q", got)
	}
}

func TestBudgetLine(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]*arbiter.Check{
		"":                                   nil,
		"global;remaining=0;unit=tokens":     {Unit: arbiter.UnitTokens, Limit: 10, Used: 12, ResetsAt: refusedAt.Add(-time.Hour).UnixNano()},
		"task/t1;remaining=7;unit=tokens":    {ScopeKind: arbiter.KindTask, Scope: "t1", Unit: arbiter.UnitTokens, Limit: 10, Held: 3},
		"provider/x;remaining=1;unit=tokens": {ScopeKind: arbiter.KindProvider, Scope: "x", Unit: arbiter.UnitTokens, Limit: 1},
	} {
		if got := budgetLine(c, refusedAt); got != want {
			t.Errorf("%+v: %q, want %q", c, got, want)
		}
	}
}

// TestFiguresOf asserts that the headers tell of the tightest budget on the path of a lease and of its rung's ceilings.
func TestFiguresOf(t *testing.T) {
	t.Parallel()
	f := newFar(t, RemoteOptions{})
	a := ask("", "slow-1")
	a.Pool, a.Task = "default", "t"
	g, err := f.local.Acquire(t.Context(), a)
	if err != nil || g.Status != arbiter.Granted {
		t.Fatalf("%+v, %v", g, err)
	}
	var seen *arbiter.Outlook
	if err := f.engine.View(t.Context(), "default", func(s *arbiter.State) error {
		seen = s.Outlook(100)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	tightest, limits := figuresOf(seen, a, g.Provider, g.Model)
	if tightest == nil || tightest.ScopeKind != arbiter.KindTask || tightest.Limit != 5_000 || tightest.Held != 3_000 {
		t.Errorf("tightest %+v, want the task's 5,000 of which 3,000 are held", tightest)
	}
	if len(limits) != 1 || limits[0].Dim != arbiter.DimRPM || limits[0].Limit != 1 || limits[0].Remaining != 0 || limits[0].Reset != time.Minute {
		t.Errorf("limits %+v, want one request a minute, used", limits)
	}
	if tightest, limits := figuresOf(nil, a, g.Provider, g.Model); tightest != nil || limits != nil {
		t.Errorf("of a pool that nobody has looked at: %+v, %+v", tightest, limits)
	}
}
