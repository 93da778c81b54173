package gateway_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/token-budget-arbiter/tba/internal/gateway"
)

// A provider that breaks off before its first byte may have done the work: the call is paid for by a guess that is not zero. One that
// cannot be reached has done nothing.
func TestACallWithoutAnAnswerIsPaidFor(t *testing.T) {
	t.Parallel()
	silent := upstream(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		panic(http.ErrAbortHandler)
	})
	for url, paid := range map[string]bool{silent: true, "http://127.0.0.1:1": false} {
		w := newWorld(t, setup{file: oneProvider(url)})
		if got := w.post("/v1/chat/completions", hello); got.status != http.StatusServiceUnavailable {
			t.Errorf("%s: %d %s", url, got.status, got.body)
		}
		if b := w.settled(); (b.spent > 0) != paid {
			t.Errorf("%s: books: %+v", url, b)
		}
	}
}

// What an SDK tries again by itself does not wait again here, or the agent's one call would be many.
func TestAnSDKThatRetriesIsNotQueuedFor(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	w := newWorld(t, setup{file: oneProvider(answering(t, &calls, failing(http.StatusTooManyRequests,
		`{"error":{"message":"Rate limit reached","type":"requests","code":"rate_limit_exceeded"}}`, "Retry-After-Ms", "50")))})
	got := w.post("/v1/chat/completions", hello, "X-Stainless-Retry-Count", "1")
	if got.status != http.StatusTooManyRequests || calls.Load() != 1 {
		t.Errorf("%d after %d calls: %s", got.status, calls.Load(), got.body)
	}
	w.settled()
}

// lateLeaser grants when the agent has just left.
type lateLeaser struct {
	gateway.Leaser
	leave context.CancelFunc
}

func (l lateLeaser) Acquire(ctx context.Context, a *gateway.Ask) (gateway.Grant, error) {
	g, err := l.Leaser.Acquire(ctx, a)
	l.leave()
	<-ctx.Done()
	return g, err
}

// A lease that is granted while its agent leaves is given back, and nothing goes up.
func TestAGrantToNobodyIsGivenBack(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w := newWorld(t, setup{
		file:   oneProvider(answering(t, &calls, fine)),
		leaser: func(l gateway.Leaser) gateway.Leaser { return lateLeaser{l, cancel} },
	})
	if got := w.send(ctx, http.MethodPost, "/v1/chat/completions", hello); got.err == nil {
		t.Errorf("%d %s", got.status, got.body)
	}
	if err := w.gateway.Drain(t.Context()); err != nil { // the call is over
		t.Fatal(err)
	}
	if b := w.settled(); b.spent != 0 || b.calls != 1 || calls.Load() != 0 {
		t.Errorf("%d calls, books: %+v", calls.Load(), b)
	}
}

// max_drains bounds the answers that are read on for nobody: those above it are stopped as if there were no drain.
func TestDrainsAreBounded(t *testing.T) {
	t.Parallel()
	ended, release := make(chan struct{}, 3), make(chan struct{})
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		sse(w, chunk("Hello", ""))
		select {
		case <-r.Context().Done():
			ended <- struct{}{}
		case <-release:
			sse(w, usageChunk, "[DONE]")
		}
	})
	drains := make(chan int64, 8)
	w := newWorld(t, setup{
		file:  oneProvider(up, "gateway: {drain: true, max_drains: 1}"),
		hooks: gateway.Hooks{Draining: func(n int64) { drains <- n }},
	})
	leave := func() {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		_, _ = io.ReadFull(w.stream(ctx, "/v1/chat/completions", helloStream).Body, make([]byte, 20))
	}
	leave()
	if n := <-drains; n != 1 {
		t.Fatalf("%d drains", n)
	}
	for range 2 {
		leave()
		select {
		case <-ended:
		case n := <-drains:
			t.Fatalf("%d drains, one is allowed", n)
		}
	}
	close(release)
	if b := w.settled(); b.spent < 18+2*4 {
		t.Errorf("books: %+v", b)
	}
}

// The counts at the beginning of an answer are no bill when it is cut: what was said up to there counts too.
func TestACutAnswerIsPaidByItsText(t *testing.T) {
	t.Parallel()
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		sse(w, `{"type":"message_start","message":{"id":"m","model":"claude-sonnet-5","usage":{"input_tokens":11,"output_tokens":1}}}`)
		for range 100 {
			sse(w, `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"word "}}`)
		}
		panic(http.ErrAbortHandler)
	})
	w := newWorld(t, setup{file: fourProviders(up)})
	got := w.post("/anthropic/v1/messages", `{"model":"claude-sonnet-5","max_tokens":500,"stream":true,"messages":[{"role":"user","content":"hi"}]}`)
	if got.err == nil {
		t.Errorf("%d %s", got.status, got.body)
	}
	if b := w.settled(); b.spent < 11+100 || b.spent > 11+200 {
		t.Errorf("500 bytes of text and 11 tokens of prompt: %+v", b)
	}
}

// deaf is an agent to which nothing can be written.
type deaf struct{ http.ResponseWriter }

func (deaf) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// An agent that cannot be written to is noticed by that alone: the provider is told, and the lease ends.
func TestAnAgentThatHearsNothing(t *testing.T) {
	t.Parallel()
	told := make(chan struct{})
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		sse(w, chunk("Hello", ""))
		<-r.Context().Done()
		close(told)
	})
	w := newWorld(t, setup{file: oneProvider(up)})
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/chat/completions", strings.NewReader(helloStream))
	r.Host = "127.0.0.1"
	got := httptest.NewRecorder()
	w.gateway.ServeHTTP(deaf{got}, r)
	if b := w.settled(); b.spent == 0 || b.calls != 1 {
		t.Fatalf("status %d, books: %+v", got.Code, b)
	}
	<-told
}
