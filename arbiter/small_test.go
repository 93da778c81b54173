package arbiter

// onePolicy is the smallest useful policy: one provider with one model of 2 $/M input and 10 $/M output, no limit at all, start_by 0.
func onePolicy() *Policy {
	p := &Policy{
		Version: 1, Guard: 250 * Millisecond, Period: PeriodSpec{Kind: "daily"}, Global: NoLimit, Tasks: NoLimit,
		Providers: []Provider{{Name: "openai", Limit: NoLimit, Models: []Model{{Limit: NoLimit, Prices: []Price{{Rates: Rates{Input: 2_000_000, Output: 10_000_000}}}}}}},
		Classes:   []Class{{Name: DefaultClass, Limit: NoLimit}},
		Lease:     DefaultLeaseRules, Breaker: DefaultBreaker, Weights: DefaultWeights, Backpressure: DefaultBackpressure,
	}
	p.Lease.StartBy, p.Lease.TTL = 0, 30*Second
	return p
}

// requestOf asks for a lease of 100 + 50 tokens.
func requestOf(n int) *Request {
	r := &Request{Lease: leaseID(n), Agent: "a", Input: 100, Output: 50, Priority: ClassPriority}
	r.Fingerprint = r.Sum()
	return r
}

// openDesk is a desk with a policy, one hour in.
func openDesk(tb failer, p *Policy) *desk {
	tb.Helper()
	k := newDesk("pool")
	k.w.SetEvents(true)
	k.do(tb, at(Hour), p.adopt(tb, day(at(Hour).Wall)))
	k.w.ClearEvents()
	return k
}
