package arbiter

import "testing"

// What a policy reload does to windows, slots and holds of leases that run.

// used is what a rung's ceiling counts and holds.
func used(tb failer, s *State, provider, model string, dim Dim) (sum, held int64) {
	tb.Helper()
	for _, r := range s.RungRows() {
		for _, g := range r.Gauges {
			if r.Provider == provider && r.Model == model && g.Dim == dim {
				return g.Used, g.Held
			}
		}
	}
	tb.Fatalf("no %s ceiling at %s/%s", dim, provider, model)
	return 0, 0
}

func (k *desk) reload(tb failer, now int64, p *Policy) {
	tb.Helper()
	p.Version++
	if r := k.do(tb, at(now), p.adopt(tb, Period{})); r.Err != nil || r.Facts == 0 {
		tb.Fatalf("reload: %v", r)
	}
}

func (k *desk) grant(tb failer, now int64, r *Request) LeaseID {
	tb.Helper()
	if got := k.do(tb, at(now), r); got.Err != nil || got.Answer.Status != Granted {
		tb.Fatalf("request: %v", got)
	}
	return r.Lease
}

// TestReloadAddsCeiling: a lease from before the ceiling never charged it, so its end takes nothing from it.
func TestReloadAddsCeiling(t *testing.T) {
	t.Parallel()
	for _, generated := range []bool{false, true} {
		p := onePolicy()
		p.Lease.StartBy = 2 * Second
		k := openDesk(t, p)
		before := k.grant(t, Hour, requestOf(1))
		p.Providers[0].Ceilings = Ceilings{RPM: 100, TPM: 10_000, Generated: generated}
		k.reload(t, Hour, p)
		k.grant(t, Hour, requestOf(2)) // in the same bucket
		k.do(t, at(Hour), &Release{Lease: before, Outcome: OutcomeNotSent})
		if n, _ := used(t, k.w, "openai", "", DimRPM); n != 1 {
			t.Errorf("generated %v: rpm counts %d, want 1", generated, n)
		}
		if n, held := used(t, k.w, "openai", "", DimTPM); n+held != 150 {
			t.Errorf("generated %v: tpm counts %d and holds %d, want 150 in all", generated, n, held)
		}
	}
}

// TestReloadJoinsLimitGroup: what a lease charged on its own model's ceiling is not taken from the group that the model joins.
func TestReloadJoinsLimitGroup(t *testing.T) {
	t.Parallel()
	p := onePolicy()
	p.Lease.StartBy = 2 * Second
	own := Model{Limit: NoLimit, Ceilings: Ceilings{RPM: 10}, Prices: p.Providers[0].Models[0].Prices}
	a, b := own, own
	a.Name, a.LimitGroup, b.Name = "a", "g", "b"
	p.Providers[0].Models = []Model{a, b}
	k := openDesk(t, p)
	onB := requestOf(1)
	onB.Model = "b"
	k.grant(t, Hour, onB)
	p.Providers[0].Models[1].LimitGroup = "g"
	k.reload(t, Hour, p)
	onA := requestOf(2)
	onA.Model = "a"
	k.grant(t, Hour, onA)
	k.do(t, at(Hour), &Release{Lease: onB.Lease, Outcome: OutcomeNotSent})
	if n, _ := used(t, k.w, "openai", "b", DimRPM); n != 1 {
		t.Errorf("the group counts %d, want 1", n)
	}
}

// TestReloadDropsModel: leases of a dropped rung settle, keep their provider's slots and give back what they hold.
func TestReloadDropsModel(t *testing.T) {
	t.Parallel()
	p := onePolicy()
	p.Providers[0].Ceilings = Ceilings{TPM: 1000, MaxConcurrent: 2, Burst: Whole, Generated: true}
	first := p.Providers[0].Models[0]
	first.Name = "old"
	second := first
	second.Name = "new"
	p.Providers[0].Models = []Model{second, first}
	k := openDesk(t, p)
	onOld := requestOf(1)
	onOld.Model = "old"
	k.grant(t, Hour, onOld)
	p.Providers[0].Models = []Model{second}
	k.reload(t, Hour, p)
	if _, held := used(t, k.w, "openai", "new", DimSlots); held != 1 {
		t.Errorf("%d slots are taken, the call on the dropped model runs", held)
	}
	k.grant(t, Hour, requestOf(2))
	if r := k.do(t, at(Hour), requestOf(3)); r.Answer.Check.Reason != ReasonSlots {
		t.Errorf("third call: %v, want it to wait for a slot", r)
	}
	if r := k.do(t, at(Hour), &Commit{Lease: onOld.Lease, HasActual: true, Actual: 150}); r.Answer.Result != Recorded || r.Answer.Nanos == 0 {
		t.Errorf("commit on a dropped model: %v", r)
	}
	if sum, held := used(t, k.w, "openai", "new", DimTPM); held != 150 || sum != 0 {
		t.Errorf("tpm counts %d and holds %d, want the running call alone", sum, held)
	}
	p.Providers = []Provider{{Name: "other", Limit: NoLimit, Models: []Model{second}}}
	k.reload(t, Hour, p)
	k.do(t, at(2*Hour), &Tick{}) // the rest ends by itself
	if c := k.w.Counts(); c.Running() != 0 {
		t.Errorf("%d leases run", c.Running())
	}
}

