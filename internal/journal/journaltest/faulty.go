package journaltest

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"github.com/token-budget-arbiter/tba/internal/journal"
)

// Fault is what Faulty does to one append.
type Fault int

// The faults. The zero value is none.
const (
	None       Fault = iota
	Stall            // waits for Resume, then appends; ErrUnknown if ctx ends first
	FailBefore       // ErrUnknown, nothing was appended
	FailAfter        // ErrUnknown, the entry was appended
	Repeat           // appended twice; the second answer is returned
	LandLate         // ErrUnknown at once; appended at Resume
	Full             // ErrFull for entries that are not essential
	faults
)

// String returns the fault's name.
func (f Fault) String() string {
	return [...]string{"none", "stall", "fail before", "fail after", "repeat", "land late", "full"}[f]
}

// Faulty is a Store whose appends fail as planned. It counts the faults that
// really happened: a fault test whose count is zero has proved nothing. All
// methods may be called concurrently.
type Faulty struct {
	journal.Store

	mu     sync.Mutex
	plan   func(n int) Fault
	calls  int
	counts [faults]int
	resume chan struct{}
	late   []func()
}

// NewFaulty wraps store. The plan is asked for each append, numbered from 0
// over all pools, one at a time; nil means no faults.
func NewFaulty(store journal.Store, plan func(n int) Fault) *Faulty {
	return &Faulty{Store: store, plan: plan, resume: make(chan struct{})}
}

// SetPlan replaces the plan; numbers go on.
func (f *Faulty) SetPlan(plan func(n int) Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.plan = plan
}

// Count returns how often a fault has happened.
func (f *Faulty) Count(fault Fault) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts[fault]
}

// Resume lets stalled appends go on and late ones land, in their order, and
// returns when the late ones have landed or were refused.
func (f *Faulty) Resume() {
	f.mu.Lock()
	close(f.resume)
	f.resume = make(chan struct{})
	late := f.late
	f.late = nil
	f.mu.Unlock()
	for _, land := range late {
		land()
	}
}

// Open implements journal.Store.
func (f *Faulty) Open(ctx context.Context, pool string) (journal.Journal, error) {
	j, err := f.Store.Open(ctx, pool)
	if err != nil {
		return nil, err
	}
	return &faultyJournal{Journal: j, faulty: f}, nil
}

type faultyJournal struct {
	journal.Journal
	faulty *Faulty
}

// next decides the fault of an append; count says that it will happen.
func (f *Faulty) next(essential bool) (Fault, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fault := None
	if f.plan != nil {
		fault = f.plan(f.calls)
	}
	f.calls++
	if fault == Full && essential {
		fault = None
	}
	f.counts[fault]++
	return fault, f.resume
}

// Append implements journal.Journal.
func (j *faultyJournal) Append(ctx context.Context, req journal.AppendRequest) (journal.Result, error) {
	fault, resume := j.faulty.next(req.Essential)
	unknown := func() (journal.Result, error) {
		return journal.Result{}, fmt.Errorf("append: %w: injected fault %q", journal.ErrUnknown, fault)
	}
	switch fault {
	case Stall:
		select {
		case <-resume:
		case <-ctx.Done():
			return unknown()
		}
	case FailBefore:
		return unknown()
	case FailAfter:
		if _, err := j.Journal.Append(ctx, req); err != nil {
			return journal.Result{}, err // it was refused: nothing to hide
		}
		return unknown()
	case Repeat:
		if res, err := j.Journal.Append(ctx, req); err != nil {
			return res, err
		}
	case LandLate:
		req.Entry = bytes.Clone(req.Entry)
		j.faulty.mu.Lock()
		j.faulty.late = append(j.faulty.late, func() {
			_, _ = j.Journal.Append(context.WithoutCancel(ctx), req) // its caller is gone
		})
		j.faulty.mu.Unlock()
		return unknown()
	case Full:
		return journal.Result{}, fmt.Errorf("append: %w: injected fault", journal.ErrFull)
	}
	return j.Journal.Append(ctx, req)
}
