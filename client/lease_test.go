package client_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/token-budget-arbiter/tba/client"
	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
)

// both runs a test over the session and over RPCs.
func both(t *testing.T, test func(t *testing.T, opts ...client.Option)) {
	t.Helper()
	t.Run("session", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) { test(t) })
	})
	t.Run("unary", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) { test(t, client.WithUnary()) })
	})
}

var ask = client.Request{AgentID: "a1", Class: "research", InputTokens: 300, OutputTokens: 700}

func TestLeaseIsCommittedWithItsParts(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, opts ...client.Option) {
		f := newFake()
		c := f.client(t, append(opts, client.WithPool("acme"))...)
		l, err := c.Acquire(t.Context(), ask)
		if err != nil {
			t.Fatal(err)
		}
		if l.Provider() != "openai" || l.Model() != "gpt-5-mini" || l.Tokens() != 1000 || l.OutputTokens() != 700 || l.CostNanos() != 4_200_000 {
			t.Errorf("lease is %s/%s with %d tokens, %d of output, %d nano-USD", l.Provider(), l.Model(), l.Tokens(), l.OutputTokens(), l.CostNanos())
		}
		if d := time.Until(l.StartBy()); d != 2*time.Second {
			t.Errorf("start by in %v, want 2s", d)
		}
		r, err := l.Commit(t.Context(), client.Usage{Input: 200, CacheRead: 100, Output: 50, Reasoning: 20})
		if err != nil || r.Tokens != 350 || r.CostNanos != 350_000 || r.Estimated {
			t.Errorf("receipt %+v, %v", r, err)
		}
		if cause := context.Cause(l.Context()); !errors.Is(cause, client.ErrLeaseEnded) {
			t.Errorf("context ended with %v", cause)
		}
		requests, commits, _ := f.seen()
		q, m := requests[0], commits[0]
		if q.GetPool() != "acme" || q.GetRequestId() == "" || q.GetEstimatedOutputTokens() != 700 || q.GetMaxWaitMs() != 30_000 || q.Priority != nil {
			t.Errorf("request %v", q)
		}
		if !m.GetHasUsage() || m.GetUsage().GetCacheRead() != 100 || m.GetPool() != "acme" || string(m.GetLeaseToken()) != "token of lease-1" {
			t.Errorf("commit %v", m)
		}
		rpcs, sessions, _ := f.counts()
		if want := len(opts) == 0; (sessions == 1) != want || (rpcs == 0) != want {
			t.Errorf("%d RPCs, %d sessions", rpcs, sessions)
		}
	})
}

func TestUsageThatIsNotMeasuredIsNotZero(t *testing.T) {
	t.Parallel()
	total := func(n int64) *int64 { return &n }
	for _, tt := range []struct {
		name  string
		usage client.Usage
		total *int64
		parts bool
	}{
		{"nothing known", client.Usage{}, nil, false},
		{"measured nothing", client.Usage{Measured: true}, total(0), true},
		{"only the total", client.Usage{Total: 12}, total(12), false},
		{"parts", client.Usage{Input: 3, Output: 4, Reasoning: 4}, total(7), true},
		{"parts and a total that differs", client.Usage{Input: 3, Output: 4, Total: 9}, total(9), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFake()
			l, err := f.client(t).Acquire(t.Context(), ask)
			if err != nil {
				t.Fatal(err)
			}
			r, err := l.Commit(t.Context(), tt.usage)
			if err != nil || r.Estimated != (tt.total == nil) {
				t.Errorf("receipt %+v, %v", r, err)
			}
			_, commits, _ := f.seen()
			m := commits[0]
			if m.GetHasUsage() != tt.parts || (m.ActualTokens == nil) != (tt.total == nil) || (tt.total != nil && m.GetActualTokens() != *tt.total) {
				t.Errorf("commit %v", m)
			}
		})
	}
}

func TestRefusalsAreTyped(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, opts ...client.Option) {
		f := newFake()
		c := f.client(t, opts...)
		reset := time.Now().Add(time.Hour).UTC()
		answer := &tbav1.LeaseResponse{
			Status: tbav1.LeaseStatus_DENIED, Reason: "budget", Limit: 10, Used: 7, Held: 2, Asked: 5,
			ResetsAt: timestamppb.New(reset), DecisionId: "d1", LimitName: "global", LimitUnit: "tokens",
		}
		f.onRequest = func(context.Context, *tbav1.LeaseRequest) (*tbav1.LeaseResponse, error) { return answer, nil }
		_, err := c.Acquire(t.Context(), ask)
		var no *client.DeniedError
		if !errors.As(err, &no) || !client.Decided(err) || no.Limit != 10 || no.Used != 7 || no.Held != 2 || no.Asked != 5 || !no.ResetsAt.Equal(reset) || no.DecisionID != "d1" {
			t.Errorf("denied: %#v", err)
		}
		answer = &tbav1.LeaseResponse{
			Status: tbav1.LeaseStatus_DEFERRED, Reason: "tpm", RetryAfterMs: 1500, Ticket: []byte("front"), RecommendedDelayMs: 800,
		}
		_, err = c.Acquire(t.Context(), ask)
		var later *client.DeferredError
		if !errors.As(err, &later) || !client.Decided(err) || later.RetryAfter != 1500*time.Millisecond || string(later.Ticket) != "front" || later.Delay != 800*time.Millisecond {
			t.Errorf("deferred: %#v", err)
		}
		answer = &tbav1.LeaseResponse{Status: tbav1.LeaseStatus_DEFERRED, TtlSeconds: 3}
		if _, err = c.Acquire(t.Context(), ask); !errors.As(err, &later) || later.RetryAfter != 3*time.Second {
			t.Errorf("deferred by a server of the published definition: %#v", err)
		}
		f.onRequest = func(context.Context, *tbav1.LeaseRequest) (*tbav1.LeaseResponse, error) {
			return nil, refusal(codes.InvalidArgument, "unknown_class", 0)
		}
		_, err = c.Acquire(t.Context(), ask)
		var refused *client.RefusedError
		if !errors.As(err, &refused) || !client.Decided(err) || refused.Reason != "unknown_class" || refused.Code != codes.InvalidArgument {
			t.Errorf("refused: %#v", err)
		}
	})
}

