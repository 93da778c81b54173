package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
)

// Acquire asks for a lease and waits for the answer, for room up to MaxWait.
// Errors: *DeniedError, *DeferredError, *RefusedError, *UnavailableError (when
// no fallback is set for the pool), the cause of ctx, or a request that cannot
// be sent. A grant that comes after ctx has ended is given back: by this client
// where the answer still reaches it, else by the arbiter, and after an RPC the
// client asks once more in the background whether there is one.
//
// Every lease must be ended with Commit, CommitLater or Release. Until then it
// is extended by itself.
func (c *Client) Acquire(ctx context.Context, r Request) (*Lease, error) {
	if r.Pool == "" {
		r.Pool = c.opts.pool
	}
	if r.MaxWait == 0 {
		r.MaxWait = c.opts.maxWait
	}
	deadline, ok := ctx.Deadline()
	m, err := r.wire(deadline, ok)
	if err != nil {
		return nil, fmt.Errorf("acquire lease: %w", err)
	}
	riding := c.outbox.board(m)
	sent := time.Now()
	a, err := c.exchange(ctx, requestCall(m))
	c.outbox.land(riding, a.GetLease(), err)
	var away *UnavailableError
	if errors.As(err, &away) {
		if local := c.fallback(r.Pool); local != nil && !r.DryRun {
			return c.acquireLocally(ctx, local, &r)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("acquire lease: %w", err)
	}
	return c.accept(ctx, m, a.GetLease(), sent)
}

func (c *Client) accept(ctx context.Context, q *tbav1.LeaseRequest, m *tbav1.LeaseResponse, sent time.Time) (*Lease, error) {
	switch m.GetStatus() {
	case tbav1.LeaseStatus_GRANTED:
		l := newLease(ctx, c, q, m, sent)
		if q.GetDryRun() {
			l.end(ErrLeaseEnded)
			return l, nil
		}
		if l.replayed && l.ttl <= 0 { // a repeat, at the very end
			l.end(&LostError{LeaseID: l.id, Reason: "expired", server: true})
			return l, nil
		}
		if l.phase > PhaseActive { // a repeat under the same ID, too late
			l.end(&LostError{LeaseID: l.id, Reason: l.phase.String(), server: true})
			return l, nil
		}
		if err := c.register(l); err != nil {
			return nil, err
		}
		return l, nil
	case tbav1.LeaseStatus_DENIED:
		return nil, &DeniedError{
			Reason: m.GetReason(), LimitName: m.GetLimitName(), Unit: m.GetLimitUnit(),
			Limit: m.GetLimit(), Used: m.GetUsed(), Held: m.GetHeld(), Asked: m.GetAsked(),
			ResetsAt: resetsAt(m), Message: m.GetMessage(), DecisionID: m.GetDecisionId(),
		}
	case tbav1.LeaseStatus_DEFERRED:
		wait := duration(m.GetRetryAfterMs())
		if wait == 0 { // a server of the published definition says it in seconds
			wait = time.Duration(max(m.GetTtlSeconds(), 0)) * time.Second
		}
		return nil, &DeferredError{
			RetryAfter: wait, Ticket: m.GetTicket(), Reason: m.GetReason(),
			LimitName: m.GetLimitName(), Unit: m.GetLimitUnit(),
			Limit: m.GetLimit(), Used: m.GetUsed(), Held: m.GetHeld(), Asked: m.GetAsked(),
			ResetsAt: resetsAt(m), Message: m.GetMessage(), Delay: delay(m.GetRecommendedDelayMs()), DecisionID: m.GetDecisionId(),
		}
	}
	return nil, fmt.Errorf("acquire lease: the arbiter answered with status %d, which this client does not know: update it", m.GetStatus())
}

func resetsAt(m *tbav1.LeaseResponse) time.Time {
	if m.GetResetsAt() == nil {
		return time.Time{}
	}
	return m.GetResetsAt().AsTime()
}

func delay(ms int32) time.Duration { return duration(int64(ms)) }

// register makes a lease known for revocations and starts to keep it alive.
func (c *Client) register(l *Lease) error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		l.end(ErrClosed)
		return ErrClosed
	}
	c.leases[l.id] = l
	c.mu.Unlock()
	l.keep()
	return nil
}

func (c *Client) forget(l *Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leases[l.id] == l {
		delete(c.leases, l.id)
	}
}

// handBack is the release of a grant that nobody waits for any more. nil: m is
// none, or repeats a lease that is in use here.
func (c *Client) handBack(m *tbav1.LeaseResponse) *tbav1.LeaseRelease {
	if m.GetStatus() != tbav1.LeaseStatus_GRANTED || m.GetLeaseId() == "" || Phase(m.GetPhase()) > PhaseActive {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leases[m.GetLeaseId()] != nil {
		return nil
	}
	return &tbav1.LeaseRelease{
		LeaseId: m.GetLeaseId(), LeaseToken: m.GetLeaseToken(),
		Reason: "caller gave up", Outcome: tbav1.LeaseCommit_NOT_SENT,
	}
}

// revoked is told by a link about a lease to stop.
func (c *Client) revoked(m *tbav1.Revocation) {
	c.mu.Lock()
	l := c.leases[m.GetLeaseId()]
	c.mu.Unlock()
	if l == nil {
		return
	}
	if m.GetReason() == "expired" {
		l.lose(&LostError{LeaseID: l.id, Reason: m.GetReason(), server: true})
		return
	}
	l.lose(&RevokedError{LeaseID: l.id, Reason: m.GetReason()})
}
