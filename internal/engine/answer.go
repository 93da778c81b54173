package engine

import (
	"fmt"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/journal"
)

// refuse answers a lane with "journal full".
func (p *pool) refuse(b *batch, l lane) {
	for _, c := range p.work[l] {
		c.err = errJournalFull(p.name)
		b.calls = append(b.calls, c)
	}
	clear(p.work[l])
	p.work[l] = p.work[l][:0]
}

// answer hands the results of a batch out; pos is the entry that holds them,
// or the last one when the batch had no facts.
func (p *pool) answer(b *batch, pos journal.Position) {
	now := p.clock.now()
	for _, c := range b.calls {
		c.decision.Epoch, c.decision.Seq = pos.Epoch, pos.Seq
		p.stats.count(c)
		if c.lane == laneVoid && c.err == nil && c.answer.Result == arbiter.Released {
			p.stats.voided.Add(1)
		}
		granted := c.granted()
		if granted && c.late(now) && c.pending() {
			p.stats.late.Add(1)
			p.giveBack(c)
			if now < c.until {
				p.enqueueAgain(c)
				continue
			}
			c.err, granted = errLate(p.name), false
			p.stats.failed.Add(1)
		}
		if !c.leave(callAnswered) {
			if granted {
				p.giveBack(c)
			}
			continue
		}
		if c.handsOver() {
			p.handed.add(c.answer.Lease.Lease, c.decided)
		}
		c.deliver()
	}
}

// enqueueAgain puts a request back after its decision came to nothing.
func (p *pool) enqueueAgain(c *call) {
	c.shape, c.err, c.fresh = nil, nil, true
	p.queue.add(c)
}

// undo takes a batch back whose entry is not in the log: its calls are decided
// again, in their order. Callers of requests that left are forgotten.
func (p *pool) undo(b *batch) {
	p.state.Rollback()
	var again [lanes][]*call
	for _, c := range b.calls {
		c.err = nil
		if c.lane != laneRequest {
			again[c.lane] = append(again[c.lane], c)
		} else if c.pending() {
			p.enqueueAgain(c)
		}
	}
	for l := laneExtend; l <= laneSettle; l++ {
		p.work[l] = append(again[l], p.work[l]...)
	}
	clear(b.calls)
	b.calls = b.calls[:0]
	p.queue.dirty = true
}

// fail answers calls with an error.
func (p *pool) fail(list []*call, err *arbiter.Error) {
	for _, c := range list {
		c.err = err
		if c.leave(callAnswered) {
			p.stats.count(c)
			c.deliver()
		}
	}
}

// failRequests answers everybody in the queue.
func (p *pool) failRequests(err *arbiter.Error) {
	p.fail(p.queue.drain(), err)
}

// failAll answers everything in hand.
func (p *pool) failAll(err *arbiter.Error) {
	p.failRequests(err)
	for l := range p.work {
		p.fail(p.work[l], err)
		clear(p.work[l])
		p.work[l] = p.work[l][:0]
	}
}

// hangUp answers what is left when the writer stops.
func (p *pool) hangUp() {
	p.inbox.close(errClosed(p.name))
	p.take()
	p.failAll(errClosed(p.name))
}

// panicked deals with a broken invariant in the middle of a batch. The batch
// is taken back, the commands it had decided are refused, and nothing is
// granted from here on; commits of other batches still count.
func (p *pool) panicked(b *batch, cause error) {
	p.log.Error("invariant broken while deciding", "error", cause)
	p.health.stopGrants("an invariant is broken; the log of this process has the details")
	p.panics++
	if err := protect(p.state.Rollback); err != nil || p.panics > maxPanics {
		p.broken(fmt.Errorf("the state cannot be trusted: %w", cause))
	}
	p.fail(b.calls, errStopped(p.name, "an invariant is broken"))
	for l := range p.work {
		if n := len(p.work[l]); n > 0 { // the first one left is the suspect
			p.fail(p.work[l][:1], errStopped(p.name, "an invariant is broken"))
			p.work[l] = p.work[l][:copy(p.work[l], p.work[l][1:])]
		}
	}
	b.reset(b.t)
}

// maxPanics is how many batches in a row may break an invariant, each without
// the command that was first in it, before the pool records nothing more.
const maxPanics = 100
