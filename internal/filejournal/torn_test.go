package filejournal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/token-budget-arbiter/tba/internal/journal"
	"github.com/token-budget-arbiter/tba/internal/journal/journaltest"
)

// tornStore returns a folder as a crash leaves it after the last batch, of two
// entries of two pools, was written and before anybody was told; and what it
// holds without that batch, and with it.
func tornStore(t *testing.T) (im image, acknowledged, complete string, start int64) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "j")
	d := &testDisk{}
	s := mustOpen(t, dir, Options{SegmentBytes: tinySegment, smallest: tinySegment, disk: d})
	a, b := journaltest.NewLog(t, s, "a"), journaltest.NewLog(t, s, "b")
	a.Append(t, "acknowledged")
	b.Append(t, "acknowledged too")
	acknowledged, err := render(t, s)
	if err != nil {
		t.Fatal(err)
	}
	// The first of three batches holds the committer up so that the two
	// others gather into one.
	reqA, reqB := a.Entry(t, []byte(strings.Repeat("a", 700)), false), b.Entry(t, []byte(strings.Repeat("b", 700)), false)
	crashed := false
	d.set(func(f *os.File, _ []byte, _ int64) error {
		if filepath.Base(f.Name()) == markName && !crashed {
			crashed = true
			im = takeImage(t, dir)
		}
		return nil
	}, nil)
	s.mu.Lock()
	start = s.end
	s.mu.Unlock()
	jobs := []*pending{}
	for _, x := range []struct {
		l *journaltest.Log
		r journal.AppendRequest
	}{{a, reqA}, {b, reqB}} {
		p := x.l.Journal.(*pool)
		h, err := journal.CheckRequest(p.name, x.r)
		if err != nil {
			t.Fatal(err)
		}
		p.turn <- struct{}{}
		jobs = append(jobs, &pending{pool: p, header: h, entry: x.r.Entry, done: make(chan outcome, 1)})
	}
	s.mu.Lock()
	s.queue = append(s.queue, jobs...)
	s.mu.Unlock()
	s.poke()
	for _, j := range jobs {
		if out := <-j.done; out.err != nil {
			t.Fatal(out.err)
		}
	}
	if !crashed {
		t.Fatal("the crash never happened")
	}
	complete, err = render(t, s)
	if err != nil {
		t.Fatal(err)
	}
	return im, acknowledged, complete, start
}

func TestTornTailIsCut(t *testing.T) {
	t.Parallel()
	im, acknowledged, complete, start := tornStore(t)
	x := newScratch(t)
	name := filepath.Join(logFolder, filepath.Base(segmentPath("", 1)))
	end := int64(len(im[name].content)+7) &^ 7
	if got, err := x.everything(t, im); err != nil || got != complete {
		t.Fatalf("a complete batch that nobody was told of: %v\n%s", err, got)
	}
	cuts := 0
	try := func(what string, change func(b []byte) []byte) {
		t.Helper()
		got, err := x.everything(t, im.with(name, change))
		if err != nil || (got != acknowledged && got != complete) {
			t.Fatalf("%s: %v\n%s", what, err, got)
		}
		if got == acknowledged {
			cuts++
		}
	}
	for n := start; n < end; n += 7 {
		try(fmt.Sprintf("file ends at %d", n), func(b []byte) []byte { return b[:n] })
		try(fmt.Sprintf("zeros from %d", n), func(b []byte) []byte { clear(b[n:]); return b })
		try(fmt.Sprintf("zeros up to %d", n), func(b []byte) []byte { clear(b[start:n]); return b })
		try(fmt.Sprintf("byte %d flipped", n), func(b []byte) []byte { b[n] ^= 0xff; return b })
	}
	for sector := start &^ 511; sector < end; sector += 512 {
		from := max(sector, start)
		try(fmt.Sprintf("sector %d missing", sector), func(b []byte) []byte { clear(b[from:min(sector+512, end)]); return b })
	}
	if cuts < 300 {
		t.Errorf("only %d cuts happened", cuts)
	}
}

