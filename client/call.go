package client

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// maxRequeues bounds how often a throttled call asks again; a throttle costs
	// no try, so something else must end it.
	maxRequeues = 8
	// minDeferral keeps a deferral without a wait from becoming a busy loop.
	minDeferral = 50 * time.Millisecond
)

var errPatience = errors.New("patience is over")

// CallSpec describes one call of an agent. Empty fields take the agent's.
type CallSpec struct {
	// InputTokens, OutputTokens, Tokens, MinTokens: the estimate, as in Request.
	InputTokens, OutputTokens, Tokens, MinTokens int64
	// Provider, Model, Ladder: where to, as in Request.
	Provider, Model, Ladder string
	// Except are rungs that the call must not be placed on, as in Request.
	Except []string
	// Task, Workflow, Parent place the call in its tree, as in Request.
	Task, Workflow, Parent string
	// Priority of the call. Zero: the agent's.
	Priority Priority
	// MaxWait is how long the arbiter may hold each request, as in Request.
	MaxWait time.Duration
	// Patience bounds all waiting before the call. 0: the agent's.
	Patience time.Duration
}

// Func makes one call under a lease. ctx ends with the caller's context and
// with the lease. It returns what was used, also together with an error if that
// is known; NotSent, Throttled and WithOutcome say what kind of error it is.
type Func func(ctx context.Context, l *Lease) (Usage, error)

// Call takes a lease, makes the call and ends the lease, exactly once: with the
// usage, released when the call was not sent or throttled, and at what was held
// for any other error or panic. Before that it waits: for the level if the call
// is to be shed, the recommended delay, and for its slot when deferred. A
// throttled call asks again with its seniority, up to 8 times: on a ladder at
// once, for the next rung that has room, else when the provider's wait is over.
//
// Errors: that of fn, *ShedError, *DeniedError, *DeferredError (its slot is
// beyond the patience), *RefusedError, *UnavailableError, the cause of ctx.
func (a *Agent) Call(ctx context.Context, spec CallSpec, fn Func) error {
	a.sums.calls.Add(1)
	waiting, cancel := a.waiting(ctx, spec)
	defer cancel()
	var (
		request = a.request(spec)
		after   time.Duration // what the last answer asks to wait
		local   int           // tries without an arbiter
	)
	for requeues := 0; ; {
		lease, err := a.obtain(waiting, spec, request, after)
		if err != nil {
			return err
		}
		again, err := a.run(ctx, lease, fn)
		if again == nil {
			return err
		}
		requeues++
		if lease.Local() {
			local++
			again.wait = max(again.wait, fullJitter(local-1))
		}
		if requeues > maxRequeues || local >= maxTries {
			return err
		}
		if request.Ladder != "" && len(again.ticket) > 0 {
			again.wait = 0 // the next rung may have room now; the arbiter says when none has
		}
		if deadline, ok := waiting.Deadline(); ok && time.Until(deadline) < again.wait {
			return err
		}
		request.Ticket, after = again.ticket, again.wait
	}
}

// waiting is the context of everything before a call, never of the call itself.
func (a *Agent) waiting(ctx context.Context, spec CallSpec) (context.Context, context.CancelFunc) {
	patience := spec.Patience
	if patience == 0 {
		patience = a.opts.Patience
	}
	if patience <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, patience, errPatience)
}

// obtain waits out deferrals until there is a lease or ctx would end first.
func (a *Agent) obtain(ctx context.Context, spec CallSpec, r Request, after time.Duration) (*Lease, error) {
	for {
		lease, err := a.acquire(ctx, spec, r, after)
		if err == nil {
			return lease, nil
		}
		var later *DeferredError
		if !errors.As(err, &later) {
			return nil, fmt.Errorf("agent %s: %w", a.opts.ID, err)
		}
		r.Ticket, after = later.Ticket, max(later.RetryAfter, minDeferral)
		if len(later.Ticket) == 0 {
			after = max(after, later.Delay)
		}
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < after {
			return nil, fmt.Errorf("agent %s: %w", a.opts.ID, err)
		}
	}
}

