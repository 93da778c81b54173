package gateway_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/token-budget-arbiter/tba/internal/gateway"
	"github.com/token-budget-arbiter/tba/internal/identity"
)

// Words that must stay where they are. Each is of the form that its owner would have.
const (
	canaryAgent    = "tba_canary_agent_2f6b1c9e4d"
	canaryWrong    = "tba_canary_wrong_a81c03d7b5"
	canaryProvider = "sk-canary-provider-9c1e7754a2"
	canaryPrompt   = "canary-prompt-e0b7"
	canaryAnswer   = "canary-answer-51d2"
)

// hostile is a provider that repeats the key it was sent, wherever it can.
func hostile(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	w.Header().Set("X-Echo", key)
	fail := func(status int, kind, body string) {
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
	wrong := fmt.Sprintf(`{"error":{"message":"wrong key: %s","type":"invalid_request_error","code":"x"}}`, key)
	switch r.Header.Get("X-Case") {
	case "ok":
		fail(200, "application/json", strings.Replace(chatReply(11, 7), "Hello there.", canaryAnswer, 1))
	case "stream":
		sse(w, chunk(canaryAnswer, ""), chunk("", "stop"), usageChunk, "[DONE]")
	case "cut":
		sse(w, chunk(canaryAnswer, ""))
		panic(http.ErrAbortHandler)
	case "fault in a stream":
		sse(w, wrong)
	case "fault later":
		sse(w, chunk(canaryAnswer, ""), wrong)
	case "400":
		fail(400, "application/json", wrong)
	case "401":
		fail(401, "application/json", wrong)
	case "429":
		fail(429, "application/json", wrong)
	case "500":
		fail(500, "text/html", "<html>"+key+"</html>")
	case "gzip":
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = io.WriteString(z, wrong)
		_ = z.Close()
		w.Header().Set("Content-Encoding", "gzip")
		fail(400, "application/json", b.String())
	case "redirect":
		w.Header().Set("Location", "http://169.254.169.254/?key="+key)
		fail(307, "text/plain", key)
	default: // not HTTP
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		_, _ = io.WriteString(c, key+" "+canaryAnswer+"\r\n\r\n")
		_ = c.Close()
	}
}

// A canary in every place where a secret or a prompt may stand is sent through every kind of answer, and looked for in everything that
// comes out: answers, logs at their lowest level, what metrics are made of. Not parallel: net/http logs to the process's own log.
func TestCanary(t *testing.T) {
	std := &syncBuffer{}
	log.SetOutput(std)
	defer log.SetOutput(os.Stderr)

	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte(canaryProvider+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	keys, err := identity.NewKeyring([]identity.Key{{Name: "fleet", Secret: canaryAgent}})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ok", "stream", "cut", "fault in a stream", "fault later", "400", "401", "429", "500", "gzip", "redirect", "not HTTP"} {
		t.Run(name, func(t *testing.T) {
			// A world for each: after an error its provider may rest.
			canary(t, name, oneProvider("UPSTREAM", "      api_key: {file: "+file+"}"), keys)
		})
	}
	spotless(t, "the process's log", std.String())
}

func spotless(t *testing.T, place, text string) {
	t.Helper()
	for _, c := range []string{canaryAgent, canaryWrong, canaryProvider, canaryPrompt, canaryAnswer} {
		if at := strings.Index(text, c); at >= 0 {
			t.Errorf("%s is in %s: ...%s...", c, place, text[max(0, at-200):min(len(text), at+100)])
		}
	}
}

func canary(t *testing.T, name, file string, keys *identity.Keyring) {
	var mu sync.Mutex
	var counted strings.Builder
	note := func(v any) { mu.Lock(); fmt.Fprintf(&counted, "%+v\n", v); mu.Unlock() }
	reached := 0
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		reached++
		mu.Unlock()
		for name, values := range r.Header {
			if strings.Contains(strings.Join(values, " "), canaryAgent) {
				t.Errorf("the agent's key went up in %s", name)
			}
		}
		if strings.Contains(r.RequestURI, canaryAgent) {
			t.Errorf("the agent's key went up in %s", r.RequestURI)
		}
		if got := r.Header.Get("Authorization"); got != "Bearer "+canaryProvider {
			t.Errorf("the provider's key did not go up: %q", got)
		}
		hostile(w, r)
	})
	w := newWorld(t, setup{
		file: strings.Replace(file, "UPSTREAM", up, 1),
		keys: keys,
		hooks: gateway.Hooks{
			Call: func(e gateway.Ended) { note(e) }, Upstream: func(a gateway.Answered) { note(a) }, Settled: func(b gateway.Bill) { note(b) },
			Failover: func(p, m string) { note(p + m) },
		},
	})
	ask := strings.Replace(hello, "Say hello.", canaryPrompt, 1)
	if name == "stream" || name == "cut" || strings.HasPrefix(name, "fault") {
		ask = strings.Replace(ask, `"max_completion_tokens":50`, `"max_completion_tokens":50,"stream":true`, 1)
	}
	for _, slot := range []string{"Authorization", "X-Api-Key", "X-Goog-Api-Key", "Api-Key", "?key="} {
		for _, key := range []string{canaryAgent, canaryWrong} {
			path, headers := "/v1/chat/completions", []string{"X-Case", name, "X-Tba-Max-Wait-Ms", "1"}
			switch slot {
			case "?key=":
				path += "?key=" + key
			case "Authorization":
				headers = append(headers, slot, "Bearer "+key)
			default:
				headers = append(headers, slot, key)
			}
			got := w.post(path, ask, headers...)
			if want := key == canaryAgent; want != (got.status != http.StatusUnauthorized) {
				t.Errorf("%s: status %d: %s", slot, got.status, got.body)
			}
			answer := fmt.Sprint(got.status, got.header, got.body, got.err)
			for _, c := range []string{canaryAgent, canaryWrong, canaryProvider, canaryPrompt, "169.254"} {
				// What a stream says after a 200 passes as it is, an error in it too.
				if strings.Contains(answer, c) && !(c == canaryProvider && name == "fault later") {
					t.Errorf("%s: %s is in the answer: %s", slot, c, answer)
				}
			}
		}
	}
	// Refusals of ours, which quote what was asked for.
	for _, path := range []string{"/v1/" + canaryAgent, "/v1/chat/completions%2f" + canaryAgent, "/v1/chat//completions"} {
		w.post(path, ask, "Authorization", "Bearer "+canaryAgent)
	}
	w.post("/v1/chat/completions", "{"+canaryPrompt, "Authorization", "Bearer "+canaryAgent)
	w.post("/v1/chat/completions", strings.Replace(ask, "gpt-5.4", "no-such-model", 1), "Authorization", "Bearer "+canaryAgent)
	w.settled()

	mu.Lock()
	defer mu.Unlock()
	if reached == 0 || counted.Len() == 0 || w.log.String() == "" {
		t.Error("nothing went up, was counted or logged: the test proves nothing")
	}
	spotless(t, "the log", w.log.String())
	spotless(t, "the metrics", counted.String())
}
