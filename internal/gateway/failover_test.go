package gateway_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/token-budget-arbiter/tba/arbiter"
)

// rungsAt is a file with a ladder "chat" over providers of the OpenAI dialect, cheapest first.
func rungsAt(urls ...string) string {
	var providers, rungs []string
	for i, url := range urls {
		providers = append(providers, fmt.Sprintf(`    p%d:
      kind: openai
      base_url: %s/v1
      allow_private: true
      models: {m%d: {price: {input: %d, output: %d}}}`, i, url, i, i+1, 4*(i+1)))
		rungs = append(rungs, fmt.Sprintf("p%d/m%d", i, i))
	}
	return fmt.Sprintf("budget:\n  global_tokens: 1_000_000\n  providers:\n%s\nladders:\n  chat: {rungs: [%s]}\n", strings.Join(providers, "\n"), strings.Join(rungs, ", "))
}

const helloLadder = `{"model":"chat","messages":[{"role":"user","content":"Say hello."}],"max_completion_tokens":50}`

// answering counts the calls it gets and answers the n-th with answer(n).
func answering(t testing.TB, calls *atomic.Int64, answer func(n int64, w http.ResponseWriter, body string)) string {
	return upstream(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		answer(calls.Add(1), w, string(body))
	})
}

func fine(_ int64, w http.ResponseWriter, _ string) { _, _ = io.WriteString(w, chatReply(11, 7)) }

func failing(status int, body string, headers ...string) func(int64, http.ResponseWriter, string) {
	return func(_ int64, w http.ResponseWriter, _ string) {
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

const serverError = `{"error":{"message":"The server had an error","type":"server_error","param":null,"code":null}}`

func TestAnErrorGoesToTheNextRung(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		answer func(int64, http.ResponseWriter, string)
	}{
		{"500", failing(500, serverError)},
		{"503 overloaded", failing(503, `{"error":{"message":"busy","type":"service_unavailable_error","code":"server_is_overloaded"}}`)},
		{"T45 a: insufficient_quota", failing(429, `{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}`)},
		{"T45 c: 402", failing(402, `{"error":{"message":"pay"}}`)},
		{"our key is bad", failing(401, `{"error":{"message":"Incorrect API key provided","code":"invalid_api_key"}}`)},
		{"an error inside a 200", failing(200, `{"error":{"message":"upstream broke","code":502}}`)},
		{"html", failing(502, "<html><body>Bad gateway</body></html>", "Content-Type", "text/html")},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var first, second atomic.Int64
			w := newWorld(t, setup{file: rungsAt(answering(t, &first, c.answer), answering(t, &second, func(_ int64, w http.ResponseWriter, body string) {
				if gjson.Get(body, "model").String() != "m1" {
					t.Errorf("model of the second rung: %s", body)
				}
				fine(0, w, body)
			}))})
			got := w.post("/v1/chat/completions", helloLadder)
			if got.status != http.StatusOK || got.header.Get("X-Tba-Provider") != "p1" {
				t.Fatalf("%d %s %s", got.status, got.header.Get("X-Tba-Provider"), got.body)
			}
			if first.Load() != 1 || second.Load() != 1 {
				t.Errorf("calls: %d and %d", first.Load(), second.Load())
			}
			if b := w.settled(); b.spent != 18 {
				t.Errorf("books: %+v", b)
			}
		})
	}
}

func TestAnErrorIsPassedOnWhenNothingIsLeft(t *testing.T) {
	t.Parallel()
	var calls [3]atomic.Int64
	w := newWorld(t, setup{file: rungsAt(answering(t, &calls[0], failing(500, serverError)), answering(t, &calls[1], failing(500, serverError)), answering(t, &calls[2], fine))})
	got := w.post("/v1/chat/completions", helloLadder)
	if got.status != 500 || got.body != serverError || got.header.Get("X-Tba-Origin") != "upstream" {
		t.Errorf("%d %v %s", got.status, got.header, got.body)
	}
	if calls[0].Load() != 1 || calls[1].Load() != 1 || calls[2].Load() != 0 {
		t.Errorf("two tries are the most: %d, %d, %d", calls[0].Load(), calls[1].Load(), calls[2].Load())
	}
	if b := w.settled(); b.spent != 0 {
		t.Errorf("books: %+v", b)
	}
}

