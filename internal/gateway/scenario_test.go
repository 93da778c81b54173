package gateway_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
)

// Scenarios from practice, by their numbers, through the gateway and with their figures. T06, T14, T21, T22 and T35 are in call_test.go and
// stream_test.go, T45 a to c in failover_test.go; T15, T16, T18 and T19 are odd cases 4, 1 and 3.

// housePrices is a catalogue with the prices of the scenarios, and a file with its models at an OpenAI, an Anthropic and a Gemini.
func housePrices(t *testing.T, url string, more ...string) string {
	t.Helper()
	prices := filepath.Join(t.TempDir(), "prices.yaml")
	err := os.WriteFile(prices, []byte(`
catalogue_version: 1
as_of: 2026-11-29
currency: USD
unit: per_1M_tokens
models:
  - {id: t23, provider: openai, context: 1000000, max_output: 1000, source: test, confidence: high, prices: [{in: 2, cache_read: 0.2, cache_write: 2.5, out: 10}]}
  - {id: t24, provider: google, context: 1000000, max_output: 1000, source: test, confidence: high, prices: [{in: 0.50, cache_read: 0.05, out: 3}]}
  - {id: t26, provider: openai, context: 1000000, max_output: 1000, source: test, confidence: high, prices: [{in: 2, out: 0, tiers: [{over_input: 200000, in: 4, out: 0}]}]}
  - {id: t26-write, provider: anthropic, context: 1000000, max_output: 1000, source: test, confidence: high,
     prices: [{in: 3, cache_write: 3.75, out: 0, tiers: [{over_input: 200000, in: 6, cache_write: 7.5, out: 0}]}]}
  - {id: t27, provider: openai, context: 1000000, max_output: 0, source: test, confidence: high, prices: [{in: 1, out: 0}]}
`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`
budget:
  global_tokens: 100_000_000
  global_usd: 1000
  providers:
    openai:
      base_url: %[1]s/v1
      allow_private: true
      models: {t23: {}, t26: {}, t27: {}}
    anthropic: {base_url: %[1]s, allow_private: true, models: {t26-write: {}}}
    gemini: {base_url: %[1]s, allow_private: true, models: {t24: {}}}
catalog: {file: %[2]s}
estimation: {buffer: 0}
%[3]s`, url, prices, strings.Join(more, "\n"))
}

// booked makes one call that is answered with an answer, and returns what is in the books.
func booked(t *testing.T, path, body, answer string) books {
	t.Helper()
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, answer)
	})
	w := newWorld(t, setup{file: housePrices(t, up)})
	if got := w.post(path, body); got.status != http.StatusOK || got.body != answer {
		t.Fatalf("%d %.300s", got.status, got.body)
	}
	return w.settled()
}

func TestT23CachedTokensArePricedOnce(t *testing.T) {
	t.Parallel()
	b := booked(t, chatCall.path, strings.Replace(hello, "gpt-5.4", "t23", 1), `{"model":"t23","choices":[{"index":0,"message":{"role":"assistant","content":""},"finish_reason":"stop"}],
		"usage":{"prompt_tokens":869,"completion_tokens":0,"total_tokens":869,"prompt_tokens_details":{"cached_tokens":11,"cache_write_tokens":5}}}`)
	if b.nanos != 1_720_700 || b.spent != 869 {
		t.Errorf("%d nano-USD for %d tokens, want 1720700 for 869", b.nanos, b.spent)
	}
}

func TestT24CachedTokensOfGemini(t *testing.T) {
	t.Parallel()
	const answer = `{"candidates":[{"content":{"parts":[{"text":"ok"}]},"finishReason":"STOP"}],"modelVersion":"t24","usageMetadata":{"promptTokenCount":20212,"cachedContentTokenCount":16298,"candidatesTokenCount":931,"totalTokenCount":21143}}`
	if b := booked(t, "/gemini/v1beta/models/t24:generateContent", generate.body, answer); b.nanos != 5_564_900 || b.spent != 21_143 {
		t.Errorf("%d nano-USD for %d tokens, want 5564900 for 21143", b.nanos, b.spent)
	}
}

