package arbiter

import (
	"bytes"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

// The laws of the undo log, the journal and the snapshot, over random policies, commands and steps of time:
//
//	rollback   encode(rollback(s)) == encode(before), to Begin and to any Mark, and what is decided again is the same
//	replay     facts that went through the journal's bytes make a follower equal after each entry
//	snapshot   a decoded state is equal and decides equally from then on
//	idle       a batch without facts may be taken back: the follower that never saw it stays equal
const wallBase = 20_000 * 24 * Hour

func at(now int64) Time { return Time{now, now + wallBase} }

// director plays a scene on a desk.
type director struct {
	*scene
	k       *desk
	now     int64
	version uint64
}

func newDirector(tb failer, d dice, ids int) *director {
	tb.Helper()
	m := &director{scene: newScene(d, ids), k: newDesk("pool"), now: Hour}
	return m
}

func (m *director) open(tb failer) {
	tb.Helper()
	if r := m.k.do(tb, at(m.now), m.adopt(tb)); r.Err != nil {
		tb.Fatalf("the scene's policy is refused: %v", r.Err)
	}
}

func (m *director) adopt(tb failer) *Adopt {
	tb.Helper()
	m.version++
	p := m.policy(m.version)
	if m.chance("other period", 20) {
		p.Period.Kind = "hourly"
	}
	return p.adopt(tb, day(at(m.now).Wall))
}

// next draws a batch of at most size commands.
func (m *director) next(tb failer, size int) *batch {
	tb.Helper()
	b := &batch{}
	for range m.pick("extends", 3+size/8) {
		b.extends = append(b.extends, m.extend(m.k.w))
	}
	m.now += m.later()
	b.t = at(m.now)
	b.commands = m.calendar(m.k.w, b.t.Wall)
	if m.chance("reload", 4) {
		b.commands = append(b.commands, m.adopt(tb))
	}
	for range m.pick("size", size+1) {
		b.commands = append(b.commands, m.command(m.k.w))
	}
	return b
}

// play runs batches and holds every law against each.
func (m *director) play(tb failer, batches, size int) {
	tb.Helper()
	k := m.k
	var loaded *State
	var d Decision
	for i := range batches {
		b := m.next(tb, size)
		before := k.w.AppendTo(nil)
		first, replies, _ := k.attempt(tb, b)
		k.w.Rollback()
		if !bytes.Equal(before, k.w.AppendTo(nil)) {
			was, err := DecodeState(before)
			if err != nil {
				tb.Fatalf("decode: %v", err)
			}
			tb.Fatalf("batch %d: rollback: %s", i, difference(was, k.w))
		}

		m.marks(tb, b)
		e, again, moved := k.attempt(tb, b)
		if !reflect.DeepEqual(first, e) || !reflect.DeepEqual(replies, again) {
			tb.Fatalf("batch %d: decided otherwise after a rollback:\n%v\n%v", i, replies, again)
		}
		k.confirm(tb, &e, moved)

		if loaded != nil && (len(e.kinds) > 0 || moved) {
			follow(tb, loaded, &d, b, again)
			loaded.SetPosition(1, k.seq)
			k.compare(tb, k.w, loaded, "writer and the state loaded from a snapshot")
		}
		if m.chance("snapshot", 10) {
			var err error
			if loaded, err = DecodeState(k.w.AppendTo(nil)); err != nil {
				tb.Fatalf("snapshot: %v", err)
			}
			k.compare(tb, k.w, loaded, "writer and its snapshot")
		}
	}
	replayed := NewState("pool")
	for i := range k.log {
		replayed.ApplyEntry(k.log[i].t, k.log[i].facts(tb))
	}
	replayed.SetPosition(1, k.seq)
	k.compare(tb, k.w, replayed, "writer and replay")
}

// marks takes a part of a batch back at a random place and finds the state of that place.
func (m *director) marks(tb failer, b *batch) {
	tb.Helper()
	if len(b.commands) == 0 {
		return
	}
	keep := m.pick("mark", len(b.commands))
	m.k.attempt(tb, &batch{t: b.t, extends: b.extends, commands: b.commands[:keep]})
	mark, here := m.k.w.Mark(), m.k.w.AppendTo(nil)
	for range 2 {
		for _, c := range b.commands[keep:] {
			m.k.step(tb, c, &entry{})
		}
		m.k.w.RollbackTo(mark)
		if !bytes.Equal(here, m.k.w.AppendTo(nil)) {
			tb.Fatalf("rollback to the mark after %d of %d commands left something", keep, len(b.commands))
		}
	}
	m.k.w.Rollback()
}

// follow decides the batch on another state, which must answer the same.
func follow(tb failer, s *State, d *Decision, b *batch, want []reply) {
	tb.Helper()
	n := 0
	decide := func(c Command) {
		err := s.Decide(c, d)
		got := reply{d.Answer, err, len(d.Facts)}
		if got.Answer.Wanted = append(RungSet(nil), got.Answer.Wanted...); !reflect.DeepEqual(got, want[n]) {
			tb.Fatalf("%T %+v:\nwriter %v\nloaded %v", c, c, want[n], got)
		}
		n++
		for i := range d.Facts {
			s.Apply(&d.Facts[i])
		}
	}
	for _, x := range b.extends {
		decide(x)
	}
	s.Advance(b.t)
	for _, c := range b.commands {
		decide(c)
	}
}

// TestLaws plays short scenes that rapid can shrink.
func TestLaws(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := newDirector(t, rapidDice{t}, 12)
		m.open(t)
		m.play(t, 30, 6)
	})
}

