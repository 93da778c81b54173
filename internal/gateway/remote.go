package gateway

import (
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"math"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/client"
	"github.com/token-budget-arbiter/tba/internal/provider"
)

// DefaultRemoteClients is how many agents' credentials a Remote keeps a session for.
const DefaultRemoteClients = 256

// RemoteOptions configure a Remote. The zero value of each field is its default.
type RemoteOptions struct {
	// TLS encrypts the connection; nil is in the clear.
	TLS *tls.Config
	// Clients bounds the sessions that are kept while no call uses them. Default DefaultRemoteClients.
	Clients int
	// Committed is told what became of each commit; it must not block. nil tells nobody.
	Committed func(client.Receipt, error)
	// GRPC are further options of the connection.
	GRPC []grpc.DialOption
}

// Remote is a [Leaser] across the network: the arbiter of a sidecar. Each agent's credential has a client of its own on one shared
// connection, so that the arbiter knows each agent by its own key and all its rules hold. Safe for concurrent use. Close it.
type Remote struct {
	conn *grpc.ClientConn
	opts RemoteOptions

	mu     sync.Mutex
	byKey  map[string]*tenant
	recent list.List // of *tenant without calls, the one used last at the front
	closed bool
	work   sync.WaitGroup // clients that are closing
}

// tenant is the client of one credential.
type tenant struct {
	key   string
	c     *client.Client
	calls int           // requests, leases and commits that need it
	idle  *list.Element // in recent while calls is 0
}

// DialRemote makes a Remote for the arbiter at target, "host:port" or any gRPC target. It does not connect yet. Errors: a target or
// option that makes no sense.
func DialRemote(target string, o RemoteOptions) (*Remote, error) {
	if o.Clients <= 0 {
		o.Clients = DefaultRemoteClients
	}
	opts := []client.Option{client.WithGRPC(o.GRPC...)}
	if o.TLS != nil {
		opts = append(opts, client.WithTLS(o.TLS))
	}
	conn, err := client.Connect(target, opts...)
	if err != nil {
		return nil, err
	}
	return &Remote{conn: conn, opts: o, byKey: map[string]*tenant{}}, nil
}

// Close ends everything: calls under way fail, leases are lost to their holders. Commits in the background get up to two seconds.
func (r *Remote) Close() error {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil
	}
	r.closed = true
	for _, t := range r.byKey {
		r.retire(t)
	}
	clear(r.byKey)
	r.recent.Init()
	r.mu.Unlock()
	r.work.Wait()
	return r.conn.Close()
}

// retire closes a client in the background, with r.mu held: its last commits may take a moment.
func (r *Remote) retire(t *tenant) { r.work.Go(func() { _ = t.c.Close() }) }

// borrow returns the client of a credential, which stays open until give.
func (r *Remote) borrow(key string) (*tenant, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, client.ErrClosed
	}
	t := r.byKey[key]
	if t == nil {
		opts := []client.Option{}
		if key != "" {
			opts = append(opts, client.WithKey(key))
		}
		c, err := client.New(r.conn, opts...)
		if err != nil {
			return nil, err
		}
		t = &tenant{key: key, c: c}
		r.byKey[key] = t
	}
	if t.idle != nil {
		r.recent.Remove(t.idle)
		t.idle = nil
	}
	t.calls++
	return t, nil
}

// give returns what borrow lent. Only clients without calls count against the bound: one that is closed takes its leases along.
func (r *Remote) give(t *tenant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t.calls--; t.calls > 0 || r.closed {
		return
	}
	t.idle = r.recent.PushFront(t)
	for r.recent.Len() > r.opts.Clients {
		oldest := r.recent.Remove(r.recent.Back()).(*tenant)
		delete(r.byKey, oldest.key)
		r.retire(oldest)
	}
}

