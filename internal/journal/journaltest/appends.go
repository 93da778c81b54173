package journaltest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/token-budget-arbiter/tba/internal/journal"
)

var bg = context.Background()

func (w *world) want(err, target error) {
	w.Helper()
	if !errors.Is(err, target) {
		w.Fatalf("got error %v, want %v", err, target)
	}
}

func (w *world) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func uninitialised(w *world) {
	_, err := w.Store.Open(bg, "p")
	w.want(err, journal.ErrUninitialised)
	names, err := w.Store.Pools(bg)
	w.ok(err)
	if len(names) != 0 {
		w.Fatalf("pools of a new store: %v", names)
	}
	NewLog(w, w.Store, "other")
	_, err = w.Store.Open(bg, "p")
	w.want(err, journal.ErrUninitialised)
	_, err = w.Archive.Get(bg, "p", "k")
	w.want(err, journal.ErrUninitialised)
	w.want(w.Archive.PutOnce(bg, "p", "k", nil), journal.ErrUninitialised)
}

func initOnce(w *world) {
	l := NewLog(w, w.Store, "p")
	l.Append(w, "a")
	w.want(w.Store.Init(bg, "p"), journal.ErrExists)
	if got := ReadAll(w, l.Journal, journal.Position{}); len(got) != 1 {
		w.Fatalf("a second init left %d entries of 1", len(got))
	}
	for _, name := range []string{"", "a b", "a/b", "a\x00", strings.Repeat("x", journal.MaxNameBytes+1)} {
		w.want(w.Store.Init(bg, name), journal.ErrInvalid)
	}
	w.ok(w.Store.Init(bg, strings.Repeat("x", journal.MaxNameBytes)))
}

func appendAndRead(w *world) {
	l := NewLog(w, w.Store, "p")
	head, err := l.Journal.Head(bg)
	w.ok(err)
	if head.Pos.Seq != 0 || head.Pos.ID.IsZero() || head.Epoch != 1 || head.Oldest != head.Pos || head.Mode != journal.ModeOpen {
		w.Fatalf("head of a new log: %+v", head)
	}
	start := head.Pos
	var sent []journal.AppendRequest
	for i := range 20 {
		req := l.Entry(w, fmt.Appendf(nil, "entry %d", i), i%3 == 0)
		before, err := w.Store.Now(bg)
		w.ok(err)
		res, err := l.Journal.Append(bg, req)
		w.ok(err)
		if res.Pos.Seq != uint64(i+1) || res.Already || !res.Proven || res.StoreTime.Now < before.Now {
			w.Fatalf("result %d: %+v", i, res)
		}
		l.Pos = res.Pos
		sent = append(sent, req)
	}
	for _, from := range []journal.Position{{}, start} {
		got := ReadAll(w, l.Journal, from)
		if len(got) != len(sent) {
			w.Fatalf("read %d entries of %d", len(got), len(sent))
		}
		for i, e := range got {
			if !bytes.Equal(e.Raw(), sent[i].Entry) {
				w.Fatalf("entry %d came back changed", i)
			}
		}
	}
	head, err = l.Journal.Head(bg)
	w.ok(err)
	if head.Pos != l.Pos || head.Writer != "w" || head.Bytes <= 0 || head.Now == 0 {
		w.Fatalf("head: %+v, want %s", head, l.Pos)
	}
	w.ok(l.Journal.Prove(bg, l.Pos))
}

func positions(w *world) {
	l := NewLog(w, w.Store, "p")
	l.Append(w, "a")
	l.Append(w, "b")
	for _, change := range []func(*journal.Position){
		func(p *journal.Position) { p.ID[3] ^= 1 },
		func(p *journal.Position) { p.Epoch++ },
		func(p *journal.Position) { p.Seq++ },
		func(p *journal.Position) { p.Seq-- },
		func(p *journal.Position) { p.Seq += 1 << 60 },
		func(p *journal.Position) { p.ID = journal.EntryID{} },
	} {
		pos := l.Pos
		change(&pos)
		_, err := l.Journal.Read(bg, pos, 0)
		w.want(err, journal.ErrForked)
		w.want(l.Journal.Prove(bg, pos), journal.ErrForked)
		_, err = l.Journal.Snapshots().Save(bg, pos, nil)
		w.want(err, journal.ErrForked)
		other := *l
		other.Pos = pos
		other.enc = journal.Encoder{}
		req := other.Entry(w, nil, false)
		if pos.ID.IsZero() {
			_, err = l.Journal.Append(bg, req)
			w.want(err, journal.ErrInvalid)
			continue
		}
		_, err = l.Journal.Append(bg, req)
		w.want(err, journal.ErrConflict)
		w.want(err, journal.ErrForked)
	}
	if got := ReadAll(w, l.Journal, journal.Position{}); len(got) != 2 {
		w.Fatalf("refused appends left %d entries, want 2", len(got))
	}
}

