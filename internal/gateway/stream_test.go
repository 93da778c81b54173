package gateway_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/gateway"
)

// stream opens a streamed call and returns its answer, unread.
func (w *world) stream(ctx context.Context, path, body string) *http.Response {
	w.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// The first event reaches the agent while the provider still thinks about the second.
func TestEventsAreNotHeldBack(t *testing.T) {
	t.Parallel()
	next := make(chan struct{})
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		sse(w, chunk("one", ""))
		<-next
		sse(w, chunk("two", "stop"), usageChunk, "[DONE]")
	})
	w := newWorld(t, setup{file: oneProvider(up)})
	resp := w.stream(t.Context(), "/v1/chat/completions", helloStream)
	line, err := bufio.NewReader(resp.Body).ReadString('\n')
	if err != nil || !strings.Contains(line, "one") {
		t.Fatalf("%q %v", line, err)
	}
	if b := w.books(); b.held == 0 {
		t.Errorf("the lease of a running call: %+v", b)
	}
	close(next)
	rest, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(rest), "two") || strings.Contains(string(rest), `"choices":[]`) {
		t.Errorf("%s %v", rest, err)
	}
	if b := w.settled(); b.spent != 18 {
		t.Errorf("books: %+v", b)
	}
}

// leavesEarly is an upstream that streams count chunks, tells when the agent's connection to it has ended, and then sends its bill.
func leavesEarly(t testing.TB, count int, ended chan<- struct{}) string {
	return upstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		for range 12 {
			sse(w, chunk("word ", ""))
		}
		for i := 12; i < count; i++ {
			select {
			case <-r.Context().Done():
				ended <- struct{}{}
				return
			case <-time.After(2 * time.Millisecond):
			}
			sse(w, chunk("word ", ""))
		}
		sse(w, `{"choices":[],"usage":{"prompt_tokens":11,"completion_tokens":777,"total_tokens":788}}`, "[DONE]")
	})
}

// T21: the agent leaves after 12 chunks.
func TestT21AnAgentThatLeavesEarly(t *testing.T) {
	t.Parallel()
	leave := func(w *world) {
		ctx, cancel := context.WithCancel(t.Context())
		resp := w.stream(ctx, "/v1/chat/completions", strings.Replace(helloStream, `"max_completion_tokens":50`, `"max_completion_tokens":4000`, 1))
		lines := bufio.NewScanner(resp.Body)
		for n := 0; n < 12 && lines.Scan(); {
			if strings.HasPrefix(lines.Text(), "data:") {
				n++
			}
		}
		cancel()
	}
	t.Run("abort", func(t *testing.T) {
		ended := make(chan struct{}, 1)
		w := newWorld(t, setup{file: oneProvider(leavesEarly(t, 1_000_000, ended))})
		leave(w)
		<-ended // the provider is told at once
		// 12 chunks of "word " are at least 60 bytes: 15 tokens, and the prompt.
		if b := w.settled(); b.spent < 15+3 || b.spent > 400 {
			t.Errorf("books: %+v", b)
		}
	})
	t.Run("drain", func(t *testing.T) {
		ended := make(chan struct{}, 1)
		w := newWorld(t, setup{file: oneProvider(leavesEarly(t, 200, ended), "gateway: {drain: true}")})
		leave(w)
		if b := w.settled(); b.spent != 788 {
			t.Errorf("books: %+v", b)
		}
		select {
		case <-ended:
			t.Error("the call was stopped")
		default:
		}
	})
	t.Run("no more drains than allowed", func(t *testing.T) {
		ended := make(chan struct{}, 3)
		w := newWorld(t, setup{file: oneProvider(leavesEarly(t, 1_000_000, ended), "gateway: {drain: true, max_drains: 1, drain_for: 1s}")})
		for range 3 {
			leave(w)
		}
		for range 3 {
			<-ended
		}
		if b := w.settled(); b.spent < 3*(15+3) {
			t.Errorf("books: %+v", b)
		}
	})
}

