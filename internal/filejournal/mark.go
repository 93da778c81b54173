package filejournal

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/token-budget-arbiter/tba/internal/journal"
)

const (
	markName      = "journal.mark"
	markSlotBytes = 4096
	markFileBytes = 2 * markSlotBytes
)

// mark says how far the log is acknowledged, and carries the clock over a
// restart. Its file has two slots that are written in turn, so that a torn
// write leaves the one before.
type mark struct {
	count   uint64 // of marks ever written; its parity is the slot
	segment uint64 // everything before it is acknowledged too
	end     int64  // bytes of the segment
	serial  uint64 // of the last acknowledged batch
	now     int64  // logical time when it was written
	since   int64  // time since boot then, nanoseconds
	wall    int64
	boot    string // which boot that was, at most 40 bytes
}

func (m mark) encode() []byte {
	le := binary.LittleEndian
	b := le.AppendUint64(nil, m.segment)
	b = le.AppendUint64(b, uint64(m.end))
	b = le.AppendUint64(b, m.serial)
	b = le.AppendUint64(b, uint64(m.now))
	b = le.AppendUint64(b, uint64(m.since))
	b = le.AppendUint64(b, uint64(m.wall))
	return append(b, m.boot[:min(len(m.boot), 40)]...)
}

func decodeMark(f frame) (mark, error) {
	if f.kind != kindMark || len(f.payload) < 48 {
		return mark{}, fmt.Errorf("it holds something else than a mark")
	}
	le, b := binary.LittleEndian, f.payload
	return mark{
		count: f.serial, segment: le.Uint64(b), end: int64(le.Uint64(b[8:])), serial: le.Uint64(b[16:]),
		now: int64(le.Uint64(b[24:])), since: int64(le.Uint64(b[32:])), wall: int64(le.Uint64(b[40:])),
		boot: string(b[48:]),
	}, nil
}

// writeMark writes the next mark, without a sync.
func (s *Store) writeMark(m mark) error {
	m.count = s.mark.count + 1
	s.markBuf = s.seed.appendFrame(s.markBuf[:0], frame{kind: kindMark, serial: m.count, payload: m.encode()})
	if err := s.disk.WriteAt(s.markFile, s.markBuf, int64(m.count%2)*markSlotBytes); err != nil {
		return fmt.Errorf("write %s: %w", markName, err)
	}
	s.mark = m
	return nil
}

// stamp writes a mark with the present clock and extent of the log.
func (s *Store) stamp() error {
	now := s.now()
	return s.writeMark(mark{
		segment: s.active.number, end: s.end, serial: s.serial,
		now: now.Now, wall: now.Wall, since: int64(s.bootThen + time.Since(s.opened)), boot: s.boot,
	})
}

// readMark opens the mark file and returns the newest sound mark.
func readMark(dir string, sd seed) (*os.File, mark, error) {
	path := filepath.Join(dir, markName)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if os.IsNotExist(err) {
		return nil, mark{}, &journal.CorruptError{File: path, Reason: "the file is missing, so nobody can tell whether the log is complete"}
	}
	if err != nil {
		return nil, mark{}, fmt.Errorf("open mark: %w", err)
	}
	b := make([]byte, markFileBytes)
	n, _ := f.ReadAt(b, 0) // a short file is judged below
	var newest mark
	var reason error
	found := false
	for slot := range 2 {
		at := min(slot*markSlotBytes, n)
		fr, _, err := sd.parseFrame(b[at:min(at+markSlotBytes, n)])
		var m mark
		if err == nil {
			m, err = decodeMark(fr)
		}
		if err != nil {
			reason = err
		} else if !found || m.count > newest.count {
			newest, found = m, true
		}
	}
	if !found {
		f.Close()
		return nil, mark{}, &journal.CorruptError{File: path, Reason: fmt.Sprintf("neither mark is sound: %v", reason)}
	}
	return f, newest, nil
}
