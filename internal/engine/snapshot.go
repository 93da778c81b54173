package engine

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/journal"
)

// inlineDigest is the longest encoding of a state that the writer digests in
// passing, which takes two to four milliseconds. Beyond that the digests are
// compared when the pool is drained; the lease counts are compared always.
const inlineDigest = 1 << 20

// mass bounds the length of the state's encoding from above, without making
// it: what was measured last and what came since. Rows and what is left of
// them stay long after their leases.
type mass struct {
	encoded atomic.Int64 // measured by the follower at the last order
	leases  int64        // at that order
	rows    int64        // added since
}

// What one more lease and one more row may add to the encoding, names of
// ordinary length.
const (
	leaseMass = 256
	rowMass   = 512
)

func (m *mass) bound(leases int64) int64 {
	return m.encoded.Load() + max(leases-m.leases, 0)*leaseMass + m.rows*rowMass
}

// count notes the rows that facts add to the writer's state.
func (m *mass) count(facts []arbiter.Fact) {
	for i := range facts {
		if facts[i].Kind == arbiter.FactNodeAdded {
			m.rows++
		}
	}
}

// checkEvery is how often the invariants are asserted over the whole state.
const checkEvery = int64(time.Minute)

// snapshot is a state on its way to the store.
type snapshot struct {
	counts arbiter.Counts
	digest [32]byte // of the writer's state; zero when it is too large to compute in passing
	pos    journal.Position
	bytes  []byte
	rows   []row
	took   time.Duration // of encoding
	saved  chan error    // nil, or told the result
}

// row is an archive row.
type row struct {
	key  string
	data []byte
}

// snapshotDue returns a snapshot order when enough log has gathered, and nil
// otherwise. Only the writer calls it, right after an entry was confirmed.
func (p *pool) snapshotDue() *snapshot {
	if p.logBytes < max(p.e.opts.SnapshotEvery, p.stats.snapshotBytes.Load()) || !p.claim() {
		return nil
	}
	return p.order()
}

// known is how many leases the state knows, ended ones included.
func known(c *arbiter.Counts) (n int64) {
	for _, k := range c.Phases {
		n += k
	}
	return n
}

// claim takes the right to save a snapshot; one is under way at a time.
func (p *pool) claim() bool {
	select {
	case p.saving <- struct{}{}:
		return true
	default:
		return false
	}
}

// order describes the writer's state of now for a snapshot.
func (p *pool) order() *snapshot {
	p.logBytes = 0
	s := &snapshot{counts: p.state.Counts()}
	leases := known(&s.counts)
	if p.mass.bound(leases) <= inlineDigest {
		s.digest = p.state.Digest()
	}
	p.mass.leases, p.mass.rows = leases, 0
	return s
}

// idle orders a snapshot for a pool that has been quiet, so that it does not
// pin the log that it shares with others.
func (p *pool) idle(now int64) {
	if p.logBytes > 0 && now-p.lastWork >= idleAfter && p.claim() {
		p.follow.push(item{snapshot: p.order()})
	}
}

// encode takes the follower's state; mu is held. Decisions go on meanwhile.
func (f *follower) encode(s *snapshot) {
	started := time.Now()
	if now := f.state.Now(); s.saved != nil || now-f.checked >= checkEvery {
		f.checked = now
		if err := f.state.Check(); err != nil {
			f.p.health.stopGrants("an invariant is broken: " + err.Error())
			f.p.log.Error("invariant broken", "position", f.pos.String(), "error", err)
		}
	}
	if c := f.state.Counts(); c != s.counts {
		f.fail(fmt.Errorf("writer and follower disagree at %s: %v leases by phase against %v", f.pos, s.counts.Phases, c.Phases))
		return
	}
	s.pos = f.pos
	s.bytes = f.state.AppendTo(f.buffer[:0])
	f.buffer = s.bytes
	f.p.mass.encoded.Store(int64(len(s.bytes)))
	if s.digest != ([32]byte{}) && s.digest != sha256.Sum256(s.bytes) {
		f.fail(fmt.Errorf("writer and follower disagree at %s: their states have different digests", f.pos))
		s.bytes = nil
		return
	}
	s.rows, f.rows = f.rows, nil
	s.took = time.Since(started)
}

// save stores a snapshot in a goroutine of its own, archive rows first: what
// the log no longer has must not be missing elsewhere.
func (p *pool) save(s *snapshot) {
	go func() {
		err := p.store(s)
		if s.saved != nil {
			s.saved <- err
		} else if err != nil && p.ctx.Err() == nil {
			p.log.Error("snapshot not saved", "error", err)
		}
		<-p.saving
	}()
}

