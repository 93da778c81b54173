package client_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/token-budget-arbiter/tba/client"
	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
)

func newAgent(t *testing.T, c *client.Client, o client.AgentOptions) *client.Agent {
	t.Helper()
	if o.ID == "" {
		o.ID = "a1"
	}
	a, err := client.NewAgent(c, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	return a
}

var spec = client.CallSpec{InputTokens: 300, OutputTokens: 700, Task: "t1"}

func used(u client.Usage) client.Func {
	return func(context.Context, *client.Lease) (client.Usage, error) { return u, nil }
}

func TestCallCommitsWhatItUsed(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, opts ...client.Option) {
		f := newFake()
		var spent []client.Spend
		a := newAgent(t, f.client(t, opts...), client.AgentOptions{
			Class: "research", Priority: client.PriorityHigh, Workflow: "w1",
			OnConsumption: func(s client.Spend) { spent = append(spent, s) },
		})
		err := a.Call(t.Context(), spec, func(ctx context.Context, l *client.Lease) (client.Usage, error) {
			<-time.After(1500 * time.Millisecond)
			return client.Usage{Input: 280, Output: 90}, ctx.Err()
		})
		if err != nil {
			t.Fatal(err)
		}
		requests, commits, _ := f.seen()
		q, m := requests[0], commits[0]
		if q.GetAgentId() != "a1" || q.GetAgentClass() != "research" || q.GetTaskId() != "t1" || q.GetWorkflowId() != "w1" || q.GetPriority() != tbav1.Priority_HIGH {
			t.Errorf("request %v", q)
		}
		if m.GetOutcome() != tbav1.LeaseCommit_OK || m.GetLatencyMs() != 1500 || m.GetActualTokens() != 370 {
			t.Errorf("commit %v", m)
		}
		if len(spent) != 1 || spent[0].Receipt.Tokens != 370 || spent[0].Provider != "openai" || spent[0].Err != nil {
			t.Errorf("hook heard %+v", spent)
		}
		want := client.Consumption{Calls: 1, Granted: 1, Succeeded: 1, Tokens: 370, CostNanos: 370_000}
		if got := a.Consumption(); got != want {
			t.Errorf("consumption %+v, want %+v", got, want)
		}
	})
}

func TestErrorsEndTheLeaseByWhatIsKnown(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for _, tt := range []struct {
		name     string
		usage    client.Usage
		err      error
		released bool
		outcome  tbav1.LeaseCommit_Outcome
		measured bool
	}{
		{"not sent", client.Usage{}, client.NotSent(boom), true, tbav1.LeaseCommit_NOT_SENT, false},
		{"failed", client.Usage{}, boom, false, tbav1.LeaseCommit_ERROR, false},
		{"failed with usage", client.Usage{Output: 5}, boom, false, tbav1.LeaseCommit_ERROR, true},
		{"timeout", client.Usage{}, errors.Join(boom, context.DeadlineExceeded), false, tbav1.LeaseCommit_TIMEOUT, false},
		{"cancelled", client.Usage{}, errors.Join(boom, context.Canceled), false, tbav1.LeaseCommit_CANCELLED, false},
		{"exhausted", client.Usage{}, client.WithOutcome(boom, client.OutcomeExhausted, &client.ProviderSignal{Status: 402}), true, tbav1.LeaseCommit_EXHAUSTED, false},
		{"overloaded", client.Usage{}, client.WithOutcome(boom, client.OutcomeOverloaded, nil), true, tbav1.LeaseCommit_OVERLOADED, false},
		{"said to be a timeout", client.Usage{}, client.WithOutcome(boom, client.OutcomeTimeout, nil), false, tbav1.LeaseCommit_TIMEOUT, false},
		{"not sent, yet used", client.Usage{Output: 5}, client.NotSent(boom), false, tbav1.LeaseCommit_NOT_SENT, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFake()
			a := newAgent(t, f.client(t), client.AgentOptions{})
			err := a.Call(t.Context(), spec, func(context.Context, *client.Lease) (client.Usage, error) { return tt.usage, tt.err })
			if !errors.Is(err, boom) {
				t.Errorf("got %v", err)
			}
			_, commits, releases := f.seen()
			if tt.released {
				if len(releases) != 1 || len(commits) != 0 || releases[0].GetOutcome() != tt.outcome || releases[0].GetReason() != "boom" {
					t.Errorf("releases %v, commits %v", releases, commits)
				}
				return
			}
			if len(releases) != 0 || len(commits) != 1 || commits[0].GetOutcome() != tt.outcome || commits[0].GetHasUsage() != tt.measured {
				t.Errorf("releases %v, commits %v", releases, commits)
			}
		})
	}
	if client.NotSent(nil) != nil || client.Throttled(nil, time.Second) != nil {
		t.Error("nil must stay nil")
	}
}

