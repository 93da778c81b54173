package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/engine"
	"github.com/token-budget-arbiter/tba/internal/journal"
	"github.com/token-budget-arbiter/tba/internal/journal/journaltest"
)

// faults runs a test over a memory store whose appends fail as planned from the first op on.
func faults(t *testing.T, f func(t *testing.T, store *journaltest.Faulty)) {
	t.Helper()
	world(t, func(t *testing.T, store *journal.Memory) { f(t, journaltest.NewFaulty(store, nil)) })
}

// next plans the faults of the next appends; what follows them succeeds.
func next(f *journaltest.Faulty, plan ...journaltest.Fault) {
	var mu sync.Mutex
	f.SetPlan(func(int) journaltest.Fault {
		mu.Lock()
		defer mu.Unlock()
		if len(plan) == 0 {
			return journaltest.None
		}
		first := plan[0]
		plan = plan[1:]
		return first
	})
}

func happened(t *testing.T, f *journaltest.Faulty, fault journaltest.Fault) {
	t.Helper()
	if f.Count(fault) == 0 {
		t.Fatalf("fault %q never happened: the test proves nothing", fault)
	}
}

// T07: the store fails at the commit in every way; the commit is retried three times under the same lease: it counts once.
func TestT07CommitIsCountedOnce(t *testing.T) {
	t.Parallel()
	for _, fault := range []journaltest.Fault{journaltest.FailBefore, journaltest.FailAfter, journaltest.Repeat, journaltest.LandLate} {
		t.Run(fault.String(), func(t *testing.T) {
			t.Parallel()
			faults(t, func(t *testing.T, store *journaltest.Faulty) {
				e := start(t, store, engine.Options{}, policy(globalTokens(1000)))
				o := granted(t, e, ask(400))
				next(store, fault, fault)
				var wg sync.WaitGroup
				for range 3 {
					wg.Go(func() {
						if _, err := e.Do(context.Background(), commit(o, 100)); err != nil {
							t.Error(err)
						}
					})
				}
				synctest.Wait()
				store.Resume()
				wg.Wait()
				happened(t, store, fault)
				if spent, held := totals(t, e); spent != 100 || held != 0 {
					t.Fatalf("spent %d, held %d", spent, held)
				}
			})
		})
	}
}

