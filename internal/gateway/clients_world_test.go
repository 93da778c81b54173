package gateway_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/config"
	"github.com/token-budget-arbiter/tba/internal/engine"
	"github.com/token-budget-arbiter/tba/internal/gateway"
	"github.com/token-budget-arbiter/tba/internal/identity"
	"github.com/token-budget-arbiter/tba/internal/journal"
	"github.com/token-budget-arbiter/tba/internal/mockprovider"
	"github.com/token-budget-arbiter/tba/internal/provider"
)

const (
	clientAgentKey    = "key-of-an-agent-of-the-gateway"
	clientProviderKey = "key-of-ours-at-"
	clientOpenClass   = "open"
	clientClosedClass = "closed"
	clientSpentAgent  = "spent"
	clientSpentLimit  = 10_000
)

// clientWorld is everything that the clients meet: mock providers, an arbiter, and gateways before it.
type clientWorld struct {
	mocks  *mockprovider.Server
	engine *engine.Engine
	policy *arbiter.Policy
	door   *clientDoor
	// main serves. draining is going down, so that it can serve nobody. strict refuses used-up budgets with a 403.
	main, draining, strict *httptest.Server
	gateways               []*gateway.Gateway
}

// The providers. Each is an upstream of the mocks with the same name; second stands in for the first of its dialect.
var clientDialects = []string{provider.OpenAI, provider.Anthropic, provider.Gemini, provider.Mistral}

func clientSecond(dialect string) string { return dialect + "-second" }

// clientOwns are the providers that each SDK has for itself; each has one model, of its name.
var clientOwns = []string{"drained", "sleepy"}

// Models have one rung for each SDK where a scenario uses up what the rung has, so that SDKs do not meet in it.
func clientModel(s *clientSDK, clientScenario string) string {
	return clientScenario + "-" + s.String()
}

func clientLadder(s *clientSDK) string { return "ladder-" + s.String() }

