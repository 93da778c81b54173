package engine_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/engine"
	"github.com/token-budget-arbiter/tba/internal/journal"
	"github.com/token-budget-arbiter/tba/internal/journal/journaltest"
)

// A link breaks with grants that nobody read; the client asks again under the same ids over a new one and its calls run. When the old
// link is closed at last, the leases stay with the calls: they are not given back under them.
func TestBrokenLinkKeepsRepeatedLeases(t *testing.T) {
	t.Parallel()
	world(t, func(t *testing.T, store *journal.Memory) {
		e := start(t, store, engine.Options{}, policy(globalTokens(1000), ceilings(arbiter.Ceilings{MaxConcurrent: 3})))
		old := e.NewPipe(0)
		for tag := range uint64(3) {
			if err := old.Submit(tag, ask(100, named(fmt.Sprint("r", tag)))); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		var calls []engine.Outcome
		for i := range 2 { // the third is not asked for again
			o := granted(t, e, ask(100, named(fmt.Sprint("r", i))))
			if o.Answer.Flags&arbiter.FlagRepeat == 0 || len(o.Token) == 0 {
				t.Fatalf("repeat: %+v", o.Answer)
			}
			calls = append(calls, o)
		}
		<-time.After(20 * time.Second) // keepalive
		old.Close()
		synctest.Wait()
		if n := running(t, e); n != 2 {
			t.Fatalf("%d leases run, want the two whose calls run", n)
		}
		granted(t, e, ask(1))
		if o := must(t, e, ask(1)); o.Answer.Status == arbiter.Granted {
			t.Fatal("a slot was granted twice")
		}
		for _, o := range calls {
			if c := must(t, e, commit(o, 100)); c.Answer.Result != arbiter.Recorded || c.Answer.Flags&arbiter.FlagAfterRelease != 0 {
				t.Fatalf("commit: %+v", c.Answer)
			}
		}
	})
}

// A grant that came too late is given back before its request is decided again, however many commits wait.
func TestLateGrantBehindManyCommits(t *testing.T) {
	t.Parallel()
	faults(t, func(t *testing.T, store *journaltest.Faulty) {
		e := start(t, store, engine.Options{}, policy(globalTokens(1000)))
		next(store, journaltest.Stall)
		p := e.NewPipe(4000)
		defer p.Close()
		var tags []uint64
		var ops []engine.Op
		for i := range uint64(3000) {
			tags = append(tags, i)
			ops = append(ops, engine.Op{Command: &arbiter.Commit{Lease: engine.NewLeaseID(0, "", fmt.Sprint(i)), HasActual: true}})
		}
		tags, ops = append(tags, 3000), append(ops, ask(600, named("r")))
		p.SubmitAll(tags, ops, make([]error, len(ops)))
		synctest.Wait()
		<-time.After(150 * time.Millisecond)
		store.Resume()
		happened(t, store, journaltest.Stall)
		var buf []engine.Reply
		var o engine.Outcome
		for len(o.Token) == 0 {
			var err error
			if buf, err = p.Next(context.Background(), buf); err != nil {
				t.Fatal(err)
			}
			for _, r := range buf {
				if r.Tag == 3000 {
					o = r.Outcome
				}
			}
		}
		if o.Answer.Flags&arbiter.FlagRepeat != 0 {
			t.Fatal("the late grant was handed out as a repeat of itself")
		}
		synctest.Wait()
		if n := running(t, e); n != 1 {
			t.Fatalf("%d leases run, want the one that was handed out", n)
		}
		if s := e.Stats()[0]; s.Voided != 1 || s.Late != 1 {
			t.Fatalf("voided %d, late %d", s.Voided, s.Late)
		}
	})
}
