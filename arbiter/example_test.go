package arbiter_test

import (
	"fmt"

	"github.com/token-budget-arbiter/tba/arbiter"
)

// A pool with one budget of 200 tokens: one lease fits, the next has to wait until the first is settled.
func ExampleState_Decide() {
	policy := &arbiter.Policy{
		Version: 1, Period: arbiter.PeriodSpec{Kind: "daily"}, Global: arbiter.Limit{Tokens: 200, Nanos: arbiter.Unlimited}, Tasks: arbiter.NoLimit,
		Providers: []arbiter.Provider{{Name: "openai", Limit: arbiter.NoLimit, Models: []arbiter.Model{{
			Limit: arbiter.NoLimit, Prices: []arbiter.Price{{Rates: arbiter.Rates{Input: 2_500_000, Output: 10_000_000}}},
		}}}},
		Classes: []arbiter.Class{{Name: arbiter.DefaultClass, Limit: arbiter.NoLimit}},
		Lease:   arbiter.DefaultLeaseRules, Breaker: arbiter.DefaultBreaker, Weights: arbiter.DefaultWeights, Backpressure: arbiter.DefaultBackpressure,
	}
	packed, hash, err := policy.Encode()
	if err != nil {
		fmt.Println(err)
		return
	}
	state, decision := arbiter.NewState("default"), arbiter.Decision{}
	now := arbiter.Time{Now: arbiter.Second, Wall: arbiter.Second}
	do := func(c arbiter.Command) *arbiter.Answer {
		state.Advance(now)
		if err := state.Decide(c, &decision); err != nil {
			fmt.Println(err)
		}
		for i := range decision.Facts { // in production: once they are in the journal
			state.Apply(&decision.Facts[i])
		}
		return &decision.Answer
	}

	do(&arbiter.Adopt{Version: 1, Hash: hash, Policy: packed, Period: arbiter.Period{End: arbiter.Hour}})
	a := do(&arbiter.Request{Lease: arbiter.LeaseID{1}, Agent: "planner-1", Input: 100, Output: 50, Priority: arbiter.ClassPriority})
	fmt.Println(a.Status, a.Lease.Tokens(), "tokens at", a.Lease.Nanos, "nano-USD")
	a = do(&arbiter.Request{Lease: arbiter.LeaseID{2}, Agent: "planner-2", Input: 100, Output: 50, Priority: arbiter.ClassPriority})
	fmt.Println(a.Status, a.Check.Reason, a.Check.Held, "held of", a.Check.Limit)
	do(&arbiter.Commit{Lease: arbiter.LeaseID{1}, HasUsage: true, Usage: arbiter.Usage{Input: 100, Output: 20}})
	row := state.BudgetRows(0)[0]
	fmt.Println("spent", row.Spent, "held", row.Held, "available", row.Available())
	// Output:
	// GRANTED 150 tokens at 750000 nano-USD
	// DEFERRED budget 150 held of 200
	// spent 120 held 0 available 80
}
