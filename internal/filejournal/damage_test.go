package filejournal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/token-budget-arbiter/tba/internal/journal"
	"github.com/token-budget-arbiter/tba/internal/journal/journaltest"
)

// sparseDisk allocates without writing, for tests that open thousands of times.
type sparseDisk struct{ systemDisk }

func (sparseDisk) Allocate(f *os.File, size int64) error { return f.Truncate(size) }

func (sparseDisk) Sync(*os.File) error { return nil }

func (sparseDisk) SyncDir(string) error { return nil }

// tinySegment keeps those opens cheap.
const tinySegment = 16 << 10

// image is the content of a folder. Long zeros at the end of a file are not kept.
type image map[string]file

type file struct {
	content []byte
	size    int
}

func takeImage(t *testing.T, dir string) image {
	t.Helper()
	im := image{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(path, ".tmp") {
			return err
		}
		b, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		im[name] = file{content: b[:usedBytes(b)], size: len(b)}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return im
}

func (im image) write(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, f := range im {
		f.write(t, filepath.Join(dir, name))
	}
	return dir
}

func (f file) write(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		t.Fatal(err)
	}
	out, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o640)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	// Not cut to nothing first: some file systems flush a file that was.
	_, err = out.WriteAt(f.content, 0)
	for _, size := range []int{len(f.content), f.size} {
		if err == nil {
			err = out.Truncate(int64(size))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// with returns a copy in which one file is changed.
func (im image) with(name string, change func(b []byte) []byte) image {
	out := image{}
	for n, f := range im {
		if n == name {
			b := make([]byte, f.size)
			copy(b, f.content)
			b = change(b)
			f = file{content: b[:usedBytes(b)], size: len(b)}
		}
		out[n] = f
	}
	return out
}

// scratch is a folder that images are written to one after the other.
type scratch struct {
	dir string
	has image // written there and not touched by a store since
}

func newScratch(t *testing.T) *scratch {
	return &scratch{dir: t.TempDir(), has: image{}}
}

// everything opens an image and renders all it holds, or returns the first error.
func (x *scratch) everything(t *testing.T, im image) (string, error) {
	t.Helper()
	for name := range x.has {
		if _, ok := im[name]; !ok {
			if err := os.Remove(filepath.Join(x.dir, name)); err != nil {
				t.Fatal(err)
			}
			delete(x.has, name)
		}
	}
	for name, f := range im {
		touched := name == markName || strings.HasPrefix(name, logFolder)
		if old, ok := x.has[name]; touched || !ok || old.size != f.size || !bytes.Equal(old.content, f.content) {
			f.write(t, filepath.Join(x.dir, name))
			x.has[name] = f
		}
	}
	size := int64(im[filepath.Join(logFolder, spareName)].size)
	s, err := Open(x.dir, Options{SegmentBytes: size, smallest: tinySegment, disk: sparseDisk{}})
	if err != nil {
		return "", err
	}
	defer s.Close()
	return render(t, s)
}

func render(t *testing.T, s *Store) (string, error) {
	var out strings.Builder
	ctx := t.Context()
	pools, err := s.Pools(ctx)
	if err != nil {
		return "", err
	}
	for _, name := range pools {
		j, err := s.Open(ctx, name)
		if err != nil {
			return "", err
		}
		head, err := j.Head(ctx)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&out, "pool %s %+v\n", name, head)
		for at := head.Oldest; at != head.Pos; {
			entries, err := j.Read(ctx, at, 0)
			if err != nil {
				return "", err
			}
			for i := range entries {
				at = entries[i].Pos()
				fmt.Fprintf(&out, "%x\n", entries[i].Raw())
			}
		}
		m, r, err := j.Snapshots().Load(ctx)
		if err == nil {
			state, err := io.ReadAll(r)
			r.Close()
			if err != nil {
				return "", err
			}
			fmt.Fprintf(&out, "snapshot %+v %x\n", m, state)
		} else if !errors.Is(err, journal.ErrNoSnapshot) {
			return "", err
		}
		keys, err := s.List(ctx, name, "", 0)
		if err != nil {
			return "", err
		}
		for _, key := range keys {
			row, err := s.Get(ctx, name, key)
			if err != nil {
				return "", err
			}
			fmt.Fprintf(&out, "row %s %x\n", key, row)
		}
	}
	return out.String(), nil
}

// smallStore is a folder with two pools, a snapshot and a row, and its content.
func smallStore(t *testing.T) (*scratch, image, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "j")
	s := mustOpen(t, dir, Options{SegmentBytes: tinySegment, smallest: tinySegment, disk: sparseDisk{}})
	a, b := journaltest.NewLog(t, s, "a"), journaltest.NewLog(t, s, "b")
	a.Append(t, "first")
	b.Append(t, "padding?")
	if _, err := a.Journal.Snapshots().Save(t.Context(), a.Pos, func(w io.Writer) error {
		_, err := io.WriteString(w, "the state")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.PutOnce(t.Context(), "a", "2025-11", []byte("row")); err != nil {
		t.Fatal(err)
	}
	a.Append(t, "second")
	b.Append(t, "the last acknowledged entry")
	want, err := render(t, s)
	if err != nil {
		t.Fatal(err)
	}
	return newScratch(t), takeImage(t, dir), want // as a kill would leave it: it is not closed
}

// judge checks the law of damage: all of it, or a refusal that says where.
func (x *scratch) judge(t *testing.T, im image, want, what string) (refused bool) {
	t.Helper()
	got, err := x.everything(t, im)
	var c *journal.CorruptError
	switch {
	case err == nil && got == want:
		return false
	case err == nil:
		t.Fatalf("%s: opened with other content:\n%s\nwant:\n%s", what, got, want)
	case !errors.As(err, &c) || c.File == "" || c.Offset < 0:
		t.Fatalf("%s: refused without a place: %v", what, err)
	}
	return true
}

// dull offsets are like their neighbours: the rest of a mark's slot, the blanks
// of a manifest. A sample of them is tried.
func dull(name string, i int) bool {
	log := strings.HasPrefix(name, logFolder)
	return !log && i%markSlotBytes > 300 && i%16 != 0
}

func TestEveryFlippedByte(t *testing.T) {
	t.Parallel()
	x, im, want := smallStore(t)
	changes := map[string]func(byte) byte{
		"inverted": func(b byte) byte { return ^b },
		"zeroed":   func(byte) byte { return 0 },
		"one bit":  func(b byte) byte { return b ^ 4 },
	}
	for name, f := range im {
		if name == lockName {
			continue
		}
		counts := map[bool]int{}
		for i := range f.content {
			for how, change := range changes {
				old := f.content[i]
				if change(old) == old || dull(name, i) || (how != "inverted" && i%4 != 0) {
					continue
				}
				what := fmt.Sprintf("%s byte %d %s", name, i, how)
				damaged := im.with(name, func(b []byte) []byte { b[i] = change(b[i]); return b })
				refused := x.judge(t, damaged, want, what)
				counts[refused]++
				if strings.HasPrefix(name, logFolder) && !refused {
					t.Fatalf("%s: acknowledged data changed and nobody noticed", what)
				}
			}
		}
		t.Logf("%s: %d of %d changes refused", name, counts[true], counts[true]+counts[false])
	}
}

func TestCutAtEveryOffset(t *testing.T) {
	t.Parallel()
	x, im, want := smallStore(t)
	for name, f := range im {
		if name == lockName {
			continue
		}
		for n := range len(f.content) {
			if dull(name, n) {
				continue
			}
			refused := x.judge(t, im.with(name, func(b []byte) []byte { return b[:n] }), want, fmt.Sprintf("%s cut to %d", name, n))
			if strings.HasPrefix(name, logFolder) && !refused {
				t.Fatalf("%s cut to %d of %d: nobody noticed", name, n, len(f.content))
			}
		}
		for _, n := range []int{len(f.content), len(f.content) + 1, f.size - 1} {
			if n < f.size {
				x.judge(t, im.with(name, func(b []byte) []byte { return b[:n] }), want, fmt.Sprintf("%s cut to %d", name, n))
			}
		}
	}
}

func TestEveryFileMissing(t *testing.T) {
	t.Parallel()
	x, im, want := smallStore(t)
	for name := range im {
		less := image{}
		for n, f := range im {
			if n != name {
				less[n] = f
			}
		}
		got, err := x.everything(t, less)
		switch {
		case (name == lockName || filepath.Base(name) == spareName) && err == nil && got == want:
		case strings.HasPrefix(name, snapshotFolder) && err == nil:
			// The log is complete, so an older snapshot, or none, is enough.
		case strings.HasPrefix(name, archiveFolder) && err == nil:
			// A row that is gone was never there, as far as a folder can tell.
		case errors.Is(err, journal.ErrCorrupt):
		default:
			t.Errorf("without %s: %v", name, err)
		}
	}
	s, err := Open(image{}.write(t), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Open(t.Context(), "a"); !errors.Is(err, journal.ErrUninitialised) {
		t.Errorf("an emptied folder: %v", err)
	}
}

func TestFlipsInALongLog(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "j")
	s := mustOpen(t, dir, Options{disk: sparseDisk{}})
	a, b := journaltest.NewLog(t, s, "a"), journaltest.NewLog(t, s, "b")
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range 120 {
		l := a
		if i%3 == 0 {
			l = b
		}
		l.Append(t, strings.Repeat("x", rnd.IntN(60_000)))
	}
	want, err := render(t, s)
	if err != nil {
		t.Fatal(err)
	}
	x, im := newScratch(t), takeImage(t, dir)
	var names []string
	for name, f := range im {
		if strings.HasPrefix(name, logFolder) && len(f.content) > 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if len(names) < 3 {
		t.Fatalf("only %d segments", len(names))
	}
	refused := 0
	for range 40 {
		name := names[rnd.IntN(len(names))]
		i := rnd.IntN(len(im[name].content))
		damaged := im.with(name, func(b []byte) []byte { b[i] ^= 1 << rnd.IntN(8); return b })
		if x.judge(t, damaged, want, fmt.Sprintf("%s byte %d", name, i)) {
			refused++
		}
	}
	// Behind the proven end of a finished segment lies nothing.
	if refused < 39 {
		t.Errorf("only %d of 40 flips were refused", refused)
	}
	for _, name := range names {
		n := len(im[name].content) * 2 / 3
		if !x.judge(t, im.with(name, func(b []byte) []byte { return b[:n] }), want, name+" cut") {
			t.Errorf("%s cut to %d: nobody noticed", name, n)
		}
		less := image{}
		for n, f := range im {
			if n != name {
				less[n] = f
			}
		}
		if !x.judge(t, less, want, name+" missing") {
			t.Errorf("%s is missing and nobody noticed", name)
		}
	}
}

func TestRotIsFoundByRead(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "j")
	s := mustOpen(t, dir, Options{disk: sparseDisk{}})
	l := journaltest.NewLog(t, s, "a")
	l.Append(t, "first")
	f, err := os.OpenFile(segmentPath(dir, 1), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte{0xee}, segmentHeadBytes+60); err != nil {
		t.Fatal(err)
	}
	_, err = l.Journal.Read(t.Context(), journal.Position{}, 0)
	var c *journal.CorruptError
	if !errors.As(err, &c) || c.Offset != segmentHeadBytes || c.File != segmentPath(dir, 1) {
		t.Fatalf("%v", err)
	}
}