func conflict(w *world) {
	a := NewLog(w, w.Store, "p")
	b := OpenLog(w, w.Store, "p")
	a.Append(w, "a1")
	a.Append(w, "a2")
	_, err := b.Journal.Append(bg, b.Entry(w, []byte("b1"), false))
	w.want(err, journal.ErrConflict)
	var c *journal.ConflictError
	if !errors.As(err, &c) || len(c.Entries) != 2 || Payload(c.Entries[0]) != "a1" || c.Entries[1].Pos() != a.Pos {
		w.Fatalf("conflict carries %+v", c)
	}
	b.Pos = c.Entries[1].Pos()
	b.Append(w, "b1")
}

func conflictBound(w *world) {
	a := NewLog(w, w.Store, "p")
	b := OpenLog(w, w.Store, "p")
	for range 6 {
		a.Append(w, strings.Repeat("x", 100<<10))
	}
	for range 10 { // catches up in bounded steps
		_, err := b.Journal.Append(bg, b.Entry(w, nil, false))
		if err == nil {
			return
		}
		var c *journal.ConflictError
		if !errors.As(err, &c) || len(c.Entries) == 0 {
			w.Fatal(err)
		}
		size := 0
		for i := range c.Entries {
			size += len(c.Entries[i].Raw())
		}
		if size > journal.MaxReplyBytes {
			w.Fatalf("a conflict of %d bytes", size)
		}
		b.Pos = c.Entries[len(c.Entries)-1].Pos()
	}
	w.Fatal("never caught up")
}

func resend(w *world) {
	l := NewLog(w, w.Store, "p")
	first := l.Append(w, "first")
	for range 3 {
		res, err := l.Journal.Append(bg, first)
		w.ok(err)
		if !res.Already || res.Pos != l.Pos || !res.Proven {
			w.Fatalf("resend: %+v", res)
		}
	}
	l.Append(w, "second")
	_, err := l.Journal.Append(bg, first)
	var c *journal.ConflictError
	if !errors.As(err, &c) || len(c.Entries) != 2 || !bytes.Equal(c.Entries[0].Raw(), first.Entry) {
		w.Fatalf("a resend that others have passed must return itself first: %v", err)
	}
	if got := ReadAll(w, l.Journal, journal.Position{}); len(got) != 2 {
		w.Fatalf("%d entries after resends, want 2", len(got))
	}
}

func forked(w *world) {
	l := NewLog(w, w.Store, "p")
	other := NewLog(w, w.Store, "q")
	l.Append(w, "a")
	other.Append(w, "a")
	_, err := l.Journal.Read(bg, other.Pos, 0)
	w.want(err, journal.ErrForked)
}

func invalidEntries(w *world) {
	l := NewLog(w, w.Store, "p")
	good := l.Entry(w, []byte("x"), false)
	try := func(what string, change func(*journal.AppendRequest)) {
		w.Helper()
		req := good
		req.Entry = bytes.Clone(good.Entry)
		change(&req)
		if _, err := l.Journal.Append(bg, req); !errors.Is(err, journal.ErrInvalid) {
			w.Fatalf("%s: %v", what, err)
		}
	}
	try("flipped", func(r *journal.AppendRequest) { r.Entry[len(r.Entry)/2] ^= 1 })
	try("cut", func(r *journal.AppendRequest) { r.Entry = r.Entry[:len(r.Entry)-1] })
	try("empty", func(r *journal.AppendRequest) { r.Entry = nil })
	try("essential in the request only", func(r *journal.AppendRequest) { r.Essential = true })
	try("other predecessor", func(r *journal.AppendRequest) { r.After.ID[0] ^= 1 })
	try("other seq", func(r *journal.AppendRequest) { r.After.Seq = 7 })
	other := NewLog(w, w.Store, "q")
	other.Pos = l.Pos
	_, err := l.Journal.Append(bg, other.Entry(w, nil, false))
	w.want(err, journal.ErrInvalid)
	_, err = l.Journal.Append(bg, good)
	w.ok(err)
}

func entryBound(w *world) {
	l := NewLog(w, w.Store, "p")
	room := journal.MaxEntryBytes - len(l.Entry(w, nil, false).Entry)
	_, err := l.Journal.Append(bg, l.Entry(w, make([]byte, room+1), false))
	w.want(err, journal.ErrTooLarge)
	l.Append(w, strings.Repeat("x", room))
	if got := ReadAll(w, l.Journal, journal.Position{}); len(got) != 1 || len(got[0].Raw()) != journal.MaxEntryBytes {
		w.Fatal("the largest entry did not come back")
	}
}

