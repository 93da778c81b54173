package arbiter

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"slices"
	"testing"
)

// A small world, searched to the end: two budgets (pool and task), three lease ids, two windows and two slots; every command and every
// step of time in every order, to a depth. States that were seen with the same ghost are not searched again. In each state the
// promises hold, and each step back by the undo log gives the state before, byte for byte.

// ghost is what the promises are about and the state does not keep: who said what, and when calls may have reached the provider.
type ghost struct {
	spent [3]int64 // what each id's present lease recorded
	total int64    // all that was ever recorded
	live  [3]bool  // the id was granted and its lease not yet forgotten
	calls []intent
	// broken promises of holders: more than granted, or a bill after the hold went back. P4 is off from then on.
	dirty bool
}

// intent is a call that may arrive at the provider anywhere from lo to hi.
type intent struct {
	id     int
	lo, hi int64
	x      int64
	begun  bool
}

type explorer struct {
	t       *testing.T
	s       *State
	d       Decision
	visited map[uint64]int // the depth that was left
	hash    maphash.Seed
	buf     []byte
	path    []string
	states  int
	edges   int
	actions []action
}

type action struct {
	name string
	do   func(x *explorer, g *ghost) bool // false when nothing changed
}

const (
	worldLimit, worldTask = 130, 90
	worldRPM, worldTPM    = 2, 120
	worldSlots            = 2
	worldGuard            = Second
)

// worldSizes are what the three ids ask for; the second is a deferred start, the third belongs to the task.
var worldSizes = [3]Tokens{60, 50, 40}

func worldPolicy() *Policy {
	p := onePolicy()
	p.Guard = worldGuard
	p.Global.Tokens, p.Tasks.Tokens = worldLimit, worldTask
	p.Providers[0].Ceilings = Ceilings{RPM: worldRPM, TPM: worldTPM, MaxConcurrent: worldSlots, Burst: Whole}
	l := &p.Lease
	l.TTL, l.StartBy, l.Grace, l.CommitBy, l.Forget = 20*Second, 10*Second, 20*Second, 30*Second, 10*Second
	return p
}

func TestSmallWorld(t *testing.T) {
	t.Parallel()
	deep := 7
	switch {
	case soak:
		deep = 9
	case underRace:
		deep = 5
	}
	for _, expiry := range []ExpiryRule{ExpiryReturn, ExpiryAssume} {
		t.Run([...]string{"return", "assume"}[expiry], func(t *testing.T) {
			t.Parallel()
			p := worldPolicy()
			p.Lease.OnExpiry = expiry
			depth := deep
			if expiry == ExpiryAssume && !soak { // little differs
				depth--
			}
			x := &explorer{t: t, s: NewState("pool"), visited: map[uint64]int{}, hash: maphash.MakeSeed()}
			x.s.Advance(at(Hour))
			if err := x.s.Decide(p.adopt(t, Period{0, 1 << 62}), &x.d); err != nil {
				t.Fatal(err)
			}
			x.apply()
			x.actions = worldActions()
			x.s.Begin()
			x.search(ghost{}, depth)
			t.Logf("%d states, %d steps to depth %d", x.states, x.edges, depth)
			if x.states < 1000 {
				t.Errorf("only %d states", x.states)
			}
		})
	}
}

func (x *explorer) apply() {
	for i := range x.d.Facts {
		x.s.Apply(&x.d.Facts[i])
	}
}

func (x *explorer) decide(c Command) (*Answer, *Error) {
	err := x.s.Decide(c, &x.d)
	if r, ok := c.(*Request); ok && x.d.Answer.Status != Granted && len(x.d.Facts) > 0 {
		x.fail("a refusal of %x has facts", r.Lease[:2])
	}
	return &x.d.Answer, err
}

func (x *explorer) fail(format string, args ...any) {
	x.t.Helper()
	x.t.Fatalf("%v: %s", x.path, fmt.Sprintf(format, args...))
}

// search tries every action from here.
func (x *explorer) search(g ghost, depth int) {
	x.buf = x.s.AppendTo(x.buf[:0])
	here := maphash.Bytes(x.hash, x.buf)
	g.calls = slices.DeleteFunc(g.calls, func(c intent) bool { return c.hi < x.s.now-2*Minute })
	key := maphash.Comparable(x.hash, struct {
		state uint64
		ghost string
	}{here, fmt.Sprint(g)})
	if left, ok := x.visited[key]; ok && left >= depth {
		return
	}
	x.visited[key] = depth
	if x.states++; x.states%256 == 0 {
		x.tidy()
	}
	x.holds(&g)
	if depth == 0 {
		return
	}
	for i := range x.actions {
		mark := x.s.Mark()
		next := g
		next.calls = slices.Clone(g.calls)
		x.path = append(x.path, x.actions[i].name)
		if x.actions[i].do(x, &next) {
			x.edges++
			x.search(next, depth-1)
		}
		if x.s.Mark() != mark {
			x.s.RollbackTo(mark)
			x.buf = x.s.AppendTo(x.buf[:0])
			if maphash.Bytes(x.hash, x.buf) != here {
				x.fail("the step back leaves another state")
			}
		}
		x.path = x.path[:len(x.path)-1]
	}
}

