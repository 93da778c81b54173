package arbiter

import "testing"

// TestExtendReserved: a call that has not begun may wait at most 4 × TTL in all, each time by one start_by; its window entry goes
// along, so that the call that begins at last is counted for 60 s from then on.
func TestExtendReserved(t *testing.T) {
	t.Parallel()
	p := onePolicy()
	p.Lease.TTL, p.Lease.StartBy = 3*Second, 2*Second
	p.Providers[0].Ceilings = Ceilings{RPM: 1, Burst: Whole}
	k := openDesk(t, p)
	r := requestOf(1)
	r.Deferred = true
	k.grant(t, Hour, r)
	var now int64
	end := Hour + 2*Second
	for range 20 {
		now = end
		got := k.do(t, at(now), &Extend{Lease: r.Lease, Arrival: now})
		if got.Err != nil {
			t.Fatalf("at %d ms: %v", (now-Hour)/Millisecond, got.Err)
		}
		if got.Answer.Lease.StartBy != got.Answer.Lease.Deadline {
			t.Fatalf("may start by %d, ends at %d", got.Answer.Lease.StartBy, got.Answer.Lease.Deadline)
		}
		if end = got.Answer.Lease.Deadline; end == now {
			break
		}
	}
	if end != Hour+12*Second {
		t.Errorf("extended to %d ms, want 4 × TTL", (end-Hour)/Millisecond)
	}

	k = openDesk(t, p)
	k.grant(t, Hour, r)
	for now = Hour; now < Hour+10*Second; now += Second {
		k.do(t, at(now), &Extend{Lease: r.Lease, Arrival: now})
	}
	if got := k.do(t, at(now), &Signal{Lease: r.Lease, Activate: true}); got.Err != nil {
		t.Fatal(got.Err)
	}
	if got := k.do(t, at(now+Minute), requestOf(2)); got.Answer.Status != Deferred {
		t.Errorf("60 s after the call began: %v, want DEFERRED", got)
	}
	if got := k.do(t, at(now+Minute+Second), requestOf(2)); got.Answer.Status != Granted {
		t.Errorf("61 s after the call began: %v, want GRANTED", got)
	}
}

// TestExtendActive: no cap while the holder lives, unless the policy has one; never shorter; an arrival after the end is too late.
func TestExtendActive(t *testing.T) {
	t.Parallel()
	for _, most := range []int64{0, 2 * Minute} {
		p := onePolicy()
		p.Lease.Max = most
		k := openDesk(t, p)
		r := requestOf(1)
		k.grant(t, Hour, r)
		for now := Hour + 10*Second; now < Hour+10*Minute; now += 10 * Second {
			got := k.do(t, at(now), &Extend{Lease: r.Lease, Arrival: now})
			if over := most > 0 && now > Hour+most; (got.Err != nil) != over {
				t.Fatalf("max %d s, after %d s: %v", most/Second, (now-Hour)/Second, got)
			}
			want := now + 30*Second
			if most > 0 {
				want = min(want, Hour+most)
			}
			if got.Err == nil && got.Answer.Lease.Deadline != want {
				t.Fatalf("max %d s, after %d s: ends at %d, want %d", most/Second, (now-Hour)/Second, got.Answer.Lease.Deadline, want)
			}
		}
	}
	k := openDesk(t, onePolicy())
	r := requestOf(1)
	k.grant(t, Hour, r)
	for _, x := range []struct{ arrival, end int64 }{{20 * Second, 50 * Second}, {5 * Second, 50 * Second}, {50 * Second, 80 * Second}} {
		got := k.do(t, at(Hour+x.arrival), &Extend{Lease: r.Lease, Arrival: Hour + x.arrival})
		if got.Err != nil || got.Answer.Lease.Deadline != Hour+x.end {
			t.Errorf("arrival at %d s: %v, want an end at %d s", x.arrival/Second, got, x.end/Second)
		}
	}
	if got := k.do(t, at(Hour+81*Second), &Extend{Lease: r.Lease, Arrival: Hour + 81*Second}); got.Err == nil || got.Err.Reason != "lease_expired" {
		t.Errorf("after the end: %v", got)
	}
}

// TestRevokeTree tells a lease and all that came of it to stop, whatever parents callers claimed.
func TestRevokeTree(t *testing.T) {
	t.Parallel()
	k := openDesk(t, onePolicy())
	for n, parent := range map[int]int{1: 4, 2: 1, 3: 2, 4: 3, 5: 9} { // 1 to 4 form a ring
		r := requestOf(n)
		r.Parent = leaseID(parent)
		k.grant(t, Hour, r)
	}
	if got := k.do(t, at(Hour), &Revoke{Lease: leaseID(2)}); got.Answer.Revoked != 1 {
		t.Errorf("one lease: %v", got)
	}
	if got := k.do(t, at(Hour), &Revoke{Lease: leaseID(1), Tree: true}); got.Answer.Revoked != 3 {
		t.Errorf("tree: %v, want the three others of the ring", got)
	}
	if l, _ := k.w.Lease(leaseID(5)); l.Phase != Active {
		t.Errorf("a stranger is %s", l.Phase)
	}
	if got := k.do(t, at(Hour), &Revoke{Lease: leaseID(77)}); got.Err == nil || got.Err.Code != CodeNotFound {
		t.Errorf("unknown: %v", got)
	}
}

