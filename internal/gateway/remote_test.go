package gateway

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/client"
	"github.com/token-budget-arbiter/tba/internal/engine"
	"github.com/token-budget-arbiter/tba/internal/identity"
	"github.com/token-budget-arbiter/tba/internal/journal"
	"github.com/token-budget-arbiter/tba/internal/provider"
	"github.com/token-budget-arbiter/tba/internal/rpc"
)

// far is an arbiter across a network that is in memory.
type far struct {
	engine *engine.Engine
	local  *Local
	remote *Remote
	done   chan error // of each commit
}

// commit hands a report over and waits until the arbiter has it.
func (f *far) commit(l Lease, r Report) error {
	if err := l.Commit(r); err != nil {
		return err
	}
	return <-f.done
}

// farPolicy has budgets that a test can use up: 100,000 tokens, 1 request a minute at provider slow, 2 slots at provider small.
func farPolicy() *arbiter.Policy {
	price := []arbiter.Price{{Rates: arbiter.Rates{Input: 2_000_000, CacheRead: 2_000_000, CacheWrite: 2_000_000, CacheWriteLong: 2_000_000, Output: 10_000_000}}}
	one := func(name, model string, l arbiter.Ceilings) arbiter.Provider {
		return arbiter.Provider{Name: name, Limit: arbiter.NoLimit, Ceilings: l, Models: []arbiter.Model{{Name: model, MaxInput: 50_000, Limit: arbiter.NoLimit, Prices: price}}}
	}
	return &arbiter.Policy{
		Version: 1, Guard: 250 * arbiter.Millisecond, Period: arbiter.PeriodSpec{Kind: "monthly"},
		Global: arbiter.Limit{Tokens: 100_000, Nanos: arbiter.Unlimited}, Tasks: arbiter.Limit{Tokens: 5_000, Nanos: arbiter.Unlimited},
		Providers: []arbiter.Provider{
			one("wide", "wide-1", arbiter.Ceilings{}), one("slow", "slow-1", arbiter.Ceilings{RPM: 1}), one("small", "small-1", arbiter.Ceilings{MaxConcurrent: 1}),
		},
		Classes: []arbiter.Class{{Name: arbiter.DefaultClass, Limit: arbiter.NoLimit}, {Name: "batch", Limit: arbiter.NoLimit}},
		Lease:   arbiter.DefaultLeaseRules, Breaker: arbiter.DefaultBreaker, Weights: arbiter.DefaultWeights, Backpressure: arbiter.DefaultBackpressure,
	}
}