func newClientWorld(t *testing.T) *clientWorld {
	t.Helper()
	w := &clientWorld{door: newClientDoor()}
	options := mockprovider.Options{Speedup: 1000}
	for _, d := range clientDialects {
		for _, name := range []string{d, clientSecond(d)} {
			options.Upstreams = append(options.Upstreams, mockprovider.Upstream{Name: name, Dialect: d, Keys: []string{clientProviderKey + name}})
		}
	}
	for _, s := range clientSDKs {
		for _, own := range clientOwns {
			name := clientModel(s, own)
			options.Upstreams = append(options.Upstreams, mockprovider.Upstream{Name: name, Dialect: s.dialect, Keys: []string{clientProviderKey + name}})
		}
	}
	var err error
	if w.mocks, err = mockprovider.New(options); err != nil {
		t.Fatal(err)
	}
	if err = w.mocks.Start("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.mocks.Close(context.Background()) })

	text := w.file(t)
	c, err := config.LoadBytes("clients.yaml", []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	w.policy = c.Pools[0].Policy
	store := journal.NewMemory(journal.MemoryOptions{})
	if w.engine, err = engine.New(engine.Options{Store: store}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.engine.Close() })
	ctx := t.Context()
	if err = store.Init(ctx, engine.DefaultPool); err != nil {
		t.Fatal(err)
	}
	if err = w.engine.Open(ctx, engine.DefaultPool, w.policy); err != nil {
		t.Fatal(err)
	}
	w.main = w.serve(t, c)
	w.draining = w.serve(t, c)
	if err = w.gateways[1].Drain(ctx); err != nil {
		t.Fatal(err)
	}
	strict := *c
	strict.Gateway.BudgetStatus = http.StatusForbidden
	w.strict = w.serve(t, &strict)
	return w
}

// file is the configuration, as an operator would write it.
func (w *clientWorld) file(t *testing.T) string {
	t.Helper()
	keys := t.TempDir()
	var b, ladders strings.Builder
	b.WriteString("budget:\n  pool: default\n  period: monthly\n  time_zone: UTC\n  global_tokens: 500_000_000\n")
	fmt.Fprintf(&b, "  agents:\n    %s: {limit_tokens: %d}\n", clientSpentAgent, clientSpentLimit)
	fmt.Fprintf(&b, "  agent_classes:\n    %s: {share: 0.5}\n    %s: {share: 0.1}\n", clientOpenClass, clientClosedClass)
	b.WriteString("  tasks: {default_tokens: 2_000_000}\n  providers:\n")
	one := func(name, dialect string) {
		key := filepath.Join(keys, name)
		if err := os.WriteFile(key, []byte(clientProviderKey+name), 0o600); err != nil {
			t.Fatal(err)
		}
		base := w.mocks.URL(name)
		if dialect == provider.OpenAI {
			base += "/v1"
		}
		fmt.Fprintf(&b, "    %s:\n      kind: %s\n      base_url: %s\n      allow_private: true\n", name, dialect, base)
		fmt.Fprintf(&b, "      api_key: {file: %s}\n      rpd_time_zone: UTC\n      models:\n", key)
	}
	model := func(name, more string) { fmt.Fprintf(&b, "        %s: {max_output: 4096%s}\n", name, more) }
	for _, d := range clientDialects {
		one(d, d)
		model("any-"+d, "")
		for _, s := range clientSDKs {
			if s.dialect != d {
				continue
			}
			model(clientModel(s, "busy"), ", max_concurrency: 1")
			model(clientModel(s, "freed"), ", max_concurrency: 1")
			model(clientModel(s, "daily"), ", rpd_ceiling: 1")
			model(clientModel(s, "small"), ", tpm_ceiling: 1_000")
			model(clientModel(s, "rough"), "")
			model(clientModel(s, "held"), "")
			model(clientModel(s, "first"), "")
			if d == provider.Mistral { // its path is pinned to one provider
				model(clientModel(s, "second"), "")
			}
		}
		one(clientSecond(d), d)
		model("other-"+d, "")
		for _, s := range clientSDKs {
			if s.dialect == d && d != provider.Mistral {
				model(clientModel(s, "second"), "")
			}
		}
	}
	for _, s := range clientSDKs {
		for _, own := range clientOwns {
			one(clientModel(s, own), s.dialect)
			model(clientModel(s, own), "")
		}
	}
	for _, s := range clientSDKs {
		other := clientSecond(s.dialect)
		if s.dialect == provider.Mistral {
			other = s.dialect
		}
		fmt.Fprintf(&ladders, "  %s: {tiers: [[%s/%s], [%s/%s]]}\n", clientLadder(s), s.dialect, clientModel(s, "first"), other, clientModel(s, "second"))
	}
	// One failing scenario must not close a rung for the others.
	b.WriteString("breaker: {failures: 1_000}\ncatalog: {fallback_price: {input: 1, output: 4}}\nladders:\n" + ladders.String())
	return b.String()
}

// serve starts a gateway on the configuration.
func (w *clientWorld) serve(t *testing.T, c *config.Config) *httptest.Server {
	t.Helper()
	settings, err := gateway.NewSettings(c)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := identity.NewKeyring([]identity.Key{{Name: "agents", Secret: clientAgentKey, Pool: engine.DefaultPool, Classes: []string{clientOpenClass}}})
	if err != nil {
		t.Fatal(err)
	}
	g := gateway.New(gateway.Options{
		Leaser: gateway.NewLocal(w.engine), Settings: settings, Keys: keys,
		Policy: func(string) *arbiter.Policy { return w.policy },
	})
	w.gateways = append(w.gateways, g)
	s := httptest.NewServer(w.door.before(g))
	t.Cleanup(s.Close)
	return s
}

// take gets a lease as somebody else would.
func (w *clientWorld) take(t *testing.T, agent, model string, tokens arbiter.Tokens) arbiter.LeaseState {
	t.Helper()
	out, err := w.engine.Do(t.Context(), engine.Op{Command: &arbiter.Request{
		Principal: identity.Local.Principal, Agent: agent, Class: clientOpenClass, Model: model,
		Priority: arbiter.ClassPriority, Input: tokens, Output: 1, NoStartDelay: true,
	}})
	if err != nil || out.Answer.Status != arbiter.Granted {
		t.Fatalf("lease of %s for %s: %+v, %v", model, agent, out.Answer, err)
	}
	return out.Answer.Lease
}

// use takes a lease and spends it.
func (w *clientWorld) use(t *testing.T, agent, model string, tokens arbiter.Tokens) {
	t.Helper()
	l := w.take(t, agent, model, tokens-1)
	if _, err := w.engine.Do(t.Context(), engine.Op{Command: &arbiter.Commit{
		Lease: l.Lease, Principal: identity.Local.Principal, HasUsage: true, Usage: arbiter.Usage{Input: tokens - 1, Output: 1}, Outcome: arbiter.OutcomeOK,
	}}); err != nil {
		t.Fatal(err)
	}
}

// giveBack ends a lease of take.
func (w *clientWorld) giveBack(l arbiter.LeaseState) {
	// Without a test to fail: the SDK that waits for the room will.
	_, _ = w.engine.Do(context.Background(), engine.Op{Command: &arbiter.Release{Lease: l.Lease, Principal: identity.Local.Principal, Outcome: arbiter.OutcomeNotSent}})
}

// settle waits until every call is over and settled.
func (w *clientWorld) settle(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for _, g := range w.gateways {
		if err := g.Drain(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// spent is what each task has on the books, tokens; open is how many leases are held.
func (w *clientWorld) spent(t *testing.T) (tasks map[string]int64, open int) {
	t.Helper()
	tasks = map[string]int64{}
	err := w.engine.View(t.Context(), engine.DefaultPool, func(s *arbiter.State) error {
		s.EachBudget(0, func(r *arbiter.BudgetRow) {
			if r.Unit == arbiter.UnitTokens {
				tasks[r.Name] = r.Spent + r.Assumed
			}
		}, arbiter.KindTask)
		s.EachLease(arbiter.LeaseFilter{}, func(*arbiter.LeaseRow) bool { open++; return true })
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return tasks, open
}

// billed is what the mocks billed by trace id, and how many calls they got with it.
func (w *clientWorld) billed() (bills map[string]mockprovider.Bill, calls map[string]int) {
	bills, calls = map[string]mockprovider.Bill{}, map[string]int{}
	for _, r := range w.mocks.Report() {
		for _, c := range w.mocks.Calls(r.Name) {
			b := bills[c.Trace]
			b.Input += c.Input
			b.Output += c.Output
			bills[c.Trace] = b
			calls[c.Trace]++
		}
	}
	return bills, calls
}

// clientTrace names a case on its whole way: each request of it carries it in traceparent.
func clientTrace(id string) string {
	h := fnv.New128a()
	_, _ = h.Write([]byte(id))
	return fmt.Sprintf("%x", h.Sum(nil))
}

func clientTraceparent(id string) string { return "00-" + clientTrace(id) + "-00000000000000aa-01" }

// clientDoor stands before the gateways and writes down who comes.
type clientDoor struct {
	mu     sync.Mutex
	visits map[string][]clientVisit
	after  map[string]func() // by trace: what to do when its first request was answered
}

// clientVisit is one request that reached a gateway.
type clientVisit struct {
	came, left time.Time
	status     int
	header     http.Header
	// broken is set when the answer was broken off.
	broken bool
}

func newClientDoor() *clientDoor {
	return &clientDoor{visits: map[string][]clientVisit{}, after: map[string]func(){}}
}

func (d *clientDoor) before(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		trace := ""
		if parts := strings.Split(r.Header.Get("Traceparent"), "-"); len(parts) == 4 {
			trace = parts[1]
		}
		v := clientVisit{came: time.Now(), status: http.StatusOK, header: w.Header(), broken: true}
		defer func() {
			v.left = time.Now()
			d.mu.Lock()
			d.visits[trace] = append(d.visits[trace], v)
			after := d.after[trace]
			delete(d.after, trace)
			d.mu.Unlock()
			if after != nil {
				after()
			}
		}()
		next.ServeHTTP(&clientDoorWriter{w, &v.status}, r)
		v.broken = false
	})
}

func (d *clientDoor) of(id string) []clientVisit {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.visits[clientTrace(id)]
}

type clientDoorWriter struct {
	http.ResponseWriter
	status *int
}

func (w *clientDoorWriter) WriteHeader(status int) {
	*w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (w *clientDoorWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
