package arbiter

import "testing"

// Faults from practice with the values that are right here (docs: guarantees).

// usd is money in nanos.
func usd(micro int64) Nanos { return Nanos(micro * 1000) }

// tokens asks for a lease of n tokens in one number.
func tokensOf(n int, tokens Tokens) *Request {
	r := &Request{Lease: leaseID(n), Agent: "a", Output: tokens, Undivided: true, Priority: ClassPriority}
	r.Fingerprint = r.Sum()
	return r
}

// global is the pool's own row in one unit.
func global(s *State, u Unit) BudgetRow {
	for _, r := range s.BudgetRows(0) {
		if r.Kind == KindGlobal && r.Unit == u {
			return r
		}
	}
	return BudgetRow{}
}

// T01: five simultaneous calls all passed a limit of 100 tokens a minute and used 663.
func TestT01(t *testing.T) {
	t.Parallel()
	p := onePolicy()
	p.Lease.StartBy = 2 * Second
	p.Providers[0].TPM = 100
	k := openDesk(t, p)
	b := &batch{t: at(Hour)}
	for i, n := range []Tokens{58, 80, 175, 175, 175} {
		b.commands = append(b.commands, tokensOf(i, n))
	}
	got := k.run(t, b)
	if a := got[0].Answer; a.Status != Granted || a.Lease.Tokens() != 58 {
		t.Errorf("58: %v", got[0])
	}
	if a := got[1].Answer; a.Status != Deferred || a.Check.Reason != ReasonTPM || a.RetryAfter > Minute+p.Guard+p.Lease.StartBy+bucketLength {
		t.Errorf("80: %v", got[1])
	}
	for _, r := range got[2:] {
		if a := r.Answer; a.Status != Denied || a.Check.Reason != ReasonTooLarge || a.Check.Limit != 100 || a.Check.Asked != 175 {
			t.Errorf("175: %v", r)
		}
	}
	if n, held := used(t, k.w, "openai", "", DimTPM); n+held != 58 {
		t.Errorf("held and used %d, want 58", n+held)
	}
}

// T03: a process killed in its call left its hold on the counter, and a budget with no real spend refused everyone.
func TestT03(t *testing.T) {
	t.Parallel()
	p := onePolicy()
	p.Global.Nanos = usd(5000)
	k := openDesk(t, p)
	r := &Request{Lease: leaseID(1), Output: 500, Priority: ClassPriority} // 500 × 10 $/M = $0.005
	k.grant(t, Hour, r)
	if got := k.do(t, at(Hour), requestOf(2)); got.Answer.Status != Deferred || got.Answer.Check.Reason != ReasonBudget {
		t.Errorf("while it is held: %v", got)
	}
	k.run(t, &batch{t: at(Hour + 30*Second + p.Lease.Grace)})
	if g := global(k.w, UnitNanos); g.Available() != int64(usd(5000)) || g.Spent != 0 || g.Held != 0 {
		t.Errorf("after TTL and grace: %+v", g)
	}
	if e := k.w.Events(); len(e) != 1 || e[0].Kind != EventLeaseExpired || e[0].Lease != r.Lease || e[0].At != Hour+30*Second {
		t.Errorf("events: %+v", e)
	}
	k.grant(t, Hour+30*Second+p.Lease.Grace, &Request{Lease: leaseID(3), Output: 500, Priority: ClassPriority})
}

// T04: a call without max_tokens reserved the whole remaining budget and blocked all others.
func TestT04(t *testing.T) {
	t.Parallel()
	p := onePolicy()
	p.Global.Nanos = usd(2000_000_000)
	m := &p.Providers[0].Models[0]
	m.MaxOutput, m.Prices = 16_384, []Price{{Rates: Rates{Input: 3_000_000, Output: 15_000_000}}}
	k := openDesk(t, p)
	first := k.do(t, at(Hour), &Request{Lease: leaseID(1), Input: 10_000, Output: 7600, Priority: ClassPriority}).Answer.Lease
	if got := k.do(t, at(Hour), &Commit{Lease: first.Lease, HasUsage: true, Usage: Usage{Input: 10_000, Output: 7600}}); got.Answer.Nanos != usd(144_000) {
		t.Fatalf("spent: %v", got)
	}
	for n, output := range []Tokens{MaxAmount - 1000, 999_999_999} {
		got := k.do(t, at(Hour), &Request{Lease: leaseID(10 + n), Input: 1000, Output: output, Priority: ClassPriority})
		if want := usd(245_760) + usd(3000); got.Answer.Status != Granted || got.Answer.Lease.Nanos != want || got.Answer.Lease.Output != 16_384 {
			t.Errorf("output %d: %v, want a hold of %d", output, got, want)
		}
	}
	// One number for prompt and answer is bounded by the model too, where its longest prompt is known.
	m.MaxInput = 100_000
	k = openDesk(t, p)
	got := k.do(t, at(Hour), &Request{Lease: leaseID(20), Output: 444_000_000, Undivided: true, Priority: ClassPriority})
	if l := got.Answer.Lease; got.Answer.Status != Granted || l.Output != 116_384 {
		t.Errorf("one number: %v, want 116384 tokens", got)
	}
}

