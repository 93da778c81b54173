package engine_test

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/engine"
	"github.com/token-budget-arbiter/tba/internal/journal"
)

// shared is a memory store that behaves as a shared one may: it answers appends by what script returns.
type shared struct {
	*journal.Memory
	mu     sync.Mutex
	script func(append func() (journal.Result, error)) (journal.Result, error)
	prove  func() error
}

func (s *shared) set(script func(append func() (journal.Result, error)) (journal.Result, error), prove func() error) {
	s.mu.Lock()
	s.script, s.prove = script, prove
	s.mu.Unlock()
}

func (s *shared) Open(ctx context.Context, name string) (journal.Journal, error) {
	j, err := s.Memory.Open(ctx, name)
	return &sharedJournal{j, s}, err
}

type sharedJournal struct {
	journal.Journal
	s *shared
}

func (j *sharedJournal) Append(ctx context.Context, req journal.AppendRequest) (journal.Result, error) {
	j.s.mu.Lock()
	script := j.s.script
	j.s.mu.Unlock()
	real := func() (journal.Result, error) { return j.Journal.Append(ctx, req) }
	if script == nil {
		return real()
	}
	return script(real)
}

func (j *sharedJournal) Prove(ctx context.Context, pos journal.Position) error {
	j.s.mu.Lock()
	prove := j.s.prove
	j.s.mu.Unlock()
	if prove == nil {
		return j.Journal.Prove(ctx, pos)
	}
	return prove()
}

// An entry that is in the log and not yet proven: nobody is answered before the proof.
func TestUnproven(t *testing.T) {
	t.Parallel()
	world(t, func(t *testing.T, mem *journal.Memory) {
		store := &shared{Memory: mem}
		e := start(t, store, engine.Options{}, policy())
		var proofs atomic.Int64
		store.set(func(append func() (journal.Result, error)) (journal.Result, error) {
			if res, err := append(); err != nil {
				return res, err
			}
			return journal.Result{}, journal.ErrUnproven
		}, func() error {
			if proofs.Add(1) < 3 {
				return journal.ErrUnproven
			}
			return nil
		})
		began := time.Now()
		o := granted(t, e, ask(5))
		if proofs.Load() != 3 || time.Since(began) < 25*time.Millisecond {
			t.Fatalf("answered after %d proofs and %s", proofs.Load(), time.Since(began))
		}
		store.set(nil, nil)
		must(t, e, commit(o, 5))
	})
}

// forwarder answers for the other writer.
type forwarder struct {
	writer string
	seen   int64
}

func (f *forwarder) Forward(_ context.Context, writer string, op engine.Op, firstSeen int64) (engine.Outcome, error) {
	f.writer, f.seen = writer, firstSeen
	r := op.Command.(*arbiter.Request)
	return engine.Outcome{Answer: arbiter.Answer{Status: arbiter.Granted, Lease: arbiter.LeaseState{Lease: r.Lease, Phase: arbiter.Active}}}, nil
}

// Another writer holds the pool: its name is told, or the command goes there.
func TestBusy(t *testing.T) {
	t.Parallel()
	for _, f := range []*forwarder{nil, {}} {
		world(t, func(t *testing.T, mem *journal.Memory) {
			store := &shared{Memory: mem}
			opts := engine.Options{}
			if f != nil {
				opts.Forward = f
			}
			e := start(t, store, opts, policy())
			store.set(func(func() (journal.Result, error)) (journal.Result, error) {
				return journal.Result{}, &journal.BusyError{Writer: "replica-2"}
			}, nil)
			o, err := e.Do(context.Background(), ask(5))
			if f == nil {
				if code(err) != "other_writer" {
					t.Fatal(err)
				}
			} else if err != nil || o.Answer.Status != arbiter.Granted || f.writer != "replica-2" || f.seen == 0 {
				t.Fatalf("%+v %v, forwarded to %q", o, err, f.writer)
			}
			store.set(nil, nil)
			granted(t, e, ask(5))
			if _, held := totals(t, e); held != 5 {
				t.Fatalf("held %d: a batch that was not appended left a trace", held)
			}
		})
	}
}

// The store's clock stands still while the process's goes on: its refusals are believed, and decisions go on in its time.
func TestStoreClockSlower(t *testing.T) {
	t.Parallel()
	world(t, func(t *testing.T, _ *journal.Memory) {
		began := time.Now()
		var stopped atomic.Int64
		store := journal.NewMemory(journal.MemoryOptions{Clock: func() journal.Time {
			d := int64(time.Since(began))
			if s := stopped.Load(); s > 0 {
				d = s + (d-s)/1000
			}
			return journal.Time{Now: journal.FirstNow + d, Wall: began.UnixNano() + d}
		}})
		e := start(t, store, engine.Options{}, policy())
		stopped.Store(int64(time.Since(began)) + 1)
		<-time.After(10 * time.Second)
		o := granted(t, e, ask(5))
		if o.Answer.Lease.Granted > journal.FirstNow+int64(time.Second) {
			t.Fatalf("granted at %d ns: ahead of the store", o.Answer.Lease.Granted)
		}
		must(t, e, commit(o, 5))
		if e.Stats()[0].Clocks == 0 {
			t.Fatal("the store refused no time: the test proves nothing")
		}
	})
}

// A quiet pool is snapshotted, so that it does not pin the log it shares.
func TestIdlePoolIsSnapshotted(t *testing.T) {
	t.Parallel()
	world(t, func(t *testing.T, store *journal.Memory) {
		e := start(t, store, engine.Options{}, policy())
		must(t, e, commit(granted(t, e, ask(5)), 5))
		<-time.After(3 * time.Minute)
		if n := e.Stats()[0].Snapshots; n != 1 {
			t.Fatalf("%d snapshots", n)
		}
		j, err := store.Open(context.Background(), pool)
		if err != nil {
			t.Fatal(err)
		}
		if h, err := j.Head(context.Background()); err != nil || h.Bytes != 0 {
			t.Fatalf("%d bytes of log left, %v", h.Bytes, err)
		}
		e.Close()
		if spent, _ := totals(t, start(t, store, engine.Options{}, nil)); spent != 5 {
			t.Fatalf("spent %d after the restart", spent)
		}
	})
}

// A snapshot that cannot be read is a refusal, never an empty pool.
func TestCorruptSnapshot(t *testing.T) {
	t.Parallel()
	world(t, func(t *testing.T, store *journal.Memory) {
		ctx := context.Background()
		e := start(t, store, engine.Options{}, policy())
		granted(t, e, ask(5))
		e.Close()
		j, err := store.Open(ctx, pool)
		if err != nil {
			t.Fatal(err)
		}
		h, err := j.Head(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := j.Snapshots().Save(ctx, h.Pos, func(w io.Writer) error {
			_, err := w.Write([]byte("not a state"))
			return err
		}); err != nil {
			t.Fatal(err)
		}
		again, err := engine.New(engine.Options{Store: store})
		if err != nil {
			t.Fatal(err)
		}
		if err := again.Open(ctx, pool, policy()); err == nil {
			t.Fatal("opened")
		}
		if len(again.Pools()) != 0 {
			t.Fatal("the pool is open")
		}
	})
}
