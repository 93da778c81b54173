package engine

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/token-budget-arbiter/tba/internal/journal"
)

// clock carries the store's clock between two readings of it: the store owns
// the time, but asking it for every decision would cost a round trip. It runs
// on the monotonic clock of the process and is set by each answer of the store
// so that it is never ahead of the store. Safe for concurrent use.
type clock struct {
	start  time.Time
	offset atomic.Int64 // logical − time since start
	wall   atomic.Int64 // Unix − logical

	mu  sync.Mutex
	set bool
}

func newClock() *clock { return &clock{start: time.Now()} }

// since is the local monotonic time.
func (c *clock) since() int64 { return int64(time.Since(c.start)) }

// now is the logical time.
func (c *clock) now() int64 { return c.since() + c.offset.Load() }

// unix is the store's Unix time at a logical time.
func (c *clock) unix(now int64) int64 { return now + c.wall.Load() }

// reading takes a reading of the store's clock that was asked for at local
// time sent and was there at local time received. The store read it somewhere
// between, so its offset lies between reading − received and reading − sent.
// The clock keeps its own as long as that fits, else takes the nearer bound.
func (c *clock) reading(t journal.Time, sent, received int64) {
	if t.Now == 0 {
		return
	}
	low, high := t.Now-received, t.Now-sent
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.set {
		c.offset.Store(low)
		c.set = true
	} else if have := c.offset.Load(); have < low || have > high {
		c.offset.Store(min(max(have, low), high))
	}
	c.wall.Store(t.Wall - t.Now)
}

// Now returns the logical time of a pool, ns, which the times of leases are
// compared with. It reads a clock and takes no lock. The error is CodeNotFound
// for a pool that is not open.
func (e *Engine) Now(pool string) (int64, error) {
	p, err := e.find(pool)
	if err != nil {
		return 0, err
	}
	return p.clock.now(), nil
}

// reset forgets, after the store refused a time: the next reading counts alone.
func (c *clock) reset() {
	c.mu.Lock()
	c.set = false
	c.mu.Unlock()
}
