package mockprovider

import "time"

// window is an exact sliding log: what was charged in (now - length, now]. Times are since the start of the server and
// never go back.
type window struct {
	length  time.Duration
	ceiling int64 // 0: no limit
	entries []entry
	head    int // entries before it have left the window
	sum     int64
}

type entry struct {
	at time.Duration
	n  int64
}

func (w *window) expire(now time.Duration) {
	for w.head < len(w.entries) && w.entries[w.head].at <= now-w.length {
		w.sum -= w.entries[w.head].n
		w.head++
	}
	if w.head > 64 && w.head > len(w.entries)/2 {
		w.entries = w.entries[:copy(w.entries, w.entries[w.head:])]
		w.head = 0
	}
}

func (w *window) add(now time.Duration, n int64) {
	w.expire(now)
	if n == 0 {
		return
	}
	w.entries = append(w.entries, entry{now, n})
	w.sum += n
}

// wait is how long until n more fit: 0 when they fit now. n is at most the ceiling.
func (w *window) wait(now time.Duration, n int64) time.Duration {
	if w.ceiling == 0 {
		return 0
	}
	w.expire(now)
	sum := w.sum
	for i := w.head; sum+n > w.ceiling; i++ {
		sum -= w.entries[i].n
		if sum+n <= w.ceiling {
			return w.entries[i].at + w.length - now
		}
	}
	return 0
}

// full is how long until nothing is charged any more.
func (w *window) full(now time.Duration) time.Duration {
	w.expire(now)
	if w.head == len(w.entries) {
		return 0
	}
	return w.entries[len(w.entries)-1].at + w.length - now
}

func (w *window) remaining(now time.Duration) int64 {
	w.expire(now)
	return max(w.ceiling-w.sum, 0)
}

// bucket is a token bucket in the form of the generic cell rate algorithm (ITU-T I.371): instead of a level that must
// be refilled it keeps the time at which it will be full. A bucket of 10 refilled with 60 in 60 s, of which 10 were
// taken at 0 s, is full again at 10 s and has room for 3 at 3 s.
type bucket struct {
	size   int64 // 0: no bucket
	each   time.Duration
	per    int64         // units that flow in during each: rate = per/each
	fullAt time.Duration // the theoretical arrival time
}

// flow is how long n units take to flow in, rounded up.
func (b *bucket) flow(n int64) time.Duration {
	return time.Duration((n*int64(b.each) + b.per - 1) / b.per)
}

// wait is how long until n fit; more than the bucket holds waits for a full one.
func (b *bucket) wait(now time.Duration, n int64) time.Duration {
	if b.size == 0 {
		return 0
	}
	return max(b.fullAt-b.flow(b.size-min(n, b.size))-now, 0)
}

func (b *bucket) take(now time.Duration, n int64) {
	if b.size > 0 {
		b.fullAt = max(b.fullAt, now) + b.flow(n)
	}
}
