package rpc

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/client"
	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
)

// laddered has a ladder of both providers, openai first.
func laddered() *arbiter.Policy {
	return testPolicy(func(p *arbiter.Policy) {
		p.Ladders = []arbiter.Ladder{{Name: "main", Tiers: [][]arbiter.Rung{{{Provider: "openai", Model: "gpt-5.4"}}, {{Provider: "anthropic", Model: "claude-sonnet-5"}}}}}
	})
}

// A request runs down the ladder that it names, past the rungs that it excepts.
func TestSDKLadder(t *testing.T) {
	t.Parallel()
	sdkWays(t, laddered, func(t *testing.T, w *world, c *client.Client) {
		ask := sdkAsk
		ask.Ladder, ask.MaxWait = "main", client.NoWait
		for want, except := range map[string][]string{
			"openai/gpt-5.4":             nil,
			"anthropic/claude-sonnet-5":  {"openai"},
			"anthropic/claude-sonnet-5 ": {"openai/gpt-5.4", "nobody/nothing"},
			"openai/gpt-5.4 ":            {"anthropic"},
		} {
			ask.Except = except
			l, err := c.Acquire(t.Context(), ask)
			if err != nil {
				t.Fatalf("except %v: %v", except, err)
			}
			if got := l.Provider() + "/" + l.Model(); got != strings.TrimSpace(want) {
				t.Errorf("except %v: on %s, want %s", except, got, want)
			}
			if err := l.Release(t.Context(), ""); err != nil {
				t.Error(err)
			}
		}
		ask.Except = []string{"openai", "anthropic"}
		var denied *client.DeniedError
		if _, err := c.Acquire(t.Context(), ask); !errors.As(err, &denied) || denied.Reason != "no_rung" {
			t.Errorf("nothing is left: %v", err)
		}
		ask.Except, ask.Ladder = nil, "mian"
		var refused *client.RefusedError
		if _, err := c.Acquire(t.Context(), ask); !errors.As(err, &refused) || refused.Reason != "unknown_ladder" || !strings.Contains(refused.Message, "it has main") {
			t.Errorf("an unknown ladder: %v", err)
		}
	})
}

// A throttled call goes on at the next rung at once; the event says whose limit it was.
func TestSDKThrottleOnALadder(t *testing.T) {
	t.Parallel()
	sdkWays(t, laddered, func(t *testing.T, w *world, c *client.Client) {
		agent, err := client.NewAgent(c, client.AgentOptions{ID: "a"})
		if err != nil {
			t.Fatal(err)
		}
		defer agent.Close()
		start := time.Now()
		var rungs []string
		if err := agent.Call(t.Context(), client.CallSpec{Tokens: 100, Ladder: "main"}, func(_ context.Context, l *client.Lease) (client.Usage, error) {
			if rungs = append(rungs, l.Provider()); len(rungs) == 1 {
				return client.Usage{}, client.WithOutcome(errors.New("429"), client.OutcomeThrottled, &client.ProviderSignal{Status: 429, RetryAfter: 20 * time.Second, Dimension: "tpm"})
			}
			return client.Usage{Output: 40}, nil
		}); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); strings.Join(rungs, " ") != "openai anthropic" || d > time.Second {
			t.Errorf("ran on %v, in %v", rungs, d)
		}
		events, err := w.admin.ListEvents(t.Context(), &tbav1.ListEventsRequest{Types: []string{"throttled"}})
		if err != nil || len(events.GetEvents()) != 1 {
			t.Fatalf("events: %v, %v", events, err)
		}
		if e := events.GetEvents()[0]; e.GetProvider() != "openai" || e.GetModel() != "gpt-5.4" || e.GetDimension() != "tpm" || e.GetRetryAfterMs() != 20_000 || e.GetReason() != "provider_limit" || e.GetAgentId() != "a" {
			t.Errorf("event %v", e)
		}
	})
}
