package arbiter

import (
	"math/rand"
	"slices"
	"testing"
)

// TestEndHeapOrder: whatever goes in, ends come out in (time, slot) order.
func TestEndHeapOrder(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewSource(1))
	for range 200 {
		var h endHeap
		var want []endEntry
		for range rng.Intn(500) {
			e := endEntry{int64(rng.Intn(50)), uint32(rng.Intn(1000))}
			h.push(e)
			want = append(want, e)
			if rng.Intn(4) == 0 {
				slices.SortFunc(want, func(a, b endEntry) int {
					if a.before(b) {
						return -1
					}
					if b.before(a) {
						return 1
					}
					return 0
				})
				if got := h.pop(); got != want[0] {
					t.Fatalf("popped %v, the first is %v", got, want[0])
				}
				want = want[1:]
			}
		}
		last := endEntry{at: -1}
		for len(h) > 0 {
			e := h.pop()
			if e.before(last) {
				t.Fatalf("popped %v after %v", e, last)
			}
			last = e
		}
	}
}
