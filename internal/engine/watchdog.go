package engine

import (
	"sync"
	"time"
)

// watchdog speaks for the writer while an append holds it: callers of an entry
// whose outcome is not known after patience are told so, and nobody else is
// kept waiting for a journal that does not answer. What they asked for may
// still land.
type watchdog struct {
	p     *pool
	timer *time.Timer

	mu     sync.Mutex
	calls  []*call // of the entry in flight
	active bool
	since  int64 // local time
}

// repeat is how often those who came later are told.
const repeat = 50 * time.Millisecond

func newWatchdog(p *pool) *watchdog {
	w := &watchdog{p: p}
	w.timer = time.AfterFunc(time.Hour, w.bark)
	w.timer.Stop()
	return w
}

func (w *watchdog) begin(calls []*call) {
	w.mu.Lock()
	w.calls, w.active, w.since = calls, true, w.p.clock.since()
	w.mu.Unlock()
	w.timer.Reset(patience)
}

func (w *watchdog) end() {
	w.timer.Stop()
	w.mu.Lock()
	w.calls, w.active = nil, false
	w.mu.Unlock()
	if w.p.health.silent.Swap(false) {
		w.p.inbox.setSilent(nil)
		w.p.log.Info("journal answers again")
	}
}

func (w *watchdog) bark() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.active || w.p.clock.since()-w.since < int64(patience) {
		return
	}
	if !w.p.health.silent.Swap(true) {
		w.p.log.Warn("journal does not answer: new requests are refused")
		w.p.inbox.setSilent(errJournalSilent(w.p.name))
	}
	tell := func(c *call) {
		if c.leave(callUnknown) {
			w.p.stats.refused()
			c.deliver()
		}
	}
	for _, c := range w.calls {
		tell(c)
	}
	for _, c := range w.p.inbox.overdue() {
		tell(c)
	}
	// The queue is the writer's, which stands still while the lock is held.
	now := w.p.clock.now()
	for _, c := range w.p.queue.expiry {
		if c.limit <= now {
			tell(c)
		}
	}
	w.timer.Reset(repeat)
}