// TestTornTailIsOverwritten goes on after a cut: nothing of the torn batch may
// come back.
func TestTornTailIsOverwritten(t *testing.T) {
	t.Parallel()
	im, acknowledged, _, start := tornStore(t)
	name := filepath.Join(logFolder, filepath.Base(segmentPath("", 1)))
	dir := im.with(name, func(b []byte) []byte { b[start+40] ^= 1; return b }).write(t)
	for round := range 3 {
		s := mustOpen(t, dir, Options{disk: sparseDisk{}})
		if round == 0 {
			if got, err := render(t, s); err != nil || got != acknowledged {
				t.Fatalf("%v\n%s", err, got)
			}
			// A frame of the torn batch that stays could complete a later one.
			if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !isZero(b[start:]) {
				t.Fatalf("the torn batch is still there: %v", err)
			}
		}
		l := journaltest.OpenLog(t, s, "a")
		if l.Pos.Seq != uint64(round+1) {
			t.Fatalf("round %d begins at %s", round, l.Pos)
		}
		l.Append(t, "x")
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestStaleMark is a power failure that took the marks of the last batches:
// everything synced is found, and damage that a later batch gives away is still
// refused. Only the very last batch has no second witness.
func TestStaleMark(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "j")
	s := mustOpen(t, dir, Options{disk: sparseDisk{}})
	l := journaltest.NewLog(t, s, "a")
	l.Append(t, "1")
	old := takeImage(t, dir)[markName]
	var starts []int64
	for i := range 4 {
		s.mu.Lock()
		starts = append(starts, l.Journal.(*pool).entries[i].off+int64(l.Journal.(*pool).entries[i].size))
		s.mu.Unlock()
		l.Append(t, fmt.Sprint(i+2))
	}
	want, err := render(t, s)
	if err != nil {
		t.Fatal(err)
	}
	x, im := newScratch(t), takeImage(t, dir)
	im[markName] = old
	if x.judge(t, im, want, "stale mark") {
		t.Fatal("a stale mark was refused")
	}
	name := filepath.Join(logFolder, filepath.Base(segmentPath("", 1)))
	last := starts[len(starts)-1]
	for i := int64(segmentHeadBytes); i < last; i += 5 {
		if !x.judge(t, im.with(name, func(b []byte) []byte { b[i] ^= 0x10; return b }), want, fmt.Sprintf("stale mark, byte %d", i)) {
			t.Fatalf("stale mark, byte %d: nobody noticed", i)
		}
	}
	got, err := x.everything(t, im.with(name, func(b []byte) []byte { b[last+9] ^= 1; return b }))
	if err != nil || strings.Count(got, "\n") != strings.Count(want, "\n")-1 {
		t.Fatalf("the documented double fault: %v\n%s", err, got)
	}
}

// TestHeadProvesTheSegmentBefore crashes after a new segment has begun and
// before its first batch, and loses the marks: only the new head knows how far
// the old segment was acknowledged.
func TestHeadProvesTheSegmentBefore(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "j")
	d := &testDisk{}
	s := mustOpen(t, dir, Options{SegmentBytes: tinySegment, smallest: tinySegment, disk: d})
	l := journaltest.NewLog(t, s, "a")
	old := takeImage(t, dir)[markName]
	var im image
	d.set(func(f *os.File, _ []byte, off int64) error {
		if isLog(f) && off == segmentHeadBytes && filepath.Base(f.Name()) == nextName {
			im = takeImage(t, dir)
		}
		return nil
	}, nil)
	var want string
	for im == nil {
		var err error
		if want, err = render(t, s); err != nil {
			t.Fatal(err)
		}
		l.Append(t, strings.Repeat("x", 1000))
	}
	im[markName] = old
	x := newScratch(t)
	if x.judge(t, im, want, "between two segments") {
		t.Fatal("refused")
	}
	name := filepath.Join(logFolder, filepath.Base(segmentPath("", 1)))
	for n := len(im[name].content) - 1200; n < len(im[name].content); n += 7 {
		if !x.judge(t, im.with(name, func(b []byte) []byte { b[n] ^= 1; return b }), want, fmt.Sprintf("byte %d", n)) {
			t.Fatalf("byte %d: nobody noticed", n)
		}
	}
}

