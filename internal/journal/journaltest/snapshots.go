package journaltest

import (
	"errors"
	"io"
	"strings"
	"time"

	"github.com/token-budget-arbiter/tba/internal/journal"
)

func saveString(w *world, l *Log, state string) journal.Manifest {
	w.Helper()
	m, err := l.Journal.Snapshots().Save(bg, l.Pos, func(out io.Writer) error {
		_, err := io.WriteString(out, state)
		return err
	})
	w.ok(err)
	return m
}

func loadString(w *world, l *Log) string {
	w.Helper()
	m, r, err := l.Journal.Snapshots().Load(bg)
	w.ok(err)
	defer r.Close()
	state, err := io.ReadAll(r)
	w.ok(err)
	if int64(len(state)) != m.Bytes {
		w.Fatalf("manifest says %d bytes, the snapshot has %d", m.Bytes, len(state))
	}
	return string(state)
}

func snapshots(w *world) {
	l := NewLog(w, w.Store, "p")
	_, _, err := l.Journal.Snapshots().Load(bg)
	w.want(err, journal.ErrNoSnapshot)
	w.ok(l.Journal.Snapshots().Trim(bg))
	for i, size := range []int{0, 1, journal.ChunkBytes, journal.ChunkBytes + 1, 3 * journal.ChunkBytes, 1_000_000} {
		l.Append(w, "x")
		state := strings.Repeat("s", size)
		m := saveString(w, l, state)
		if m.At != l.Pos || m.Bytes != int64(size) || m.Chunks != (size+journal.ChunkBytes-1)/journal.ChunkBytes || m.Now == 0 {
			w.Fatalf("manifest %d: %+v", i, m)
		}
		if loadString(w, l) != state {
			w.Fatalf("state of %d bytes came back changed", size)
		}
	}
	m, r, err := l.Journal.Snapshots().Load(bg)
	w.ok(err)
	w.ok(r.Close())
	l.Append(w, "after")
	if got := ReadAll(w, l.Journal, m.At); len(got) != 1 || Payload(got[0]) != "after" {
		w.Fatalf("%d entries after the snapshot", len(got))
	}
}

func snapshotOrder(w *world) {
	l := NewLog(w, w.Store, "p")
	l.Append(w, "a")
	older := *l
	l.Append(w, "b")
	// The older saver is at work when the newer one is done.
	_, err := older.Journal.Snapshots().Save(bg, older.Pos, func(out io.Writer) error {
		saveString(w, l, "newer")
		_, err := io.WriteString(out, "older")
		return err
	})
	w.want(err, journal.ErrStale)
	_, err = l.Journal.Snapshots().Save(bg, l.Pos, func(io.Writer) error { return nil })
	w.want(err, journal.ErrStale)
	if s := loadString(w, l); s != "newer" {
		w.Fatalf("current snapshot is %q", s)
	}
	l.Append(w, "c")
	foreign := l.Pos
	foreign.ID[0] ^= 1
	_, err = l.Journal.Snapshots().Save(bg, foreign, func(io.Writer) error { return nil })
	w.want(err, journal.ErrForked)
}

func snapshotFails(w *world) {
	l := NewLog(w, w.Store, "p")
	l.Append(w, "a")
	saveString(w, l, "good")
	l.Append(w, "b")
	broken := errors.New("state is broken")
	_, err := l.Journal.Snapshots().Save(bg, l.Pos, func(out io.Writer) error {
		if _, err := out.Write(make([]byte, 600_000)); err != nil {
			return err
		}
		return broken
	})
	w.want(err, broken)
	if s := loadString(w, l); s != "good" {
		w.Fatalf("current snapshot is %q", s)
	}
	saveString(w, l, "better")
	if s := loadString(w, l); s != "better" {
		w.Fatalf("current snapshot is %q", s)
	}
}

func missingChunk(w *world) {
	if w.LoseChunk == nil {
		w.Skip("no way to lose a chunk")
	}
	l := NewLog(w, w.Store, "p")
	l.Append(w, "a")
	saveString(w, l, strings.Repeat("s", 3*journal.ChunkBytes))
	w.LoseChunk("p")
	_, r, err := l.Journal.Snapshots().Load(bg)
	if err == nil {
		_, err = io.ReadAll(r)
		r.Close()
	}
	w.want(err, journal.ErrCorrupt)
}

