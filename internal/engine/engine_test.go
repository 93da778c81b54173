package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/engine"
	"github.com/token-budget-arbiter/tba/internal/journal"
)

const pool = "default"

// policy has one provider with the given ceilings and a token limit for the pool; classes worker (MEDIUM) and boss (HIGH).
func policy(change ...func(*arbiter.Policy)) *arbiter.Policy {
	p := &arbiter.Policy{
		Version: 1, Guard: 250 * arbiter.Millisecond,
		Period: arbiter.PeriodSpec{Kind: "monthly"},
		Global: arbiter.NoLimit, Tasks: arbiter.NoLimit,
		Providers: []arbiter.Provider{{
			Name: "openai", Limit: arbiter.NoLimit,
			Models: []arbiter.Model{{Limit: arbiter.NoLimit, Prices: []arbiter.Price{{Rates: arbiter.Rates{Input: 1_000_000, Output: 1_000_000}}}}},
		}},
		Classes: []arbiter.Class{
			{Name: arbiter.DefaultClass, Limit: arbiter.NoLimit},
			{Name: "worker", Priority: arbiter.Medium, Limit: arbiter.NoLimit},
			{Name: "boss", Priority: arbiter.High, Limit: arbiter.NoLimit},
		},
		Lease: arbiter.DefaultLeaseRules, Breaker: arbiter.DefaultBreaker,
		Weights: arbiter.DefaultWeights, Backpressure: arbiter.DefaultBackpressure,
	}
	for _, f := range change {
		f(p)
	}
	return p
}

func ceilings(c arbiter.Ceilings) func(*arbiter.Policy) {
	return func(p *arbiter.Policy) { p.Providers[0].Ceilings = c }
}

func globalTokens(n arbiter.Tokens) func(*arbiter.Policy) {
	return func(p *arbiter.Policy) { p.Global.Tokens = n }
}

func ttl(d time.Duration) func(*arbiter.Policy) {
	return func(p *arbiter.Policy) { p.Lease.TTL = int64(d) }
}