// leaveSnapshot is the writer's last act when the pool is drained: nothing can
// be appended after it.
func (p *pool) leaveSnapshot() {
	if p.final == nil {
		return
	}
	_, broken := p.health.faults()
	if broken == nil {
		broken = p.ctx.Err()
	}
	if broken != nil {
		p.final <- broken
		<-p.saving
		return
	}
	s := p.order()
	s.digest = p.state.Digest()
	s.saved = p.final
	p.follow.push(item{snapshot: s})
}

func (p *pool) store(s *snapshot) error {
	if s.bytes == nil {
		return errors.New("the follower has stopped")
	}
	ctx := p.ctx
	if s.saved != nil { // the last one, while the pool goes down
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(p.ctx), saveTimeout)
		defer cancel()
	}
	if err := p.archive(ctx, s.rows); err != nil {
		p.follow.mu.Lock()
		p.follow.rows = append(s.rows, p.follow.rows...)
		p.follow.mu.Unlock()
		return err
	}
	if s.pos.Seq == 0 {
		return nil
	}
	started := time.Now()
	m, err := p.journal.Snapshots().Save(ctx, s.pos, func(w io.Writer) error {
		_, err := w.Write(s.bytes)
		return err
	})
	if errors.Is(err, journal.ErrStale) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("save snapshot at %s: %w", s.pos, err)
	}
	took := time.Since(started)
	p.stats.snapshots.Add(1)
	p.stats.snapshotBytes.Store(m.Bytes)
	p.stats.encodeNS.Store(int64(s.took))
	p.stats.saveNS.Store(int64(took))
	if hook := p.e.opts.Hooks.Saved; hook != nil {
		hook(p.name, s.took, took, m.Bytes)
	}
	if err := p.journal.Snapshots().Trim(ctx); err != nil {
		return fmt.Errorf("trim log: %w", err)
	}
	return nil
}

// archive stores rows of closed periods. A row that exists with other content
// was written by an earlier version of this program: it stays.
func (p *pool) archive(ctx context.Context, rows []row) error {
	if p.e.archive == nil {
		return nil
	}
	for i := range rows {
		err := p.e.archive.PutOnce(ctx, p.name, rows[i].key, rows[i].data)
		if errors.Is(err, journal.ErrExists) {
			p.log.Warn("archive row exists with other content", "key", rows[i].key)
		} else if err != nil {
			return fmt.Errorf("archive %s: %w", rows[i].key, err)
		}
	}
	return nil
}

// ArchivedPeriod is the row of a closed period in the archive, as JSON, under
// "period:NUMBER:closed" when it closed and "period:NUMBER:final" when nothing
// can change it any more.
type ArchivedPeriod struct {
	Pool   string              `json:"pool"`
	Number uint32              `json:"period"`
	Start  int64               `json:"start"` // Unix ns
	End    int64               `json:"end"`
	Rows   []arbiter.BudgetRow `json:"rows"`
	// Left is how many rows of agents, tasks and workflows with the smallest
	// spend were left out because a row has a bound.
	Left int `json:"left_out,omitempty"`
}

// finals returns the archive rows of the periods that an entry makes final,
// which must be taken before it is applied.
func (f *follower) finals(e *journal.Entry) []row {
	var list []row
	for jf := range e.Facts() {
		if jf.Kind != uint16(arbiter.FactPeriodFinal) {
			continue
		}
		var fact arbiter.Fact
		if arbiter.DecodeFact(arbiter.FactPeriodFinal, jf.Payload, func(uint32) (string, bool) { return "", false }, &fact) == nil {
			list = append(list, f.row(fact.Number, "final"))
		}
	}
	return list
}

// row makes the archive row of a period.
func (f *follower) row(number uint32, state string) row {
	a := ArchivedPeriod{Pool: f.p.name, Number: number, Rows: f.state.BudgetRows(number)}
	for _, p := range f.state.Periods() {
		if p.Number == number {
			a.Start, a.End = p.Start, p.End
		}
	}
	slices.SortStableFunc(a.Rows, func(x, y arbiter.BudgetRow) int {
		many := func(r *arbiter.BudgetRow) int {
			if r.Kind >= arbiter.KindAgent {
				return 1
			}
			return 0
		}
		return cmp.Or(cmp.Compare(many(&x), many(&y)), many(&x)*cmp.Compare(y.Spent, x.Spent))
	})
	key := fmt.Sprintf("period:%d:%s", number, state)
	for {
		data, err := json.Marshal(&a)
		if err != nil {
			data = []byte(fmt.Sprintf("{\"error\":%q}", err))
		}
		if len(data) <= journal.MaxEntryBytes || len(a.Rows) == 0 {
			return row{key: key, data: bytes.Clone(data)}
		}
		keep := len(a.Rows) * (journal.MaxEntryBytes - 1024) / len(data)
		a.Left += len(a.Rows) - keep
		a.Rows = a.Rows[:keep]
	}
}
