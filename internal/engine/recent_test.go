package engine

import (
	"encoding/binary"
	"testing"

	"github.com/token-budget-arbiter/tba/arbiter"
)

// What is not remembered any more lies before since, so that a void is never taken for one that nobody repeated.
func TestRecentKnowsWhatItForgot(t *testing.T) {
	t.Parallel()
	id := func(n int) (id arbiter.LeaseID) {
		binary.LittleEndian.PutUint64(id[:], uint64(n)+1)
		return id
	}
	var r recent
	const n = 3*generation + 7
	for i := range n {
		r.add(id(i), int64(i))
	}
	known := 0
	for i := range n {
		switch {
		case r.has(id(i)):
			known++
		case int64(i) >= r.since:
			t.Fatalf("id %d is forgotten, though everything since %d is said to be known", i, r.since)
		}
	}
	if known < generation || known > 2*generation {
		t.Fatalf("%d ids known", known)
	}
}
