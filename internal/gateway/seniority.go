package gateway

import (
	"hash/maphash"
	"sync"
	"time"
)

// seniority remembers the place in the queue of calls that were sent away to come back: their SDK knows nothing of tickets, but it
// sends the same call again. Kept for a little longer than the longest wait that is told. Bounded; the oldest goes.
type seniority struct {
	seed maphash.Seed

	mu    sync.Mutex
	now   map[uint64]waiting
	older map[uint64]waiting
	turn  time.Time
}

type waiting struct {
	ticket []byte
	at     time.Time
}

const (
	seniorityFor = 90 * time.Second
	seniorityMax = 16384
)

func newSeniority() *seniority {
	return &seniority{seed: maphash.MakeSeed(), now: map[uint64]waiting{}, older: map[uint64]waiting{}}
}

// key names a call by who makes it and its whole body.
func (s *seniority) key(x *exchange) uint64 {
	var h maphash.Hash
	h.SetSeed(s.seed)
	for _, part := range [...]string{x.ask.Pool, x.ask.Agent, x.ask.Class, x.ask.Task, x.path} {
		h.WriteString(part)
		h.WriteByte(0)
	}
	h.Write(x.body)
	return h.Sum64()
}

// remember keeps the ticket of a call that is sent away with a wait.
func (s *seniority) remember(x *exchange, ticket []byte) {
	if len(ticket) == 0 {
		return
	}
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.now) >= seniorityMax || now.Sub(s.turn) > seniorityFor {
		s.older, s.now, s.turn = s.now, map[uint64]waiting{}, now
	}
	s.now[s.key(x)] = waiting{ticket, now}
}

// recall returns the ticket of a call that came before, nil when there is none.
func (s *seniority) recall(x *exchange) []byte {
	s.mu.Lock()
	empty := len(s.now) == 0 && len(s.older) == 0
	s.mu.Unlock()
	if empty { // nearly always: then a body need not be read for it
		return nil
	}
	key := s.key(x)
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.now[key]
	if ok {
		delete(s.now, key)
	} else if p, ok = s.older[key]; ok {
		delete(s.older, key)
	}
	if !ok || time.Since(p.at) > seniorityFor {
		return nil
	}
	return p.ticket
}