// A provider that gives no answer, and one whose answer breaks off before its first event, has failed the call like one that says so.
func TestTriesWithoutAnAnswerAreBounded(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]func(int64, http.ResponseWriter, string){
		"no answer": func(int64, http.ResponseWriter, string) { panic(http.ErrAbortHandler) },
		"a head alone": func(_ int64, w http.ResponseWriter, _ string) {
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		},
	} {
		var calls [3]atomic.Int64
		w := newWorld(t, setup{file: rungsAt(answering(t, &calls[0], fails), answering(t, &calls[1], fails), answering(t, &calls[2], fine))})
		got := w.post("/v1/chat/completions", helloLadder)
		if got.status != http.StatusServiceUnavailable {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
		if calls[0].Load() != 1 || calls[1].Load() != 1 || calls[2].Load() != 0 {
			t.Errorf("%s: two tries are the most: %d, %d, %d", name, calls[0].Load(), calls[1].Load(), calls[2].Load())
		}
		if b := w.settled(); b.spent == 0 || b.calls != 2 {
			t.Errorf("%s: books: %+v", name, b)
		}
	}
}

func TestAnSDKThatRetriesIsNotRetriedFor(t *testing.T) {
	t.Parallel()
	var first, second atomic.Int64
	w := newWorld(t, setup{file: rungsAt(answering(t, &first, failing(500, serverError)), answering(t, &second, fine))})
	got := w.post("/v1/chat/completions", helloLadder, "X-Stainless-Retry-Count", "1")
	if got.status != 500 || second.Load() != 0 {
		t.Errorf("%d %s, second rung called %d times", got.status, got.body, second.Load())
	}
	w.settled()
}

func TestTheCallersFaultIsNotTriedElsewhere(t *testing.T) {
	t.Parallel()
	for _, status := range []int{400, 404, 413, 422} {
		var first, second atomic.Int64
		const body = `{"error":{"message":"bad parameter","type":"invalid_request_error","param":"x","code":null}}`
		w := newWorld(t, setup{file: rungsAt(answering(t, &first, failing(status, body)), answering(t, &second, fine))})
		got := w.post("/v1/chat/completions", helloLadder)
		if got.status != status || got.body != body || second.Load() != 0 {
			t.Errorf("%d: answered %d %s, second rung %d", status, got.status, got.body, second.Load())
		}
		if b := w.settled(); b.spent != 0 {
			t.Errorf("books: %+v", b)
		}
	}
}

// A 429 holds the rung and moves the call to the next one with room; no try is spent on it, and the breaker hears of no failure.
func TestA429GoesToARungWithRoom(t *testing.T) {
	t.Parallel()
	var first, second atomic.Int64
	throttled := failing(429, `{"error":{"message":"Rate limit reached","type":"requests","code":"rate_limit_exceeded"}}`, "Retry-After", "20")
	w := newWorld(t, setup{file: rungsAt(answering(t, &first, throttled), answering(t, &second, fine))})
	for range 5 {
		if got := w.post("/v1/chat/completions", helloLadder); got.status != http.StatusOK || got.header.Get("X-Tba-Provider") != "p1" {
			t.Fatalf("%d %s", got.status, got.body)
		}
	}
	if first.Load() != 1 || second.Load() != 5 {
		t.Errorf("one agent's throttle is the fleet's: %d and %d calls", first.Load(), second.Load())
	}
	page, err := w.engine.Events("default", 0, 10, arbiter.EventThrottled)
	if err != nil || len(page.Events) != 1 {
		t.Fatalf("events: %+v, %v", page, err)
	}
	if b := w.settled(); b.spent != 5*18 {
		t.Errorf("books: %+v", b)
	}
}

