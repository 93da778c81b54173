package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
)

// lane is the part of a batch that a command belongs to; they are decided in
// this order.
type lane uint8

const (
	laneExtend  lane = iota // before time advances
	laneControl             // policy, housekeeping, signals, revocations
	laneVoid                // releases by the engine of grants that reached nobody; all of them come before requests
	laneSettle              // commits and releases: what must work when all else is refused
	laneRequest
	lanes
)

// States of a call. Whoever moves it away from pending decides who reads it.
const (
	callPending  uint32 = iota
	callAnswered        // by the writer: the caller reads the result and may reuse the call
	callUnknown         // the journal is silent: the caller is told so; the writer keeps the call
	callGone            // the caller left: the writer keeps the call
)

const (
	// handover is how old a grant may be when its caller gets it; the guard of
	// the windows counts on it.
	handover = int64(100 * time.Millisecond)
	// patience is how long a silent journal is waited for before callers hear of it.
	patience = 200 * time.Millisecond
	// anew is how long a request that may not wait can still be decided again
	// when its grant came too late.
	anew = int64(time.Second)
)

// call is one command in a pool. It holds copies, so that a caller who leaves
// takes nothing away from under the writer.
type call struct {
	state atomic.Uint32
	pool  *pool
	lane  lane
	cmd   arbiter.Command // points to one of the next fields

	request arbiter.Request
	commit  arbiter.Commit
	release arbiter.Release
	extend  arbiter.Extend
	signal  arbiter.Signal
	revoke  arbiter.Revoke
	adopt   arbiter.Adopt
	claims  arbiter.Claims

	dryRun  bool
	arrived int64 // logical time
	limit   int64 // of waiting, logical time
	until   int64 // of deciding again, logical time

	// The writer's while the call is pending.
	ticket   ticket
	level    arbiter.Priority
	seen     int64 // seniority, logical time
	order    uint64
	shape    *shape
	slot     int // in shape.waiters
	expiry   int // in queue.expiry
	fresh    bool
	freshIn  *shape // whose list of fresh calls has it, at freshAt
	freshAt  int
	readyAt  int64 // of the last deferral
	answer   arbiter.Answer
	err      *arbiter.Error
	decided  int64 // logical time of the batch
	decision DecisionID

	// Who waits: a goroutine on done, a pipe, or perhaps somebody later.
	done chan struct{}
	pipe *Pipe
	tag  uint64
	sent *Pending
}

// freelist recycles the calls of one pool. It is not shared between pools: a
// channel belongs to the bubble of time that it was made in (testing/synctest).
type freelist struct{ pool sync.Pool }

func (f *freelist) get() *call {
	if c, ok := f.pool.Get().(*call); ok {
		return c
	}
	return &call{done: make(chan struct{}, 1)}
}

func (f *freelist) put(c *call) { f.pool.Put(c) }

// newCall copies op into a call. claims are op's verified token, nil without.
func newCall(p *pool, op *Op, claims *arbiter.Claims, t ticket) (*call, *arbiter.Error) {
	c := p.calls.get()
	c.state.Store(callPending)
	c.pool = p
	now := p.clock.now()
	c.arrived, c.limit, c.until = now, now, now+anew
	c.dryRun, c.fresh = op.DryRun, false
	c.shape, c.freshIn, c.pipe, c.tag, c.sent, c.err = nil, nil, nil, 0, nil, nil
	c.ticket = t
	if claims != nil {
		c.claims = *claims
		claims = &c.claims
	}
	switch cmd := op.Command.(type) {
	case *arbiter.Request:
		except := append(c.request.Except[:0], cmd.Except...)
		c.lane, c.request, c.cmd = laneRequest, *cmd, &c.request
		c.request.Except = except
		if c.request.Lease == (arbiter.LeaseID{}) {
			c.request.Lease = NewLeaseID(0, "", "")
		}
		if c.request.Fingerprint == 0 {
			c.request.Fingerprint = c.request.Sum()
		}
		if op.MaxWait < 0 || op.Deadline < 0 {
			p.calls.put(c)
			return nil, arbiter.Errorf(arbiter.CodeInvalid, "max_wait_ms", "max_wait_ms and deadline_ms must not be negative")
		}
		wait := min(op.MaxWait, maxWait)
		if op.Deadline > 0 {
			wait = min(wait, op.Deadline)
		}
		if !op.DryRun {
			c.limit = now + int64(wait)
		}
		c.until = now + max(int64(wait), int64(min(op.Deadline, maxWait)))
		if op.Deadline == 0 {
			c.until = max(c.until, now+anew)
		}
	case *arbiter.Commit:
		c.lane, c.commit, c.cmd = laneSettle, *cmd, &c.commit
		c.commit.Token = claims
	case *arbiter.Release:
		c.lane, c.release, c.cmd = laneSettle, *cmd, &c.release
		c.release.Token = claims
	case *arbiter.Extend:
		c.lane, c.extend, c.cmd = laneExtend, *cmd, &c.extend
		c.extend.Arrival = now
	case *arbiter.Signal:
		c.lane, c.signal, c.cmd = laneControl, *cmd, &c.signal
	case *arbiter.Revoke:
		c.lane, c.revoke, c.cmd = laneControl, *cmd, &c.revoke
	case *arbiter.Adopt:
		c.lane, c.adopt, c.cmd = laneControl, *cmd, &c.adopt
	default:
		p.calls.put(c)
		return nil, arbiter.Errorf(arbiter.CodeInvalid, "command", "a pool takes requests, commits, releases, extensions, signals and revocations, not %T", op.Command)
	}
	return c, nil
}

