package filejournal

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/token-budget-arbiter/tba/internal/journal"
	"github.com/token-budget-arbiter/tba/internal/journal/journaltest"
)

// testDisk is the system's disk with faults. It counts what really happened.
type testDisk struct {
	systemDisk
	full      atomic.Bool // no room for new files
	allocates atomic.Int64

	mu      sync.Mutex
	onWrite func(f *os.File, b []byte, off int64) error // nil error: go on
	onSync  func(f *os.File) error
}

func (d *testDisk) WriteAt(f *os.File, b []byte, off int64) error {
	d.mu.Lock()
	hook := d.onWrite
	d.mu.Unlock()
	if hook != nil {
		if err := hook(f, b, off); err != nil {
			return err
		}
	}
	return d.systemDisk.WriteAt(f, b, off)
}

func (d *testDisk) Sync(f *os.File) error {
	d.mu.Lock()
	hook := d.onSync
	d.mu.Unlock()
	if hook != nil {
		if err := hook(f); err != nil {
			return err
		}
	}
	return d.systemDisk.Sync(f)
}

func (d *testDisk) Allocate(f *os.File, size int64) error {
	if d.full.Load() {
		d.allocates.Add(1)
		return syscall.ENOSPC
	}
	return d.systemDisk.Allocate(f, size)
}

func (d *testDisk) set(write func(*os.File, []byte, int64) error, sync func(*os.File) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.onWrite, d.onSync = write, sync
}

func mustOpen(t testing.TB, dir string, opts Options) *Store {
	t.Helper()
	if opts.SegmentBytes == 0 {
		opts.SegmentBytes = minSegmentBytes
	}
	s, err := Open(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestContract(t *testing.T) {
	journaltest.Run(t, journaltest.Factory{Bubble: true, New: func(t *testing.T) journaltest.Harness {
		dir := filepath.Join(t.TempDir(), "journal")
		d := &testDisk{}
		s := mustOpen(t, dir, Options{disk: d})
		return journaltest.Harness{
			Store: s, Archive: s,
			Reopen: func() (journal.Store, journal.Archive) {
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				s = mustOpen(t, dir, Options{disk: d})
				return s, s
			},
			Fill: func() { d.full.Store(true) },
			Free: func() {
				if d.allocates.Load() == 0 {
					t.Error("the disk was never asked for room while it was full")
				}
				d.full.Store(false)
			},
			LoseChunk: func(string) {
				files, err := filepath.Glob(filepath.Join(dir, snapshotFolder, "*.snap"))
				if err != nil || len(files) != 1 {
					t.Fatal(files, err)
				}
				b, err := os.ReadFile(files[0])
				if err != nil {
					t.Fatal(err)
				}
				at, size := frameBytes(manifestBytes), frameBytes(journal.ChunkBytes)
				b = append(b[:at+size:at+size], b[at+2*size:]...)
				if err := os.WriteFile(files[0], b, 0o640); err != nil {
					t.Fatal(err)
				}
			},
		}
	}})
}

func TestSecondProcessIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := mustOpen(t, dir, Options{})
	journaltest.NewLog(t, s, "p")
	_, err := Open(dir, Options{})
	if !errors.Is(err, journal.ErrLocked) {
		t.Fatalf("a second open: %v", err)
	}
	t.Log(err)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	mustOpen(t, dir, Options{})
}