// Acquire asks the arbiter under the caller's own credential.
func (r *Remote) Acquire(ctx context.Context, a *Ask) (Grant, error) {
	if a.Input > math.MaxInt32 || a.Output > math.MaxInt32 || a.Input+a.Output > math.MaxInt32 {
		return Grant{}, arbiter.Errorf(arbiter.CodeResource, "too_large", "the call is estimated at %d tokens, at most %d can be asked for at once: split it", int64(a.Input)+int64(a.Output), math.MaxInt32)
	}
	t, err := r.borrow(a.Key)
	if err != nil {
		return Grant{}, toError(ctx, err)
	}
	wait := a.MaxWait
	if wait <= 0 {
		wait = client.NoWait
	}
	began := time.Now()
	l, err := t.c.Acquire(ctx, client.Request{
		AgentID: a.Agent, Class: a.Class, Pool: a.Pool, Task: a.Task, Workflow: a.Workflow, Parent: a.Parent,
		InputTokens: int64(a.Input), OutputTokens: int64(a.Output),
		Ladder: a.Ladder, Model: a.Model, Except: a.Except, ServiceTier: a.Tier, Priority: toPriority(a.Priority),
		MaxWait: wait, Deadline: a.Deadline, Ticket: a.Ticket, NoStartDelay: true, WantLimits: true,
	})
	waited := time.Since(began)
	if err != nil {
		r.give(t)
		g, ok := toVerdict(err)
		g.Waited = waited
		if ok {
			return g, nil
		}
		return Grant{}, toError(ctx, err)
	}
	g := Grant{
		Status: arbiter.Granted, Lease: &remoteLease{r: r, t: t, l: l}, ID: l.ID(), Provider: l.Provider(), Model: l.Model(),
		Output: arbiter.Tokens(l.OutputTokens()), Input: arbiter.Tokens(l.Tokens() - l.OutputTokens()), TTL: l.TTL(),
		Level: arbiter.Level(l.Level()), DelayMS: toMillis(l.Delay()), Decision: l.DecisionID(), Waited: waited,
		Check: arbiter.Check{Reason: reasons[l.ShadowDenied()]},
	}
	if len(l.Limits()) > 0 {
		g.Figures = sync.OnceValues(func() (*arbiter.Check, []provider.Limit) { return toFigures(l.Limits()) })
	}
	if l.Replayed() {
		g.Flags |= arbiter.FlagRepeat
	}
	switch p := l.Phase(); {
	case p == client.PhaseCommitted, p == client.PhaseReleased:
		g.Flags |= arbiter.FlagResolved
	case p > client.PhaseActive, l.Replayed() && l.TTL() <= 0:
		g.Flags |= arbiter.FlagExpired
	}
	return g, nil
}

// remoteLease is a lease of a Remote. The client extends it by itself.
type remoteLease struct {
	r    *Remote
	t    *tenant
	l    *client.Lease
	once sync.Once
}

// give lets go of the client once the lease needs it no more.
func (l *remoteLease) give() { l.once.Do(func() { l.r.give(l.t) }) }

// Commit hands the report to the client's outbox, which repeats it until the arbiter has it.
func (l *remoteLease) Commit(r Report) error {
	l.l.CommitLater(toReport(r), func(got client.Receipt, err error) {
		if f := l.r.opts.Committed; f != nil {
			f(got, err)
		}
		l.give()
	})
	return nil
}

// Release gives the lease back with the reason for it.
func (l *remoteLease) Release(ctx context.Context, r Report) (ticket []byte, retryAfter time.Duration, err error) {
	defer l.give()
	rep := toReport(r)
	got, err := l.l.ReleaseReport(ctx, rep.Outcome.String(), rep.Outcome, rep.Provider)
	if err != nil {
		return nil, 0, toError(ctx, err)
	}
	return got.Ticket, got.RetryAfter, nil
}

// Extend asks nothing: the client extends the lease by itself. It tells when that has failed or the arbiter has revoked the lease.
func (l *remoteLease) Extend(context.Context) error {
	if l.l.Context().Err() == nil {
		return nil
	}
	return toError(context.Background(), context.Cause(l.l.Context()))
}

