package filejournal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/token-budget-arbiter/tba/internal/journal"
)

const (
	snapshotFolder = "snapshots"
	// manifestBytes is the room for the manifest, which is written last.
	manifestBytes = 1024
	// syncEvery spreads the writing of a large snapshot, whose sync at the end
	// would hold up the log's.
	syncEvery = 4 << 20
)

// manifest is the first frame of a snapshot file.
type manifest struct {
	journal.Manifest
	Sum uint32 // CRC-32C of the whole state
}

// snapshotFile is a published snapshot.
type snapshotFile struct {
	path     string
	manifest manifest
	err      error // what is wrong with its manifest
}

// snapshots is the journal.Snapshots side of a pool.
type snapshots pool

// listSnapshots returns a pool's snapshots, oldest first.
func listSnapshots(dir string, s seed, number uint32) ([]snapshotFile, error) {
	// The names sort by seq.
	paths, err := filepath.Glob(filepath.Join(dir, snapshotFolder, fmt.Sprintf("%d-*.snap", number)))
	if err != nil {
		return nil, err
	}
	slices.Sort(paths)
	var files []snapshotFile
	for _, path := range paths {
		f := snapshotFile{path: path}
		file, m, err := openSnapshot(path, s, number)
		if err == nil {
			f.manifest = m
			err = file.Close()
		}
		f.err = err
		files = append(files, f)
	}
	return files, nil
}

func snapshotPath(dir string, number uint32, seq uint64) string {
	return filepath.Join(dir, snapshotFolder, fmt.Sprintf("%d-%020d.snap", number, seq))
}

// openSnapshot opens a file and checks its manifest and size.
func openSnapshot(path string, s seed, number uint32) (*os.File, manifest, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, manifest{}, err
	}
	var m manifest
	b := make([]byte, frameBytes(manifestBytes))
	n, _ := f.ReadAt(b, 0)
	fr, _, err := s.parseFrame(b[:n])
	if err == nil && (fr.kind != kindSnapshot || fr.owner != number || len(fr.payload) != manifestBytes) {
		err = errors.New("no snapshot of this pool begins here")
	}
	if err == nil {
		err = json.Unmarshal(fr.payload, &m)
	}
	if err == nil && filepath.Base(path) != filepath.Base(snapshotPath("", number, m.At.Seq)) {
		err = fmt.Errorf("it is the snapshot at %d under another name", m.At.Seq)
	}
	var st os.FileInfo
	if err == nil {
		st, err = f.Stat()
	}
	if err == nil && st.Size() != m.fileBytes() {
		err = fmt.Errorf("the file has %d bytes, expected %d", st.Size(), m.fileBytes())
	}
	if err != nil {
		f.Close()
		return nil, manifest{}, &journal.CorruptError{File: path, Reason: err.Error()}
	}
	return f, m, nil
}

func (m *manifest) fileBytes() int64 {
	size := int64(frameBytes(manifestBytes))
	if full := m.Bytes / journal.ChunkBytes; full > 0 {
		size += full * int64(frameBytes(journal.ChunkBytes))
	}
	if rest := m.Bytes % journal.ChunkBytes; rest > 0 {
		size += int64(frameBytes(int(rest)))
	}
	return size
}

// Load implements journal.Snapshots.
func (p *snapshots) Load(ctx context.Context) (journal.Manifest, io.ReadCloser, error) {
	m, r, err := p.load(ctx)
	if err != nil {
		return journal.Manifest{}, nil, fmt.Errorf("load snapshot of pool %q: %w", p.name, err)
	}
	return m, r, nil
}

