package arbiter

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"testing"
)

// soak says that the long forms of the tests are wanted (make soak).
var soak = os.Getenv("TBA_SOAK") != ""

// TestMain keeps the random laws short unless somebody asked for more: -rapid.checks or TBA_SOAK=1.
func TestMain(m *testing.M) {
	checks := "25"
	switch {
	case soak:
		checks = "2000"
	case underRace:
		checks = "5"
	}
	if err := flag.Set("rapid.checks", checks); err != nil {
		panic(err)
	}
	flag.Parse()
	os.Exit(m.Run())
}

// failer is what *testing.T, *testing.F and *rapid.T have in common.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// entry is one journal entry as bytes: all that a follower gets.
type entry struct {
	t        Time
	strings  []string
	kinds    []FactKind
	payloads [][]byte
}

func (e *entry) add(f *Fact) {
	e.kinds = append(e.kinds, f.Kind)
	e.payloads = append(e.payloads, AppendFact(nil, f, func(name string) uint32 {
		if i := slices.Index(e.strings, name); i >= 0 {
			return uint32(i)
		}
		e.strings = append(e.strings, name)
		return uint32(len(e.strings) - 1)
	}))
}

func (e *entry) facts(tb failer) []Fact {
	tb.Helper()
	list := make([]Fact, len(e.kinds))
	for i, kind := range e.kinds {
		err := DecodeFact(kind, e.payloads[i], func(n uint32) (string, bool) {
			if int(n) >= len(e.strings) {
				return "", false
			}
			return e.strings[n], true
		}, &list[i])
		if err != nil {
			tb.Fatalf("fact %d of kind %d: %v", i, kind, err)
		}
	}
	return list
}

// reply is what became of one command.
type reply struct {
	Answer Answer
	Err    *Error
	Facts  int
}

func (r reply) String() string { return fmt.Sprintf("%+v err %v, %d facts", r.Answer, r.Err, r.Facts) }

// batch is what the writer takes at once: extensions are decided before time advances.
type batch struct {
	t        Time
	extends  []*Extend
	commands []Command
}

// desk is a writer, its journal, and a follower that reads every entry.
type desk struct {
	w, f *State
	d    Decision
	seq  uint64
	log  []entry
}

func newDesk(pool string) *desk { return &desk{w: NewState(pool), f: NewState(pool)} }

// step decides one command and applies its facts. A verdict that refuses, and an error, must have no facts.
func (k *desk) step(tb failer, cmd Command, e *entry) reply {
	tb.Helper()
	err := k.w.Decide(cmd, &k.d)
	r := reply{k.d.Answer, err, len(k.d.Facts)}
	r.Answer.Wanted = slices.Clone(r.Answer.Wanted)
	if _, ok := cmd.(*Request); ok && r.Facts > 0 && r.Answer.Status != Granted || err != nil && r.Facts > 0 {
		tb.Fatalf("%T %+v: a refusal has facts: %v", cmd, cmd, r)
	}
	for i := range k.d.Facts {
		e.add(&k.d.Facts[i])
		k.w.Apply(&k.d.Facts[i])
	}
	return r
}

// attempt runs a batch under the undo log and leaves it open.
func (k *desk) attempt(tb failer, b *batch) (e entry, replies []reply, moved bool) {
	tb.Helper()
	k.w.Begin()
	for _, x := range b.extends {
		replies = append(replies, k.step(tb, x, &e))
	}
	moved = k.w.Advance(b.t)
	e.t = Time{k.w.Now(), k.w.Wall()}
	for _, c := range b.commands {
		replies = append(replies, k.step(tb, c, &e))
	}
	return e, replies, moved
}

// confirm makes an attempt final: the entry is in the log and the follower reads it. Without facts and without an end that time
// brought there is nothing to write, and the attempt is taken back.
func (k *desk) confirm(tb failer, e *entry, moved bool) {
	tb.Helper()
	if len(e.kinds) == 0 && !moved {
		k.w.Rollback()
		return
	}
	k.seq++
	k.w.Confirm()
	k.w.SetPosition(1, k.seq)
	k.log = append(k.log, *e)
	k.f.ApplyEntry(e.t, e.facts(tb))
	k.f.SetPosition(1, k.seq)
	k.compare(tb, k.w, k.f, "writer and follower")
}

// run is attempt and confirm.
func (k *desk) run(tb failer, b *batch) []reply {
	tb.Helper()
	e, replies, moved := k.attempt(tb, b)
	k.confirm(tb, &e, moved)
	return replies
}

// do runs one command now.
func (k *desk) do(tb failer, t Time, cmd Command) reply {
	tb.Helper()
	b := batch{t: t}
	if x, ok := cmd.(*Extend); ok {
		b.extends = []*Extend{x}
	} else {
		b.commands = []Command{cmd}
	}
	return k.run(tb, &b)[0]
}

// compare fails unless two states are the same, byte for byte and by their invariants.
func (k *desk) compare(tb failer, a, b *State, who string) {
	tb.Helper()
	if !bytes.Equal(a.AppendTo(nil), b.AppendTo(nil)) {
		tb.Fatalf("%s differ: %s", who, difference(a, b))
	}
	if err := a.Check(); err != nil {
		tb.Fatalf("%s: %v", who, err)
	}
	if err := heldAgrees(a); err != nil {
		tb.Fatalf("%s: %v", who, err)
	}
}

// heldAgrees is Check for what generated accounting holds: each meter holds what running leases will give back.
func heldAgrees(s *State) error {
	if s.rules == nil {
		return nil
	}
	held := map[string]int64{}
	for slot := range s.leases.n {
		if l := s.leases.at(slot); l.phase().running() {
			s.eachCharge(l, func(g *gauge, m *meter, x int64) {
				if g.held() {
					held[m.key] += x
				}
			})
		}
	}
	for i := range s.meters.n {
		if m := s.meters.at(i); m.held != held[m.key] {
			return fmt.Errorf("meter %s holds %d, running leases %d", m.key, m.held, held[m.key])
		}
	}
	return nil
}

// difference names the first parts in which two states differ.
func difference(a, b *State) string {
	parts := []struct {
		name string
		of   func(s *State) any
	}{
		{"time", func(s *State) any { return []int64{s.now, s.wall, s.adoptions, s.firstBucket} }},
		{"position", func(s *State) any { return []uint64{s.epoch, s.seq} }},
		{"budgets", func(s *State) any { return s.BudgetRows(0) }},
		{"rungs", func(s *State) any { return s.RungRows() }},
		{"classes", func(s *State) any { return s.ClassRows() }},
		{"leases", func(s *State) any { return s.LeaseRows(LeaseFilter{Ended: true, Limit: 1 << 20}) }},
		{"periods", func(s *State) any { return s.Periods() }},
		{"free rows", func(s *State) any { return s.nodeFree }},
		{"free leases", func(s *State) any { return s.leaseFree }},
		{"tombs", func(s *State) any { return []any{s.tombs, s.tombQueue[s.tombHead:]} }},
	}
	for _, p := range parts {
		if x, y := p.of(a), p.of(b); !reflect.DeepEqual(x, y) {
			return fmt.Sprintf("%s:\n%+v\n%+v", p.name, x, y)
		}
	}
	return "in something that no row shows"
}
