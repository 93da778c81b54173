package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/token-budget-arbiter/tba/client"
	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
)

// leased is an HTTP client whose requests take leases from f.
func leased(t *testing.T, f *fakeArbiter, base http.RoundTripper, change ...func(*client.Transport)) (*http.Client, *client.Client) {
	t.Helper()
	c := f.client(t)
	agent, err := client.NewAgent(c, client.AgentOptions{ID: "a1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(agent.Close)
	tr := &client.Transport{Agent: agent, Base: base, Spec: func(*http.Request) client.CallSpec {
		return client.CallSpec{InputTokens: 300, OutputTokens: 700}
	}}
	for _, f := range change {
		f(tr)
	}
	return &http.Client{Transport: tr}, c
}

// upstream is a provider with its connections.
func upstream(t *testing.T, h http.HandlerFunc) (string, http.RoundTripper) {
	t.Helper()
	srv := httptest.NewServer(h)
	base := &http.Transport{}
	t.Cleanup(func() {
		base.CloseIdleConnections()
		srv.Close()
	})
	return srv.URL, base
}

// post returns what came, and the error of the request or of its body.
func post(t *testing.T, h *http.Client, url string) (*http.Response, string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader("prompt"))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := h.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp, string(body), err
}

func TestTransportStreamsAndCommitsAtTheEnd(t *testing.T) {
	t.Parallel()
	f := newFake()
	more := make(chan struct{})
	url, base := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-RateLimit-Remaining-Tokens", "77")
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "echo %s;", body)
		w.(http.Flusher).Flush()
		<-more
		fmt.Fprint(w, "end")
	})
	h, c := leased(t, f, base, func(tr *client.Transport) {
		tr.Usage = func(*http.Response) client.Usage { return client.Usage{Input: 200, Output: 50} }
	})
	resp, err := h.Post(url, "text/plain", strings.NewReader("prompt"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	first := make([]byte, len("echo prompt;"))
	if _, err := io.ReadFull(resp.Body, first); err != nil || string(first) != "echo prompt;" {
		t.Fatalf("%q, %v", first, err)
	}
	if _, commits, releases := f.seen(); len(commits)+len(releases) != 0 {
		t.Errorf("ended in the middle of the body: %v %v", commits, releases)
	}
	close(more)
	if rest, err := io.ReadAll(resp.Body); err != nil || string(rest) != "end" {
		t.Errorf("%q, %v", rest, err)
	}
	resp.Body.Close()
	if err := c.Flush(t.Context()); err != nil {
		t.Error(err)
	}
	_, commits, releases := f.seen()
	if len(commits) != 1 || len(releases) != 0 {
		t.Fatalf("%v %v", commits, releases)
	}
	m := commits[0]
	if m.GetActualTokens() != 250 || m.GetOutcome() != tbav1.LeaseCommit_OK || m.GetProviderSignal().GetHeaders()["x-ratelimit-remaining-tokens"] != "77" {
		t.Errorf("commit %v", m)
	}
}

func TestTransportEndsEachLeaseByWhatIsKnown(t *testing.T) {
	t.Parallel()
	gone := httptest.NewServer(nil)
	gone.Close()
	for _, tt := range []struct {
		name    string
		status  int // 0: nobody listens
		header  string
		outcome tbav1.LeaseCommit_Outcome
		release bool
		retryMs int64
	}{
		{name: "no usage known", status: 200, outcome: tbav1.LeaseCommit_OK},
		{name: "a fault of the provider", status: 500, outcome: tbav1.LeaseCommit_ERROR},
		{name: "throttled", status: 429, header: "7", outcome: tbav1.LeaseCommit_THROTTLED, release: true, retryMs: 7000},
		{name: "throttled without a word", status: 429, outcome: tbav1.LeaseCommit_THROTTLED, release: true},
		{name: "nobody there", outcome: tbav1.LeaseCommit_NOT_SENT, release: true},
		{name: "no body", status: 204, outcome: tbav1.LeaseCommit_OK},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFake()
			url, base := upstream(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", tt.header)
				w.WriteHeader(tt.status)
				if tt.status != 204 {
					fmt.Fprint(w, "answer")
				}
			})
			if tt.status == 0 {
				url = gone.URL
			}
			h, c := leased(t, f, base)
			resp, body, err := post(t, h, url)
			if (err != nil) != (tt.status == 0) {
				t.Fatal(err)
			}
			if err == nil && (resp.StatusCode != tt.status || tt.status != 204 && body != "answer") {
				t.Errorf("%d %q", resp.StatusCode, body)
			}
			if err := c.Flush(t.Context()); err != nil {
				t.Error(err)
			}
			_, commits, releases := f.seen()
			if len(commits)+len(releases) != 1 || (len(releases) == 1) != tt.release {
				t.Fatalf("commits %v, releases %v", commits, releases)
			}
			if tt.release {
				if m := releases[0]; m.GetOutcome() != tt.outcome || m.GetProviderSignal().GetRetryAfterMs() != tt.retryMs {
					t.Errorf("release %v", m)
				}
			} else if m := commits[0]; m.GetOutcome() != tt.outcome || m.ActualTokens != nil {
				t.Errorf("commit %v, want it at the hold", m)
			}
		})
	}
}