func (p *snapshots) load(ctx context.Context) (journal.Manifest, io.ReadCloser, error) {
	p.store.mu.Lock()
	err, n := p.store.usable(ctx), len(p.saved)
	anchor := p.anchor.Seq
	var current snapshotFile
	if n > 0 {
		current = p.saved[n-1]
	}
	p.store.mu.Unlock()
	switch {
	case err != nil:
		return journal.Manifest{}, nil, err
	case current.err != nil:
		return journal.Manifest{}, nil, current.err
	case anchor > current.manifest.At.Seq:
		return journal.Manifest{}, nil, &journal.CorruptError{
			File:   snapshotPath(p.store.dir, p.number, anchor),
			Reason: fmt.Sprintf("the log was trimmed at entry %d, and no snapshot from there on is left", anchor),
		}
	case n == 0:
		return journal.Manifest{}, nil, journal.ErrNoSnapshot
	}
	f, m, err := openSnapshot(current.path, p.store.seed, p.number)
	if err != nil {
		return journal.Manifest{}, nil, err
	}
	return m.Manifest, &snapshotReader{file: f, seed: p.store.seed, manifest: m, off: int64(frameBytes(manifestBytes))}, nil
}

// snapshotReader reads chunk after chunk and checks each before it gives it out.
type snapshotReader struct {
	file     *os.File
	seed     seed
	manifest manifest
	off      int64
	chunk    uint32
	sum      uint32
	buf      []byte
	rest     []byte
	err      error
}

