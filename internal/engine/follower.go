package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/journal"
)

// follower applies confirmed entries, as they stand in the journal, to a state
// of its own. Everything that is shown is read there; decoding each entry
// again checks the codec all the time. A slow reader holds the follower, never
// the writer.
type follower struct {
	p    *pool
	done chan struct{}
	wake chan struct{} // one token when list was empty and is not

	mu      sync.Mutex
	applied sync.Cond // on mu: seq moved, or the follower broke
	state   *arbiter.State
	pos     journal.Position
	facts   []arbiter.Fact
	err     error // why it follows no more
	rows    []row // archive rows not yet stored

	events *ring
	// buffer holds the last snapshot; one is under way at a time.
	buffer  []byte
	checked int64 // logical time at which the invariants were asserted

	qmu     sync.Mutex
	list    []item
	bytes   int
	target  uint64 // seq of the last entry handed over
	stopped bool
	free    [][]byte
}

// item is work for the follower: an entry, a snapshot, or both.
type item struct {
	raw      []byte
	snapshot *snapshot // taken after the entry
}

// maxBehind is how many bytes of entries the follower may be behind before the
// writer waits for it.
const maxBehind = 64 << 20

func newFollower(p *pool, s *arbiter.State, pos journal.Position) *follower {
	f := &follower{p: p, state: s, pos: pos, done: make(chan struct{}), wake: make(chan struct{}, 1), events: newRing(p.e.opts.EventsKept)}
	f.applied.L = &f.mu
	f.state.SetEvents(true)
	return f
}

// push hands over an entry that is safe in the log; raw is copied.
func (f *follower) push(it item) {
	f.qmu.Lock()
	if it.raw != nil {
		var b []byte
		if n := len(f.free); n > 0 {
			b, f.free = f.free[n-1], f.free[:n-1]
		}
		it.raw = append(b[:0], it.raw...)
		f.target++
		f.bytes += len(it.raw)
	}
	f.list = append(f.list, it)
	first, behind := len(f.list) == 1, f.bytes > maxBehind
	f.qmu.Unlock()
	if first {
		select {
		case f.wake <- struct{}{}:
		default:
		}
	}
	if behind {
		_ = f.wait(f.p.ctx, f.target-1) // rare: a reader holds the state for seconds
	}
}

// handed is the seq of the last entry handed over.
func (f *follower) handed() uint64 {
	f.qmu.Lock()
	defer f.qmu.Unlock()
	return f.target
}

// wait returns when the entry with this seq was applied.
func (f *follower) wait(ctx context.Context, seq uint64) error {
	stop := context.AfterFunc(ctx, func() {
		f.mu.Lock()
		f.applied.Broadcast()
		f.mu.Unlock()
	})
	defer stop()
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.pos.Seq < seq && f.err == nil && ctx.Err() == nil {
		f.applied.Wait()
	}
	if f.err != nil {
		return f.err
	}
	return ctx.Err()
}

func (f *follower) run() {
	defer close(f.done)
	var list []item
	for {
		f.qmu.Lock()
		list, f.list = f.list, list[:0]
		stopped := f.stopped
		f.qmu.Unlock()
		if len(list) == 0 {
			if stopped {
				return
			}
			<-f.wake
			continue
		}
		for i := range list {
			f.take(&list[i])
		}
		f.release(list)
		f.p.pressure.nudge()
	}
}

// release gives the buffers of applied entries back.
func (f *follower) release(list []item) {
	f.qmu.Lock()
	for i := range list {
		if b := list[i].raw; b != nil {
			f.bytes -= len(b)
			if len(f.free) < 64 {
				f.free = append(f.free, b)
			}
		}
		list[i] = item{}
	}
	f.qmu.Unlock()
}

func (f *follower) take(it *item) {
	f.mu.Lock()
	if it.raw != nil && f.err == nil {
		e, err := journal.Decode(it.raw)
		if err == nil {
			if perr := protect(func() { err = f.apply(&e) }); perr != nil {
				err = perr
			}
		}
		if err != nil {
			f.fail(fmt.Errorf("a confirmed entry cannot be followed: %w", err))
		}
		f.applied.Broadcast()
	}
	s := it.snapshot
	if s != nil && f.err == nil {
		if err := protect(func() { f.encode(s) }); err != nil {
			f.fail(err)
		}
	}
	f.mu.Unlock()
	if s != nil {
		f.p.save(s)
	}
}

