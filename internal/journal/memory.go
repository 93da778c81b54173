package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// MemoryOptions configures a memory store. The zero value is an unbounded
// store on the process's monotonic clock (which testing/synctest replaces).
type MemoryOptions struct {
	// Clock reads the store's clock, for the simulator. Its Now must not run
	// backwards.
	Clock func() Time
	// MaxBytes bounds the entries of all pools; above it only essential ones
	// are accepted. 0 means no bound.
	MaxBytes int64
	// ReserveBytes is what essential entries may take above MaxBytes.
	ReserveBytes int64
}

// Memory is a Store and Archive for tests and the simulator: one process,
// nothing survives it. The zero value is not usable, see NewMemory.
type Memory struct {
	opts   MemoryOptions
	closed chan struct{}

	mu    sync.Mutex
	pools map[string]*memoryJournal
	bytes int64
}

// NewMemory returns an empty store without pools.
func NewMemory(opts MemoryOptions) *Memory {
	if opts.Clock == nil {
		start := time.Now()
		opts.Clock = func() Time {
			return Time{Now: FirstNow + int64(time.Since(start)), Wall: time.Now().UnixNano()}
		}
	}
	return &Memory{opts: opts, closed: make(chan struct{}), pools: map[string]*memoryJournal{}}
}

// memoryJournal is one pool. Its fields are guarded by Memory.mu.
type memoryJournal struct {
	store   *Memory
	pool    string
	epoch   uint64
	anchor  Position // before entries[0]
	trimmed Header   // of the entry at anchor, zero in a log that begins there
	entries []Entry
	bytes   int64
	news    chan struct{} // closed at each append
	saved   []memorySnapshot
	rows    map[string][]byte
}

// Init implements Store.
func (m *Memory) Init(ctx context.Context, pool string) error {
	if !ValidName(pool) {
		return fmt.Errorf("init pool %q: %w: 1 to %d characters of A-Z a-z 0-9 . _ : -", pool, ErrInvalid, MaxNameBytes)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.usable(ctx); err != nil {
		return fmt.Errorf("init pool %q: %w", pool, err)
	}
	if m.pools[pool] != nil {
		return fmt.Errorf("init pool %q: %w", pool, ErrExists)
	}
	m.pools[pool] = &memoryJournal{
		store: m, pool: pool, epoch: 1,
		anchor: Position{Epoch: 1, ID: NewEntryID()},
		news:   make(chan struct{}), rows: map[string][]byte{},
	}
	return nil
}

// Open implements Store.
func (m *Memory) Open(ctx context.Context, pool string) (Journal, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	j, err := m.find(ctx, pool)
	if err != nil {
		return nil, fmt.Errorf("open pool %q: %w", pool, err)
	}
	return j, nil
}

// Pools implements Store.
func (m *Memory) Pools(ctx context.Context) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.usable(ctx); err != nil {
		return nil, fmt.Errorf("list pools: %w", err)
	}
	names := make([]string, 0, len(m.pools))
	for name := range m.pools {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

// Now implements Store.
func (m *Memory) Now(ctx context.Context) (Time, error) {
	if err := m.usable(ctx); err != nil {
		return Time{}, fmt.Errorf("read store clock: %w", err)
	}
	return m.opts.Clock(), nil
}

// Close implements Store.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-m.closed:
	default:
		close(m.closed)
	}
	return nil
}

func (m *Memory) usable(ctx context.Context) error {
	select {
	case <-m.closed:
		return ErrClosed
	default:
		return ctx.Err()
	}
}

func (m *Memory) find(ctx context.Context, pool string) (*memoryJournal, error) {
	if err := m.usable(ctx); err != nil {
		return nil, err
	}
	j := m.pools[pool]
	if j == nil {
		return nil, ErrUninitialised
	}
	return j, nil
}

// head returns the last position and the header there.
func (j *memoryJournal) head() (Position, *Header) {
	if n := len(j.entries); n > 0 {
		return j.entries[n-1].Pos(), &j.entries[n-1].Header
	}
	return j.anchor, &j.trimmed
}

// locate returns the index of the first entry after pos.
func (j *memoryJournal) locate(pos Position) (int, error) {
	switch {
	case pos.IsZero() && j.anchor.Seq == 0, pos == j.anchor:
		return 0, nil
	case pos.Seq < j.anchor.Seq:
		return 0, ErrTrimmed
	}
	i := pos.Seq - j.anchor.Seq
	if i == 0 || i > uint64(len(j.entries)) || j.entries[i-1].Pos() != pos {
		return 0, ErrForked
	}
	return int(i), nil
}

