package client_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/token-budget-arbiter/tba/client"
	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
)

// dialExample stands for client.Dial("localhost:7481", opts...), with an
// arbiter inside the process.
func dialExample(f *fakeArbiter, opts ...client.Option) *client.Client {
	c, err := f.connect(opts...)
	if err != nil {
		panic(err)
	}
	return c
}

// One lease, by hand: ask, call, commit what was used.
func Example() {
	arbiter := newFake()
	defer arbiter.stop()
	c := dialExample(arbiter)
	defer c.Close()

	ctx := context.Background()
	lease, err := c.Acquire(ctx, client.Request{AgentID: "crawler-7", Class: "research", InputTokens: 900, OutputTokens: 500})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("call %s/%s with at most %d tokens of output\n", lease.Provider(), lease.Model(), lease.OutputTokens())
	receipt, err := lease.Commit(ctx, client.Usage{Input: 880, Output: 320})
	fmt.Println("recorded:", receipt.Tokens, err)
	// Output:
	// call openai/gpt-5-mini with at most 500 tokens of output
	// recorded: 1200 <nil>
}

// An agent does everything around the call.
func ExampleAgent_Call() {
	arbiter := newFake()
	defer arbiter.stop()
	c := dialExample(arbiter)
	defer c.Close()

	agent, err := client.NewAgent(c, client.AgentOptions{ID: "crawler-7", Class: "research"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer agent.Close()
	err = agent.Call(context.Background(), client.CallSpec{InputTokens: 900, OutputTokens: 500, Task: "report-12"},
		func(ctx context.Context, l *client.Lease) (client.Usage, error) {
			// Call l.Provider() here, with ctx: it ends when the lease is revoked.
			return client.Usage{Input: 880, Output: 320}, nil
		})
	fmt.Println(err, agent.Consumption().Tokens)
	// Output: <nil> 1200
}

// A 429 of the provider is no failure of the call: the fleet learns of it, and
// the call comes back with its seniority.
func ExampleThrottled() {
	arbiter := newFake()
	defer arbiter.stop()
	c := dialExample(arbiter)
	defer c.Close()
	agent, _ := client.NewAgent(c, client.AgentOptions{ID: "crawler-7", Class: "research"})
	defer agent.Close()

	tries := 0
	err := agent.Call(context.Background(), client.CallSpec{Tokens: 100}, func(context.Context, *client.Lease) (client.Usage, error) {
		if tries++; tries == 1 {
			return client.Usage{}, client.Throttled(errors.New("429 too many requests"), 10*time.Millisecond)
		}
		return client.Usage{Input: 60, Output: 40}, nil
	})
	fmt.Println(err, "after", tries, "tries")
	// Output: <nil> after 2 tries
}

// A call that never left costs nothing.
func ExampleNotSent() {
	arbiter := newFake()
	defer arbiter.stop()
	c := dialExample(arbiter)
	defer c.Close()
	agent, _ := client.NewAgent(c, client.AgentOptions{ID: "crawler-7", Class: "research"})
	defer agent.Close()

	err := agent.Call(context.Background(), client.CallSpec{Tokens: 100}, func(context.Context, *client.Lease) (client.Usage, error) {
		return client.Usage{}, client.NotSent(errors.New("prompt template is broken"))
	})
	_, commits, releases := arbiter.seen()
	fmt.Println(err)
	fmt.Println(len(commits), "commits,", len(releases), "release:", releases[0].GetOutcome())
	// Output:
	// prompt template is broken
	// 0 commits, 1 release: NOT_SENT
}

// A decision and a broken network are different errors.
func ExampleDecided() {
	arbiter := newFake()
	arbiter.onRequest = func(context.Context, *tbav1.LeaseRequest) (*tbav1.LeaseResponse, error) {
		return &tbav1.LeaseResponse{
			Status: tbav1.LeaseStatus_DENIED, Reason: "budget", LimitName: "global", LimitUnit: "tokens",
			Limit: 50_000, Used: 48_900, Held: 600, Asked: 1400,
		}, nil
	}
	c := dialExample(arbiter)
	defer c.Close()

	_, err := c.Acquire(context.Background(), client.Request{AgentID: "crawler-7", Tokens: 1400})
	var denied *client.DeniedError
	if errors.As(err, &denied) {
		fmt.Println("missing:", denied.Asked-(denied.Limit-denied.Used-denied.Held))
	}
	fmt.Println(err)
	fmt.Println("decided:", client.Decided(err))

	arbiter.stop()
	_, err = c.Acquire(context.Background(), client.Request{AgentID: "crawler-7", Tokens: 1400})
	fmt.Println("decided:", client.Decided(err))
	// Output:
	// missing: 900
	// lease denied: budget (limit 50000, used 48900, held 600, asked 1400 tokens of global)
	// decided: true
	// decided: false
}

// Work goes on at an equal part of the ceilings while no arbiter answers.
func ExampleFallbackSafeCapacity() {
	arbiter := newFake()
	c := dialExample(arbiter, client.WithUnary(), client.WithFallback(client.FallbackSafeCapacity{
		Agents: 100,
		Rungs:  []client.SafeRung{{Provider: "mistral", RequestsPerMinute: 6_000_000}},
	}))
	defer c.Close()
	arbiter.stop()

	lease, err := c.Acquire(context.Background(), client.Request{AgentID: "crawler-7", Tokens: 100})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(lease.Provider(), "local:", lease.Local())
	if err := lease.Release(context.Background(), "example"); err != nil {
		fmt.Println(err)
	}
	// Output: mistral local: true
}

// A lease that is revoked ends the call under way.
func ExampleLease_Bind() {
	arbiter := newFake()
	defer arbiter.stop()
	c := dialExample(arbiter)
	defer c.Close()

	ctx := context.Background()
	lease, err := c.Acquire(ctx, client.Request{AgentID: "crawler-7", Tokens: 100})
	if err != nil {
		fmt.Println(err)
		return
	}
	call, cancel := lease.Bind(ctx)
	defer cancel()
	arbiter.revoke(lease.ID(), "runaway task")
	<-call.Done()
	fmt.Println(context.Cause(call))
	_, err = lease.Commit(ctx, client.Usage{Output: 12})
	fmt.Println("commit:", err)
	// Output:
	// lease lease-1 revoked: runaway task
	// commit: <nil>
}

// A lease may be taken before its call is ready to start.
func ExampleLease_Activate() {
	arbiter := newFake()
	defer arbiter.stop()
	c := dialExample(arbiter)
	defer c.Close()

	ctx := context.Background()
	lease, err := c.Acquire(ctx, client.Request{AgentID: "crawler-7", Tokens: 100, DeferredStart: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(lease.Activate(ctx))
	receipt, err := lease.CommitReport(ctx, client.Report{
		Usage: client.Usage{Input: 40, Output: 30}, Latency: 900 * time.Millisecond, FirstByte: 200 * time.Millisecond,
	})
	fmt.Println(receipt.Tokens, err)
	// Output:
	// <nil>
	// 70 <nil>
}

// Without a session, commits can ride on the next request.
func ExampleWithSettle() {
	arbiter := newFake()
	defer arbiter.stop()
	c := dialExample(arbiter, client.WithUnary(), client.WithSettle(time.Minute))
	defer c.Close()
	agent, _ := client.NewAgent(c, client.AgentOptions{ID: "crawler-7", Class: "research"})
	defer agent.Close()

	ctx := context.Background()
	for range 5 {
		err := agent.Call(ctx, client.CallSpec{Tokens: 100}, func(context.Context, *client.Lease) (client.Usage, error) {
			return client.Usage{Output: 10}, nil
		})
		if err != nil {
			fmt.Println(err)
		}
	}
	if err := c.Flush(ctx); err != nil {
		fmt.Println(err)
	}
	rpcs, _, _ := arbiter.counts()
	fmt.Println(agent.Consumption().Tokens, "tokens in", rpcs, "RPCs")
	// Output: 50 tokens in 6 RPCs
}

// Low-priority work is dropped while the pool is nearly full.
func ExampleAgentOptions_onShed() {
	arbiter := newFake()
	defer arbiter.stop()
	c := dialExample(arbiter)
	defer c.Close()

	severe := make(chan struct{})
	agent, _ := client.NewAgent(c, client.AgentOptions{
		ID: "crawler-7", Class: "batch", Priority: client.PriorityLow,
		OnLevel: func(_, to client.Level) {
			if to == client.LevelSevere {
				close(severe)
			}
		},
		OnShed: func(client.Shed) client.ShedAction { return client.ShedDrop },
	})
	defer agent.Close()
	arbiter.push(&tbav1.BackpressureSignal{Level: tbav1.BackpressureSignal_SEVERE, ShedLowPriority: true})
	<-severe
	fmt.Println(agent.Call(context.Background(), client.CallSpec{Tokens: 100}, nil))
	// Output: agent crawler-7: call dropped at backpressure level severe
}

// Watch follows the backpressure of a pool.
func ExampleClient_Watch() {
	arbiter := newFake()
	defer arbiter.stop()
	c := dialExample(arbiter)
	defer c.Close()
	arbiter.push(&tbav1.BackpressureSignal{Level: tbav1.BackpressureSignal_MODERATE, RecommendedDelayMs: 800, Message: "add the delay"})

	ctx, cancel := context.WithCancelCause(context.Background())
	err := c.Watch(ctx, client.Subscription{AgentID: "dashboard"}, func(b client.Backpressure) {
		fmt.Println(b.Level, b.Delay, b.Message)
		cancel(errors.New("seen enough"))
	})
	fmt.Println(err)
	// Output:
	// moderate 800ms add the delay
	// seen enough
}

// A request that the arbiter does not take says why, in a stable word.
func ExampleRefusedError() {
	arbiter := newFake()
	defer arbiter.stop()
	arbiter.onRequest = func(context.Context, *tbav1.LeaseRequest) (*tbav1.LeaseResponse, error) {
		return nil, refusal(codes.InvalidArgument, "unknown_class", 0)
	}
	c := dialExample(arbiter)
	defer c.Close()

	_, err := c.Acquire(context.Background(), client.Request{AgentID: "crawler-7", Class: "reserch", Tokens: 100})
	var refused *client.RefusedError
	if errors.As(err, &refused) {
		fmt.Println(refused.Reason)
	}
	// Output: unknown_class
}