func clock(w *world) {
	l := NewLog(w, w.Store, "p")
	l.Append(w, "a")
	at := func(d time.Duration) error {
		now, err := w.Store.Now(bg)
		w.ok(err)
		res, err := l.Journal.Append(bg, l.Build(journal.Header{Now: now.Now + int64(d)}, nil))
		if err == nil {
			l.Pos = res.Pos
		}
		return err
	}
	w.want(at(time.Hour), journal.ErrClock)
	w.want(at(-time.Hour), journal.ErrClock)
	w.ok(at(10 * time.Millisecond))
	head, err := l.Journal.Head(bg)
	w.ok(err)
	_, err = l.Journal.Append(bg, l.Build(journal.Header{Now: head.Now - 1}, nil))
	w.want(err, journal.ErrClock)
	_, err = l.Journal.Append(bg, l.Build(journal.Header{Now: head.Now}, nil))
	w.ok(err)
}

func clockRuns(w *world) {
	NewLog(w, w.Store, "p") // the clock belongs to the log
	a, err := w.Store.Now(bg)
	w.ok(err)
	if a.Now < journal.FirstNow {
		w.Fatalf("logical time begins at %d", a.Now)
	}
	time.Sleep(time.Hour)
	b, err := w.Store.Now(bg)
	w.ok(err)
	if d := time.Duration(b.Now - a.Now); d != time.Hour {
		w.Fatalf("an hour took %s of logical time", d)
	}
}

func epochs(w *world) {
	l := NewLog(w, w.Store, "p")
	l.Append(w, "a")
	w.want(l.Journal.OpenEpoch(bg, 2), journal.ErrEpoch)
	old := l.Entry(w, nil, false)
	w.ok(l.Journal.OpenEpoch(bg, 1))
	w.want(l.Journal.OpenEpoch(bg, 1), journal.ErrEpoch)
	_, err := l.Journal.Append(bg, old)
	w.want(err, journal.ErrEpoch)
	head, err := l.Journal.Head(bg)
	w.ok(err)
	if head.Epoch != 2 || head.Pos != l.Pos {
		w.Fatalf("head after a new epoch: %+v", head)
	}
	l.Epoch = 2
	l.Append(w, "b")
	if l.Pos.Epoch != 2 {
		w.Fatalf("position %s", l.Pos)
	}
	if got := ReadAll(w, l.Journal, journal.Position{}); len(got) != 2 {
		w.Fatalf("%d entries", len(got))
	}
}

func pools(w *world) {
	b, a := NewLog(w, w.Store, "b"), NewLog(w, w.Store, "a")
	for i := range 5 {
		a.Append(w, fmt.Sprint("a", i))
		b.Append(w, fmt.Sprint("b", i))
	}
	names, err := w.Store.Pools(bg)
	w.ok(err)
	if strings.Join(names, " ") != "a b" {
		w.Fatalf("pools: %v", names)
	}
	for _, l := range []*Log{a, b} {
		got := ReadAll(w, l.Journal, journal.Position{})
		for i, e := range got {
			if Payload(e) != fmt.Sprint(l.Pool, i) {
				w.Fatalf("pool %s has %q", l.Pool, Payload(e))
			}
		}
		if len(got) != 5 {
			w.Fatalf("pool %s has %d entries", l.Pool, len(got))
		}
	}
}

func race(w *world) {
	const writers, each = 8, 20
	NewLog(w, w.Store, "p")
	var wg sync.WaitGroup
	for i := range writers {
		l := OpenLog(w, w.Store, "p")
		wg.Go(func() {
			for n := 0; n < each; {
				// The now of a loser may be older than the winner's.
				head, err := l.Journal.Head(bg)
				if err != nil {
					w.Error(err)
					return
				}
				req := l.Build(journal.Header{Now: head.Now + 1}, fmt.Append(nil, i, "/", n))
				res, err := l.Journal.Append(bg, req)
				var c *journal.ConflictError
				switch {
				case err == nil:
					l.Pos = res.Pos
					n++
				case errors.As(err, &c) && len(c.Entries) > 0:
					l.Pos = c.Entries[len(c.Entries)-1].Pos()
				case errors.Is(err, journal.ErrClock):
				default:
					w.Errorf("writer %d: %v", i, err)
					return
				}
			}
		})
	}
	wg.Wait()
	j, err := w.Store.Open(bg, "p")
	w.ok(err)
	seen := map[string]int{}
	for _, e := range ReadAll(w, j, journal.Position{}) {
		seen[Payload(e)]++
	}
	for i := range writers {
		for n := range each {
			if c := seen[fmt.Sprint(i, "/", n)]; c != 1 {
				w.Fatalf("entry %d/%d is there %d times", i, n, c)
			}
		}
	}
}