func (j *memoryJournal) after(pos Position, maxBytes int) ([]Entry, error) {
	i, err := j.locate(pos)
	if err != nil {
		return nil, err
	}
	if maxBytes <= 0 || maxBytes > MaxReplyBytes {
		maxBytes = MaxReplyBytes
	}
	end := i
	for size := 0; end < len(j.entries); end++ {
		if size += len(j.entries[end].raw); size > maxBytes && end > i {
			break
		}
	}
	return slices.Clone(j.entries[i:end]), nil
}

// Head implements Journal.
func (j *memoryJournal) Head(ctx context.Context) (Head, error) {
	j.store.mu.Lock()
	defer j.store.mu.Unlock()
	if err := j.store.usable(ctx); err != nil {
		return Head{}, fmt.Errorf("read head of pool %q: %w", j.pool, err)
	}
	pos, last := j.head()
	return Head{
		Pos: pos, Now: last.Now, Writer: last.Writer,
		Epoch: j.epoch, Oldest: j.anchor, Bytes: j.bytes,
	}, nil
}

// Append implements Journal.
func (j *memoryJournal) Append(ctx context.Context, req AppendRequest) (Result, error) {
	h, err := CheckRequest(j.pool, req)
	if err != nil {
		return Result{}, err
	}
	m := j.store
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.usable(ctx); err != nil {
		return Result{}, fmt.Errorf("append to pool %q: %w", j.pool, err)
	}
	now := m.opts.Clock()
	pos, last := j.head()
	switch {
	case h.Epoch != j.epoch:
		return Result{}, fmt.Errorf("append to pool %q: %w: it is %d, the entry has %d", j.pool, ErrEpoch, j.epoch, h.Epoch)
	case pos.ID == h.ID:
		return Result{Pos: pos, StoreTime: now, Proven: true, Already: true}, nil
	case pos != req.After:
		entries, cause := j.after(req.After, MaxReplyBytes)
		return Result{}, &ConflictError{Entries: entries, Cause: cause}
	}
	if err := CheckTime(h.Now, last.Now, now.Now); err != nil {
		return Result{}, err
	}
	if limit := m.opts.MaxBytes; limit > 0 {
		if req.Essential {
			limit += m.opts.ReserveBytes
		}
		if m.bytes+int64(len(req.Entry)) > limit {
			return Result{}, fmt.Errorf("append to pool %q: %w: %d of %d bytes used", j.pool, ErrFull, m.bytes, m.opts.MaxBytes)
		}
	}
	e, err := Decode(bytes.Clone(req.Entry))
	if err != nil {
		return Result{}, err
	}
	j.entries = append(j.entries, e)
	j.bytes += int64(len(e.raw))
	m.bytes += int64(len(e.raw))
	close(j.news)
	j.news = make(chan struct{})
	return Result{Pos: e.Pos(), StoreTime: now, Proven: true}, nil
}

// Prove implements Journal: an append is its own proof here.
func (j *memoryJournal) Prove(ctx context.Context, pos Position) error {
	j.store.mu.Lock()
	defer j.store.mu.Unlock()
	err := j.store.usable(ctx)
	if err == nil {
		if _, err = j.locate(pos); errors.Is(err, ErrTrimmed) {
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("prove %s of pool %q: %w", pos, j.pool, err)
	}
	return nil
}

// Read implements Journal.
func (j *memoryJournal) Read(ctx context.Context, after Position, maxBytes int) ([]Entry, error) {
	for {
		j.store.mu.Lock()
		err := j.store.usable(ctx)
		var entries []Entry
		if err == nil {
			entries, err = j.after(after, maxBytes)
		}
		news := j.news
		j.store.mu.Unlock()
		if err != nil {
			return nil, fmt.Errorf("read pool %q after %s: %w", j.pool, after, err)
		}
		if len(entries) > 0 {
			return entries, nil
		}
		select {
		case <-news:
		case <-j.store.closed:
		case <-ctx.Done():
		}
	}
}

// OpenEpoch implements Journal.
func (j *memoryJournal) OpenEpoch(ctx context.Context, from uint64) error {
	j.store.mu.Lock()
	defer j.store.mu.Unlock()
	if err := j.store.usable(ctx); err != nil {
		return fmt.Errorf("open epoch %d of pool %q: %w", from+1, j.pool, err)
	}
	if j.epoch != from {
		return fmt.Errorf("open epoch %d of pool %q: %w: it is %d", from+1, j.pool, ErrEpoch, j.epoch)
	}
	j.epoch++
	return nil
}

// Snapshots implements Journal.
func (j *memoryJournal) Snapshots() Snapshots { return (*memorySnapshots)(j) }