// T07: when settling failed and the clean-up failed too, the actual cost was added on top of the hold.
func TestT07(t *testing.T) {
	t.Parallel()
	p := onePolicy()
	p.Global.Nanos = usd(1_000_000)
	k := openDesk(t, p)
	k.grant(t, Hour, &Request{Lease: leaseID(1), Output: 40_000, Priority: ClassPriority}) // $0.40
	commit := &Commit{Lease: leaseID(1), HasActual: true, Actual: 10_000}
	for range 3 { // the store failed: the batch is taken back
		k.attempt(t, &batch{t: at(Hour + Second), commands: []Command{commit}})
		k.w.Rollback()
	}
	for range 3 {
		k.do(t, at(Hour+Second), commit)
		if g := global(k.w, UnitNanos); g.Spent != int64(usd(100_000)) || g.Held != 0 {
			t.Fatalf("%+v, want $0.10 spent once and nothing held", g)
		}
	}
}

// T08: a successful call with unknown usage released its hold and recorded nothing.
func TestT08(t *testing.T) {
	t.Parallel()
	p := onePolicy()
	p.Global.Nanos = usd(1_000_000)
	k := openDesk(t, p)
	k.grant(t, Hour, &Request{Lease: leaseID(1), Output: 20_000, Priority: ClassPriority}) // $0.20
	got := k.do(t, at(Hour), &Commit{Lease: leaseID(1), Outcome: OutcomeOK})
	if got.Answer.Result != Recorded || got.Answer.Nanos != usd(200_000) || got.Answer.Tokens != 20_000 || got.Answer.Flags != FlagEstimated {
		t.Errorf("%v, want $0.20, flagged estimated", got)
	}
	if g := global(k.w, UnitNanos); g.Spent != int64(usd(200_000)) || g.Held != 0 {
		t.Errorf("%+v", g)
	}
	k.grant(t, Hour, requestOf(2))
	if got = k.do(t, at(Hour), &Commit{Lease: leaseID(2), HasActual: true}); got.Answer.Tokens != 0 || got.Answer.Flags != 0 {
		t.Errorf("an explicit zero is zero: %v", got)
	}
}

// T10: a renewal that is slow lets the hold lapse while the call runs.
func TestT10(t *testing.T) {
	t.Parallel()
	p := onePolicy()
	p.Global.Tokens, p.Lease.TTL = 150, 10*Second
	k := openDesk(t, p)
	k.grant(t, Hour, requestOf(1))
	// It arrived at a third of the TTL; the store stalled and the batch is decided at 10.5 s, together with a rival.
	got := k.run(t, &batch{t: at(Hour + 10500*Millisecond), extends: []*Extend{{Lease: leaseID(1), Arrival: Hour + 3333*Millisecond}}, commands: []Command{requestOf(2)}})
	if got[0].Err != nil || got[0].Answer.Lease.Deadline != Hour+13333*Millisecond {
		t.Errorf("renewal: %v", got[0])
	}
	if a := got[1].Answer; a.Status != Deferred || a.Check.Reason != ReasonBudget {
		t.Errorf("rival: %v", got[1])
	}
	if g := global(k.w, UnitTokens); g.Held != 150 || len(k.w.Events()) != 0 {
		t.Errorf("the hold dropped: %+v, %+v", g, k.w.Events())
	}
	// It arrived just before the end.
	got = k.run(t, &batch{t: at(Hour + 19*Second), extends: []*Extend{{Lease: leaseID(1), Arrival: Hour + 13333*Millisecond - 1}}})
	if got[0].Err != nil || global(k.w, UnitTokens).Held != 150 {
		t.Errorf("renewal just before the end: %v", got[0])
	}
}

