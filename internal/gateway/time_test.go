package gateway_test

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/engine"
)

// The times of these tests are the shortest that a file may name: a second.

// A provider that falls silent in the middle of its answer is left: the call is cancelled, the agent sees its answer break off, what came
// is booked, and the breaker hears of it.
func TestAnAnswerThatFallsSilent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		call oddCall
		body string
		gets int
		want arbiter.Usage
	}{
		"a stream":                 {chatStream, lines(says("hello you", "")), 200, arbiter.Usage{Input: prompt, Output: 3}},
		"a stream of comments":     {chatStream, ": wait\n\n", 503, arbiter.Usage{Input: prompt}},
		"a stream of nothing":      {messageSSE, "", 503, arbiter.Usage{Input: prompt + 3}}, // the first ratio of Claude
		"in the middle of a whole": {chatCall, chatReply(11, 7)[:150], 503, arbiter.Usage{Input: prompt, Output: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			told := make(chan struct{})
			up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.ReadAll(r.Body)
				w.Header().Set("Content-Type", map[bool]string{true: "application/json", false: "text/event-stream"}[c.call.body == hello])
				_, _ = io.WriteString(w, c.body)
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
				close(told)
			})
			var l ledger
			w := newWorld(t, setup{file: fourProviders(up, "gateway: {idle_timeout: 1s}"), hooks: l.hooks()})
			got := w.post(c.call.path, c.call.body)
			<-told
			if got.status != c.gets || (got.err != nil) != (c.gets == 200) || c.gets == 200 && got.body != c.body {
				t.Errorf("%d %v %q", got.status, got.err, got.body)
			}
			b, bills := w.settled(), l.committed()
			if len(bills) != 1 || bills[0].Usage != c.want || !bills[0].Estimated || b.spent != c.want.Total() {
				t.Errorf("booked %d, bills %+v, want %+v", b.spent, bills, c.want)
			}
			if r := w.rung(c.call.provider, c.call.model); r.Failures != 1 {
				t.Errorf("%+v", r)
			}
		})
	}
}

// Comments are a sign of life.
func TestCommentsKeepAnAnswerAlive(t *testing.T) {
	t.Parallel()
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		tick := time.NewTicker(250 * time.Millisecond)
		defer tick.Stop()
		for range 7 {
			_, _ = io.WriteString(w, ": keep-alive\n\n")
			_ = http.NewResponseController(w).Flush()
			<-tick.C
		}
		sse(w, chunk("Hello", ""), chunk(" there.", "stop"), usageChunk, "[DONE]")
	})
	w := newWorld(t, setup{file: oneProvider(up, "gateway: {idle_timeout: 1s}")})
	got := w.post(chatStream.path, chatStream.body)
	if got.status != http.StatusOK || got.err != nil || strings.Count(got.body, ": keep-alive") != 7 || !strings.HasSuffix(got.body, "data: [DONE]\n\n") {
		t.Errorf("%d %v %q", got.status, got.err, got.body)
	}
	if b := w.settled(); b.spent != 18 {
		t.Errorf("books: %+v", b)
	}
}

// A provider that does not begin its answer in time may have run the call all the same: its prompt is booked, and the next rung is asked.
func TestAnAnswerThatDoesNotBegin(t *testing.T) {
	t.Parallel()
	var first, second atomic.Int64
	told := make(chan struct{})
	silent := upstream(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		first.Add(1)
		<-r.Context().Done()
		close(told)
	})
	var l ledger
	w := newWorld(t, setup{file: rungsAt(silent, answering(t, &second, fine)) + "gateway: {header_timeout: 1s}\n", hooks: l.hooks()})
	got := w.post(chatCall.path, helloLadder)
	<-told
	if got.status != http.StatusOK || got.header.Get("X-Tba-Provider") != "p1" || first.Load() != 1 || second.Load() != 1 {
		t.Errorf("%d after %d and %d calls: %s", got.status, first.Load(), second.Load(), got.body)
	}
	bills := l.committed()
	if b := w.settled(); b.spent != prompt+18 || len(bills) != 2 || !bills[0].Estimated || bills[0].Usage.Total() != prompt || bills[1].Estimated {
		t.Errorf("books %+v, bills %+v", b, bills)
	}
	if r := w.rung("p0", "m0"); r.Failures != 1 {
		t.Errorf("%+v", r)
	}
}

