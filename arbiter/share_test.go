package arbiter

import (
	"bytes"
	"sync"
	"testing"
)

// threeClasses has a 0.4, b 0.4 and the class default, which has no share.
func threeClasses() *Policy {
	p := onePolicy()
	p.Classes = append(p.Classes, Class{Name: "a", Share: Whole * 4 / 10, Priority: Medium, Limit: NoLimit}, Class{Name: "b", Share: Whole * 4 / 10, Priority: Medium, Limit: NoLimit})
	return p
}

func classRequest(n int, class string, tokens Tokens) *Request {
	r := tokensOf(n, tokens)
	r.Class = class
	r.Fingerprint = r.Sum()
	return r
}

// TestClassRoom is the table of shares on a period budget of 1,000: own share, what nobody has, what others left idle so far.
func TestClassRoom(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name              string
		elapsed           int64 // of the day
		usedA, usedB      Tokens
		roomA, roomB, def int64
	}{
		{"start of the period", 0, 0, 0, 600, 600, 200},
		{"half gone, b used 50: the worked example", 12 * Hour, 0, 50, 750, 800, 550},
		{"a used its own share", 0, 400, 0, 600, 600, 200},
		{"a took what nobody has: first come", 0, 600, 0, 600, 400, 0},
		{"both used their share", 12 * Hour, 400, 400, 600, 600, 200},
		{"end of the period: nothing is kept for the idle", 24*Hour - 1, 0, 0, 999, 999, 998},
		{"over everything by a late bill", 12 * Hour, 900, 0, 600 + 200 - 0, 400, 200},
	} {
		p := threeClasses()
		p.Global.Tokens = 1000
		k := openDesk(t, p)
		k.w.Advance(at(day(at(Hour).Wall).Start - wallBase + 24*Hour)) // a day that is whole
		k.do(t, Time{k.w.Now(), k.w.Wall()}, &Roll{Next: day(k.w.Wall())})
		now := k.w.Now()
		for class, used := range map[string]Tokens{"a": c.usedA, "b": c.usedB} {
			n := int(class[0])
			k.grant(t, now, classRequest(n, class, 1))
			k.do(t, at(now), &Commit{Lease: leaseID(n), HasActual: true, Actual: used})
		}
		k.run(t, &batch{t: at(now + c.elapsed)})
		k.w.Advance(at(now + c.elapsed))
		for _, r := range k.w.ClassRows() {
			want := map[string]int64{"a": c.roomA, "b": c.roomB, DefaultClass: c.def}[r.Name]
			if r.Allowed != want {
				t.Errorf("%s: %s may use %d, want %d", c.name, r.Name, r.Allowed, want)
			}
		}
	}
}

// TestClassShareWait: above its part a class is deferred, never denied, and comes back when it was told.
func TestClassShareWait(t *testing.T) {
	t.Parallel()
	p := threeClasses()
	p.Global.Tokens = 1000
	k := openDesk(t, p)
	now := Hour
	k.grant(t, now, classRequest(1, "a", 616)) // 400 + 200 + an hour of b's 400
	got := k.do(t, at(now), classRequest(2, "a", 100))
	if got.Answer.Status != Deferred || got.Answer.Check.Reason != ReasonClass {
		t.Fatalf("above its part: %v", got)
	}
	if again := k.do(t, at(now+got.Answer.RetryAfter), classRequest(2, "a", 100)); again.Answer.Status != Granted {
		t.Errorf("when it was told: %v", again)
	}
	// Without classes the rule is off.
	p = onePolicy()
	p.Global.Tokens = 1000
	k = openDesk(t, p)
	k.grant(t, Hour, tokensOf(1, 1000))
}

// TestClassRank: below their guarantee by how much of it they used, then the borrowers by virtual time; on windows and on slots.
func TestClassRank(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]Ceilings{
		"requests": {RPM: 100, Burst: Whole}, "tokens": {TPM: 10_000, Burst: Whole}, "slots": {MaxConcurrent: 100},
	} {
		for _, onModel := range []bool{false, true} {
			p := threeClasses()
			p.Providers[0].Ceilings = c
			if onModel {
				p.Providers[0].Ceilings, p.Providers[0].Models[0].Ceilings = Ceilings{}, c
			}
			k := openDesk(t, p)
			n := 0
			grant := func(class string, times int) {
				for range times {
					n++
					k.grant(t, Hour, classRequest(n, class, 100))
				}
			}
			rank := func(class string) int64 { return k.w.ClassRank(class, Medium) }
			if rank("a") != 0 || rank("b") != 0 {
				t.Errorf("%s: nobody used anything: %d, %d", name, rank("a"), rank("b"))
			}
			grant("a", 10)
			if rank("a") != 250_000 || rank("b") != 0 {
				t.Errorf("%s: a used a quarter of its 40: %d, %d", name, rank("a"), rank("b"))
			}
			if r := rank(DefaultClass); r < int64(Whole) {
				t.Errorf("%s: a class without a share ranks %d", name, r)
			}
			grant("a", 30)
			grant("b", 39)
			if rank("b") >= int64(Whole) || rank("a") < int64(Whole) {
				t.Errorf("%s: a at its guarantee ranks %d, b below ranks %d", name, rank("a"), rank("b"))
			}
			grant("b", 1)
			grant(DefaultClass, 1)
			if ra, rb := rank("a"), rank("b"); ra < int64(Whole) || rb < int64(Whole) || rank(DefaultClass) <= max(ra, rb) {
				t.Errorf("%s: borrowers by virtual time: a %d, b %d, default %d", name, ra, rb, rank(DefaultClass))
			}
			if rank("nobody") != never {
				t.Errorf("%s: an unknown class ranks %d", name, rank("nobody"))
			}
		}
	}
}

// TestIdleClassSavesNothing: a class that was idle starts at the smallest virtual time of the active ones.
func TestIdleClassSavesNothing(t *testing.T) {
	t.Parallel()
	p := threeClasses()
	p.Providers[0].Ceilings = Ceilings{RPM: 100, Burst: Whole}
	k := openDesk(t, p)
	for n := range 60 {
		k.grant(t, Hour, classRequest(n, "a", 10))
	}
	k.grant(t, Hour, classRequest(100, "b", 10))
	row := func(class string) *node { r, _ := k.w.row(KindClass, 0, class); return k.w.nodes.at(r) }
	if a, b := row("a").virtual, row("b").virtual; b <= a-a/30 || b > a+a/30 {
		t.Errorf("a is at %d, b that was idle at %d", a, b)
	}
}

// TestReadersShareAState: Decide and the reads change nothing, so that many may read one follower at once (run with -race).
func TestReadersShareAState(t *testing.T) {
	t.Parallel()
	s := taped(t, 3).f
	before := s.AppendTo(nil)
	var group sync.WaitGroup
	for reader := range 4 {
		group.Go(func() {
			g := newScene(newSeed(uint64(reader)), 12)
			var d Decision
			for range 200 {
				c := g.command(s)
				s.Decide(c, &d)
				s.Decide(g.extend(s), &d)
			}
			s.Pressure()
			s.BudgetRows(0)
			s.RungRows()
			s.ClassRows()
			s.LeaseRows(LeaseFilter{Ended: true})
			s.Due(s.Wall()+48*Hour, nil)
			s.NextEnd()
			if err := s.Check(); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if !bytes.Equal(before, s.AppendTo(nil)) {
		t.Error("reading changed the state")
	}
}
