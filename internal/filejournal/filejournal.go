// Package filejournal is the Store of one process in a folder: a segmented log that all its pools share.
//
// # Files
//
//	journal.meta      the store's id, the oldest segment, the pools and where
//	                  their logs begin; replaced as a whole
//	journal.mark      how far the log is acknowledged; two slots in turn
//	journal.lock      held by the one process that uses the folder
//	log/N.seg         segments, preallocated and zeroed
//	log/spare.seg     one more, kept for commits and releases on a full disk
//	snapshots/        one file per snapshot: a manifest and checked chunks
//	archive/          one file per row
//
// Appends that arrive while a sync is in flight, of whatever pool, share the
// next one. A batch is one write and one fdatasync in one segment.
//
// # What a restart may cut
//
// Only a batch that nobody was told about. The difficulty is to tell it from an
// acknowledged one that was damaged later, as both end in bytes that fail their
// check. The log itself tells for all batches but the last: a batch is written
// only after the one before it was synced, so any sound frame of a later batch,
// or a later segment's head, proves everything before it. The last batch is
// proved by journal.mark, written after its sync and before its
// acknowledgement. Damage below the proven end is refused with file and offset;
// above it, a complete batch is kept, and an incomplete one is cut.
//
// The mark is not synced before the acknowledgement: that would double the time
// of an append (measured: 0.12 ms to 0.24 ms). The page cache carries it over a
// kill of the process, which is the usual case. It is synced when the log has
// been idle for 5 ms and at Close. So a power failure can leave the mark behind
// by what was acknowledged in the last milliseconds. Those batches were synced
// and are found complete; should the last of them be damaged on top of the
// power failure, it would be taken for a torn one. That double fault is the
// only one that is not refused.
//
// A failed write or sync of the log ends the store (journal.ErrFailed): after a
// failed sync the kernel calls the lost pages clean, so only reading everything
// again, by Open, can tell what is there. Open writes the unacknowledged tail
// again before it trusts its sync. A full disk is not such a failure.
//
// # Why not a library
//
// Three were tried by changing single bytes of acknowledged data. Pebble 2.1.7
// opened with 99 of 200 entries, etcd's wal 3.7.3 returned 47 of 200 without an
// error, and hashicorp/raft-wal 0.4.0 returned altered payloads and, where a
// frame header was hit, fewer entries.
package filejournal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/token-budget-arbiter/tba/internal/journal"
)

// Options of a store. The zero value is the default.
type Options struct {
	// SegmentBytes is the size of a segment file; 0 means 32 MiB, less than
	// 1 MiB is raised to it. Three of them exist from the start. Existing
	// segments keep their size.
	SegmentBytes int64
	// SnapshotBytesPerSecond slows snapshots down so that they do not delay
	// the syncs of the log; 0 means 32 MiB/s.
	SnapshotBytesPerSecond int64

	smallest int64                                   // 0: minSegmentBytes
	disk     disk                                    // nil: the system's
	boot     func() (id string, since time.Duration) // nil: the system's
}

// minSegmentBytes holds a batch of the largest entry several times over.
const minSegmentBytes = 1 << 20

// Store implements journal.Store and journal.Archive. All methods may be
// called concurrently.
type Store struct {
	dir    string
	opts   Options
	disk   disk
	closed chan struct{}

	// changing guards the description and what is decided from it: Init,
	// OpenEpoch, Trim, Close. It is taken before mu, never after.
	changing sync.Mutex
	meta     meta

	mu       sync.Mutex
	ready    bool // false: the folder holds no store
	ending   bool // Close has begun
	failed   error
	pools    map[string]*pool
	numbers  map[uint32]*pool
	segments []*segment // oldest first; the last one is written to
	queue    []*pending

	// Of a ready store, constant.
	seed      seed
	lock      *os.File
	opened    time.Time // for the monotonic clock
	openedNow int64     // logical time then
	boot      string
	bootThen  time.Duration // time since boot when opened

	// Of the committer alone once it runs.
	wake      chan struct{}
	done      chan struct{}
	active    *segment
	end       int64  // of the log in active
	serial    uint64 // of the last batch
	buf       []byte
	markFile  *os.File
	mark      mark
	markBuf   []byte
	markDirty bool
	spare     *os.File // nil when it could not be had
	next      chan preparation
}