func (a *Agent) request(spec CallSpec) Request {
	r := Request{
		AgentID: a.opts.ID, Class: a.opts.Class, Pool: a.opts.Pool,
		Task: spec.Task, Workflow: spec.Workflow, Parent: spec.Parent,
		InputTokens: spec.InputTokens, OutputTokens: spec.OutputTokens, Tokens: spec.Tokens, MinTokens: spec.MinTokens,
		Provider: spec.Provider, Model: spec.Model, Ladder: spec.Ladder, Except: spec.Except,
		Priority: spec.Priority, MaxWait: spec.MaxWait,
	}
	if r.Task == "" {
		r.Task = a.opts.Task
	}
	if r.Workflow == "" {
		r.Workflow = a.opts.Workflow
	}
	if r.Priority == PriorityDefault {
		r.Priority = a.opts.Priority
	}
	return r
}

// acquire does everything before a lease. after and the recommended delay are
// two ways to say one thing: the larger counts, and a ticket's slot is exact.
func (a *Agent) acquire(ctx context.Context, spec CallSpec, r Request, after time.Duration) (*Lease, error) {
	if err := a.admit(ctx, spec, r.Priority); err != nil {
		return nil, err
	}
	if len(r.Ticket) == 0 {
		after = max(after, a.Delay())
	}
	if err := a.wait(ctx, after); err != nil {
		return nil, err
	}
	lease, err := a.c.Acquire(ctx, r)
	var later *DeferredError
	var no *DeniedError
	switch {
	case err == nil:
		a.sums.granted.Add(1)
		if lease.Local() {
			a.sums.local.Add(1)
		} else {
			a.observe(lease.Level(), lease.Delay())
		}
	case errors.As(err, &later):
		a.sums.deferred.Add(1)
	case errors.As(err, &no):
		a.sums.denied.Add(1)
	}
	return lease, err
}

// requeue is how a throttled call comes back.
type requeue struct {
	ticket []byte
	wait   time.Duration
}

// run makes the call and ends its lease. It returns a requeue for a throttle,
// with the error in case there is no next time.
func (a *Agent) run(ctx context.Context, l *Lease, fn Func) (*requeue, error) {
	bound, cancel := l.Bind(ctx)
	defer cancel()
	start := time.Now()
	returned := false
	defer func() {
		if !returned { // fn panicked or ended the goroutine
			_ = a.settle(l, Report{Outcome: OutcomeError, Latency: time.Since(start)})
		}
	}()
	u, err := fn(bound, l)
	returned = true
	outcome, signal := verdict(bound, err)
	if err != nil && outcome.unused() && u == (Usage{}) {
		back := a.giveBack(ctx, l, err, outcome, signal)
		if outcome == OutcomeThrottled {
			return back, err
		}
		return nil, err
	}
	if e := a.settle(l, Report{Usage: u, Outcome: outcome, Latency: time.Since(start), Provider: signal}); err == nil {
		err = e
	}
	return nil, err
}

func (a *Agent) giveBack(ctx context.Context, l *Lease, err error, o Outcome, p *ProviderSignal) *requeue {
	a.sums.outcome(o)
	back := &requeue{}
	if p != nil {
		back.wait = p.RetryAfter
	}
	got, e := l.ReleaseReport(ctx, reasonOf(err), o, p)
	if e != nil || l.Local() {
		return back // the lease expires by itself, and the provider's word stands
	}
	a.observe(got.Level, got.Delay)
	back.ticket, back.wait = got.Ticket, max(back.wait, got.RetryAfter)
	return back
}

// reasonOf cuts an error to what a release may carry.
func reasonOf(err error) string {
	const most = 256
	s := []rune(err.Error())
	for i, r := range s {
		if r < ' ' || r == 0x7f {
			s[i] = ' '
		}
	}
	for len(string(s)) > most {
		s = s[:min(len(s)-1, most)]
	}
	return string(s)
}

// settle commits. A commit that only waits for the network is no error of the
// call: it goes on in the background.
func (a *Agent) settle(l *Lease, r Report) error {
	a.sums.outcome(r.Outcome)
	if l.c.outbox.settles() && !l.Local() {
		l.CommitLater(r, func(got Receipt, err error) { a.spent(l, r, got, err) })
		return nil
	}
	got, err := l.CommitReport(context.Background(), r)
	var away *UnavailableError
	if errors.As(err, &away) && away.Queued {
		a.spent(l, r, Receipt{LeaseID: l.id, Pending: true}, nil)
		return nil
	}
	a.spent(l, r, got, err)
	return err
}