// T11: holds were cut to 60 s; a long call outlived its hold.
func TestT11(t *testing.T) {
	t.Parallel()
	p := onePolicy()
	p.Global.Tokens, p.Lease.TTL = 300, 60*Second
	k := openDesk(t, p)
	k.grant(t, Hour, requestOf(1))
	now := Hour
	for ; now < Hour+240*Second; now += 20 * Second {
		if got := k.do(t, at(now), &Extend{Lease: leaseID(1), Arrival: now}); got.Err != nil {
			t.Fatalf("heartbeat after %d s: %v", (now-Hour)/Second, got.Err)
		}
		if g := global(k.w, UnitTokens); g.Held != 150 {
			t.Fatalf("after %d s: held %d", (now-Hour)/Second, g.Held)
		}
	}
	last := now - 20*Second
	k.run(t, &batch{t: at(last + 60*Second)}) // the heartbeats stopped
	if g := global(k.w, UnitTokens); g.Held != 0 || g.Spent != 0 {
		t.Errorf("a TTL after the last heartbeat: %+v", g)
	}
	for i, want := range []Result{Recorded, AlreadyRecorded, AlreadyRecorded} {
		got := k.do(t, at(last+5*Minute), &Commit{Lease: leaseID(1), HasUsage: true, Usage: Usage{Input: 100, Output: 45}})
		if got.Answer.Result != want || got.Answer.Flags != FlagLate || global(k.w, UnitTokens).Spent != 145 {
			t.Errorf("late commit %d: %v, spent %d", i, got, global(k.w, UnitTokens).Spent)
		}
	}
}

// longContext is 2 $/M, above 200,000 tokens of prompt 4 $/M; cache writes a quarter more.
var longContext = Price{Rates: Rates{Input: 2_000_000, CacheWrite: 2_500_000, Output: 12_000_000},
	Tiers: []Tier{{OverInput: 200_000, Rates: Rates{Input: 4_000_000, CacheWrite: 7_500_000, Output: 18_000_000}}}}

// T26: tiers of long prompts were ignored, for cache writes too, and in the reservation.
func TestT26(t *testing.T) {
	t.Parallel()
	p := onePolicy()
	p.Providers[0].Models[0].Prices = []Price{longContext}
	for i, c := range []struct {
		usage Usage
		want  Nanos
	}{
		{Usage{Input: 200_000}, usd(400_000)},
		{Usage{Input: 200_001}, 800_004_000},
		{Usage{Input: 250_000}, usd(1_000_000)},
		{Usage{Input: 245_000, CacheWrite: 5000}, usd(980_000) + usd(37_500)},
	} {
		if got := longContext.Cost(c.usage); got != c.want {
			t.Errorf("%+v costs %d, want %d", c.usage, got, c.want)
		}
		k := openDesk(t, p)
		hold := k.do(t, at(Hour), &Request{Lease: leaseID(i), Input: c.usage.InputTotal(), Output: 0, Priority: ClassPriority}).Answer.Lease.Nanos
		if want := longContext.Cost(Usage{Input: c.usage.InputTotal()}); hold != want {
			t.Errorf("%+v: hold %d, want the same tier: %d", c.usage, hold, want)
		}
		if got := k.do(t, at(Hour), &Commit{Lease: leaseID(i), HasUsage: true, Usage: c.usage}); got.Answer.Nanos != c.want {
			t.Errorf("%+v: committed %v", c.usage, got)
		}
	}
}

