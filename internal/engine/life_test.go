package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/engine"
	"github.com/token-budget-arbiter/tba/internal/journal"
)

func digest(t *testing.T, e *engine.Engine) (d [32]byte) {
	t.Helper()
	if err := e.View(context.Background(), pool, func(s *arbiter.State) error {
		s.RollbackTo(0) // without the time that only the view has seen
		d = s.Digest()
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return d
}

// Replay equals live: an engine that opens the log holds the same state byte for byte, from the log alone and from snapshots.
func TestReplayEqualsLive(t *testing.T) {
	t.Parallel()
	for name, every := range map[string]int64{"log": 1 << 40, "snapshots": 4 << 10} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			world(t, func(t *testing.T, store *journal.Memory) {
				e := start(t, store, engine.Options{SnapshotEvery: every}, policy(globalTokens(1_000_000), ttl(30*time.Second),
					ceilings(arbiter.Ceilings{RPM: 1000, TPM: 200_000, MaxConcurrent: 40, Burst: arbiter.Whole})))
				for round := range 20 {
					var wg sync.WaitGroup
					for i := range 40 {
						wg.Go(func() {
							o := must(t, e, ask(100+i, waits(time.Second)))
							if o.Answer.Status != arbiter.Granted {
								return
							}
							switch (round + i) % 5 {
							case 0: // silent holder
							case 1:
								must(t, e, release(o, arbiter.OutcomeNotSent))
							case 2:
								must(t, e, engine.Op{Command: &arbiter.Extend{Lease: o.Answer.Lease.Lease}})
								must(t, e, commit(o, 50+i))
							default:
								must(t, e, commit(o, 50+i))
							}
						})
					}
					wg.Wait()
					<-time.After(7 * time.Second)
				}
				if n := e.Stats()[0].Snapshots; (n > 0) != (every < 1<<40) {
					t.Fatalf("%d snapshots", n)
				}
				synctest.Wait() // leases that end at this moment are in the log
				want := digest(t, e)
				e.Close()
				again := start(t, store, engine.Options{}, nil)
				if got := digest(t, again); got != want {
					t.Fatal("the replayed state differs")
				}
				granted(t, again, ask(1, waits(2*time.Minute)))
			})
		})
	}
}

// T48: a lease of April that commits in May counts in April; May starts empty; April's row becomes final once.
func TestT48CommitAcrossTheReset(t *testing.T) {
	t.Parallel()
	world(t, func(t *testing.T, store *journal.Memory) {
		// The bubble begins at midnight UTC of 2000-01-01: move to the last ten seconds of January.
		<-time.After(31*24*time.Hour - 10*time.Second)
		e := start(t, store, engine.Options{}, policy(globalTokens(1000)))
		o := granted(t, e, ask(300))
		waiter := make(chan engine.Outcome, 1)
		go func() { waiter <- must(t, e, ask(900, waits(30*time.Second))) }() // its budget resets within its patience
		<-time.After(20 * time.Second)
		if w := <-waiter; w.Answer.Status != arbiter.Granted || w.Answer.Lease.Period != 2 {
			t.Fatalf("waiter over the rollover: %s %+v", w.Answer.Status, w.Answer.Check)
		} else {
			must(t, e, release(w, arbiter.OutcomeNotSent))
		}
		must(t, e, commit(o, 250))
		if spent, held := totals(t, e); spent != 0 || held != 0 {
			t.Fatalf("the new period has spent %d, held %d", spent, held)
		}
		row := func(key string) (a engine.ArchivedPeriod) {
			b, err := store.Get(context.Background(), pool, key)
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(b, &a); err != nil {
				t.Fatal(err)
			}
			return a
		}
		<-time.After(3 * time.Hour) // commit_by and the horizon of idempotency are over
		if err := e.Drain(context.Background()); err != nil {
			t.Fatal(err)
		}
		for key, want := range map[string]int64{"period:1:closed": 0, "period:1:final": 250} {
			a := row(key)
			i := slices.IndexFunc(a.Rows, func(r arbiter.BudgetRow) bool { return r.Kind == arbiter.KindGlobal && r.Unit == arbiter.UnitTokens })
			if i < 0 || a.Rows[i].Spent != want || a.Rows[i].Held < 0 || a.Number != 1 || time.Unix(0, a.End).UTC() != time.Date(2000, 2, 1, 0, 0, 0, 0, time.UTC) {
				t.Fatalf("%s: %+v", key, a)
			}
		}
	})
}