func TestPanicSettlesTheLease(t *testing.T) {
	t.Parallel()
	f := newFake()
	a := newAgent(t, f.client(t), client.AgentOptions{})
	func() {
		defer func() {
			if recover() != "bug" {
				t.Error("the panic must go on")
			}
		}()
		_ = a.Call(t.Context(), spec, func(context.Context, *client.Lease) (client.Usage, error) { panic("bug") })
	}()
	if _, commits, _ := f.seen(); len(commits) != 1 || commits[0].GetHasUsage() || commits[0].GetOutcome() != tbav1.LeaseCommit_ERROR {
		t.Errorf("commits %v", commits)
	}
}

func TestCancelledCallerStillSettles(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, opts ...client.Option) {
		f := newFake()
		a := newAgent(t, f.client(t, opts...), client.AgentOptions{})
		ctx, cancel := context.WithCancel(t.Context())
		err := a.Call(ctx, spec, func(ctx context.Context, _ *client.Lease) (client.Usage, error) {
			cancel()
			<-ctx.Done()
			return client.Usage{}, context.Cause(ctx)
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if _, commits, _ := f.seen(); len(commits) != 1 || commits[0].GetOutcome() != tbav1.LeaseCommit_CANCELLED {
			t.Errorf("commits %v", commits)
		}
	})
}

func TestRevokedCallEndsAndSettles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		a := newAgent(t, f.client(t), client.AgentOptions{})
		err := a.Call(t.Context(), spec, func(ctx context.Context, l *client.Lease) (client.Usage, error) {
			f.revoke(l.ID(), "operator")
			<-ctx.Done()
			return client.Usage{Output: 40}, context.Cause(ctx)
		})
		var revoked *client.RevokedError
		if !errors.As(err, &revoked) {
			t.Errorf("got %v", err)
		}
		if _, commits, _ := f.seen(); len(commits) != 1 || commits[0].GetOutcome() != tbav1.LeaseCommit_CANCELLED || commits[0].GetActualTokens() != 40 {
			t.Errorf("commits %v", commits)
		}
	})
}

// A throttle costs no try: the call comes back with its seniority, when the
// provider said.
func TestThrottledCallAsksAgainWithItsTicket(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, opts ...client.Option) {
		f := newFake()
		f.onRelease = func(*tbav1.LeaseRelease) (*tbav1.ReleaseResponse, error) {
			return &tbav1.ReleaseResponse{Ticket: []byte("senior"), RetryAfterMs: 4000, RecommendedDelayMs: 9000}, nil
		}
		a := newAgent(t, f.client(t, opts...), client.AgentOptions{})
		tries, start := 0, time.Now()
		err := a.Call(t.Context(), spec, func(context.Context, *client.Lease) (client.Usage, error) {
			if tries++; tries == 1 {
				return client.Usage{}, client.Throttled(errors.New("429"), 3*time.Second)
			}
			return client.Usage{Output: 5}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d != 4*time.Second {
			t.Errorf("waited %v, want the 4s of the answer: larger than the provider's 3s, and no delay on top of a ticket", d)
		}
		requests, commits, releases := f.seen()
		if len(requests) != 2 || string(requests[1].GetTicket()) != "senior" || requests[0].GetRequestId() == requests[1].GetRequestId() {
			t.Errorf("requests %v", requests)
		}
		if len(commits) != 1 || len(releases) != 1 || releases[0].GetOutcome() != tbav1.LeaseCommit_THROTTLED || releases[0].GetProviderSignal().GetRetryAfterMs() != 3000 {
			t.Errorf("commits %v, releases %v", commits, releases)
		}
		if got := a.Consumption(); got.Throttled != 1 || got.Succeeded != 1 || got.Waited != 4*time.Second {
			t.Errorf("consumption %+v", got)
		}
	})
}

func TestEndlessThrottleEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		a := newAgent(t, f.client(t), client.AgentOptions{})
		tries, busy := 0, errors.New("429")
		err := a.Call(t.Context(), spec, func(context.Context, *client.Lease) (client.Usage, error) {
			tries++
			return client.Usage{}, client.Throttled(busy, time.Second)
		})
		if !errors.Is(err, busy) || tries != 9 {
			t.Errorf("%v after %d tries, want 1 and 8 re-queues", err, tries)
		}
	})
}

func TestDeferredCallWaitsForItsSlot(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name         string
		ticket       string
		retry, delay int64
		want         time.Duration
	}{
		{"with a ticket: its slot, exactly", "slot", 2000, 9000, 2 * time.Second},
		{"without: the larger of the two", "", 2000, 9000, 9 * time.Second},
		{"without: never the sum", "", 9000, 2000, 9 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			both(t, func(t *testing.T, opts ...client.Option) {
				f := newFake()
				asked := 0
				f.onRequest = func(_ context.Context, m *tbav1.LeaseRequest) (*tbav1.LeaseResponse, error) {
					if asked++; asked > 1 {
						return f.grant(m), nil
					}
					return &tbav1.LeaseResponse{
						Status: tbav1.LeaseStatus_DEFERRED, Reason: "tpm", RetryAfterMs: tt.retry, RecommendedDelayMs: int32(tt.delay), Ticket: []byte(tt.ticket),
					}, nil
				}
				a := newAgent(t, f.client(t, opts...), client.AgentOptions{})
				start := time.Now()
				if err := a.Call(t.Context(), spec, used(client.Usage{Output: 5})); err != nil {
					t.Fatal(err)
				}
				if d := time.Since(start); d != tt.want {
					t.Errorf("waited %v, want %v", d, tt.want)
				}
				if requests, _, _ := f.seen(); string(requests[1].GetTicket()) != tt.ticket {
					t.Errorf("came back with %q", requests[1].GetTicket())
				}
				if got := a.Consumption(); got.Deferred != 1 || got.Granted != 1 {
					t.Errorf("consumption %+v", got)
				}
			})
		})
	}
}

func TestPatienceBoundsTheWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.onRequest = func(context.Context, *tbav1.LeaseRequest) (*tbav1.LeaseResponse, error) {
			return &tbav1.LeaseResponse{Status: tbav1.LeaseStatus_DEFERRED, Reason: "tpm", RetryAfterMs: 20_000, Ticket: []byte("slot")}, nil
		}
		a := newAgent(t, f.client(t), client.AgentOptions{Patience: 50 * time.Second})
		f.push(&tbav1.BackpressureSignal{})
		start := time.Now()
		err := a.Call(t.Context(), spec, used(client.Usage{}))
		var later *client.DeferredError
		if !errors.As(err, &later) || !client.Decided(err) {
			t.Errorf("got %v", err)
		}
		if d := time.Since(start); d != 40*time.Second {
			t.Errorf("gave up after %v, want when the next slot is beyond the patience", d)
		}
		if requests, _, _ := f.seen(); len(requests) != 3 || requests[0].GetDeadlineMs() != 50_000 {
			t.Errorf("%d requests, first %v", len(requests), requests[0])
		}
	})
}

