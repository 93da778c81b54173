package engine

import (
	"sync/atomic"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
)

const reasons = int(arbiter.ReasonNoRung) + 1

// poolStats are counters that the writer and its goroutines raise.
type poolStats struct {
	decisions, batches, entries                atomic.Int64
	conflicts, resends, clocks, voided, late   atomic.Int64
	snapshots, snapshotBytes, encodeNS, saveNS atomic.Int64
	appendNS, lastAppendNS                     atomic.Int64
	verdicts                                   [3][reasons]atomic.Int64
	failed                                     atomic.Int64
	waiting                                    atomic.Pointer[[]WaitingRow]
	waiters                                    atomic.Int64
}

func (s *poolStats) count(c *call) {
	s.decisions.Add(1)
	switch {
	case c.err != nil:
		s.failed.Add(1)
	case c.lane == laneRequest && !c.dryRun:
		s.verdicts[min(c.answer.Status, arbiter.Denied)][min(int(c.answer.Check.Reason), reasons-1)].Add(1)
	}
}

// refused counts a command that was answered with an error before, or without,
// a decision.
func (s *poolStats) refused() {
	s.decisions.Add(1)
	s.failed.Add(1)
}

func (s *poolStats) appended(took time.Duration, _ int) {
	s.entries.Add(1)
	s.appendNS.Add(int64(took))
	s.lastAppendNS.Store(int64(took))
}

// PoolStats are counters and gauges of one pool. Counters start at 0 with the
// process.
type PoolStats struct {
	Pool string
	// Decisions counts answered commands, Failed those among them that ended in
	// an error: refused by the state machine, by a bound of the engine, or
	// because the journal did not answer. What lands later is counted again.
	Decisions, Failed int64
	// Requests counts verdicts by status and by the reason of the refusal; in
	// shadow mode grants carry the reason that would have refused.
	Requests [3][reasons]int64
	// Batches are rounds of the writer, Entries what was appended of them.
	Batches, Entries int64
	// Conflicts, Resends and Clocks count appends that another writer was
	// faster than, that had to be sent again, and that the store's clock
	// refused. Voided grants reached nobody and were given back; Late are those
	// of them that were too old when their entry was safe.
	Conflicts, Resends, Clocks, Voided, Late int64
	// AppendSeconds is the time spent in appends, LastAppend the latest.
	AppendSeconds float64
	LastAppend    time.Duration
	// Inbox is how many commands no batch has taken yet, Waiters how many
	// requests wait for room.
	Inbox, Waiters int
	// Snapshots were saved; the others describe the last one.
	Snapshots           int64
	SnapshotBytes       int64
	SnapshotEncode      time.Duration
	SnapshotSave        time.Duration
	Subscribers         int64
	Epoch, Seq          uint64
	Running             int64
	InvariantBroken     bool
	JournalSilent, Full bool
}

// Stats returns the figures of all open pools, sorted by name.
func (e *Engine) Stats() []PoolStats {
	var list []PoolStats
	for _, name := range e.Pools() {
		if p, err := e.find(name); err == nil {
			list = append(list, p.figures())
		}
	}
	return list
}

func (p *pool) figures() PoolStats {
	s := &p.stats
	stopped, _ := p.health.faults()
	f := PoolStats{
		Pool: p.name, Decisions: s.decisions.Load(), Failed: s.failed.Load(), Batches: s.batches.Load(), Entries: s.entries.Load(),
		Conflicts: s.conflicts.Load(), Resends: s.resends.Load(), Clocks: s.clocks.Load(), Voided: s.voided.Load(), Late: s.late.Load(),
		AppendSeconds: time.Duration(s.appendNS.Load()).Seconds(), LastAppend: time.Duration(s.lastAppendNS.Load()),
		Inbox: p.inbox.depth(), Waiters: int(s.waiters.Load()),
		Snapshots: s.snapshots.Load(), SnapshotBytes: s.snapshotBytes.Load(),
		SnapshotEncode: time.Duration(s.encodeNS.Load()), SnapshotSave: time.Duration(s.saveNS.Load()),
		Subscribers: p.pressure.count.Load(), InvariantBroken: stopped != "",
		JournalSilent: p.health.silent.Load(), Full: p.health.full.Load(),
	}
	for i := range s.verdicts {
		for j := range s.verdicts[i] {
			f.Requests[i][j] = s.verdicts[i][j].Load()
		}
	}
	p.follow.mu.Lock()
	f.Epoch, f.Seq = p.follow.state.Position()
	counts := p.follow.state.Counts()
	p.follow.mu.Unlock()
	f.Running = counts.Running()
	return f
}

// publishWaiting shows who waits; the writer calls it before it rests.
func (p *pool) publishWaiting() {
	p.stats.waiters.Store(int64(p.queue.count))
	if p.queue.count == 0 {
		p.stats.waiting.Store(nil)
		return
	}
	now := p.clock.now()
	if p.queue.apart.count > fewShapes && now-p.shown < int64(100*time.Millisecond) {
		return
	}
	p.shown = now
	rows := p.queue.rows(now)
	p.stats.waiting.Store(&rows)
}

// Waiting returns who waits for room in a pool, by class and level, at most a
// second old. nil when nobody does.
func (e *Engine) Waiting(pool string) []WaitingRow {
	p, err := e.find(pool)
	if err != nil {
		return nil
	}
	if rows := p.stats.waiting.Load(); rows != nil {
		return *rows
	}
	return nil
}
