package engine

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// saveTimeout bounds the last snapshot of a pool.
const saveTimeout = 30 * time.Second

// Drain takes the engine down in order: requests are refused (CodeUnavailable,
// retry after 1 s), commits and extensions go on until no lease runs or
// Options.DrainTimeout or ctx is over; then each pool is snapshotted and
// closed. The error says what could not be saved; nothing that was answered is
// lost by it. Close the store afterwards.
func (e *Engine) Drain(ctx context.Context) error {
	e.mu.Lock()
	e.draining = true
	e.mu.Unlock()
	leases, cancel := context.WithTimeout(ctx, e.opts.DrainTimeout)
	defer cancel()
	var faults []error
	names := e.Pools()
	for _, name := range names {
		if p, err := e.find(name); err == nil {
			p.inbox.stopGrants(errDraining(name))
			p.health.draining.Store(true)
			p.inbox.nudge()
		}
	}
	for _, name := range names {
		p, err := e.find(name)
		if err != nil {
			continue
		}
		p.awaitLeases(leases)
		if err := p.closeWithin(ctx); err != nil {
			faults = append(faults, fmt.Errorf("drain pool %s: %w", name, err))
		}
	}
	e.forget(names)
	return errors.Join(faults...)
}

// awaitLeases returns when no lease runs, or when ctx ends.
func (p *pool) awaitLeases(ctx context.Context) {
	for {
		seq := p.follow.handed()
		if p.follow.wait(ctx, seq) != nil {
			return
		}
		p.follow.mu.Lock()
		counts := p.follow.state.Counts()
		p.follow.mu.Unlock()
		if counts.Running() == 0 {
			return
		}
		if p.follow.wait(ctx, seq+1) != nil { // the next entry
			return
		}
	}
}

// Close stops all pools at once, without snapshots. What was answered is in
// the journals. A second Close does nothing.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.draining = true
	e.mu.Unlock()
	names := e.Pools()
	for _, name := range names {
		if p, err := e.find(name); err == nil {
			p.close()
		}
	}
	e.forget(names)
	return nil
}

func (e *Engine) forget(names []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, name := range names {
		delete(e.pools, name)
	}
}

// closeWithin is closeSaved with a bound of its own: a drain that ran out of
// time still saves.
func (p *pool) closeWithin(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTimeout)
	defer cancel()
	return p.closeSaved(ctx)
}