// A drain that ends before its agent has gone gives its place back like any other.
func TestDrainsDoNotRunOut(t *testing.T) {
	t.Parallel()
	var most, now atomic.Int64
	hooks := gateway.Hooks{Draining: func(n int64) {
		now.Store(n)
		most.Store(max(most.Load(), n))
	}}
	ended := make(chan struct{}, 1)
	w := newWorld(t, setup{file: oneProvider(leavesEarly(t, 60, ended), "gateway: {drain: true, max_drains: 2}"), hooks: hooks})
	for range 8 {
		ctx, cancel := context.WithCancel(t.Context())
		resp := w.stream(ctx, "/v1/chat/completions", helloStream)
		_, _ = io.ReadFull(resp.Body, make([]byte, 100))
		cancel()
		if b := w.settled(); b.spent%788 != 0 {
			t.Fatalf("books: %+v", b)
		}
	}
	if most.Load() == 0 || most.Load() > 2 {
		t.Errorf("%d drains at once", most.Load())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := w.gateway.Drain(ctx); err != nil || now.Load() != 0 {
		t.Errorf("%v, %d drains are still taken", err, now.Load())
	}
}

// T35: the slot of a call is free when its answer is there, however long its bookkeeping takes.
func TestT35ASlotIsFreeWhenTheAnswerIsThere(t *testing.T) {
	t.Parallel()
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, chatReply(11, 7))
	})
	w := newWorld(t, setup{file: strings.Replace(oneProvider(up), "      models:", "      max_concurrency: 1\n      models:", 1)})
	for i := range 50 {
		if got := w.post("/v1/chat/completions", hello, "X-Tba-Max-Wait-Ms", "0"); got.status != http.StatusOK {
			t.Fatalf("call %d: %d %s", i, got.status, got.body)
		}
	}
	w.settled()
}

// A provider that breaks off its answer: the agent sees that, and what went up and came down is paid for.
func TestACutStreamIsCutForTheAgentToo(t *testing.T) {
	t.Parallel()
	for _, abort := range []bool{true, false} {
		up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.ReadAll(r.Body)
			sse(w, chunk("Hello", ""), chunk(" there", ""))
			if abort {
				panic(http.ErrAbortHandler)
			}
		})
		w := newWorld(t, setup{file: oneProvider(up)})
		got := w.post("/v1/chat/completions", helloStream)
		if got.err == nil || !strings.Contains(got.body, "there") || strings.Contains(got.body, "[DONE]") {
			t.Errorf("abort %v: %v %s", abort, got.err, got.body)
		}
		if b := w.settled(); b.spent < 4+3 || b.spent > 61 {
			t.Errorf("abort %v: books: %+v", abort, b)
		}
	}
}

// The first event of a stream is an error: the next rung is asked. A later one is the agent's to see, and counted as the provider's failure.
func TestAnErrorInAStream(t *testing.T) {
	t.Parallel()
	const fault = `{"error":{"code":502,"message":"Provider disconnected"},"choices":[]}`
	var first, second atomic.Int64
	w := newWorld(t, setup{file: rungsAt(
		answering(t, &first, func(_ int64, w http.ResponseWriter, _ string) { sse(w, fault) }),
		answering(t, &second, func(_ int64, w http.ResponseWriter, _ string) { sse(w, chunk("Hi", ""), fault) }),
	)})
	got := w.post("/v1/chat/completions", strings.Replace(helloStream, "gpt-5.4", "chat", 1))
	if got.status != http.StatusOK || !strings.Contains(got.body, "Hi") || !strings.Contains(got.body, "Provider disconnected") {
		t.Errorf("%d %v %s", got.status, got.err, got.body)
	}
	if first.Load() != 1 || second.Load() != 1 {
		t.Errorf("calls: %d and %d", first.Load(), second.Load())
	}
	if b := w.settled(); b.spent < 4 {
		t.Errorf("books: %+v", b)
	}
}

// The deadline of a call ends it in both directions: the agent gets an error, the provider is told, the lease ends.
func TestTheDeadlineOfACall(t *testing.T) {
	t.Parallel()
	told := make(chan struct{}, 2)
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if bytes.Contains(body, []byte(`"stream"`)) {
			sse(w, chunk("Hello", ""))
		}
		<-r.Context().Done()
		told <- struct{}{}
	})
	w := newWorld(t, setup{file: oneProvider(up)})
	for _, body := range []string{hello, helloStream} {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+"/v1/chat/completions", strings.NewReader(body))
		req.Header.Set("X-Tba-Deadline-Ms", "200")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if !strings.Contains(string(text), "deadline") {
			t.Errorf("%d %s", resp.StatusCode, text)
		}
		<-told
	}
	if b := w.settled(); b.spent == 0 {
		t.Errorf("books: %+v", b)
	}
}

