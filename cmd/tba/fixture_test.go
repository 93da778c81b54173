package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/token-budget-arbiter/tba/internal/config"
	"github.com/token-budget-arbiter/tba/internal/mockprovider"
)

// openAIMock is a mock of OpenAI that takes that long to its first token and makes so many a second after it.
func openAIMock(t *testing.T, first time.Duration, speed int64) *mockprovider.Server {
	t.Helper()
	mocks, err := mockprovider.New(mockprovider.Options{Upstreams: []mockprovider.Upstream{{Name: "openai", Dialect: "openai", FirstToken: first, Speed: speed}}})
	if err == nil {
		err = mocks.Start("127.0.0.1:0")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mocks.Close(context.Background()) })
	return mocks
}

// started is a server of a configuration, drained when the test is over.
func started(t *testing.T, c *config.Config) *server {
	t.Helper()
	s, err := start(t.Context(), startOptions{config: c, log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.drain(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return s
}

// serving starts a server with a mock of OpenAI and rules of its own.
func serving(t *testing.T, rules string) (*server, *mockprovider.Server) {
	t.Helper()
	mocks := openAIMock(t, time.Millisecond, 100_000)
	return started(t, servable(t, mocks, rules)), mocks
}

func servable(t *testing.T, mocks *mockprovider.Server, rules string) *config.Config {
	t.Helper()
	key := t.TempDir() + "/key"
	if err := replaceFile(key, []byte("sk-mock"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.LoadBytes("tba.yaml", fmt.Appendf(nil, `
budget:
  providers:
    openai: {base_url: %s/v1, allow_private: true, api_key: {file: %s}, models: {gpt-5.4-mini: {}}}
listen: {http: 127.0.0.1:0, grpc: 127.0.0.1:0, ops: 127.0.0.1:0}
journal: memory
drain_timeout: 10s
%s
`, mocks.URL("openai"), key, rules))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const hello = `{"model":"gpt-5.4-mini","max_tokens":8,"messages":[{"role":"user","content":"hello"}]}`

// from posts from one address of this machine.
func from(t *testing.T, local, url, body string, header ...string) (*http.Response, string) {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(local)}}
	client := http.Client{Transport: &http.Transport{DialContext: d.DialContext, DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(b)
}
