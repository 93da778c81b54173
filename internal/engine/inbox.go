package engine

import (
	"sync"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
)

// inbox hands commands from callers to the writer: a mutex and slices that the
// writer swaps out, so that a caller holds it for a few instructions.
type inbox struct {
	name string
	size int // bound of requests; the other lanes together may take as much again

	mu     sync.Mutex
	lanes  [lanes][]*call
	left   []*call        // callers of requests that left
	others int            // in lanes other than requests
	refuse *arbiter.Error // why nothing is accepted any more
	silent *arbiter.Error // why no request is accepted: the journal does not answer
	grants *arbiter.Error // why no request is accepted
	asleep bool           // the writer waits on wake
	hurry  bool           // requests wait for room: what may give it back wakes the writer at once
	lying  bool           // commands that nobody waits for lie here, and alarm is set
	alarm  *time.Timer    // wakes the writer for them
	wake   chan struct{}
}

// lieFor is how long a command that nobody waits for may lie in the inbox of an idle writer. What comes meanwhile shares its journal
// entry: an agent's next request carries the commit of its last call.
const lieFor = 2 * time.Millisecond

// pushLater is push for a command that nobody waits for.
func (b *inbox) pushLater(c *call) *arbiter.Error {
	b.mu.Lock()
	err := b.add(c)
	wake := false
	switch {
	case err != nil || !b.asleep || b.lying:
	case b.hurry:
		wake = b.rouse()
	default:
		b.lying = true
		if b.alarm == nil {
			b.alarm = time.AfterFunc(lieFor, b.nudge)
		} else {
			b.alarm.Reset(lieFor)
		}
	}
	b.mu.Unlock()
	if wake {
		b.wake <- struct{}{}
	}
	return err
}

// push hands one command over. An error is definite: it was not accepted.
func (b *inbox) push(c *call) *arbiter.Error {
	b.mu.Lock()
	err := b.add(c)
	wake := b.rouse()
	b.mu.Unlock()
	if wake {
		b.wake <- struct{}{}
	}
	return err
}

// pushAll hands several over at once, so that one batch takes them. errs[i] is
// set where list[i] was not accepted; nil entries of list are skipped.
func (b *inbox) pushAll(list []*call, errs []error) {
	b.mu.Lock()
	for i, c := range list {
		if c == nil {
			continue
		}
		if err := b.add(c); err != nil {
			errs[i] = err
		}
	}
	wake := b.rouse()
	b.mu.Unlock()
	if wake {
		b.wake <- struct{}{}
	}
}

// gone tells the writer that the caller of a request left.
func (b *inbox) gone(c *call) {
	if c.lane != laneRequest {
		return
	}
	b.mu.Lock()
	b.left = append(b.left, c)
	wake := b.rouse()
	b.mu.Unlock()
	if wake {
		b.wake <- struct{}{}
	}
}

// void gives back a grant that reached nobody.
func (b *inbox) void(c *call) {
	b.mu.Lock()
	b.lanes[laneVoid] = append(b.lanes[laneVoid], voidOf(c))
	wake := b.rouse()
	b.mu.Unlock()
	if wake {
		b.wake <- struct{}{}
	}
}

// rouse reports whether the writer must be woken; the lock is held.
func (b *inbox) rouse() bool {
	if !b.asleep {
		return false
	}
	b.asleep = false
	return true
}

func (b *inbox) add(c *call) *arbiter.Error {
	if b.refuse != nil {
		return b.refuse
	}
	if c.lane == laneRequest {
		if b.grants != nil && !c.dryRun {
			return b.grants
		}
		if b.silent != nil {
			return b.silent
		}
		if len(b.lanes[laneRequest]) >= b.size {
			return errInboxFull(b.name)
		}
	} else {
		if b.others >= b.size {
			return errInboxFull(b.name)
		}
		b.others++
	}
	b.lanes[c.lane] = append(b.lanes[c.lane], c)
	return nil
}

// take swaps the lanes with the writer's empty ones.
func (b *inbox) take(lanes *[lanes][]*call, left *[]*call) {
	b.mu.Lock()
	b.lanes, *lanes = *lanes, b.lanes
	b.left, *left = *left, b.left
	b.others = 0
	if b.lying {
		b.lying = false
		b.alarm.Stop()
	}
	b.mu.Unlock()
}

// sleep reports whether there is nothing to do, and then expects a wake. hurry says that requests wait for room.
func (b *inbox) sleep(hurry bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hurry = hurry
	n := len(b.left)
	for i := range b.lanes {
		n += len(b.lanes[i])
	}
	b.asleep = n == 0
	return b.asleep
}

// awake ends sleep for another reason than a wake; it takes a wake that was
// already promised.
func (b *inbox) awake() {
	b.mu.Lock()
	promised := !b.asleep
	b.asleep = false
	b.mu.Unlock()
	if promised {
		<-b.wake
	}
}

// depth is how many commands no batch has taken yet.
func (b *inbox) depth() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.lanes[laneRequest]) + b.others
}

// stopGrants refuses further requests; nil accepts them again. dryRuns pass.
func (b *inbox) stopGrants(err *arbiter.Error) {
	b.mu.Lock()
	b.grants = err
	b.mu.Unlock()
}

// close refuses everything from now on.
func (b *inbox) close(err *arbiter.Error) {
	b.mu.Lock()
	b.refuse = err
	b.mu.Unlock()
}

// setSilent refuses requests while the journal does not answer.
func (b *inbox) setSilent(err *arbiter.Error) {
	b.mu.Lock()
	b.silent = err
	b.mu.Unlock()
}

// overdue returns what lies in the inbox. Requests are taken out; the others
// stay and are decided late: a commit and an extension count whenever they
// come to be written.
func (b *inbox) overdue() []*call {
	b.mu.Lock()
	defer b.mu.Unlock()
	var list []*call
	for l := range b.lanes {
		list = append(list, b.lanes[l]...)
	}
	clear(b.lanes[laneRequest])
	b.lanes[laneRequest] = b.lanes[laneRequest][:0]
	return list
}

// nudge wakes the writer without a command.
func (b *inbox) nudge() {
	b.mu.Lock()
	wake := b.rouse()
	b.mu.Unlock()
	if wake {
		b.wake <- struct{}{}
	}
}
