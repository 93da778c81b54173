package engine

import (
	"slices"
	"sync"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
)

// Event is something that happened in a pool. Sequence grows by one with each
// and is larger than any of an earlier run of the process.
type Event struct {
	Sequence uint64
	arbiter.Event
}

// EventPage is a part of the recent events, oldest first.
type EventPage struct {
	Events []Event
	// Oldest is the smallest sequence still kept, Last the largest given out;
	// both are 0 before the first event. Oldest above since+1 is a gap.
	Oldest, Last uint64
}

// ring keeps the newest events of a pool.
type ring struct {
	mu   sync.Mutex
	list []Event
	next int // index of the oldest once the ring is full
	last uint64
	news chan struct{} // closed at the next event
}

func newRing(size int) *ring {
	return &ring{
		list: make([]Event, 0, size), news: make(chan struct{}),
		// A restart must not repeat numbers: a thousand a millisecond are in reserve.
		last: uint64(time.Now().UnixMilli()) * 1000,
	}
}

func (r *ring) add(events []arbiter.Event) {
	r.mu.Lock()
	for i := range events {
		r.last++
		e := Event{Sequence: r.last, Event: events[i]}
		if len(r.list) < cap(r.list) {
			r.list = append(r.list, e)
			continue
		}
		r.list[r.next] = e
		r.next = (r.next + 1) % len(r.list)
	}
	close(r.news)
	r.news = make(chan struct{})
	r.mu.Unlock()
}

func (r *ring) page(since uint64, limit int, kinds []arbiter.EventKind) EventPage {
	r.mu.Lock()
	defer r.mu.Unlock()
	page := EventPage{}
	n := len(r.list)
	if n == 0 {
		return page
	}
	at := func(i int) *Event { return &r.list[(r.next+i)%n] }
	page.Oldest, page.Last = at(0).Sequence, r.last
	first := 0
	if since >= page.Oldest {
		first = int(min(since-page.Oldest+1, uint64(n)))
	}
	if since == 0 { // the newest
		for i := n - 1; i >= 0 && len(page.Events) < limit; i-- {
			if wants(kinds, at(i).Kind) {
				page.Events = append(page.Events, *at(i))
			}
		}
		slices.Reverse(page.Events)
		return page
	}
	for i := first; i < n && len(page.Events) < limit; i++ {
		if wants(kinds, at(i).Kind) {
			page.Events = append(page.Events, *at(i))
		}
	}
	return page
}

func wants(kinds []arbiter.EventKind, k arbiter.EventKind) bool {
	return len(kinds) == 0 || slices.Contains(kinds, k)
}

// Events returns up to limit recent events after the sequence since, of the
// given kinds or of all. since 0 returns the newest; limit 0 is 100.
func (e *Engine) Events(pool string, since uint64, limit int, kinds ...arbiter.EventKind) (EventPage, error) {
	p, err := e.find(pool)
	if err != nil {
		return EventPage{}, err
	}
	if limit <= 0 {
		limit = 100
	}
	return p.follow.events.page(since, limit, kinds), nil
}

// Follow returns a channel that is closed when the next event of a pool is
// recorded. Ask for it before reading Events, then nothing is missed.
func (e *Engine) Follow(pool string) (<-chan struct{}, error) {
	p, err := e.find(pool)
	if err != nil {
		return nil, err
	}
	r := p.follow.events
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.news, nil
}
