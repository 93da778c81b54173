package engine

import (
	"math"
	"runtime"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/journal"
)

// batch is what one round decides under one logical time and appends as one
// entry.
type batch struct {
	t      arbiter.Time
	calls  []*call // to be answered once the entry is safe, in order
	asks   int     // decisions of requests
	moved  bool    // a lease ended by itself
	settle bool    // only commits and releases (journal full)
	full   bool    // the entry has no room for more
}

func (b *batch) reset(t arbiter.Time) {
	clear(b.calls)
	*b = batch{t: t, calls: b.calls[:0]}
}

// take moves what callers handed over to the writer's lists. Requests join the
// queue, whatever its state, so that there is one order.
func (p *pool) take() {
	p.inbox.take(&p.taken, &p.left)
	for l := laneExtend; l <= laneSettle; l++ {
		p.work[l] = append(p.work[l], p.taken[l]...)
	}
	if len(p.taken[laneRequest]) > 0 {
		p.classLevels()
		for _, c := range p.taken[laneRequest] {
			p.enqueue(c)
		}
	}
	for l := range p.taken {
		clear(p.taken[l])
		p.taken[l] = p.taken[l][:0]
	}
	for i, c := range p.left {
		p.queue.remove(c)
		p.left[i] = nil
	}
	p.left = p.left[:0]
}

func (p *pool) enqueue(c *call) {
	r := &c.request
	c.level = r.Priority
	if c.level == arbiter.ClassPriority {
		name := r.Class
		if name == "" {
			name = arbiter.DefaultClass
		}
		c.level = p.levels[name]
	}
	c.level = min(c.level, arbiter.Critical) // Decide refuses more
	c.seen = c.arrived
	if c.ticket.firstSeen != 0 {
		c.seen = c.ticket.seniority(p.hash, r, c.level, c.arrived)
	}
	if p.queue.count >= p.e.opts.MaxWaiters {
		p.fail([]*call{c}, errInboxFull(p.name))
		return
	}
	p.queue.add(c)
}

// classLevels learns the default priorities of the policy in force.
func (p *pool) classLevels() {
	pol := p.state.Policy()
	if pol == p.policy {
		return
	}
	p.policy, p.levels = pol, map[string]arbiter.Priority{}
	if pol != nil {
		for i := range pol.Classes {
			p.levels[pol.Classes[i].Name] = pol.Classes[i].Priority
		}
	}
}

// round decides what waits, appends it, answers. It reports whether there is
// more to do at once.
func (p *pool) round() (more bool) {
	stopped, broken := p.health.faults()
	if broken != nil {
		p.failAll(errBroken(p.name, broken))
		return false
	}
	now := max(p.clock.now(), p.state.Now())
	b := &p.batch
	b.reset(arbiter.Time{Now: now, Wall: p.clock.unix(now)})
	b.settle = p.fullTill > now
	if p.state.Policy() == nil && len(p.work[laneControl]) == 0 {
		p.failAll(arbiter.Errorf(arbiter.CodeUnavailable, "no_policy", "pool %s has no policy yet: adopt one (tba serve -c FILE)", p.name))
		return false
	}

	p.state.Begin()
	p.enc.Reset()
	if err := protect(func() { p.decideAll(b, stopped) }); err != nil {
		p.panicked(b, err)
		return true
	}
	p.panics = 0
	p.nextEnd = math.MaxInt64
	if end, ok := p.state.NextEnd(); ok {
		// It may be early, time and again: only a batch in which leases ended
		// may have left some over.
		if p.nextEnd = end; !b.moved {
			p.nextEnd = max(end, now+endRest)
		}
	}
	p.stats.batches.Add(1)

	// After a shortage an entry without facts asks for room: nobody sends
	// requests to a pool that is not ready.
	probe := p.fullTill != 0 && !b.settle
	if p.enc.Facts() == 0 && (!b.moved || b.settle) && !probe {
		p.state.Rollback()
		p.answer(b, p.pos)
		p.idle(now)
	} else if !p.commit(b) {
		return true
	} else if len(b.calls) > 1 {
		p.gather(len(b.calls))
	}
	p.queue.dropExpired(p, b)
	for l := laneExtend; l <= laneSettle; l++ {
		more = more || len(p.work[l]) > 0
	}
	return more || b.full || p.queue.more || b.moved && !b.settle && p.nextEnd <= now
}

