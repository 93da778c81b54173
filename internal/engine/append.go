package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/journal"
)

const (
	minBackoff = 10 * time.Millisecond
	maxBackoff = 200 * time.Millisecond
	// fullFor is how long only commits and releases are tried after the
	// journal said that it is full.
	fullFor = int64(time.Second)
)

// fate is what became of an entry.
type fate uint8

const (
	inLog  fate = iota // safe in the log
	notIn              // definitely not in the log: decide again
	failed             // nobody will know: the pool records nothing more
)

// commit appends the entry of a batch and answers. It reports false when the
// batch was taken back and its calls are to be decided again.
func (p *pool) commit(b *batch) bool {
	h := journal.Header{
		Pool: p.name, Epoch: p.epoch, Seq: p.pos.Seq + 1, ID: journal.NewEntryID(), PrevID: p.pos.ID,
		Now: b.t.Now, Wall: b.t.Wall, Writer: p.e.opts.Writer, Proven: p.proven,
	}
	if b.settle {
		h.Flags = journal.FlagEssential
	}
	if pol := p.state.Policy(); pol != nil {
		h.Policy = pol.Version
	}
	req := journal.AppendRequest{After: p.pos, Entry: p.enc.Finish(h), Essential: b.settle}

	started := p.clock.since()
	p.watch.begin(b.calls)
	became, err := p.append(&req, &h)
	p.watch.end()
	took := time.Duration(p.clock.since() - started)
	p.stats.appended(took, len(b.calls))
	if hook := p.e.opts.Hooks.Appended; hook != nil {
		hook(p.name, took, len(b.calls))
	}

	switch became {
	case inLog:
		p.confirmed(b, &h, req.Entry)
		var conflict *journal.ConflictError
		if errors.As(err, &conflict) { // ours was there, and more after it
			p.follows(conflict.Entries[1:])
		}
		if !b.settle && p.fullTill != 0 {
			p.fullTill = 0
			p.health.full.Store(false)
			p.log.Info("journal takes entries again")
		}
		return true
	case failed:
		p.state.Rollback()
		p.health.fail(err)
		p.log.Error("journal failed: nothing is recorded until it is reopened", "error", err)
		for _, c := range b.calls {
			if c.leave(callUnknown) {
				p.stats.refused()
				c.deliver()
			}
		}
		p.inbox.close(errBroken(p.name, err))
		p.failAll(errBroken(p.name, err))
		return true
	}
	p.takenBack(b, &h, err)
	return false
}

// append sends one entry until its fate is known.
func (p *pool) append(req *journal.AppendRequest, h *journal.Header) (fate, error) {
	for wait := minBackoff; ; wait = min(2*wait, maxBackoff) {
		sent := p.clock.since()
		res, err := p.journal.Append(p.ctx, *req)
		if err == nil {
			p.clock.reading(res.StoreTime, sent, p.clock.since())
			if res.Proven {
				return inLog, nil
			}
			err = journal.ErrUnproven
		}
		var conflict *journal.ConflictError
		switch {
		case errors.Is(err, journal.ErrUnproven):
			return p.prove(h.Pos())
		case errors.As(err, &conflict):
			if len(conflict.Entries) > 0 && conflict.Entries[0].ID == h.ID {
				return inLog, err
			}
			return notIn, err
		case errors.Is(err, journal.ErrBusy), errors.Is(err, journal.ErrClock), errors.Is(err, journal.ErrFull),
			errors.Is(err, journal.ErrEpoch), errors.Is(err, journal.ErrInvalid), errors.Is(err, journal.ErrTooLarge):
			return notIn, err
		case errors.Is(err, journal.ErrFailed), errors.Is(err, journal.ErrClosed), errors.Is(err, journal.ErrUninitialised),
			errors.Is(err, journal.ErrCorrupt), errors.Is(err, journal.ErrFormat):
			return failed, err
		}
		// Unknown, or recovering: the identical entry again.
		p.stats.resends.Add(1)
		if !p.pause(wait) {
			return failed, fmt.Errorf("closed while the outcome of an entry was unknown: %w", err)
		}
	}
}

// prove waits until an entry that is in the log is safe there.
func (p *pool) prove(pos journal.Position) (fate, error) {
	for wait := minBackoff; ; wait = min(2*wait, maxBackoff) {
		err := p.journal.Prove(p.ctx, pos)
		switch {
		case err == nil:
			return inLog, nil
		case errors.Is(err, journal.ErrForked), errors.Is(err, journal.ErrFailed), errors.Is(err, journal.ErrClosed):
			return failed, err
		}
		p.stats.resends.Add(1)
		if !p.pause(wait) {
			return failed, fmt.Errorf("closed while an entry was unproven: %w", err)
		}
	}
}

// pause reports false when the pool is closed meanwhile. A drain goes on as
// long as it has time.
func (p *pool) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-p.ctx.Done():
		return false
	}
}

