package gateway_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/token-budget-arbiter/tba/arbiter"
)

// oneProvider is a file with one OpenAI-compatible provider at url.
func oneProvider(url string, more ...string) string {
	return fmt.Sprintf(`
budget:
  global_tokens: 1_000_000
  global_usd: 100
  providers:
    openai:
      base_url: %s/v1
      allow_private: true
      models:
        gpt-5.4: {}
        text-embedding-3-small: {}
%s`, url, strings.Join(more, "\n"))
}

const hello = `{"model":"gpt-5.4","messages":[{"role":"user","content":"Say hello."}],"max_completion_tokens":50}`

const helloStream = `{"model":"gpt-5.4","messages":[{"role":"user","content":"Say hello."}],"max_completion_tokens":50,"stream":true}`

func chatReply(prompt, completion int) string {
	return fmt.Sprintf(`{"id":"c1","object":"chat.completion","created":1,"model":"gpt-5.4","choices":[{"index":0,"message":{"role":"assistant","content":"Hello there."},"finish_reason":"stop"}],"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}}`, prompt, completion, prompt+completion)
}

func TestACallIsLeasedForwardedAndCommitted(t *testing.T) {
	t.Parallel()
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if string(body) != hello {
			t.Errorf("body went up as %s", body)
		}
		if r.URL.Path != "/v1/chat/completions" {
			t.Errorf("path %s", r.URL.Path)
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Request-Id", "req_1")
		_, _ = io.WriteString(w, chatReply(11, 7))
	})
	w := newWorld(t, setup{file: oneProvider(up)})
	got := w.post("/v1/chat/completions", hello, "Authorization", "Bearer anything")
	if got.status != http.StatusOK || got.body != chatReply(11, 7) {
		t.Fatalf("%d %s", got.status, got.body)
	}
	for name, want := range map[string]string{"X-Tba-Origin": "upstream", "X-Tba-Provider": "openai", "X-Tba-Model": "gpt-5.4", "X-Request-Id": "req_1"} {
		if got.header.Get(name) != want {
			t.Errorf("%s: %q, want %q", name, got.header.Get(name), want)
		}
	}
	if got.header.Get("X-Tba-Lease") == "" || got.header.Get("X-Tba-Wait-Ms") == "" {
		t.Errorf("headers: %v", got.header)
	}
	if b := w.settled(); b.spent != 18 || b.calls != 1 {
		t.Errorf("books: %+v", b)
	}
}

func sse(w http.ResponseWriter, events ...string) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, e := range events {
		_, _ = io.WriteString(w, "data: "+e+"\n\n")
		_ = http.NewResponseController(w).Flush()
	}
}

func chunk(text, finish string) string {
	reason := "null"
	if finish != "" {
		reason = `"` + finish + `"`
	}
	return fmt.Sprintf(`{"id":"c1","object":"chat.completion.chunk","created":1,"model":"gpt-5.4","choices":[{"index":0,"delta":{"content":%q},"finish_reason":%s}],"usage":null}`, text, reason)
}

const usageChunk = `{"id":"c1","object":"chat.completion.chunk","created":1,"model":"gpt-5.4","choices":[],"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18}}`

// T22: the gateway asks for the usage of a stream, and the agent, who said it does not want it, does not get the chunk.
func TestT22UsageOfAStreamIsAskedForAndTakenOut(t *testing.T) {
	t.Parallel()
	for _, option := range []string{"", `,"stream_options":{"include_usage":false,"include_obfuscation":false}`, `,"stream_options":{"include_usage":true}`} {
		up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if !gjson.GetBytes(body, "stream_options.include_usage").Bool() {
				t.Errorf("usage was not asked for: %s", body)
			}
			if strings.Contains(option, "obfuscation") && gjson.GetBytes(body, "stream_options.include_obfuscation").Raw != "false" {
				t.Errorf("another option was lost: %s", body)
			}
			sse(w, chunk("Hello", ""), chunk(" there.", "stop"), usageChunk, "[DONE]")
		})
		w := newWorld(t, setup{file: oneProvider(up)})
		got := w.post("/v1/chat/completions", strings.TrimSuffix(helloStream, "}")+option+"}")
		wants := strings.Contains(option, "true")
		if got.status != http.StatusOK || strings.Contains(got.body, `"choices":[]`) != wants || !strings.HasSuffix(got.body, "data: [DONE]\n\n") {
			t.Errorf("option %q: %d %s", option, got.status, got.body)
		}
		if b := w.settled(); b.spent != 18 {
			t.Errorf("option %q: books %+v", option, b)
		}
	}
}

