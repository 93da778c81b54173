package filejournal

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/token-budget-arbiter/tba/internal/journal"
)

// trim removes entries and, when no pool needs them any more, segments.
func (p *pool) trim(ctx context.Context) error {
	s := p.store
	s.changing.Lock()
	defer s.changing.Unlock()

	s.mu.Lock()
	err := s.usable(ctx)
	n := len(p.saved)
	if err != nil || n == 0 {
		s.mu.Unlock()
		return err
	}
	floor := uint64(0)
	if at := p.saved[n-1].manifest.At; at == p.last.Pos() {
		floor = at.Seq
	} else if n > 1 {
		floor = p.saved[n-2].manifest.At.Seq
	}
	horizon := s.now().Now - int64(journal.TrimHorizon)
	cut := 0
	for cut < len(p.entries) && p.entries[cut].pos.Seq <= floor && p.entries[cut].now <= horizon {
		cut++
	}
	anchor, writer := p.anchor, ""
	if cut > 0 {
		r := p.entries[cut-1]
		if r.pos == p.last.Pos() {
			writer = p.last.Writer
		}
		anchor = journal.Header{Epoch: r.pos.Epoch, Seq: r.pos.Seq, ID: r.pos.ID, Now: r.now, Writer: writer}
	}
	// Segments are given up from the oldest on, never the active one.
	gone := map[*segment]int{}
	for _, r := range p.entries[:cut] {
		gone[r.segment]++
	}
	drop := 0
	for drop < len(s.segments)-1 && s.segments[drop].live == gone[s.segments[drop]] {
		drop++
	}
	first := s.segments[drop].number
	s.mu.Unlock()

	if cut == 0 && drop == 0 {
		return p.dropSnapshots(ctx)
	}
	// The description first: a segment that is missing without it is a loss.
	err = s.changeMeta(func(m *meta) {
		m.First = first
		for i := range m.Pools {
			if q := &m.Pools[i]; q.Number == p.number {
				q.AnchorEpoch, q.AnchorSeq, q.AnchorID = anchor.Epoch, anchor.Seq, anchor.ID.String()
				q.AnchorNow, q.Writer = anchor.Now, anchor.Writer
			}
		}
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	for _, r := range p.entries[:cut] {
		r.segment.live--
		p.bytes -= int64(r.bytes)
	}
	p.entries = slices.Clone(p.entries[cut:])
	p.anchor = anchor
	dropped := slices.Clone(s.segments[:drop])
	s.segments = slices.Clone(s.segments[drop:])
	s.mu.Unlock()
	for _, g := range dropped {
		err = errors.Join(err, g.remove())
	}
	if drop > 0 {
		err = errors.Join(err, s.disk.SyncDir(filepath.Join(s.dir, logFolder)))
	}
	return errors.Join(err, p.dropSnapshots(ctx))
}

// dropSnapshots removes all but the current and the previous one.
func (p *pool) dropSnapshots(ctx context.Context) error {
	select {
	case p.saving <- struct{}{}:
		defer func() { <-p.saving }()
	case <-ctx.Done():
		return ctx.Err()
	}
	p.store.mu.Lock()
	old := p.saved[:max(0, len(p.saved)-2)]
	p.saved = slices.Clone(p.saved[len(old):])
	p.store.mu.Unlock()
	var err error
	for _, f := range old {
		err = errors.Join(err, os.Remove(f.path))
	}
	return err
}