// tidy keeps each entry of ends once: going back and forth in time gathers doubles, which mean nothing.
func (x *explorer) tidy() {
	due := x.s.ends.due
	slices.SortFunc(due, func(a, b endEntry) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.slot, b.slot)) })
	x.s.ends.due = slices.Compact(due) // sorted is a heap
}

// holds checks P1 to P6 as far as they are about a state; P1 and P6 are also checked at each grant, see ask.
func (x *explorer) holds(g *ghost) {
	if err := x.s.Check(); err != nil {
		x.fail("%v", err)
	}
	a := x.s.balance(x.s.current(), 0)
	if a.spent.tokens != g.total { // P2
		x.fail("spent %d, recorded %d", a.spent.tokens, g.total)
	}
	if sum := a.committedTokens() + a.held.tokens; !g.dirty && sum > worldLimit { // P4
		x.fail("S+A+H = %d of %d although every holder kept its word", sum, worldLimit)
	}
	for first := range g.calls { // P5: can more than the ceiling arrive within 60 s?
		var n, tokens int64
		for _, c := range g.calls {
			if c.hi >= g.calls[first].lo && c.lo <= g.calls[first].lo+Minute {
				n, tokens = n+1, tokens+c.x
			}
		}
		if n > worldRPM || tokens > worldTPM {
			x.fail("%d calls, %d tokens may arrive in the 60 s from %d: %+v", n, tokens, g.calls[first].lo, g.calls)
		}
		n, tokens = 0, 0
		for _, c := range g.calls { // spans that begin when a late call arrives
			if c.hi >= g.calls[first].hi && c.lo <= g.calls[first].hi+Minute {
				n, tokens = n+1, tokens+c.x
			}
		}
		if n > worldRPM || tokens > worldTPM {
			x.fail("%d calls, %d tokens may arrive in the 60 s from %d: %+v", n, tokens, g.calls[first].hi, g.calls)
		}
	}
	running := 0
	for slot := range x.s.leases.n {
		if x.s.leases.at(slot).phase().running() {
			running++
		}
	}
	if _, held := x.s.load(&x.s.rules.rungs[0].gauges[2]); int(held) != running || running > worldSlots { // P6
		x.fail("%d leases run, %d slots are taken of %d", running, held, worldSlots)
	}
}

// over forgets the call of a lease that ended without having been sent, and bounds the arrival of one that may be under way.
func (g *ghost) over(id int, now int64, sent bool) {
	g.calls = slices.DeleteFunc(g.calls, func(c intent) bool { return c.id == id && !c.begun && !sent && c.hi > now })
	for i := range g.calls {
		if c := &g.calls[i]; c.id == id {
			c.hi = min(c.hi, now+worldGuard)
		}
	}
}

func worldActions() []action {
	list := []action{
		{"7 s", func(x *explorer, g *ghost) bool { return x.wait(g, 7*Second) }},
		{"31 s", func(x *explorer, g *ghost) bool { return x.wait(g, 31*Second) }},
		{"tick", func(x *explorer, _ *ghost) bool {
			x.decide(&Tick{})
			x.apply()
			return len(x.d.Facts) > 0
		}},
	}
	for id := range worldSizes {
		add := func(name string, do func(x *explorer, g *ghost) bool) {
			list = append(list, action{fmt.Sprintf("%s %d", name, id), do})
		}
		lease := leaseID(id)
		add("request", func(x *explorer, g *ghost) bool { return x.ask(g, id) })
		add("commit", func(x *explorer, g *ghost) bool { return x.settle(g, id, int64(worldSizes[id])) })
		add("commit more", func(x *explorer, g *ghost) bool { return x.settle(g, id, 70) })
		add("cancel", func(x *explorer, g *ghost) bool { return x.release(g, id, OutcomeCancelled) })
		add("not sent", func(x *explorer, g *ghost) bool { return x.release(g, id, OutcomeNotSent) })
		add("revoke", func(x *explorer, g *ghost) bool {
			if a, err := x.decide(&Revoke{Lease: lease}); err != nil || a.Revoked == 0 {
				return false
			}
			x.apply()
			if l := x.s.find(lease); l.phase() == Returned {
				g.over(id, x.s.now, false)
			}
			return true
		})
		add("extend", func(x *explorer, g *ghost) bool {
			if _, err := x.decide(&Extend{Lease: lease, Arrival: x.s.now}); err != nil || len(x.d.Facts) == 0 {
				return false
			}
			x.apply()
			if l := x.s.find(lease); l.phase() == Reserved {
				g.may(id, l.startBy+worldGuard)
			}
			return true
		})
		add("activate", func(x *explorer, g *ghost) bool {
			if _, err := x.decide(&Signal{Lease: lease, Activate: true}); err != nil || len(x.d.Facts) == 0 {
				return false
			}
			x.apply()
			g.begin(id, x.s.now)
			return true
		})
	}
	return list
}