func TestUnavailableIsTriedTwice(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, opts ...client.Option) {
		f := newFake()
		c := f.client(t, opts...)
		f.onRequest = func(context.Context, *tbav1.LeaseRequest) (*tbav1.LeaseResponse, error) {
			return nil, refusal(codes.Unavailable, "draining", time.Second)
		}
		start := time.Now()
		_, err := c.Acquire(t.Context(), ask)
		var away *client.UnavailableError
		if !errors.As(err, &away) || !client.Decided(err) || away.Reason != "draining" || away.RetryAfter != time.Second {
			t.Errorf("got %#v", err)
		}
		if d := time.Since(start); d != time.Second {
			t.Errorf("waited %v between the tries, want the server's hint of 1s", d)
		}
		requests, _, _ := f.seen()
		if len(requests) != 2 || requests[0].GetRequestId() != requests[1].GetRequestId() {
			t.Errorf("%d requests", len(requests))
		}
	})
}

func TestBrokenNetworkIsNoDecision(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, opts ...client.Option) {
		f := newFake()
		c := f.client(t, opts...)
		f.stop()
		_, err := c.Acquire(t.Context(), ask)
		var away *client.UnavailableError
		if !errors.As(err, &away) || client.Decided(err) || away.FromServer() {
			t.Errorf("got %#v", err)
		}
		f.start()
		<-time.After(time.Minute)
		if _, err := c.Acquire(t.Context(), ask); err != nil {
			t.Errorf("after the return: %v", err)
		}
	})
}

func TestRequestsThatCannotBeSent(t *testing.T) {
	t.Parallel()
	f := newFake()
	c := f.client(t)
	for name, r := range map[string]client.Request{
		"no agent":          {Tokens: 1},
		"negative":          {AgentID: "a", Tokens: -1},
		"negative part":     {AgentID: "a", OutputTokens: -1},
		"above the wire":    {AgentID: "a", Tokens: 1 << 31},
		"sum above":         {AgentID: "a", InputTokens: 1 << 30, OutputTokens: 1 << 30},
		"sum overflows":     {AgentID: "a", InputTokens: 1<<63 - 1, OutputTokens: 1<<63 - 1},
		"parts and a total": {AgentID: "a", Tokens: 5, InputTokens: 1},
		"priority":          {AgentID: "a", Priority: 9},
	} {
		if l, err := c.Acquire(t.Context(), r); err == nil || client.Decided(err) {
			t.Errorf("%s: got %v, %v", name, l, err)
		}
	}
	if requests, _, _ := f.seen(); len(requests) != 0 {
		t.Errorf("%d requests were sent", len(requests))
	}
}

func TestLeaseIsExtendedUntilItEnds(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, opts ...client.Option) {
		f := newFake()
		f.ttl = time.Minute
		c := f.client(t, opts...)
		l, err := c.Acquire(t.Context(), ask)
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(4*time.Minute + time.Second)
		synctest.Wait()
		if _, _, n := f.counts(); n != 12 {
			t.Errorf("%d extensions in 4 TTLs, want one at each third", n)
		}
		if err := l.Context().Err(); err != nil {
			t.Errorf("context ended: %v", context.Cause(l.Context()))
		}
		if err := l.Release(t.Context(), "done"); err != nil {
			t.Error(err)
		}
		<-time.After(time.Hour)
		if _, _, n := f.counts(); n != 12 {
			t.Errorf("%d extensions after the end", n-12)
		}
		_, _, releases := f.seen()
		if releases[0].GetOutcome() != tbav1.LeaseCommit_NOT_SENT || releases[0].GetReason() != "done" {
			t.Errorf("release %v", releases[0])
		}
	})
}