func trim(w *world) {
	l := NewLog(w, w.Store, "p")
	start := l.Pos
	l.Append(w, "1")
	l.Append(w, "2")
	saveString(w, l, "first")
	first := l.Pos
	time.Sleep(2 * journal.TrimHorizon)
	l.Append(w, "3")
	w.ok(l.Journal.Snapshots().Trim(bg))
	if got := ReadAll(w, l.Journal, journal.Position{}); len(got) != 3 {
		w.Fatalf("with one snapshot %d entries are left of 3", len(got))
	}
	saveString(w, l, "second")
	l.Append(w, "4")
	time.Sleep(2 * journal.TrimHorizon)
	w.ok(l.Journal.Snapshots().Trim(bg))
	head, err := l.Journal.Head(bg)
	w.ok(err)
	if head.Oldest.Seq > first.Seq {
		w.Fatalf("trimmed above the previous snapshot: %s", head.Oldest)
	}
	if got := ReadAll(w, l.Journal, first); len(got) != 2 || Payload(got[0]) != "3" {
		w.Fatalf("%d entries after the previous snapshot", len(got))
	}
	if head.Oldest != first {
		w.Fatalf("oldest is %s, want %s", head.Oldest, first)
	}
	for _, gone := range []journal.Position{{}, start} {
		_, err = l.Journal.Read(bg, gone, 0)
		w.want(err, journal.ErrTrimmed)
	}
	stale := *l
	stale.Pos = start
	stale.enc = journal.Encoder{}
	_, err = l.Journal.Append(bg, stale.Entry(w, nil, false))
	w.want(err, journal.ErrConflict)
	w.want(err, journal.ErrTrimmed)
	if s := loadString(w, l); s != "second" {
		w.Fatalf("current snapshot is %q", s)
	}
	l.Append(w, "5")
	if w.Reopen != nil {
		w.Store, w.Archive = w.Reopen()
		again := OpenLog(w, w.Store, "p")
		if again.Pos != l.Pos {
			w.Fatalf("head after trim and reopen: %s, was %s", again.Pos, l.Pos)
		}
		if got := ReadAll(w, again.Journal, first); len(got) != 3 {
			w.Fatalf("%d entries after the reopen", len(got))
		}
	}
}

func trimHorizon(w *world) {
	l := NewLog(w, w.Store, "p")
	old := l.Append(w, "old")
	time.Sleep(journal.TrimHorizon)
	l.Append(w, "young")
	young := l.Pos
	saveString(w, l, "first")
	l.Append(w, "younger")
	saveString(w, l, "second")
	time.Sleep(journal.TrimHorizon - time.Second)
	l.Append(w, "last")
	w.ok(l.Journal.Snapshots().Trim(bg))
	head, err := l.Journal.Head(bg)
	w.ok(err)
	if head.Oldest.Seq > old.After.Seq+1 {
		w.Fatalf("entries of the last %s were trimmed: oldest %s", journal.TrimHorizon, head.Oldest)
	}
	time.Sleep(2 * time.Second)
	w.ok(l.Journal.Snapshots().Trim(bg))
	head, err = l.Journal.Head(bg)
	w.ok(err)
	if head.Oldest != young {
		w.Fatalf("oldest %s, want %s", head.Oldest, young)
	}
}

func trimIdle(w *world) {
	l := NewLog(w, w.Store, "p")
	l.Append(w, "1")
	l.Append(w, "2")
	saveString(w, l, "state")
	time.Sleep(2 * journal.TrimHorizon)
	w.ok(l.Journal.Snapshots().Trim(bg))
	head, err := l.Journal.Head(bg)
	w.ok(err)
	if head.Oldest != l.Pos || head.Pos != l.Pos || head.Bytes != 0 || head.Now == 0 {
		w.Fatalf("an idle pool still pins its log: %+v", head)
	}
	if w.Reopen != nil {
		w.Store, w.Archive = w.Reopen()
		again, err := w.Store.Open(bg, "p")
		w.ok(err)
		l.Journal, l.store = again, w.Store
		got, err := again.Head(bg)
		w.ok(err)
		if got != head {
			w.Fatalf("head after the reopen: %+v, was %+v", got, head)
		}
	}
	if s := loadString(w, l); s != "state" {
		w.Fatalf("current snapshot is %q", s)
	}
	last := l.Pos
	_, err = l.Journal.Append(bg, l.Build(journal.Header{Now: head.Now - 1}, nil))
	w.want(err, journal.ErrClock)
	l.Append(w, "3")
	if got := ReadAll(w, l.Journal, last); len(got) != 1 || Payload(got[0]) != "3" {
		w.Fatalf("%d entries", len(got))
	}
}
