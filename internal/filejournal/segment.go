package filejournal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/token-budget-arbiter/tba/internal/journal"
)

const (
	logFolder = "log"
	nextName  = "next.tmp"  // being prepared to be the next segment
	spareName = "spare.seg" // kept for essential entries when the disk is full
	// segmentHeadBytes is the first frame of a segment.
	segmentHeadBytes = frameHeadBytes + 24
)

// segment is one file of the log.
type segment struct {
	number uint64
	path   string
	size   int64 // allocated
	live   int   // entries that are still indexed; guarded by Store.mu

	reading sync.RWMutex // readers; a removal excludes them
	file    *os.File     // nil after the removal
}

func segmentPath(dir string, number uint64) string {
	return filepath.Join(dir, logFolder, fmt.Sprintf("%012d.seg", number))
}

// segmentHead links a segment to the one before: as it is written after the
// last batch of that one was synced, it proves all of it up to prevEnd.
type segmentHead struct {
	number     uint64
	prevEnd    int64
	prevSerial uint64
}

func (h segmentHead) encode(s seed) []byte {
	le := binary.LittleEndian
	b := le.AppendUint64(nil, h.number)
	b = le.AppendUint64(b, uint64(h.prevEnd))
	b = le.AppendUint64(b, h.prevSerial)
	return s.appendFrame(nil, frame{kind: kindSegment, payload: b})
}

func parseSegmentHead(s seed, b []byte) (segmentHead, error) {
	f, _, err := s.parseFrame(b)
	if err != nil {
		return segmentHead{}, err
	}
	if f.kind != kindSegment || len(f.payload) != 24 {
		return segmentHead{}, errors.New("no segment begins here")
	}
	le := binary.LittleEndian
	return segmentHead{number: le.Uint64(f.payload), prevEnd: int64(le.Uint64(f.payload[8:])), prevSerial: le.Uint64(f.payload[16:])}, nil
}

// allocate creates a file of zeroed blocks under a name that is not yet a
// segment's. On failure nothing stays.
func (s *Store) allocate(name string) (*os.File, error) {
	path := filepath.Join(s.dir, logFolder, name)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o640)
	if err != nil {
		return nil, named(fmt.Errorf("allocate segment: %w", err))
	}
	err = s.disk.Allocate(f, s.opts.SegmentBytes)
	if err == nil {
		err = s.disk.SyncDir(filepath.Dir(path))
	}
	if err != nil {
		f.Close()
		os.Remove(path)
		return nil, named(fmt.Errorf("allocate segment: %w", err))
	}
	return f, nil
}

// adopt makes an allocated file the segment with the given head.
func (s *Store) adopt(f *os.File, head segmentHead) (*segment, error) {
	path := segmentPath(s.dir, head.number)
	err := s.disk.WriteAt(f, head.encode(s.seed), 0)
	if err == nil {
		err = s.disk.Sync(f)
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err == nil {
		err = s.disk.SyncDir(filepath.Dir(path))
	}
	if err != nil {
		return nil, fmt.Errorf("begin segment %d: %w", head.number, err)
	}
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("begin segment %d: %w", head.number, err)
	}
	return &segment{number: head.number, path: path, size: st.Size(), file: f}, nil
}

// listSegments returns the numbers of the segment files from first on, which
// must have no gap, and removes older ones whose removal a crash interrupted.
func listSegments(dir string, first uint64) ([]uint64, error) {
	entries, err := os.ReadDir(filepath.Join(dir, logFolder)) // sorted by name
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &journal.CorruptError{File: filepath.Join(dir, logFolder), Reason: "the log folder is missing"}
	}
	if err != nil {
		return nil, err
	}
	var numbers []uint64
	for _, e := range entries {
		digits, ok := strings.CutSuffix(e.Name(), ".seg")
		number, err := strconv.ParseUint(digits, 10, 64)
		if !ok || err != nil {
			continue
		}
		if number < first {
			if err := os.Remove(filepath.Join(dir, logFolder, e.Name())); err != nil {
				return nil, err
			}
			continue
		}
		numbers = append(numbers, number)
		if want := first + uint64(len(numbers)-1); number != want {
			return nil, missingSegment(dir, want)
		}
	}
	if len(numbers) == 0 {
		return nil, missingSegment(dir, first)
	}
	return numbers, nil
}

func missingSegment(dir string, number uint64) error {
	return &journal.CorruptError{File: segmentPath(dir, number), Reason: "the file is missing"}
}

// read returns a checked copy of the frame at off.
func (g *segment) read(s seed, off int64, size int) (frame, error) {
	g.reading.RLock()
	defer g.reading.RUnlock()
	if g.file == nil {
		return frame{}, journal.ErrTrimmed
	}
	b := make([]byte, size)
	n, rerr := g.file.ReadAt(b, off)
	f, _, err := s.parseFrame(b[:n])
	if err != nil {
		if rerr != nil {
			err = fmt.Errorf("%w (%w)", err, rerr)
		}
		return frame{}, &journal.CorruptError{File: g.path, Offset: off, Reason: err.Error()}
	}
	return f, nil
}

// remove deletes the file once no reader is at work.
func (g *segment) remove() error {
	g.reading.Lock()
	defer g.reading.Unlock()
	if g.file == nil {
		return nil
	}
	err := errors.Join(g.file.Close(), os.Remove(g.path))
	g.file = nil
	return err
}

func (g *segment) close() error {
	g.reading.Lock()
	defer g.reading.Unlock()
	if g.file == nil {
		return nil
	}
	err := g.file.Close()
	g.file = nil
	return err
}
