package rpc

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/client"
	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
)

// servedPolicy has two models at openai and its service tiers, and a tool that costs nothing.
func servedPolicy() *arbiter.Policy {
	return testPolicy(func(p *arbiter.Policy) {
		o := &p.Providers[0]
		o.ServiceTiers = []arbiter.ServiceTier{{Name: "flex", Factor: arbiter.Whole / 2}, {Name: "priority", Factor: 2 * arbiter.Whole}}
		long := arbiter.Rates{Input: 5_000_000, CacheRead: 5_000_000, Output: 15_000_000}
		o.Models[0].Prices[0].Tiers = []arbiter.Tier{{OverInput: 1000, Rates: long}}
		o.Models = append(o.Models, arbiter.Model{Name: "gpt-5.4-mini", Limit: arbiter.NoLimit, Prices: []arbiter.Price{{Rates: arbiter.Rates{Input: 750_000, Output: 4_500_000}}}})
		o.Ceilings = arbiter.Ceilings{RPM: 1000, Burst: arbiter.Whole}
		p.Providers = append([]arbiter.Provider{{Name: "search", Tool: true, Limit: arbiter.NoLimit, Models: []arbiter.Model{{Limit: arbiter.NoLimit, Prices: []arbiter.Price{{}}}}}}, p.Providers...)
	})
}

// What the SDK says of who served becomes the price, on every way to the server.
func TestSDKServedPrice(t *testing.T) {
	t.Parallel()
	sdkWays(t, servedPolicy, func(t *testing.T, _ *world, c *client.Client) {
		ask := sdkAsk
		ask.Model = "gpt-5.4"
		for i, test := range []struct {
			usage client.Usage
			nanos int64
			low   bool // flagged estimated
		}{
			{client.Usage{Input: 100, Output: 10}, 350_000, false},
			{client.Usage{Input: 100, Output: 10, Model: "gpt-5.4-mini"}, 120_000, false},
			{client.Usage{Input: 100, Output: 10, ServiceTier: "flex"}, 175_000, false},
			{client.Usage{Input: 100, Output: 10, ServiceTier: "priority"}, 700_000, false},
			{client.Usage{Input: 100, Output: 10, ServiceTier: "ultra", Model: "what is this?"}, 350_000, true},
			{client.Usage{Input: 1500, Output: 10}, 7_650_000, false},
			{client.Usage{Input: 1500, Output: 10, LongestPrompt: 800}, 3_850_000, false},
			{client.Usage{Total: 310, ServiceTier: "flex"}, 425_000, false},
		} {
			l, err := c.Acquire(t.Context(), ask)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := l.Commit(t.Context(), test.usage); err != nil || got.CostNanos != test.nanos || got.Estimated != test.low {
				t.Errorf("%d: %+v, %v, want %d nano-USD", i, got, err, test.nanos)
			}
		}
		ask.ServiceTier = "priority"
		if l, err := c.Acquire(t.Context(), ask); err != nil || l.CostNanos() != 15_500_000 {
			t.Errorf("held in the tier that is asked for: %+v, %v", l, err)
		}
	})
}

// An answer names models with a date or by an alias; a bill is not lost for a name that nobody knows.
func TestCommitServedModelIsLookedUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{policy: servedPolicy(), opts: Options{Models: func(pool, _, model string) (string, error) {
		if pool != "default" {
			t.Errorf("asked for %q in pool %q", model, pool)
		}
		if model == "gpt-5.4-mini-2026-03-05" {
			return "gpt-5.4-mini", nil
		}
		return "", errors.New("unknown")
	}}})
	for model, want := range map[string]int64{"gpt-5.4-mini-2026-03-05": 120_000, "gpt-5.4-mini": 120_000, "ghost ☃": 350_000, strings.Repeat("x", 1<<12): 350_000} {
		l := w.grant(t, &tbav1.LeaseRequest{AgentId: "a", EstimatedTokens: 1000, PreferredProvider: "openai"})
		if l.GetAssignedModel() != "gpt-5.4" {
			t.Fatal(l)
		}
		got, err := w.lease.CommitLease(context.Background(), &tbav1.LeaseCommit{LeaseId: l.GetLeaseId(), LeaseToken: l.GetLeaseToken(), HasUsage: true, Usage: &tbav1.Usage{Input: 100, Output: 10}, ServedModel: model})
		if err != nil || got.GetCostNanos() != want {
			t.Errorf("%.20s: %v, %v, want %d", model, got, err, want)
		}
	}
	l := w.grant(t, &tbav1.LeaseRequest{AgentId: "a", EstimatedTokens: 1000})
	if _, err := w.lease.CommitLease(context.Background(), &tbav1.LeaseCommit{LeaseId: l.GetLeaseId(), LongestPrompt: -1}); err == nil || !strings.Contains(err.Error(), "longest_prompt") {
		t.Errorf("a negative prompt: %v", err)
	}
}

// A call that goes out at once has no start_by; it cannot be one that begins later.
func TestSDKNoStartDelay(t *testing.T) {
	t.Parallel()
	sdkWays(t, servedPolicy, func(t *testing.T, _ *world, c *client.Client) {
		ask := sdkAsk
		if l, err := c.Acquire(t.Context(), ask); err != nil || l.StartBy().IsZero() {
			t.Errorf("with a delay: %v, %v", l, err)
		}
		ask.NoStartDelay = true
		if l, err := c.Acquire(t.Context(), ask); err != nil || !l.StartBy().IsZero() {
			t.Errorf("without: %v, %v", l, err)
		}
		ask.DeferredStart = true
		var refused *client.RefusedError
		if _, err := c.Acquire(t.Context(), ask); !errors.As(err, &refused) || refused.Reason != "two_starts" {
			t.Errorf("at once and later: %v", err)
		}
	})
}

