package engine

import (
	"context"
	"sync"

	"github.com/token-budget-arbiter/tba/arbiter"
)

// Pipe runs many commands of one client without a goroutine for each: submit
// them as they come, read the replies as they are ready, in any order. All
// methods may be called concurrently; one goroutine at a time calls Next.
type Pipe struct {
	e        *Engine
	capacity int
	signal   chan struct{} // one token when ready was empty and is not

	mu       sync.Mutex
	ready    []*call
	spare    []*call
	waiting  map[uint64]*call // requests in flight by tag, for Cancel
	inFlight int
	closed   bool
}

// NewPipe returns a pipe that holds at most capacity commands without a read
// reply; 0 means 1,024. Close it.
func (e *Engine) NewPipe(capacity int) *Pipe {
	if capacity <= 0 {
		capacity = 1024
	}
	return &Pipe{e: e, capacity: capacity, signal: make(chan struct{}, 1), waiting: map[uint64]*call{}}
}

// Submit hands a command over without waiting. tag comes back with its reply
// and should be unique among unread ones. After an error, which is an
// *arbiter.Error, there is no reply: CodeUnavailable "pipe_full" when the
// capacity is used up or the pipe is closed.
func (p *Pipe) Submit(tag uint64, op Op) error {
	c, _, err := p.e.accept(&op)
	if err != nil {
		return err
	}
	if err := p.enter(c, tag); err != nil {
		return err
	}
	if err := c.pool.inbox.push(c); err != nil {
		p.withdraw(c)
		return err
	}
	return nil
}

// SubmitAll hands several commands over at once, so that those of one pool
// share a journal entry as far as they fit. The three slices have one length;
// errs[i] is set as Submit would have returned it for ops[i].
func (p *Pipe) SubmitAll(tags []uint64, ops []Op, errs []error) {
	list := make([]*call, len(ops))
	var pools []*pool
	for i := range ops {
		op := ops[i]
		c, _, err := p.e.accept(&op)
		if err == nil {
			err = p.enter(c, tags[i])
		}
		if errs[i] = err; err != nil {
			continue
		}
		list[i] = c
		if len(pools) == 0 || pools[len(pools)-1] != c.pool {
			pools = append(pools, c.pool)
		}
	}
	if len(pools) == 1 {
		pools[0].inbox.pushAll(list, errs)
	} else {
		for i, c := range list {
			if c == nil {
				continue
			}
			if err := c.pool.inbox.push(c); err != nil {
				errs[i] = err
			}
		}
	}
	for i, c := range list {
		if c != nil && errs[i] != nil {
			p.withdraw(c)
		}
	}
}

// enter registers a call that is about to be pushed.
func (p *Pipe) enter(c *call, tag uint64) error {
	c.pipe, c.tag = p, tag
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.inFlight >= p.capacity {
		c.pool.stats.refused()
		c.pool.calls.put(c)
		return unavailable("pipe_full", 100*arbiter.Millisecond, "%d commands of this stream are unanswered: read the answers first", p.inFlight)
	}
	p.inFlight++
	if c.lane == laneRequest {
		p.waiting[tag] = c
	}
	return nil
}

// withdraw undoes enter for a call that was not accepted.
func (p *Pipe) withdraw(c *call) {
	c.pool.stats.refused()
	p.mu.Lock()
	p.inFlight--
	if p.waiting[c.tag] == c {
		delete(p.waiting, c.tag)
	}
	p.mu.Unlock()
	c.pool.calls.put(c)
}

// Cancel gives up a request that waits: its reply comes with
// context.Canceled, or with the answer that was faster. Other commands and
// unknown tags are left alone.
func (p *Pipe) Cancel(tag uint64) {
	p.mu.Lock()
	c := p.waiting[tag]
	left := c != nil && c.leave(callGone)
	p.mu.Unlock()
	if left {
		c.pool.inbox.gone(c)
		p.complete(c)
	}
}

// complete takes an answered call; it is called by the writer of its pool.
func (p *Pipe) complete(c *call) {
	p.mu.Lock()
	if p.waiting[c.tag] == c {
		delete(p.waiting, c.tag)
	}
	if p.closed {
		p.mu.Unlock()
		c.orphan()
		return
	}
	p.ready = append(p.ready, c)
	first := len(p.ready) == 1
	p.mu.Unlock()
	if first {
		select {
		case p.signal <- struct{}{}:
		default:
		}
	}
}

