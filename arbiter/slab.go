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
