package gateway_test

import (
	"io"
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
	if events := w.log.String(); !strings.Contains(events, "refuses our key") {
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

// A key may be good for one model and not for another; and whoever asks again is told the same as the first.
func TestAKeyThatOneModelRefuses(t *testing.T) {
	t.Parallel()
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		if strings.Contains(string(body), "text-embedding") {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"error":{"message":"Project does not have access to model","code":"model_not_found"}}`)
			return
		}
		_, _ = io.WriteString(w, chatReply(11, 7))
	})
	w := newWorld(t, setup{file: oneProvider(up)})
	for range 2 {
		got := w.post("/v1/embeddings", `{"model":"text-embedding-3-small","input":"hello"}`)
		if got.status != http.StatusServiceUnavailable || !strings.Contains(got.body, "provider_credential") {
			t.Errorf("%d %s", got.status, got.body)
		}
		if got := w.post("/v1/chat/completions", hello); got.status != http.StatusOK {
			t.Errorf("another model: %d %s", got.status, got.body)
		}
	}
	w.settled()
}

// The verdict on an old key, that comes late, says nothing about the new one.
func TestALateVerdictOnAnOldKey(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	var renewed atomic.Bool
	old, heard := make(chan struct{}), make(chan struct{})
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		renewed.Store(strings.Contains(r.Header.Get("Authorization"), "second"))
		if calls.Add(1) == 1 {
			close(heard)
			<-old
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, badKey)
			return
		}
		_, _ = io.WriteString(w, chatReply(11, 7))
	})
	file, key := withKey(t, up, "http://127.0.0.1:1")
	w := newWorld(t, setup{file: file})
	call := func() reply { return w.post("/p0/v1/chat/completions", strings.Replace(hello, "gpt-5.4", "m0", 1)) }
	first := make(chan reply)
	go func() { first <- call() }()
	<-heard
	if err := os.WriteFile(key, []byte("sk-second-key-0002"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.until(func() bool { return call().status == http.StatusOK && renewed.Load() }) // the file is looked at once a second
	close(old)
	if got := <-first; got.status != http.StatusServiceUnavailable {
		t.Errorf("the old key: %d", got.status)
	}
	if got := call(); got.status != http.StatusOK {
		t.Errorf("the new key: %d %s", got.status, got.body)
	}
	w.settled()
}

// Keys that are refused spend no tries: the rung that has a good one is reached.
func TestRefusedKeysSpendNoTries(t *testing.T) {
	t.Parallel()
	var calls [3]atomic.Int64
	w := newWorld(t, setup{file: rungsAt(answering(t, &calls[0], failing(401, badKey)), answering(t, &calls[1], failing(401, badKey)), answering(t, &calls[2], fine))})
	for range 2 {
		if got := w.post("/v1/chat/completions", helloLadder); got.status != http.StatusOK || got.header.Get("X-Tba-Provider") != "p2" {
			t.Errorf("%d %s", got.status, got.body)
		}
	}
	if calls[0].Load() != 1 || calls[1].Load() != 1 {
		t.Errorf("asked %d and %d times", calls[0].Load(), calls[1].Load())
	}
	w.settled()
}
