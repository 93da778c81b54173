package gateway_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
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
)

func TestMain(m *testing.M) {
	if run, ok := role(); ok {
		if err := run(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// world is a gateway with its arbiter in one process, and what its providers got.
type world struct {
	t       testing.TB
	engine  *engine.Engine
	gateway *gateway.Gateway
	url     string
	log     *syncBuffer
}

// setup of a world. budget is the YAML of the file under budget:, with UPSTREAM where a provider's base_url is the test's.
type setup struct {
	file  string
	store journal.Store
	keys  *identity.Keyring
	hooks gateway.Hooks
	// leaser is put around the engine's own; nil for none.
	leaser func(gateway.Leaser) gateway.Leaser
}

// syncBuffer is what a process has logged.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func newWorld(t testing.TB, s setup) *world {
	t.Helper()
	c, err := config.LoadBytes("tba.yaml", []byte(s.file))
	if err != nil {
		t.Fatal(err)
	}
	if s.store == nil {
		s.store = journal.NewMemory(journal.MemoryOptions{})
	}
	w := &world{t: t, log: &syncBuffer{}}
	log := slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	if w.engine, err = engine.New(engine.Options{Store: s.store, Logger: log}); err != nil {
		t.Fatal(err)
	}
	for i := range c.Pools {
		if err := s.store.Init(t.Context(), c.Pools[i].Name); err != nil {
			t.Fatal(err)
		}
		if err := w.engine.Open(t.Context(), c.Pools[i].Name, c.Pools[i].Policy); err != nil {
			t.Fatal(err)
		}
	}
	settings, err := gateway.NewSettings(c)
	if err != nil {
		t.Fatal(err)
	}
	var leaser gateway.Leaser = gateway.NewLocal(w.engine)
	if s.leaser != nil {
		leaser = s.leaser(leaser)
	}
	w.gateway = gateway.New(gateway.Options{
		Leaser: leaser, Settings: settings, Keys: s.keys, Logger: log, Hooks: s.hooks,
		Policy: func(pool string) *arbiter.Policy {
			if p, ok := c.Pool(pool); ok {
				return p.Policy
			}
			return nil
		},
	})
	front := httptest.NewServer(w.gateway)
	w.url = front.URL
	t.Cleanup(func() {
		front.CloseClientConnections()
		front.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := w.gateway.Drain(ctx); err != nil {
			t.Errorf("drain: %v", err)
		}
		if err := w.engine.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// upstream serves h until the test ends, as a provider would, and returns its root.
func upstream(t testing.TB, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s.URL
}

// reply is an answer of the gateway, read to its end.
type reply struct {
	status int
	header http.Header
	body   string
	err    error // of reading: the answer was cut
}

// post sends a JSON body.
func (w *world) post(path, body string, headers ...string) reply {
	w.t.Helper()
	return w.send(w.t.Context(), http.MethodPost, path, body, headers...)
}

func (w *world) send(ctx context.Context, method, path, body string, headers ...string) reply {
	w.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, w.url+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return reply{err: err}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(text), err}
}

// books are the figures of the budget that everything counts into: tokens spent and held, and how many leases run.
type books struct {
	spent, held arbiter.Tokens
	nanos       arbiter.Nanos
	calls       int64 // leases granted
	running     int64
}

// settled waits until no lease runs, and returns the books.
func (w *world) settled() (b books) {
	w.t.Helper()
	deadline, tick := time.After(10*time.Second), time.NewTicker(2*time.Millisecond)
	defer tick.Stop()
	for {
		if b = w.books(); b.running == 0 && b.held == 0 {
			return b
		}
		select {
		case <-tick.C:
		case <-deadline:
			w.t.Fatalf("leases are left behind: %+v\n%s", b, w.log.String())
		}
	}
}

func (w *world) books() (b books) {
	w.t.Helper()
	err := w.engine.View(w.t.Context(), engine.DefaultPool, func(s *arbiter.State) error {
		s.EachBudget(0, func(r *arbiter.BudgetRow) {
			switch {
			case r.Kind != arbiter.KindGlobal:
			case r.Unit == arbiter.UnitTokens:
				b.spent, b.held, b.calls = arbiter.Tokens(r.Spent), arbiter.Tokens(r.Held), r.Calls
			default:
				b.nanos = arbiter.Nanos(r.Spent)
			}
		})
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, p := range w.engine.Stats() {
		b.running += p.Running
	}
	return b
}

// until waits for a condition that becomes true by itself.
func (w *world) until(ok func() bool) {
	w.t.Helper()
	deadline, tick := time.After(10*time.Second), time.NewTicker(50*time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			w.t.Fatal("it did not become true")
		}
	}
}
