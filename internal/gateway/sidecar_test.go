package gateway_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidwall/gjson"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/token-budget-arbiter/tba/internal/config"
	"github.com/token-budget-arbiter/tba/internal/gateway"
	"github.com/token-budget-arbiter/tba/internal/identity"
	"github.com/token-budget-arbiter/tba/internal/rpc"
)

// newSidecar is a world whose gateway has its arbiter across a network, which knows these keys.
func newSidecar(t testing.TB, file string, keys ...identity.Key) *world {
	t.Helper()
	w := newWorld(t, setup{file: file})
	ring, err := identity.NewKeyring(keys)
	if err != nil {
		t.Fatal(err)
	}
	server := rpc.New(rpc.Options{Engine: w.engine, Reader: w.engine, Feed: w.engine, Keys: ring})
	server.SetServing(true)
	listener, g, done := bufconn.Listen(1<<16), server.GRPC(nil), make(chan struct{})
	go func() { defer close(done); _ = g.Serve(listener) }()
	t.Cleanup(func() { server.Close(); g.Stop(); <-done })
	remote, err := gateway.DialRemote("passthrough:///arbiter", gateway.RemoteOptions{GRPC: []grpc.DialOption{
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
	}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.LoadBytes("tba.yaml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	settings, err := gateway.NewSettings(c)
	if err != nil {
		t.Fatal(err)
	}
	side := gateway.New(gateway.Options{Leaser: remote, Settings: settings})
	front := httptest.NewServer(side)
	w.url = front.URL
	t.Cleanup(func() {
		front.CloseClientConnections()
		front.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := side.Drain(ctx); err != nil {
			t.Errorf("drain: %v", err)
		}
		if err := remote.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// TestSidecar asserts that a call through a gateway that is not the arbiter is judged by the agent's own key and billed like any other.
func TestSidecar(t *testing.T) {
	t.Parallel()
	const fleet, free = "fleet-0123456789abcdef", "free-0123456789abcdef"
	var calls atomic.Int64
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		for name, values := range r.Header {
			for _, v := range values {
				if strings.Contains(v, fleet) || strings.Contains(v, free) {
					t.Errorf("the agent's key went up in %s", name)
				}
			}
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, chatReply(11, 7))
	})
	w := newSidecar(t, oneProvider(up, "  agent_classes:\n    batch: {share: 0.5}"),
		identity.Key{Name: "fleet", Secret: fleet, Classes: []string{"batch"}}, identity.Key{Name: "free", Secret: free})
	for _, test := range []struct {
		what    string
		headers []string
		body    string
		status  int
		reason  string
	}{
		{"a key of one class", []string{"Authorization", "Bearer " + fleet}, hello, 200, ""},
		{"any class", []string{"Authorization", "Bearer " + free, "X-Tba-Class", "batch", "X-Tba-Agent", "a-1"}, hello, 200, ""},
		{"another class", []string{"Authorization", "Bearer " + fleet, "X-Tba-Class", "default"}, hello, 403, "class_not_allowed"},
		{"no key", nil, hello, 401, "no_credential"},
		{"an unknown key", []string{"X-Api-Key", "guess-0123456789abcdef"}, hello, 401, "bad_credential"},
		{"larger than the budget", []string{"Authorization", "Bearer " + free, "X-Tba-Max-Wait-Ms", "0"}, strings.Replace(hello, "Say hello.", strings.Repeat("word ", 1_200_000), 1), 400, "too_large"},
	} {
		before := calls.Load()
		got := w.post("/v1/chat/completions", test.body, test.headers...)
		went := calls.Load() - before
		if got.status != test.status || gjson.Get(got.body, "error.tba.reason").Str != test.reason || (went == 1) != (test.status == 200) {
			t.Errorf("%s: %d %.300s, %d went up, want %d %s", test.what, got.status, got.body, went, test.status, test.reason)
		}
		if origin := got.header.Get("X-Tba-Origin"); (origin == "upstream") != (test.status == 200) {
			t.Errorf("%s: x-tba-origin %q", test.what, origin)
		}
		if test.status == 200 && (got.header.Get("X-Tba-Lease") == "" || got.header.Get("X-Tba-Provider") != "openai") {
			t.Errorf("%s: %v", test.what, got.header)
		}
	}
	if b := w.settled(); b.spent != 36 || b.calls != 2 {
		t.Errorf("books: %+v, want 2 calls of 18 tokens", b)
	}
}
