package gateway_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/token-budget-arbiter/tba/internal/gateway"
)

// An error whose body never ends, and a tool's answer that never does: idle_timeout bounds them as it bounds a stream.
func TestABodyThatFallsSilentIsLeft(t *testing.T) {
	t.Parallel()
	stuck := func(status int, begin string) string {
		return upstream(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.ReadAll(r.Body)
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, begin)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})
	}
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("sk-of-the-provider"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Run("of an error", func(t *testing.T) {
		t.Parallel()
		var second atomic.Int64
		file := rungsAt(stuck(http.StatusInternalServerError, `{"error":`), answering(t, &second, fine))
		file = strings.Replace(file, "      kind: openai\n", "      kind: openai\n      api_key: {file: "+key+"}\n", 1)
		w := newWorld(t, setup{file: file + "gateway: {idle_timeout: 1s}\n"})
		if got := w.post("/v1/chat/completions", helloLadder); got.status != http.StatusOK || got.header.Get("X-Tba-Provider") != "p1" {
			t.Errorf("%d %s", got.status, got.body)
		}
		if b := w.settled(); b.spent != 18 {
			t.Errorf("books: %+v", b)
		}
	})
	t.Run("of a tool", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, setup{file: fmt.Sprintf(`
budget:
  global_tokens: 1_000_000
  providers:
    search: {kind: http, base_url: %s, allow_private: true}
ladders:
  web: {rungs: [search], zero_hits: {json_path: results, empty: true}}
gateway: {idle_timeout: 1s}
`, stuck(http.StatusOK, `{"results":`))})
		if got := w.post("/tools/web/search", "{}"); got.status != http.StatusServiceUnavailable && got.err == nil {
			t.Errorf("%d %s", got.status, got.body)
		}
		w.settled()
	})
}

// At its deadline a call ends for the agent that still listens, also where answers without a listener are read on.
func TestADeadlineIsKeptThoughAnswersAreDrained(t *testing.T) {
	t.Parallel()
	told := make(chan struct{})
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		sse(w, chunk("Hello", ""))
		<-r.Context().Done()
		close(told)
	})
	w := newWorld(t, setup{file: oneProvider(up, "gateway: {drain: true}")})
	got := w.post("/v1/chat/completions", helloStream, "X-Tba-Deadline-Ms", "200")
	<-told
	if got.status != http.StatusOK || got.err != nil || !strings.Contains(got.body, "deadline") {
		t.Errorf("%d %v %q", got.status, got.err, got.body)
	}
	if b := w.settled(); b.spent == 0 {
		t.Errorf("books: %+v", b)
	}
}

// A drain whose time is over was stopped here: the provider has not failed.
func TestTheEndOfADrainIsNoFailure(t *testing.T) {
	t.Parallel()
	told := make(chan struct{})
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		sse(w, chunk("Hello", ""))
		<-r.Context().Done()
		close(told)
	})
	w := newWorld(t, setup{file: oneProvider(up, "gateway: {drain: true, drain_for: 1s}")})
	ctx, leave := context.WithCancel(t.Context())
	resp := w.stream(ctx, "/v1/chat/completions", helloStream)
	_, _ = io.ReadFull(resp.Body, make([]byte, 20))
	provider, model := resp.Header.Get("X-Tba-Provider"), resp.Header.Get("X-Tba-Model")
	leave()
	<-told
	if b := w.settled(); b.spent == 0 {
		t.Errorf("books: %+v", b)
	}
	if r := w.rung(provider, model); r.Failures != 0 {
		t.Errorf("%+v", r)
	}
}

// An agent that leaves before its answer begins has got nothing: not a refusal either.
func TestAnAgentThatLeavesIsNotRefused(t *testing.T) {
	t.Parallel()
	arrived, ended := make(chan struct{}), make(chan gateway.Ended, 1)
	up := upstream(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		close(arrived)
		<-r.Context().Done()
	})
	w := newWorld(t, setup{file: oneProvider(up), hooks: gateway.Hooks{Call: func(e gateway.Ended) { ended <- e }}})
	ctx, leave := context.WithCancel(t.Context())
	go func() { <-arrived; leave() }()
	if got := w.send(ctx, http.MethodPost, "/v1/chat/completions", hello); got.err == nil {
		t.Errorf("%d %s", got.status, got.body)
	}
	if e := <-ended; e.Status != 0 || e.Refused {
		t.Errorf("%+v", e)
	}
	if b := w.settled(); b.spent == 0 {
		t.Errorf("books: %+v", b)
	}
}