// FirstByte reports that the answer has begun.
func (l *remoteLease) FirstByte(ctx context.Context) error {
	if err := l.l.Signal(ctx, client.Signal{Kind: client.SignalFirstByte}); err != nil {
		return toError(ctx, err)
	}
	return nil
}

// toVerdict reads a deferral or a denial; ok is false for any other error.
func toVerdict(err error) (g Grant, ok bool) {
	var no *client.DeniedError
	var later *client.DeferredError
	switch {
	case errors.As(err, &no):
		return Grant{
			Status: arbiter.Denied, Decision: no.DecisionID, Message: no.Message,
			Check: toCheck(no.Reason, no.LimitName, no.Unit, no.Limit, no.Used, no.Held, no.Asked, no.ResetsAt),
		}, true
	case errors.As(err, &later):
		return Grant{
			Status: arbiter.Deferred, Decision: later.DecisionID, Message: later.Message, RetryAfter: later.RetryAfter, Ticket: later.Ticket, DelayMS: toMillis(later.Delay),
			Check: toCheck(later.Reason, later.LimitName, later.Unit, later.Limit, later.Used, later.Held, later.Asked, later.ResetsAt),
		}, true
	}
	return Grant{}, false
}

// codeOf are the arbiter's codes behind gRPC's: the inverse of what its server makes of them.
var codeOf = map[codes.Code]arbiter.Code{
	codes.InvalidArgument: arbiter.CodeInvalid, codes.OutOfRange: arbiter.CodeInvalid,
	codes.NotFound: arbiter.CodeNotFound, codes.AlreadyExists: arbiter.CodeConflict, codes.FailedPrecondition: arbiter.CodePrecondition,
	codes.PermissionDenied: arbiter.CodePermission, codes.Unauthenticated: arbiter.CodeUnauthenticated,
	codes.ResourceExhausted: arbiter.CodeResource, codes.Unimplemented: arbiter.CodeUnimplemented,
}

// toError reads any other error of the client: an *arbiter.Error, or what ended ctx. Where something on the way has spoken instead of the
// arbiter, nobody has decided anything.
func toError(ctx context.Context, err error) error {
	var (
		refused *client.RefusedError
		away    *client.UnavailableError
		revoked *client.RevokedError
		lost    *client.LostError
		commit  *client.CommitError
	)
	switch {
	case errors.As(err, &refused) && refused.FromServer():
		code, ok := codeOf[refused.Code]
		if !ok {
			code = arbiter.CodeUnavailable
		}
		return &arbiter.Error{Code: code, Reason: refused.Reason, Text: refused.Message, RetryAfter: int64(refused.RetryAfter)}
	case errors.As(err, &away) && away.FromServer():
		return &arbiter.Error{Code: arbiter.CodeUnavailable, Reason: away.Reason, Text: away.Error(), RetryAfter: int64(away.RetryAfter)}
	case errors.As(err, &revoked):
		return arbiter.Errorf(arbiter.CodePrecondition, reasonRevoked, "the lease was revoked: %s", revoked.Reason)
	case errors.As(err, &lost):
		return arbiter.Errorf(arbiter.CodePrecondition, "lease_expired", "the lease could not be kept: %s", lost.Reason)
	case errors.As(err, &commit):
		return arbiter.Errorf(arbiter.CodePrecondition, commit.Reason, "%v", commit)
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, client.ErrClosed), errors.Is(err, client.ErrLeaseEnded):
		return &arbiter.Error{Code: arbiter.CodeUnavailable, Reason: "draining", Text: "the gateway is going down: try again", RetryAfter: arbiter.Second}
	case away != nil, refused != nil:
		// The text of the network names addresses that an agent need not know.
		return &arbiter.Error{Code: arbiter.CodeUnavailable, Reason: "network", Text: "the arbiter cannot be reached: try again", RetryAfter: arbiter.Second}
	}
	return arbiter.Errorf(arbiter.CodeInvalid, "request", "%v", err)
}
