package arbiter

import "testing"

// TestMildPrefersCheap: at MILD 0.10 moves from headroom to cost, so a MEDIUM request goes to the cheap provider that it passed over before.
func TestMildPrefersCheap(t *testing.T) {
	t.Parallel()
	p := benchPolicy()
	p.Global = Limit{Tokens: 1_000_000, Nanos: Unlimited}
	p.Classes = []Class{{Name: DefaultClass, Priority: Medium, Limit: NoLimit}}
	model := func(output Pico) []Model {
		return []Model{{Limit: NoLimit, Prices: []Price{{Rates: Rates{Output: output}}}}}
	}
	p.Providers = []Provider{
		{Name: "roomy", Limit: NoLimit, Ceilings: Ceilings{RPM: 1000}, Models: model(10_000_000)},                   // c = 0.417
		{Name: "cheap", Limit: NoLimit, Ceilings: Ceilings{RPM: 1000, MaxConcurrent: 10}, Models: model(2_000_000)}, // c = 0.910
	}
	c := newCycler(t)
	c.s = NewState("mild")
	c.s.Advance(Time{c.now, c.now})
	adoptForTest(t, c.s, p, Period{0, 1 << 62})
	c.request.Class, c.request.Task, c.request.Input, c.request.Output = "", "", 0, 500_000
	ask := func() string {
		c.grant(t)
		return c.d.Answer.Lease.Provider
	}
	// Five calls run at cheap: its headroom is 0.5, so 0.5·0.5 + 0.5·0.910 = 0.705 against 0.5·1 + 0.5·0.417 = 0.708.
	c.request.Provider, c.request.Output = "cheap", 10
	for range 5 {
		if got := ask(); got != "cheap" {
			t.Fatalf("preferred cheap, got %s", got)
		}
	}
	c.request.Provider = ""
	if got := ask(); got != "roomy" {
		t.Fatalf("calm: %s", got)
	}
	// Half of the budget is spent: MILD. 0.4·0.5 + 0.6·0.910 = 0.746 against 0.4·1 + 0.6·0.417 = 0.650.
	c.commit.Usage = Usage{Output: 500_000}
	c.settle(t, c.request.Lease)
	c.now += Second
	c.s.Advance(Time{c.now, c.now})
	if got := c.s.Pressure().Level; got != LevelMild {
		t.Fatalf("level %s", got)
	}
	if got := ask(); got != "cheap" {
		t.Fatalf("MILD: %s", got)
	}
}
