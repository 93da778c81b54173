package rpc

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/engine"
	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
	"github.com/token-budget-arbiter/tba/internal/journal"
)

// testPolicy has providers openai and anthropic, classes batch (LOW), chat (MEDIUM) and default, and no limit that a small test meets.
func testPolicy(change ...func(*arbiter.Policy)) *arbiter.Policy {
	model := func(name string, in, out arbiter.Pico) arbiter.Model {
		return arbiter.Model{Name: name, Limit: arbiter.NoLimit, Prices: []arbiter.Price{{Rates: arbiter.Rates{Input: in, CacheRead: in, CacheWrite: in, CacheWriteLong: in, Output: out}}}}
	}
	p := &arbiter.Policy{
		Version: 1, Guard: 250 * arbiter.Millisecond, Period: arbiter.PeriodSpec{Kind: "monthly"},
		Global: arbiter.Limit{Tokens: 1_000_000_000, Nanos: arbiter.Unlimited}, Tasks: arbiter.NoLimit,
		Providers: []arbiter.Provider{
			{Name: "openai", Limit: arbiter.NoLimit, Models: []arbiter.Model{model("gpt-5.4", 2_500_000, 10_000_000)}},
			{Name: "anthropic", Limit: arbiter.NoLimit, Models: []arbiter.Model{model("claude-sonnet-5", 3_000_000, 15_000_000)}},
		},
		Classes: []arbiter.Class{
			{Name: arbiter.DefaultClass, Limit: arbiter.NoLimit},
			{Name: "batch", Limit: arbiter.NoLimit},
			{Name: "chat", Priority: arbiter.Medium, Limit: arbiter.NoLimit},
		},
		Lease: arbiter.DefaultLeaseRules, Breaker: arbiter.DefaultBreaker,
		Weights: arbiter.DefaultWeights, Backpressure: arbiter.DefaultBackpressure,
	}
	for _, f := range change {
		f(p)
	}
	return p
}

// world is a whole server: engine, both ports, clients.
type world struct {
	engine *engine.Engine
	server *Server
	conn   *grpc.ClientConn
	lease  tbav1.TokenBudgetArbiterClient
	admin  tbav1.AdminClient
	http   *http.Client
}

// setup of a world. The zero value is a memory journal, testPolicy, no keys, in-memory connections.
type setup struct {
	policy *arbiter.Policy
	store  journal.Store
	opts   Options
	events int  // kept by the engine's ring; 0 is its default
	tcp    bool // real sockets on loopback
	token  string
}

func newWorld(t testing.TB, s setup) *world {
	t.Helper()
	if s.store == nil {
		s.store = journal.NewMemory(journal.MemoryOptions{})
	}
	if s.policy == nil {
		s.policy = testPolicy()
	}
	ctx := context.Background()
	var log *slog.Logger
	if testing.Verbose() {
		log = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	e, err := engine.New(engine.Options{Store: s.store, Logger: log, EventsKept: s.events})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.store.Init(ctx, "default"); err != nil && !errors.Is(err, journal.ErrExists) {
		t.Fatal(err)
	}
	if err := e.Open(ctx, "default", s.policy); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	s.opts.Engine, s.opts.Reader, s.opts.Feed = e, e, e
	w := &world{engine: e, server: New(s.opts)}
	w.server.SetServing(true)
	g := w.server.GRPC(nil)
	h := NewHTTPServer(w.server.HTTP(nil))
	var grpcDial, httpDial func(context.Context, string) (net.Conn, error)
	grpcListener, grpcDial := listen(t, s.tcp)
	httpListener, httpDial := listen(t, s.tcp)
	done := make(chan struct{}, 2)
	go func() { _ = g.Serve(grpcListener); done <- struct{}{} }()
	go func() { _ = h.Serve(httpListener); done <- struct{}{} }()
	t.Cleanup(func() {
		w.server.Close()
		g.Stop()
		h.Close()
		<-done
		<-done
	})
	w.conn = w.dial(t, grpcDial, s.token)
	w.lease, w.admin = tbav1.NewTokenBudgetArbiterClient(w.conn), tbav1.NewAdminClient(w.conn)
	transport := &http.Transport{DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) { return httpDial(ctx, addr) }}
	w.http = &http.Client{Transport: transport}
	t.Cleanup(transport.CloseIdleConnections)
	return w
}

// listen returns a listener and how to reach it.
func listen(t testing.TB, tcp bool) (net.Listener, func(context.Context, string) (net.Conn, error)) {
	t.Helper()
	if !tcp {
		l := bufconn.Listen(1 << 16)
		return l, func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l, func(ctx context.Context, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", l.Addr().String())
	}
}

func (w *world) dial(t testing.TB, dial func(context.Context, string) (net.Conn, error), token string) *grpc.ClientConn {
	t.Helper()
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(dial), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16 << 20)),
	}
	if token != "" {
		opts = append(opts, grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, o ...grpc.CallOption) error {
			return invoke(metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token), method, req, reply, cc, o...)
		}))
	}
	conn, err := grpc.NewClient("passthrough:///server", opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// grant takes a lease or fails the test.
func (w *world) grant(t testing.TB, m *tbav1.LeaseRequest) *tbav1.LeaseResponse {
	t.Helper()
	out, err := w.lease.RequestLease(context.Background(), m)
	if err != nil || out.GetStatus() != tbav1.LeaseStatus_GRANTED {
		t.Fatalf("request %v: %v, %v", m, out, err)
	}
	return out
}

// post sends JSON to the HTTP port and returns status, header and body.
func (w *world) post(t testing.TB, path, body string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, "http://localhost"+path, stringReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	return w.send(t, req)
}

func (w *world) get(t testing.TB, path string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, "http://localhost"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return w.send(t, req)
}

func (w *world) send(t testing.TB, req *http.Request) (*http.Response, string) {
	t.Helper()
	resp, err := w.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}