func TestTransportOfARevokedLease(t *testing.T) {
	t.Parallel()
	f := newFake()
	url, base := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "begin")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	h, c := leased(t, f, base)
	resp, err := h.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	f.revoke("lease-1", "runaway task")
	body, err := io.ReadAll(resp.Body)
	var revoked *client.RevokedError
	if !errors.As(err, &revoked) || revoked.Reason != "runaway task" || string(body) != "begin" {
		t.Errorf("%q, %v", body, err)
	}
	if err := c.Flush(t.Context()); err != nil {
		t.Error(err)
	}
	if _, commits, _ := f.seen(); len(commits) != 1 || commits[0].GetOutcome() != tbav1.LeaseCommit_CANCELLED {
		t.Errorf("commits %v", commits)
	}
}

func TestTransportWithoutALease(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.onRequest = func(context.Context, *tbav1.LeaseRequest) (*tbav1.LeaseResponse, error) {
		return &tbav1.LeaseResponse{Status: tbav1.LeaseStatus_DENIED, Reason: "budget"}, nil
	}
	url, base := upstream(t, func(http.ResponseWriter, *http.Request) { t.Error("sent without a lease") })
	h, _ := leased(t, f, base)
	if _, _, err := post(t, h, url); !errors.As(err, new(*client.DeniedError)) {
		t.Errorf("got %v", err)
	}
	if _, _, err := post(t, &http.Client{Transport: &client.Transport{}}, url); err == nil {
		t.Error("a transport without an agent")
	}
}

func TestTransportFollowsTheLease(t *testing.T) {
	t.Parallel()
	f := newFake() // grants openai
	url, base := upstream(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Header.Get("X-Provider")) })
	h, _ := leased(t, f, base, func(tr *client.Transport) {
		tr.Spec = func(*http.Request) client.CallSpec { return client.CallSpec{Tokens: 9, Provider: "mistral"} }
	})
	if _, _, err := post(t, h, url); err == nil || !strings.Contains(err.Error(), "the lease is for provider openai") {
		t.Errorf("got %v", err)
	}
	if _, _, releases := f.seen(); len(releases) != 1 || releases[0].GetOutcome() != tbav1.LeaseCommit_NOT_SENT {
		t.Errorf("releases %v", releases)
	}
	h.Transport.(*client.Transport).Direct = func(r *http.Request, l *client.Lease) error {
		r.Header.Set("X-Provider", l.Provider())
		return nil
	}
	if _, body, err := post(t, h, url); err != nil || body != "openai" {
		t.Errorf("%q, %v", body, err)
	}
}

// A base that tells nothing of its connections may have sent.
func TestTransportOverASilentBase(t *testing.T) {
	t.Parallel()
	f := newFake()
	h, c := leased(t, f, roundTripper(func(*http.Request) (*http.Response, error) { return nil, context.DeadlineExceeded }))
	if _, _, err := post(t, h, "http://provider.test"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if err := c.Flush(t.Context()); err != nil {
		t.Error(err)
	}
	if _, commits, _ := f.seen(); len(commits) != 1 || commits[0].GetOutcome() != tbav1.LeaseCommit_TIMEOUT {
		t.Errorf("commits %v", commits)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Any HTTP client of a provider becomes an agent.
func ExampleTransport() {
	arbiter := newFake()
	defer arbiter.stop()
	c := dialExample(arbiter)
	defer c.Close()
	agent, _ := client.NewAgent(c, client.AgentOptions{ID: "crawler-7", Class: "research"})
	defer agent.Close()
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "X-Output-Tokens")
		fmt.Fprintln(w, "Hello!")
		w.Header().Set("X-Output-Tokens", "320")
	}))
	defer provider.Close()

	base := &http.Transport{}
	defer base.CloseIdleConnections()
	h := &http.Client{Timeout: time.Minute, Transport: &client.Transport{
		Agent: agent, Base: base,
		Spec: func(*http.Request) client.CallSpec { return client.CallSpec{InputTokens: 900, OutputTokens: 500} },
		Usage: func(r *http.Response) client.Usage {
			var out int64
			fmt.Sscan(r.Trailer.Get("X-Output-Tokens"), &out)
			return client.Usage{Input: 880, Output: out}
		},
	}}
	resp, err := h.Get(provider.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	body, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	_ = c.Flush(context.Background())
	fmt.Printf("%s%d tokens\n", body, agent.Consumption().Tokens)
	// Output:
	// Hello!
	// 1200 tokens
}
