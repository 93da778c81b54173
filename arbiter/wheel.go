package arbiter

import "math/bits"

// endWheel holds, for each lease, the time at which something may be due: buckets of 100 ms, one turn in 409.6 s; what is farther
// away waits for another turn. Entries that are due gather in a heap, so that leases end in (time, slot) order.
//
// Entries may be stale: one counts only if it equals the lease's wake, and a lease whose end moved later is put back when its old
// entry comes up. So a commit or an extension costs nothing here. The layout is not part of the state; the order of ends is.
type endWheel struct {
	buckets [wheelBuckets][]endEntry
	// filled has a bit for each bucket that is not empty, first its smallest time, or an earlier one that was dropped.
	filled [wheelBuckets / 64]uint64
	first  [wheelBuckets]int64
	// visited is the time up to which everything has been moved to due.
	visited int64
	due     endHeap
}

const wheelBuckets = 4096

type endEntry struct {
	at   int64
	slot uint32
}

func (w *endWheel) add(e endEntry) {
	if e.at <= w.visited {
		w.due.push(e)
		return
	}
	b := e.at / bucketLength % wheelBuckets
	if len(w.buckets[b]) == 0 || e.at < w.first[b] {
		w.first[b] = e.at
	}
	w.buckets[b] = append(w.buckets[b], e)
	w.filled[b/64] |= 1 << (b % 64)
}

// drop takes the latest entry of its place out again, so that batches that are taken back leave nothing; an older one stays, stale.
func (w *endWheel) drop(e endEntry) {
	b := e.at / bucketLength % wheelBuckets
	list := (*[]endEntry)(&w.due)
	if e.at > w.visited {
		list = &w.buckets[b]
	}
	last := len(*list) - 1
	if last < 0 || (*list)[last] != e {
		return
	}
	if *list = (*list)[:last]; e.at > w.visited && last == 0 {
		w.filled[b/64] &^= 1 << (b % 64)
	}
}

// turn moves what is due at now into the heap. After a long idle it costs one turn.
func (w *endWheel) turn(now int64) {
	if now <= w.visited {
		return
	}
	first, last := w.visited/bucketLength, now/bucketLength
	w.visited = now
	for b := first; b <= min(last, first+wheelBuckets-1); b++ {
		i := b % wheelBuckets
		if w.filled[i/64]&(1<<(i%64)) == 0 {
			continue
		}
		kept := w.buckets[i][:0]
		for _, e := range w.buckets[i] {
			if e.at <= now {
				w.due.push(e)
			} else {
				if len(kept) == 0 || e.at < w.first[i] {
					w.first[i] = e.at
				}
				kept = append(kept, e)
			}
		}
		if w.buckets[i] = kept; len(kept) == 0 {
			w.filled[i/64] &^= 1 << (i % 64)
		}
	}
}

// next is the time of the earliest entry: the heap's top, or the smallest of the first bucket that is due within this turn, or of all
// when none is. ok is false when there is nothing.
func (w *endWheel) next() (at int64, ok bool) {
	if len(w.due) > 0 {
		return w.due[0].at, true
	}
	now := w.visited / bucketLength
	for ahead := int64(0); ahead < wheelBuckets; {
		i := (now + ahead) % wheelBuckets
		rest := w.filled[i/64] >> (i % 64)
		if rest == 0 {
			ahead += 64 - i%64
			continue
		}
		ahead += int64(bits.TrailingZeros64(rest))
		if ahead >= wheelBuckets { // the rest of the word that the round began in
			break
		}
		if first := w.first[(now+ahead)%wheelBuckets]; !ok || first < at {
			at, ok = first, true
		}
		if ahead++; at < (now+ahead)*bucketLength { // all that follows is later
			break
		}
	}
	return at, ok
}

// endHeap is a 4-ary heap in (time, slot) order.
type endHeap []endEntry

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
		for c, end := child+1, min(child+4, len(a)); c < end; c++ {
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