// T50: shutdown under load loses nothing that was acknowledged, and refuses what it does not take.
func TestT50DrainUnderLoad(t *testing.T) {
	t.Parallel()
	world(t, func(t *testing.T, store *journal.Memory) {
		e := start(t, store, engine.Options{DrainTimeout: 10 * time.Second}, policy(ttl(time.Minute)))
		var mu sync.Mutex
		var acknowledged int64
		var leases []engine.Outcome
		for range 2000 {
			leases = append(leases, granted(t, e, ask(5)))
		}
		waiter := make(chan error, 1)
		var wg sync.WaitGroup
		drained := make(chan error, 1)
		for i, o := range leases {
			wg.Go(func() {
				if i%2 == 1 { // in the second half of the drain
					<-time.After(3 * time.Second)
				}
				if _, err := e.Do(context.Background(), commit(o, 5)); err != nil {
					t.Errorf("commit while draining: %v", err)
					return
				}
				mu.Lock()
				acknowledged += 5
				mu.Unlock()
			})
		}
		go func() { drained <- e.Drain(context.Background()) }()
		synctest.Wait()
		go func() {
			_, err := e.Do(context.Background(), ask(1, waits(time.Minute)))
			waiter <- err
		}()
		var ae *arbiter.Error
		if err := <-waiter; !errors.As(err, &ae) || ae.Reason != "draining" || ae.RetryAfter != arbiter.Second {
			t.Fatalf("request while draining: %v", err)
		}
		if e.Ready() == nil {
			t.Fatal("ready while draining")
		}
		wg.Wait()
		if err := <-drained; err != nil {
			t.Fatal(err)
		}
		again := start(t, store, engine.Options{}, nil)
		if spent, held := totals(t, again); spent != acknowledged || spent != 10_000 || held != 0 {
			t.Fatalf("spent %d, acknowledged %d, held %d", spent, acknowledged, held)
		}
	})
}

// Drain ends at its timeout when leases still run, and answers those who wait.
func TestDrainTimeout(t *testing.T) {
	t.Parallel()
	world(t, func(t *testing.T, store *journal.Memory) {
		e := start(t, store, engine.Options{DrainTimeout: 5 * time.Second}, policy(ceilings(arbiter.Ceilings{MaxConcurrent: 1})))
		granted(t, e, ask(1))
		waiter := make(chan error, 1)
		go func() {
			_, err := e.Do(context.Background(), ask(1, waits(time.Minute)))
			waiter <- err
		}()
		synctest.Wait()
		began := time.Now()
		if err := e.Drain(context.Background()); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d != 5*time.Second {
			t.Fatalf("drained after %s", d)
		}
		if err := <-waiter; code(err) != "draining" {
			t.Fatal(err)
		}
		if n := running(t, start(t, store, engine.Options{}, nil)); n != 1 {
			t.Fatalf("%d leases run after the restart", n)
		}
	})
}

// Adopt: the higher version wins, the same content is no news, a lowered limit cancels nothing, waiters are asked again.
func TestAdopt(t *testing.T) {
	t.Parallel()
	world(t, func(t *testing.T, store *journal.Memory) {
		ctx := context.Background()
		e := start(t, store, engine.Options{}, policy(globalTokens(1000)))
		granted(t, e, ask(800))
		answer := make(chan engine.Outcome, 1)
		go func() { answer <- must(t, e, ask(500, waits(time.Minute))) }()
		synctest.Wait()
		version := func(v uint64) func(*arbiter.Policy) { return func(p *arbiter.Policy) { p.Version = v } }
		if err := e.Adopt(ctx, pool, policy(globalTokens(1000), version(7))); err != nil {
			t.Fatal(err)
		}
		if s, _ := e.PoolStatus(pool); s.PolicyVersion != 1 {
			t.Fatalf("the same content was adopted as version %d", s.PolicyVersion)
		}
		if err := e.Adopt(ctx, pool, policy(globalTokens(2000), version(0))); err != nil {
			t.Fatal(err)
		}
		if o := <-answer; o.Answer.Status != arbiter.Granted {
			t.Fatalf("waiter after the limit rose: %s", o.Answer.Status)
		}
		if err := e.Adopt(ctx, pool, policy(globalTokens(10), version(1))); code(err) != "policy_version" {
			t.Fatalf("older version: %v", err)
		}
		if err := e.Adopt(ctx, pool, policy(globalTokens(10), version(5))); err != nil {
			t.Fatal(err)
		}
		if _, held := totals(t, e); held != 1300 {
			t.Fatalf("held %d", held)
		}
		if o := must(t, e, ask(1)); o.Answer.Status == arbiter.Granted {
			t.Fatal("granted above the lowered limit")
		}
		for _, bad := range []*arbiter.Policy{nil, {}, policy(version(9), func(p *arbiter.Policy) { p.Period.Kind = "sometimes" })} {
			if err := e.Adopt(ctx, pool, bad); err == nil {
				t.Errorf("adopted %+v", bad)
			}
		}
		e.Close()
		// At a restart an older file gives way to the journal.
		again := start(t, store, engine.Options{}, policy(globalTokens(999), version(2)))
		if s, _ := again.PoolStatus(pool); s.PolicyVersion != 5 {
			t.Fatalf("version %d in force", s.PolicyVersion)
		}
	})
}