// T22, second half: an upstream that refuses the option is asked once more without it, then the bill is estimated.
func TestT22AnUpstreamThatRefusesTheOption(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		body, _ := io.ReadAll(r.Body)
		if gjson.GetBytes(body, "stream_options").Exists() {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"error":{"message":"Unrecognized request argument supplied: stream_options","type":"invalid_request_error","param":null,"code":null}}`)
			return
		}
		sse(w, chunk("Hello", ""), chunk(" there.", "stop"), "[DONE]")
	})
	w := newWorld(t, setup{file: oneProvider(up)})
	for range 2 {
		if got := w.post("/v1/chat/completions", helloStream); got.status != http.StatusOK || !strings.Contains(got.body, "there") {
			t.Fatalf("%d %s", got.status, got.body)
		}
	}
	if n := asked.Load(); n != 3 {
		t.Errorf("the upstream was asked %d times, want 3: it remembers", n)
	}
	if b := w.settled(); b.spent < 2*4 || b.spent > 60 {
		t.Errorf("books: %+v", b)
	}
}

// A call without a cap gets one, and is told: what a lease holds bounds what the answer can cost.
func TestACallWithoutACapGetsOne(t *testing.T) {
	t.Parallel()
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if n := gjson.GetBytes(body, "max_completion_tokens").Int(); n != 4096 && strings.HasSuffix(r.URL.Path, "completions") {
			t.Errorf("cap %d in %s", n, body)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, chatReply(11, 7))
	})
	w := newWorld(t, setup{file: oneProvider(up)})
	got := w.post("/v1/chat/completions", `{"model":"gpt-5.4","messages":[{"role":"user","content":"Say hello."}]}`)
	if got.status != http.StatusOK || got.header.Get("X-Tba-Output-Cap") != "4096" {
		t.Errorf("%d %v", got.status, got.header)
	}
	if got = w.post("/v1/embeddings", `{"model":"text-embedding-3-small","input":"hello"}`); got.header.Get("X-Tba-Output-Cap") != "" {
		t.Errorf("%v", got.header)
	}
	w.settled()
}

// T06: a call that failed before its first byte holds nothing, on every endpoint.
func TestT06AFailureBeforeTheFirstByteReleasesTheHold(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, path, body string }{
		{"chat", "/v1/chat/completions", helloStream},
		{"responses", "/v1/responses", `{"model":"gpt-5.4","input":"Say hello.","stream":true,"max_output_tokens":50}`},
		{"embeddings", "/v1/embeddings", `{"model":"text-embedding-3-small","input":"hello"}`},
		{"messages", "/anthropic/v1/messages", `{"model":"claude-sonnet-5","max_tokens":50,"stream":true,"messages":[{"role":"user","content":"hi"}]}`},
	} {
		for _, status := range []int{401, 500, 0} {
			t.Run(fmt.Sprintf("%s/%d", c.name, status), func(t *testing.T) {
				t.Parallel()
				up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.ReadAll(r.Body)
					w.Header().Set("Content-Type", "application/json")
					w.WriteHeader(status)
					_, _ = io.WriteString(w, `{"error":{"message":"no","type":"api_error"}}`)
				})
				if status == 0 {
					up = "http://127.0.0.1:1" // nobody listens
				}
				w := newWorld(t, setup{file: oneProvider(up, "      rpm_ceiling: 1000", "    anthropic: {base_url: "+up+", allow_private: true, models: {claude-sonnet-5: {}}}")})
				got := w.post(c.path, c.body)
				if got.status < 500 && got.status != 401 {
					t.Errorf("answered %d: %s", got.status, got.body)
				}
				if b := w.settled(); b.spent != 0 {
					t.Errorf("books: %+v", b)
				}
			})
		}
	}
}

// T14: a path that cannot be metered is refused, whatever the budget; one that is let through still needs a lease.
func TestT14UnmeteredPaths(t *testing.T) {
	t.Parallel()
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, `{"data":[]}`) })
	w := newWorld(t, setup{file: oneProvider(up, "gateway: {passthrough: [/openai/v1/files]}")})
	got := w.post("/openai/v1/threads", `{}`)
	if got.status != http.StatusNotFound || gjson.Get(got.body, "error.message").String() == "" || got.header.Get("X-Tba-Origin") != "arbiter" {
		t.Errorf("%d %s", got.status, got.body)
	}
	if got = w.send(t.Context(), http.MethodGet, "/openai/v1/files", ""); got.status != http.StatusOK {
		t.Errorf("%d %s", got.status, got.body)
	}
	if b := w.settled(); b.calls != 1 || b.spent != 0 {
		t.Errorf("books: %+v", b)
	}

	broke := newWorld(t, setup{file: strings.Replace(oneProvider(up, "gateway: {passthrough: [/openai/v1/files]}"), "1_000_000", "1", 1)})
	for range 2 {
		got = broke.post("/v1/chat/completions", hello)
	}
	if got.status == http.StatusOK {
		t.Errorf("an exhausted budget let a call through: %s", got.body)
	}
}

func TestABudgetThatIsUsedUpRefusesInWordsOfTheDialect(t *testing.T) {
	t.Parallel()
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, chatReply(100, 50))
	})
	w := newWorld(t, setup{file: strings.Replace(oneProvider(up), "1_000_000", "160", 1)})
	if got := w.post("/v1/chat/completions", hello); got.status != http.StatusOK {
		t.Fatalf("%d %s", got.status, got.body)
	}
	w.settled()
	got := w.post("/v1/chat/completions", hello)
	if got.status != http.StatusTooManyRequests || got.header.Get("X-Should-Retry") != "false" || got.header.Get("Retry-After") != "" {
		t.Fatalf("%d %v %s", got.status, got.header, got.body)
	}
	var body struct {
		Error struct {
			Type, Code, Message string
			Tba                 struct {
				Reason, Budget, Unit string
				Limit, Used, Asked   int64
				ResetsAt             string `json:"resets_at"`
			}
		}
	}
	if err := json.Unmarshal([]byte(got.body), &body); err != nil {
		t.Fatal(err)
	}
	if e := body.Error; e.Code != "insufficient_quota" || e.Tba.Reason != "budget" || e.Tba.Limit != 160 || e.Tba.Used != 150 || e.Tba.ResetsAt == "" {
		t.Errorf("%s", got.body)
	}
	if w.books().spent != 150 {
		t.Errorf("books: %+v", w.books())
	}
}

var _ = arbiter.Granted