// gather lets those who were just answered ask again before the next batch is
// taken: one full entry costs as much as one of two half ones. It waits for a
// few more commands than were answered, so that two halves of a crowd find
// together, but at most a quarter of what an append takes.
func (p *pool) gather(answered int) {
	runtime.Gosched()
	answered += answered/8 + 1
	end := p.clock.since() + min(p.stats.lastAppendNS.Load()/4, maxGather)
	for range maxYields { // a clock that stands still must not hold it
		if p.inbox.depth() >= answered || p.clock.since() >= end {
			return
		}
		runtime.Gosched()
	}
}

// maxGather and maxYields bound how long a batch waits to fill.
const (
	maxGather = int64(100 * time.Microsecond)
	maxYields = 200
)

// decideAll runs one batch: extensions before time advances, then the
// calendar, then commands by lane.
func (p *pool) decideAll(b *batch, stopped string) {
	if b.settle {
		p.refuse(b, laneExtend)
		p.refuse(b, laneControl)
	} else if len(p.work[laneExtend]) > 0 {
		t := arbiter.Time{Now: p.state.Now(), Wall: p.state.Wall()}
		p.work[laneExtend] = p.decideLane(b, p.work[laneExtend])
		if b.full {
			// The other extensions must come before time advances too: this
			// entry gets the time of the last one.
			b.t = t
			return
		}
	}
	b.moved = p.state.Advance(b.t)
	b.t.Now = p.state.Now()
	if b.moved {
		p.queue.dirty = true
	}
	if !b.settle {
		p.decideCalendar(b)
		p.work[laneControl] = p.decideLane(b, p.work[laneControl])
	}
	p.dropHeld()
	p.work[laneVoid] = p.decideLane(b, p.work[laneVoid])
	p.work[laneSettle] = p.decideLane(b, p.work[laneSettle])
	if b.settle {
		p.failRequests(errJournalFull(p.name))
		return
	}
	if stopped != "" {
		p.failRequests(errStopped(p.name, stopped))
		return
	}
	if p.health.draining.Load() {
		p.failRequests(errDraining(p.name))
		return
	}
	if !b.full {
		p.decideRequests(b)
	}
}

// decideLane decides the commands of one list until the entry is full and
// returns those that are left.
func (p *pool) decideLane(b *batch, list []*call) []*call {
	limit := maxBatch
	if len(list) > 0 && (list[0].lane == laneExtend || list[0].lane == laneVoid) {
		limit = len(list) // all, or nothing of what comes after them
	}
	i := 0
	for ; i < len(list) && i < limit && !b.full; i++ {
		c := list[i]
		p.now(c, b)
		c.err = p.state.Decide(c.cmd, &p.decision)
		if !p.record(b) {
			if p.enc.Facts() > 0 {
				break
			}
			c.err = arbiter.Errorf(arbiter.CodeResource, "too_large", "pool %s: the command does not fit one journal entry", p.name)
		} else if c.err == nil {
			c.answer = p.decision.Answer
			c.answer.Wanted = nil
			p.queue.dirty = p.queue.dirty || len(p.decision.Facts) > 0
		}
		b.calls = append(b.calls, c)
	}
	n := copy(list, list[i:])
	clear(list[n:])
	return list[:n]
}

// now stamps a call with the batch that decides it.
func (p *pool) now(c *call, b *batch) {
	p.number++
	c.decided = b.t.Now
	c.decision.Number = p.number
}

// record encodes and applies the facts of the last decision. It reports false,
// with nothing done, when the entry has no room for them.
func (p *pool) record(b *batch) bool {
	if len(p.decision.Facts) == 0 {
		return true
	}
	mark := p.enc.Mark()
	for i := range p.decision.Facts {
		f := &p.decision.Facts[i]
		p.enc.BeginFact(uint16(f.Kind), true)
		buf := p.enc.Buf()
		*buf = arbiter.AppendFact(*buf, f, p.intern)
		p.enc.EndFact()
	}
	if p.enc.Len() > journal.MaxEntryBytes {
		p.enc.Rollback(mark)
		b.full = true
		return false
	}
	for i := range p.decision.Facts {
		p.state.Apply(&p.decision.Facts[i])
	}
	p.mass.count(p.decision.Facts)
	return true
}

// wakeAt is the logical time of the next round without a command.
func (p *pool) wakeAt() int64 {
	now := p.clock.now()
	if _, broken := p.health.faults(); broken != nil {
		return now + int64(time.Hour)
	}
	at := now + housekeeping
	if p.fullTill <= now {
		at = min(at, max(p.nextEnd, now))
	}
	return min(at, p.queue.wakeAt())
}