// The tier of a long prompt holds for all of it, in the bill and in the hold.
func TestT26LongPrompts(t *testing.T) {
	t.Parallel()
	for tokens, want := range map[int]arbiter.Nanos{200_000: 400_000_000, 200_001: 800_004_000, 250_000: 1_000_000_000} {
		t.Run(fmt.Sprint(tokens), func(t *testing.T) {
			t.Parallel()
			held := make(chan arbiter.Nanos, 1)
			var w *world
			up := upstream(t, func(rw http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				held <- w.held()
				rw.Header().Set("Content-Type", "application/json")
				_, _ = fmt.Fprintf(rw, `{"model":"t26","choices":[{"index":0,"message":{"content":""},"finish_reason":"stop"}],"usage":{"prompt_tokens":%d,"completion_tokens":0}}`, tokens)
			})
			w = newWorld(t, setup{file: housePrices(t, up)})
			text := strings.Repeat("word", tokens-4) // four bytes a token, and four tokens for the message
			got := w.post(chatCall.path, `{"model":"t26","max_completion_tokens":50,"messages":[{"role":"user","content":"`+text+`"}]}`)
			if got.status != http.StatusOK {
				t.Fatalf("%d %.300s", got.status, got.body)
			}
			if h := <-held; h != want {
				t.Errorf("held %d nano-USD, want %d", h, want)
			}
			if b := w.settled(); b.nanos != want {
				t.Errorf("booked %d nano-USD, want %d", b.nanos, want)
			}
		})
	}
	t.Run("cache writes", func(t *testing.T) {
		t.Parallel()
		answer := func(write int) string {
			return fmt.Sprintf(`{"id":"m","type":"message","role":"assistant","model":"t26-write","content":[],"stop_reason":"end_turn","usage":{"input_tokens":0,"cache_read_input_tokens":%d,"cache_creation_input_tokens":%d,"output_tokens":0}}`, 200_001-write, write)
		}
		body := strings.Replace(messages.body, "claude-sonnet-5", "t26-write", 1)
		rest := arbiter.Nanos(195_001 * 6000) // read from the cache, which has no price of its own here: as input
		if b := booked(t, messages.path, body, answer(5000)); b.nanos-rest != 37_500_000 {
			t.Errorf("5000 tokens written into the cache: %d nano-USD, want 37500000", b.nanos-rest)
		}
	})
}

// held is the money in running leases.
func (w *world) held() (n arbiter.Nanos) {
	for _, r := range w.rows(arbiter.KindGlobal) {
		if r.Unit == arbiter.UnitNanos {
			n = arbiter.Nanos(r.Held)
		}
	}
	return n
}

// rows are the budget's rows of a kind.
func (w *world) rows(kind arbiter.NodeKind) (list []arbiter.BudgetRow) {
	w.t.Helper()
	err := w.engine.View(w.t.Context(), "default", func(s *arbiter.State) error {
		s.EachBudget(0, func(r *arbiter.BudgetRow) { list = append(list, *r) }, kind)
		return nil
	})
	if err != nil {
		w.t.Error(err) // not Fatal: handlers of upstreams ask too
	}
	return list
}

// What a provider does not count against its tokens a minute is not counted here.
func TestT27CachedTokensAndTheCeiling(t *testing.T) {
	t.Parallel()
	for cached, fit := range map[bool]int{false: 5, true: 1} {
		t.Run(fmt.Sprintf("count_cached %v", cached), func(t *testing.T) {
			t.Parallel()
			up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, `{"object":"list","model":"t27","data":[],"usage":{"prompt_tokens":10000,"total_tokens":10000,"prompt_tokens_details":{"cached_tokens":8000}}}`)
			})
			w := newWorld(t, setup{file: strings.Replace(housePrices(t, up), "      models:", fmt.Sprintf("      tpm_ceiling: 10_000\n      burst: 1\n      count_cached: %v\n      models:", cached), 1)})
			for n := range 7 {
				got := w.post("/v1/embeddings", `{"model":"t27","input":"`+strings.Repeat("word", 10_000)+`"}`, "X-Tba-Max-Wait-Ms", "0")
				if (got.status == http.StatusOK) != (n < fit) {
					t.Errorf("call %d: %d %.500s", n, got.status, got.body)
				}
			}
			if b := w.settled(); b.spent != arbiter.Tokens(fit*10_000) { // budgets count all
				t.Errorf("books: %+v", b)
			}
		})
	}
}

// throttles makes one call that is answered by a 429 with this body and these headers, and returns how long the rung is held.
func throttles(t *testing.T, body string, headers ...string) (time.Duration, arbiter.Dim, reply) {
	t.Helper()
	var calls atomic.Int64
	w := newWorld(t, setup{file: oneProvider(answering(t, &calls, failing(429, body, headers...)))})
	got := w.post(chatCall.path, chatCall.body, "X-Tba-Max-Wait-Ms", "0")
	w.settled()
	list := w.events(arbiter.EventThrottled)
	if len(list) != 1 || calls.Load() != 1 {
		t.Fatalf("events %+v after %d calls", list, calls.Load())
	}
	return time.Duration(list[0].Until - list[0].At), list[0].Dim, got
}

