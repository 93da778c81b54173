package filejournal

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/token-budget-arbiter/tba/internal/journal"
)

// pool is the journal.Journal of one pool. Its fields below turn are guarded
// by Store.mu.
type pool struct {
	store  *Store
	name   string
	number uint32
	// turn is held by the append in flight. The committer gives it back, not
	// the caller: one who leaves early leaves an append that may still land.
	turn chan struct{}

	epoch  uint64
	anchor journal.Header // of the position before entries[0]
	last   journal.Header // of the last durable entry, or the anchor
	// entries has one reference for each readable entry, by seq.
	entries []reference
	bytes   int64
	news    chan struct{} // closed when entries grow
	saved   []snapshotFile
	// saving is held while a snapshot is published or old ones are removed.
	saving chan struct{}
}

// reference is where an entry lies.
type reference struct {
	segment *segment
	off     int64
	size    int32 // of the frame
	bytes   int32 // of the entry
	pos     journal.Position
	now     int64
}

// add indexes a durable entry.
func (p *pool) add(g *segment, off int64, size, bytes int, h *journal.Header) {
	p.entries = append(p.entries, reference{segment: g, off: off, size: int32(size), bytes: int32(bytes), pos: h.Pos(), now: h.Now})
	p.bytes += int64(bytes)
	g.live++
	p.last = journal.Header{Epoch: h.Epoch, Seq: h.Seq, ID: h.ID, Now: h.Now, Writer: h.Writer}
}

// locate returns the index of the first entry after pos.
func (p *pool) locate(pos journal.Position) (int, error) {
	first := p.anchor.Pos()
	switch {
	case pos.IsZero() && first.Seq == 0, pos == first:
		return 0, nil
	case pos.Seq < first.Seq:
		return 0, journal.ErrTrimmed
	}
	i := pos.Seq - first.Seq
	if i == 0 || i > uint64(len(p.entries)) || p.entries[i-1].pos != pos {
		return 0, journal.ErrForked
	}
	return int(i), nil
}

// after returns the references of up to maxBytes of entries, at least one if
// there is one.
func (p *pool) after(pos journal.Position, maxBytes int) ([]reference, error) {
	i, err := p.locate(pos)
	if err != nil {
		return nil, err
	}
	if maxBytes <= 0 || maxBytes > journal.MaxReplyBytes {
		maxBytes = journal.MaxReplyBytes
	}
	end := i
	for size := 0; end < len(p.entries); end++ {
		if size += int(p.entries[end].bytes); size > maxBytes && end > i {
			break
		}
	}
	return slices.Clone(p.entries[i:end]), nil
}

