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
		e := openForTest(t, Options{})
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

// openForTest opens the default pool with a policy that binds nothing, over a fresh memory store.
func openForTest(t *testing.T, opts Options) *Engine {
	t.Helper()
	ctx := context.Background()
	opts.Store = journal.NewMemory(journal.MemoryOptions{})
	if err := opts.Store.Init(ctx, DefaultPool); err != nil {
		t.Fatal(err)
	}
	e, err := New(opts)
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
	return e
}

// Writer and follower that disagree are found at the next snapshot, and nothing is granted from then on.
func TestDisagreementStopsGrants(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		e := openForTest(t, Options{SnapshotEvery: 1})
		defer e.Close()
		ask := Op{Command: &arbiter.Request{Agent: "a", Output: 10}}
		if _, err := e.Do(ctx, ask); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		p, _ := e.find("")
		p.follow.mu.Lock()
		p.follow.state.Apply(&arbiter.Fact{Kind: arbiter.FactExtended, Lease: p.follow.state.LeaseRows(arbiter.LeaseFilter{})[0].Lease, At: 1 << 60})
		p.follow.mu.Unlock()
		var err error
		for range 10 {
			if _, err = e.Do(ctx, ask); err != nil {
				break
			}
			synctest.Wait()
		}
		var ae *arbiter.Error
		if !errors.As(err, &ae) || ae.Reason != "stopped" {
			t.Fatalf("request: %v", err)
		}
		if err := e.View(ctx, "", func(*arbiter.State) error { return nil }); !errors.As(err, &ae) {
			t.Fatalf("view: %v", err)
		}
	})
}