func newFar(t testing.TB, o RemoteOptions, keys ...identity.Key) *far {
	t.Helper()
	commits, told := make(chan error, 1), o.Committed
	o.Committed = func(r client.Receipt, err error) {
		if told != nil {
			told(r, err)
		}
		commits <- err
	}
	ctx := context.Background()
	store := journal.NewMemory(journal.MemoryOptions{})
	e, err := engine.New(engine.Options{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Init(ctx, "default"); err != nil {
		t.Fatal(err)
	}
	if err := e.Open(ctx, "default", farPolicy()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	var ring *identity.Keyring
	if len(keys) > 0 {
		if ring, err = identity.NewKeyring(keys); err != nil {
			t.Fatal(err)
		}
	}
	server := rpc.New(rpc.Options{Engine: e, Reader: e, Feed: e, Keys: ring})
	server.SetServing(true)
	listener := bufconn.Listen(1 << 16)
	g := server.GRPC(nil)
	done := make(chan struct{})
	go func() { defer close(done); _ = g.Serve(listener) }()
	t.Cleanup(func() { server.Close(); g.Stop(); <-done })
	o.GRPC = append(o.GRPC, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	r, err := DialRemote("passthrough:///arbiter", o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return &far{engine: e, local: NewLocal(e), remote: r, done: commits}
}

// ask is a request of agent a for 3,000 tokens of a model.
func ask(key, model string) *Ask {
	return &Ask{Caller: identity.Local, Key: key, Agent: "a", Model: model, Priority: arbiter.ClassPriority, Input: 1_000, Output: 2_000, Deadline: time.Minute}
}

func (f *far) grant(t testing.TB, a *Ask) Grant {
	t.Helper()
	g, err := f.remote.Acquire(context.Background(), a)
	if err != nil || g.Status != arbiter.Granted {
		t.Fatalf("%+v: %+v, %v", a, g, err)
	}
	return g
}

// spent is what the pool has recorded.
func (f *far) spent(t testing.TB) (tokens int64, held int64) {
	t.Helper()
	err := f.engine.View(context.Background(), "default", func(s *arbiter.State) error {
		s.EachBudget(0, func(r *arbiter.BudgetRow) {
			if r.Unit == arbiter.UnitTokens {
				tokens, held = r.Spent, r.Held
			}
		}, arbiter.KindGlobal)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return tokens, held
}

func TestRemoteLease(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	committed := make(chan client.Receipt, 8)
	f := newFar(t, RemoteOptions{Committed: func(r client.Receipt, err error) {
		if err != nil {
			t.Error(err)
		}
		committed <- r
	}})
	g := f.grant(t, ask("", "wide-1"))
	if g.Provider != "wide" || g.Model != "wide-1" || g.Input != 1_000 || g.Output != 2_000 || g.TTL <= 0 || g.Decision == "" {
		t.Errorf("%+v", g)
	}
	if _, err := engine.ParseLeaseID(g.ID); err != nil {
		t.Error(err)
	}
	if err := g.Lease.FirstByte(ctx); err != nil {
		t.Error(err)
	}
	if err := g.Lease.Extend(ctx); err != nil {
		t.Error(err)
	}
	report := Report{HasUsage: true, Usage: arbiter.Usage{Input: 700, CacheRead: 100, Output: 40}, Outcome: arbiter.OutcomeOK, Latency: time.Second}
	if err := f.commit(g.Lease, report); err != nil {
		t.Error(err)
	}
	if r := <-committed; r.Tokens != 840 || r.Estimated {
		t.Errorf("%+v", r)
	}
	for _, report := range []struct {
		Report
		tokens int64
	}{
		{Report{Actual: 1_200, Estimated: true}, 1_200},
		{Report{HasUsage: true}, 0}, // a provider that says it used nothing
		{Report{Estimated: true}, 3_000},
	} {
		g := f.grant(t, ask("", "wide-1"))
		if err := f.commit(g.Lease, report.Report); err != nil {
			t.Error(err)
		}
		if r := <-committed; r.Tokens != report.tokens || r.Estimated != report.Estimated {
			t.Errorf("%+v: %+v, want %d tokens", report.Report, r, report.tokens)
		}
	}
	g = f.grant(t, ask("", "wide-1"))
	ticket, wait, err := g.Lease.Release(ctx, Report{Outcome: arbiter.OutcomeThrottled, Signal: arbiter.ProviderSignal{Status: 429, RetryAfter: 5 * arbiter.Second}})
	if err != nil || len(ticket) == 0 || wait < 4*time.Second || wait > 6*time.Second {
		t.Errorf("throttled: ticket of %d bytes, %v, %v", len(ticket), wait, err)
	}
	if tokens, held := f.spent(t); tokens != 5_040 || held != 0 {
		t.Errorf("spent %d, held %d, want 5040 and nothing", tokens, held)
	}
}

// TestRemoteSaysWhatLocalSays asserts that a refusal reaches the gateway with the same figures, wherever the arbiter is.
func TestRemoteSaysWhatLocalSays(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	f := newFar(t, RemoteOptions{})
	f.grant(t, ask("", "slow-1"))
	f.grant(t, ask("", "small-1"))
	fill := ask("", "wide-1")
	fill.Input, fill.Output = 46_000, 40_000
	fill.Agent = "filler"
	f.grant(t, fill)
	for what, change := range map[string]func(*Ask){
		"too large for the model":  func(a *Ask) { a.Model, a.Input = "wide-1", 60_000 },
		"too large for a task":     func(a *Ask) { a.Model, a.Task, a.Output = "wide-1", "t", 4_500 },
		"no room in the budget":    func(a *Ask) { a.Model, a.Output = "wide-1", 9_000 },
		"one request a minute":     func(a *Ask) { a.Model = "slow-1" },
		"one call at once":         func(a *Ask) { a.Model = "small-1" },
		"a model without a price":  func(a *Ask) { a.Model = "nobody-1" },
		"every rung excepted":      func(a *Ask) { a.Model, a.Except = "slow-1", []string{"slow"} },
		"a class that is not here": func(a *Ask) { a.Class = "nobody" },
		"a ladder that is no more": func(a *Ask) { a.Ladder = "nobody" },
		"a pool that is not here":  func(a *Ask) { a.Model, a.Pool = "wide-1", "nobody" },
	} {
		a := ask("", "")
		change(a)
		near, nearErr := f.local.Acquire(ctx, a)
		away, awayErr := f.remote.Acquire(ctx, a)
		if (nearErr == nil) != (awayErr == nil) || near.Status != away.Status || near.Status == arbiter.Granted && nearErr == nil {
			t.Errorf("%s: %+v, %v, in process %+v, %v", what, away, awayErr, near, nearErr)
			continue
		}
		for _, d := range dialects(t) {
			refused := func(g *Grant, err error) *refusal {
				if err != nil {
					return refuseError(err)
				}
				g.Decision, g.Message = "d", "" // the words of an arbiter far away are extra
				if g.Status == arbiter.Deferred {
					if len(g.Ticket) == 0 || g.RetryAfter <= 0 {
						t.Errorf("%s: no ticket or wait: %+v", what, g)
					}
					g.RetryAfter = 7 * time.Second // they were decided a moment apart
				}
				return refuseGrant(g, d, refusedAt, refuseOptions{})
			}
			n, w := refused(&near, nearErr), refused(&away, awayErr)
			if n.status != w.status || n.kind != w.kind || *n.retry != *w.retry || nearErr == nil && (n.message != w.message || string(n.problem().Detail) != string(w.problem().Detail)) {
				t.Errorf("%s, %s: %d %v %q %s\nin process: %d %v %q %s", what, d.Name(), w.status, w.kind, w.message, w.problem().Detail, n.status, n.kind, n.message, n.problem().Detail)
			}
			var e *arbiter.Error
			if awayErr != nil && !errors.As(awayErr, &e) {
				t.Errorf("%s: %v is no *arbiter.Error", what, awayErr)
			}
		}
	}
}

// TestRemoteAuthenticatesAgents asserts that the arbiter judges each agent by the key that the agent sent.
func TestRemoteAuthenticatesAgents(t *testing.T) {
	t.Parallel()
	f := newFar(t, RemoteOptions{}, identity.Key{Name: "fleet", Secret: fleetKey, Classes: []string{"batch"}}, identity.Key{Name: "free", Secret: freeKey})
	for _, test := range []struct {
		key, class, reason string
		code               arbiter.Code
	}{
		{fleetKey, "", "", 0}, {fleetKey, "batch", "", 0}, {freeKey, "batch", "", 0},
		{fleetKey, "default", "class_not_allowed", arbiter.CodePermission},
		{"", "", "no_credential", arbiter.CodeUnauthenticated},
		{"guess-0123456789", "", "bad_credential", arbiter.CodeUnauthenticated},
	} {
		a := ask(test.key, "wide-1")
		a.Class = test.class
		g, err := f.remote.Acquire(context.Background(), a)
		var e *arbiter.Error
		switch {
		case test.reason == "" && (err != nil || g.Status != arbiter.Granted):
			t.Errorf("%+v: %+v, %v", test, g, err)
		case test.reason != "" && (!errors.As(err, &e) || e.Code != test.code || e.Reason != test.reason):
			t.Errorf("%+v: %v", test, err)
		case err != nil && test.key != "" && strings.Contains(err.Error(), test.key):
			t.Errorf("%v prints the key", err)
		case err == nil:
			if err := f.commit(g.Lease, Report{HasUsage: true}); err != nil {
				t.Errorf("%+v: %v", test, err)
			}
		}
	}
}

// TestRemoteKeepsFewClients asserts that clients without calls are bounded and those with calls are never closed.
func TestRemoteKeepsFewClients(t *testing.T) {
	t.Parallel()
	f := newFar(t, RemoteOptions{Clients: 2})
	held := f.grant(t, ask("holder", "wide-1"))
	for _, key := range []string{"k1", "k2", "k3", "k4", "k1"} {
		g := f.grant(t, ask(key, "wide-1"))
		if err := f.commit(g.Lease, Report{HasUsage: true}); err != nil {
			t.Fatal(err)
		}
		f.remote.mu.Lock()
		idle, all := f.remote.recent.Len(), len(f.remote.byKey)
		f.remote.mu.Unlock()
		if idle > 2 || all > 4 { // two without calls, the holder, and this one until its last word
			t.Errorf("after %s: %d clients, %d of them idle", key, all, idle)
		}
	}
	if err := held.Lease.Extend(context.Background()); err != nil {
		t.Errorf("a lease went with its client: %v", err)
	}
	if err := f.commit(held.Lease, Report{Actual: 10, Estimated: true}); err != nil {
		t.Error(err)
	}
}

func TestRemoteTellsOfLostLeases(t *testing.T) {
	t.Parallel()
	f := newFar(t, RemoteOptions{})
	g := f.grant(t, ask("", "wide-1"))
	id, err := engine.ParseLeaseID(g.ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.engine.Do(context.Background(), engine.Op{Pool: "default", Command: &arbiter.Revoke{Lease: id}}); err != nil {
		t.Fatal(err)
	}
	<-g.Lease.(*remoteLease).l.Context().Done()
	var e *arbiter.Error
	if err := g.Lease.Extend(context.Background()); !errors.As(err, &e) || e.Code != arbiter.CodePrecondition || e.Reason != "lease_revoked" {
		t.Errorf("%v, want lease_revoked", err)
	}
	if err := f.commit(g.Lease, Report{Actual: 500, Estimated: true}); err != nil {
		t.Errorf("what was used still counts: %v", err)
	}
}

func TestRemoteWithoutArbiter(t *testing.T) {
	t.Parallel()
	r, err := DialRemote("passthrough:///10.1.2.3:7481", RemoteOptions{GRPC: []grpc.DialOption{
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			return nil, errors.New("dial tcp 10.1.2.3:7481: refused")
		}),
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	_, err = r.Acquire(context.Background(), ask("", "wide-1"))
	var e *arbiter.Error
	if !errors.As(err, &e) || e.Code != arbiter.CodeUnavailable || strings.Contains(e.Text, "10.1.2.3") {
		t.Errorf("%v", err)
	}
	d, _ := provider.Lookup(provider.OpenAI)
	checkLaws(t, "no arbiter", refuseError(err), d)

	gone, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := r.Acquire(gone, ask("", "wide-1")); !errors.Is(err, context.Canceled) {
		t.Errorf("the caller left: %v", err)
	}
	big := ask("", "wide-1")
	big.Output = 1 << 31
	if _, err := r.Acquire(context.Background(), big); !errors.As(err, &e) || refuseError(err).kind != provider.TooLarge {
		t.Errorf("too large for the wire: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if _, err := r.Acquire(context.Background(), ask("", "wide-1")); !errors.As(err, &e) || e.Code != arbiter.CodeUnavailable {
		t.Errorf("closed: %v", err)
	}
}
