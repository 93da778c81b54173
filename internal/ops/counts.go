package ops

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
)

// appendBounds are the upper bounds of the histogram of appends, seconds: a disk's fsync takes one to ten milliseconds, patience ends at 200.
var appendBounds = [...]float64{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1, 5}

// appendTimes is a histogram whose observation is three atomic additions.
type appendTimes struct {
	buckets [len(appendBounds) + 1]atomic.Uint64
	nanos   atomic.Int64
}

func (a *appendTimes) observe(took time.Duration) {
	i, s := 0, took.Seconds()
	for i < len(appendBounds) && s > appendBounds[i] {
		i++
	}
	a.buckets[i].Add(1)
	a.nanos.Add(int64(took))
}

// read returns count, sum in seconds and the cumulative buckets.
func (a *appendTimes) read() (count uint64, sum float64, buckets map[float64]uint64) {
	buckets = make(map[float64]uint64, len(appendBounds))
	for i := range a.buckets {
		count += a.buckets[i].Load()
		if i < len(appendBounds) {
			buckets[appendBounds[i]] = count
		}
	}
	return count, time.Duration(a.nanos.Load()).Seconds(), buckets
}

// reloads counts loads of the configuration. Before the first one the configuration of the start is in force.
type reloads struct {
	ok, failed, last atomic.Int64 // last: Unix ns of the last success
	broken           atomic.Bool
}

func (r *reloads) count(err error) {
	r.broken.Store(err != nil)
	if err != nil {
		r.failed.Add(1)
		return
	}
	r.ok.Add(1)
	r.last.Store(time.Now().UnixNano())
}

// counted are totals of events since the start of the process. The keys are closed sets: pools, providers and models of the file, kinds.
type counted struct {
	mu        sync.Mutex
	events    map[eventKey]int64
	throttled map[throttleKey]int64
	missed    map[string]int64 // events that left the ring before they were counted
}

type eventKey struct {
	pool string
	kind arbiter.EventKind
}

type throttleKey struct {
	pool, provider, model string
	dim                   arbiter.Dim
}

func (c *counted) init() {
	c.events, c.throttled, c.missed = map[eventKey]int64{}, map[throttleKey]int64{}, map[string]int64{}
}

// countEvents follows a pool until it or the server closes.
func (s *Server) countEvents(pool string, feed Feed) {
	page, err := feed.Events(pool, 0, 1)
	if err != nil {
		return
	}
	since := max(page.Last, 1)
	for {
		news, err := feed.Follow(pool)
		if err != nil {
			return
		}
		for {
			page, err := feed.Events(pool, since, 1000)
			if err != nil {
				return
			}
			if len(page.Events) == 0 {
				break
			}
			s.counted.mu.Lock()
			if gap := page.Events[0].Sequence - since; since > 1 && gap > 1 {
				s.counted.missed[pool] += int64(gap - 1)
			}
			for i := range page.Events {
				e := &page.Events[i]
				s.counted.events[eventKey{pool, e.Kind}]++
				if e.Kind == arbiter.EventThrottled {
					s.counted.throttled[throttleKey{pool, e.Provider, e.Model, e.Dim}]++
				}
			}
			s.counted.mu.Unlock()
			since = page.Events[len(page.Events)-1].Sequence
		}
		select {
		case <-news:
		case <-s.ctx.Done():
			return
		}
	}
}
