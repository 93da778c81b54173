package arbiter

import (
	"math/rand/v2"
	"testing"
)

// TestWheelNext: the earliest entry, near or turns away, however many buckets hold only far ones.
func TestWheelNext(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 7))
	const turn = wheelBuckets * bucketLength
	for round := range 40 {
		w, live, now := new(endWheel), map[endEntry]bool{}, int64(r.IntN(int(3*turn)))
		w.turn(now)
		for step := range 300 {
			switch r.IntN(3) {
			case 0, 1:
				e := endEntry{now + 1 + r.Int64N([...]int64{bucketLength, Minute, turn, 9 * turn}[r.IntN(4)]), uint32(step)}
				w.add(e)
				live[e] = true
			default:
				now += r.Int64N([...]int64{bucketLength, Second, turn / 2, 2 * turn}[(r.IntN(4)+round)%4])
				w.turn(now)
				for len(w.due) > 0 {
					delete(live, w.due.pop())
				}
			}
			want, any := int64(0), false
			for e := range live {
				if !any || e.at < want {
					want, any = e.at, true
				}
			}
			if got, ok := w.next(); ok != any || got != want {
				t.Fatalf("round %d, step %d at %d: next is %d %v, want %d %v", round, step, now, got, ok, want, any)
			}
		}
	}
}

func TestWheelNextAllocatesNothing(t *testing.T) { //nolint:paralleltest // it counts allocations
	w := new(endWheel)
	for i := range 5000 {
		w.add(endEntry{3*Hour + int64(i)*Second, uint32(i)})
	}
	if n := testing.AllocsPerRun(10, func() { w.next() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestNextEndNeedsNoRest: who wakes at NextEnd and finds nothing to do, and takes that back, is not woken for it again.
func TestNextEndNeedsNoRest(t *testing.T) {
	t.Parallel()
	k := openDesk(t, onePolicy())
	for n := range 20 {
		k.grant(t, Hour, requestOf(n))
	}
	now := Hour + 10*Second
	for n := range 20 {
		switch n % 3 {
		case 0:
			k.do(t, at(now), &Extend{Lease: leaseID(n), Arrival: now})
		case 1:
			k.do(t, at(now), &Commit{Lease: leaseID(n), HasActual: true, Actual: 10})
		}
	}
	wakes := 0
	for {
		next, ok := k.w.NextEnd()
		if !ok {
			break
		}
		if next <= now || wakes > 1000 {
			t.Fatalf("at %d s it is woken for %d s, after %d wakes", now/Second, next/Second, wakes)
		}
		now = next
		wakes++
		k.run(t, &batch{t: at(now)}) // taken back when nothing ended
	}
	if c := k.w.Counts(); wakes > 10 || c.Running() != 0 || k.w.leases.n != uint32(len(k.w.leaseFree)) {
		t.Errorf("%d wakes; %+v", wakes, c)
	}
}