// revoke takes a lease back, as an operator does.
func (w *world) revoke(id string) {
	w.t.Helper()
	lease, err := engine.ParseLeaseID(id)
	if err == nil {
		_, err = w.engine.Do(w.t.Context(), engine.Op{Pool: engine.DefaultPool, Command: &arbiter.Revoke{Lease: lease}})
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// A lease that is revoked in the middle of a stream: the provider is told to stop, the stream ends with an error in the agent's dialect,
// and what was delivered is booked.
func TestARevokedLeaseInMidStream(t *testing.T) {
	t.Parallel()
	const begun = `{"type":"message_start","message":{"id":"m","usage":{"input_tokens":25,"output_tokens":1}}}`
	const delta = `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hello you"}}`
	for name, c := range map[string]struct {
		call oddCall
		body string
		ends string // how the stream ends
		want arbiter.Usage
	}{
		"OpenAI":    {chatStream, lines(says("hello you", "")), `data: {"error":{`, arbiter.Usage{Input: prompt, Output: 3}},
		"Responses": {responses, named("response.output_text.delta", `{"type":"response.output_text.delta","delta":"hello you"}`), `data: {"error":{`, arbiter.Usage{Input: prompt, Output: 3}},
		"Anthropic": {messageSSE, named("message_start", begun, "content_block_delta", delta), "event: error\ndata: ", arbiter.Usage{Input: 25, Output: 3}},
		"Gemini":    {genStream, lines(`{"candidates":[{"content":{"parts":[{"text":"hello you"}]}}]}`), `{"error":{"code":403`, arbiter.Usage{Input: prompt, Output: 3}},
		"Mistral":   {mistral, lines(says("hello you", "")), "data: {", arbiter.Usage{Input: prompt, Output: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			told := make(chan struct{})
			up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.ReadAll(r.Body)
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, c.body)
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
				close(told)
			})
			var l ledger
			w := newWorld(t, setup{file: fourProviders(up, "lease: {ttl: 1s}"), hooks: l.hooks()})
			resp := w.stream(t.Context(), c.call.path, c.call.body)
			head := make([]byte, len(c.body))
			if _, err := io.ReadFull(resp.Body, head); err != nil {
				t.Fatal(err)
			}
			w.revoke(resp.Header.Get("X-Tba-Lease"))
			rest, err := io.ReadAll(resp.Body)
			<-told
			if string(head) != c.body || err != nil || !strings.Contains(string(rest), c.ends) || !strings.Contains(string(rest), "revoked") || strings.Contains(string(rest), "[DONE]") {
				t.Errorf("%v %q and %q", err, head, rest)
			}
			b, bills := w.settled(), l.committed()
			if len(bills) != 1 || bills[0].Usage != c.want || !bills[0].Estimated || b.spent != c.want.Total() {
				t.Errorf("booked %d, bills %+v, want %+v", b.spent, bills, c.want)
			}
			if r := w.rung(c.call.provider, c.call.model); r.Failures != 0 {
				t.Errorf("the operator's word counts against the provider: %+v", r)
			}
		})
	}
}

// The same before the answer has begun.
func TestARevokedLeaseBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	arrived, told := make(chan struct{}), make(chan struct{})
	up := upstream(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		close(arrived)
		<-r.Context().Done()
		close(told)
	})
	w := newWorld(t, setup{file: oneProvider(up, "lease: {ttl: 1s}")})
	got := make(chan reply, 1)
	go func() { got <- w.post(chatCall.path, chatCall.body) }()
	<-arrived
	var id arbiter.LeaseID
	err := w.engine.View(t.Context(), engine.DefaultPool, func(s *arbiter.State) error {
		s.EachLease(arbiter.LeaseFilter{}, func(r *arbiter.LeaseRow) bool { id = r.Lease; return true })
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	w.revoke(engine.FormatLeaseID(id))
	<-told
	if r := <-got; r.status != http.StatusForbidden || !strings.Contains(r.body, "lease_revoked") || r.header.Get("X-Should-Retry") != "false" {
		t.Errorf("%d %v %s", r.status, r.header, r.body)
	}
	if b := w.settled(); b.spent != prompt {
		t.Errorf("books: %+v", b)
	}
}

// T11 through the gateway: a stream that is three times as long as its lease's life keeps its hold to the end, and its bill is exact.
func TestALeaseLastsAsLongAsItsStream(t *testing.T) {
	t.Parallel()
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		tick := time.NewTicker(300 * time.Millisecond)
		defer tick.Stop()
		for range 10 {
			sse(w, chunk("word ", ""))
			<-tick.C
		}
		sse(w, chunk("", "stop"), usageChunk, "[DONE]")
	})
	var l ledger
	w := newWorld(t, setup{file: oneProvider(up, "lease: {ttl: 1s}"), hooks: l.hooks()})
	resp := w.stream(t.Context(), chatStream.path, chatStream.body)
	scan, events := bufio.NewScanner(resp.Body), 0
	for scan.Scan() {
		if !strings.Contains(scan.Text(), `"word "`) {
			continue
		}
		events++
		if b := w.books(); b.held < prompt+50 || b.running != 1 || b.spent != 0 {
			t.Errorf("event %d: %+v", events, b)
		}
	}
	if scan.Err() != nil || events != 10 {
		t.Errorf("%d events, %v", events, scan.Err())
	}
	if b, bills := w.settled(), l.committed(); b.spent != 18 || len(bills) != 1 || bills[0].Estimated {
		t.Errorf("books %+v, bills %+v", b, bills)
	}
	if list := w.events(arbiter.EventLeaseExpired); len(list) != 0 {
		t.Errorf("events: %+v", list)
	}
}
