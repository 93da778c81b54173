package gateway

import (
	"context"
	"sync/atomic"
	"time"
)

// drains bounds how many answers are read to their end although their agents have left.
type drains struct{ n atomic.Int64 }

// What a try has of a drain.
const (
	undrained int32 = iota
	draining        // it holds one of the drains
	settled         // it has given it back, or will never take one
)

// enter takes a try in, if drain is on and there is room; it is stopped when drain_for is over.
func (d *drains) enter(t *try) bool {
	s := t.x.settings
	if !s.Drain || t.lost.Load() {
		return false
	}
	n := d.n.Add(1)
	if n > int64(s.MaxDrains) || !t.drain.CompareAndSwap(undrained, draining) {
		d.n.Add(-1)
		return false
	}
	t.x.g.hooks.draining(n)
	limit := time.AfterFunc(s.DrainFor, t.cancel)
	context.AfterFunc(t.ctx, func() { limit.Stop() }) // else it would keep the call, with its body, to the end of its time
	return true
}

// leave gives back what the try has taken. It may be called more than once.
func (d *drains) leave(t *try) {
	if t.drain.Swap(settled) == draining {
		t.x.g.hooks.draining(d.n.Add(-1))
	}
}
