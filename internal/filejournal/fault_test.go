package filejournal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/token-budget-arbiter/tba/internal/journal"
	"github.com/token-budget-arbiter/tba/internal/journal/journaltest"
)

func isLog(f *os.File) bool { return filepath.Base(f.Name()) != markName }

// TestFailedSyncEndsTheStore: after a failed sync nobody knows what is on the
// medium, so nothing is accepted until a reopen has read it.
func TestFailedSyncEndsTheStore(t *testing.T) {
	t.Parallel()
	faults := map[string]func(*testDisk, *int){
		"sync": func(d *testDisk, n *int) {
			d.set(nil, func(f *os.File) error {
				if isLog(f) {
					*n++
					return syscall.EIO
				}
				return nil
			})
		},
		"sync says full": func(d *testDisk, n *int) {
			d.set(nil, func(f *os.File) error {
				if isLog(f) {
					*n++
					return syscall.ENOSPC
				}
				return nil
			})
		},
		"write": func(d *testDisk, n *int) {
			d.set(func(f *os.File, b []byte, off int64) error {
				if isLog(f) {
					*n++
					_, _ = f.WriteAt(b[:len(b)/2], off) // a short write
					return syscall.EIO
				}
				return nil
			}, nil)
		},
		"mark": func(d *testDisk, n *int) {
			d.set(func(f *os.File, _ []byte, _ int64) error {
				if !isLog(f) {
					*n++
					return syscall.EIO
				}
				return nil
			}, nil)
		},
	}
	for name, arm := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "j")
			d := &testDisk{}
			s := mustOpen(t, dir, Options{disk: d})
			l := journaltest.NewLog(t, s, "a")
			other := journaltest.NewLog(t, s, "b")
			l.Append(t, "acknowledged")
			unknown := l.Entry(t, []byte("unknown"), false)
			later := other.Entry(t, nil, true)
			happened := 0
			arm(d, &happened)
			if _, err := l.Journal.Append(t.Context(), unknown); !errors.Is(err, journal.ErrFailed) {
				t.Fatalf("append: %v", err)
			}
			d.set(nil, nil) // the disk works again, the store must not believe it
			if happened != 1 {
				t.Fatalf("the fault happened %d times", happened)
			}
			_, err := other.Journal.Append(t.Context(), later)
			_, herr := l.Journal.Head(t.Context())
			_, rerr := l.Journal.Read(t.Context(), l.Pos, 0)
			for _, err := range []error{err, herr, rerr} {
				if !errors.Is(err, journal.ErrFailed) || errors.Is(err, journal.ErrFull) {
					t.Fatalf("after the failure: %v", err)
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			// What the failed batch has left may be in the page cache alone, and
			// clean there: it is written again before it is believed.
			rewritten := 0
			d.set(func(f *os.File, b []byte, _ int64) error {
				if bytes.Contains(b, unknown.Entry) {
					rewritten++
				}
				return nil
			}, nil)
			s = mustOpen(t, dir, Options{disk: d})
			again := journaltest.OpenLog(t, s, "a")
			all := journaltest.ReadAll(t, again.Journal, journal.Position{})
			if len(all) < 1 || len(all) > 2 || journaltest.Payload(all[0]) != "acknowledged" {
				t.Fatalf("%d entries after the reopen", len(all))
			}
			if rewritten != len(all)-1 {
				t.Errorf("the tail of %d entries was written %d times", len(all)-1, rewritten)
			}
			// The resend settles it, whichever way it went.
			res, err := again.Journal.Append(t.Context(), unknown)
			if err != nil || res.Already != (len(all) == 2) {
				t.Fatalf("resend: %+v, %v with %d entries there", res, err, len(all))
			}
			if all := journaltest.ReadAll(t, again.Journal, journal.Position{}); len(all) != 2 {
				t.Fatalf("%d entries in the end, want 2", len(all))
			}
		})
	}
}

// TestNoRoomInAPromisedBlock is a write into the segment that finds the disk
// full, as copy-on-write file systems can do.
func TestNoRoomInAPromisedBlock(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "j")
	d := &testDisk{}
	s := mustOpen(t, dir, Options{disk: d})
	l := journaltest.NewLog(t, s, "a")
	l.Append(t, "before")
	happened := 0
	active := segmentPath(dir, 1)
	d.set(func(f *os.File, b []byte, off int64) error {
		if f.Name() == filepath.Join(dir, logFolder, nextName) && off > 0 || f.Name() == active {
			happened++
			_, _ = f.WriteAt(b[:len(b)/2], off)
			return syscall.ENOSPC
		}
		return nil
	}, nil)
	d.full.Store(true)
	if _, err := l.Journal.Append(t.Context(), l.Entry(t, []byte("refused"), false)); !errors.Is(err, journal.ErrFull) {
		t.Fatalf("ordinary append: %v", err)
	}
	for i := range 5 {
		req := l.Entry(t, fmt.Append(nil, "commit ", i), true)
		res, err := l.Journal.Append(t.Context(), req)
		if err != nil {
			t.Fatalf("essential append %d: %v", i, err)
		}
		l.Pos = res.Pos
		if _, err := l.Journal.Append(t.Context(), l.Entry(t, []byte("refused"), false)); !errors.Is(err, journal.ErrFull) {
			t.Fatalf("ordinary append: %v", err)
		}
	}
	if happened == 0 {
		t.Fatal("the fault never happened")
	}
	d.full.Store(false)
	d.set(nil, nil)
	l.Append(t, "after")
	want, err := render(t, s)
	if err != nil {
		t.Fatal(err)
	}
	if newScratch(t).judge(t, takeImage(t, dir), want, "reopened") {
		t.Fatal("refused after the disk was full")
	}
	if n := strings.Count(want, "\n"); n != 1+7 {
		t.Fatalf("%d lines, want 8:\n%s", n, want)
	}
}

