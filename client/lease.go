package client

import (
	"context"
	"fmt"
	"sync"
	"time"

	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
)

// endPatience bounds how long Commit and Release try before they leave the
// rest to the background.
const endPatience = 10 * time.Second

// Lease is leave to make one call. Its holder ends it exactly once, with
// Commit, CommitLater or Release; repeats do no harm. Safe for concurrent use.
type Lease struct {
	c *Client

	id, requestID, pool  string
	provider, model      string
	token                []byte
	tokens, outputTokens int64
	costNanos            int64
	ttl                  time.Duration
	startBy              time.Time
	level                Level
	delay                time.Duration
	decisionID           string
	shadowDenied         string
	phase                Phase
	replayed, local      bool

	limits []LimitState

	ctx    context.Context
	cancel context.CancelCauseFunc

	mu      sync.Mutex
	over    bool // ended or lost: not extended any more
	expires time.Time
	timer   *time.Timer
}

func newLease(ctx context.Context, c *Client, q *tbav1.LeaseRequest, m *tbav1.LeaseResponse, sent time.Time) *Lease {
	ttl := duration(m.GetTtlMs())
	if ttl == 0 {
		ttl = time.Duration(max(m.GetTtlSeconds(), 0)) * time.Second
	}
	l := &Lease{
		c: c, id: m.GetLeaseId(), requestID: q.GetRequestId(), pool: q.GetPool(),
		provider: m.GetAssignedProvider(), model: m.GetAssignedModel(), token: m.GetLeaseToken(),
		tokens: int64(m.GetGrantedTokens()), costNanos: m.GetEstimatedCostNanos(), ttl: ttl,
		level: Level(m.GetBackpressure()), delay: delay(m.GetRecommendedDelayMs()),
		decisionID: m.GetDecisionId(), shadowDenied: m.GetShadowDenied(),
		phase: Phase(m.GetPhase()), replayed: m.GetReplayed(),
	}
	// What is missing from the estimate was cut from the output.
	input := int64(0)
	if q.EstimatedOutputTokens != nil {
		input = int64(q.GetEstimatedTokens()) - q.GetEstimatedOutputTokens()
	}
	l.outputTokens = max(l.tokens-input, 0)
	if ms := m.GetStartByMs(); ms > 0 {
		l.startBy = time.Now().Add(duration(ms))
	}
	for _, s := range m.GetLimits() {
		l.limits = append(l.limits, limitState(s))
	}
	l.expires = sent.Add(ttl)
	l.bear(ctx)
	return l
}

// bear gives the lease its context: the values of the request, but not its end.
func (l *Lease) bear(ctx context.Context) {
	l.ctx, l.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
}

// ID returns the lease id, which Commit of another process may name too.
// Empty: a lease of the local fallback.
func (l *Lease) ID() string { return l.id }

// RequestID returns the id under which the lease was asked for.
func (l *Lease) RequestID() string { return l.requestID }

// Provider returns the provider to call.
func (l *Lease) Provider() string { return l.provider }

// Model returns the model to call. Empty: any of the provider.
func (l *Lease) Model() string { return l.model }

// Tokens returns what the call may use, input plus output.
func (l *Lease) Tokens() int64 { return l.tokens }

// OutputTokens returns what the call may use of output. Below the request's
// after a partial grant: cap the answer there.
func (l *Lease) OutputTokens() int64 { return l.outputTokens }

// CostNanos returns the money held for the call, in nano-USD (10^-9 USD).
func (l *Lease) CostNanos() int64 { return l.costNanos }

// TTL returns the life of the lease without extension. 0: a local lease.
func (l *Lease) TTL() time.Duration { return l.ttl }

// StartBy returns when the call must have started. Zero: no such bound.
func (l *Lease) StartBy() time.Time { return l.startBy }

// Level returns the pool's backpressure at the grant.
func (l *Lease) Level() Level { return l.level }

// Delay returns the delay recommended before the next call.
func (l *Lease) Delay() time.Duration { return l.delay }

// DecisionID returns the key to the decision's record. Empty: not recorded.
func (l *Lease) DecisionID() string { return l.decisionID }

// ShadowDenied returns the reason why this would have been refused without
// shadow mode. Empty: it would have been granted too.
func (l *Lease) ShadowDenied() string { return l.shadowDenied }

// Limits returns what was left on the way of the lease about a second before
// the grant: the budget with the smallest part left, then the ceilings of its
// model. nil: not asked for (Request.WantLimits), nothing is limited, or not
// known yet.
func (l *Lease) Limits() []LimitState { return l.limits }

// Phase returns where the lease was when it was answered: past PhaseActive if
// a repeated request found it ended.
func (l *Lease) Phase() Phase { return l.phase }

