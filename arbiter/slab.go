package arbiter

const slabBits = 9

// slab is a table whose rows never move, so that the undo log may point into them. Growing it allocates one chunk and copies nothing.
type slab[T any] struct {
	chunks []*[1 << slabBits]T
	n      uint32
}

func (s *slab[T]) at(i uint32) *T { return &s.chunks[i>>slabBits][i&(1<<slabBits-1)] }

// push returns the number of a new row. A row that was popped before is not zeroed.
func (s *slab[T]) push() uint32 {
	i := s.n
	if int(i>>slabBits) == len(s.chunks) {
		s.chunks = append(s.chunks, new([1 << slabBits]T))
	}
	s.n++
	return i
}

// grow makes rows 0 to n−1 exist; new ones are zero.
func (s *slab[T]) grow(n uint32) {
	for s.n < n {
		s.push()
	}
}

// endHeap orders leases by the time at which something may be due (4-ary heap). Entries may be stale: an entry counts only if it
// equals the lease's wake, and a lease whose end moved later is pushed again when its old entry comes up. So a commit or an
// extension costs nothing here.
type endHeap []endEntry

type endEntry struct {
	at   int64
	slot uint32
}

func (e endEntry) before(o endEntry) bool { return e.at < o.at || e.at == o.at && e.slot < o.slot }

func (h *endHeap) push(e endEntry) {
	*h = append(*h, e)
	a := *h
	i := len(a) - 1
	for i > 0 {
		parent := (i - 1) / 4
		if !e.before(a[parent]) {
			break
		}
		a[i] = a[parent]
		i = parent
	}
	a[i] = e
}

func (h *endHeap) pop() endEntry {
	a := *h
	top, last := a[0], a[len(a)-1]
	a = a[:len(a)-1]
	*h = a
	i := 0
	for {
		child := 4*i + 1
		if child >= len(a) {
			break
		}
		for c := child + 1; c < min(child+4, len(a)); c++ {
			if a[c].before(a[child]) {
				child = c
			}
		}
		if !a[child].before(last) {
			break
		}
		a[i] = a[child]
		i = child
	}
	if len(a) > 0 {
		a[i] = last
	}
	return top
}
