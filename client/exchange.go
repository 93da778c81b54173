package client

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
)

const (
	// answerPatience is how long an arbiter may be silent about a call, beyond
	// the wait that the call allows it.
	answerPatience = 10 * time.Second
	// sessionRest is for how long RPCs replace a session that cannot be had.
	sessionRest       = time.Minute
	sessionRestServer = 10 * time.Minute // the server does not know the RPC
)

// exchange puts a call to the arbiter, at most maxTries times: calls are
// idempotent by request and lease id. Between tries it waits as the server
// says, else with full jitter. An arbiter that is known to be away is not
// tried: the caller's fallback should not have to wait for it.
func (c *Client) exchange(ctx context.Context, m *call) (*answer, error) {
	patience := answerPatience + duration(m.GetRequest().GetMaxWaitMs())
	for try := 0; ; try++ {
		a, err := c.try(ctx, m, try, patience)
		var away *UnavailableError
		if err == nil || !errors.As(err, &away) || away.known || try+1 == maxTries {
			return a, err
		}
		wait := away.RetryAfter
		if wait == 0 && c.sessionInUse() {
			continue // the session waits itself, once for all calls
		}
		if wait == 0 {
			wait = fullJitter(try)
		}
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < wait {
			return nil, err // the caller learns more from this than from a timeout
		}
		if e := c.pause(ctx, wait); e != nil {
			return nil, e
		}
	}
}

func (c *Client) try(ctx context.Context, m *call, try int, patience time.Duration) (*answer, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if c.ctx.Err() != nil {
		return nil, ErrClosed
	}
	if !c.sessionInUse() {
		return c.tryUnary(ctx, m, patience)
	}
	a, err := c.session.do(ctx, m, try, patience)
	var none *noSessionError
	if !errors.As(err, &none) {
		return a, err
	}
	a, err = c.tryUnary(ctx, m, patience)
	if err == nil || Decided(err) {
		c.session.rest(none.rest())
	}
	return a, err
}

func (c *Client) tryUnary(parent context.Context, m *call, patience time.Duration) (*answer, error) {
	ctx, cancel := context.WithTimeout(parent, patience)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	a, err := c.unary.do(ctx, m)
	if foretold(ctx, err) {
		<-ctx.Done()
		err = context.DeadlineExceeded
	}
	switch {
	case err == nil:
		return a, nil
	case parent.Err() != nil:
		c.recall(m)
		return nil, context.Cause(parent)
	case c.ctx.Err() != nil:
		return nil, ErrClosed
	case errors.Is(err, context.DeadlineExceeded):
		return nil, &UnavailableError{Reason: "network", cause: errors.New("no answer in time")}
	}
	return nil, err
}

// foretold reports whether an error is the deadline of ctx, which has travelled
// to the server and come back a little before the timer of ctx fired.
func foretold(ctx context.Context, err error) bool {
	const skew = 100 * time.Millisecond
	var away *UnavailableError
	if !errors.As(err, &away) || !away.left {
		return false
	}
	deadline, ok := ctx.Deadline()
	return ok && time.Until(deadline) <= skew
}

// recall gives back, in the background, what an RPC may have granted after its
// caller had left: the answer with the lease id was thrown away, and the server
// can void a grant only while it still holds it. A dry run under the same
// request id names the lease and grants nothing.
func (c *Client) recall(m *call) {
	r := m.GetRequest()
	if r == nil || r.GetDryRun() {
		return
	}
	probe := proto.CloneOf(r)
	probe.DryRun, probe.MaxWaitMs, probe.DeadlineMs, probe.Settle = true, 0, 0, nil
	c.spawn(func() {
		ctx, cancel := context.WithTimeout(c.ctx, endPatience)
		defer cancel()
		a, err := c.tryUnary(ctx, requestCall(probe), endPatience)
		m := a.GetLease()
		// A server of the published definition knows neither dry runs nor ttl_ms: its
		// grant is real.
		if err != nil || !m.GetReplayed() && m.GetTtlMs() > 0 {
			return // nothing there, or nobody to ask: then the lease expires by itself
		}
		if release := c.handBack(m); release != nil {
			release.Pool = r.GetPool()
			_, _ = c.exchange(ctx, releaseCall(release)) // likewise
		}
	})
}

func (c *Client) sessionInUse() bool { return c.session != nil && !c.session.resting() }

// pause sleeps, but not beyond the end of the client.
func (c *Client) pause(ctx context.Context, d time.Duration) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.ctx, func() { cancel(ErrClosed) })()
	return sleep(ctx, d)
}

// noSessionError says that a session ended before its first answer, so that
// there may be something on the way that cannot carry one.
type noSessionError struct{ cause error }

func (e *noSessionError) Error() string { return "no session: " + e.cause.Error() }
func (e *noSessionError) Unwrap() error { return e.cause }

func (e *noSessionError) rest() time.Duration {
	if code(e.cause) == codes.Unimplemented {
		return sessionRestServer
	}
	return sessionRest
}

func requestCall(m *tbav1.LeaseRequest) *call {
	return &call{Call: &tbav1.SessionRequest_Frame_Request{Request: m}}
}

func commitCall(m *tbav1.LeaseCommit) *call {
	return &call{Call: &tbav1.SessionRequest_Frame_Commit{Commit: m}}
}

func releaseCall(m *tbav1.LeaseRelease) *call {
	return &call{Call: &tbav1.SessionRequest_Frame_Release{Release: m}}
}

func extendCall(m *tbav1.ExtendLeaseRequest) *call {
	return &call{Call: &tbav1.SessionRequest_Frame_Extend{Extend: m}}
}

func signalCall(m *tbav1.SignalLeaseRequest) *call {
	return &call{Call: &tbav1.SessionRequest_Frame_Signal{Signal: m}}
}