// Replayed reports whether this repeats the answer to an earlier request of
// the same ID.
func (l *Lease) Replayed() bool { return l.replayed }

// Local reports whether the local fallback granted it: the arbiter knows
// nothing of it, and its usage is not recorded.
func (l *Lease) Local() bool { return l.local }

// Context returns the context of the lease. It has the values of the context
// given to Acquire, but neither its deadline nor its end: it ends with the
// lease, with a cause: *RevokedError, *LostError, ErrLeaseEnded or ErrClosed.
// [Lease.Bind] joins it with the context of a call.
func (l *Lease) Context() context.Context { return l.ctx }

// Bind returns a child of ctx that also ends with the lease, with the same
// cause. Call cancel when done.
func (l *Lease) Bind(ctx context.Context) (bound context.Context, cancel context.CancelFunc) {
	bound, end := context.WithCancelCause(ctx)
	stop := context.AfterFunc(l.ctx, func() { end(context.Cause(l.ctx)) })
	return bound, func() {
		stop()
		end(context.Canceled)
	}
}

// Commit ends the lease with what the call used. See [Lease.CommitReport].
func (l *Lease) Commit(ctx context.Context, u Usage) (Receipt, error) {
	return l.CommitReport(ctx, Report{Usage: u})
}

// CommitReport ends the lease with all that can be said about the call.
//
// The end of ctx does not stop it: a commit must not be lost because the call
// that it settles was cancelled. It gives up after 10 s, and then goes on in
// the background; the *UnavailableError says so in Queued. Other errors:
// *CommitError, *RefusedError.
func (l *Lease) CommitReport(ctx context.Context, r Report) (Receipt, error) {
	defer l.end(ErrLeaseEnded)
	l.stop()
	if l.local {
		return Receipt{Tokens: r.Usage.Tokens(), Local: true}, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endPatience)
	defer cancel()
	m := r.wire(l.id, l.pool, l.token)
	a, err := l.c.exchange(ctx, commitCall(m))
	if err != nil {
		return Receipt{LeaseID: l.id}, fmt.Errorf("commit lease %s: %w", l.id, l.c.outbox.rescue(m, err))
	}
	got, err := receipt(l.id, a.GetCommit())
	if got.Pending {
		l.c.outbox.add(m, nil)
	}
	return got, err
}

// CommitLater ends the lease and sends the report in the background: with the
// next request if the client was made with WithSettle, else at once. What
// becomes of it goes to done, which must not block, and to WithOnCommit. Either
// may be nil.
func (l *Lease) CommitLater(r Report, done func(Receipt, error)) {
	defer l.end(ErrLeaseEnded)
	l.stop()
	if l.local {
		if done != nil {
			done(Receipt{Tokens: r.Usage.Tokens(), Local: true}, nil)
		}
		return
	}
	l.c.outbox.add(r.wire(l.id, l.pool, l.token), done)
}

// Released is what the arbiter says to a release.
type Released struct {
	// Ticket keeps the seniority of a throttled call; put it into the next
	// Request. Empty unless a throttle was reported.
	Ticket []byte
	// RetryAfter is when that makes sense.
	RetryAfter time.Duration
	// Level is the pool's backpressure.
	Level Level
	// Delay is recommended before the next call.
	Delay time.Duration
}

// Release gives the lease back because its call was not sent; reason is for
// people. Errors and ctx as in [Lease.CommitReport], but nothing goes on in the
// background: a lease that cannot be released expires.
func (l *Lease) Release(ctx context.Context, reason string) error {
	_, err := l.ReleaseReport(ctx, reason, OutcomeNotSent, nil)
	return err
}

// ReleaseReport gives the lease back and says how the call ended without using
// anything: OutcomeNotSent, OutcomeThrottled, OutcomeExhausted, ... p may be
// nil.
func (l *Lease) ReleaseReport(ctx context.Context, reason string, o Outcome, p *ProviderSignal) (Released, error) {
	defer l.end(ErrLeaseEnded)
	l.stop()
	if l.local {
		return Released{}, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endPatience)
	defer cancel()
	a, err := l.c.exchange(ctx, releaseCall(&tbav1.LeaseRelease{
		LeaseId: l.id, LeaseToken: l.token, Pool: l.pool,
		Reason: reason, Outcome: tbav1.LeaseCommit_Outcome(o), ProviderSignal: p.wire(),
	}))
	if err != nil {
		return Released{}, fmt.Errorf("release lease %s: %w", l.id, err)
	}
	m := a.GetRelease()
	return Released{
		Ticket: m.GetTicket(), RetryAfter: duration(m.GetRetryAfterMs()),
		Level: Level(m.GetBackpressure()), Delay: delay(m.GetRecommendedDelayMs()),
	}, nil
}