// fail stops following: what is shown stays as it was, and nothing is granted.
func (f *follower) fail(err error) {
	if f.err == nil {
		f.err = err
		f.p.health.stopGrants(err.Error())
		f.p.log.Error("follower stopped", "error", err)
		f.applied.Broadcast()
	}
}

// apply applies one entry; mu is held, or the follower does not run yet.
func (f *follower) apply(e *journal.Entry) error {
	if f.pos.Seq != 0 && (e.Seq != f.pos.Seq+1 || e.PrevID != f.pos.ID) || f.pos.Seq == 0 && e.Seq != 1 {
		return fmt.Errorf("entry %s does not follow %s: %w", e.Pos(), f.pos, journal.ErrForked)
	}
	var before uint32
	if periods := f.state.Periods(); len(periods) > 0 {
		before = periods[len(periods)-1].Number
	}
	final := f.finals(e)
	if err := applyEntry(f.state, e, &f.facts); err != nil {
		return err
	}
	f.pos = e.Pos()
	f.rows = append(f.rows, final...)
	if periods := f.state.Periods(); before != 0 && periods[len(periods)-1].Number != before {
		f.rows = append(f.rows, f.row(before, "closed"))
	}
	if events := f.state.Events(); len(events) > 0 {
		f.events.add(events)
		f.state.ClearEvents()
	}
	return nil
}

// applyEntry does to a state what an entry says.
func applyEntry(s *arbiter.State, e *journal.Entry, buf *[]arbiter.Fact) error {
	facts := (*buf)[:0]
	lookup := func(i uint32) (string, bool) {
		if int(i) >= len(e.Strings) {
			return "", false
		}
		return e.Strings[i], true
	}
	for jf := range e.Facts() {
		if len(facts) < cap(facts) {
			facts = facts[:len(facts)+1]
		} else {
			facts = append(facts, arbiter.Fact{})
		}
		err := arbiter.DecodeFact(arbiter.FactKind(jf.Kind), jf.Payload, lookup, &facts[len(facts)-1])
		if err == nil {
			continue
		}
		if jf.Critical || jf.Kind <= uint16(arbiter.FactUnattributed) {
			return fmt.Errorf("entry %s: fact of kind %d: %w: a newer version of this program wrote it, or it is damaged", e.Pos(), jf.Kind, err)
		}
		facts = facts[:len(facts)-1] // unknown and not critical
	}
	*buf = facts
	s.ApplyEntry(arbiter.Time{Now: e.Now, Wall: e.Wall}, facts)
	s.SetPosition(e.Epoch, e.Seq)
	return nil
}

// stop ends the follower after what was handed over.
func (f *follower) stop() {
	f.qmu.Lock()
	f.stopped = true
	f.qmu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// at calls fn with the state as it is at logical time now: windows rotated,
// leases that are over ended. Afterwards it is again as the entries left it.
// mu is held.
func (f *follower) at(now int64, fn func(*arbiter.State) error) error {
	s := f.state
	s.SetEvents(false)
	s.Begin()
	defer func() {
		s.Rollback()
		s.SetEvents(true)
	}()
	s.Advance(arbiter.Time{Now: now, Wall: f.p.clock.unix(now)})
	return fn(s)
}

// View calls fn with the confirmed state of a pool at the present moment. It
// includes every answer given before the call. fn must not keep the state, must
// not change it and should not block: it holds the follower. The error is that
// of fn or of ctx, CodeNotFound for a pool that is not open, or CodeUnavailable
// when the follower has stopped.
func (e *Engine) View(ctx context.Context, pool string, fn func(*arbiter.State) error) error {
	p, aerr := e.find(pool)
	if aerr != nil {
		return aerr
	}
	f := p.follow
	if err := f.wait(ctx, f.handed()); err != nil {
		if errors.Is(err, ctx.Err()) {
			return err
		}
		return errStopped(p.name, err.Error())
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.at(p.clock.now(), fn)
}
