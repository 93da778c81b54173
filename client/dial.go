package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
)

// Client talks to an arbiter. It is safe for concurrent use; one per process
// is enough, and pipelines best. Close it.
type Client struct {
	conn    *grpc.ClientConn // nil when the connection belongs to the caller
	unary   *unary
	session *session // nil: unary only
	opts    options

	fallbacks map[string]*safeCapacity // by pool, "" is the default; nil: closed

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	outbox *outbox
	feeds  feeds

	mu     sync.Mutex
	leases map[string]*Lease // running, by id
	work   sync.WaitGroup    // goroutines of this client
	closed bool
}

type options struct {
	tls       *tls.Config
	key       string
	pool      string
	unary     bool
	maxWait   time.Duration
	linger    time.Duration
	fallbacks map[string]Fallback
	onCommit  func(Receipt, error)
	dial      []grpc.DialOption
}

// Option configures Dial and New.
type Option func(*options)

// WithTLS encrypts the connection; nil takes the system's roots. Without it
// the connection is in the clear. Ignored by New.
func WithTLS(c *tls.Config) Option {
	return func(o *options) {
		if c == nil {
			c = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		o.tls = c
	}
}

// WithKey sends a bearer key with each call. Use it with WithTLS outside
// loopback: without, the key travels in the clear.
func WithKey(key string) Option { return func(o *options) { o.key = key } }

// WithPool sets the pool of requests and agents that name none.
func WithPool(pool string) Option { return func(o *options) { o.pool = pool } }

// WithUnary uses one RPC per call and no session.
func WithUnary() Option { return func(o *options) { o.unary = true } }

// WithMaxWait sets MaxWait of requests that name none. Default DefaultMaxWait.
func WithMaxWait(d time.Duration) Option { return func(o *options) { o.maxWait = d } }

// WithSettle lets the commits of Agent.Call and Lease.CommitLater wait up to
// linger for the next request, which then carries them: one RPC per lease
// instead of two. It works without a session only; a session pipelines anyway.
// A process that dies within linger loses those commits, and their leases
// expire. 0 switches it off, the default.
func WithSettle(linger time.Duration) Option { return func(o *options) { o.linger = linger } }

// WithFallback says what Acquire does while no arbiter answers. Default
// FallbackClosed.
func WithFallback(f Fallback) Option { return WithPoolFallback("", f) }

// WithPoolFallback is WithFallback for requests that name this pool.
func WithPoolFallback(pool string, f Fallback) Option {
	return func(o *options) { o.fallbacks[pool] = f }
}

// WithOnCommit calls f with what became of each commit that went in the
// background: those of CommitLater, and those repeated after an outage. f must
// not block.
func WithOnCommit(f func(Receipt, error)) Option { return func(o *options) { o.onCommit = f } }

// WithGRPC adds options to the connection that Dial makes: interceptors,
// statistics, a dialer. Ignored by New.
func WithGRPC(d ...grpc.DialOption) Option {
	return func(o *options) { o.dial = append(o.dial, d...) }
}

// Dial makes a client for the arbiter at target, "host:port" or any gRPC
// target. It does not connect yet: the first call does, and an arbiter that is
// away shows there. Errors: a target or option that makes no sense.
func Dial(target string, opts ...Option) (*Client, error) {
	o := collect(opts)
	conn, err := connect(target, o)
	if err != nil {
		return nil, err
	}
	c, err := build(conn, o)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("dial arbiter %q: %w", target, err)
	}
	c.conn = conn
	return c, nil
}

// Connect makes the connection of Dial alone, for several clients on one: see
// New. The caller closes it, after the clients.
func Connect(target string, opts ...Option) (*grpc.ClientConn, error) {
	return connect(target, collect(opts))
}

func connect(target string, o options) (*grpc.ClientConn, error) {
	cred := insecure.NewCredentials()
	if o.tls != nil {
		cred = credentials.NewTLS(o.tls)
	}
	conn, err := grpc.NewClient(target, append([]grpc.DialOption{
		grpc.WithTransportCredentials(cred),
		// The default backs off to two minutes; an agent would sleep through a restart.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.5, MaxDelay: 2 * time.Second},
			MinConnectTimeout: 5 * time.Second,
		}),
		// Retries are this package's: it knows which call may be repeated.
		grpc.WithDisableRetry(),
	}, o.dial...)...)
	if err != nil {
		return nil, fmt.Errorf("dial arbiter %q: %w", target, err)
	}
	return conn, nil
}

// New makes a client over a connection of the caller, who closes it after the
// client.
func New(conn grpc.ClientConnInterface, opts ...Option) (*Client, error) {
	if conn == nil {
		return nil, errors.New("new client: connection is nil")
	}
	c, err := build(conn, collect(opts))
	if err != nil {
		return nil, fmt.Errorf("new client: %w", err)
	}
	return c, nil
}

func collect(opts []Option) options {
	o := options{maxWait: DefaultMaxWait, fallbacks: map[string]Fallback{}}
	for _, f := range opts {
		f(&o)
	}
	return o
}

func build(conn grpc.ClientConnInterface, o options) (*Client, error) {
	c := &Client{opts: o, fallbacks: map[string]*safeCapacity{}, leases: map[string]*Lease{}}
	for pool, f := range o.fallbacks {
		if f == nil {
			return nil, fmt.Errorf("fallback of pool %q is nil: use FallbackClosed{}", pool)
		}
		local, err := f.local()
		if err != nil {
			return nil, fmt.Errorf("fallback of pool %q: %w", pool, err)
		}
		c.fallbacks[pool] = local
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	stub := tbav1.NewTokenBudgetArbiterClient(conn)
	c.unary = &unary{stub: stub, key: o.key}
	c.outbox = newOutbox(c)
	c.feeds.client = c
	if !o.unary {
		c.session = newSession(c, stub)
	}
	return c, nil
}

// Close ends everything: leases lose their context, agents their signals,
// calls under way return ErrClosed. Commits still in the background get up to
// two seconds; those of leases that have not ended are the caller's business
// before Close. Safe to call twice.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	running := make([]*Lease, 0, len(c.leases))
	for _, l := range c.leases {
		running = append(running, l)
	}
	c.mu.Unlock()

	ctx, cancel := context.WithTimeout(c.ctx, closePatience)
	err := c.outbox.flush(ctx)
	cancel()
	for _, l := range running {
		l.end(ErrClosed)
	}
	c.cancel()
	c.work.Wait()
	if c.conn != nil {
		if e := c.conn.Close(); err == nil {
			err = e
		}
	}
	return err
}

// Flush waits until every commit in the background is acknowledged or refused,
// or ctx ends.
func (c *Client) Flush(ctx context.Context) error { return c.outbox.flush(ctx) }

const closePatience = 2 * time.Second

// spawn runs f unless the client is closed. Close waits for it; f ends with c.ctx.
func (c *Client) spawn(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.work.Go(f)
	return true
}