// recorded are the streams of package provider by the beginning of their names, with the calls that they answer. The longest name counts.
var recorded = map[string]struct{ path, body string }{
	"openai_chat":           {"/v1/chat/completions", helloStream},
	"azure_chat":            {"/v1/chat/completions", helloStream},
	"deepseek":              {"/v1/chat/completions", helloStream},
	"groq":                  {"/v1/chat/completions", helloStream},
	"vllm":                  {"/v1/chat/completions", helloStream},
	"openrouter_chat":       {"/v1/chat/completions", helloStream},
	"openrouter_error":      {"/v1/chat/completions", helloStream},
	"gemini_compat_chat":    {"/v1/chat/completions", helloStream},
	"openai_completions":    {"/v1/completions", `{"model":"gpt-5.4","prompt":"hi","stream":true,"max_tokens":500}`},
	"openai_responses":      {"/v1/responses", `{"model":"gpt-5.4","input":"hi","stream":true,"max_output_tokens":500}`},
	"openai_images":         {"/v1/images/generations", `{"model":"gpt-5.4","prompt":"a cat","stream":true}`},
	"anthropic":             {"/anthropic/v1/messages", `{"model":"claude-sonnet-5","max_tokens":500,"stream":true,"messages":[{"role":"user","content":"hi"}]}`},
	"gemini":                {"/gemini/v1beta/models/gemini-3.5-flash:streamGenerateContent?alt=sse", `{"contents":[{"parts":[{"text":"hi"}]}],"generationConfig":{"maxOutputTokens":500}}`},
	"gemini_interactions":   {"/gemini/v1beta/interactions", `{"model":"gemini-3.5-flash","input":"hi","stream":true}`},
	"mistral":               {"/mistral/v1/chat/completions", `{"model":"mistral-small-2603","max_tokens":500,"stream":true,"messages":[{"role":"user","content":"hi"}]}`},
	"mistral_conversations": {"/mistral/v1/conversations", `{"model":"mistral-small-2603","inputs":"hi","stream":true}`},
}

// everyByte are the streams that are cut at every byte here, one of each dialect; package provider does so with all of them.
var everyByte = map[string]bool{"openai_chat": true, "openai_responses": true, "anthropic_text": true, "gemini_generate": true, "mistral_chat": true}

func fourProviders(url string, more ...string) string {
	return fmt.Sprintf(`
budget:
  global_tokens: 100_000_000
  providers:
    openai: {base_url: %[1]s/v1, allow_private: true, models: {gpt-5.4: {}}}
    anthropic: {base_url: %[1]s, allow_private: true, models: {claude-sonnet-5: {}}}
    gemini: {base_url: %[1]s, allow_private: true, models: {gemini-3.5-flash: {}}}
    mistral: {base_url: %[1]s, allow_private: true, models: {mistral-small-2603: {}}}
%[2]s`, url, strings.Join(more, "\n"))
}

