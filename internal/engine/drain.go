package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// saveTimeout bounds the last appends and the last snapshot of a drain.
const saveTimeout = 20 * time.Second

// Drain takes the engine down in order: requests are refused (CodeUnavailable,
// retry after 1 s), commits and extensions go on until no lease runs or
// Options.DrainTimeout or ctx is over; then each pool is snapshotted and
// closed, all at the same time, which takes at most 25 s more however long the
// journal is silent. The error says what could not be saved; nothing that was
// answered is lost by it. Close the store afterwards.
func (e *Engine) Drain(ctx context.Context) error {
	e.mu.Lock()
	e.draining = true
	e.mu.Unlock()
	leases, cancel := context.WithTimeout(ctx, e.opts.DrainTimeout)
	defer cancel()
	names := e.Pools()
	for _, name := range names {
		if p, err := e.find(name); err == nil {
			p.inbox.stopGrants(errDraining(name))
			p.health.draining.Store(true)
			p.inbox.nudge()
		}
	}
	faults := make([]error, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		p, err := e.find(name)
		if err != nil {
			continue
		}
		wg.Go(func() {
			p.awaitLeases(leases)
			if err := p.closeWithin(ctx); err != nil {
				faults[i] = fmt.Errorf("drain pool %s: %w", name, err)
			}
		})
	}
	wg.Wait()
	e.forget(names)
	return errors.Join(faults...)
}

// awaitLeases returns when no lease runs, or when ctx ends, whoever holds the
// follower meanwhile.
func (p *pool) awaitLeases(ctx context.Context) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.followLeases(ctx)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
}

func (p *pool) followLeases(ctx context.Context) {
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
// the journals. The error says that a journal has not let go of its writer. A
// second Close does nothing.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.draining = true
	e.mu.Unlock()
	names := e.Pools()
	faults := make([]error, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		if p, err := e.find(name); err == nil {
			wg.Go(func() { faults[i] = p.close() })
		}
	}
	wg.Wait()
	e.forget(names)
	return errors.Join(faults...)
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
