package engine

import (
	"cmp"
	"container/heap"
	"math"
	"slices"
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
	level                  arbiter.Priority
	class, model, provider string
	// A waiter held up by a budget of its own (agent, workflow, task,
	// credential) waits apart, so that it holds up nobody else.
	kind  arbiter.NodeKind
	scope string
	apart bool
}

type shape struct {
	key     shapeKey
	waiters waiterHeap
	fresh   []*call // not decided yet; the head among them
	listed  bool    // in queue.levels
	rank    int64
	asked   *call // the head when it was deferred last
	readyAt int64 // logical time at which it is worth asking again
	restTo  int64 // logical time before which it is not asked again, news or not
	asking  int   // apart.asking when it was asked last
	wanted  arbiter.RungSet
}

// apart are the shapes of waiters that are held up by a budget of their own:
// one for each task, say. They keep nothing from others and may be many, so
// they are asked together and rest in between.
type apart struct {
	levels  [arbiter.Critical + 1][]*shape
	count   int
	news    bool  // room may have appeared since they were asked
	due     bool  // they are being asked
	asking  int   // counts the times
	restTo  int64 // logical time before which news do not count
	readyAt int64 // logical time at which one of them is worth asking without news
}

// begin decides whether the shapes apart are asked in this pass.
func (a *apart) begin(dirty bool, now int64) {
	a.news = a.news || dirty
	if !a.due && a.count > 0 && (a.news && now >= a.restTo || now >= a.readyAt) {
		a.due, a.news = true, false
		a.asking++
	}
}

// end notes that all were asked, or left out for good reason.
func (a *apart) end(now int64) {
	if !a.due {
		return
	}
	a.due, a.restTo, a.readyAt = false, now+int64(a.count)*shapeRest, math.MaxInt64
	for level := range a.levels {
		for _, s := range a.levels[level] {
			a.readyAt = min(a.readyAt, s.readyAt)
		}
	}
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
	key := shapeKey{level: c.level, class: c.request.Class, model: c.request.Model, provider: c.request.Provider}
	c.fresh, c.slot, c.expiry = true, -1, -1
	q.order++
	c.order = q.order
	q.put(c, key)
	c.shape.fresh = append(c.shape.fresh, c)
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
	c.shape = nil
	q.count--
}

