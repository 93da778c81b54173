package client_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"

	"github.com/token-budget-arbiter/tba/client"
	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var safe = client.FallbackSafeCapacity{Agents: 1, Rungs: []client.SafeRung{{Provider: "mistral", Model: "small", RequestsPerMinute: 60}}}

func TestSafeCapacityGrantsWhileTheArbiterIsAway(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, opts ...client.Option) {
		f := newFake()
		a := newAgent(t, f.client(t, append(opts, client.WithFallback(safe))...), client.AgentOptions{Class: "batch"})
		f.stop()
		var provider string
		start := time.Now()
		for range 10 {
			err := a.Call(t.Context(), spec, func(_ context.Context, l *client.Lease) (client.Usage, error) {
				provider = l.Provider() + "/" + l.Model()
				if !l.Local() || l.ID() != "" || l.OutputTokens() != 700 || l.TTL() != 0 {
					t.Errorf("lease %q of %d output tokens, TTL %v", l.ID(), l.OutputTokens(), l.TTL())
				}
				return client.Usage{Output: 5}, nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if provider != "mistral/small" {
			t.Errorf("called %s", provider)
		}
		if d := time.Since(start); d < 9*time.Second {
			t.Errorf("10 calls at 60 a minute took %v", d)
		}
		if got := a.Consumption(); got.Tokens != 50 || got.CostNanos != 0 || got.Local != 10 {
			t.Errorf("consumption %+v", got)
		}
		f.start()
		<-time.After(time.Minute)
		err := a.Call(t.Context(), spec, func(_ context.Context, l *client.Lease) (client.Usage, error) {
			if l.Local() {
				t.Error("local lease although the arbiter is back")
			}
			return client.Usage{Output: 5}, nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

func TestThrottleWithoutAnArbiterHasTwoTries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		a := newAgent(t, f.client(t, client.WithFallback(safe)), client.AgentOptions{Class: "batch"})
		f.stop()
		tries, busy := 0, errors.New("429")
		err := a.Call(t.Context(), spec, func(context.Context, *client.Lease) (client.Usage, error) {
			tries++
			return client.Usage{}, client.Throttled(busy, time.Second)
		})
		if !errors.Is(err, busy) || tries != 2 {
			t.Errorf("%v after %d tries", err, tries)
		}
	})
}

func TestFallbackIsPerPool(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c := f.client(t, client.WithFallback(safe), client.WithPoolFallback("strict", client.FallbackClosed{}))
		f.onRequest = func(context.Context, *tbav1.LeaseRequest) (*tbav1.LeaseResponse, error) {
			return nil, refusal(codes.Unavailable, "journal", 0)
		}
		strict := ask
		strict.Pool = "strict"
		_, err := c.Acquire(t.Context(), strict)
		var away *client.UnavailableError
		if !errors.As(err, &away) || !client.Decided(err) {
			t.Errorf("strict pool: %v", err)
		}
		l, err := c.Acquire(t.Context(), ask)
		if err != nil || !l.Local() {
			t.Fatalf("other pool: %v", err)
		}
		if r, err := l.Commit(t.Context(), client.Usage{Output: 5}); err != nil || !r.Local {
			t.Errorf("receipt %+v, %v", r, err)
		}
		hurry := ask
		hurry.MaxWait = client.NoWait
		_, err = c.Acquire(t.Context(), hurry)
		var later *client.DeferredError
		if !errors.As(err, &later) || !later.Local || client.Decided(err) {
			t.Errorf("no room locally: %v", err)
		}
		f.onRequest = func(context.Context, *tbav1.LeaseRequest) (*tbav1.LeaseResponse, error) {
			return nil, refusal(codes.ResourceExhausted, "rate", time.Second)
		}
		if _, err := c.Acquire(t.Context(), ask); errors.As(err, &away) || !client.Decided(err) {
			t.Errorf("a refusal must not open the fallback: %v", err)
		}
	})
}
