package rpc

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/grpc/health"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/engine"
	"github.com/token-budget-arbiter/tba/internal/identity"
)

// Decider takes commands to the pools. *engine.Engine is one.
type Decider interface {
	Do(ctx context.Context, op engine.Op) (engine.Outcome, error)
	DoAll(ctx context.Context, ops []engine.Op) []engine.Reply
	NewPipe(capacity int) *engine.Pipe
	TokenPool(token []byte) string
}

// Reader shows what the pools know. *engine.Engine is one.
type Reader interface {
	Pools() []string
	View(ctx context.Context, pool string, fn func(*arbiter.State) error) error
	Outlook(pool string) *arbiter.Outlook
	PoolStatus(pool string) (engine.PoolStatus, error)
	Ready() error
	Waiting(pool string) []engine.WaitingRow
}

// Feed tells what happens in the pools. *engine.Engine is one.
type Feed interface {
	Events(pool string, since uint64, limit int, kinds ...arbiter.EventKind) (engine.EventPage, error)
	Follow(pool string) (<-chan struct{}, error)
	WatchBackpressure(pool string) (*engine.Watch, error)
}

// Options of a Server. Engine, Reader and Feed are required, usually one *engine.Engine.
type Options struct {
	Engine Decider
	Reader Reader
	Feed   Feed
	// Keys are auth.keys; nil serves everybody as identity.Local, for loopback only (identity.CheckBind).
	Keys *identity.Keyring
	// Addresses limits requests per address on the HTTP port and, when configured, calls and session frames on the gRPC port; nil limits nobody.
	Addresses *identity.Addresses
	// FailedAuth limits failed authentications per address; nil takes 1 a second, 20 at once, loopback exempt.
	FailedAuth *identity.Addresses
	// Models turns a model as a caller writes it (an alias, with a date at its end) into the name that the pool's policy has for it, at the
	// preferred provider, "" for any. An error names the nearest known one; the request is then decided as it is. nil takes all names as
	// they are. It is called for each request that names a model.
	Models func(pool, provider, model string) (string, error)
	// Logger receives operator actions. nil discards.
	Logger *slog.Logger
	// About describes the process for GetStatus.
	About About
}

// About is what the process knows of itself beyond its pools.
type About struct {
	// Version of the program, Journal kind ("memory", "file", ...), Writer name, Warnings for operators.
	Version, Journal, Writer string
	Warnings                 []string
	// ConfigError says why the configuration on disk is not in force, "" when it is. nil: always "".
	ConfigError func() string
}

// Server is both ports of the arbiter. Make one with New, then serve GRPC and HTTP. Safe for concurrent use.
type Server struct {
	engine  Decider
	reader  Reader
	feed    Feed
	models  func(pool, provider, model string) (string, error)
	log     *slog.Logger
	about   About
	started time.Time

	gate          gate
	health        *health.Server
	serving       atomic.Bool // as SetServing has it
	healthMu      sync.Mutex  // from looking to telling
	watchHealth   sync.Once
	connectErrors *connect.ErrorWriter
	policies      sync.Map // pool → *knownPolicy
	signals       sync.Map // pool → *atomic.Pointer[signal]

	arbiter arbiterService
	admin   adminService

	draining  chan struct{} // closed by Drain
	drainOnce sync.Once
	closesIn  atomic.Int64  // ms until the process ends, once draining
	closed    chan struct{} // closed by Close
	closeOnce sync.Once
}

// New returns a server that serves nothing yet.
func New(o Options) *Server {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.FailedAuth == nil {
		o.FailedAuth = identity.NewAddresses(1, 20, false)
	}
	if o.Models == nil {
		o.Models = func(_, _, model string) (string, error) { return model, nil }
	}
	s := &Server{
		engine: o.Engine, reader: o.Reader, feed: o.Feed, models: o.Models, log: o.Logger, about: o.About, started: time.Now(),
		health: newHealth(), connectErrors: newConnectErrors(),
		draining: make(chan struct{}), closed: make(chan struct{}),
	}
	s.gate.failed = o.FailedAuth
	s.gate.keys.Store(o.Keys)
	s.gate.addresses.Store(o.Addresses)
	s.arbiter.Server, s.admin.Server = s, s
	s.SetServing(false)
	return s
}

// SetKeys replaces auth.keys for calls that begin from now on. Open streams keep the caller they began with.
func (s *Server) SetKeys(keys *identity.Keyring) { s.gate.keys.Store(keys) }

// SetAddresses replaces the limits per address.
func (s *Server) SetAddresses(a *identity.Addresses) { s.gate.addresses.Store(a) }

// Addresses is the limits per address in force, nil for none. The listener of the gRPC port counts connections by them too.
func (s *Server) Addresses() *identity.Addresses { return s.gate.addresses.Load() }

// Drain tells the sessions that the process ends within closesIn, and health checks that it takes no new work. Calls go on.
func (s *Server) Drain(closesIn time.Duration) {
	s.drainOnce.Do(func() {
		s.SetServing(false)
		s.closesIn.Store(closesIn.Milliseconds())
		close(s.draining)
	})
}

// Close ends the streams: sessions, backpressure, SSE. Then a graceful stop of both servers does not wait for them.
func (s *Server) Close() {
	s.closeOnce.Do(func() { close(s.closed) })
}

// errClosing is how a stream ends when the process does.
func errClosing() *arbiter.Error {
	e := arbiter.Errorf(arbiter.CodeUnavailable, "draining", "the server is going down: connect again in 1 s")
	e.RetryAfter = arbiter.Second
	return e
}

// refused is an error of the engine as this server means it: while the process goes down its pools close one by one, and a client whose commit
// found none must keep it and come back, not drop it as malformed.
func (s *Server) refused(err error) error {
	var e *arbiter.Error
	if errors.As(err, &e) && e.Reason == "unknown_pool" {
		select {
		case <-s.draining:
			return errClosing()
		default:
		}
	}
	return err
}

// knownPolicy is the class defaults as they were a moment ago.
type knownPolicy struct {
	policy *arbiter.Policy
	at     time.Time
}

// policyAge is how old a known policy may be. Only the bound on an explicit priority depends on it.
const policyAge = time.Second

// policy is the policy of a pool, at most policyAge old.
func (s *Server) policy(pool string) (*arbiter.Policy, *arbiter.Error) {
	if known, ok := s.policies.Load(pool); ok {
		if k, ok := known.(*knownPolicy); ok && time.Since(k.at) < policyAge {
			return k.policy, nil
		}
	}
	k := &knownPolicy{at: time.Now()}
	if err := s.view(context.Background(), pool, func(st *arbiter.State) error {
		k.policy = st.Policy()
		return nil
	}); err != nil {
		return nil, err
	}
	s.policies.Store(pool, k)
	return k.policy, nil
}

func (s *Server) view(ctx context.Context, pool string, fn func(*arbiter.State) error) *arbiter.Error {
	if err := s.reader.View(ctx, pool, fn); err != nil {
		return asError(s.refused(err))
	}
	return nil
}