// confirmed makes a batch final: its entry is in the log.
func (p *pool) confirmed(b *batch, h *journal.Header, entry []byte) {
	p.state.Confirm()
	p.pos, p.proven = h.Pos(), h.Seq
	p.state.SetPosition(h.Epoch, h.Seq)
	p.lastWork = b.t.Now
	p.hand(entry, len(entry))
	p.answer(b, p.pos)
}

// takenBack undoes a batch whose entry is not in the log, and removes the
// cause as far as it can.
func (p *pool) takenBack(b *batch, h *journal.Header, err error) {
	var conflict *journal.ConflictError
	var busy *journal.BusyError
	switch {
	case errors.As(err, &conflict):
		p.stats.conflicts.Add(1)
		p.undo(b)
		if conflict.Cause != nil || len(conflict.Entries) == 0 {
			p.broken(fmt.Errorf("the log does not contain position %s any more: %w", p.pos, err))
			return
		}
		p.follows(conflict.Entries)
	case errors.Is(err, journal.ErrFull):
		p.undo(b)
		if b.settle {
			p.failAll(errJournalFull(p.name))
		} else if p.fullTill == 0 {
			p.log.Error("journal is full: only commits and releases are recorded", "error", err)
		}
		p.fullTill = p.clock.now() + fullFor
		p.health.full.Store(true)
	case errors.Is(err, journal.ErrClock):
		p.undo(b)
		p.stats.clocks.Add(1)
		p.clock.reset()
		if err := p.readClock(p.ctx); err != nil || p.stats.clocks.Load()%8 == 0 {
			p.pause(minBackoff)
		}
	case errors.Is(err, journal.ErrEpoch):
		p.undo(b)
		p.newEpoch()
	case errors.Is(err, journal.ErrBusy):
		writer := ""
		if errors.As(err, &busy) {
			writer = busy.Writer
		}
		p.state.Rollback()
		p.forward(b.calls, writer)
		b.calls = b.calls[:0]
	default: // the entry itself is at fault: a bug, not a state of the store
		p.log.Error("entry refused by the journal", "seq", h.Seq, "error", err)
		p.state.Rollback()
		p.fail(b.calls, errBroken(p.name, err))
		b.calls = b.calls[:0]
	}
}

func (p *pool) broken(err error) {
	p.health.fail(err)
	p.log.Error("pool stopped", "error", err)
	p.inbox.close(errBroken(p.name, err))
	p.failAll(errBroken(p.name, err))
}

// follows applies entries that others appended after our position.
func (p *pool) follows(entries []journal.Entry) {
	for i := range entries {
		e := &entries[i]
		if e.Seq != p.pos.Seq+1 || e.PrevID != p.pos.ID {
			p.broken(fmt.Errorf("entry %s does not follow %s: %w", e.Pos(), p.pos, journal.ErrForked))
			return
		}
		var err error
		if perr := protect(func() { err = applyEntry(p.state, e, &p.facts) }); perr != nil {
			err = perr
		}
		if err != nil {
			p.broken(err)
			return
		}
		p.mass.count(p.facts)
		p.pos, p.proven, p.lastWork = e.Pos(), e.Seq, e.Now
		p.hand(e.Raw(), len(e.Raw()))
	}
	p.queue.dirty = true
}

// newEpoch learns the epoch of the log after another one was opened.
func (p *pool) newEpoch() {
	head, err := p.journal.Head(p.ctx)
	if err != nil {
		p.pause(minBackoff)
		return
	}
	p.epoch = head.Epoch
	for p.pos != head.Pos {
		entries, err := p.journal.Read(p.ctx, p.pos, 0)
		if err != nil {
			p.broken(fmt.Errorf("read after epoch %d was opened: %w", head.Epoch, err))
			return
		}
		p.follows(entries)
		if _, broken := p.health.faults(); broken != nil {
			return
		}
	}
}

// forward hands the calls of a batch to the writer that holds the pool.
func (p *pool) forward(list []*call, writer string) {
	f := p.e.opts.Forward
	for _, c := range list {
		if f == nil {
			c.err = errOtherWriter(p.name, writer)
			if c.leave(callAnswered) {
				p.stats.count(c)
				c.deliver()
			}
			continue
		}
		op := Op{Pool: p.name, Command: c.cmd, MaxWait: time.Duration(max(c.limit-p.clock.now(), 0)), DryRun: c.dryRun}
		go func() {
			out, err := f.Forward(p.ctx, writer, op, c.seen)
			var aerr *arbiter.Error
			if err != nil && !errors.As(err, &aerr) {
				aerr = errOtherWriter(p.name, writer)
			}
			c.answer, c.err, c.decided, c.decision = out.Answer, aerr, p.clock.now(), out.Decision
			if c.leave(callAnswered) {
				c.deliver()
			}
		}()
	}
}

// hand gives a confirmed entry to the follower, and asks it for a snapshot
// when enough has gathered since the last.
func (p *pool) hand(entry []byte, size int) {
	p.logBytes += int64(size)
	p.follow.push(item{raw: entry, snapshot: p.snapshotDue()})
}
