package engine

import (
	"cmp"
	"container/heap"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
)

// queue holds the requests that wait for room, and every new request until it
// was decided once. Waiters with the same wishes form a shape; when the oldest
// of a shape is deferred, the others of it are not asked: ten thousand waiters
// cost as much as their few shapes.
//
// Order: priority level, then the class's rank (arbiter.State.ClassRank), then
// seniority. A deferred waiter keeps the rungs it waits for from all that come
// after it, so nobody of its level or below overtakes it.
type queue struct {
	shapes map[shapeKey]*shape
	levels [arbiter.Critical + 1][]*shape // shapes that have waiters
	apart  apart                          // those of them that wait for a budget of their own
	expiry expiryHeap                     // waiters that were deferred once, by limit
	count  int
	order  uint64
	dirty  bool // room may have appeared: ask every head
	more   bool // the last pass did not come to its end
	last   *shape

	rest    int64 // of a shape between two asks
	blocked arbiter.RungSet
	pass    []*shape
}

// shapeKey is what makes waiters interchangeable.
type shapeKey struct {
	level                          arbiter.Priority
	class, model, provider, ladder string
	except                         string // joined
	// A waiter held up by a budget of its own (agent, workflow, task,
	// credential) waits apart, so that it holds up nobody else.
	kind  arbiter.NodeKind
	scope string
	apart bool
}

type shape struct {
	key     shapeKey
	waiters waiterHeap
	fresh   []*call // not decided yet, the head among them; nil where one was answered since
	dropped int     // how many have left fresh at its front
	listed  bool    // in queue.levels
	rank    int64
	asked   *call // the head when it was deferred last
	readyAt int64 // logical time at which it is worth asking again
	restTo  int64 // logical time before which it is not asked again, news or not
	asking  int   // apart.asking when it was asked last
	wanted  arbiter.RungSet
}

func (q *queue) init() { q.shapes = map[shapeKey]*shape{} }

const (
	// maxShapes bounds the empty shapes that are kept for reuse.
	maxShapes = 1024
	// fewShapes are asked at every news. Beyond that each further one makes all
	// rest a little longer between two asks, so that clients who invent wishes
	// cannot take the writer's time.
	fewShapes = 64
	shapeRest = int64(50 * time.Microsecond)
)

func (q *queue) add(c *call) {
	r := &c.request
	key := shapeKey{level: c.level, class: r.Class, model: r.Model, provider: r.Provider, ladder: r.Ladder}
	if len(r.Except) > 0 {
		key.except = strings.Join(r.Except, " ")
	}
	c.fresh, c.slot, c.expiry = true, -1, -1
	q.order++
	c.order = q.order
	q.put(c, key)
	s := c.shape
	c.freshIn, c.freshAt = s, s.dropped+len(s.fresh)
	s.fresh = append(s.fresh, c)
}

// clearFresh forgets all fresh ones.
func (s *shape) clearFresh() {
	s.dropped += len(s.fresh)
	clear(s.fresh)
	s.fresh = s.fresh[:0]
}

func (q *queue) put(c *call, key shapeKey) {
	s := q.last
	if s == nil || s.key != key {
		if s = q.shapes[key]; s == nil {
			if len(q.shapes) >= maxShapes {
				for k, old := range q.shapes {
					if !old.listed {
						delete(q.shapes, k)
					}
				}
			}
			s = &shape{key: key}
			q.shapes[key] = s
		}
		q.last = s
	}
	c.shape = s
	heap.Push(&s.waiters, c)
	q.count++
	if s.listed {
		return
	}
	s.listed = true
	if key.apart {
		s.asking = q.apart.asking
		q.apart.levels[key.level] = append(q.apart.levels[key.level], s)
		q.apart.count++
		return
	}
	q.levels[key.level] = append(q.levels[key.level], s)
}

// remove takes a request out; one that is not in the queue is left alone.
func (q *queue) remove(c *call) {
	s := c.shape
	if s == nil {
		return
	}
	if s.asked == c { // those behind it may go now
		s.asked, q.dirty = nil, true
	}
	heap.Remove(&s.waiters, c.slot)
	if c.expiry >= 0 {
		heap.Remove(&q.expiry, c.expiry)
	}
	// An answered call belongs to its caller again: no list may lead to it.
	if in := c.freshIn; in != nil {
		if i := c.freshAt - in.dropped; i >= 0 {
			in.fresh[i] = nil
		}
		c.freshIn = nil
	}
	c.shape = nil
	q.count--
}

// drain empties the queue.
func (q *queue) drain() []*call {
	var list []*call
	for l := range q.levels {
		for _, s := range slices.Concat(q.levels[l], q.apart.levels[l]) {
			list = append(list, s.waiters...)
			s.clearFresh()
			s.waiters, s.asked, s.listed = nil, nil, false
		}
		clear(q.levels[l])
		q.levels[l] = q.levels[l][:0]
	}
	q.apart = apart{}
	for _, c := range list {
		c.shape = nil
	}
	q.expiry, q.count, q.more = nil, 0, false
	return list
}

// wakeAt is the next logical time at which something of the queue is due.
func (q *queue) wakeAt() int64 {
	at := int64(math.MaxInt64)
	if len(q.expiry) > 0 {
		at = q.expiry[0].limit
	}
	if q.apart.count > 0 {
		at = min(at, q.apart.readyAt)
		if q.apart.news {
			at = min(at, q.apart.restTo)
		}
	}
	for l := range q.levels {
		for _, s := range q.levels[l] {
			if len(s.waiters) > 0 {
				at = min(at, s.readyAt)
			}
		}
	}
	return at
}

// dropExpired answers the waiters whose time is over: DEFERRED, with the wait
// as it was last seen.
func (q *queue) dropExpired(p *pool, b *batch) {
	now := p.clock.now()
	for len(q.expiry) > 0 && q.expiry[0].limit <= now {
		c := q.expiry[0]
		ready := max(c.readyAt, c.shape.readyAt)
		q.remove(c)
		c.answer.RetryAfter = max(ready-now, arbiter.Millisecond)
		c.decided = now
		c.decision.Epoch, c.decision.Seq = p.pos.Epoch, p.pos.Seq
		p.stats.count(c)
		if c.leave(callAnswered) {
			c.deliver()
		}
	}
}

// move puts a waiter into another shape, with its place.
func (q *queue) move(c *call, key shapeKey) {
	s := c.shape
	if s.asked == c {
		s.asked = nil
	}
	heap.Remove(&s.waiters, c.slot)
	q.count--
	q.put(c, key)
}

// WaitingRow is how many requests of one class and level wait.
type WaitingRow struct {
	Class    string
	Priority arbiter.Priority
	Count    int
	Oldest   time.Duration
}

// rows counts the waiters, by level and class.
func (q *queue) rows(now int64) []WaitingRow {
	var list []WaitingRow
	for level := range q.levels {
		for _, s := range slices.Concat(q.levels[level], q.apart.levels[level]) {
			if len(s.waiters) == 0 {
				continue
			}
			class := cmp.Or(s.key.class, arbiter.DefaultClass)
			oldest := time.Duration(max(now-s.waiters[0].arrived, 0))
			i := slices.IndexFunc(list, func(r WaitingRow) bool { return r.Class == class && r.Priority == s.key.level })
			if i < 0 {
				list = append(list, WaitingRow{Class: class, Priority: s.key.level})
				i = len(list) - 1
			}
			list[i].Count += len(s.waiters)
			list[i].Oldest = max(list[i].Oldest, oldest)
		}
	}
	return list
}
