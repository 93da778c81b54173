package journaltest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/token-budget-arbiter/tba/internal/journal"
)

func blockingRead(w *world) {
	l := NewLog(w, w.Store, "p")
	for i := range 3 {
		type answer struct {
			entries []journal.Entry
			err     error
		}
		got := make(chan answer, 1)
		after := l.Pos
		go func() {
			ctx, cancel := context.WithTimeout(bg, time.Minute)
			defer cancel()
			entries, err := l.Journal.Read(ctx, after, 0)
			got <- answer{entries, err}
		}()
		l.Append(w, fmt.Sprint("news ", i))
		a := <-got
		w.ok(a.err)
		if len(a.entries) != 1 || a.entries[0].Pos() != l.Pos {
			w.Fatalf("the blocked read got %d entries", len(a.entries))
		}
	}
	ctx, cancel := context.WithTimeout(bg, 50*time.Millisecond)
	defer cancel()
	_, err := l.Journal.Read(ctx, l.Pos, 0)
	w.want(err, context.DeadlineExceeded)
}

func readBound(w *world) {
	l := NewLog(w, w.Store, "p")
	for range 10 {
		l.Append(w, strings.Repeat("x", 60<<10))
	}
	for _, max := range []int{0, 1 << 30, 100 << 10, 1} {
		limit := max
		if limit <= 0 || limit > journal.MaxReplyBytes {
			limit = journal.MaxReplyBytes
		}
		entries, err := l.Journal.Read(bg, journal.Position{}, max)
		w.ok(err)
		size := 0
		for i := range entries {
			size += len(entries[i].Raw())
		}
		if len(entries) == 0 || (len(entries) > 1 && size > limit) {
			w.Fatalf("read of at most %d gave %d entries of %d bytes", limit, len(entries), size)
		}
	}
}

func closing(w *world) {
	l := NewLog(w, w.Store, "p")
	done := make(chan error, 1)
	reading := make(chan struct{})
	go func() {
		close(reading)
		_, err := l.Journal.Read(bg, l.Pos, 0)
		done <- err
	}()
	<-reading
	req := l.Entry(w, nil, false)
	w.ok(w.Store.Close())
	w.want(<-done, journal.ErrClosed)
	_, err := l.Journal.Append(bg, req)
	w.want(err, journal.ErrClosed)
	_, err = w.Store.Open(bg, "p")
	w.want(err, journal.ErrClosed)
	w.ok(w.Store.Close())
}

func essential(w *world) {
	if w.Fill == nil {
		w.Skip("this store cannot be filled")
	}
	l := NewLog(w, w.Store, "p")
	l.Append(w, "before")
	w.Fill()
	payload := make([]byte, 1000)
	refused := false
	for range 100_000 {
		req := l.Entry(w, payload, false)
		res, err := l.Journal.Append(bg, req)
		if err != nil {
			w.want(err, journal.ErrFull)
			refused = true
			break
		}
		l.Pos = res.Pos
	}
	if !refused {
		w.Fatal("the store was never full")
	}
	for i := range 20 {
		req := l.Entry(w, fmt.Append(nil, "commit ", i), true)
		res, err := l.Journal.Append(bg, req)
		if err != nil {
			w.Fatalf("essential append %d into a full store: %v", i, err)
		}
		l.Pos = res.Pos
		_, err = l.Journal.Append(bg, l.Entry(w, payload, false))
		w.want(err, journal.ErrFull)
	}
	w.Free()
	l.Append(w, "after")
	all := ReadAll(w, l.Journal, journal.Position{})
	if last := all[len(all)-1]; last.Pos() != l.Pos || Payload(all[len(all)-2]) != "commit 19" {
		w.Fatal("entries of the full phase are missing")
	}
}

func archive(w *world) {
	NewLog(w, w.Store, "p")
	NewLog(w, w.Store, "q")
	w.ok(w.Archive.PutOnce(bg, "p", "2025-11", []byte("row")))
	w.ok(w.Archive.PutOnce(bg, "p", "2025-11", []byte("row")))
	w.want(w.Archive.PutOnce(bg, "p", "2025-11", []byte("other")), journal.ErrExists)
	w.ok(w.Archive.PutOnce(bg, "p", "2025-12", nil))
	w.ok(w.Archive.PutOnce(bg, "p", "..", []byte("dots")))
	w.ok(w.Archive.PutOnce(bg, "p", "a:B", []byte("upper")))
	w.ok(w.Archive.PutOnce(bg, "p", "a:b", []byte("lower")))
	w.want(w.Archive.PutOnce(bg, "p", "a/b", nil), journal.ErrInvalid)
	w.want(w.Archive.PutOnce(bg, "p", "big", make([]byte, journal.MaxEntryBytes+1)), journal.ErrTooLarge)
	row, err := w.Archive.Get(bg, "p", "2025-11")
	w.ok(err)
	if string(row) != "row" {
		w.Fatalf("row %q", row)
	}
	_, err = w.Archive.Get(bg, "q", "2025-11")
	w.want(err, journal.ErrNotFound)
	keys, err := w.Archive.List(bg, "p", "", 0)
	w.ok(err)
	if s := strings.Join(keys, " "); s != ".. 2025-11 2025-12 a:B a:b" {
		w.Fatalf("keys %s", s)
	}
	keys, err = w.Archive.List(bg, "p", "2025-11", 2)
	w.ok(err)
	if s := strings.Join(keys, " "); s != "2025-12 a:B" {
		w.Fatalf("page %s", s)
	}
}

func reopen(w *world) {
	if w.Reopen == nil {
		w.Skip("nothing survives in this store")
	}
	l := NewLog(w, w.Store, "p")
	NewLog(w, w.Store, "idle")
	l.Append(w, "a")
	saveString(w, l, strings.Repeat("state", 200_000))
	req := l.Append(w, "b")
	w.ok(w.Archive.PutOnce(bg, "p", "k", []byte("row")))
	w.ok(l.Journal.OpenEpoch(bg, 1))
	head, err := l.Journal.Head(bg)
	w.ok(err)
	before, err := w.Store.Now(bg)
	w.ok(err)
	for round := range 3 {
		w.Store, w.Archive = w.Reopen()
		now, err := w.Store.Now(bg)
		w.ok(err)
		if now.Now < before.Now {
			w.Fatalf("logical time went back by %d ns", before.Now-now.Now)
		}
		again := OpenLog(w, w.Store, "p")
		got, err := again.Journal.Head(bg)
		w.ok(err)
		if got != head {
			w.Fatalf("round %d: head %+v, was %+v", round, got, head)
		}
		if s := loadString(w, again); s != strings.Repeat("state", 200_000) {
			w.Fatal("the snapshot changed")
		}
		row, err := w.Archive.Get(bg, "p", "k")
		w.ok(err)
		if string(row) != "row" {
			w.Fatalf("row %q", row)
		}
		if all := ReadAll(w, again.Journal, journal.Position{}); len(all) != 2 || string(all[1].Raw()) != string(req.Entry) {
			w.Fatalf("%d entries", len(all))
		}
		names, err := w.Store.Pools(bg)
		w.ok(err)
		if strings.Join(names, " ") != "idle p" {
			w.Fatalf("pools %v", names)
		}
	}
	again := OpenLog(w, w.Store, "p")
	if res, err := again.Journal.Append(bg, req); !errors.Is(err, journal.ErrEpoch) {
		w.Fatalf("an entry of the old epoch: %+v, %v", res, err)
	}
	again.Append(w, "c")
}
