package engine_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/engine"
	"github.com/token-budget-arbiter/tba/internal/journal"
	"github.com/token-budget-arbiter/tba/internal/journal/journaltest"
)

type faulty = journaltest.Faulty

const stall = journaltest.Stall

// Commits ride with a request in one entry and make room for it.
func TestDoAll(t *testing.T) {
	t.Parallel()
	world(t, func(t *testing.T, store *journal.Memory) {
		e := start(t, store, engine.Options{}, policy(ceilings(arbiter.Ceilings{MaxConcurrent: 2})))
		a, b := granted(t, e, ask(10)), granted(t, e, ask(10))
		before := e.Stats()[0].Entries
		replies := e.DoAll(context.Background(), []engine.Op{ask(5), commit(a, 3), commit(b, 4), {Pool: "nowhere", Command: &arbiter.Commit{}}})
		if replies[0].Err != nil || replies[0].Answer.Status != arbiter.Granted || len(replies[0].Token) == 0 {
			t.Fatalf("request: %+v", replies[0])
		}
		if replies[1].Answer.Tokens != 3 || replies[2].Answer.Tokens != 4 {
			t.Fatalf("commits: %+v %+v", replies[1].Answer, replies[2].Answer)
		}
		if code(replies[3].Err) != "unknown_pool" {
			t.Fatalf("unknown pool: %v", replies[3].Err)
		}
		if n := e.Stats()[0].Entries - before; n != 1 {
			t.Fatalf("%d entries", n)
		}
	})
}

func TestPipe(t *testing.T) {
	t.Parallel()
	world(t, func(t *testing.T, store *journal.Memory) {
		ctx := context.Background()
		e := start(t, store, engine.Options{}, policy(ceilings(arbiter.Ceilings{MaxConcurrent: 1})))
		p := e.NewPipe(4)
		if err := p.Submit(1, ask(1)); err != nil {
			t.Fatal(err)
		}
		first, err := p.Next(ctx, nil)
		if err != nil || len(first) != 1 || first[0].Tag != 1 || first[0].Answer.Status != arbiter.Granted {
			t.Fatalf("%+v %v", first, err)
		}
		holder := first[0].Outcome
		// Two wait; one is given up; the other gets the room.
		for tag := uint64(2); tag <= 3; tag++ {
			if err := p.Submit(tag, ask(1, waits(time.Minute))); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		p.Cancel(2)
		p.Cancel(77)
		got, err := p.Next(ctx, nil)
		if err != nil || len(got) != 1 || got[0].Tag != 2 || !errors.Is(got[0].Err, context.Canceled) {
			t.Fatalf("%+v %v", got, err)
		}
		if err := p.Submit(4, commit(holder, 1)); err != nil {
			t.Fatal(err)
		}
		seen := map[uint64]engine.Reply{}
		for len(seen) < 2 {
			if got, err = p.Next(ctx, got); err != nil {
				t.Fatal(err)
			}
			for _, r := range got {
				seen[r.Tag] = r
			}
		}
		if seen[3].Answer.Status != arbiter.Granted || seen[4].Answer.Result != arbiter.Recorded {
			t.Fatalf("%+v", seen)
		}
		// The capacity is bounded; replies that are not read count.
		for tag := uint64(10); tag < 14; tag++ {
			if err := p.Submit(tag, ask(1, waits(time.Minute))); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Submit(14, ask(1)); code(err) != "pipe_full" {
			t.Fatal(err)
		}
		// The stream breaks: who waits vanishes, an unread grant goes back.
		must(t, e, commit(seen[3].Outcome, 1))
		synctest.Wait()
		p.Close()
		p.Close()
		synctest.Wait()
		if n, rows := running(t, e), e.Waiting(pool); n != 0 || len(rows) != 0 {
			t.Fatalf("%d leases run, waiting %+v", n, rows)
		}
		if err := p.Submit(1, ask(1)); err == nil {
			t.Fatal("submitted to a closed pipe")
		}
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if _, err := p.Next(short, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
	})
}

// Subscribers: a change reaches all of a crowd within a second; one that never reads holds nobody.
func TestTenThousandSubscribers(t *testing.T) {
	t.Parallel()
	world(t, func(t *testing.T, store *journal.Memory) {
		const subscribers = 10_000
		e := start(t, store, engine.Options{}, policy(globalTokens(1000)))
		synctest.Wait()
		heard := make(chan time.Duration, subscribers)
		var began time.Time
		for i := range subscribers {
			w, err := e.WatchBackpressure(pool)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			if i%10 == 0 {
				continue // never reads
			}
			go func() {
				for {
					v, changed := w.Latest()
					if v.Level == arbiter.LevelCritical {
						heard <- time.Since(began)
						return
					}
					<-changed
				}
			}()
		}
		synctest.Wait()
		began = time.Now()
		o := granted(t, e, ask(980))
		must(t, e, commit(o, 980))
		for range subscribers - subscribers/10 {
			if d := <-heard; d > time.Second {
				t.Fatalf("heard after %s", d)
			}
		}
		if level, delay := e.Level(pool); level != arbiter.LevelCritical || delay != 10_000 {
			t.Fatalf("%s %d", level, delay)
		}
	})
}

// The level falls by time alone, without traffic.
func TestPressureFallsWithTime(t *testing.T) {
	t.Parallel()
	world(t, func(t *testing.T, store *journal.Memory) {
		e := start(t, store, engine.Options{}, policy(ceilings(arbiter.Ceilings{RPM: 10, Burst: arbiter.Whole})))
		w, err := e.WatchBackpressure(pool)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		for range 10 {
			must(t, e, commit(granted(t, e, ask(1)), 1))
		}
		<-time.After(2 * time.Second)
		if v, _ := w.Latest(); v.Level != arbiter.LevelCritical || !v.ShedLow || v.Providers[0].Headroom != 0 {
			t.Fatalf("full window: %+v", v)
		}
		_, changed := w.Latest()
		<-changed
		<-time.After(65 * time.Second)
		if v, _ := w.Latest(); v.Level != arbiter.LevelNone {
			t.Fatalf("empty window: %+v", v)
		}
	})
}