// fetch reads and checks entries.
func (s *Store) fetch(refs []reference) ([]journal.Entry, error) {
	entries := make([]journal.Entry, 0, len(refs))
	for _, r := range refs {
		f, err := r.segment.read(s.seed, r.off, int(r.size))
		if err != nil {
			return nil, err
		}
		e, err := journal.Decode(f.payload)
		if errors.Is(err, journal.ErrFormat) {
			return nil, err
		}
		if err == nil && e.Pos() != r.pos {
			err = fmt.Errorf("it is entry %s, expected %s", e.Pos(), r.pos)
		}
		if err != nil {
			return nil, &journal.CorruptError{File: r.segment.path, Offset: r.off, Reason: err.Error()}
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// Head implements journal.Journal.
func (p *pool) Head(ctx context.Context) (journal.Head, error) {
	p.store.mu.Lock()
	defer p.store.mu.Unlock()
	if err := p.store.usable(ctx); err != nil {
		return journal.Head{}, fmt.Errorf("read head of pool %q: %w", p.name, err)
	}
	return journal.Head{
		Pos: p.last.Pos(), Now: p.last.Now, Writer: p.last.Writer,
		Epoch: p.epoch, Oldest: p.anchor.Pos(), Bytes: p.bytes,
	}, nil
}

// Read implements journal.Journal.
func (p *pool) Read(ctx context.Context, after journal.Position, maxBytes int) ([]journal.Entry, error) {
	entries, err := p.read(ctx, after, maxBytes)
	if err != nil {
		return nil, fmt.Errorf("read pool %q after %s: %w", p.name, after, err)
	}
	return entries, nil
}

func (p *pool) read(ctx context.Context, after journal.Position, maxBytes int) ([]journal.Entry, error) {
	for {
		p.store.mu.Lock()
		err := p.store.usable(ctx)
		var refs []reference
		if err == nil {
			refs, err = p.after(after, maxBytes)
		}
		news := p.news
		p.store.mu.Unlock()
		if err != nil {
			return nil, err
		}
		if len(refs) > 0 {
			return p.store.fetch(refs)
		}
		select {
		case <-news: // also when the store fails
		case <-p.store.closed:
		case <-ctx.Done():
		}
	}
}

// Append implements journal.Journal.
func (p *pool) Append(ctx context.Context, req journal.AppendRequest) (journal.Result, error) {
	h, err := journal.CheckRequest(p.name, req)
	if err != nil {
		return journal.Result{}, err
	}
	fail := func(err error) (journal.Result, error) {
		return journal.Result{}, fmt.Errorf("append to pool %q: %w", p.name, err)
	}
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		// An earlier try of the same entry may be the one that has the turn.
		return fail(fmt.Errorf("%w: %w", journal.ErrUnknown, ctx.Err()))
	case <-p.store.closed:
		return fail(journal.ErrClosed)
	}
	job, result, err := p.enqueue(ctx, req, &h)
	if job == nil {
		<-p.turn
		return result, err
	}
	p.store.poke()
	select {
	case out := <-job.done:
		if out.err != nil {
			return fail(out.err)
		}
		return out.result, nil
	case <-ctx.Done():
		return fail(fmt.Errorf("%w: %w", journal.ErrUnknown, ctx.Err()))
	}
}

// enqueue checks a request and queues it. Without a job the answer is final.
func (p *pool) enqueue(ctx context.Context, req journal.AppendRequest, h *journal.Header) (*pending, journal.Result, error) {
	s := p.store
	s.mu.Lock()
	now := s.now()
	last := p.last.Pos()
	var refs []reference
	var cause error
	err := s.usable(ctx)
	switch {
	case err != nil:
	case h.Epoch != p.epoch:
		err = fmt.Errorf("%w: it is %d, the entry has %d", journal.ErrEpoch, p.epoch, h.Epoch)
	case last.ID == h.ID:
		s.mu.Unlock()
		return nil, journal.Result{Pos: last, StoreTime: now, Proven: true, Already: true}, nil
	case last != req.After:
		refs, cause = p.after(req.After, journal.MaxReplyBytes)
		s.mu.Unlock()
		entries, err := s.fetch(refs)
		if err != nil {
			return nil, journal.Result{}, fmt.Errorf("append to pool %q: %w", p.name, err)
		}
		return nil, journal.Result{}, &journal.ConflictError{Entries: entries, Cause: cause}
	default:
		err = journal.CheckTime(h.Now, p.last.Now, now.Now)
	}
	if err != nil {
		s.mu.Unlock()
		return nil, journal.Result{}, fmt.Errorf("append to pool %q: %w", p.name, err)
	}
	job := &pending{pool: p, header: *h, entry: req.Entry, essential: req.Essential, now: now, done: make(chan outcome, 1)}
	s.queue = append(s.queue, job)
	s.mu.Unlock()
	return job, journal.Result{}, nil
}

// Prove implements journal.Journal: an append is its own proof here.
func (p *pool) Prove(ctx context.Context, pos journal.Position) error {
	p.store.mu.Lock()
	defer p.store.mu.Unlock()
	err := p.store.usable(ctx)
	if err == nil {
		if _, err = p.locate(pos); errors.Is(err, journal.ErrTrimmed) {
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("prove %s of pool %q: %w", pos, p.name, err)
	}
	return nil
}

// OpenEpoch implements journal.Journal.
func (p *pool) OpenEpoch(ctx context.Context, from uint64) error {
	if err := p.openEpoch(ctx, from); err != nil {
		return fmt.Errorf("open epoch %d of pool %q: %w", from+1, p.name, err)
	}
	return nil
}

func (p *pool) openEpoch(ctx context.Context, from uint64) error {
	s := p.store
	s.changing.Lock()
	defer s.changing.Unlock()
	select { // no append of the old epoch may be in flight
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	s.mu.Lock()
	err, epoch := s.usable(ctx), p.epoch
	s.mu.Unlock()
	if err != nil {
		return err
	}
	if epoch != from {
		return fmt.Errorf("%w: it is %d", journal.ErrEpoch, epoch)
	}
	err = s.changeMeta(func(m *meta) {
		for i := range m.Pools {
			if m.Pools[i].Number == p.number {
				m.Pools[i].Epoch = from + 1
			}
		}
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p.epoch = from + 1
	return nil
}

// changeMeta replaces the description; changing must be held.
func (s *Store) changeMeta(change func(*meta)) error {
	m := s.meta
	m.Pools = slices.Clone(m.Pools)
	change(&m)
	if err := s.writeMeta(m); err != nil {
		return err
	}
	s.meta = m
	return nil
}

// Snapshots implements journal.Journal.
func (p *pool) Snapshots() journal.Snapshots { return (*snapshots)(p) }
