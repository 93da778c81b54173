package gateway_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

const badKey = `{"error":{"message":"Incorrect API key provided","type":"invalid_request_error","code":"invalid_api_key"}}`

// withKey is a ladder over two providers, the first with its key in a file.
func withKey(t *testing.T, first, second string) (file, key string) {
	t.Helper()
	key = filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("sk-first-key-0001"), 0o600); err != nil {
		t.Fatal(err)
	}
	return strings.Replace(rungsAt(first, second), "      kind: openai\n", "      kind: openai\n      api_key: {file: "+key+"}\n", 1), key
}

// A key that the provider refuses is this gateway's matter: the next rung serves, nobody is asked again with the same key, the arbiter's
// view of the provider stays as it is, and a new key is taken up at once.
func TestARefusedKey(t *testing.T) {
	t.Parallel()
	var first, second atomic.Int64
	var good atomic.Bool
	up := answering(t, &first, func(n int64, w http.ResponseWriter, body string) {
		if good.Load() {
			fine(n, w, body)
			return
		}
		failing(401, badKey)(n, w, body)
	})
	file, key := withKey(t, up, answering(t, &second, fine))
	w := newWorld(t, setup{file: file})
	for range 3 {
		if got := w.post("/v1/chat/completions", helloLadder); got.status != http.StatusOK || got.header.Get("X-Tba-Provider") != "p1" {
			t.Fatalf("%d %s", got.status, got.body)
		}
	}
	if first.Load() != 1 {
		t.Errorf("the provider was asked %d times with a key that it refuses", first.Load())
	}
	got := w.post("/p0/v1/chat/completions", strings.Replace(hello, "gpt-5.4", "m0", 1))
	if got.status != http.StatusServiceUnavailable || got.header.Get("X-Should-Retry") != "false" || !strings.Contains(got.body, "provider_credential") || strings.Contains(got.body, "sk-first") {
		t.Errorf("%d %s", got.status, got.body)
	}
	w.settled()
	if events := w.log.String(); !strings.Contains(events, "refuses our account") {
		t.Error("the operator was not told")
	}
	if page, err := w.engine.Events("default", 0, 10); err != nil || len(page.Events) > 1 { // the policy
		t.Errorf("events: %+v %v", page.Events, err)
	}
	good.Store(true)
	if err := os.WriteFile(key, []byte("sk-second-key-0002"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.until(func() bool {
		return w.post("/v1/chat/completions", helloLadder).header.Get("X-Tba-Provider") == "p0"
	})
}

// A key that cannot be read stops its rung alone, and its name is not the agent's to know.
func TestAKeyThatCannotBeRead(t *testing.T) {
	t.Parallel()
	var first, second atomic.Int64
	file, key := withKey(t, answering(t, &first, fine), answering(t, &second, fine))
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, setup{file: file})
	for range 3 {
		if got := w.post("/v1/chat/completions", helloLadder); got.status != http.StatusOK || got.header.Get("X-Tba-Provider") != "p1" {
			t.Fatalf("%d %s", got.status, got.body)
		}
	}
	got := w.post("/p0/v1/chat/completions", strings.Replace(hello, "gpt-5.4", "m0", 1))
	if got.status != http.StatusServiceUnavailable || strings.Contains(got.body, key) || first.Load() != 0 {
		t.Errorf("%d %s", got.status, got.body)
	}
	if b := w.settled(); b.spent != 3*18 {
		t.Errorf("books: %+v", b)
	}
}
