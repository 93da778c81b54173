package gateway

import (
	"sync/atomic"
	"time"
)

// drains bounds how many answers are read to their end although their agents have left.
type drains struct{ n atomic.Int64 }

// enter takes a try in, if drain is on and there is room; it is stopped when drain_for is over.
func (d *drains) enter(t *try) bool {
	s := t.x.settings
	if !s.Drain || t.lost.Load() {
		return false
	}
	if d.n.Add(1) > int64(s.MaxDrains) {
		d.n.Add(-1)
		return false
	}
	t.x.g.hooks.draining(d.n.Load())
	t.drained.Store(true)
	time.AfterFunc(s.DrainFor, t.cancel)
	return true
}

func (d *drains) leave() { d.n.Add(-1) }