// With one rung the call waits for the hold instead of failing: the agent never sees the 429.
func TestA429OfTheOnlyRungIsWaitedFor(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	up := answering(t, &calls, func(n int64, w http.ResponseWriter, body string) {
		if n == 1 {
			failing(429, `{"error":{"message":"Rate limit reached","type":"requests","code":"rate_limit_exceeded"}}`, "Retry-After-Ms", "300")(n, w, body)
			return
		}
		fine(n, w, body)
	})
	w := newWorld(t, setup{file: oneProvider(up)})
	if got := w.post("/v1/chat/completions", hello); got.status != http.StatusOK {
		t.Fatalf("%d %s", got.status, got.body)
	}
	if b := w.settled(); calls.Load() != 2 || b.spent != 18 {
		t.Errorf("%d calls, books %+v", calls.Load(), b)
	}
	// An agent that will not wait gets the provider's own word, with a wait that its SDK honours.
	calls.Store(0)
	got := w.post("/v1/chat/completions", hello, "X-Tba-Max-Wait-Ms", "0")
	if got.status != http.StatusTooManyRequests || got.header.Get("X-Tba-Origin") != "upstream" {
		t.Errorf("%d %v %s", got.status, got.header, got.body)
	}
	w.settled()
}

// T45 b: a 429 that is only worded like an exhausted account is waited for.
func TestT45AThrottleThatSaysQuota(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	up := answering(t, &calls, func(n int64, w http.ResponseWriter, body string) {
		if n == 1 {
			failing(429, `{"error":{"message":"exceeded your current limit of concurrent requests","type":"INSUFFICIENT QUOTA"}}`, "Retry-After-Ms", "250")(n, w, body)
			return
		}
		fine(n, w, body)
	})
	w := newWorld(t, setup{file: oneProvider(up)})
	if got := w.post("/v1/chat/completions", hello); got.status != http.StatusOK || calls.Load() != 2 {
		t.Errorf("%d after %d calls: %s", got.status, calls.Load(), got.body)
	}
	w.settled()
}

func TestWaitsThatSDKsWouldSleepOnForHoursDoNotGoOn(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	up := answering(t, &calls, failing(429, `{"error":{"message":"Rate limit reached","type":"requests","code":"rate_limit_exceeded"}}`, "Retry-After", "86400", "Retry-After-Ms", "86400000"))
	w := newWorld(t, setup{file: oneProvider(up)})
	got := w.post("/v1/chat/completions", hello)
	if got.status != http.StatusTooManyRequests || got.header.Get("Retry-After") != "" || got.header.Get("Retry-After-Ms") != "" || got.header.Get("X-Should-Retry") != "false" {
		t.Errorf("%d %v", got.status, got.header)
	}
	w.settled()
}

// Rungs of a tool: a free one without hits falls through, a paid one ends the chain with what it found, or did not find.
func TestToolsFallThroughOnFreeRungs(t *testing.T) {
	t.Parallel()
	const empty, some = `{"results":[]}`, `{"results":[{"title":"a"}]}`
	answer := func(body string) func(int64, http.ResponseWriter, string) {
		return func(_ int64, w http.ResponseWriter, _ string) { _, _ = io.WriteString(w, body) }
	}
	for _, c := range []struct {
		name         string
		free, paid   func(int64, http.ResponseWriter, string)
		body         string
		status       int
		paidAsked    int64
		fromProvider string
	}{
		{"hits on the free rung", answer(some), answer(some), some, 200, 0, "free"},
		{"none on the free rung", answer(empty), answer(some), some, 200, 1, "paid"},
		{"none at all", answer(empty), answer(empty), empty, 200, 1, "paid"},
		{"204 on the free rung", failing(204, ""), answer(some), some, 200, 1, "paid"},
		{"404 on the free rung", failing(404, `{"error":"nothing"}`), answer(empty), empty, 200, 1, "paid"},
		{"the free rung is broken", failing(500, `{}`), answer(some), some, 200, 1, "paid"},
		{"the paid rung is broken", answer(empty), failing(500, `{}`), chatReply(11, 7), 200, 1, "last"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var free, paid, last atomic.Int64
			w := newWorld(t, setup{file: fmt.Sprintf(`
budget:
  global_tokens: 1_000
  providers:
    free: {kind: http, base_url: %s/api, allow_private: true, price: {input: 0, output: 0}}
    paid: {kind: http, base_url: %s/api, allow_private: true, price: {input: 1, output: 1}}
    last: {kind: http, base_url: %s/api, allow_private: true, price: {input: 2, output: 2}}
ladders:
  search:
    rungs: [free, paid, last]
    zero_hits: {status: [204, 404], json_path: results, empty: true}
    paid: [paid, last]
`, answering(t, &free, c.free), answering(t, &paid, c.paid), answering(t, &last, fine))})
			got := w.send(t.Context(), http.MethodGet, "/tools/search/find?q=x", "")
			if got.status != c.status || got.body != c.body || got.header.Get("X-Tba-Provider") != c.fromProvider {
				t.Errorf("%d %s from %s", got.status, got.body, got.header.Get("X-Tba-Provider"))
			}
			if free.Load() != 1 || paid.Load() != c.paidAsked || (last.Load() != 0) != (c.fromProvider == "last") {
				t.Errorf("asked: %d, %d, %d", free.Load(), paid.Load(), last.Load())
			}
			if b := w.settled(); b.spent != 0 {
				t.Errorf("books: %+v", b)
			}
		})
	}
}

