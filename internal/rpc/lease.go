package rpc

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/engine"
	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
	"github.com/token-budget-arbiter/tba/internal/identity"
)

// arbiterService is the service of leases, on both ports.
type arbiterService struct {
	tbav1.UnimplementedTokenBudgetArbiterServer
	*Server
}

// requestOp translates a request into r for the engine.
func (s *Server) requestOp(m *tbav1.LeaseRequest, c *identity.Caller, r *arbiter.Request) (engine.Op, *arbiter.Error) {
	if err := checkRequest(m); err != nil {
		return engine.Op{}, err
	}
	pool, err := c.PoolFor(m.GetPool())
	if err != nil {
		return engine.Op{}, err
	}
	var policy *arbiter.Policy
	if asksPriority(m) || c.HasCeiling {
		if policy, err = s.policy(pool); err != nil {
			return engine.Op{}, err
		}
	}
	if err := toRequest(m, c, policy, r); err != nil {
		return engine.Op{}, err
	}
	if r.Model != "" { // after the fingerprint: a reload that renames a model makes no other request of a repeat
		if name, err := s.models(pool, r.Provider, r.Model); err == nil {
			r.Model = name
		}
	}
	r.Lease = engine.NewLeaseID(c.Principal, m.GetAgentId(), m.GetRequestId())
	return engine.Op{
		Pool: pool, Command: r, Ticket: m.GetTicket(), DryRun: m.GetDryRun(),
		MaxWait:  time.Duration(m.GetMaxWaitMs()) * time.Millisecond,
		Deadline: time.Duration(m.GetDeadlineMs()) * time.Millisecond,
	}, nil
}

// leasePool is the pool of a command on a lease. Without a word about it the token decides, which is signed for this principal.
func leasePool(c *identity.Caller, asked string, token []byte) (string, *arbiter.Error) {
	if asked == "" && c.Pool == "" && len(token) > 0 {
		return "", nil
	}
	return c.PoolFor(asked)
}

func (s *Server) commitOp(m *tbav1.LeaseCommit, c *identity.Caller, cmd *arbiter.Commit) (engine.Op, *arbiter.Error) {
	pool, err := leasePool(c, m.GetPool(), m.GetLeaseToken())
	if err != nil {
		return engine.Op{}, err
	}
	if err := toCommit(m, c, cmd); err != nil {
		return engine.Op{}, err
	}
	if cmd.Model != "" { // as the answer has it: with a date, an alias
		in := pool
		if in == "" {
			in = s.engine.TokenPool(m.GetLeaseToken())
		}
		if name, err := s.models(in, "", cmd.Model); err == nil {
			cmd.Model = name
		}
	}
	return engine.Op{Pool: pool, Command: cmd, Token: m.GetLeaseToken()}, nil
}

func releaseOp(m *tbav1.LeaseRelease, c *identity.Caller, cmd *arbiter.Release) (engine.Op, *arbiter.Error) {
	pool, err := leasePool(c, m.GetPool(), m.GetLeaseToken())
	if err != nil {
		return engine.Op{}, err
	}
	if err := toRelease(m, c, cmd); err != nil {
		return engine.Op{}, err
	}
	return engine.Op{Pool: pool, Command: cmd, Token: m.GetLeaseToken()}, nil
}

// extendOp and signalOp have no use for claims, but the token may tell the pool.
func (s *Server) extendOp(m *tbav1.ExtendLeaseRequest, c *identity.Caller) (engine.Op, *arbiter.Error) {
	cmd, err := toExtend(m, c)
	if err != nil {
		return engine.Op{}, err
	}
	pool, err := s.tokenPool(c, m.GetPool(), m.GetLeaseToken())
	return engine.Op{Pool: pool, Command: &cmd}, err
}

func (s *Server) signalOp(m *tbav1.SignalLeaseRequest, c *identity.Caller) (engine.Op, *arbiter.Error) {
	cmd, err := toSignal(m, c)
	if err != nil {
		return engine.Op{}, err
	}
	pool, err := s.tokenPool(c, m.GetPool(), m.GetLeaseToken())
	return engine.Op{Pool: pool, Command: &cmd}, err
}

func (s *Server) tokenPool(c *identity.Caller, asked string, token []byte) (string, *arbiter.Error) {
	if asked == "" && c.Pool == "" && len(token) > 0 {
		if pool := s.engine.TokenPool(token); pool != "" {
			return pool, nil
		}
	}
	return c.PoolFor(asked)
}

// RequestLease decides one request, and the commits that ride on it in the same pass of the pool.
func (s *arbiterService) RequestLease(ctx context.Context, m *tbav1.LeaseRequest) (*tbav1.LeaseResponse, error) {
	c, err := s.gate.caller(ctx, identity.ActionLease)
	if err != nil {
		return nil, toStatus(err)
	}
	op, err := s.requestOp(m, c, new(arbiter.Request))
	if err != nil {
		return nil, toStatus(err)
	}
	if len(m.GetSettle()) > 0 {
		return s.settleAndRequest(ctx, m, op, c)
	}
	out, fault := s.engine.Do(ctx, op)
	if fault != nil {
		return nil, toStatus(s.refused(fault))
	}
	return s.leaseResponse(new(tbav1.LeaseResponse), &out, op.Pool, m.GetModel(), routeOf(m)), nil
}