// orphan disposes of an answer that nobody will read.
func (c *call) orphan() {
	if c.state.Load() != callAnswered {
		return
	}
	if c.granted() {
		c.pool.inbox.void(c)
	}
	c.recycle()
}

// Next waits until a reply is ready and returns all that are, in buf's memory.
// It signs the tokens of grants. The error is that of ctx.
func (p *Pipe) Next(ctx context.Context, buf []Reply) ([]Reply, error) {
	buf = buf[:0]
	for {
		p.mu.Lock()
		list := p.ready
		p.ready, p.spare = p.spare[:0], nil
		p.mu.Unlock()
		s := p.e.keys()
		for i, c := range list {
			list[i] = nil
			if r, ok := p.reply(c, s); ok {
				buf = append(buf, r)
			}
		}
		p.mu.Lock()
		p.inFlight -= len(buf)
		p.spare = list[:0]
		p.mu.Unlock()
		if len(buf) > 0 {
			return buf, nil
		}
		select {
		case <-p.signal:
		case <-ctx.Done():
			return buf, ctx.Err()
		}
	}
}

// reply reads one ready call. A grant that is too old to be used goes back and
// its request is decided again: no reply yet.
func (p *Pipe) reply(c *call, s *signer) (Reply, bool) {
	r := Reply{Tag: c.tag}
	switch state := c.state.Load(); {
	case state == callGone:
		r.Err = context.Canceled
		return r, true
	case state == callAnswered && c.late(c.pool.clock.now()):
		c.pool.stats.late.Add(1)
		c.pool.inbox.void(c)
		if c.pool.clock.now() < c.until {
			c.again()
			p.mu.Lock()
			p.waiting[c.tag] = c
			p.mu.Unlock()
			err := c.pool.inbox.push(c)
			if err == nil {
				return r, false
			}
			p.mu.Lock()
			delete(p.waiting, c.tag)
			p.mu.Unlock()
			c.pool.stats.refused()
			r.Err = err
			return r, true
		}
		c.pool.stats.failed.Add(1)
		c.err = errLate(c.pool.name)
	}
	r.Outcome, r.Err = c.outcome(s)
	if h := p.e.opts.Hooks.Answered; h != nil {
		h(c.pool.name, c.cmd, &r.Outcome, r.Err)
	}
	c.recycle()
	return r, true
}

// Close ends the pipe: requests that wait vanish, grants that nobody read are
// given back, commits and releases still count. A second Close does nothing.
func (p *Pipe) Close() {
	p.mu.Lock()
	p.closed = true
	ready := p.ready
	p.ready = nil
	var left []*call
	for _, c := range p.waiting {
		if c.leave(callGone) {
			left = append(left, c)
		}
	}
	clear(p.waiting)
	p.mu.Unlock()
	for _, c := range left {
		c.pool.inbox.gone(c)
	}
	for _, c := range ready {
		c.orphan()
	}
}

// DoAll runs several commands in one pass and returns a reply for each, in
// order. Commits among them are decided before requests, so a finished call
// makes room for the next. It returns when all are answered, or when ctx ends:
// what is not answered by then has the error of ctx, and a grant that nobody
// will see is given back.
func (e *Engine) DoAll(ctx context.Context, ops []Op) []Reply {
	replies := make([]Reply, len(ops))
	tags := make([]uint64, len(ops))
	errs := make([]error, len(ops))
	p := e.NewPipe(len(ops))
	defer p.Close()
	for i := range ops {
		tags[i] = uint64(i)
		replies[i].Tag = uint64(i)
	}
	p.SubmitAll(tags, ops, errs)
	open := 0
	answered := make([]bool, len(ops))
	for i, err := range errs {
		if replies[i].Err = err; err == nil {
			open++
		} else {
			answered[i] = true
		}
	}
	var buf []Reply
	for open > 0 {
		var err error
		if buf, err = p.Next(ctx, buf); err != nil {
			for i := range replies {
				if !answered[i] {
					replies[i].Err = err
				}
			}
			break
		}
		for _, r := range buf {
			replies[r.Tag], answered[r.Tag] = r, true
			open--
		}
	}
	return replies
}
