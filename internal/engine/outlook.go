package engine

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
)

const (
	// outlookAge is how old an outlook may be while it is asked for.
	outlookAge = time.Second
	// outlookShare bounds the work: after a look that took d, none for
	// outlookShare·d.
	outlookShare = 100
	// outlookRows bounds how many budgets of agents, workflows and tasks are
	// remembered.
	outlookRows = 10_000
)

// outlook is the latest look at what is left in a pool.
type outlook struct {
	busy atomic.Bool
	next atomic.Int64 // Unix ns
	last atomic.Pointer[arbiter.Outlook]
}

// Outlook is what was left of a pool's budgets and ceilings about a second ago:
// nil before the first look and of a pool that is not open. It waits for
// nothing; when it is time to look again, that happens in the background. A
// look that fails leaves the one before.
func (e *Engine) Outlook(pool string) *arbiter.Outlook {
	p, aerr := e.find(pool)
	if aerr != nil {
		return nil
	}
	o := &p.outlook
	if time.Now().UnixNano() >= o.next.Load() && o.busy.CompareAndSwap(false, true) {
		go p.look()
	}
	return o.last.Load()
}

func (p *pool) look() {
	o := &p.outlook
	defer o.busy.Store(false)
	ctx, cancel := context.WithTimeout(p.ctx, outlookAge)
	defer cancel()
	began := time.Now()
	err := p.e.View(ctx, p.name, func(s *arbiter.State) error {
		o.last.Store(s.Outlook(outlookRows))
		return nil
	})
	if err != nil {
		p.log.Debug("what is left is not looked at", "error", err)
	}
	o.next.Store(began.Add(max(outlookAge, outlookShare*time.Since(began))).UnixNano())
}