// T10: a renewal that arrived before the end counts, however slow its journal write.
func TestT10SlowRenewal(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name           string
		stallAt, askAt time.Duration // an unrelated append stalls, the renewal is sent
	}{
		{"the renewal itself stalls", 3300 * time.Millisecond, 3300 * time.Millisecond},
		{"the renewal waits behind a stalled append", 9 * time.Second, 9900 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			faults(t, func(t *testing.T, store *journaltest.Faulty) {
				e := start(t, store, engine.Options{}, policy(globalTokens(1000), ttl(10*time.Second)))
				other := granted(t, e, ask(100))
				o := granted(t, e, ask(900))
				began := time.Now()
				<-time.After(c.stallAt)
				next(store, journaltest.Stall)
				if c.askAt > c.stallAt {
					go func() { _, _ = e.Do(context.Background(), commit(other, 100)) }()
					<-time.After(c.askAt - c.stallAt)
				}
				renewed := make(chan error, 1)
				go func() {
					_, err := e.Do(context.Background(), engine.Op{Command: &arbiter.Extend{Lease: o.Answer.Lease.Lease}})
					renewed <- err
				}()
				if err := <-renewed; code(err) != "journal" {
					t.Fatalf("renewal over a silent journal: %v", err)
				}
				if d := time.Since(began) - c.askAt; d > 300*time.Millisecond {
					t.Fatalf("told after %s", d)
				}
				if e.Ready() == nil {
					t.Fatal("ready while the journal is silent")
				}
				<-time.After(6 * time.Second)
				store.Resume()
				synctest.Wait()
				<-time.After(10500*time.Millisecond - time.Since(began))
				happened(t, store, journaltest.Stall)
				if d := must(t, e, ask(900)); d.Answer.Status == arbiter.Granted {
					t.Fatal("another lease took the room of a running call")
				}
				if _, held := totals(t, e); held < 900 {
					t.Fatalf("held %d: the hold lapsed", held)
				}
				if err := e.Ready(); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// T34: ten calls end without a word and their releases fail; the slots are free within the TTL, and new traffic does not keep them.
func TestT34SlotsComeBack(t *testing.T) {
	t.Parallel()
	faults(t, func(t *testing.T, store *journaltest.Faulty) {
		e := start(t, store, engine.Options{}, policy(ceilings(arbiter.Ceilings{MaxConcurrent: 10}), ttl(30*time.Second)))
		var leases []engine.Outcome
		for range 10 {
			leases = append(leases, granted(t, e, ask(1)))
		}
		began := time.Now()
		// The releases fail: nothing lands before the process of the callers is gone.
		ctx, cancel := context.WithCancel(context.Background())
		store.SetPlan(func(int) journaltest.Fault { return journaltest.FailBefore })
		var wg sync.WaitGroup
		for _, o := range leases[:2] {
			wg.Go(func() {
				if _, err := e.Do(ctx, release(o, arbiter.OutcomeTimeout)); err == nil {
					t.Error("released over a failing journal")
				}
			})
		}
		wg.Wait()
		cancel()
		store.SetPlan(nil)
		for time.Since(began) < 29*time.Second {
			<-time.After(time.Second)
			if o := must(t, e, ask(1)); o.Answer.Status == arbiter.Granted { // traffic
				must(t, e, commit(o, 1))
			}
		}
		<-time.After(2 * time.Second)
		for range 10 {
			granted(t, e, ask(1))
		}
		happened(t, store, journaltest.FailBefore)
	})
}

// An append whose answer is lost: the callers are told that nothing is known; a grant that lands after they left is given back, and
// the same request is granted anew.
func TestGrantThatReachedNobody(t *testing.T) {
	t.Parallel()
	for _, fault := range []journaltest.Fault{journaltest.FailAfter, journaltest.LandLate, journaltest.Stall, journaltest.FailBefore} {
		t.Run(fault.String(), func(t *testing.T) {
			t.Parallel()
			faults(t, func(t *testing.T, store *journaltest.Faulty) {
				e := start(t, store, engine.Options{}, policy(globalTokens(1000)))
				store.SetPlan(func(int) journaltest.Fault { return fault })
				if _, err := e.Do(context.Background(), ask(700, named("r"))); code(err) != "journal" {
					t.Fatalf("told %v", err)
				}
				if _, err := e.Do(context.Background(), ask(1)); code(err) != "journal" {
					t.Fatalf("while silent: %v", err)
				}
				store.SetPlan(nil)
				store.Resume()
				<-time.After(time.Second)
				happened(t, store, fault)
				if n := running(t, e); n != 0 {
					t.Fatalf("%d leases run that nobody holds", n)
				}
				o := granted(t, e, ask(700, named("r")))
				if o.Answer.Flags&arbiter.FlagRepeat != 0 {
					t.Fatalf("the repeat got the dead lease: %+v", o.Answer)
				}
				again := granted(t, e, ask(700, named("r")))
				if again.Answer.Lease.Lease != o.Answer.Lease.Lease {
					t.Fatal("a repeat of the repeat got another lease")
				}
				must(t, e, commit(o, 700))
				if spent, held := totals(t, e); spent != 700 || held != 0 {
					t.Fatalf("spent %d, held %d", spent, held)
				}
			})
		})
	}
}

// A grant whose append took longer than 100 ms is not handed out: it is decided again at the present time.
func TestLateGrantIsDecidedAgain(t *testing.T) {
	t.Parallel()
	faults(t, func(t *testing.T, store *journaltest.Faulty) {
		e := start(t, store, engine.Options{}, policy(globalTokens(1000)))
		next(store, journaltest.Stall)
		answer := make(chan engine.Outcome, 1)
		began := time.Now()
		go func() { answer <- granted(t, e, ask(600)) }()
		synctest.Wait()
		<-time.After(150 * time.Millisecond)
		store.Resume()
		o := <-answer
		happened(t, store, journaltest.Stall)
		if age := time.Duration(o.Answer.Lease.Granted) - 1*time.Second; age < time.Since(began)-100*time.Millisecond {
			t.Fatalf("the grant dates from %s, handed over at %s", age, time.Since(began))
		}
		if s := e.Stats()[0]; s.Voided != 1 || s.Late != 1 {
			t.Fatalf("voided %d, late %d", s.Voided, s.Late)
		}
		if _, held := totals(t, e); held != 600 {
			t.Fatalf("held %d", held)
		}
	})
}

// A full journal: requests are refused, commits and releases go on, and grants come back with the room.
func TestFullJournal(t *testing.T) {
	t.Parallel()
	faults(t, func(t *testing.T, store *journaltest.Faulty) {
		e := start(t, store, engine.Options{}, policy(globalTokens(1000)))
		a, b := granted(t, e, ask(100)), granted(t, e, ask(200))
		store.SetPlan(func(int) journaltest.Fault { return journaltest.Full })
		if _, err := e.Do(context.Background(), ask(1)); code(err) != "journal_full" {
			t.Fatalf("request: %v", err)
		}
		must(t, e, commit(a, 100))
		must(t, e, release(b, arbiter.OutcomeNotSent))
		if spent, held := totals(t, e); spent != 100 || held != 0 {
			t.Fatalf("spent %d, held %d", spent, held)
		}
		if err := e.Ready(); err == nil {
			t.Fatal("ready while full")
		}
		happened(t, store, journaltest.Full)
		store.SetPlan(nil)
		<-time.After(2 * time.Second)
		granted(t, e, ask(1))
		if err := e.Ready(); err != nil {
			t.Fatal(err)
		}
	})
}

// A pool without leases is ready again soon after room is back, though nobody sends it anything while it is not.
func TestRoomIsSeenWithoutTraffic(t *testing.T) {
	t.Parallel()
	faults(t, func(t *testing.T, store *journaltest.Faulty) {
		e := start(t, store, engine.Options{}, policy())
		store.SetPlan(func(int) journaltest.Fault { return journaltest.Full })
		if _, err := e.Do(context.Background(), ask(1)); code(err) != "journal_full" {
			t.Fatalf("request: %v", err)
		}
		<-time.After(10 * time.Second)
		if e.Ready() == nil {
			t.Fatal("ready while full")
		}
		before := e.Stats()[0].Entries
		store.SetPlan(nil)
		<-time.After(3 * time.Second)
		if err := e.Ready(); err != nil {
			t.Fatal(err)
		}
		<-time.After(10 * time.Second)
		if n := e.Stats()[0].Entries - before; n > 2 { // one that failed, one that did not
			t.Fatalf("%d entries by an idle pool", n)
		}
	})
}

// Whatever turns a command away, the statistics count it.
func TestRefusalsAreCounted(t *testing.T) {
	t.Parallel()
	faults(t, func(t *testing.T, store *journaltest.Faulty) {
		ctx := context.Background()
		e := start(t, store, engine.Options{MaxWaiters: 1, InboxSize: 4}, policy(ceilings(arbiter.Ceilings{MaxConcurrent: 1}), ttl(30*time.Second)))
		failed := int64(0)
		refused := func(want string, err error) {
			t.Helper()
			if code(err) != want {
				t.Fatalf("%v, want %s", err, want)
			}
			failed++
			if s := e.Stats()[0]; s.Failed != failed || s.Decisions < failed {
				t.Fatalf("after %s: %d failed, want %d; %d decisions", want, s.Failed, failed, s.Decisions)
			}
		}
		held := granted(t, e, ask(1))
		waiter := engine.NewLeaseID(0, "a", "waiter")
		go func() { _, _ = e.Do(ctx, ask(1, waits(time.Hour), named("waiter"))) }()
		synctest.Wait()
		_, err := e.Do(ctx, ask(1, waits(time.Hour)))
		refused("inbox_full", err)
		p := e.NewPipe(1)
		defer p.Close()
		if err := p.Submit(1, commit(held, 1)); err != nil {
			t.Fatal(err)
		}
		refused("pipe_full", p.Submit(2, ask(1)))
		synctest.Wait() // the waiter has the slot
		next(store, journaltest.Stall)
		<-time.After(time.Second)
		_, err = e.Do(ctx, engine.Op{Command: &arbiter.Extend{Lease: waiter}})
		refused("journal", err)
		store.Resume()
		synctest.Wait()
		store.SetPlan(func(int) journaltest.Fault { return journaltest.Full })
		<-time.After(time.Second)
		_, err = e.Do(ctx, engine.Op{Command: &arbiter.Extend{Lease: waiter}})
		refused("journal_full", err)
		_, err = e.Do(ctx, ask(1))
		refused("journal_full", err)
		store.SetPlan(nil)
		<-time.After(3 * time.Second)
		drained := make(chan error)
		go func() { drained <- e.Drain(ctx) }()
		synctest.Wait()
		_, err = e.Do(ctx, ask(1))
		refused("draining", err)
		<-drained
	})
}

// Two engines on one store: the slower takes what the other appended and decides again. Together they never pass the limit.
func TestTwoWriters(t *testing.T) {
	t.Parallel()
	world(t, func(t *testing.T, store *journal.Memory) {
		const limit, size = 10_000, 7
		a := start(t, store, engine.Options{Writer: "a"}, policy(globalTokens(limit)))
		b := start(t, store, engine.Options{Writer: "b"}, nil)
		var mu sync.Mutex
		var sum int64
		var wg sync.WaitGroup
		for i := range 64 {
			e := a
			if i%2 == 1 {
				e = b
			}
			wg.Go(func() {
				for range 50 {
					o := must(t, e, ask(size))
					if o.Answer.Status == arbiter.Granted {
						mu.Lock()
						sum += size
						mu.Unlock()
					}
				}
			})
		}
		wg.Wait()
		if sum > limit || sum < limit-size {
			t.Fatalf("granted %d of %d", sum, limit)
		}
		if a.Stats()[0].Conflicts+b.Stats()[0].Conflicts == 0 {
			t.Fatal("no conflict happened: the test proves nothing")
		}
		// b's view follows a's entries as soon as b appends.
		must(t, b, ask(size))
	})
}

// Another epoch was opened: the writer learns it and goes on.
func TestNewEpoch(t *testing.T) {
	t.Parallel()
	world(t, func(t *testing.T, store *journal.Memory) {
		e := start(t, store, engine.Options{}, policy(globalTokens(1000)))
		o := granted(t, e, ask(100))
		j, err := store.Open(context.Background(), pool)
		if err != nil {
			t.Fatal(err)
		}
		if err := j.OpenEpoch(context.Background(), 1); err != nil {
			t.Fatal(err)
		}
		must(t, e, commit(o, 60))
		if o = granted(t, e, ask(100)); o.Decision.Epoch != 2 {
			t.Fatalf("epoch %d", o.Decision.Epoch)
		}
	})
}

// The store is gone: everything is refused, nothing hangs, the pool says so.
func TestStoreClosed(t *testing.T) {
	t.Parallel()
	world(t, func(t *testing.T, store *journal.Memory) {
		e := start(t, store, engine.Options{}, policy())
		o := granted(t, e, ask(1))
		store.Close()
		for range 2 {
			if _, err := e.Do(context.Background(), commit(o, 1)); code(err) != "journal" {
				t.Fatal(err)
			}
		}
		if e.Ready() == nil {
			t.Fatal("ready over a closed store")
		}
	})
}

// Random faults under load: whatever the journal does, acknowledged commits are counted once and the limit holds.
func TestRandomFaults(t *testing.T) {
	t.Parallel()
	for seed := range 8 {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			faults(t, func(t *testing.T, store *journaltest.Faulty) {
				e := start(t, store, engine.Options{}, policy(globalTokens(20_000), ttl(30*time.Second)))
				store.SetPlan(func(n int) journaltest.Fault {
					switch (n*2654435761 + seed*40503) >> 7 % 11 {
					case 0:
						return journaltest.FailBefore
					case 1:
						return journaltest.FailAfter
					case 2:
						return journaltest.Repeat
					case 3:
						return journaltest.LandLate
					}
					return journaltest.None
				})
				stop := make(chan struct{})
				go func() {
					for {
						select {
						case <-stop:
							return
						case <-time.After(70 * time.Millisecond):
							store.Resume()
						}
					}
				}()
				var mu sync.Mutex
				var acknowledged int64
				var wg sync.WaitGroup
				for i := range 32 {
					wg.Go(func() {
						for k := range 20 {
							id := fmt.Sprintf("%d-%d", i, k)
							o, err := until(e, ask(10, named(id), waits(time.Second)))
							if err != nil || o.Answer.Status != arbiter.Granted {
								continue
							}
							if c, err := until(e, commit(o, 7)); err != nil || c.Answer.Result > arbiter.AlreadyRecorded {
								t.Errorf("commit: %v %v", err, c.Answer.Result)
							}
							mu.Lock()
							acknowledged += 7
							mu.Unlock()
						}
					})
				}
				wg.Wait()
				close(stop)
				store.SetPlan(nil)
				store.Resume()
				<-time.After(40 * time.Second) // what nobody holds is over
				if spent, held := totals(t, e); spent != acknowledged || held != 0 || spent == 0 {
					t.Fatalf("spent %d, held %d, acknowledged %d", spent, held, acknowledged)
				}
				for _, f := range []journaltest.Fault{journaltest.FailBefore, journaltest.FailAfter, journaltest.Repeat, journaltest.LandLate} {
					happened(t, store, f)
				}
			})
		})
	}
}

// until repeats an op, as a client does, until its outcome is known.
func until(e *engine.Engine, op engine.Op) (engine.Outcome, error) {
	for {
		o, err := e.Do(context.Background(), op)
		var ae *arbiter.Error
		if !errors.As(err, &ae) || ae.Code != arbiter.CodeUnavailable {
			return o, err
		}
		<-time.After(time.Duration(max(ae.RetryAfter, arbiter.Millisecond)))
	}
}
