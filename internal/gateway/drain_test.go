package gateway_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidwall/gjson"
)

// A gateway that goes down under load: who is in is served to the end and settled, who comes later is told to try again, and nobody is
// in between.
func TestDrainUnderLoad(t *testing.T) {
	t.Parallel()
	var up, running atomic.Int64
	url := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		up.Add(1)
		running.Add(1)
		defer running.Add(-1)
		body, _ := io.ReadAll(r.Body)
		if gjson.GetBytes(body, "stream").Bool() {
			sse(w, chunk("Hello", ""), chunk(" there.", "stop"), usageChunk, "[DONE]")
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, chatReply(11, 7))
	})
	w := newWorld(t, setup{file: oneProvider(url)})
	const agents = 32
	var served, refused atomic.Int64
	var all sync.WaitGroup
	for n := range agents {
		all.Go(func() {
			body := hello
			if n%2 == 0 {
				body = helloStream
			}
			for {
				switch got := w.post(chatCall.path, body); {
				case got.status == http.StatusOK && got.err == nil && (n%2 == 1 || strings.HasSuffix(got.body, "data: [DONE]\n\n")):
					served.Add(1)
				case got.status == http.StatusServiceUnavailable && got.header.Get("X-Should-Retry") == "true" && gjson.Get(got.body, "error.tba.reason").String() == "draining":
					refused.Add(1)
					return
				default:
					t.Errorf("%d %v %s", got.status, got.err, got.body)
					return
				}
			}
		})
	}
	until(t, "the load is there", func() bool { return served.Load() > 10*agents })
	if err := w.gateway.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	asked := up.Load()
	if n := running.Load(); n != 0 {
		t.Errorf("%d calls run after the drain", n)
	}
	all.Wait()
	if up.Load() != asked || served.Load() != asked || refused.Load() != agents {
		t.Errorf("the provider was asked %d times, %d of them after the drain; %d calls were served, %d refused", up.Load(), up.Load()-asked, served.Load(), refused.Load())
	}
	if b := w.settled(); int64(b.spent) != 18*asked {
		t.Errorf("%d calls, books %+v", asked, b)
	}
	if err := w.gateway.Drain(t.Context()); err != nil {
		t.Errorf("once more: %v", err)
	}
}

// Drain waits for calls that run, for those that wait for room, and for answers that are read on although their agents have left.
func TestDrainWaits(t *testing.T) {
	t.Parallel()
	for name, leaves := range map[string]bool{"for a call": false, "for an answer without a listener": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			finish := make(chan struct{})
			url := upstream(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.ReadAll(r.Body)
				sse(w, chunk("Hello", ""))
				select {
				case <-finish:
				case <-r.Context().Done():
					t.Error("the call was stopped")
				}
				sse(w, chunk(" there.", "stop"), usageChunk, "[DONE]")
			})
			draining := make(chan struct{}, 8)
			var l ledger
			hooks := l.hooks()
			hooks.Draining = func(int64) { draining <- struct{}{} }
			w := newWorld(t, setup{file: oneProvider(url, "gateway: {drain: true}"), hooks: hooks})
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			resp := w.stream(ctx, chatCall.path, helloStream)
			if _, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			if leaves {
				leave()
				<-draining
			}
			drained := make(chan error, 1)
			go func() { drained <- w.gateway.Drain(t.Context()) }()
			until(t, "the door is shut", func() bool { return w.post(chatCall.path, hello).status == http.StatusServiceUnavailable })
			soon, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			if err := w.gateway.Drain(soon); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a drain with a time: %v", err)
			}
			select {
			case err := <-drained:
				t.Fatalf("the drain did not wait: %v", err)
			default:
			}
			close(finish)
			if !leaves {
				if rest, err := io.ReadAll(resp.Body); err != nil || !strings.HasSuffix(string(rest), "data: [DONE]\n\n") {
					t.Errorf("%q %v", rest, err)
				}
			}
			if err := <-drained; err != nil {
				t.Error(err)
			}
			if bills := l.committed(); len(bills) != 1 || bills[0].Estimated || bills[0].Usage.Total() != 18 {
				t.Errorf("bills when the drain is over: %+v", bills)
			}
			if b := w.settled(); b.spent != 18 {
				t.Errorf("books: %+v", b)
			}
		})
	}
}

// A call that waits for room is in: it is served when there is some.
func TestDrainWaitsForTheQueue(t *testing.T) {
	t.Parallel()
	next := make(chan struct{})
	var up atomic.Int64
	url := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		up.Add(1)
		_, _ = io.ReadAll(r.Body)
		<-next
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, chatReply(11, 7))
	})
	w := newWorld(t, setup{file: strings.Replace(oneProvider(url), "      models:", "      max_concurrency: 1\n      models:", 1)})
	replies := make(chan reply, 2)
	for n := range 2 {
		go func() {
			replies <- w.post(chatCall.path, strings.Replace(hello, "Say hello.", fmt.Sprint(n), 1), "X-Tba-Max-Wait-Ms", "20000")
		}()
	}
	until(t, "one runs and one waits", func() bool { return up.Load() == 1 && w.waiters() == 1 })
	drained := make(chan error, 1)
	go func() { drained <- w.gateway.Drain(t.Context()) }()
	until(t, "the door is shut", func() bool { return w.post(chatCall.path, hello).status == http.StatusServiceUnavailable })
	next <- struct{}{}
	next <- struct{}{}
	for range 2 {
		if got := <-replies; got.status != http.StatusOK {
			t.Errorf("%d %s", got.status, got.body)
		}
	}
	if err := <-drained; err != nil {
		t.Error(err)
	}
	if b := w.settled(); b.spent != 2*18 {
		t.Errorf("books: %+v", b)
	}
}
