package arbiter

import (
	"strconv"
	"testing"
)

// TestRowsAreBoundedByKind: many tasks do not make agents share a row, nor agents refuse tasks.
func TestRowsAreBoundedByKind(t *testing.T) {
	t.Parallel()
	p := onePolicy()
	p.Agents = []NamedLimit{{"named", Limit{Tokens: 10_000, Nanos: Unlimited}}}
	k := openDesk(t, p)
	bounds := [kindCount]int{KindAgent: 3, KindWorkflow: 4, KindTask: 20}
	k.w.rowBounds = &bounds
	ask := func(n int, agent, task, flow string) reply {
		r := requestOf(n)
		r.Agent, r.Task, r.Workflow = agent, task, flow
		r.Fingerprint = r.Sum()
		return k.do(t, at(Hour), r)
	}
	for n := range 20 {
		if got := ask(n, "a", "t"+strconv.Itoa(n), ""); got.Answer.Status != Granted || got.Err != nil {
			t.Fatalf("task %d: %v", n, got)
		}
	}
	if got := ask(20, "a", "t20", ""); got.Err == nil || got.Err.Reason != "too_many_tasks" || got.Err.Code != CodeResource {
		t.Errorf("one task too many: %v", got)
	}
	for n := range 4 {
		ask(30+n, "a", "t0", "w"+strconv.Itoa(n))
	}
	if got := ask(40, "a", "t1", "w4"); got.Err == nil || got.Err.Reason != "too_many_workflows" {
		t.Errorf("one workflow too many: %v", got)
	}
	for n, agent := range []string{"b", "c", "d", "e", "named", "b"} {
		if got := ask(50+n, agent, "t2", "w1"); got.Err != nil {
			t.Fatalf("agent %s: %v", agent, got)
		}
	}
	calls := map[string]int64{}
	for _, r := range k.w.BudgetRows(0) {
		if r.Kind == KindAgent && r.Unit == UnitTokens {
			calls[r.Name] = r.Calls
		}
	}
	if calls["a"] != 24 || calls["b"] != 2 || calls["c"] != 1 || calls[OtherAgents] != 2 || calls["named"] != 1 || len(calls) != 5 {
		t.Errorf("agents' calls: %v", calls)
	}
}

// TestIdleAgentsGo although an older period is still open, once nothing that is kept counted on them.
func TestIdleAgentsGo(t *testing.T) {
	t.Parallel()
	k := openDesk(t, onePolicy())
	roll := func(now int64) { k.do(t, at(now), &Roll{Next: day(at(now).Wall)}) }
	agents := func() (list string) {
		for i := range k.w.nodes.n {
			if n := k.w.nodes.at(i); n.kind == KindAgent {
				list += n.name
			}
		}
		return list
	}
	grant := func(n int, now int64, agent string) {
		r := requestOf(n)
		r.Agent = agent
		k.grant(t, now, r)
	}
	grant(1, Hour, "x") // in period 1
	roll(24 * Hour)
	k.do(t, at(24*Hour), &Tick{}) // period 1 is final
	grant(2, 48*Hour-Second, "y") // its lease keeps period 2
	roll(48 * Hour)
	k.do(t, at(48*Hour), &Tick{})
	if len(k.w.books) != 2 || agents() != "y" {
		t.Errorf("%d periods, agents %q: x has no account in either", len(k.w.books), agents())
	}
	k.do(t, at(50*Hour), &Tick{})
	k.do(t, at(52*Hour), &Tick{})
	if len(k.w.books) != 1 || agents() != "" {
		t.Errorf("later: %d periods, agents %q", len(k.w.books), agents())
	}
}
