package arbiter

import (
	"bytes"
	"strconv"
	"testing"
)

// tombs is a state with a policy whose tasks come and go.
type tombs struct{ *State }

func newTombs(t *testing.T) tombs {
	t.Helper()
	return tombs{openDesk(t, onePolicy()).w}
}

// visit lets a task spend one token and be dropped.
func (s tombs) visit(now int64, task int) {
	s.Advance(at(now))
	row := s.addRow(KindTask, 0, strconv.Itoa(task))
	s.add(&s.account(nil, row).spent.tokens, 1)
	s.dropRow(row)
}

func (s tombs) spent(task int) int64 {
	return s.tombs[tombKey(KindTask, strconv.Itoa(task))].spent.tokens
}

// TestTombsArePruned: a task that comes back every day keeps its spend, and does not keep those that never come back.
func TestTombsArePruned(t *testing.T) {
	t.Parallel()
	s := newTombs(t)
	for d := range int64(30) {
		s.visit(d*24*Hour+Hour, 0)
		for n := range 10 {
			s.visit(d*24*Hour+2*Hour, int(d)*10+n+1)
		}
	}
	if got := s.spent(0); got != 30 {
		t.Errorf("the daily task has spent %d, want 30", got)
	}
	if n, places := len(s.tombs), len(s.tombQueue)-int(s.tombHead); n > 8*10+1 || places > 9*11 {
		t.Errorf("%d tombstones in %d places, want those of a week", n, places)
	}
}

// TestTombsAreBounded: the oldest go first; taking back and a snapshot keep the rest as they were.
func TestTombsAreBounded(t *testing.T) {
	t.Parallel()
	s := newTombs(t)
	for n := range 100 {
		s.visit(Hour+int64(n), n)
	}
	before := s.AppendTo(nil)
	s.Begin()
	for range 30 {
		s.pruneTombs(10)
	}
	if len(s.tombs) != 10 || s.spent(89) != 0 || s.spent(90) != 1 {
		t.Errorf("%d tombstones, want the last ten", len(s.tombs))
	}
	s.Rollback()
	if !bytes.Equal(before, s.AppendTo(nil)) || s.spent(0) != 1 {
		t.Error("taken back to something else")
	}
	other, err := DecodeState(before)
	if err != nil || len(other.tombs) != 100 {
		t.Fatalf("snapshot: %v", err)
	}
	for range 1000 { // stale places are bounded too
		for n := range 10 {
			s.visit(2*Hour+int64(n), n)
			s.pruneTombs(10)
		}
	}
	if places := len(s.tombQueue) - int(s.tombHead); places > 20 || len(s.tombs) > 10 || len(s.tombQueue) > 3000 {
		t.Errorf("%d tombstones in %d places of %d", len(s.tombs), places, len(s.tombQueue))
	}
}