func TestLeaseIsLostWhenTheArbiterSaysSo(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]error{"expired": &client.LostError{}, "revoked": &client.RevokedError{}} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			both(t, func(t *testing.T, opts ...client.Option) {
				f := newFake()
				f.onExtend = func(*tbav1.ExtendLeaseRequest) (*tbav1.ExtendLeaseResponse, error) {
					return nil, refusal(codes.FailedPrecondition, reason, 0)
				}
				l, err := f.client(t, opts...).Acquire(t.Context(), ask)
				if err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				<-l.Context().Done()
				cause := context.Cause(l.Context())
				if d := time.Since(start); d != f.ttl/3 {
					t.Errorf("lost after %v", d)
				}
				if !client.Decided(cause) || errors.As(cause, new(*client.LostError)) != errors.As(want, new(*client.LostError)) {
					t.Errorf("cause %#v", cause)
				}
				if r, err := l.Commit(t.Context(), client.Usage{Output: 5}); err != nil || r.Tokens != 5 {
					t.Errorf("commit of a lost lease: %+v, %v", r, err)
				}
			})
		})
	}
}

// Extensions end at the most that a lease may last, so the last ones get
// shorter, and one answered after the end has no life left.
func TestExtensionWithoutLifeIsTheEnd(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, opts ...client.Option) {
		f := newFake()
		f.ttl = time.Minute
		born := time.Now()
		f.onExtend = func(*tbav1.ExtendLeaseRequest) (*tbav1.ExtendLeaseResponse, error) {
			left := min(time.Minute, max(100*time.Second-time.Since(born), 0))
			if left < time.Second {
				left = 0 // on its way for longer than the rest
			}
			return &tbav1.ExtendLeaseResponse{TtlMs: left.Milliseconds(), Phase: tbav1.Lease_ACTIVE}, nil
		}
		l, err := f.client(t, opts...).Acquire(t.Context(), ask)
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-l.Context().Done():
		case <-time.After(time.Hour):
			t.Fatal("an ended lease is extended for ever")
		}
		var lost *client.LostError
		if cause := context.Cause(l.Context()); !errors.As(cause, &lost) || !client.Decided(cause) || lost.Reason != "expired" {
			t.Errorf("cause %#v", cause)
		}
		if d := time.Since(born); d < 98*time.Second || d > 100*time.Second {
			t.Errorf("lost after %v, want at the end at 100s", d)
		}
		if r, err := l.Commit(t.Context(), client.Usage{Output: 5}); err != nil || r.Tokens != 5 {
			t.Errorf("commit of a lost lease: %+v, %v", r, err)
		}
	})
}

func TestLeaseIsLostWhenNoExtensionGetsThrough(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, opts ...client.Option) {
		f := newFake()
		l, err := f.client(t, opts...).Acquire(t.Context(), ask)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		f.stop()
		<-l.Context().Done()
		var lost *client.LostError
		if cause := context.Cause(l.Context()); !errors.As(cause, &lost) || client.Decided(cause) || lost.Reason != "not_extended" {
			t.Errorf("cause %#v", cause)
		}
		if d := time.Since(start); d != f.ttl {
			t.Errorf("lost after %v, want at the TTL of %v", d, f.ttl)
		}
	})
}

func TestRevocationEndsTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		l, err := f.client(t).Acquire(t.Context(), ask)
		if err != nil {
			t.Fatal(err)
		}
		bound, cancel := l.Bind(t.Context())
		defer cancel()
		f.revoke(l.ID(), "operator")
		<-bound.Done()
		var revoked *client.RevokedError
		if !errors.As(context.Cause(bound), &revoked) || revoked.Reason != "operator" || revoked.LeaseID != l.ID() {
			t.Errorf("cause %#v", context.Cause(bound))
		}
	})
}

func TestCommitOutlivesItsCaller(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, opts ...client.Option) {
		f := newFake()
		l, err := f.client(t, opts...).Acquire(t.Context(), ask)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if r, err := l.Commit(ctx, client.Usage{Output: 5}); err != nil || r.Tokens != 5 {
			t.Errorf("receipt %+v, %v", r, err)
		}
	})
}

func TestSignalsOfARunningCall(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, opts ...client.Option) {
		f := newFake()
		r := ask
		r.DeferredStart = true
		l, err := f.client(t, opts...).Acquire(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Activate(t.Context()); err != nil {
			t.Error(err)
		}
		if err := l.Signal(t.Context(), client.Signal{Kind: client.SignalFirstByte, FirstByte: 300 * time.Millisecond}); err != nil {
			t.Error(err)
		}
		if err := l.Signal(t.Context(), client.Signal{Kind: client.SignalProvider, Provider: &client.ProviderSignal{Status: 429, RetryAfter: time.Second}}); err != nil {
			t.Error(err)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(f.signals) != 3 || f.signals[0].GetKind() != tbav1.SignalLeaseRequest_ACTIVATE || f.signals[1].GetFirstByteMs() != 300 || f.signals[2].GetProviderSignal().GetRetryAfterMs() != 1000 {
			t.Errorf("signals %v", f.signals)
		}
	})
}

func TestKeyTravelsWithEachCall(t *testing.T) {
	t.Parallel()
	f := newFake()
	if _, err := f.client(t, client.WithUnary(), client.WithKey("secret")).Acquire(t.Context(), ask); err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.keys) != 1 || f.keys[0] != "Bearer secret" {
		t.Errorf("keys %q", f.keys)
	}
}