// A waiter held up by its own task's budget holds up nobody else of its kind.
func TestOwnBudgetHoldsUpNobodyElse(t *testing.T) {
	t.Parallel()
	world(t, func(t *testing.T, store *journal.Memory) {
		e := start(t, store, engine.Options{}, policy(func(p *arbiter.Policy) { p.Tasks = arbiter.Limit{Tokens: 100, Nanos: arbiter.Unlimited} }))
		task := func(name string) func(*engine.Op) {
			return func(o *engine.Op) { o.Command.(*arbiter.Request).Task = name }
		}
		first := granted(t, e, ask(80, task("x")))
		waiter := make(chan engine.Outcome, 1)
		go func() { waiter <- must(t, e, ask(80, task("x"), waits(time.Minute))) }()
		synctest.Wait()
		granted(t, e, ask(80, task("y")))
		must(t, e, commit(first, 10))
		if o := <-waiter; o.Answer.Status != arbiter.Granted {
			t.Fatalf("%s %+v", o.Answer.Status, o.Answer.Check)
		}
	})
}

// A dry run decides and charges nothing.
func TestDryRun(t *testing.T) {
	t.Parallel()
	world(t, func(t *testing.T, store *journal.Memory) {
		e := start(t, store, engine.Options{}, policy(globalTokens(100)))
		dry := func(o *engine.Op) { o.DryRun = true }
		if o := must(t, e, ask(60, dry)); o.Answer.Status != arbiter.Granted || o.Token != nil {
			t.Fatalf("%+v", o)
		}
		if _, held := totals(t, e); held != 0 {
			t.Fatalf("held %d", held)
		}
		granted(t, e, ask(60))
		if o := must(t, e, ask(60, dry, waits(time.Hour))); o.Answer.Status == arbiter.Granted || o.Ticket != nil {
			t.Fatalf("%+v", o)
		}
	})
}

// The inbox is bounded: a crowd beyond it is told so at once, commits still pass.
func TestInboxFull(t *testing.T) {
	t.Parallel()
	faults(t, func(t *testing.T, store *faulty) {
		e := start(t, store, engine.Options{InboxSize: 10}, policy())
		o := granted(t, e, ask(1))
		next(store, stall)
		var wg sync.WaitGroup
		results := make(chan error, 64)
		for range 64 {
			wg.Go(func() {
				_, err := e.Do(context.Background(), ask(1))
				results <- err
			})
		}
		committed := make(chan error, 1)
		synctest.Wait()
		go func() {
			_, err := e.Do(context.Background(), commit(o, 1))
			committed <- err
		}()
		synctest.Wait()
		store.Resume()
		wg.Wait()
		if err := <-committed; err != nil {
			t.Fatal(err)
		}
		full := 0
		for range 64 {
			if err := <-results; code(err) == "inbox_full" {
				full++
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if full == 0 {
			t.Fatal("the inbox was never full: the test proves nothing")
		}
	})
}

// Thousands of waiters with a wish of their own each: all are served, though they are not all asked at every news.
func TestManyShapes(t *testing.T) {
	t.Parallel()
	world(t, func(t *testing.T, store *journal.Memory) {
		const tasks = 3000
		e := start(t, store, engine.Options{}, policy(func(p *arbiter.Policy) { p.Tasks = arbiter.Limit{Tokens: 100, Nanos: arbiter.Unlimited} }))
		task := func(i int) func(*engine.Op) {
			return func(o *engine.Op) { o.Command.(*arbiter.Request).Task = fmt.Sprint("t", i) }
		}
		var first []engine.Outcome
		for i := range tasks {
			first = append(first, granted(t, e, ask(80, task(i))))
		}
		var wg sync.WaitGroup
		for i := range tasks {
			wg.Go(func() {
				if o := must(t, e, ask(80, task(i), waits(time.Minute))); o.Answer.Status != arbiter.Granted {
					t.Errorf("task %d: %s by %s", i, o.Answer.Status, o.Answer.Check.Reason)
				}
			})
		}
		synctest.Wait()
		<-time.After(time.Second)
		began := time.Now()
		for _, o := range first {
			must(t, e, commit(o, 10))
		}
		wg.Wait()
		if d := time.Since(began); d > 2*time.Second {
			t.Fatalf("the last was served after %s", d)
		}
	})
}

// An outcome tells the logical time of its decision, on the clock that its lease and Engine.Now are on.
func TestOutcomeTellsItsTime(t *testing.T) {
	t.Parallel()
	world(t, func(t *testing.T, store *journal.Memory) {
		e := start(t, store, engine.Options{}, policy(ttl(30*time.Second)))
		o := granted(t, e, ask(1))
		if o.Now != o.Answer.Lease.Granted {
			t.Fatalf("decided at %d, granted at %d", o.Now, o.Answer.Lease.Granted)
		}
		<-time.After(10 * time.Second)
		x := must(t, e, engine.Op{Command: &arbiter.Extend{Lease: o.Answer.Lease.Lease}})
		if left := time.Duration(x.Answer.Lease.Deadline - x.Now); left != 30*time.Second {
			t.Fatalf("%s left after the extension", left)
		}
		<-time.After(5 * time.Second)
		now, err := e.Now(pool)
		if err != nil || now-o.Now != int64(15*time.Second) {
			t.Fatalf("now %d, %v", now, err)
		}
		if _, err := e.Now("nowhere"); code(err) != "unknown_pool" {
			t.Fatal(err)
		}
	})
}
