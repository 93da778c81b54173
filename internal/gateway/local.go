package gateway

import (
	"context"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/engine"
	"github.com/token-budget-arbiter/tba/internal/provider"
)

// Local is the arbiter in this process.
type Local struct{ engine *engine.Engine }

// NewLocal makes a Leaser of an engine.
func NewLocal(e *engine.Engine) *Local { return &Local{e} }

// Acquire asks the engine.
func (l *Local) Acquire(ctx context.Context, a *Ask) (Grant, error) {
	r := arbiter.Request{
		Principal: a.Caller.Principal, Agent: a.Agent, Class: a.Class, Task: a.Task, Workflow: a.Workflow,
		Ladder: a.Ladder, Model: a.Model, Except: a.Except, Tier: a.Tier, Priority: a.Priority,
		Input: a.Input, Output: a.Output, NoStartDelay: true, MaxWait: int64(a.MaxWait),
	}
	if a.Parent != "" {
		parent, err := engine.ParseLeaseID(a.Parent)
		if err != nil {
			return Grant{}, arbiter.Errorf(arbiter.CodeInvalid, "parent_lease_id", "parent lease: %v", err)
		}
		r.Parent = parent
	}
	out, err := l.engine.Do(ctx, engine.Op{Pool: a.Pool, Command: &r, MaxWait: a.MaxWait, Deadline: a.Deadline, Ticket: a.Ticket})
	if err != nil {
		return Grant{}, err
	}
	g := Grant{
		Status: out.Answer.Status, Check: out.Answer.Check, RetryAfter: time.Duration(out.Answer.RetryAfter),
		Level: out.Level, DelayMS: out.DelayMS, Decision: out.Decision.String(), Ticket: out.Ticket, Waited: out.Waited, Flags: out.Answer.Flags,
	}
	if g.Status == arbiter.Granted {
		state := &out.Answer.Lease
		g.ID, g.Provider, g.Model = engine.FormatLeaseID(state.Lease), state.Provider, state.Model
		g.Input, g.Output, g.TTL = state.Input, state.Output, time.Duration(state.Deadline-out.Now)
		at, model := g.Provider, g.Model
		l.engine.Outlook(a.Pool) // it looks while the call runs
		g.Figures = func() (*arbiter.Check, []provider.Limit) {
			return figuresOf(l.engine.Outlook(a.Pool), a, at, model)
		}
		g.Lease = &localLease{engine: l.engine, pool: a.Pool, principal: a.Caller.Principal, id: state.Lease, token: out.Token}
	}
	return g, nil
}

type localLease struct {
	engine    *engine.Engine
	pool      string
	principal uint64
	id        arbiter.LeaseID
	token     []byte
}

func (l *localLease) Commit(r Report) error {
	c := arbiter.Commit{
		Lease: l.id, Principal: l.principal, HasUsage: r.HasUsage, Usage: r.Usage, HasActual: !r.HasUsage && r.Actual > 0, Actual: r.Actual,
		Model: r.Model, Tier: r.Tier, Longest: r.Longest,
		Estimated: r.Estimated, Outcome: r.Outcome, Latency: int64(r.Latency), FirstByte: int64(r.FirstByte), Signal: r.Signal,
	}
	_, err := l.engine.Start(engine.Op{Pool: l.pool, Command: &c, Token: l.token})
	return err
}

func (l *localLease) Release(ctx context.Context, r Report) ([]byte, time.Duration, error) {
	c := arbiter.Release{Lease: l.id, Principal: l.principal, Outcome: r.Outcome, Signal: r.Signal}
	out, err := l.engine.Do(ctx, engine.Op{Pool: l.pool, Command: &c, Token: l.token})
	return out.Ticket, time.Duration(out.Answer.RetryAfter), err
}

func (l *localLease) Extend(ctx context.Context) error {
	_, err := l.engine.Do(ctx, engine.Op{Pool: l.pool, Command: &arbiter.Extend{Lease: l.id, Principal: l.principal}})
	return err
}

func (l *localLease) FirstByte(ctx context.Context) error {
	_, err := l.engine.Do(ctx, engine.Op{Pool: l.pool, Command: &arbiter.Signal{Lease: l.id, Principal: l.principal, FirstByte: true}})
	return err
}