// LOW that is meant reaches the decision; LOW as published clients send it is the class's default.
func TestPriorityLow(t *testing.T) {
	t.Parallel()
	sdkWays(t, servedPolicy, func(t *testing.T, w *world, c *client.Client) {
		got := func(id string) tbav1.Priority {
			t.Helper()
			list, err := w.admin.ListLeases(t.Context(), &tbav1.ListLeasesRequest{LeaseId: id})
			if err != nil || len(list.GetLeases()) != 1 {
				t.Fatalf("%v, %v", list, err)
			}
			return list.GetLeases()[0].GetPriority()
		}
		for asked, want := range map[client.Priority]tbav1.Priority{client.PriorityDefault: tbav1.Priority_MEDIUM, client.PriorityLow: tbav1.Priority_LOW} {
			ask := sdkAsk
			ask.Class, ask.Priority = "chat", asked
			l, err := c.Acquire(t.Context(), ask)
			if err != nil {
				t.Fatal(err)
			}
			if p := got(l.ID()); p != want {
				t.Errorf("%v: %v, want %v", asked, p, want)
			}
		}
		for _, set := range []bool{false, true} {
			want := tbav1.Priority_MEDIUM
			l := w.grant(t, &tbav1.LeaseRequest{AgentId: "a", AgentClass: "chat", EstimatedTokens: 1, PriorityIsSet: set})
			if p := got(l.GetLeaseId()); p != want {
				t.Errorf("no priority, set %v: %v", set, p)
			}
			if set {
				want = tbav1.Priority_LOW
			}
			l = w.grant(t, &tbav1.LeaseRequest{AgentId: "a", AgentClass: "chat", EstimatedTokens: 1, Priority: tbav1.Priority_LOW.Enum(), PriorityIsSet: set})
			if p := got(l.GetLeaseId()); p != want {
				t.Errorf("LOW, set %v: %v", set, p)
			}
		}
	})
}

// Who asks for limits gets them, about a second old.
func TestSDKLimits(t *testing.T) {
	t.Parallel()
	sdkWays(t, servedPolicy, func(t *testing.T, _ *world, c *client.Client) {
		ask := sdkAsk
		ask.Model = "gpt-5.4"
		acquire := func() *client.Lease {
			t.Helper()
			l, err := c.Acquire(t.Context(), ask)
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		if l := acquire(); l.Limits() != nil {
			t.Errorf("not asked for: %+v", l.Limits())
		}
		ask.WantLimits = true
		acquire() // the first look goes out
		synctest.Wait()
		l := acquire()
		if len(l.Limits()) != 2 {
			t.Fatalf("%+v", l.Limits())
		}
		if b := l.Limits()[0]; b.Name != "global" || b.Unit != "tokens" || b.Limit != 1_000_000_000 || b.Held < 1000 || b.ResetsAt.IsZero() || b.HasReset {
			t.Errorf("budget %+v", b)
		}
		if g := l.Limits()[1]; g.Name != "rpm" || g.Unit != "requests" || g.Limit != 1000 || g.Used < 1 || !g.HasReset || g.Reset != time.Minute || !g.ResetsAt.IsZero() {
			t.Errorf("ceiling %+v", g)
		}
	})
}

// An account that is used up shuts the provider, unless the signal is about one model; a tool takes no call that does not name it.
func TestSDKSignalOfOneModel(t *testing.T) {
	t.Parallel()
	sdkWays(t, servedPolicy, func(t *testing.T, _ *world, c *client.Client) {
		for _, only := range []bool{true, false} {
			ask := sdkAsk
			ask.Model, ask.MaxWait = "gpt-5.4", client.NoWait
			if !only {
				ask.Model = "gpt-5.4-mini"
			}
			l, err := c.Acquire(t.Context(), ask)
			if err != nil {
				t.Fatal(err)
			}
			signal := &client.ProviderSignal{Status: 429, RetryAfter: time.Hour, ModelOnly: only}
			if _, err := l.ReleaseReport(t.Context(), "", client.OutcomeExhausted, signal); err != nil {
				t.Fatal(err)
			}
			var later *client.DeferredError
			if _, err = c.Acquire(t.Context(), ask); !errors.As(err, &later) || later.Reason != "exhausted" || !strings.Contains(later.Message, "openai") {
				t.Errorf("%s itself: %v", ask.Model, err)
			}
			ask.Model = "gpt-5.4-mini"
			if l, err = c.Acquire(t.Context(), ask); (err == nil) != only {
				t.Errorf("another model, only %v: %v", only, err)
			} else if err == nil {
				_ = l.Release(t.Context(), "")
			}
			ask.Model = ""
			if l, err = c.Acquire(t.Context(), ask); err != nil || l.Provider() != "anthropic" {
				t.Errorf("any model: %v, %v", l, err)
			}
		}
		ask := sdkAsk
		ask.Except = []string{"openai", "anthropic"}
		var denied *client.DeniedError
		if _, err := c.Acquire(t.Context(), ask); !errors.As(err, &denied) || denied.Reason != "no_rung" || denied.Message == "" {
			t.Errorf("nothing but a tool: %v", err)
		}
		ask = sdkAsk
		ask.Provider = "search"
		if l, err := c.Acquire(t.Context(), ask); err != nil || l.Provider() != "search" {
			t.Errorf("the tool by name: %v, %v", l, err)
		}
	})
}