// drain empties the queue.
func (q *queue) drain() []*call {
	var list []*call
	for l := range q.levels {
		for _, s := range slices.Concat(q.levels[l], q.apart.levels[l]) {
			list = append(list, s.waiters...)
			clear(s.fresh)
			s.waiters, s.fresh, s.asked, s.listed = nil, s.fresh[:0], nil, false
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

// decideRequests asks the queue in order until the entry is full, the batch is
// large enough, or everybody who may be asked was.
func (p *pool) decideRequests(b *batch) {
	q := &p.queue
	q.more = false
	q.rest = 0
	for level := range q.levels {
		q.rest += int64(len(q.levels[level]))
	}
	q.rest = max(q.rest-fewShapes, 0) * shapeRest
	clear(q.blocked)
	q.blocked = q.blocked[:0]
	q.apart.begin(q.dirty, b.t.Now)
	for level := int(arbiter.Critical); level >= 0; level-- {
		pass := q.pass[:0]
		kept := q.levels[level][:0]
		for _, s := range q.levels[level] {
			if s.unlist() {
				continue
			}
			kept = append(kept, s)
			if !q.resting(s, b.t.Now) {
				s.rank = p.state.ClassRank(s.key.class, s.key.level)
				pass = append(pass, s)
			}
		}
		clear(q.levels[level][len(kept):])
		q.levels[level] = kept
		if q.apart.due {
			kept := q.apart.levels[level][:0]
			for _, s := range q.apart.levels[level] {
				if s.unlist() {
					q.apart.count--
					continue
				}
				kept = append(kept, s)
				if s.asking != q.apart.asking {
					s.rank = p.state.ClassRank(s.key.class, s.key.level)
					pass = append(pass, s)
				}
			}
			clear(q.apart.levels[level][len(kept):])
			q.apart.levels[level] = kept
		}
		h := passHeap(pass)
		if len(h) > 1 {
			heap.Init(&h)
		}
		for len(h) > 0 {
			s := h[0]
			if len(h) > 1 {
				if rank := p.state.ClassRank(s.key.class, s.key.level); rank != s.rank {
					s.rank = rank
					heap.Fix(&h, 0)
					continue
				}
			}
			switch p.serve(b, s) {
			case served:
				if len(s.waiters) > 0 {
					if len(h) > 1 {
						heap.Fix(&h, 0)
					}
					continue
				}
			case stop:
				q.more = true
				q.pass = pass[:0]
				return
			}
			if len(h) == 1 {
				break
			}
			heap.Pop(&h)
		}
		q.pass = pass[:0]
	}
	q.apart.end(b.t.Now)
	q.dirty = false
}

// unlist drops a shape without waiters from its list.
func (s *shape) unlist() bool {
	if len(s.waiters) > 0 {
		return false
	}
	s.listed, s.asked = false, nil
	clear(s.fresh)
	s.fresh = s.fresh[:0]
	return true
}

// resting reports whether a shape can be left out of a pass: its head is not to
// be asked yet, keeps nothing from others, and nobody is new.
func (q *queue) resting(s *shape, now int64) bool {
	if s.waiters[0] != s.asked || len(s.wanted) > 0 || len(s.fresh) > 0 || s.readyAt <= now {
		return false
	}
	if q.dirty && s.restTo > now {
		s.readyAt = min(s.readyAt, s.restTo)
	}
	return !q.dirty || s.restTo > now
}

// verdicts of serve.
type verdict uint8

const (
	served verdict = iota // the head left, the next may be asked
	held                  // the head waits, and with it the shape
	stop                  // no more in this batch
)

// serve asks the head of a shape.
func (p *pool) serve(b *batch, s *shape) verdict {
	q := &p.queue
	c := s.waiters[0]
	if !c.pending() {
		q.remove(c)
		return served
	}
	if s.key.apart && s.asking == q.apart.asking {
		return held
	}
	if c == s.asked && !s.key.apart && s.readyAt > b.t.Now && (!q.dirty || s.restTo > b.t.Now) {
		if q.dirty {
			s.readyAt = min(s.readyAt, s.restTo)
		}
		p.block(s)
		return p.serveFresh(b, s)
	}
	if b.asks >= maxBatch || b.full {
		return stop
	}
	if !p.ask(b, c) {
		return stop
	}
	a := &p.decision.Answer
	if c.err != nil || a.Status != arbiter.Deferred || c.dryRun {
		q.remove(c)
		p.put(b, c, a)
		return served
	}
	if !p.mayWait(b, c, a.RetryAfter) {
		q.remove(c)
		p.put(b, c, a)
		return served
	}
	p.park(b, c)
	if kind, scope, ok := ownScope(&c.answer.Check); ok && !s.key.apart {
		key := s.key
		key.kind, key.scope, key.apart = kind, scope, true
		q.move(c, key)
		c.shape.deferred(p.queue.rest, b.t.Now)
		q.apart.readyAt = min(q.apart.readyAt, c.readyAt)
		return served
	}
	s.deferred(q.rest, b.t.Now)
	s.asking = q.apart.asking
	if keepsRungs(&c.answer.Check) && !s.key.apart {
		s.wanted = append(s.wanted, a.Wanted...)
	}
	p.block(s)
	return p.serveFresh(b, s)
}

// deferred notes that the head was asked in vain. In a shape that it was moved
// into another one may be the head: then that one is asked in its turn.
func (s *shape) deferred(rest, now int64) {
	c := s.waiters[0]
	s.asked, s.readyAt, s.restTo, s.wanted = c, c.readyAt, now+rest, s.wanted[:0]
}

// ask decides a request with what is kept from it. It reports false when the
// entry has no room for the grant; c.err and p.decision hold the result.
func (p *pool) ask(b *batch, c *call) bool {
	b.asks++
	p.now(c, b)
	c.request.Blocked = p.queue.blocked
	c.request.MaxWait = max(c.limit-b.t.Now, 0)
	for range 16 {
		c.err = p.state.Decide(b.t, &c.request, &p.decision)
		a := &p.decision.Answer
		if c.err != nil || a.Flags&arbiter.FlagResolved == 0 || a.Lease.Phase != arbiter.ReleasedPhase {
			break
		}
		// The lease of this request was given back. If that was because it
		// reached nobody, the request goes on under the next id.
		id := c.request.Lease
		next := again(id)
		if _, exists := p.state.Lease(next); !exists && !p.voided.has(id) {
			break
		}
		c.request.Lease = next
	}
	c.request.Blocked = nil
	if c.dryRun || c.err != nil {
		return true
	}
	if !p.record(b) {
		if p.enc.Facts() > 0 {
			return false
		}
		c.err = arbiter.Errorf(arbiter.CodeResource, "too_large", "pool %s: the grant does not fit one journal entry", p.name)
	}
	return true
}

// put files an answered request.
func (p *pool) put(b *batch, c *call, a *arbiter.Answer) {
	if c.err == nil {
		c.answer = *a
		c.answer.Wanted = nil
	}
	b.calls = append(b.calls, c)
}

// park makes a deferred request wait.
func (p *pool) park(b *batch, c *call) {
	a := &p.decision.Answer
	c.answer = *a
	c.answer.Wanted = nil
	c.readyAt = b.t.Now + max(a.RetryAfter, arbiter.Millisecond)
	c.fresh = false
	if c.expiry < 0 {
		heap.Push(&p.queue.expiry, c)
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

// mayWait reports whether a deferred request may wait: its time is not over,
// and the wait is not known to be longer. Only dates are known; what running
// leases hold may come back any moment.
func (p *pool) mayWait(b *batch, c *call, retry int64) bool {
	left := c.limit - b.t.Now
	if left <= 0 || c.dryRun || p.queue.count > p.e.opts.MaxWaiters {
		return false
	}
	check := &p.decision.Answer.Check
	switch check.Reason {
	case arbiter.ReasonRPM, arbiter.ReasonTPM, arbiter.ReasonInputTPM, arbiter.ReasonOutputTPM, arbiter.ReasonRPD,
		arbiter.ReasonHold, arbiter.ReasonExhausted:
		return retry <= left
	}
	return true
}

// block keeps what a shape waits for from everybody behind it.
func (p *pool) block(s *shape) {
	q := &p.queue
	for i, word := range s.wanted {
		if i >= len(q.blocked) {
			q.blocked = append(q.blocked, 0)
		}
		q.blocked[i] |= word
	}
}

// serveFresh decides the new requests of a shape whose head waits. None of them
// may overtake it; but each is told at once when it need not wait at all, or
// may not.
func (p *pool) serveFresh(b *batch, s *shape) verdict {
	for len(s.fresh) > 0 {
		c := s.fresh[0]
		if c.fresh && c.shape == s && c.pending() {
			if b.asks >= maxBatch {
				return stop
			}
			p.examine(b, s, c)
		}
		s.fresh[0] = nil
		s.fresh = s.fresh[1:]
	}
	s.fresh = nil
	return held
}

// examine decides a request that stands behind the head of its shape, for the
// sake of the answer: a grant is not taken.
func (p *pool) examine(b *batch, s *shape, c *call) {
	b.asks++
	p.now(c, b)
	c.request.Blocked = p.queue.blocked
	c.request.MaxWait = max(c.limit-b.t.Now, 0)
	c.err = p.state.Decide(b.t, &c.request, &p.decision)
	c.request.Blocked = nil
	a := &p.decision.Answer
	wait := max(s.readyAt-b.t.Now, arbiter.Millisecond)
	switch {
	case c.err != nil, a.Status == arbiter.Denied, a.Flags&arbiter.FlagRepeat != 0:
		if a.Flags&arbiter.FlagResolved != 0 && c.err == nil {
			return // it may go on under another id: in its turn
		}
		p.queue.remove(c)
		p.put(b, c, a)
		return
	case a.Status == arbiter.Granted:
		check := arbiter.Check{Reason: arbiter.ReasonQueue, ScopeKind: arbiter.KindGlobal}
		if s.asked != nil {
			check.ScopeKind, check.Scope = s.asked.answer.Check.ScopeKind, s.asked.answer.Check.Scope
		}
		*a = arbiter.Answer{Status: arbiter.Deferred, Check: check, RetryAfter: wait}
	default:
		a.RetryAfter = max(a.RetryAfter, wait)
	}
	if !p.mayWait(b, c, a.RetryAfter) {
		p.queue.remove(c)
		p.put(b, c, a)
		return
	}
	p.park(b, c)
}

// ownScope names the budget of a single caller that a request waits for.
func ownScope(c *arbiter.Check) (kind arbiter.NodeKind, scope string, ok bool) {
	if c.Reason != arbiter.ReasonBudget && c.Reason != arbiter.ReasonPrincipal {
		return 0, "", false
	}
	switch c.ScopeKind {
	case arbiter.KindAgent, arbiter.KindWorkflow, arbiter.KindTask, arbiter.KindCredential:
		return c.ScopeKind, c.Scope, true
	}
	return 0, "", false
}

// keepsRungs reports whether a waiter keeps its rungs from those behind it:
// not when it waits for something of its own class or credential.
func keepsRungs(c *arbiter.Check) bool {
	if c.Reason == arbiter.ReasonClass {
		return false
	}
	return c.Reason != arbiter.ReasonBudget || c.ScopeKind != arbiter.KindClass
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

func (h expiryHeap) Len() int           { return len(h) }
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
func (h *passHeap) Push(x any)   { *h = append(*h, x.(*shape)) }
func (h *passHeap) Pop() any {
	last := len(*h) - 1
	s := (*h)[last]
	*h = (*h)[:last]
	return s
}