func TestClockAcrossRestarts(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "j")
	id, since := "boot-1", 100*time.Second
	open := func() (*Store, int64) {
		s := mustOpen(t, dir, Options{disk: sparseDisk{}, boot: func() (string, time.Duration) { return id, since }})
		now, err := s.Now(t.Context())
		if errors.Is(err, journal.ErrUninitialised) {
			journaltest.NewLog(t, s, "a").Append(t, "x")
			now, err = s.Now(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		return s, now.Now
	}
	advance := func(what string, want time.Duration) {
		t.Helper()
		s, before := open()
		change := func() { since += want }
		if want == 0 {
			change = func() { id, since = id+"x", 5*time.Hour }
		}
		if want < 0 {
			change = func() { since += want; want = 0 }
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		change()
		s, after := open()
		defer s.Close()
		// The real time that the test takes is not in the time since boot.
		if d := time.Duration(after - before); d < max(0, want-time.Minute) || d > want+time.Minute {
			t.Errorf("%s: logical time advanced by %s, want %s", what, d, want)
		}
	}
	advance("same boot, an hour later", time.Hour)
	advance("another boot", 0)
	advance("the boot after", 10*time.Minute)
	advance("time since boot went back", -time.Hour)
}

func TestSegmentsAreGivenBack(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "j")
	s := mustOpen(t, dir, Options{disk: sparseDisk{}})
	busy, idle := journaltest.NewLog(t, s, "busy"), journaltest.NewLog(t, s, "idle")
	// Logical time that lies beyond the trim horizon.
	s.mu.Lock()
	s.openedNow += int64(time.Hour)
	s.mu.Unlock()
	old := func(l *journaltest.Log) {
		t.Helper()
		res, err := l.Journal.Append(t.Context(), l.Build(journal.Header{Now: journal.FirstNow}, make([]byte, 100<<10)))
		if err != nil {
			t.Fatal(err)
		}
		l.Pos = res.Pos
	}
	save := func(l *journaltest.Log) {
		t.Helper()
		if _, err := l.Journal.Snapshots().Save(t.Context(), l.Pos, func(io.Writer) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	old(idle)
	for range 3 {
		for range 20 {
			old(busy)
		}
		save(busy)
	}
	old(busy)
	if err := busy.Journal.Snapshots().Trim(t.Context()); err != nil {
		t.Fatal(err)
	}
	pins, err := s.Pins(t.Context())
	if err != nil || pins[0].Pool != "idle" || pins[0].Segments < 5 || pins[0].Segments <= pins[1].Segments {
		t.Fatalf("%+v, %v", pins, err)
	}
	save(idle)
	if err := idle.Journal.Snapshots().Trim(t.Context()); err != nil {
		t.Fatal(err)
	}
	pins, err = s.Pins(t.Context())
	if err != nil || pins[0].Pool != "busy" || pins[1].Segments != 0 {
		t.Fatalf("%+v, %v", pins, err)
	}
	use, err := s.Usage(t.Context())
	if err != nil || use.Segments != pins[0].Segments {
		t.Fatalf("%+v, %v", use, err)
	}
	want, err := render(t, s)
	if err != nil {
		t.Fatal(err)
	}
	x, im := newScratch(t), takeImage(t, dir)
	if x.judge(t, im, want, "after the trim") {
		t.Fatal("refused after the trim")
	}
	for name := range im { // what was trimmed is only in the snapshot
		if strings.HasPrefix(name, snapshotFolder) && strings.HasPrefix(filepath.Base(name), "2-") {
			delete(im, name)
		}
	}
	if !x.judge(t, im, want, "snapshot of a trimmed pool missing") {
		t.Fatal("a trimmed pool without its snapshot was not refused")
	}
}

func TestPoolsShareASync(t *testing.T) {
	t.Parallel()
	const pools = 16
	dir := filepath.Join(t.TempDir(), "j")
	d := &testDisk{}
	s := mustOpen(t, dir, Options{disk: d})
	logs := make([]*journaltest.Log, pools)
	for i := range logs {
		logs[i] = journaltest.NewLog(t, s, fmt.Sprint("p", i))
	}
	inSync, goOn := make(chan struct{}), make(chan struct{})
	syncs := 0
	d.set(nil, func(f *os.File) error {
		if filepath.Base(f.Name()) == markName {
			return nil
		}
		if syncs++; syncs == 1 {
			close(inSync)
			<-goOn
		}
		return nil
	})
	var wg sync.WaitGroup
	send := func(l *journaltest.Log) {
		req := l.Entry(t, []byte("x"), false)
		wg.Go(func() {
			if _, err := l.Journal.Append(t.Context(), req); err != nil {
				t.Error(err)
			}
		})
	}
	send(logs[0])
	<-inSync
	for _, l := range logs[1:] {
		send(l)
	}
	for queued := 0; queued < pools-1; {
		s.mu.Lock()
		queued = len(s.queue)
		s.mu.Unlock()
	}
	close(goOn)
	wg.Wait()
	if syncs != 2 {
		t.Errorf("%d pools needed %d syncs, want 2", pools, syncs)
	}
}