// Gemini says its wait in the body.
func TestALongWaitInABody(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	up := answering(t, &calls, failing(429, `{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"Please retry later.","details":[{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaId":"GenerateRequestsPerMinutePerProjectPerModel"}]},{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"1800s"}]}}`))
	w := newWorld(t, setup{file: fourProviders(up)})
	got := w.post("/gemini/v1beta/models/gemini-3.5-flash:generateContent", `{"contents":[{"parts":[{"text":"hi"}]}],"generationConfig":{"maxOutputTokens":50}}`)
	if got.status != http.StatusTooManyRequests || got.header.Get("X-Should-Retry") != "false" || got.header.Get("Retry-After") != "" {
		t.Errorf("%d %v %s", got.status, got.header, got.body)
	}
	w.settled()
}

// A wait of an hour shuts the model that it came from; money that is gone shuts every model of the provider.
func TestALongWaitShutsOneModel(t *testing.T) {
	t.Parallel()
	const hour = `{"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed your rate limit."}}`
	for name, c := range map[string]struct {
		answer func(int64, http.ResponseWriter, string)
		second int
	}{
		"an hour":   {failing(429, hour, "Retry-After", "3600"), http.StatusOK},
		"the money": {failing(402, `{"type":"error","error":{"type":"billing_error","message":"pay"}}`), http.StatusTooManyRequests},
	} {
		var calls atomic.Int64
		up := answering(t, &calls, func(n int64, w http.ResponseWriter, body string) {
			if n == 1 {
				c.answer(n, w, body)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"type":"message","model":"claude-haiku-5-5","content":[],"usage":{"input_tokens":10,"output_tokens":5}}`)
		})
		w := newWorld(t, setup{file: fmt.Sprintf(`
budget:
  global_tokens: 1_000_000
  providers:
    anthropic: {base_url: %q, allow_private: true, models: {claude-opus-5-5: {}, claude-haiku-5-5: {}}}
`, up)})
		ask := func(model string) reply {
			return w.post("/anthropic/v1/messages", `{"model":"`+model+`","max_tokens":50,"messages":[{"role":"user","content":"hi"}]}`, "X-Tba-Max-Wait-Ms", "0")
		}
		if got := ask("claude-opus-5-5"); got.status == http.StatusOK {
			t.Errorf("%s: the first: %d", name, got.status)
		}
		if got := ask("claude-opus-5-5"); got.status != http.StatusTooManyRequests || calls.Load() != 1 {
			t.Errorf("%s: the same model again: %d after %d calls", name, got.status, calls.Load())
		}
		if got := ask("claude-haiku-5-5"); got.status != c.second {
			t.Errorf("%s: another model: %d %s, want %d", name, got.status, got.body, c.second)
		}
	}
}