// A recorded stream of each dialect is cut at every byte. Whatever the cut: no lease is left behind, what is booked is the bill or a guess
// that is not zero, and never more than the call could have cost.
func TestAStreamCutAtEveryByte(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../provider/testdata/streams/*.sse")
	if err != nil || len(files) == 0 {
		t.Fatalf("no recorded streams: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".sse")
		longest := ""
		for prefix := range recorded {
			if strings.HasPrefix(name, prefix) && len(prefix) > len(longest) {
				longest = prefix
			}
		}
		if call := recorded[longest]; call.path != "" {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				step := 13
				if everyByte[name] && !testing.Short() {
					step = 1
				}
				cutEverywhere(t, text, call.path, call.body, step)
			})
		}
	}
}

func cutEverywhere(t *testing.T, stream []byte, path, body string, step int) {
	var at atomic.Int64
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		n := at.Load()
		_, _ = w.Write(stream[:n])
		if int(n) < len(stream) {
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
	})
	w := newWorld(t, setup{file: fourProviders(up, "breaker: {failures: 1_000_000}")})
	at.Store(int64(len(stream)))
	if got := w.post(path, body); got.status != http.StatusOK || got.err != nil {
		t.Fatalf("the whole stream: %d %v", got.status, got.err)
	}
	whole := w.settled().spent
	if whole == 0 {
		t.Fatal("the whole stream cost nothing")
	}
	spent := whole
	for n := 0; n < len(stream); n += step {
		at.Store(int64(n))
		got := w.post(path, body)
		if got.err == nil && got.status == http.StatusOK && bytes.Count([]byte(got.body), []byte("\n")) < bytes.Count(stream, []byte("\n"))-3 {
			t.Fatalf("cut at %d: the agent was told that all is well: %q", n, got.body)
		}
		b := w.settled()
		cost := b.spent - spent
		if spent = b.spent; cost < 1 {
			t.Fatalf("cut at %d of %d: booked %d", n, len(stream), cost)
		}
		if cost > 2*whole+100 {
			t.Fatalf("cut at %d of %d: booked %d, the whole stream costs %d", n, len(stream), cost, whole)
		}
	}
}

// Bodies that no client means to send get an answer that says so, and leave nothing behind.
func TestOddBodies(t *testing.T) {
	t.Parallel()
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		if n > 1<<20 {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			_, _ = io.WriteString(w, `{"error":{"message":"too large"}}`)
			return
		}
		_, _ = io.WriteString(w, chatReply(11, 7))
	})
	w := newWorld(t, setup{file: oneProvider(up)})
	for name, c := range map[string]struct {
		body   string
		status int
	}{
		"nothing":       {"", http.StatusBadRequest},
		"not JSON":      {"hello", http.StatusBadRequest},
		"a list":        {"[]", http.StatusBadRequest},
		"cut":           {hello[:len(hello)-1], http.StatusBadRequest},
		"deep":          {`{"model":"gpt-5.4","messages":` + strings.Repeat("[", 200_000) + strings.Repeat("]", 200_000) + "}", http.StatusBadRequest},
		"32 MiB":        {`{"model":"gpt-5.4","x":"` + strings.Repeat("a", 32<<20) + `"}`, http.StatusRequestEntityTooLarge},
		"invalid UTF-8": {"{\"model\":\"gpt-5.4\",\"messages\":[{\"role\":\"user\",\"content\":\"\xff\xfe\"}]}", http.StatusOK},
		"NUL":           {"{\"model\":\"gpt-5.4\",\"messages\":[{\"role\":\"user\",\"content\":\"\\u0000\"}]}", http.StatusOK},
		"no model":      {`{"messages":[]}`, http.StatusBadRequest},
		"odd model":     {`{"model":5,"messages":[]}`, http.StatusBadRequest},
		"rung's model":  {strings.Replace(hello, "gpt-5.4", "openai/gpt-5.4", 1), http.StatusOK},
		"unknown model": {`{"model":"gpt-5.5-typo","messages":[]}`, http.StatusForbidden},
		"numbers":       {`{"model":"gpt-5.4","messages":[],"max_tokens":1e400,"n":-3}`, http.StatusOK},
		"null":          {`{"model":"gpt-5.4","messages":null,"stream":null,"max_tokens":null}`, http.StatusOK},
	} {
		got := w.post("/v1/chat/completions", c.body)
		if got.status != c.status {
			t.Errorf("%s: %d %.300s %v", name, got.status, got.body, got.err)
		}
	}
	w.settled()
}

// A thousand streams at once: all are served, all settled, and the process holds no more of them afterwards.
func TestAThousandStreamsAtOnce(t *testing.T) {
	t.Parallel()
	const streams = 1000
	var open sync.WaitGroup
	open.Add(streams)
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		sse(w, chunk("Hello", ""))
		open.Done()
		open.Wait()
		sse(w, chunk(" there.", "stop"), usageChunk, "[DONE]")
	})
	w := newWorld(t, setup{file: oneProvider(up)})
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: streams}}
	defer client.CloseIdleConnections()
	var g sync.WaitGroup
	for range streams {
		g.Go(func() {
			resp, err := client.Post(w.url+"/v1/chat/completions", "application/json", strings.NewReader(helloStream))
			if err != nil {
				t.Error(err)
				open.Done()
				return
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			if err != nil || !strings.HasSuffix(string(text), "data: [DONE]\n\n") {
				t.Errorf("%d %v %s", resp.StatusCode, err, text)
			}
		})
	}
	g.Wait()
	if b := w.settled(); b.spent != streams*18 {
		t.Errorf("books: %+v", b)
	}
}

var _ = arbiter.Granted