// TestLawsInLargeBatches plays batches of up to 1,024 commands and long scenes.
func TestLawsInLargeBatches(t *testing.T) {
	t.Parallel()
	seeds := 12
	switch {
	case soak:
		seeds = 400
	case underRace:
		seeds = 2
	}
	kinds := map[FactKind]int{}
	for seed := range seeds {
		m := newDirector(t, newSeed(uint64(seed)), 200)
		m.open(t)
		m.play(t, 30, 1024)
		m.play(t, 200, 3)
		for i := range m.k.log {
			for _, kind := range m.k.log[i].kinds {
				kinds[kind]++
			}
		}
	}
	for kind := FactNodeAdded; kind <= FactUnattributed; kind++ {
		if kinds[kind] == 0 && !underRace {
			t.Errorf("no scene had a fact of kind %d", kind)
		}
	}
}

// TestBatchAdoptsAndGrants has everything in the first batch of a pool: policy and grants after a long idle. The window keeps what it counted.
func TestBatchAdoptsAndGrants(t *testing.T) {
	t.Parallel()
	k := newDesk("pool")
	p := onePolicy()
	p.Providers[0].RPM, p.Providers[0].Burst = 1, Whole
	first, second := requestOf(1), requestOf(2)
	now := 300 * Hour
	got := k.run(t, &batch{t: at(now), commands: []Command{p.adopt(t, day(at(now).Wall)), first}})
	if got[1].Answer.Status != Granted {
		t.Fatalf("first: %v", got[1])
	}
	for _, after := range []int64{Millisecond, Second, Minute} {
		if r := k.do(t, at(now+after), second); r.Answer.Status != Deferred || r.Answer.Check.Reason != ReasonRPM {
			t.Errorf("after %d ms: %v, want DEFERRED rpm", after/Millisecond, r)
		}
	}
}

// TestRollbackLeavesNoEnds: thousands of batches without facts, each taken back, beside leases that were extended past their first end.
func TestRollbackLeavesNoEnds(t *testing.T) {
	t.Parallel()
	p := onePolicy()
	p.Providers[0].MaxConcurrent = 50
	k := openDesk(t, p)
	for n := range 50 {
		k.grant(t, Hour, requestOf(n))
	}
	for n := range 50 {
		k.do(t, at(Hour+20*Second), &Extend{Lease: leaseID(n), Arrival: Hour + 20*Second})
	}
	for n := range 2000 { // the slots are full
		k.do(t, at(Hour+31*Second+int64(n)*Millisecond), requestOf(1000))
	}
	entries := len(k.w.ends.due)
	for _, b := range k.w.ends.buckets {
		entries += len(b)
	}
	if entries > 200 {
		t.Errorf("%d entries for 50 leases", entries)
	}
	k.run(t, &batch{t: at(Hour + 50*Second)})
	if n := len(k.w.Events()); n != 50 {
		t.Errorf("%d leases ended, want 50", n)
	}
}