// T28: an unknown model was priced at 0.
func TestT28(t *testing.T) {
	t.Parallel()
	p := onePolicy()
	p.Global.Nanos = usd(10_000_000)
	p.Providers[0].Models[0].Name = "claude-opus-4-1"
	free := p.Providers[0].Models[0]
	free.Name, free.Prices = "free", []Price{{}}
	undated := free
	undated.Name, undated.Prices = "undated", nil
	p.Providers[0].Models = append(p.Providers[0].Models, free, undated)
	ask := func(n int, model string) *Request {
		r := requestOf(n)
		r.Model = model
		return r
	}
	k := openDesk(t, p)
	for n, model := range []string{"claude-opus-4.1", "undated"} {
		got := k.do(t, at(Hour), ask(n, model))
		if a := got.Answer; a.Status != Denied || a.Check.Reason != ReasonUnpricedModel || a.Check.Scope != model {
			t.Errorf("%s: %v", model, got)
		}
	}
	if got := k.do(t, at(Hour), ask(2, "free")); got.Answer.Status != Granted || got.Answer.Lease.Nanos != 0 {
		t.Errorf("a model that is priced 0: %v", got)
	}
	p.FallbackPrice = &Rates{Input: 15_000_000, Output: 75_000_000}
	k.reload(t, Hour, p)
	for n, model := range []string{"claude-opus-4.1", "undated"} {
		got := k.do(t, at(Hour), ask(10+n, model))
		if a := got.Answer; a.Status != Granted || a.Lease.Nanos != usd(1500)+usd(3750) || a.Lease.Model != model {
			t.Errorf("%s with a fallback price: %v", model, got)
		}
		if again := k.do(t, at(Hour), ask(10+n, model)); again.Answer.Lease != got.Answer.Lease {
			t.Errorf("%s again: %v", model, again)
		}
		if got = k.do(t, at(Hour), &Commit{Lease: leaseID(10 + n), HasUsage: true, Usage: Usage{Input: 100, Output: 10}}); got.Answer.Nanos != usd(1500)+usd(750) {
			t.Errorf("%s committed: %v", model, got)
		}
	}
}

// T31: RPM and TPM shared one marker; a limit of 500,000 throttled at 300,000 and stayed shut for minutes.
func TestT31(t *testing.T) {
	t.Parallel()
	p := onePolicy()
	p.Providers[0].Ceilings = Ceilings{RPM: 500, TPM: 500_000}
	k := openDesk(t, p)
	now, n := Hour, 0
	for ; now < Hour+5*Minute; now += 250 * Millisecond {
		n++
		if got := k.do(t, at(now), tokensOf(n, 2000)); got.Answer.Status != Granted {
			t.Fatalf("after %d ms at 8,000 tokens/s: %v", (now-Hour)/Millisecond, got)
		}
	}
	p.Providers[0].Burst = Whole
	k.reload(t, now, p)
	var total int64
	for ; ; n++ {
		if got := k.do(t, at(now), tokensOf(n+1, 2000)); got.Answer.Status != Granted {
			if a := got.Answer; a.Check.Reason != ReasonTPM || a.Check.Used+2000 <= 500_000 || a.RetryAfter > Minute+p.Guard {
				t.Errorf("first deferral: %v", got)
			}
			total, _ = used(t, k.w, "openai", "", DimTPM)
			break
		}
	}
	if total < 498_000 {
		t.Errorf("deferred at %d of 500,000", total)
	}
	// RPM is nowhere near: its window goes its own way.
	rpm, _ := used(t, k.w, "openai", "", DimRPM)
	if rpm >= 300 {
		t.Errorf("%d requests", rpm)
	}
	if got := k.do(t, at(now+Minute+p.Guard), tokensOf(n+2, 2000)); got.Answer.Status != Granted {
		t.Errorf("60 s + guard later: %v", got)
	}
}

// T32: a TPM-only rule was never enforced because the increment before the call was 0.
func TestT32(t *testing.T) {
	t.Parallel()
	p := onePolicy()
	p.Providers[0].Ceilings = Ceilings{TPM: 1000, Burst: Whole}
	k := openDesk(t, p)
	k.grant(t, Hour, tokensOf(1, 1000))
	if got := k.do(t, at(Hour+Second), tokensOf(2, 0)); got.Answer.Status != Deferred || got.Answer.Check.Reason != ReasonTPM {
		t.Errorf("estimate 0 on a full window: %v", got)
	}
	p = onePolicy()
	p.Global.Tokens = 150
	k = openDesk(t, p)
	k.grant(t, Hour, requestOf(1))
	k.do(t, at(Hour), &Commit{Lease: leaseID(1), HasActual: true, Actual: 150})
	if got := k.do(t, at(Hour+Second), tokensOf(2, 0)); got.Answer.Status != Denied || got.Answer.Check.Reason != ReasonBudget {
		t.Errorf("estimate 0 on a spent budget: %v", got)
	}
}