// TestTokenBringsBackOnce: a lost lease is charged once however often its token comes, over the forgetting horizon and up to commit_by.
func TestTokenBringsBackOnce(t *testing.T) {
	t.Parallel()
	p := onePolicy()
	p.Lease.Forget = Second
	k := openDesk(t, p)
	token := &Claims{Lease: leaseID(1), Agent: "a", Class: DefaultClass, Provider: "openai", Input: 100, Output: 50, Nanos: 700_000, Epoch: 9, CommitBy: 2 * Hour}
	for now := Hour; now < 2*Hour; now += 7 * Minute {
		k.do(t, at(now), &Commit{Lease: leaseID(1), HasActual: true, Actual: 60, Token: token})
		if g := k.w.BudgetRows(0)[0]; g.Spent != 60 {
			t.Fatalf("at %d min: spent %d, want 60 once", now/Minute, g.Spent)
		}
	}
	for i, now := range []int64{2 * Hour, 2*Hour + Minute} {
		got := k.do(t, at(now), &Commit{Lease: leaseID(1), HasActual: true, Actual: 60, Token: token})
		if want := [...]Result{AlreadyRecorded, TooOld}[i]; got.Answer.Result != want && got.Answer.Result != TooOld {
			t.Errorf("at %d min: %v", now/Minute, got)
		}
		if g := k.w.BudgetRows(0)[0]; g.Spent != 60 {
			t.Errorf("at %d min: spent %d", now/Minute, g.Spent)
		}
	}
	// Brought back by a release, then billed: the bill is remembered as long as the token is good.
	k = openDesk(t, p)
	k.do(t, at(Hour), &Release{Lease: leaseID(1), Token: token})
	for now := Hour; now < 2*Hour; now += 7 * Minute {
		k.do(t, at(now), &Commit{Lease: leaseID(1), HasActual: true, Actual: 60, Token: token})
		if g := k.w.BudgetRows(0)[0]; g.Spent != 60 {
			t.Fatalf("released, then billed: at %d min spent %d, want 60 once", now/Minute, g.Spent)
		}
	}
	foreign := *token
	foreign.Lease = leaseID(2)
	for _, c := range []*Commit{
		{Lease: leaseID(3), Token: &foreign}, {Lease: leaseID(2), Principal: 5, Token: &foreign}, {Lease: leaseID(2)},
	} {
		if got := k.do(t, at(Hour), c); got.Answer.Result != UnknownLease || got.Facts != 0 {
			t.Errorf("another's token: %v", got)
		}
	}
}

// TestReleasedIsKnownUntilCommitBy: a bill that comes after an early release counts up to the time the token promises.
func TestReleasedIsKnownUntilCommitBy(t *testing.T) {
	t.Parallel()
	k := openDesk(t, onePolicy())
	granted := k.do(t, at(Hour), requestOf(1)).Answer.Lease
	k.do(t, at(Hour+Second), &Release{Lease: granted.Lease})
	got := k.do(t, at(granted.CommitBy-1), &Commit{Lease: granted.Lease, HasActual: true, Actual: 60})
	if got.Answer.Result != Recorded || got.Answer.Flags != FlagAfterRelease {
		t.Errorf("a bill just before commit_by: %v", got)
	}
}

// TestEndsAreBounded: one step of time ends at most 4,096 leases; the rest stay counted, and a reserved one among them is too late to begin.
func TestEndsAreBounded(t *testing.T) {
	t.Parallel()
	p := onePolicy()
	p.Lease.StartBy = 2 * Second
	k := openDesk(t, p)
	const leases = maxEnds + 10
	b := &batch{t: at(Hour)}
	for n := range leases {
		r := requestOf(n)
		r.Deferred = true
		b.commands = append(b.commands, r)
	}
	k.run(t, b)
	k.w.ClearEvents()
	now := Hour + 3*Second
	late, left := LeaseID{}, 0
	k.run(t, &batch{t: at(now)})
	for n := range leases {
		if l, _ := k.w.Lease(leaseID(n)); l.Phase == Reserved {
			late, left = leaseID(n), left+1
		}
	}
	if left != leases-maxEnds || global(k.w, UnitTokens).Held != int64(left)*150 {
		t.Fatalf("%d leases are left, %d tokens held", left, global(k.w, UnitTokens).Held)
	}
	if end, ok := k.w.NextEnd(); !ok || end > now {
		t.Errorf("the next end is at %d, %v: there is more to do at once", end, ok)
	}
	if err := k.w.Decide(&Signal{Lease: late, Activate: true}, &k.d); err == nil || err.Reason != "lease_expired" || len(k.d.Facts) != 0 {
		t.Errorf("activation after start_by: %v", err)
	}
	k.run(t, &batch{t: at(Hour)}) // time does not go back
	if k.w.Now() != now {
		t.Errorf("time went back to %d", k.w.Now())
	}
	if g := global(k.w, UnitTokens); g.Held != 0 || len(k.w.Events()) != leases {
		t.Errorf("%d held, %d ended", g.Held, len(k.w.Events()))
	}
}

