package engine

// waiterHeap orders the waiters of a shape by seniority.
type waiterHeap []*call

func (h waiterHeap) Len() int { return len(h) }

func (h waiterHeap) Less(i, j int) bool {
	if h[i].seen != h[j].seen {
		return h[i].seen < h[j].seen
	}
	return h[i].order < h[j].order
}

func (h waiterHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].slot, h[j].slot = i, j
}

func (h *waiterHeap) Push(x any) {
	c := x.(*call)
	c.slot = len(*h)
	*h = append(*h, c)
}

func (h *waiterHeap) Pop() any {
	last := len(*h) - 1
	c := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return c
}

// expiryHeap orders waiters by the end of their patience.
type expiryHeap []*call

func (h expiryHeap) Len() int { return len(h) }

func (h expiryHeap) Less(i, j int) bool { return h[i].limit < h[j].limit }

func (h expiryHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].expiry, h[j].expiry = i, j
}

func (h *expiryHeap) Push(x any) {
	c := x.(*call)
	c.expiry = len(*h)
	*h = append(*h, c)
}

func (h *expiryHeap) Pop() any {
	last := len(*h) - 1
	c := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	c.expiry = -1
	return c
}

// passHeap orders the shapes of one level.
type passHeap []*shape

func (h passHeap) Len() int { return len(h) }

func (h passHeap) Less(i, j int) bool {
	if h[i].rank != h[j].rank {
		return h[i].rank < h[j].rank
	}
	a, b := h[i].waiters, h[j].waiters
	if len(a) == 0 || len(b) == 0 {
		return len(a) > len(b)
	}
	if a[0].seen != b[0].seen {
		return a[0].seen < b[0].seen
	}
	return a[0].order < b[0].order
}

func (h passHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

func (h *passHeap) Push(x any) { *h = append(*h, x.(*shape)) }

func (h *passHeap) Pop() any {
	last := len(*h) - 1
	s := (*h)[last]
	*h = (*h)[:last]
	return s
}
