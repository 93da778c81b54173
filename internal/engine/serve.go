package engine

import (
	"container/heap"

	"github.com/token-budget-arbiter/tba/arbiter"
)

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
	if c.err != nil || a.Status != arbiter.Deferred || !p.mayWait(b, c, a.RetryAfter) {
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
		c.err = p.state.Decide(&c.request, &p.decision)
		a := &p.decision.Answer
		if c.err != nil || a.Flags&arbiter.FlagResolved == 0 || a.Lease.Phase != arbiter.ReleasedPhase {
			break
		}
		// The lease of this request was given back. If that was because it
		// reached nobody, the request goes on under the next id.
		if a.Flags&arbiter.FlagVoid == 0 {
			break
		}
		c.request.Lease = again(c.request.Lease)
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

// put takes an answered request out of the queue and files it.
func (p *pool) put(b *batch, c *call, a *arbiter.Answer) {
	p.queue.remove(c)
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
		if c != nil && c.fresh && c.shape == s && c.pending() {
			if b.asks >= maxBatch {
				return stop
			}
			p.examine(b, s, c)
		}
		s.fresh[0] = nil
		s.fresh, s.dropped = s.fresh[1:], s.dropped+1
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
	c.err = p.state.Decide(&c.request, &p.decision)
	c.request.Blocked = nil
	a := &p.decision.Answer
	wait := max(s.readyAt-b.t.Now, arbiter.Millisecond)
	switch {
	case c.err != nil, a.Status == arbiter.Denied, a.Flags&arbiter.FlagRepeat != 0:
		if a.Flags&arbiter.FlagResolved != 0 && c.err == nil {
			return // it may go on under another id: in its turn
		}
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
		p.put(b, c, a)
		return
	}
	p.park(b, c)
}

// keepsRungs reports whether a waiter keeps its rungs from those behind it:
// not when it waits for something of its own class or credential.
func keepsRungs(c *arbiter.Check) bool {
	if c.Reason == arbiter.ReasonClass {
		return false
	}
	return c.Reason != arbiter.ReasonBudget || c.ScopeKind != arbiter.KindClass
}
