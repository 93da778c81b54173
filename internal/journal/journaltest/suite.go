// Package journaltest is the suite that every journal store runs, and the Faulty store.
//
// A store's own test hands Run a way to open a fresh store; whatever passes
// keeps the promises of package journal that the engine is built on.
package journaltest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/token-budget-arbiter/tba/internal/journal"
)

// Harness is one fresh store under test. The suite closes Store.
type Harness struct {
	Store   journal.Store
	Archive journal.Archive
	// Reopen closes the store and opens it again on what it kept. Nil when
	// nothing survives a close.
	Reopen func() (journal.Store, journal.Archive)
	// Fill makes the store refuse ordinary appends as full, Free ends that.
	// Nil when the store cannot be filled.
	Fill, Free func()
	// LoseChunk removes one chunk of the pool's current snapshot behind the
	// store's back. Nil when that cannot be done.
	LoseChunk func(pool string)
}

// Factory opens stores for the suite.
type Factory struct {
	New func(t *testing.T) Harness
	// Bubble runs each case inside testing/synctest, which also gives the
	// cases that need minutes of logical time. A store on a network cannot.
	Bubble bool
}

// Run checks the whole contract, one parallel subtest per promise.
func Run(t *testing.T, f Factory) {
	cases := []struct {
		name  string
		minds bool // needs a clock that can be moved
		run   func(*world)
	}{
		{"uninitialised is never zero", false, uninitialised},
		{"init is once", false, initOnce},
		{"append and read", false, appendAndRead},
		{"positions are compared with their id", false, positions},
		{"conflict returns what came between", false, conflict},
		{"conflict reply is bounded", false, conflictBound},
		{"resend of the identical entry", false, resend},
		{"another life of the log is forked", false, forked},
		{"entries that lie are refused", false, invalidEntries},
		{"entry bound", false, entryBound},
		{"clock lead and order", false, clock},
		{"logical time runs", true, clockRuns},
		{"read blocks for news", false, blockingRead},
		{"read bounds", false, readBound},
		{"close ends blocked reads", false, closing},
		{"essential passes when full", false, essential},
		{"epochs", false, epochs},
		{"pools are apart", false, pools},
		{"concurrent writers: one wins each seq", false, race},
		{"snapshot round trip", false, snapshots},
		{"snapshot save only newer and only of this log", false, snapshotOrder},
		{"snapshot that fails leaves the old one", false, snapshotFails},
		{"snapshot with a missing chunk", false, missingChunk},
		{"trim below the previous snapshot", true, trim},
		{"trim never inside the horizon", true, trimHorizon},
		{"trim of an idle pool", true, trimIdle},
		{"archive is put once", false, archive},
		{"everything survives a reopen", false, reopen},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.minds && !f.Bubble {
				t.Skip("needs a clock that the test can move")
			}
			body := func(t *testing.T) {
				w := &world{T: t, Harness: f.New(t)}
				defer func() { w.Store.Close() }()
				c.run(w)
			}
			if f.Bubble {
				synctest.Test(t, body)
			} else {
				body(t)
			}
		})
	}
}

// world is one case in work.
type world struct {
	*testing.T
	Harness
}

// Log is an initialised pool with a writer of test entries, for the suite and
// for the stores' own tests. Not for concurrent use.
type Log struct {
	Pool    string
	Journal journal.Journal
	Pos     journal.Position // of the last entry this writer knows
	Epoch   uint64
	Writer  string
	store   journal.Store
	enc     journal.Encoder
}

// NewLog initialises pool in store and returns a writer of it.
func NewLog(t testing.TB, store journal.Store, pool string) *Log {
	t.Helper()
	if err := store.Init(context.Background(), pool); err != nil {
		t.Fatal(err)
	}
	return OpenLog(t, store, pool)
}

// OpenLog opens pool and returns a writer at its end.
func OpenLog(t testing.TB, store journal.Store, pool string) *Log {
	t.Helper()
	j, err := store.Open(context.Background(), pool)
	if err != nil {
		t.Fatal(err)
	}
	head, err := j.Head(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return &Log{Pool: pool, Journal: j, Pos: head.Pos, Epoch: head.Epoch, Writer: "w", store: store}
}

// Entry returns a new entry after l.Pos with one fact of the given payload, at
// the store's time.
func (l *Log) Entry(t testing.TB, payload []byte, essential bool) journal.AppendRequest {
	t.Helper()
	now, err := l.store.Now(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	h := journal.Header{Now: now.Now, Wall: now.Wall}
	if essential {
		h.Flags = journal.FlagEssential
	}
	return l.Build(h, payload)
}

// Build returns a new entry after l.Pos with the Now, Wall and Flags of h.
func (l *Log) Build(h journal.Header, payload []byte) journal.AppendRequest {
	l.enc.Reset()
	l.enc.AddFact(uint16(l.enc.Intern(l.Pool)), true, payload)
	h.Pool, h.Writer, h.Epoch = l.Pool, l.Writer, l.Epoch
	h.Seq, h.ID, h.PrevID = l.Pos.Seq+1, journal.NewEntryID(), l.Pos.ID
	return journal.AppendRequest{
		After: l.Pos, Entry: append([]byte(nil), l.enc.Finish(h)...),
		Essential: h.Flags&journal.FlagEssential != 0,
	}
}

// Append appends one entry and moves Pos.
func (l *Log) Append(t testing.TB, payload string) journal.AppendRequest {
	t.Helper()
	req := l.Entry(t, []byte(payload), false)
	res, err := l.Journal.Append(context.Background(), req)
	if err != nil {
		t.Fatalf("append %q: %v", payload, err)
	}
	l.Pos = res.Pos
	return req
}

// Payload returns the payload of the first fact of e.
func Payload(e journal.Entry) string {
	for f := range e.Facts() {
		return string(f.Payload)
	}
	return ""
}

// ReadAll returns all entries after a position up to the head.
func ReadAll(t testing.TB, j journal.Journal, after journal.Position) []journal.Entry {
	t.Helper()
	head, err := j.Head(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var all []journal.Entry
	for after.Seq < head.Pos.Seq {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		entries, err := j.Read(ctx, after, 0)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		for i := range entries {
			e := &entries[i]
			if e.Seq != after.Seq+1 || (!after.ID.IsZero() && e.PrevID != after.ID) {
				t.Fatalf("after %s came %s", after, e.Pos())
			}
			after = e.Pos()
		}
		all = append(all, entries...)
	}
	return all
}