// Read implements io.Reader.
func (r *snapshotReader) Read(b []byte) (int, error) {
	if len(r.rest) == 0 && r.err == nil {
		r.err = r.advance()
	}
	if len(r.rest) == 0 && r.err != nil {
		return 0, r.err
	}
	n := copy(b, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func (r *snapshotReader) advance() error {
	m := &r.manifest
	if int(r.chunk) == m.Chunks {
		if r.sum != m.Sum {
			return &journal.CorruptError{File: r.file.Name(), Offset: r.off, Reason: fmt.Sprintf("checksum of all chunks is %08x, expected %08x", r.sum, m.Sum)}
		}
		return io.EOF
	}
	size := min(int64(journal.ChunkBytes), m.Bytes-int64(r.chunk)*journal.ChunkBytes)
	if r.buf == nil {
		r.buf = make([]byte, frameBytes(journal.ChunkBytes))
	}
	n, _ := r.file.ReadAt(r.buf[:frameBytes(int(size))], r.off)
	f, _, err := r.seed.parseFrame(r.buf[:n])
	if err == nil && (f.kind != kindChunk || f.index != r.chunk || f.serial != m.At.Seq || int64(len(f.payload)) != size) {
		err = fmt.Errorf("chunk %d of snapshot %d where chunk %d of %d belongs", f.index, f.serial, r.chunk, m.At.Seq)
	}
	if err != nil {
		return &journal.CorruptError{File: r.file.Name(), Offset: r.off, Reason: err.Error()}
	}
	r.rest = f.payload
	r.sum = crc32.Update(r.sum, castagnoli, f.payload)
	r.off += int64(n)
	r.chunk++
	return nil
}

// Close implements io.Closer.
func (r *snapshotReader) Close() error { return r.file.Close() }

// Save implements journal.Snapshots.
func (p *snapshots) Save(ctx context.Context, at journal.Position, write func(io.Writer) error) (journal.Manifest, error) {
	m, err := p.save(ctx, at, write)
	if err != nil {
		return journal.Manifest{}, fmt.Errorf("save snapshot of pool %q at %s: %w", p.name, at, named(err))
	}
	return m, nil
}

func (p *snapshots) save(ctx context.Context, at journal.Position, write func(io.Writer) error) (journal.Manifest, error) {
	now, err := p.check(ctx, at)
	if err != nil {
		return journal.Manifest{}, err
	}
	tmp, err := os.CreateTemp(filepath.Join(p.store.dir, snapshotFolder), "*.tmp")
	if err != nil {
		return journal.Manifest{}, err
	}
	defer os.Remove(tmp.Name()) // gone after the rename
	w := &snapshotWriter{ctx: ctx, file: tmp, store: p.store, began: time.Now(), off: int64(frameBytes(manifestBytes))}
	w.manifest.Manifest = journal.Manifest{At: at, Now: now, Wall: time.Now().UnixNano()}
	if err = write(w); err == nil {
		err = w.finish(p.number)
	}
	if err = errors.Join(err, tmp.Close()); err != nil {
		return journal.Manifest{}, err
	}

	p.saving <- struct{}{}
	defer func() { <-p.saving }()
	// Again: a newer one may have been published, and the log trimmed, since.
	if _, err := p.check(ctx, at); err != nil {
		return journal.Manifest{}, err
	}
	path := snapshotPath(p.store.dir, p.number, at.Seq)
	if err := os.Rename(tmp.Name(), path); err != nil {
		return journal.Manifest{}, err
	}
	if err := p.store.disk.SyncDir(filepath.Dir(path)); err != nil {
		return journal.Manifest{}, err
	}
	p.store.mu.Lock()
	defer p.store.mu.Unlock()
	p.saved = append(p.saved, snapshotFile{path: path, manifest: w.manifest})
	return w.manifest.Manifest, nil
}

// check returns the logical time of the entry at the position.
func (p *snapshots) check(ctx context.Context, at journal.Position) (int64, error) {
	p.store.mu.Lock()
	defer p.store.mu.Unlock()
	if err := p.store.usable(ctx); err != nil {
		return 0, err
	}
	if n := len(p.saved); n > 0 {
		if err := p.saved[n-1].err; err != nil {
			return 0, err
		}
		if current := p.saved[n-1].manifest.At; current.Seq >= at.Seq {
			return 0, fmt.Errorf("%w: at %s", journal.ErrStale, current)
		}
	}
	i, err := (*pool)(p).locate(at)
	if err != nil || at.IsZero() {
		return 0, journal.ErrForked
	}
	if i == 0 {
		return p.anchor.Now, nil
	}
	return p.entries[i-1].now, nil
}

// Trim implements journal.Snapshots.
func (p *snapshots) Trim(ctx context.Context) error {
	if err := (*pool)(p).trim(ctx); err != nil {
		return fmt.Errorf("trim pool %q: %w", p.name, err)
	}
	return nil
}

// snapshotWriter cuts a state into chunks.
type snapshotWriter struct {
	ctx      context.Context
	store    *Store
	file     *os.File
	began    time.Time
	off      int64
	unsynced int
	manifest manifest
	chunk    []byte
	frame    []byte
}

// Write implements io.Writer.
func (w *snapshotWriter) Write(b []byte) (int, error) {
	written := len(b)
	for len(b) > 0 {
		n := min(len(b), journal.ChunkBytes-len(w.chunk))
		w.chunk = append(w.chunk, b[:n]...)
		b = b[n:]
		if len(w.chunk) == journal.ChunkBytes {
			if err := w.flush(); err != nil {
				return 0, err
			}
		}
	}
	return written, nil
}

func (w *snapshotWriter) flush() error {
	if len(w.chunk) == 0 {
		return nil
	}
	m := &w.manifest
	w.frame = w.store.seed.appendFrame(w.frame[:0], frame{kind: kindChunk, serial: m.At.Seq, index: uint32(m.Chunks), payload: w.chunk})
	if _, err := w.file.WriteAt(w.frame, w.off); err != nil {
		return err
	}
	w.off += int64(len(w.frame))
	m.Chunks++
	m.Bytes += int64(len(w.chunk))
	m.Sum = crc32.Update(m.Sum, castagnoli, w.chunk)
	w.chunk = w.chunk[:0]
	if w.unsynced += len(w.frame); w.unsynced >= syncEvery {
		w.unsynced = 0
		if err := fdatasync(w.file); err != nil {
			return err
		}
	}
	due := time.Duration(float64(m.Bytes) / float64(w.store.opts.SnapshotBytesPerSecond) * float64(time.Second))
	select {
	case <-time.After(due - time.Since(w.began)):
		return nil
	case <-w.store.closed:
		return journal.ErrClosed
	case <-w.ctx.Done():
		return w.ctx.Err()
	}
}

// finish writes the last chunk and the manifest, and syncs.
func (w *snapshotWriter) finish(number uint32) error {
	if err := w.flush(); err != nil {
		return err
	}
	b, err := json.Marshal(w.manifest)
	if err != nil {
		return err
	}
	b = append(b, strings.Repeat(" ", manifestBytes-len(b))...)
	head := w.store.seed.appendFrame(nil, frame{kind: kindSnapshot, owner: number, serial: w.manifest.At.Seq, payload: b})
	if _, err := w.file.WriteAt(head, 0); err != nil {
		return err
	}
	return w.file.Sync()
}