// TestSpareSurvivesARestart: a full disk stays full over a restart, and the
// essential entries still pass.
func TestSpareSurvivesARestart(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "j")
	d := &testDisk{}
	s := mustOpen(t, dir, Options{disk: d})
	l := journaltest.NewLog(t, s, "a")
	d.full.Store(true)
	fill := func() {
		t.Helper()
		for {
			res, err := l.Journal.Append(t.Context(), l.Entry(t, make([]byte, 50<<10), false))
			if err != nil {
				if !errors.Is(err, journal.ErrFull) {
					t.Fatal(err)
				}
				return
			}
			l.Pos = res.Pos
		}
	}
	commit := func() error {
		res, err := l.Journal.Append(t.Context(), l.Entry(t, make([]byte, 50<<10), true))
		if err == nil {
			l.Pos = res.Pos
		}
		return err
	}
	restart := func() {
		t.Helper()
		at := l.Pos
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = mustOpen(t, dir, Options{disk: d})
		if l = journaltest.OpenLog(t, s, "a"); l.Pos != at {
			t.Fatalf("head %s, was %s", l.Pos, at)
		}
	}
	fill()
	restart()
	fill()
	n := 0
	for ; ; n++ {
		if n == 5 {
			restart()
			fill()
		}
		if err := commit(); errors.Is(err, journal.ErrFull) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if n < 15 || d.allocates.Load() == 0 {
		t.Fatalf("%d essential entries of 50 KiB passed; asked for room %d times", n, d.allocates.Load())
	}
	restart()
	d.full.Store(false)
	l.Append(t, "after")
	if err := commit(); err != nil {
		t.Fatal(err)
	}
}

// TestCallerWhoLeaves: the end of a context does not undo an append, and the
// resend of the same bytes finds out.
func TestCallerWhoLeaves(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "j")
	d := &testDisk{}
	s := mustOpen(t, dir, Options{disk: d})
	l := journaltest.NewLog(t, s, "a")
	req := l.Entry(t, []byte("x"), false)
	inSync, goOn := make(chan struct{}), make(chan struct{})
	d.set(nil, func(f *os.File) error {
		if isLog(f) {
			close(inSync)
			<-goOn
		}
		return nil
	})
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error)
	go func() { _, err := l.Journal.Append(ctx, req); left <- err }()
	<-inSync
	d.set(nil, nil)
	leave()
	if err := <-left; !errors.Is(err, journal.ErrUnknown) || !errors.Is(err, context.Canceled) {
		t.Fatalf("the caller who left: %v", err)
	}
	head, err := l.Journal.Head(t.Context())
	if err != nil || head.Pos.Seq != 0 {
		t.Fatalf("an entry that is not durable is visible: %+v, %v", head, err)
	}
	impatient, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Journal.Append(impatient, req); !errors.Is(err, journal.ErrUnknown) {
		t.Fatalf("a resend while the first is in flight: %v", err)
	}
	again := make(chan journal.Result)
	go func() {
		res, err := l.Journal.Append(t.Context(), req)
		if err != nil {
			t.Error(err)
		}
		again <- res
	}()
	close(goOn)
	if res := <-again; !res.Already {
		t.Fatalf("resend: %+v", res)
	}
}

func TestFoldersThatAreNone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path, Options{}); err == nil || !strings.Contains(err.Error(), "not a folder") {
		t.Errorf("a file: %v", err)
	}
	absent := filepath.Join(t.TempDir(), "a", "b")
	s, err := Open(absent, Options{SegmentBytes: tinySegment, smallest: tinySegment})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Open(t.Context(), "p"); !errors.Is(err, journal.ErrUninitialised) {
		t.Errorf("an absent folder: %v", err)
	}
	if _, err := os.Stat(absent); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("opening made the folder: %v", err)
	}
	if err := s.Init(t.Context(), "p"); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	// An init that was interrupted before it acknowledged anything.
	half := t.TempDir()
	for _, name := range []string{buildingName, markName} {
		if err := os.WriteFile(filepath.Join(half, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s = mustOpen(t, half, Options{})
	journaltest.NewLog(t, s, "p").Append(t, "x")
	// The same without the marker is a store that lost its description.
	lost := t.TempDir()
	if err := os.WriteFile(filepath.Join(lost, markName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(lost, Options{}); !errors.Is(err, journal.ErrCorrupt) {
		t.Errorf("a folder without its description: %v", err)
	}
}