func TestDeniedCallIsNotRepeated(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.onRequest = func(context.Context, *tbav1.LeaseRequest) (*tbav1.LeaseResponse, error) {
		return &tbav1.LeaseResponse{Status: tbav1.LeaseStatus_DENIED, Reason: "budget"}, nil
	}
	a := newAgent(t, f.client(t), client.AgentOptions{})
	err := a.Call(t.Context(), spec, used(client.Usage{}))
	var no *client.DeniedError
	if !errors.As(err, &no) || a.Consumption().Denied != 1 {
		t.Errorf("got %v, %+v", err, a.Consumption())
	}
}

func TestLevelIsKeptAndItsDelayApplied(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, opts ...client.Option) {
		f := newFake()
		f.onRequest = func(_ context.Context, m *tbav1.LeaseRequest) (*tbav1.LeaseResponse, error) {
			r := f.grant(m)
			r.Backpressure, r.RecommendedDelayMs = tbav1.BackpressureSignal_MODERATE, 800
			return r, nil
		}
		f.onCommit = func(*tbav1.LeaseCommit) (*tbav1.CommitResponse, error) {
			return &tbav1.CommitResponse{Backpressure: tbav1.BackpressureSignal_MODERATE, RecommendedDelayMs: 800}, nil
		}
		var levels []client.Level
		a := newAgent(t, f.client(t, opts...), client.AgentOptions{Class: "research", OnLevel: func(_, to client.Level) { levels = append(levels, to) }})
		f.push(&tbav1.BackpressureSignal{Level: tbav1.BackpressureSignal_MODERATE, RecommendedDelayMs: 800, GlobalBudgetConsumedPct: .75, Message: "add the delay"})
		synctest.Wait()
		if a.Level() != client.LevelModerate || a.Delay() != 800*time.Millisecond || a.Backpressure().Message != "add the delay" {
			t.Errorf("level %v, delay %v, signal %+v", a.Level(), a.Delay(), a.Backpressure())
		}
		start := time.Now()
		for range 2 {
			if err := a.Call(t.Context(), spec, used(client.Usage{Output: 5})); err != nil {
				t.Fatal(err)
			}
		}
		if d := time.Since(start); d != 1600*time.Millisecond {
			t.Errorf("two calls took %v, want a delay before each", d)
		}
		f.push(&tbav1.BackpressureSignal{Level: tbav1.BackpressureSignal_NONE, ClassLevels: map[string]tbav1.BackpressureSignal_Level{"research": tbav1.BackpressureSignal_MILD}})
		synctest.Wait()
		if a.Level() != client.LevelMild {
			t.Errorf("level %v, want that of the class", a.Level())
		}
		if len(levels) != 2 || levels[0] != client.LevelModerate || levels[1] != client.LevelMild {
			t.Errorf("hook heard %v", levels)
		}
		f.hush()
		<-time.After(time.Minute)
		if a.Level() != client.LevelNone {
			t.Errorf("level %v a minute after the last signal", a.Level())
		}
	})
}

