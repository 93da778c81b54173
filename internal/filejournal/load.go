package filejournal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/token-budget-arbiter/tba/internal/journal"
)

// load locks the folder, reads and checks everything, and starts the
// committer. On an error nothing stays open.
func (s *Store) load() (err error) {
	if s.lock, err = lockFolder(s.dir); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.release())
			s.lock, s.spare, s.markFile, s.segments = nil, nil, nil, nil
			clear(s.pools)
			clear(s.numbers)
		}
	}()
	if s.meta, err = readMeta(s.dir); err != nil { // again, under the lock
		return err
	}
	id, err := parseID(s.meta.Store)
	if err != nil {
		return &journal.CorruptError{File: filepath.Join(s.dir, metaName), Reason: "store id: " + err.Error()}
	}
	s.seed = newSeed(id)
	// An init that was interrupted after its description was in place. Left
	// there, it would excuse a loss of the description later.
	if err := os.Remove(filepath.Join(s.dir, buildingName)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, name := range []string{".", logFolder, snapshotFolder} {
		if err := removeTemporaries(filepath.Join(s.dir, name)); err != nil {
			return err
		}
	}
	for i := range s.meta.Pools {
		if err := s.addPool(&s.meta.Pools[i]); err != nil {
			return err
		}
	}
	if s.markFile, s.mark, err = readMark(s.dir, s.seed); err != nil {
		return err
	}
	if err := s.loadLog(); err != nil {
		return err
	}
	s.startClock()
	if err := s.stamp(); err != nil {
		return err
	}
	if s.spare, err = s.openSpare(); err != nil && !errors.Is(err, journal.ErrFull) {
		return err
	}
	s.wake, s.done = make(chan struct{}, 1), make(chan struct{})
	s.prepareNext()
	s.mu.Lock()
	s.ready = true
	s.mu.Unlock()
	go s.commitLoop()
	return nil
}

// addPool is called with mu held or before the store is shared.
func (s *Store) addPool(m *metaPool) error {
	anchor, err := m.anchor()
	if err != nil || s.numbers[m.Number] != nil || s.pools[m.Name] != nil {
		return &journal.CorruptError{File: filepath.Join(s.dir, metaName), Reason: fmt.Sprintf("pool %q is described twice or wrongly: %v", m.Name, err)}
	}
	p := &pool{
		store: s, name: m.Name, number: m.Number, epoch: m.Epoch,
		anchor: journal.Header{Epoch: anchor.Epoch, Seq: anchor.Seq, ID: anchor.ID, Now: m.AnchorNow, Writer: m.Writer},
		turn:   make(chan struct{}, 1), news: make(chan struct{}),
	}
	p.last = p.anchor
	p.saving = make(chan struct{}, 1)
	if p.saved, err = listSnapshots(s.dir, s.seed, m.Number); err != nil {
		return err
	}
	s.pools[m.Name], s.numbers[m.Number] = p, p
	return nil
}

// startClock continues logical time: by the time since boot that has passed
// since the last mark, or not at all when the machine was booted between.
func (s *Store) startClock() {
	id, since := s.opts.boot()
	now := s.mark.now
	if id != "" && id == s.mark.boot {
		now += max(0, int64(since)-s.mark.since)
	}
	for _, p := range s.pools {
		now = max(now, p.last.Now) // an entry may be up to MaxClockLead ahead
	}
	s.opened, s.openedNow, s.boot, s.bootThen = time.Now(), now, id, since
}

// loadLog checks all segments and fills the pools' indexes.
func (s *Store) loadLog() error {
	numbers, err := listSegments(s.dir, s.meta.First)
	if err != nil {
		return err
	}
	last := numbers[len(numbers)-1]
	if s.mark.segment > last {
		return missingSegment(s.dir, s.mark.segment)
	}
	var buf []byte
	for _, number := range numbers {
		path := segmentPath(s.dir, number)
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		g := &segment{number: number, path: path, file: f}
		s.segments = append(s.segments, g)
		if buf, err = readWhole(f, buf); err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		g.size = int64(len(buf))
		head, err := parseSegmentHead(s.seed, buf)
		if err == nil && head.number != number {
			err = fmt.Errorf("it is segment %d under another name", head.number)
		}
		if err != nil {
			return &journal.CorruptError{File: path, Reason: err.Error()}
		}
		// The head proves the segment before it, whose scan stopped at the
		// first thing that was no complete batch.
		if number == s.meta.First {
			s.serial = head.prevSerial
		} else if before := s.segments[len(s.segments)-2]; s.end != head.prevEnd || s.serial != head.prevSerial {
			return s.damaged(before.path, s.end, fmt.Sprintf("batch %d is damaged or missing: the next segment proves %d bytes up to batch %d", s.serial+1, head.prevEnd, head.prevSerial))
		}
		if err := s.scan(g, buf, number == last); err != nil {
			return err
		}
	}
	s.active = s.segments[len(s.segments)-1]
	return nil
}

// damaged reports a place, with the reason that the frame there gives.
func (s *Store) damaged(path string, off int64, reason string) error {
	return &journal.CorruptError{File: path, Offset: off, Reason: reason}
}