// maxWait bounds max_wait_ms and deadline_ms: longer is treated as this long.
const maxWait = time.Hour

// pending reports whether somebody still waits for the answer.
func (c *call) pending() bool { return c.state.Load() == callPending }

// leave moves the call from pending to state; false when somebody was faster.
func (c *call) leave(state uint32) bool { return c.state.CompareAndSwap(callPending, state) }

// deliver wakes whoever waits, after leave succeeded.
func (c *call) deliver() {
	if c.pipe != nil {
		c.pipe.complete(c)
		return
	}
	if c.sent != nil {
		go c.sent.read() // the writer waits for nobody's hook
		return
	}
	c.done <- struct{}{}
}

// granted reports whether the answer gives a lease that did not exist before.
func (c *call) granted() bool {
	return c.lane == laneRequest && c.err == nil && !c.dryRun &&
		c.answer.Status == arbiter.Granted && c.answer.Flags&arbiter.FlagRepeat == 0
}

// handsOver reports whether the answer gives a lease that was granted before.
func (c *call) handsOver() bool {
	return c.lane == laneRequest && c.err == nil && !c.dryRun &&
		c.answer.Flags&arbiter.FlagRepeat != 0 && c.answer.Lease.Phase.Live()
}

// late reports whether a grant is too old to be handed over at logical time
// now. A lease whose call has not begun is dated by its activation instead.
func (c *call) late(now int64) bool {
	return c.granted() && !c.request.Deferred && now-c.decided > handover
}

// again prepares the call to be decided once more.
func (c *call) again() {
	c.state.Store(callPending)
	c.shape, c.err = nil, nil
}

// outcome is the answer for the caller: signing happens on its goroutine.
func (c *call) outcome(s *signer) (Outcome, error) {
	p := c.pool
	if c.state.Load() == callUnknown {
		return Outcome{}, errJournalSilent(p.name)
	}
	if c.err != nil {
		return Outcome{}, c.err
	}
	o := Outcome{Answer: c.answer, Decision: c.decision, Now: c.decided}
	o.Level, o.DelayMS = p.pressure.level()
	a := &c.answer
	if c.lane == laneRequest {
		o.Waited = time.Duration(max(c.decided-c.arrived, 0))
	}
	switch {
	case c.lane == laneRequest && a.Status == arbiter.Granted && !c.dryRun && a.Lease.Phase.Live():
		claims := arbiter.Claims{
			Lease: a.Lease.Lease, Principal: c.request.Principal,
			Agent: c.request.Agent, Class: a.Lease.Class, Task: c.request.Task, Workflow: c.request.Workflow,
			Provider: a.Lease.Provider, Model: a.Lease.Model, Priority: a.Lease.Priority,
			Input: a.Lease.Input, Output: a.Lease.Output, Nanos: a.Lease.Nanos, Period: a.Lease.Period,
			Granted: a.Lease.Granted, Deadline: a.Lease.Deadline, CommitBy: a.Lease.CommitBy,
			Epoch: c.decision.Epoch, Seq: c.decision.Seq,
		}
		// Only of one that was deferred: else a repeat would have another token.
		if !c.fresh || c.ticket.firstSeen != 0 {
			claims.Waited = max(a.Lease.Granted-c.seen, 0)
		}
		o.Token = s.appendLeaseToken(make([]byte, 0, 256), p.name, &claims)
	case c.lane == laneRequest && a.Status == arbiter.Deferred && !c.dryRun:
		o.Ticket = s.appendTicket(make([]byte, 0, 96), &ticket{
			pool: p.hash, principal: c.request.Principal, agent: nameHash(c.request.Agent),
			level: c.level, firstSeen: c.seen, slot: c.decided + a.RetryAfter,
		})
	}
	if r, ok := c.cmd.(*arbiter.Release); ok && a.RetryAfter > 0 {
		o.Ticket = s.appendTicket(make([]byte, 0, 96), c.requeue(r))
	}
	return o, nil
}

