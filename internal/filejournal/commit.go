package filejournal

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/token-budget-arbiter/tba/internal/journal"
)

const (
	// maxBatchBytes bounds the entries of one write, so that a torn one can be
	// told from other damage by its size.
	maxBatchBytes = 512 << 10
	// markIdle is how long the log must rest before the mark is synced.
	markIdle = 5 * time.Millisecond
)

// pending is an append in the queue.
type pending struct {
	pool      *pool
	header    journal.Header
	entry     []byte
	essential bool
	now       journal.Time // of the store, when it was checked
	off       int64        // of its frame
	done      chan outcome
}

type outcome struct {
	result journal.Result
	err    error
}

// poke wakes the committer.
func (s *Store) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// commitLoop writes the queue, batch by batch, until Close.
func (s *Store) commitLoop() {
	defer close(s.done)
	idle := time.NewTimer(markIdle)
	defer idle.Stop()
	for {
		s.mu.Lock()
		jobs, ending, failed := s.queue, s.ending, s.failed
		s.queue = nil
		s.mu.Unlock()
		if len(jobs) > 0 {
			if failed != nil {
				s.refuse(jobs, failed)
			} else {
				s.commit(jobs)
			}
			continue
		}
		if ending {
			return
		}
		idle.Reset(markIdle)
		select {
		case <-s.wake:
		case <-idle.C:
			if s.markDirty && failed == nil {
				s.markDirty = false
				if err := s.disk.Sync(s.markFile); err != nil {
					s.fail(fmt.Errorf("sync %s: %w", markName, err))
				}
			}
			<-s.wake
		}
	}
}

// commit writes jobs in as many batches as their size needs.
func (s *Store) commit(jobs []*pending) {
	for len(jobs) > 0 {
		n, size := 0, 0
		for n < len(jobs) {
			size += frameBytes(len(jobs[n].entry))
			if size > maxBatchBytes && n > 0 {
				break
			}
			n++
		}
		s.commitBatch(jobs[:n])
		jobs = jobs[n:]
	}
}

// commitBatch answers all jobs, definitely unless the store fails.
func (s *Store) commitBatch(jobs []*pending) {
	// Ordinary entries need the spare in place, so that the essential ones
	// that follow them always find room.
	if s.spare == nil {
		if jobs = s.renewSpare(jobs); len(jobs) == 0 {
			return
		}
	}
	for {
		size := 0
		for _, j := range jobs {
			size += frameBytes(len(j.entry))
		}
		var err error
		if s.end+int64(size) > s.active.size {
			if err = s.rotate(); err != nil && !isFull(err) {
				s.fail(err)
				s.refuse(jobs, s.failed)
				return
			}
		}
		if err == nil {
			if err = s.write(jobs); err == nil {
				s.acknowledge(jobs)
				return
			}
			if !isFull(err) {
				s.fail(err)
				s.refuse(jobs, s.failed)
				return
			}
			// A file system that finds no room for blocks it has promised.
			if err := s.abandon(size); err != nil {
				s.fail(err)
				s.refuse(jobs, s.failed)
				return
			}
		}
		ordinary, essential := split(jobs)
		s.refuse(ordinary, named(err))
		if jobs = essential; len(jobs) == 0 {
			return
		}
		if s.spare == nil {
			s.refuse(jobs, named(err))
			return
		}
		if err := s.rotateTo(s.spare); err != nil {
			s.fail(err)
			s.refuse(jobs, s.failed)
			return
		}
		s.spare = nil
	}
}

func split(jobs []*pending) (ordinary, essential []*pending) {
	for _, j := range jobs {
		if j.essential {
			essential = append(essential, j)
		} else {
			ordinary = append(ordinary, j)
		}
	}
	return ordinary, essential
}

// renewSpare tries to get a spare segment. Without one, ordinary jobs are
// refused; it returns those that remain.
func (s *Store) renewSpare(jobs []*pending) []*pending {
	ordinary, essential := split(jobs)
	if len(ordinary) == 0 {
		return jobs
	}
	spare, err := s.allocate(spareName)
	if err == nil {
		s.spare = spare
		return jobs
	}
	s.refuse(ordinary, err)
	return essential
}