func readWhole(f *os.File, buf []byte) ([]byte, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if int64(cap(buf)) < st.Size() {
		buf = make([]byte, st.Size())
	}
	buf = buf[:st.Size()]
	_, err = f.ReadAt(buf, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return buf, err
}

// scan indexes the complete batches of a segment and leaves s.end and s.serial
// behind the last one. Of the last segment it also cuts a torn batch.
func (s *Store) scan(g *segment, b []byte, isLast bool) error {
	proven := int64(segmentHeadBytes)
	if g.number == s.mark.segment {
		proven = max(proven, s.mark.end)
	}
	off := int64(segmentHeadBytes)
	var reason error // why the scan stopped
	for reason == nil {
		var size int64
		if size, reason = s.scanBatch(g, b, off); reason == nil {
			s.serial++
			off += size
		}
	}
	s.end = off
	if c := (*journal.CorruptError)(nil); errors.As(reason, &c) {
		return c // a sound frame whose entry does not fit: no tear does that
	}
	if off < proven {
		return s.damaged(g.path, off, fmt.Sprintf("batch %d was acknowledged, but: %v", s.serial+1, reason))
	}
	if g.number == s.mark.segment && s.serial < s.mark.serial {
		return s.damaged(g.path, off, fmt.Sprintf("batch %d was acknowledged, the log ends with %d", s.mark.serial, s.serial))
	}
	if !isLast {
		return nil // judged by the next head
	}
	return s.cutTail(g, b, off, proven, reason)
}

// scanBatch checks one batch and indexes its entries if it is complete.
func (s *Store) scanBatch(g *segment, b []byte, start int64) (size int64, err error) {
	type place struct {
		off     int64
		size    int
		owner   uint32
		header  journal.Header
		payload int
	}
	var entries []place
	off := start
	for index := uint32(0); ; index++ {
		f, n, err := s.seed.parseFrame(b[min(off, int64(len(b))):])
		if err != nil {
			return 0, err
		}
		if f.kind != kindEntry || f.serial != s.serial+1 || f.index != index {
			return 0, fmt.Errorf("a frame of batch %d, place %d, where batch %d, place %d belongs", f.serial, f.index, s.serial+1, index)
		}
		h, err := journal.DecodeHeader(f.payload)
		if err != nil {
			return 0, s.damaged(g.path, off, err.Error())
		}
		entries = append(entries, place{off: off, size: n, owner: f.owner, header: h, payload: len(f.payload)})
		off += int64(n)
		if f.last {
			break
		}
	}
	for i := range entries {
		e := &entries[i]
		p := s.numbers[e.owner]
		if p == nil || p.name != e.header.Pool {
			return 0, s.damaged(g.path, e.off, fmt.Sprintf("an entry of pool %q, number %d, which the store does not have", e.header.Pool, e.owner))
		}
		if e.header.Seq <= p.anchor.Seq && p.last.Seq == p.anchor.Seq {
			continue // trimmed; the segment is here for another pool
		}
		if e.header.Seq != p.last.Seq+1 || e.header.PrevID != p.last.ID {
			return 0, s.damaged(g.path, e.off, fmt.Sprintf("entry %d of pool %q does not follow entry %d", e.header.Seq, p.name, p.last.Seq))
		}
		p.add(g, e.off, e.size, e.payload, &e.header)
	}
	return off - start, nil
}

// cutTail makes the log end cleanly at off. What follows must look like one
// batch that never was complete.
func (s *Store) cutTail(g *segment, b []byte, off, proven int64, reason error) error {
	used := int64(usedBytes(b))
	if used > off {
		if i := s.seed.laterBatch(b[off:], s.serial+1); i >= 0 {
			return s.damaged(g.path, off, fmt.Sprintf("batch %d is damaged (%v): a later one follows at offset %d", s.serial+1, reason, off+int64(i)))
		}
		if used-off > maxBatchBytes {
			return s.damaged(g.path, off, fmt.Sprintf("%d bytes after the end of the log are no torn batch", used-off))
		}
	}
	if g.size < s.opts.SegmentBytes { // the file was cut, in its empty part
		if err := g.file.Truncate(s.opts.SegmentBytes); err != nil {
			return named(err)
		}
		g.size = s.opts.SegmentBytes
	}
	// Complete batches above the proven end may be in the page cache only,
	// even marked as clean there after a failed sync. Write them again.
	if off > proven {
		if err := s.disk.WriteAt(g.file, b[proven:off], proven); err != nil {
			return err
		}
	}
	if used > off {
		if err := s.disk.WriteAt(g.file, make([]byte, used-off), off); err != nil {
			return err
		}
	}
	if off > proven || used > off {
		if err := s.disk.Sync(g.file); err != nil {
			return err
		}
	}
	m := s.mark
	m.segment, m.end, m.serial = g.number, off, s.serial
	if m == s.mark {
		return nil
	}
	if err := s.writeMark(m); err != nil {
		return err
	}
	return s.disk.Sync(s.markFile)
}

// openSpare opens the spare segment, or makes a new one. ErrFull when there is
// no room for it.
func (s *Store) openSpare() (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(s.dir, logFolder, spareName), os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return s.allocate(spareName)
	}
	if err != nil {
		return nil, err
	}
	// Its making or its adoption may have been interrupted. Its blocks are
	// worth keeping: on a full disk there are no others.
	b, err := readWhole(f, nil)
	if err == nil && int64(len(b)) < s.opts.smallest {
		f.Close()
		return s.allocate(spareName)
	}
	if used := usedBytes(b); err == nil && used > 0 {
		if err = s.disk.WriteAt(f, make([]byte, used), 0); err == nil {
			err = s.disk.Sync(f)
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
