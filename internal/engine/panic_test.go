package engine

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/journal"
)

// A command that breaks an invariant is refused, grants stop until an operator looks, commits still count.
func TestPanicStopsGrantsOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		store := journal.NewMemory(journal.MemoryOptions{})
		if err := store.Init(ctx, DefaultPool); err != nil {
			t.Fatal(err)
		}
		e, err := New(Options{Store: store})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Open(ctx, DefaultPool, &arbiter.Policy{
			Period: arbiter.PeriodSpec{Kind: "monthly"}, Global: arbiter.NoLimit, Tasks: arbiter.NoLimit,
			Providers: []arbiter.Provider{{Name: "p", Limit: arbiter.NoLimit, Models: []arbiter.Model{{Limit: arbiter.NoLimit, Prices: []arbiter.Price{{}}}}}},
			Classes:   []arbiter.Class{{Name: arbiter.DefaultClass, Limit: arbiter.NoLimit}},
			Lease:     arbiter.DefaultLeaseRules, Breaker: arbiter.DefaultBreaker, Weights: arbiter.DefaultWeights, Backpressure: arbiter.DefaultBackpressure,
		}); err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		o, err := e.Do(ctx, Op{Command: &arbiter.Request{Agent: "a", Output: 10}})
		if err != nil || o.Answer.Status != arbiter.Granted {
			t.Fatal(o, err)
		}
		p, _ := e.find("")
		bad := &call{pool: p, lane: laneSettle, cmd: (*arbiter.Commit)(nil), done: make(chan struct{}, 1)}
		if err := p.inbox.push(bad); err != nil {
			t.Fatal(err)
		}
		<-bad.done
		if bad.err == nil || bad.err.Reason != "stopped" {
			t.Fatalf("the culprit was told %v", bad.err)
		}
		var ae *arbiter.Error
		if _, err := e.Do(ctx, Op{Command: &arbiter.Request{Agent: "a", Output: 10}}); !errors.As(err, &ae) || ae.Reason != "stopped" {
			t.Fatalf("request: %v", err)
		}
		c, err := e.Do(ctx, Op{Command: &arbiter.Commit{Lease: o.Answer.Lease.Lease, HasActual: true, Actual: 4}})
		if err != nil || c.Answer.Result != arbiter.Recorded {
			t.Fatalf("commit: %+v %v", c.Answer, err)
		}
		if s, _ := e.PoolStatus(""); s.State != "stopped" || e.Ready() == nil {
			t.Fatalf("%+v", s)
		}
	})
}
