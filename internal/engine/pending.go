package engine

import (
	"context"

	"github.com/token-budget-arbiter/tba/arbiter"
)

// Pending is a command that was handed over and whose answer can be waited for
// later, or never. It may be used by several goroutines.
type Pending struct {
	e    *Engine
	c    *call
	s    *signer
	pool string
	done chan struct{} // closed when out and err are set
	out  Outcome
	err  error
}

// Start hands a command over and returns at once: it is in the queue of its
// pool then, and will be decided whether or not anybody waits. So a commit can
// be on its way before the last byte of an answer leaves, and be waited for
// afterwards. Hooks.Answered is called once the answer is there. A pool with
// nothing else to do lets it lie for 2 ms, so that it shares a journal entry.
//
// Start takes everything but requests: a grant that nobody reads would hold
// tokens for nothing. The error is an *arbiter.Error: the command was not
// accepted, as in Do.
func (e *Engine) Start(op Op) (*Pending, error) {
	p, err := e.start(&op)
	if err == nil {
		return p, nil
	}
	if h := e.opts.Hooks.Answered; h != nil {
		h(op.Pool, op.Command, &Outcome{}, err)
	}
	return nil, err
}

func (e *Engine) start(op *Op) (*Pending, error) {
	if _, request := op.Command.(*arbiter.Request); request {
		return nil, arbiter.Errorf(arbiter.CodeInvalid, "command", "a request must be waited for: use Do, DoAll or a Pipe")
	}
	c, s, err := e.accept(op)
	if err != nil {
		return nil, err
	}
	p := &Pending{e: e, c: c, s: s, pool: op.Pool, done: make(chan struct{})}
	c.sent = p
	if err := c.pool.inbox.pushLater(c); err != nil {
		c.pool.stats.refused()
		c.pool.calls.put(c)
		return nil, err
	}
	return p, nil
}

// read takes the answer, once.
func (p *Pending) read() {
	p.out, p.err = p.c.outcome(p.s)
	if h := p.e.opts.Hooks.Answered; h != nil {
		h(p.pool, p.c.cmd, &p.out, p.err)
	}
	p.c.recycle()
	close(p.done)
}

// Wait returns the answer as Do would, or the error of ctx when it ends first.
// The command is decided all the same, and Wait may be called again.
func (p *Pending) Wait(ctx context.Context) (Outcome, error) {
	select {
	case <-p.done:
	default:
		select {
		case <-p.done:
		case <-ctx.Done():
			return Outcome{}, ctx.Err()
		}
	}
	return p.out, p.err
}
