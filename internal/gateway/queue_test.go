package gateway_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"
)

// until waits until a condition holds.
func until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline, tick := time.After(10*time.Second), time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s: it did not come to that", what)
		}
	}
}

// waiters is how many calls wait for room.
func (w *world) waiters() (n int64) {
	for _, p := range w.engine.Stats() {
		n += int64(p.Waiters)
	}
	return n
}

// A call that was sent away and is sent again by its SDK has its old place: it goes before those who came in between. Who sends the same
// body as another agent has no part in that one's place.
func TestACallThatComesBackHasItsOldPlace(t *testing.T) {
	t.Parallel()
	body := func(who string) string { return strings.Replace(hello, "Say hello.", who, 1) }
	for name, c := range map[string]struct {
		comesBack string // agent
		first     string // that goes up then
	}{
		"the agent that was sent away":  {"old", "old"},
		"another with the same request": {"thief", "young"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			order, next := make(chan string, 8), make(chan struct{}, 8)
			up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
				text, _ := io.ReadAll(r.Body)
				order <- gjson.GetBytes(text, "messages.0.content").String()
				<-next
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, chatReply(11, 7))
			})
			w := newWorld(t, setup{file: strings.Replace(oneProvider(up), "      models:", "      max_concurrency: 1\n      models:", 1)})
			replies := make(chan reply, 3)
			call := func(agent, who string) {
				go func() {
					replies <- w.post(chatCall.path, body(who), "X-Tba-Agent", agent, "X-Tba-Max-Wait-Ms", "20000")
				}()
			}
			call("busy", "busy")
			if got := <-order; got != "busy" {
				t.Fatal(got)
			}
			if got := w.post(chatCall.path, body("old"), "X-Tba-Agent", "old", "X-Tba-Max-Wait-Ms", "0"); got.status != http.StatusTooManyRequests || got.header.Get("X-Should-Retry") != "true" {
				t.Fatalf("%d %v %s", got.status, got.header, got.body)
			}
			call("young", "young")
			until(t, "young waits", func() bool { return w.waiters() == 1 })
			call(c.comesBack, "old")
			until(t, "both wait", func() bool { return w.waiters() == 2 })
			next <- struct{}{}
			if got := <-order; got != c.first {
				t.Errorf("%s went first", got)
			}
			next <- struct{}{}
			<-order
			next <- struct{}{}
			for range 3 {
				if got := <-replies; got.status != http.StatusOK {
					t.Errorf("%d %s", got.status, got.body)
				}
			}
			if b := w.settled(); b.spent != 3*18 {
				t.Errorf("books: %+v", b)
			}
		})
	}
}

// The same after a throttle of the provider, which the agent did not wait for.
func TestACallThatWasThrottledHasItsOldPlace(t *testing.T) {
	t.Parallel()
	order, throttled := make(chan string, 8), false
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		if !throttled { // calls come one after the other: there is one slot
			throttled = true
			failing(429, throttleBody, "Retry-After-Ms", "700")(0, w, "")
			return
		}
		order <- gjson.GetBytes(text, "messages.0.content").String()
		_, _ = io.WriteString(w, chatReply(11, 7))
	})
	w := newWorld(t, setup{file: strings.Replace(oneProvider(up), "      models:", "      max_concurrency: 1\n      models:", 1)})
	body := func(who string) string { return strings.Replace(hello, "Say hello.", who, 1) }
	if got := w.post(chatCall.path, body("old"), "X-Tba-Agent", "old", "X-Tba-Max-Wait-Ms", "0"); got.status != http.StatusTooManyRequests || got.header.Get("X-Tba-Origin") != "upstream" {
		t.Fatalf("%d %v %s", got.status, got.header, got.body)
	}
	replies := make(chan reply, 2)
	for n, who := range []string{"young", "old"} {
		go func() {
			replies <- w.post(chatCall.path, body(who), "X-Tba-Agent", who, "X-Tba-Max-Wait-Ms", "20000")
		}()
		until(t, who+" waits", func() bool { return w.waiters() == int64(n+1) || len(order) > 0 })
	}
	if first, second := <-order, <-order; first != "old" || second != "young" {
		t.Errorf("%s went before %s", first, second)
	}
	for range 2 {
		if got := <-replies; got.status != http.StatusOK {
			t.Errorf("%d %s", got.status, got.body)
		}
	}
	w.settled()
}
