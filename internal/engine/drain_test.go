package engine_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/token-budget-arbiter/tba/internal/engine"
	"github.com/token-budget-arbiter/tba/internal/journal"
	"github.com/token-budget-arbiter/tba/internal/journal/journaltest"
)

// deaf is a store whose appends, once it is stuck, do not even hear that their caller gave up: a disk that hangs.
type deaf struct {
	journal.Store
	stuck chan struct{} // nil: not stuck
}

type deafJournal struct {
	journal.Journal
	store *deaf
}

func (d *deaf) Open(ctx context.Context, pool string) (journal.Journal, error) {
	j, err := d.Store.Open(ctx, pool)
	return &deafJournal{j, d}, err
}

func (j *deafJournal) Append(ctx context.Context, req journal.AppendRequest) (journal.Result, error) {
	if j.store.stuck != nil {
		<-j.store.stuck
	}
	return j.Journal.Append(ctx, req)
}

// A drain ends in time though an append hangs, and says what it left.
func TestDrainOverADiskThatHangs(t *testing.T) {
	t.Parallel()
	world(t, func(t *testing.T, store *journal.Memory) {
		d := &deaf{Store: store}
		e := start(t, d, engine.Options{DrainTimeout: 20 * time.Second}, policy(ttl(time.Hour)))
		o := granted(t, e, ask(1))
		synctest.Wait()
		d.stuck = make(chan struct{})
		defer close(d.stuck)
		if _, err := e.Do(context.Background(), commit(o, 1)); code(err) != "journal" {
			t.Fatal(err)
		}
		began := time.Now()
		if err := e.Drain(context.Background()); err == nil {
			t.Fatal("a drain that saved nothing says that it did")
		}
		if d := time.Since(began); d > 45*time.Second {
			t.Fatalf("drained after %s", d)
		}
	})
}

// A journal that stumbles while the pool goes down is waited for: what was accepted is recorded, and the snapshot is left.
func TestDrainOverAJournalThatStumbles(t *testing.T) {
	t.Parallel()
	faults(t, func(t *testing.T, store *journaltest.Faulty) {
		e := start(t, store, engine.Options{DrainTimeout: time.Second}, policy(ttl(time.Hour)))
		o := granted(t, e, ask(9))
		<-time.After(time.Second)
		store.SetPlan(func(int) journaltest.Fault { return journaltest.FailBefore })
		go func() { _, _ = e.Do(context.Background(), commit(o, 7)) }()
		synctest.Wait()
		go func() {
			<-time.After(5 * time.Second)
			store.SetPlan(nil)
		}()
		if err := e.Drain(context.Background()); err != nil {
			t.Fatal(err)
		}
		happened(t, store, journaltest.FailBefore)
		if spent, held := totals(t, start(t, store, engine.Options{}, nil)); spent != 7 || held != 0 {
			t.Fatalf("spent %d, held %d", spent, held)
		}
	})
}