// may moves the last moment at which a call that has not begun may arrive.
func (g *ghost) may(id int, hi int64) {
	for i := range g.calls {
		if c := &g.calls[i]; c.id == id && !c.begun {
			c.hi = hi
		}
	}
}

// begin says that a call is on its way from now on.
func (g *ghost) begin(id int, now int64) {
	for i := range g.calls {
		if c := &g.calls[i]; c.id == id && !c.begun {
			c.lo, c.hi, c.begun = max(c.lo, now), now+worldGuard, true
		}
	}
}

func (x *explorer) wait(g *ghost, d int64) bool {
	before := [3]Phase{}
	for id := range before {
		if l := x.s.find(leaseID(id)); l != nil {
			before[id] = l.phase()
		}
	}
	x.s.Advance(Time{x.s.now + d, x.s.wall + d})
	for id, was := range before {
		l := x.s.find(leaseID(id))
		if was == Reserved && (l == nil || l.phase() > Active) {
			// It had to begin by start_by and did not say so.
			g.calls = slices.DeleteFunc(g.calls, func(c intent) bool { return c.id == id && !c.begun })
		}
		if l == nil {
			g.live[id], g.spent[id] = false, 0
		}
	}
	for i := range g.calls { // what may have come by now can no longer be called off
		if c := &g.calls[i]; !c.begun && c.hi <= x.s.now {
			c.begun = true
		}
	}
	return true
}

// ask requests a lease: P1 and P6 at the instant of the grant.
func (x *explorer) ask(g *ghost, id int) bool {
	r := &Request{Lease: leaseID(id), Output: worldSizes[id], Deferred: id == 1, Priority: ClassPriority}
	if id == 2 {
		r.Task = "t"
	}
	b := x.s.current()
	before := *x.s.balance(b, 0)
	task := account{}
	if row, ok := x.s.row(KindTask, 0, "t"); ok {
		task = *x.s.balance(b, row)
	}
	_, running := x.s.load(&x.s.rules.rungs[0].gauges[2])
	a, err := x.decide(r)
	if err != nil || a.Status != Granted || a.Flags&FlagRepeat != 0 {
		return false
	}
	n := int64(worldSizes[id])
	if before.committedTokens()+before.held.tokens+n > worldLimit || running >= worldSlots ||
		id == 2 && task.committedTokens()+task.held.tokens+n > worldTask {
		x.fail("over-grant of %d: pool %+v, task %+v, %d slots", n, before, task, running)
	}
	if g.live[id] {
		x.fail("id %d is granted twice", id)
	}
	x.apply()
	g.live[id], g.spent[id] = true, 0
	g.calls = append(g.calls, intent{id: id, lo: x.s.now, hi: a.Lease.StartBy + worldGuard, x: n})
	return true
}

func (x *explorer) settle(g *ghost, id int, actual int64) bool {
	l := x.s.find(leaseID(id))
	var phase Phase
	if l != nil {
		phase = l.phase()
	}
	a, err := x.decide(&Commit{Lease: leaseID(id), HasActual: true, Actual: Tokens(actual), Outcome: OutcomeOK})
	if err != nil {
		x.fail("commit: %v", err)
	}
	if len(x.d.Facts) == 0 {
		return false
	}
	if a.Result != Recorded || g.spent[id] != 0 || phase == Committed {
		x.fail("recorded again: %d after %d", actual, g.spent[id])
	}
	x.apply()
	g.spent[id] = actual
	g.total += actual
	if actual > int64(worldSizes[id]) || phase == Returned || phase == ReleasedPhase {
		g.dirty = true
	}
	if phase.Live() || phase == Assumed { // the call is over: it came
		for i := range g.calls {
			if c := &g.calls[i]; c.id == id {
				c.hi, c.begun = min(c.hi, x.s.now), true
			}
		}
	}
	return true
}

func (x *explorer) release(g *ghost, id int, o Outcome) bool {
	l := x.s.find(leaseID(id))
	if l == nil {
		return false
	}
	reserved := l.phase() == Reserved
	for _, c := range g.calls {
		if c.id == id && c.begun && o == OutcomeNotSent {
			return false // it would be a lie
		}
	}
	if _, err := x.decide(&Release{Lease: leaseID(id), Outcome: o}); err != nil || len(x.d.Facts) == 0 {
		return false
	}
	x.apply()
	g.over(id, x.s.now, o != OutcomeNotSent && !reserved)
	return true
}