// settleAndRequest answers each commit on its own, whatever becomes of the request.
func (s *arbiterService) settleAndRequest(ctx context.Context, m *tbav1.LeaseRequest, op engine.Op, c *identity.Caller) (*tbav1.LeaseResponse, error) {
	g, ops, places := s.newSettling(m, c)
	g.pool, g.left = op.Pool, len(ops)+1
	places = append(places, len(g.commits))
	replies := s.engine.DoAll(ctx, append(ops, op))
	for i := range replies {
		g.take(s.Server, places[i], &replies[i])
	}
	out, err := g.response(s.Server)
	if err != nil {
		return nil, toStatus(err)
	}
	return out, nil
}

func pressureOf(o *engine.Outcome) pressure {
	return pressure{level: tbav1.BackpressureSignal_Level(o.Level), delay: o.DelayMS}
}

// leaseResponse writes an outcome into an empty m. route is nil when no limits are wanted.
func (s *Server) leaseResponse(m *tbav1.LeaseResponse, o *engine.Outcome, pool, model string, route *arbiter.Route) *tbav1.LeaseResponse {
	toResponse(m, &o.Answer, o.Now, pressureOf(o))
	if route != nil {
		s.addLimits(m, o, pool, route)
	}
	if o.Answer.Status != arbiter.Granted && o.Answer.Check.Reason == arbiter.ReasonUnpricedModel {
		m.Message = s.unpriced(pool, cmp.Or(model, o.Answer.Check.Scope))
	}
	m.LeaseToken, m.Ticket = o.Token, o.Ticket
	m.DecisionId = formatDecision(o.Decision)
	return m
}

// unpriced says why a model has no price, with the nearest one of the operator's list.
func (s *Server) unpriced(pool, model string) string {
	const cure = "; name a model of the catalogue, or give it a price in the file"
	if _, err := s.models(pool, "", model); err != nil {
		return err.Error() + cure
	}
	return fmt.Sprintf("unpriced model %q", cut(model)) + cure
}

// formatDecision is DecisionID.String without the reflection: every answer has one.
func formatDecision(d engine.DecisionID) string {
	if d == (engine.DecisionID{}) {
		return ""
	}
	var buf [64]byte
	b := strconv.AppendUint(buf[:0], d.Epoch, 10)
	b = strconv.AppendUint(append(b, '-'), d.Seq, 10)
	return string(strconv.AppendUint(append(b, '-'), d.Number, 10))
}

func commitResponse(m *tbav1.CommitResponse, o *engine.Outcome) *tbav1.CommitResponse {
	toCommitResponse(m, &o.Answer, pressureOf(o))
	return m
}

func releaseResponse(o *engine.Outcome) *tbav1.ReleaseResponse {
	m := toReleaseResponse(&o.Answer, pressureOf(o))
	m.Ticket = o.Ticket
	return m
}

func extendResponse(o *engine.Outcome) *tbav1.ExtendLeaseResponse {
	return toExtendResponse(&o.Answer, o.Now, pressureOf(o))
}

func signalResponse(o *engine.Outcome) *tbav1.SignalLeaseResponse {
	return toSignalResponse(&o.Answer, pressureOf(o))
}

// do runs a call that is one command: who asks, what is meant, the command, its answer.
func do[I, O any](ctx context.Context, s *arbiterService, m I, translate func(I, *identity.Caller) (engine.Op, *arbiter.Error), respond func(*engine.Outcome) O) (none O, _ error) {
	c, err := s.gate.caller(ctx, identity.ActionLease)
	if err != nil {
		return none, toStatus(err)
	}
	op, err := translate(m, c)
	if err != nil {
		return none, toStatus(err)
	}
	out, fault := s.engine.Do(ctx, op)
	if fault != nil {
		return none, toStatus(s.refused(fault))
	}
	return respond(&out), nil
}

// CommitLease ends a lease with what was used.
func (s *arbiterService) CommitLease(ctx context.Context, m *tbav1.LeaseCommit) (*tbav1.CommitResponse, error) {
	return do(ctx, s, m, func(m *tbav1.LeaseCommit, c *identity.Caller) (engine.Op, *arbiter.Error) {
		return s.commitOp(m, c, new(arbiter.Commit))
	}, func(o *engine.Outcome) *tbav1.CommitResponse { return commitResponse(new(tbav1.CommitResponse), o) })
}

// ReleaseLease ends a lease whose call used nothing.
func (s *arbiterService) ReleaseLease(ctx context.Context, m *tbav1.LeaseRelease) (*tbav1.ReleaseResponse, error) {
	return do(ctx, s, m, func(m *tbav1.LeaseRelease, c *identity.Caller) (engine.Op, *arbiter.Error) {
		return releaseOp(m, c, new(arbiter.Release))
	}, releaseResponse)
}

// ExtendLease keeps the lease of a long call alive.
func (s *arbiterService) ExtendLease(ctx context.Context, m *tbav1.ExtendLeaseRequest) (*tbav1.ExtendLeaseResponse, error) {
	return do(ctx, s, m, s.extendOp, extendResponse)
}

// SignalLease reports an event of a running call.
func (s *arbiterService) SignalLease(ctx context.Context, m *tbav1.SignalLeaseRequest) (*tbav1.SignalLeaseResponse, error) {
	return do(ctx, s, m, s.signalOp, signalResponse)
}

// Explain will return the record of a decision; records are not kept yet.
func (s *arbiterService) Explain(ctx context.Context, m *tbav1.ExplainRequest) (*tbav1.Decision, error) {
	if _, err := s.gate.caller(ctx, identity.ActionRead); err != nil {
		return nil, toStatus(err)
	}
	return nil, toStatus(notBuilt("Explain", "the refusal itself carries limit, used, held and asked"))
}

func notBuilt(call, instead string) *arbiter.Error {
	return arbiter.Errorf(arbiter.CodeUnimplemented, "not_built", "%s is in the contract, but not built yet: %s", call, instead)
}