// preparation is the outcome of preparing the next segment.
type preparation struct {
	file *os.File
	err  error
}

// Open opens the folder, reads and checks its log, and locks it. An absent
// folder, or one that holds no store, is left alone: the store opens, its
// pools are ErrUninitialised until Init. ErrLocked when another process has
// it; ErrCorrupt (*journal.CorruptError) when acknowledged data fails a check.
func Open(dir string, opts Options) (*Store, error) {
	if opts.SegmentBytes == 0 {
		opts.SegmentBytes = 32 << 20
	}
	if opts.smallest == 0 {
		opts.smallest = minSegmentBytes
	}
	opts.SegmentBytes = max(opts.SegmentBytes, opts.smallest)
	if opts.SnapshotBytesPerSecond <= 0 {
		opts.SnapshotBytesPerSecond = 32 << 20
	}
	if opts.disk == nil {
		opts.disk = systemDisk{}
	}
	if opts.boot == nil {
		opts.boot = boot
	}
	s := &Store{
		dir: dir, opts: opts, disk: opts.disk, closed: make(chan struct{}),
		pools: map[string]*pool{}, numbers: map[uint32]*pool{},
	}
	if st, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return s, nil
	} else if err != nil {
		return nil, fmt.Errorf("open journal folder: %w", err)
	} else if !st.IsDir() {
		return nil, fmt.Errorf("open journal folder: %s is not a folder", dir)
	}
	if _, err := readMeta(dir); errors.Is(err, journal.ErrUninitialised) {
		return s, nil
	} else if err != nil {
		return nil, fmt.Errorf("open journal folder: %w", err)
	}
	if err := s.load(); err != nil {
		return nil, fmt.Errorf("open journal folder: %w", err)
	}
	return s, nil
}

// Init implements journal.Store. The first pool also makes the folder.
func (s *Store) Init(ctx context.Context, name string) error {
	if err := s.init(ctx, name); err != nil {
		return fmt.Errorf("init pool %q in %s: %w", name, s.dir, err)
	}
	return nil
}