// Every form of a wait holds the rung for as long as it says.
func TestT41FormsOfAWait(t *testing.T) {
	t.Parallel()
	const date = "Sat, 25 Jul 2026 12:00:00 GMT"
	for name, c := range map[string]struct {
		headers []string
		want    time.Duration
	}{
		"seconds":       {[]string{"Retry-After", "120"}, 2 * time.Minute},
		"a date":        {[]string{"Retry-After", "Sat, 25 Jul 2026 12:05:00 GMT", "Date", date}, 5 * time.Minute},
		"17ms":          {[]string{"Retry-After", "17ms"}, 17 * time.Millisecond},
		"500ms":         {[]string{"Retry-After", "500ms"}, 500 * time.Millisecond},
		"1.5s":          {[]string{"Retry-After", "1.5s"}, 1500 * time.Millisecond},
		"6m0s":          {[]string{"Retry-After", "6m0s"}, 6 * time.Minute},
		"most of a day": {[]string{"Retry-After", "23h47m36.648s"}, 85656648 * time.Millisecond},
		"an instant":    {[]string{"Retry-After", "2026-07-25T12:00:30Z", "Date", date}, 30 * time.Second},
		"unix":          {[]string{"Retry-After", "1784980830", "Date", date}, 30 * time.Second},
		"ms wins":       {[]string{"Retry-After", "1", "Retry-After-Ms", "250"}, 250 * time.Millisecond},
		"empty":         {[]string{"Retry-After", ""}, time.Second},
		"negative":      {[]string{"Retry-After", "-5"}, time.Second},
		"words":         {[]string{"Retry-After", "abc"}, time.Second},
		"beyond all":    {[]string{"Retry-After", "1e99"}, time.Second},
		"a past date":   {[]string{"Retry-After", "Sat, 25 Jul 2026 11:00:00 GMT", "Date", date}, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if wait, _, _ := throttles(t, throttleBody, c.headers...); wait != c.want {
				t.Errorf("held for %v, want %v", wait, c.want)
			}
		})
	}
}

// The bucket that is empty decides, not the one that is mentioned first.
func TestT42TheEmptyBucketDecides(t *testing.T) {
	t.Parallel()
	for _, body := range []string{strings.Replace(throttleBody, `"requests"`, `"tokens"`, 1), `{"error":{"message":"Rate limit reached"}}`} {
		wait, dim, got := throttles(t, body, "X-Ratelimit-Limit-Requests", "60", "X-Ratelimit-Remaining-Requests", "59", "X-Ratelimit-Reset-Requests", "1s",
			"X-Ratelimit-Limit-Tokens", "150000", "X-Ratelimit-Remaining-Tokens", "0", "X-Ratelimit-Reset-Tokens", "4m12s")
		if wait != 252*time.Second || dim != arbiter.DimTPM {
			t.Errorf("%s: held for %v (%v), want 252 s (tpm)", body, wait, dim)
		}
		if got.header.Get("Retry-After") != "" || got.header.Get("X-Should-Retry") != "false" { // longer than any SDK waits
			t.Errorf("%v", got.header)
		}
	}
}

// T45 d: an account without money, said with a 400, is left for the next rung, and nobody asks it again.
func TestT45ACreditBalanceThatIsTooLow(t *testing.T) {
	t.Parallel()
	const poor = `{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits."}}`
	const rich = `{"id":"m","type":"message","role":"assistant","model":"m1","content":[{"type":"text","text":"hi"}],"stop_reason":"end_turn","usage":{"input_tokens":11,"output_tokens":7}}`
	var first, second atomic.Int64
	file := strings.ReplaceAll(rungsAt(answering(t, &first, failing(400, poor)), answering(t, &second, func(_ int64, w http.ResponseWriter, _ string) { _, _ = io.WriteString(w, rich) })), "kind: openai", "kind: anthropic")
	w := newWorld(t, setup{file: file})
	for range 3 {
		got := w.post(messages.path, strings.Replace(messages.body, "claude-sonnet-5", "chat", 1))
		if got.status != http.StatusOK || got.body != rich || got.header.Get("X-Tba-Provider") != "p1" {
			t.Fatalf("%d %s", got.status, got.body)
		}
	}
	if first.Load() != 1 || second.Load() != 3 {
		t.Errorf("asked %d and %d times", first.Load(), second.Load())
	}
	if b := w.settled(); b.spent != 3*18 {
		t.Errorf("books: %+v", b)
	}
	if list := w.events(arbiter.EventThrottled); len(list) != 1 || !list[0].Exhausted {
		t.Errorf("events: %+v", list)
	}
}