// write writes and syncs one batch behind the end of the log, and the mark.
func (s *Store) write(jobs []*pending) error {
	s.buf = s.buf[:0]
	for i, j := range jobs {
		j.off = s.end + int64(len(s.buf))
		s.buf = s.seed.appendFrame(s.buf, frame{
			kind: kindEntry, owner: j.pool.number, serial: s.serial + 1,
			index: uint32(i), last: i == len(jobs)-1, payload: j.entry,
		})
	}
	if err := s.disk.WriteAt(s.active.file, s.buf, s.end); err != nil {
		return fmt.Errorf("write batch %d: %w", s.serial+1, err)
	}
	if err := s.disk.Sync(s.active.file); err != nil {
		return fmt.Errorf("sync batch %d: %w: %w", s.serial+1, errUncertain, err)
	}
	s.end += int64(len(s.buf))
	s.serial++
	s.markDirty = true
	if err := s.stamp(); err != nil {
		return fmt.Errorf("acknowledge batch %d: %w: %w", s.serial, errUncertain, err)
	}
	return nil
}

// abandon makes the active segment end where the log does, after a write there
// found no room: what it has written must not look like a batch later.
func (s *Store) abandon(size int) error {
	if err := s.disk.WriteAt(s.active.file, make([]byte, size), s.end); err != nil && !isFull(err) {
		return err
	}
	if err := s.disk.Sync(s.active.file); err != nil {
		return err
	}
	s.active.size = s.end // nothing more is written to it
	return nil
}

// acknowledge makes written entries visible and answers.
func (s *Store) acknowledge(jobs []*pending) {
	s.mu.Lock()
	for _, j := range jobs {
		j.pool.add(s.active, j.off, frameBytes(len(j.entry)), len(j.entry), &j.header)
		close(j.pool.news)
		j.pool.news = make(chan struct{})
	}
	s.mu.Unlock()
	for _, j := range jobs {
		<-j.pool.turn
		j.done <- outcome{result: journal.Result{Pos: j.header.Pos(), StoreTime: j.now, Proven: true}}
	}
}

// refuse answers jobs with an error.
func (s *Store) refuse(jobs []*pending, err error) {
	for _, j := range jobs {
		<-j.pool.turn
		j.done <- outcome{err: err}
	}
}

// fail closes the store for everything but Close.
func (s *Store) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = fmt.Errorf("%w: %w", journal.ErrFailed, err)
	for _, p := range s.pools {
		close(p.news) // readers find the failure
		p.news = make(chan struct{})
	}
}

// prepareNext begins to allocate the next segment.
func (s *Store) prepareNext() {
	next := make(chan preparation, 1)
	s.next = next
	go func() {
		f, err := s.allocate(nextName)
		next <- preparation{file: f, err: err}
	}()
}

// rotate begins the next segment. An error for which isFull holds leaves the
// active one in use.
func (s *Store) rotate() error {
	p := <-s.next
	if p.err != nil { // it may be long ago
		p.file, p.err = s.allocate(nextName)
	}
	if p.err != nil {
		s.next <- p
		return p.err
	}
	if err := s.rotateTo(p.file); err != nil {
		return fmt.Errorf("rotate: %w: %w", errUncertain, err) // the new name may exist
	}
	s.prepareNext()
	return nil
}

// rotateTo continues the log in an allocated file.
func (s *Store) rotateTo(f *os.File) error {
	g, err := s.adopt(f, segmentHead{number: s.active.number + 1, prevEnd: s.end, prevSerial: s.serial})
	if err != nil {
		return errors.Join(err, f.Close())
	}
	s.mu.Lock()
	s.segments = append(s.segments, g)
	s.mu.Unlock()
	s.active, s.end = g, segmentHeadBytes
	return nil
}
