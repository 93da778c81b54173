package gateway

import (
	"errors"
	"io"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/provider"
)

// livelyBody is what a provider sends after the head of its answer, good or bad: the call is stopped when it falls silent.
type livelyBody struct {
	from  io.ReadCloser
	idle  time.Duration
	quiet *time.Timer
}

func newLivelyBody(t *try, from io.ReadCloser) *livelyBody {
	b := &livelyBody{from: from, idle: t.x.settings.IdleTimeout}
	b.quiet = time.AfterFunc(b.idle, func() { t.stalled.Store(true); t.cancel() })
	return b
}

func (b *livelyBody) Read(p []byte) (int, error) {
	n, err := b.from.Read(p)
	switch {
	case err != nil:
		b.quiet.Stop()
	case n > 0:
		b.quiet.Reset(b.idle)
	}
	return n, err
}

func (b *livelyBody) Close() error {
	b.quiet.Stop()
	return b.from.Close()
}

// meteredBody is an answer on its way to the agent: bytes go on as they come, the meter reads along, and the end of the answer is the
// end of its lease.
type meteredBody struct {
	t    *try
	from io.ReadCloser
	held []byte // passed by the meter and not read yet
	err  error  // after held
}

// prime reads as far as the first event, so that an error there is still one that another rung can cure. nil: the answer has begun well.
func (b *meteredBody) prime() *provider.Fault {
	p := buffers.Get().(*[copySize]byte)
	defer buffers.Put(p)
	for !b.t.meter.Started() && b.err == nil {
		out, err := b.next(p[:])
		b.held = append(b.held, out...)
		if f := b.t.meter.Result().Fault; f != nil && f.First {
			b.err = err // nothing has gone on: another rung may cure it, so the lease is judge's to end
			return f
		}
		b.over(err)
	}
	return nil
}

// next reads what comes and returns what of it may go on: a part of p, or the meter's own until it is asked again.
func (b *meteredBody) next(p []byte) ([]byte, error) {
	n, err := b.from.Read(p)
	if errors.Is(err, io.EOF) {
		return b.t.meter.Last(p[:n]), err
	}
	return b.t.meter.Pass(p[:n]), err
}

// over ends the answer when err is its end.
func (b *meteredBody) over(err error) {
	if err != nil {
		b.err = b.end(err)
	}
}

// Read gives what may go on.
func (b *meteredBody) Read(p []byte) (int, error) {
	for {
		if len(b.held) > 0 {
			n := copy(p, b.held)
			if b.held = b.held[n:]; len(b.held) == 0 {
				b.held = nil
				return n, b.err
			}
			return n, nil
		}
		if b.err != nil {
			return 0, b.err
		}
		out, err := b.next(p)
		if err == nil && len(out) > 0 && &out[0] == &p[0] { // nearly always: nothing was held back or dropped
			return len(out), nil
		}
		b.held = append(b.held, out...)
		b.over(err)
	}
}

// end settles the lease with the answer's last byte, before the agent can see that byte: what it asks next is decided after.
func (b *meteredBody) end(err error) error {
	t := b.t
	m := t.meter.Result()
	whole := errors.Is(err, io.EOF)
	switch {
	case t.ctx.Err() != nil && !t.stalled.Load(): // stopped by us: nobody listens, the time is over, or the lease is revoked
		t.settle(t.bill(arbiter.OutcomeCancelled), false)
		if t.x.call.Stream && (t.lost.Load() || t.x.expired()) {
			b.held = append(b.held, t.x.dialect.StreamError(streamEnd(t.lost.Load()))...)
			return io.EOF
		}
		return err
	case m.Fault != nil:
		v := t.up.Dialect.Classify(m.Fault.Status, nil, m.Fault.Body, time.Now())
		t.x.g.hooks.upstream(t, m.Fault.Status, v)
		r := t.bill(v.Class.Outcome())
		r.Signal = signalOf(m.Fault.Status, &v)
		t.settle(r, false)
		return err
	case whole && (m.Complete || !t.x.call.Stream):
		t.settle(t.bill(arbiter.OutcomeOK), false)
		return io.EOF
	case whole: // the answer just stops: the agent must see that too
		t.settle(t.bill(arbiter.OutcomeError), false)
		return io.ErrUnexpectedEOF
	}
	outcome := arbiter.OutcomeError
	if timedOut(err) || t.stalled.Load() {
		outcome = arbiter.OutcomeTimeout
	}
	t.settle(t.bill(outcome), false)
	return err
}

// Close is called when the answer has ended, or because the agent has left.
func (b *meteredBody) Close() error {
	if b.t.ended.Load() {
		return b.from.Close()
	}
	if b.t.leave(); b.t.drain.Load() != draining {
		return b.from.Close()
	}
	b.t.x.try = nil // its end is the drain's
	b.t.x.g.running.stay()
	go b.drain()
	return nil
}

// drain reads an answer to its bill although nobody is there to hear it.
func (b *meteredBody) drain() {
	defer b.t.x.g.running.leave()
	defer func() {
		if fault := recover(); fault != nil { // in a handler net/http would catch it: one odd answer must not end the process
			b.t.x.g.log.Error("drain broke off", "provider", b.t.up.Name, "error", fault)
		}
	}()
	defer b.t.close()
	defer b.from.Close()
	p := buffers.Get().(*[copySize]byte)
	defer buffers.Put(p)
	for b.err == nil {
		_, err := b.next(p[:])
		b.held = nil
		b.over(err)
	}
}
