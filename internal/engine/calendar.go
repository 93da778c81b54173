package engine

import (
	"context"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
)

// decideCalendar rolls periods and days that are over and keeps house.
func (p *pool) decideCalendar(b *batch) {
	p.due = p.state.Due(b.t.Wall, p.due[:0])
	if len(p.due) > 0 && p.clocksAgree(b.t) {
		for i := range p.due {
			p.roll(b, &p.due[i])
		}
	}
	if b.t.Now >= p.nextTick && p.state.Policy() != nil {
		p.nextTick = b.t.Now + tickEvery
		if b.t.Now-p.lastWork > tickEvery { // no append has told the time
			ctx, cancel := context.WithTimeout(p.ctx, patience)
			if err := p.readClock(ctx); err != nil {
				p.log.Warn("store's clock not read", "error", err)
			}
			cancel()
		}
		if p.state.Decide(&arbiter.Tick{From: p.tickFrom}, &p.decision) == nil && p.record(b) {
			p.tickFrom = p.decision.Answer.Next
		}
	}
}

func (p *pool) roll(b *batch, due *arbiter.Due) {
	next, err := Day(due.Zone, b.t.Wall)
	if due.Provider == "" {
		next, err = Bounds(due.Spec, b.t.Wall)
	}
	if err == nil {
		if aerr := p.state.Decide(&arbiter.Roll{Provider: due.Provider, Next: next}, &p.decision); aerr != nil {
			err = aerr
		}
	}
	if err != nil {
		p.log.Error("period not closed", "provider", due.Provider, "error", err)
		return
	}
	if p.record(b) && len(p.decision.Facts) > 0 {
		p.queue.dirty = true
	}
}

// clocksAgree reports whether the store's wall clock and this process's differ
// by at most a second: a period closed by a wrong clock cannot be reopened.
func (p *pool) clocksAgree(t arbiter.Time) bool {
	gap := t.Wall - time.Now().UnixNano()
	skewed := gap > maxClockGap || gap < -maxClockGap
	if skewed && !p.skewed {
		p.log.Error("period not closed: the clocks of journal and process differ", "by", time.Duration(gap))
	}
	p.skewed = skewed
	return !skewed
}
