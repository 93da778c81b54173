package journal

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
)

// memorySnapshots is the Snapshots side of a memoryJournal.
type memorySnapshots memoryJournal

type memorySnapshot struct {
	manifest Manifest
	chunks   [][]byte
}

// Load implements Snapshots.
func (s *memorySnapshots) Load(ctx context.Context) (Manifest, io.ReadCloser, error) {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	if err := s.store.usable(ctx); err != nil {
		return Manifest{}, nil, fmt.Errorf("load snapshot of pool %q: %w", s.pool, err)
	}
	if len(s.saved) == 0 {
		return Manifest{}, nil, fmt.Errorf("load snapshot of pool %q: %w", s.pool, ErrNoSnapshot)
	}
	last := s.saved[len(s.saved)-1]
	r := &memoryReader{name: s.pool, snapshot: last, chunks: slices.Clone(last.chunks)}
	return last.manifest, r, nil
}

type memoryReader struct {
	name     string
	snapshot memorySnapshot
	chunks   [][]byte
	read     int64
}

// Read implements io.Reader.
func (r *memoryReader) Read(p []byte) (int, error) {
	for len(r.chunks) > 0 && len(r.chunks[0]) == 0 {
		r.chunks = r.chunks[1:]
	}
	if len(r.chunks) == 0 {
		if r.read != r.snapshot.manifest.Bytes {
			return 0, &CorruptError{File: "snapshot of pool " + r.name, Offset: r.read, Reason: fmt.Sprintf("a chunk is missing: %d of %d bytes", r.read, r.snapshot.manifest.Bytes)}
		}
		return 0, io.EOF
	}
	n := copy(p, r.chunks[0])
	r.chunks[0] = r.chunks[0][n:]
	r.read += int64(n)
	return n, nil
}

// Close implements io.Closer.
func (r *memoryReader) Close() error { return nil }

// Save implements Snapshots.
func (s *memorySnapshots) Save(ctx context.Context, at Position, write func(io.Writer) error) (Manifest, error) {
	fail := func(err error) (Manifest, error) {
		return Manifest{}, fmt.Errorf("save snapshot of pool %q at %s: %w", s.pool, at, err)
	}
	s.store.mu.Lock()
	_, err := s.check(ctx, at)
	s.store.mu.Unlock()
	if err != nil {
		return fail(err)
	}
	var buf bytes.Buffer
	if err := write(&buf); err != nil {
		return fail(err)
	}
	chunks := slices.Collect(slices.Chunk(buf.Bytes(), ChunkBytes))

	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	// Again: a newer one may have been published, and the log trimmed, since.
	now, err := s.check(ctx, at)
	if err != nil {
		return fail(err)
	}
	m := Manifest{At: at, Bytes: int64(buf.Len()), Chunks: len(chunks), Now: now, Wall: s.store.opts.Clock().Wall}
	s.saved = append(s.saved, memorySnapshot{manifest: m, chunks: chunks})
	return m, nil
}

// check returns the logical time of the entry at the position.
func (s *memorySnapshots) check(ctx context.Context, at Position) (int64, error) {
	if err := s.store.usable(ctx); err != nil {
		return 0, err
	}
	if n := len(s.saved); n > 0 && s.saved[n-1].manifest.At.Seq >= at.Seq {
		return 0, fmt.Errorf("%w: at %s", ErrStale, s.saved[n-1].manifest.At)
	}
	i, err := (*memoryJournal)(s).locate(at)
	if err != nil || at.IsZero() {
		return 0, ErrForked
	}
	if i == 0 {
		return s.trimmed.Now, nil
	}
	return s.entries[i-1].Now, nil
}

// Trim implements Snapshots.
func (s *memorySnapshots) Trim(ctx context.Context) error {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	if err := s.store.usable(ctx); err != nil {
		return fmt.Errorf("trim pool %q: %w", s.pool, err)
	}
	n := len(s.saved)
	if n == 0 {
		return nil
	}
	var floor Position
	if head, _ := (*memoryJournal)(s).head(); s.saved[n-1].manifest.At == head {
		floor = head
	} else if n > 1 {
		floor = s.saved[n-2].manifest.At
	}
	horizon := s.store.opts.Clock().Now - int64(TrimHorizon)
	cut := 0
	for cut < len(s.entries) && s.entries[cut].Seq <= floor.Seq && s.entries[cut].Now <= horizon {
		s.bytes -= int64(len(s.entries[cut].raw))
		s.store.bytes -= int64(len(s.entries[cut].raw))
		cut++
	}
	if cut > 0 {
		s.anchor, s.trimmed = s.entries[cut-1].Pos(), s.entries[cut-1].Header
		s.entries = slices.Clone(s.entries[cut:])
	}
	if n > 2 {
		s.saved = slices.Clone(s.saved[n-2:])
	}
	return nil
}

// PutOnce implements Archive.
func (m *Memory) PutOnce(ctx context.Context, pool, key string, row []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	j, err := m.find(ctx, pool)
	if err == nil {
		err = CheckRow(key, row)
	}
	if err == nil {
		if old, ok := j.rows[key]; !ok {
			j.rows[key] = bytes.Clone(row)
		} else if !bytes.Equal(old, row) {
			err = ErrExists
		}
	}
	if err != nil {
		return fmt.Errorf("archive row %q of pool %q: %w", key, pool, err)
	}
	return nil
}

// Get implements Archive.
func (m *Memory) Get(ctx context.Context, pool, key string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	j, err := m.find(ctx, pool)
	if err == nil {
		if row, ok := j.rows[key]; ok {
			return bytes.Clone(row), nil
		}
		err = ErrNotFound
	}
	return nil, fmt.Errorf("read archive row %q of pool %q: %w", key, pool, err)
}

// List implements Archive.
func (m *Memory) List(ctx context.Context, pool, after string, limit int) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	j, err := m.find(ctx, pool)
	if err != nil {
		return nil, fmt.Errorf("list archive of pool %q: %w", pool, err)
	}
	keys := make([]string, 0, len(j.rows))
	for key := range j.rows {
		keys = append(keys, key)
	}
	return PageKeys(keys, after, limit), nil
}