// TestRevokeTreeInParts: a tree of any size is revoked, so many at a time, and in one walk over the table however deep it is.
func TestRevokeTreeInParts(t *testing.T) {
	t.Parallel()
	const n = 3000
	k := newDesk("pool")
	k.do(t, at(Hour), onePolicy().adopt(t, day(at(Hour).Wall)))
	var b batch
	b.t = at(Hour)
	for i := n; i > 0; i-- { // children before their parents, 1,000 deep
		r := requestOf(i)
		if i > 3 {
			r.Parent = leaseID(i - 3)
		}
		if i == 2 || i == 3 {
			r.Parent = leaseID(1)
		}
		b.commands = append(b.commands, r)
	}
	b.commands = append(b.commands, requestOf(n+1))
	k.run(t, &b)
	total, parts := 0, 0
	for more := true; more; parts++ {
		got := k.do(t, at(Hour+Second), &Revoke{Lease: leaseID(1), Tree: true})
		if got.Err != nil || got.Answer.Revoked > 1024 || got.Facts != got.Answer.Revoked {
			t.Fatalf("part %d: %v", parts, got)
		}
		bytes := 0
		for _, p := range k.log[len(k.log)-1].payloads {
			bytes += len(p)
		}
		if bytes > 100_000 {
			t.Errorf("part %d takes %d bytes of an entry", parts, bytes)
		}
		total, more = total+got.Answer.Revoked, got.Answer.More
	}
	if c := k.w.Counts(); total != n || parts != 3 || c.Phases[Active] != 1 {
		t.Errorf("%d revoked in %d parts, %d still active; want %d in 3, and the stranger", total, parts, c.Phases[Active], n)
	}
	if got := k.do(t, at(Hour+Second), &Revoke{Lease: leaseID(1), Tree: true}); got.Answer.Revoked != 0 || got.Answer.More {
		t.Errorf("once more: %v", got)
	}
}

// TestDeferredStartWithoutStartBy: where calls start at once, one that says it will start later still gets its 2 s, and more by extension.
func TestDeferredStartWithoutStartBy(t *testing.T) {
	t.Parallel()
	p := onePolicy() // start_by 0
	p.Providers[0].Ceilings = Ceilings{RPM: 1, Burst: Whole}
	k := openDesk(t, p)
	r := requestOf(1)
	r.Deferred, r.NoStartDelay = true, true
	got := k.do(t, at(Hour), r).Answer.Lease
	if got.StartBy != Hour+2*Second || got.Deadline != got.StartBy {
		t.Fatalf("starts by %d ms, ends at %d ms", (got.StartBy-Hour)/Millisecond, (got.Deadline-Hour)/Millisecond)
	}
	k.do(t, at(Hour+Second), &Extend{Lease: r.Lease, Arrival: Hour + Second})
	if got := k.do(t, at(Hour+2500*Millisecond), &Signal{Lease: r.Lease, Activate: true}); got.Err != nil || got.Answer.Lease.Phase != Active {
		t.Fatalf("activate: %v", got)
	}
	if got := k.do(t, at(Hour+62*Second), requestOf(2)); got.Answer.Status != Deferred {
		t.Errorf("less than 60 s after it began: %v", got)
	}
}

// TestLateBillCountsOnce: a commit after commit_by that is sent again adds nothing to the unattributed spend, over a snapshot too.
func TestLateBillCountsOnce(t *testing.T) {
	t.Parallel()
	k := openDesk(t, onePolicy())
	late := func(k *desk, n int) reply {
		token := &Claims{Lease: leaseID(n), Agent: "a", Provider: "openai", Input: 100, Output: 50, Nanos: 700_000, Epoch: 1, CommitBy: Minute}
		return k.do(t, at(Hour), &Commit{Lease: leaseID(n), HasActual: true, Actual: 60, Token: token})
	}
	count := func(s *State) [2]int64 {
		c := s.Counts()
		return [2]int64{c.UnattributedCalls, int64(c.UnattributedTokens)}
	}
	for range 3 {
		for n := range 5 {
			if got := late(k, n); got.Answer.Result != TooOld || got.Answer.Tokens != 60 {
				t.Fatalf("bill %d: %v", n, got)
			}
		}
	}
	if got := count(k.w); got != [2]int64{5, 300} {
		t.Errorf("calls and tokens %v, want 5 of 60 each", got)
	}
	w, err := DecodeState(k.w.AppendTo(nil))
	if err != nil {
		t.Fatal(err)
	}
	f, err := DecodeState(k.w.AppendTo(nil))
	if err != nil {
		t.Fatal(err)
	}
	k = &desk{w: w, f: f}
	late(k, 4)
	if got := count(k.w); got != [2]int64{5, 300} {
		t.Errorf("after a snapshot: %v", got)
	}
	for n := 5; n < rememberedLate+5; n++ {
		late(k, n)
	}
	late(k, 4) // remembered for a while only
	if got := count(k.w); got[0] != rememberedLate+6 {
		t.Errorf("at last %v", got)
	}
}