// start opens the pool on a store; the engine is closed with the test.
func start(t testing.TB, store journal.Store, opts engine.Options, pol *arbiter.Policy) *engine.Engine {
	t.Helper()
	opts.Store = store
	if testing.Verbose() {
		opts.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	e, err := engine.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Init(context.Background(), pool); err != nil && !errors.Is(err, journal.ErrExists) {
		t.Fatal(err)
	}
	if err := e.Open(context.Background(), pool, pol); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// ask is a request op: class worker, so many tokens of output.
func ask(tokens int, change ...func(*engine.Op)) engine.Op {
	op := engine.Op{Command: &arbiter.Request{Agent: "a", Class: "worker", Output: arbiter.Tokens(tokens), Priority: arbiter.ClassPriority, NoStartDelay: true}}
	for _, f := range change {
		f(&op)
	}
	return op
}

func class(name string) func(*engine.Op) {
	return func(o *engine.Op) { o.Command.(*arbiter.Request).Class = name }
}

func waits(d time.Duration) func(*engine.Op) { return func(o *engine.Op) { o.MaxWait = d } }

func named(requestID string) func(*engine.Op) {
	return func(o *engine.Op) {
		r := o.Command.(*arbiter.Request)
		r.Lease = engine.NewLeaseID(r.Principal, r.Agent, requestID)
	}
}

func commit(o engine.Outcome, tokens int) engine.Op {
	return engine.Op{Token: o.Token, Command: &arbiter.Commit{Lease: o.Answer.Lease.Lease, HasActual: true, Actual: arbiter.Tokens(tokens), Outcome: arbiter.OutcomeOK}}
}

func release(o engine.Outcome, outcome arbiter.Outcome) engine.Op {
	return engine.Op{Token: o.Token, Command: &arbiter.Release{Lease: o.Answer.Lease.Lease, Outcome: outcome}}
}

// must runs an op that has to be answered.
func must(t testing.TB, e *engine.Engine, op engine.Op) engine.Outcome {
	t.Helper()
	o, err := e.Do(context.Background(), op)
	if err != nil {
		t.Fatalf("%T: %v", op.Command, err)
	}
	return o
}

// granted runs a request that has to be granted.
func granted(t testing.TB, e *engine.Engine, op engine.Op) engine.Outcome {
	t.Helper()
	o := must(t, e, op)
	if o.Answer.Status != arbiter.Granted {
		t.Fatalf("%s by %s, want a grant", o.Answer.Status, o.Answer.Check.Reason)
	}
	return o
}

// totals are spent and held tokens of the pool.
func totals(t testing.TB, e *engine.Engine) (spent, held int64) {
	t.Helper()
	err := e.View(context.Background(), pool, func(s *arbiter.State) error {
		for _, r := range s.BudgetRows(0) {
			if r.Kind == arbiter.KindGlobal && r.Unit == arbiter.UnitTokens {
				spent, held = r.Spent, r.Held
			}
		}
		return s.Check()
	})
	if err != nil {
		t.Fatal(err)
	}
	return spent, held
}

func running(t testing.TB, e *engine.Engine) (n int64) {
	t.Helper()
	if err := e.View(context.Background(), pool, func(s *arbiter.State) error {
		c := s.Counts()
		n = c.Running()
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

func code(err error) string {
	var e *arbiter.Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return fmt.Sprint(err)
}

// world runs a test in a bubble of fake time, over a fresh memory store.
func world(t *testing.T, f func(t *testing.T, store *journal.Memory)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f(t, journal.NewMemory(journal.MemoryOptions{}))
	})
}

func TestGrantCommit(t *testing.T) {
	t.Parallel()
	world(t, func(t *testing.T, store *journal.Memory) {
		e := start(t, store, engine.Options{}, policy(globalTokens(1000)))
		o := granted(t, e, ask(600))
		if len(o.Token) == 0 || o.Answer.Lease.Provider != "openai" || o.Decision.String() == "" {
			t.Fatalf("grant: %+v", o)
		}
		if spent, held := totals(t, e); spent != 0 || held != 600 {
			t.Fatalf("spent %d, held %d", spent, held)
		}
		if d := must(t, e, ask(500)); d.Answer.Status != arbiter.Deferred || len(d.Ticket) == 0 {
			t.Fatalf("second: %s %+v", d.Answer.Status, d.Answer.Check)
		}
		c := must(t, e, commit(o, 300))
		if c.Answer.Result != arbiter.Recorded || c.Answer.Tokens != 300 {
			t.Fatalf("commit: %+v", c.Answer)
		}
		if c = must(t, e, commit(o, 300)); c.Answer.Result != arbiter.AlreadyRecorded {
			t.Fatalf("repeated commit: %+v", c.Answer)
		}
		if spent, held := totals(t, e); spent != 300 || held != 0 {
			t.Fatalf("spent %d, held %d", spent, held)
		}
		if err := e.Ready(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestUnknownPoolAndUninitialised(t *testing.T) {
	t.Parallel()
	world(t, func(t *testing.T, store *journal.Memory) {
		e, err := engine.New(engine.Options{Store: store})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Open(context.Background(), pool, policy()); !errors.Is(err, journal.ErrUninitialised) {
			t.Fatalf("absent journal: %v", err)
		}
		if _, err := e.Do(context.Background(), ask(1)); code(err) != "unknown_pool" {
			t.Fatalf("request: %v", err)
		}
		if e.Ready() == nil {
			t.Fatal("ready without a pool")
		}
		if err := store.Init(context.Background(), pool); err != nil {
			t.Fatal(err)
		}
		if err := e.Open(context.Background(), pool, nil); err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		if _, err := e.Do(context.Background(), ask(1)); code(err) != "no_policy" {
			t.Fatalf("request without a policy: %v", err)
		}
		if e.Ready() == nil {
			t.Fatal("ready without a policy")
		}
		if err := e.Adopt(context.Background(), pool, policy()); err != nil {
			t.Fatal(err)
		}
		granted(t, e, ask(1))
	})
}

// The same request id gives the same lease; other parameters are refused.
func TestRepeatedRequest(t *testing.T) {
	t.Parallel()
	world(t, func(t *testing.T, store *journal.Memory) {
		e := start(t, store, engine.Options{}, policy(globalTokens(1000)))
		first := granted(t, e, ask(100, named("r1")))
		again := granted(t, e, ask(100, named("r1")))
		if again.Answer.Lease.Lease != first.Answer.Lease.Lease || again.Answer.Flags&arbiter.FlagRepeat == 0 {
			t.Fatalf("repeat: %+v", again.Answer)
		}
		if _, err := e.Do(context.Background(), ask(101, named("r1"))); code(err) != "request_id_reused" {
			t.Fatalf("other parameters: %v", err)
		}
		if _, held := totals(t, e); held != 100 {
			t.Fatalf("held %d", held)
		}
	})
}

// T03: the holder dies; its hold comes back by itself, without traffic.
func TestT03HoldOfADeadHolderComesBack(t *testing.T) {
	t.Parallel()
	world(t, func(t *testing.T, store *journal.Memory) {
		e := start(t, store, engine.Options{}, policy(globalTokens(5000), ttl(30*time.Second)))
		follow, err := e.Follow(pool)
		if err != nil {
			t.Fatal(err)
		}
		granted(t, e, ask(5000))
		started := time.Now()
		for kind := arbiter.EventKind(0); kind != arbiter.EventLeaseExpired; {
			<-follow
			follow, _ = e.Follow(pool)
			page, err := e.Events(pool, 0, 1)
			if err != nil {
				t.Fatal(err)
			}
			kind = page.Events[0].Kind
		}
		if d := time.Since(started); d < 30*time.Second || d > 31*time.Second {
			t.Fatalf("expired after %s", d)
		}
		page, _ := e.Events(pool, 0, 100, arbiter.EventLeaseExpired)
		if len(page.Events) != 1 {
			t.Fatalf("%d lease_expired events", len(page.Events))
		}
		if spent, held := totals(t, e); spent != 0 || held != 0 {
			t.Fatalf("spent %d, held %d", spent, held)
		}
		granted(t, e, ask(5000))
	})
}

// A waiter is granted the moment a commit makes room, the higher class first, in a class the older first.
func TestWaitersInOrder(t *testing.T) {
	t.Parallel()
	world(t, func(t *testing.T, store *journal.Memory) {
		e := start(t, store, engine.Options{}, policy(ceilings(arbiter.Ceilings{MaxConcurrent: 1})))
		first := granted(t, e, ask(1))
		order := make(chan string, 8)
		wait := func(name, cl string) {
			go func() {
				o, err := e.Do(context.Background(), ask(1, class(cl), waits(time.Minute)))
				if err != nil || o.Answer.Status != arbiter.Granted {
					t.Errorf("%s: %v %s", name, err, o.Answer.Status)
				}
				order <- name
				must(t, e, commit(o, 1))
			}()
			synctest.Wait()
		}
		wait("worker 1", "worker")
		wait("worker 2", "worker")
		wait("boss 1", "boss")
		wait("worker 3", "worker")
		wait("boss 2", "boss")
		if rows := e.Waiting(pool); len(rows) != 2 {
			t.Fatalf("waiting: %+v", rows)
		}
		must(t, e, commit(first, 1))
		for _, want := range []string{"boss 1", "boss 2", "worker 1", "worker 2", "worker 3"} {
			if got := <-order; got != want {
				t.Fatalf("%s came, want %s", got, want)
			}
		}
		synctest.Wait()
		if n := running(t, e); n != 0 {
			t.Fatalf("%d leases run", n)
		}
	})
}

// A waiter that is known to wait too long is answered at once; others when their patience ends; both with a ticket that keeps their place.
func TestDeferredWithTicket(t *testing.T) {
	t.Parallel()
	world(t, func(t *testing.T, store *journal.Memory) {
		e := start(t, store, engine.Options{}, policy(ceilings(arbiter.Ceilings{RPM: 1, Burst: arbiter.Whole})))
		granted(t, e, ask(1))
		began := time.Now()
		early := must(t, e, ask(1, waits(10*time.Second)))
		if early.Answer.Status != arbiter.Deferred || time.Since(began) != 0 || len(early.Ticket) == 0 {
			t.Fatalf("%s after %s", early.Answer.Status, time.Since(began))
		}
		if r := time.Duration(early.Answer.RetryAfter); r < 59*time.Second || r > 61*time.Second {
			t.Fatalf("retry after %s", r)
		}
		// A younger one waits in the queue; the ticket of the older goes first.
		order := make(chan string, 2)
		<-time.After(time.Millisecond)
		go func() {
			must(t, e, ask(1, waits(5*time.Minute), func(o *engine.Op) { o.Command.(*arbiter.Request).Agent = "b" }))
			order <- "younger"
		}()
		synctest.Wait()
		<-time.After(time.Duration(early.Answer.RetryAfter) - 2*time.Second)
		go func() {
			must(t, e, ask(1, waits(5*time.Minute), func(o *engine.Op) { o.Ticket = early.Ticket }))
			order <- "ticket"
		}()
		if got := <-order; got != "ticket" {
			t.Fatalf("%s came first", got)
		}
		if got := <-order; got != "younger" {
			t.Fatalf("%s came second", got)
		}
		if _, err := e.Do(context.Background(), ask(1, func(o *engine.Op) { o.Ticket = []byte("forged") })); code(err) != "ticket" {
			t.Fatalf("forged ticket: %v", err)
		}
	})
}

// A client that vanishes while it waits leaves no trace.
func TestVanishMidWait(t *testing.T) {
	t.Parallel()
	world(t, func(t *testing.T, store *journal.Memory) {
		e := start(t, store, engine.Options{}, policy(ceilings(arbiter.Ceilings{MaxConcurrent: 1})))
		first := granted(t, e, ask(1))
		ctx, cancel := context.WithCancel(context.Background())
		gone := make(chan error)
		go func() {
			_, err := e.Do(ctx, ask(1, waits(time.Minute)))
			gone <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		synctest.Wait()
		if rows := e.Waiting(pool); len(rows) != 0 {
			t.Fatalf("waiting: %+v", rows)
		}
		must(t, e, commit(first, 1))
		if n := running(t, e); n != 0 {
			t.Fatalf("%d leases run", n)
		}
	})
}

// 10,000 callers at once: nobody is lost, nothing is over-granted, and a waiting crowd is served as room appears.
func TestTenThousandCallers(t *testing.T) {
	t.Parallel()
	world(t, func(t *testing.T, store *journal.Memory) {
		const callers, slots = 10_000, 50
		e := start(t, store, engine.Options{}, policy(ceilings(arbiter.Ceilings{MaxConcurrent: slots})))
		done := make(chan error, callers)
		var busy atomic.Int64
		for range callers {
			go func() {
				o, err := e.Do(context.Background(), ask(1, waits(time.Hour)))
				if err == nil && o.Answer.Status != arbiter.Granted {
					err = errors.New(o.Answer.Status.String())
				}
				if n := busy.Add(1); n > slots {
					err = fmt.Errorf("%d calls run on %d slots", n, slots)
				}
				busy.Add(-1)
				if err == nil {
					_, err = e.Do(context.Background(), commit(o, 1))
				}
				done <- err
			}()
		}
		for range callers {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		if spent, held := totals(t, e); spent != callers || held != 0 {
			t.Fatalf("spent %d, held %d", spent, held)
		}
	})
}