// requeue is the seniority of the call whose try ends with r, throttled or at
// an account that is used up: that of its request, under whatever id it asks
// again. Without the lease's token only the grant is known.
func (c *call) requeue(r *arbiter.Release) *ticket {
	a := &c.answer
	t := &ticket{
		pool: c.pool.hash, principal: r.Principal,
		level: a.Lease.Priority, firstSeen: a.Lease.Granted, slot: c.decided,
	}
	if r.Outcome == arbiter.OutcomeThrottled { // another rung is not worth waiting an hour for
		t.slot += a.RetryAfter
	}
	if claims := r.Token; claims != nil {
		t.agent, t.firstSeen = nameHash(claims.Agent), max(t.firstSeen-claims.Waited, 1)
	}
	return t
}

// recycle gives an answered call back once its result was read.
func (c *call) recycle() {
	if c.state.Load() == callAnswered {
		c.pool.calls.put(c)
	}
}

// Do runs one command and returns its answer: an *arbiter.Error when there is
// none, CodeUnavailable among them when the arbiter cannot know, or the error
// of ctx when it ended first. A caller who leaves while it waits leaves no
// trace: what it was granted is given back. Its commits still count.
func (e *Engine) Do(ctx context.Context, op Op) (Outcome, error) {
	c, s, err := e.accept(&op)
	var out Outcome
	if err == nil {
		out, err = c.do(ctx, s)
	}
	if h := e.opts.Hooks.Answered; h != nil {
		seen := out // the hook's own, so that out need not be on the heap
		h(op.Pool, op.Command, &seen, err)
	}
	return out, err
}

func (c *call) do(ctx context.Context, s *signer) (Outcome, error) {
	p := c.pool
	for {
		if err := p.inbox.push(c); err != nil {
			p.stats.refused()
			p.calls.put(c)
			return Outcome{}, err
		}
		select {
		case <-c.done:
		case <-ctx.Done():
			if c.leave(callGone) {
				p.inbox.gone(c)
				return Outcome{}, ctx.Err()
			}
			<-c.done
			if c.state.Load() == callAnswered {
				if c.granted() {
					p.inbox.void(c)
				}
				c.recycle()
			}
			return Outcome{}, ctx.Err()
		}
		if c.state.Load() == callAnswered && c.late(p.clock.now()) {
			p.stats.late.Add(1)
			if p.inbox.void(c); p.clock.now() < c.until {
				c.again()
				continue
			}
			c.err = errLate(p.name)
			p.stats.failed.Add(1)
		}
		out, err := c.outcome(s)
		c.recycle()
		return out, err
	}
}

// accept finds the pool of op and makes a call of it.
func (e *Engine) accept(op *Op) (*call, *signer, error) {
	s := e.keys()
	var claims *arbiter.Claims
	if len(op.Token) > 0 {
		if pool, cl, ok := s.parseLeaseToken(op.Token); ok {
			if op.Pool == "" {
				op.Pool = pool
			}
			if op.Pool == pool && matches(op.Command, &cl) {
				claims = &cl
			}
		}
	}
	p, aerr := e.find(op.Pool)
	if aerr != nil {
		return nil, nil, aerr
	}
	op.Pool = p.name
	var t ticket
	if len(op.Ticket) > 0 {
		var ok bool
		if t, ok = s.parseTicket(op.Ticket); !ok {
			return nil, nil, arbiter.Errorf(arbiter.CodeInvalid, "ticket", "ticket was not signed by this arbiter's live keys: send the one of the last answer, or none")
		}
	}
	c, aerr := newCall(p, op, claims, t)
	if aerr != nil {
		return nil, nil, aerr
	}
	return c, s, nil
}

// matches reports whether claims belong to the lease and principal of a commit
// or release.
func matches(cmd arbiter.Command, claims *arbiter.Claims) bool {
	switch c := cmd.(type) {
	case *arbiter.Commit:
		return c.Lease == claims.Lease && c.Principal == claims.Principal
	case *arbiter.Release:
		return c.Lease == claims.Lease && c.Principal == claims.Principal
	}
	return false
}