func (s *Store) init(ctx context.Context, name string) error {
	if !journal.ValidName(name) {
		return fmt.Errorf("%w: a name has 1 to %d characters of A-Z a-z 0-9 . _ : -", journal.ErrInvalid, journal.MaxNameBytes)
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	s.mu.Lock()
	err, ready, known := s.usable(ctx), s.ready, s.pools[name] != nil
	s.mu.Unlock()
	switch {
	case err != nil:
		return err
	case known:
		return journal.ErrExists
	case !ready:
		if err := s.build(); err != nil {
			return err
		}
	}
	id := journal.NewEntryID()
	m := s.meta
	p := metaPool{Number: 1, Name: name, Epoch: 1, AnchorEpoch: 1, AnchorID: id.String()}
	for i := range m.Pools {
		p.Number = max(p.Number, m.Pools[i].Number+1)
	}
	m.Pools = append(slices.Clone(m.Pools), p)
	if err := s.writeMeta(m); err != nil {
		return err
	}
	s.meta = m
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addPool(&m.Pools[len(m.Pools)-1])
}

// build makes an empty store in the folder. The marker tells a later Open that
// a folder without a description never was one.
func (s *Store) build() (err error) {
	if err := os.MkdirAll(s.dir, 0o750); err != nil {
		return err
	}
	lock, err := lockFolder(s.dir)
	if err != nil {
		return err
	}
	locked := true // until load takes its own
	defer func() {
		if locked {
			err = errors.Join(err, unlock(lock), lock.Close())
		}
	}()
	switch _, err := readMeta(s.dir); {
	case err == nil:
		return fmt.Errorf("%w: another process has just made it", journal.ErrExists)
	case !errors.Is(err, journal.ErrUninitialised):
		return err
	}
	building := filepath.Join(s.dir, buildingName)
	if err := os.WriteFile(building, nil, 0o640); err != nil {
		return named(err)
	}
	for _, name := range []string{logFolder, snapshotFolder, archiveFolder} {
		if err := os.RemoveAll(filepath.Join(s.dir, name)); err != nil {
			return err
		}
		if err := os.Mkdir(filepath.Join(s.dir, name), 0o750); err != nil {
			return named(err)
		}
	}
	id := journal.NewEntryID()
	s.seed = newSeed(id)
	f, err := s.allocate(nextName)
	if err != nil {
		return err
	}
	first, err := s.adopt(f, segmentHead{number: 1})
	if err != nil {
		return errors.Join(err, f.Close())
	}
	if err := first.close(); err != nil {
		return err
	}
	bootID, since := s.opts.boot()
	start := mark{count: 2, segment: 1, end: segmentHeadBytes, now: journal.FirstNow, since: int64(since), wall: time.Now().UnixNano(), boot: bootID}
	slots := make([]byte, markFileBytes)
	copy(slots, s.seed.appendFrame(nil, frame{kind: kindMark, serial: start.count, payload: start.encode()}))
	if err := replaceFile(s.disk, filepath.Join(s.dir, markName), slots); err != nil {
		return err
	}
	if err := s.writeMeta(meta{Format: metaFormat, Store: id.String(), First: 1}); err != nil {
		return err
	}
	if err := errors.Join(os.Remove(building), s.disk.SyncDir(s.dir), s.disk.SyncDir(filepath.Dir(s.dir))); err != nil {
		return err
	}
	locked = false
	if err := errors.Join(unlock(lock), lock.Close()); err != nil {
		return err
	}
	return s.load()
}

// Open implements journal.Store.
func (s *Store) Open(ctx context.Context, name string) (journal.Journal, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, err := s.find(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("open pool %q in %s: %w", name, s.dir, err)
	}
	return p, nil
}

// find is called with mu held.
func (s *Store) find(ctx context.Context, name string) (*pool, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	p := s.pools[name]
	if p == nil {
		return nil, journal.ErrUninitialised
	}
	return p, nil
}

// usable is called with mu held.
func (s *Store) usable(ctx context.Context) error {
	switch {
	case s.ending:
		return journal.ErrClosed
	case s.failed != nil:
		return s.failed
	}
	return ctx.Err()
}

// Pools implements journal.Store.
func (s *Store) Pools(ctx context.Context) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return nil, fmt.Errorf("list pools in %s: %w", s.dir, err)
	}
	names := make([]string, 0, len(s.pools))
	for name := range s.pools {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

// Now implements journal.Store. It reads memory only. ErrUninitialised before
// the first Init: the clock belongs to the log.
func (s *Store) Now(ctx context.Context) (journal.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.usable(ctx)
	if err == nil && !s.ready {
		err = journal.ErrUninitialised
	}
	if err != nil {
		return journal.Time{}, fmt.Errorf("read store clock of %s: %w", s.dir, err)
	}
	return s.now(), nil
}

func (s *Store) now() journal.Time {
	return journal.Time{Now: s.openedNow + int64(time.Since(s.opened)), Wall: time.Now().UnixNano()}
}

// Dir returns the folder.
func (s *Store) Dir() string { return s.dir }

// Close implements journal.Store. Appends in flight are finished first.
func (s *Store) Close() error {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.mu.Lock()
	if s.ending {
		s.mu.Unlock()
		return nil
	}
	s.ending = true
	close(s.closed)
	ready := s.ready
	s.mu.Unlock()
	if !ready {
		return nil
	}
	s.poke()
	<-s.done
	var errs []error
	if s.failed == nil {
		errs = append(errs, s.stamp(), s.disk.Sync(s.markFile))
	}
	return errors.Join(append(errs, s.release())...)
}

// release closes all files, the lock last.
func (s *Store) release() error {
	var errs []error
	if s.next != nil {
		if p := <-s.next; p.file != nil {
			errs = append(errs, p.file.Close(), os.Remove(p.file.Name()))
		}
		s.next = nil
	}
	for _, g := range s.segments {
		errs = append(errs, g.close())
	}
	for _, f := range []*os.File{s.spare, s.markFile} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	if s.lock != nil {
		errs = append(errs, unlock(s.lock), s.lock.Close())
	}
	return errors.Join(errs...)
}