func TestSheddingByLevelAndPriority(t *testing.T) {
	t.Parallel()
	severe, critical := tbav1.BackpressureSignal_SEVERE, tbav1.BackpressureSignal_CRITICAL
	for _, tt := range []struct {
		name     string
		level    tbav1.BackpressureSignal_Level
		class    string
		priority client.Priority
		held     bool
	}{
		{"low at severe", severe, "batch", client.PriorityLow, true},
		{"class default at severe", severe, "", client.PriorityDefault, true},
		{"other class at severe", severe, "batch", client.PriorityDefault, false},
		{"medium at severe", severe, "batch", client.PriorityMedium, false},
		{"high at critical", critical, "batch", client.PriorityHigh, true},
		{"critical at critical", critical, "batch", client.PriorityCritical, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			both(t, func(t *testing.T, opts ...client.Option) {
				f := newFake()
				a := newAgent(t, f.client(t, opts...), client.AgentOptions{Class: tt.class, Priority: tt.priority})
				f.push(&tbav1.BackpressureSignal{Level: tt.level, ShedLowPriority: true})
				synctest.Wait()
				var called atomic.Bool
				done := make(chan error, 1)
				go func() {
					done <- a.Call(t.Context(), spec, func(context.Context, *client.Lease) (client.Usage, error) {
						called.Store(true)
						return client.Usage{Output: 5}, nil
					})
				}()
				synctest.Wait()
				if called.Load() == tt.held {
					t.Errorf("called: %v", called.Load())
				}
				f.push(&tbav1.BackpressureSignal{Level: tbav1.BackpressureSignal_MODERATE})
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestShedHookDecides(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		action, asked := client.ShedDrop, 0
		a := newAgent(t, f.client(t), client.AgentOptions{
			Class: "batch", Priority: client.PriorityLow, Patience: time.Second,
			OnShed: func(s client.Shed) client.ShedAction {
				asked++
				if s.Agent != "a1" || s.Priority != client.PriorityLow || s.Call.Task != "t1" {
					t.Errorf("shed %+v", s)
				}
				return action
			},
		})
		level := func(l tbav1.BackpressureSignal_Level) {
			f.push(&tbav1.BackpressureSignal{Level: l})
			synctest.Wait()
		}
		level(tbav1.BackpressureSignal_SEVERE)
		var shed *client.ShedError
		if err := a.Call(t.Context(), spec, used(client.Usage{Output: 1})); !errors.As(err, &shed) || shed.Level != client.LevelSevere || client.Decided(err) {
			t.Errorf("drop: %v", err)
		}
		action = client.ShedDefer
		if err := a.Call(t.Context(), spec, used(client.Usage{Output: 1})); !errors.As(err, &shed) || shed.Cause == nil {
			t.Errorf("defer beyond the patience: %v", err)
		}
		action = client.ShedProceed
		if err := a.Call(t.Context(), spec, used(client.Usage{Output: 1})); err != nil {
			t.Errorf("proceed: %v", err)
		}
		level(tbav1.BackpressureSignal_CRITICAL)
		if err := a.Call(t.Context(), spec, used(client.Usage{Output: 1})); !errors.As(err, &shed) {
			t.Errorf("proceed at critical: %v", err)
		}
		if asked != 4 || a.Consumption().Shed != 4 {
			t.Errorf("asked %d times, consumption %+v", asked, a.Consumption())
		}
	})
}

func TestPausedAgentIsFreedBySilence(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, opts ...client.Option) {
		f := newFake()
		a := newAgent(t, f.client(t, opts...), client.AgentOptions{Class: "batch"})
		f.push(&tbav1.BackpressureSignal{Level: tbav1.BackpressureSignal_CRITICAL})
		synctest.Wait()
		f.hush()
		start := time.Now()
		if err := a.Call(t.Context(), spec, used(client.Usage{Output: 1})); err != nil {
			t.Fatal(err)
		}
		// The silence also ends the session, which comes back within 2 s.
		if d := time.Since(start); d < 20*time.Second || d > 22*time.Second {
			t.Errorf("paused for %v", d)
		}
	})
}

func TestCloseFreesAPausedCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		a := newAgent(t, f.client(t), client.AgentOptions{})
		f.push(&tbav1.BackpressureSignal{Level: tbav1.BackpressureSignal_CRITICAL})
		synctest.Wait()
		done := make(chan error)
		go func() { done <- a.Call(t.Context(), spec, used(client.Usage{})) }()
		synctest.Wait()
		a.Close()
		if err := <-done; !errors.Is(err, client.ErrClosed) {
			t.Errorf("got %v", err)
		}
		a.Close()
	})
}

