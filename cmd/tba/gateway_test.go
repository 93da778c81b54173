package main

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/token-budget-arbiter/tba/internal/gateway"
)

// TestOneAddressIsLimited: each address has a bucket of its own, for calls and API together, and is refused in the words of its SDK.
func TestOneAddressIsLimited(t *testing.T) {
	t.Parallel()
	s, _ := serving(t, "limits: {per_address: {rate: 1, burst: 3}}")
	base := "http://" + s.ports.http.Addr().String()
	for _, local := range []string{"127.0.0.2", "127.0.0.3", "127.0.0.4"} {
		refused := 0
		for range 8 {
			resp, body := from(t, local, base+"/v1/chat/completions", hello)
			switch resp.StatusCode {
			case http.StatusOK:
			case http.StatusTooManyRequests:
				refused++
				var e struct {
					Error struct{ Message, Type string }
				}
				if err := json.Unmarshal([]byte(body), &e); err != nil || e.Error.Message == "" || e.Error.Type == "" {
					t.Errorf("%s: no error of OpenAI's dialect: %v %s", local, err, body)
				}
				if resp.Header.Get("Retry-After") == "" || resp.Header.Get("X-Tba-Origin") != "arbiter" {
					t.Errorf("%s: %v", local, resp.Header)
				}
			default:
				t.Errorf("%s: %s %s", local, resp.Status, body)
			}
		}
		if refused == 0 || refused > 5 { // 3 at once, and what a slow run earns meanwhile
			t.Errorf("%s: %d of 8 refused", local, refused)
		}
	}
	// An address that has used up its calls has used up its reads, and the other way round.
	var last *http.Response
	for range 8 {
		last, _ = from(t, "127.0.0.5", base+"/tba.v1.TokenBudgetArbiter/RequestLease", `{}`)
	}
	if last.StatusCode != http.StatusTooManyRequests {
		t.Errorf("the API: %s", last.Status)
	}
	if resp, body := from(t, "127.0.0.5", base+"/anthropic/v1/messages", `{}`); resp.StatusCode != http.StatusTooManyRequests || !strings.Contains(body, `"type":"error"`) {
		t.Errorf("Anthropic's dialect: %s %s", resp.Status, body)
	}
}

// TestLoopbackIsNotLimited by the built-in limits: 100 a second, 200 at once.
func TestLoopbackIsNotLimited(t *testing.T) {
	t.Parallel()
	s, _ := serving(t, "")
	base := "http://" + s.ports.http.Addr().String()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 75 {
				if resp, body := from(t, "127.0.0.6", base+"/v1/nothing", `{}`); resp.StatusCode != http.StatusNotFound {
					t.Errorf("%s %s", resp.Status, body)
					return
				}
			}
		})
	}
	all.Wait()
}

func TestPagesOfOthersAreRefused(t *testing.T) {
	t.Parallel()
	s, mocks := serving(t, "")
	base := "http://" + s.ports.http.Addr().String()
	for _, header := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Origin", "https://evil.example"}} {
		if resp, body := from(t, "127.0.0.1", base+"/v1/chat/completions", hello, header...); resp.StatusCode != http.StatusForbidden || !strings.Contains(body, "another origin") {
			t.Errorf("%v: %s %s", header, resp.Status, body)
		}
	}
	if resp, body := from(t, "127.0.0.1", base+"/v1/chat/completions", hello, "Sec-Fetch-Site", "none"); resp.StatusCode != http.StatusOK {
		t.Errorf("%s %s", resp.Status, body)
	}
	if r := mocks.Report()[0]; r.Calls != 1 {
		t.Errorf("%d calls reached the provider", r.Calls)
	}
}

// TestGatewayFollowsTheFile: a reload brings models, keys and limits of the gateway into force with the policy.
func TestGatewayFollowsTheFile(t *testing.T) {
	t.Parallel()
	s, mocks := serving(t, "")
	base := "http://" + s.ports.http.Addr().String()
	status := func(path, body string) int {
		t.Helper()
		resp, _ := from(t, "127.0.0.1", base+path, body)
		return resp.StatusCode
	}
	onLadder := strings.Replace(hello, "gpt-5.4-mini", "cheap", 1)
	if got := status("/v1/chat/completions", onLadder); got != http.StatusNotFound && got != http.StatusForbidden {
		t.Errorf("a ladder that is not there: %d", got)
	}
	if err := s.takeOver(t.Context(), servable(t, mocks, "ladders: {cheap: {rungs: [openai/gpt-5.4-mini, openai/gpt-5.4]}}\ngateway: {max_body: 1_024}")); err != nil {
		t.Fatal(err)
	}
	if got := status("/v1/chat/completions", onLadder); got != http.StatusOK {
		t.Errorf("a ladder of the new file: %d", got)
	}
	if got := status("/v1/chat/completions", hello+strings.Repeat(" ", 2000)); got != http.StatusRequestEntityTooLarge {
		t.Errorf("a body above the new bound: %d", got)
	}
}

// TestDrainEndsCallsFirst: a call that runs when the server is told to stop gets its whole answer, and its bill.
func TestDrainEndsCallsFirst(t *testing.T) {
	t.Parallel()
	mocks := openAIMock(t, 10*time.Millisecond, 40)
	s, err := start(t.Context(), startOptions{config: servable(t, mocks, ""), log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	base := "http://" + s.ports.http.Addr().String()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/v1/chat/completions", strings.NewReader(`{"stream":true,`+hello[1:]))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	first := make([]byte, 1)
	if _, err := io.ReadFull(resp.Body, first); err != nil { // the answer runs
		t.Fatal(err)
	}
	drained := make(chan error, 1)
	go func() { drained <- s.drain(context.WithoutCancel(t.Context())) }()
	rest, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(rest), "[DONE]") {
		t.Errorf("the answer was cut: %v\n%s", err, rest)
	}
	if err := <-drained; err != nil {
		t.Error(err)
	}
	if got := s.running(); got != 0 {
		t.Errorf("%d leases are left", got)
	}
}

func TestOutcomesAreWords(t *testing.T) {
	t.Parallel()
	for want, e := range map[string]gateway.Ended{
		"ok": {Status: 200}, "left": {}, "refused": {Status: 429, Refused: true}, "unavailable": {Status: 503, Refused: true}, "failed": {Status: 500},
	} {
		if got := outcomeOf(e); got != want {
			t.Errorf("%+v: %s, want %s", e, got, want)
		}
	}
}