// TestDayRolls: a refund of yesterday's call leaves today's counter alone.
func TestDayRolls(t *testing.T) {
	t.Parallel()
	p := onePolicy()
	p.Providers[0].RPD = 2
	k := openDesk(t, p)
	k.do(t, at(Hour), &Roll{Provider: "openai", Next: day(at(Hour).Wall)})
	k.grant(t, Hour+Second, requestOf(1))
	k.grant(t, Hour+Second, requestOf(2))
	r := k.do(t, at(Hour+Second), requestOf(3))
	if r.Answer.Status != Deferred || r.Answer.Check.Reason != ReasonRPD || r.Answer.RetryAfter != 24*Hour-Hour-Second {
		t.Errorf("third call of the day: %v", r)
	}
	k.do(t, at(Hour+2*Second), &Release{Lease: leaseID(2), Outcome: OutcomeNotSent})
	if n, _ := used(t, k.w, "openai", "", DimRPD); n != 1 {
		t.Errorf("%d calls today, one was never sent", n)
	}
	midnight := 24 * Hour
	if due := k.w.Due(at(midnight).Wall, nil); len(due) != 2 || due[1].Provider != "openai" {
		t.Errorf("due at midnight: %+v", due)
	}
	k.grant(t, midnight-Second, requestOf(4))
	k.do(t, at(midnight), &Roll{Provider: "openai", Next: day(at(midnight).Wall)})
	k.do(t, at(midnight), &Roll{Provider: "openai", Next: day(at(midnight).Wall)}) // once is enough
	k.grant(t, midnight+Second, requestOf(5))
	k.do(t, at(midnight+2*Second), &Release{Lease: leaseID(4), Outcome: OutcomeNotSent})
	if n, _ := used(t, k.w, "openai", "", DimRPD); n != 1 {
		t.Errorf("%d calls on the new day, want 1", n)
	}
}

// TestReloadKeepsCommitBy: a bill counts as long as the token of its grant says, whatever commit_by is by then, and however the
// lease ended.
func TestReloadKeepsCommitBy(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		deferred bool
		expiry   ExpiryRule
		end      Command
	}{
		{"begun", false, ExpiryReturn, nil},
		{"assumed", false, ExpiryAssume, nil},
		{"never begun", true, ExpiryReturn, nil},
		{"released", false, ExpiryReturn, &Release{Lease: leaseID(1)}},
		{"released late", false, ExpiryAssume, nil},
		{"revoked", true, ExpiryReturn, &Revoke{Lease: leaseID(1)}},
		{"extended", false, ExpiryReturn, &Extend{Lease: leaseID(1), Arrival: Hour + Second}},
	} {
		p := onePolicy()
		p.Lease.OnExpiry, p.Lease.StartBy = c.expiry, 2*Second
		k := openDesk(t, p)
		r := requestOf(1)
		r.Deferred = c.deferred
		promised := k.do(t, at(Hour), r).Answer.Lease.CommitBy
		p.Lease.CommitBy, p.Lease.Grace, p.Lease.Forget = Minute, Minute, Minute
		k.reload(t, Hour+Second, p)
		if c.end != nil {
			k.do(t, at(Hour+Second), c.end)
		}
		if c.name == "released late" {
			k.do(t, at(Hour+40*Second), &Release{Lease: leaseID(1)})
		}
		for now := Hour + Minute; now < promised; now += 7 * Minute {
			k.run(t, &batch{t: at(now)})
		}
		got := k.do(t, at(promised-1), &Commit{Lease: leaseID(1), HasActual: true, Actual: 60, Token: &Claims{Lease: leaseID(1), Epoch: 1, CommitBy: promised}})
		if g := k.w.BudgetRows(0)[0]; got.Answer.Result != Recorded || g.Spent != 60 {
			t.Errorf("%s: a bill just before commit_by: %v, spent %d", c.name, got, g.Spent)
		}
	}
}