func TestAgentsOfAClassShareOneSubscription(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, opts ...client.Option) {
		f := newFake()
		c := f.client(t, opts...)
		agents := make([]*client.Agent, 50)
		for i := range agents {
			agents[i] = newAgent(t, c, client.AgentOptions{Class: "batch"})
		}
		synctest.Wait()
		f.push(&tbav1.BackpressureSignal{Level: tbav1.BackpressureSignal_MILD})
		synctest.Wait()
		late := newAgent(t, c, client.AgentOptions{Class: "batch"})
		f.mu.Lock()
		n := len(f.watchers)
		f.mu.Unlock()
		if n != 1 || agents[49].Level() != client.LevelMild || late.Level() != client.LevelMild {
			t.Errorf("%d subscriptions, levels %v and %v", n, agents[49].Level(), late.Level())
		}
		for _, a := range append(agents, late) {
			a.Close()
		}
		synctest.Wait()
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(f.watchers) != 0 {
			t.Errorf("%d subscriptions after the last agent has gone", len(f.watchers))
		}
	})
}

func TestSubscriptionComesBack(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, opts ...client.Option) {
		f := newFake()
		a := newAgent(t, f.client(t, opts...), client.AgentOptions{Class: "batch"})
		f.push(&tbav1.BackpressureSignal{Level: tbav1.BackpressureSignal_MILD})
		synctest.Wait()
		f.stop()
		<-time.After(5 * time.Minute)
		f.start()
		f.push(&tbav1.BackpressureSignal{Level: tbav1.BackpressureSignal_MODERATE})
		<-time.After(time.Minute)
		f.push(&tbav1.BackpressureSignal{Level: tbav1.BackpressureSignal_MODERATE})
		synctest.Wait()
		if a.Level() != client.LevelModerate {
			t.Errorf("level %v", a.Level())
		}
	})
}

func TestCallsOfASettlingClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c := f.client(t, client.WithUnary(), client.WithSettle(20*time.Millisecond))
		a := newAgent(t, c, client.AgentOptions{Class: "batch"})
		for range 10 {
			if err := a.Call(t.Context(), spec, used(client.Usage{Output: 5})); err != nil {
				t.Fatal(err)
			}
		}
		if rpcs, _, _ := f.counts(); rpcs != 10 {
			t.Errorf("%d RPCs for 10 calls", rpcs)
		}
		if err := c.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := a.Consumption(); got.Tokens != 50 || got.Succeeded != 10 {
			t.Errorf("consumption %+v", got)
		}
	})
}

func TestRefusedSubscriptionShows(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, opts ...client.Option) {
		f := newFake()
		f.noWatch = refusal(codes.PermissionDenied, "class", 0)
		c := f.client(t, opts...)
		err := c.Watch(t.Context(), client.Subscription{AgentID: "a1"}, func(client.Backpressure) {})
		var no *client.RefusedError
		if !errors.As(err, &no) || !client.Decided(err) || no.Reason != "class" {
			t.Errorf("got %v", err)
		}
		a := newAgent(t, c, client.AgentOptions{})
		synctest.Wait()
		if !errors.As(a.Err(), &no) {
			t.Errorf("agent heard %v", a.Err())
		}
	})
}

func TestReasonFitsARelease(t *testing.T) {
	t.Parallel()
	f := newFake()
	a := newAgent(t, f.client(t), client.AgentOptions{})
	long := errors.New("line\n" + strings.Repeat("ä", 400))
	if err := a.Call(t.Context(), spec, func(context.Context, *client.Lease) (client.Usage, error) {
		return client.Usage{}, client.NotSent(long)
	}); !errors.Is(err, long) {
		t.Errorf("got %v", err)
	}
	_, _, releases := f.seen()
	if r := releases[0].GetReason(); len(r) > 256 || strings.Contains(r, "\n") || !strings.HasPrefix(r, "line ä") {
		t.Errorf("reason of %d bytes: %q", len(r), r)
	}
}