// T34: slots leaked on provider timeouts and on a clean-up that was cancelled.
func TestT34(t *testing.T) {
	t.Parallel()
	p := onePolicy()
	p.Providers[0].MaxConcurrent = 10
	k := openDesk(t, p)
	for n := range 10 {
		k.grant(t, Hour+int64(n)*Second, requestOf(n))
	}
	for n := range 10 { // the releases fail twice: they never arrive
		k.attempt(t, &batch{t: at(Hour + 10*Second), commands: []Command{&Release{Lease: leaseID(n), Outcome: OutcomeTimeout}}})
		k.w.Rollback()
	}
	now := Hour + 10*Second
	for ; now < Hour+39*Second; now += Second {
		got := k.do(t, at(now), requestOf(100)) // new traffic must not refresh what leaked
		_, running := used(t, k.w, "openai", "", DimSlots)
		if now < Hour+30*Second && (got.Answer.Status != Deferred || got.Answer.Check.Reason != ReasonSlots || running != 10) {
			t.Fatalf("after %d s: %v, %d slots", (now-Hour)/Second, got, running)
		}
		if got.Answer.Status == Granted {
			k.do(t, at(now), &Release{Lease: leaseID(100), Outcome: OutcomeCancelled})
			k.grant(t, now, requestOf(200))
			k.do(t, at(now), &Commit{Lease: leaseID(200), HasActual: true, Actual: 1, Outcome: OutcomeError})
		}
	}
	k.run(t, &batch{t: at(Hour + 39*Second)})
	if _, running := used(t, k.w, "openai", "", DimSlots); running != 0 {
		t.Errorf("%d slots are taken a TTL after the last call", running)
	}
}

// T48: a reset during a call drove the counter negative or counted a day in two months.
func TestT48(t *testing.T) {
	t.Parallel()
	const midnight = 24 * Hour
	p := onePolicy()
	p.Global.Nanos = usd(1_000_000)
	k := openDesk(t, p)
	k.grant(t, midnight-10*Second, &Request{Lease: leaseID(1), Output: 30_000, Priority: ClassPriority}) // $0.30 at 23:59:50
	k.do(t, at(midnight), &Roll{Next: day(at(midnight).Wall)})
	if e := k.w.Events(); len(e) != 1 || e[0].Kind != EventPeriodClosed || e[0].Period != 1 {
		t.Errorf("events: %+v", e)
	}
	if g := global(k.w, UnitNanos); g.Held != 0 || g.Spent != 0 || g.Period != 2 {
		t.Errorf("May at its start: %+v", g)
	}
	for range 2 {
		if got := k.do(t, at(midnight+10*Second), &Commit{Lease: leaseID(1), HasActual: true, Actual: 25_000}); got.Answer.Nanos != usd(250_000) {
			t.Errorf("commit: %v", got)
		}
	}
	april, may := k.w.BudgetRows(1)[1], k.w.BudgetRows(2)[1]
	if april.Spent != int64(usd(250_000)) || april.Held != 0 || may.Spent != 0 || may.Held != 0 {
		t.Errorf("April %+v\nMay %+v", april, may)
	}
	k.do(t, at(midnight+Minute), &Roll{Next: day(at(midnight).Wall)}) // not due: nothing happens
	k.do(t, at(midnight+Minute), &Tick{})
	if n := len(k.w.Periods()); n != 2 {
		t.Errorf("%d periods while a lease of April is remembered", n)
	}
	k.do(t, at(midnight+2*Hour), &Tick{})
	e := k.w.Events()
	if last := e[len(e)-1]; last.Kind != EventPeriodFinal || last.Period != 1 || last.Nanos != usd(250_000) || len(k.w.Periods()) != 1 {
		t.Errorf("final: %+v, %v", last, k.w.Periods())
	}
}

// TestT30 is the configuration's; here: what such a price does is bounded, never wrapped.
func TestT30(t *testing.T) {
	t.Parallel()
	p := Price{Rates: Rates{Input: 8_000_000_000_000}} // 8 $ a token
	if got, want := p.Cost(Usage{Input: 1_000_000}), Nanos(8_000_000_000_000_000); got != want {
		t.Errorf("a million tokens cost %d, want %d", got, want)
	}
	if got := p.Cost(Usage{Input: 2_000_000_000}); got != MaxAmount {
		t.Errorf("two billion cost %d, want it held at the bound", got)
	}
}
