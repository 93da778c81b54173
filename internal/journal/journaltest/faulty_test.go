package journaltest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/token-budget-arbiter/tba/internal/journal"
)

func TestFaulty(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		plan := []Fault{None, FailBefore, FailAfter, Repeat, Stall, LandLate, Full, Full}
		f := NewFaulty(journal.NewMemory(journal.MemoryOptions{}), func(n int) Fault { return plan[n%len(plan)] })
		l := NewLog(t, f, "p")
		bg := context.Background()
		send := func(req journal.AppendRequest) (journal.Result, error) { return l.Journal.Append(bg, req) }
		length := func() int {
			h, err := l.Journal.Head(bg)
			if err != nil {
				t.Fatal(err)
			}
			l.Pos = h.Pos
			return int(h.Pos.Seq)
		}
		l.Append(t, "none")

		if _, err := send(l.Entry(t, nil, false)); !errors.Is(err, journal.ErrUnknown) || length() != 1 {
			t.Fatalf("fail before: %v, %d entries", err, length())
		}
		if _, err := send(l.Entry(t, nil, false)); !errors.Is(err, journal.ErrUnknown) || length() != 2 {
			t.Fatalf("fail after: %v, %d entries", err, length())
		}
		if res, err := send(l.Entry(t, nil, false)); err != nil || !res.Already || length() != 3 {
			t.Fatalf("repeat: %+v, %v, %d entries", res, err, length())
		}
		done := make(chan error)
		stalled := l.Entry(t, nil, false)
		go func() { _, err := send(stalled); done <- err }()
		time.Sleep(time.Hour)
		if length() != 3 {
			t.Fatal("the stalled append went through")
		}
		f.Resume()
		if err := <-done; err != nil || length() != 4 {
			t.Fatalf("stall: %v, %d entries", err, length())
		}
		if _, err := send(l.Entry(t, nil, false)); !errors.Is(err, journal.ErrUnknown) || length() != 4 {
			t.Fatalf("land late: %v, %d entries", err, length())
		}
		f.Resume()
		if length() != 5 {
			t.Fatal("the late append never landed")
		}
		if _, err := send(l.Entry(t, nil, false)); !errors.Is(err, journal.ErrFull) || length() != 5 {
			t.Fatalf("full: %v", err)
		}
		if _, err := send(l.Entry(t, nil, true)); err != nil {
			t.Fatalf("full, essential: %v", err)
		}
		for fault := None; fault < faults; fault++ {
			if f.Count(fault) == 0 {
				t.Errorf("%s never happened", fault)
			}
		}
	})
}
