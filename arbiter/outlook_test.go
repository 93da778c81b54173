package arbiter

import "testing"

func TestOutlook(t *testing.T) {
	t.Parallel()
	p := servedPolicy()
	p.Global, p.Tasks = Limit{Tokens: 10_000, Nanos: Unlimited}, Limit{Tokens: 1000, Nanos: Unlimited}
	p.Agents = []NamedLimit{{"shadow", Limit{Tokens: 1, Nanos: Unlimited, Shadow: true}}}
	p.Providers[0].Ceilings = Ceilings{RPM: 10, TPM: 5000, MaxConcurrent: 3, Burst: Whole}
	p.Providers[0].Models[0].Ceilings = Ceilings{TPM: 900, RPD: 100, Burst: Whole}
	k := openDesk(t, p)
	if o := k.w.Outlook(100); o.Tightest(&Route{Rung: Rung{"openai", "large"}}).Limit != 10_000 || len(o.Ceilings) != 3 {
		t.Errorf("before a call: %+v", o)
	}
	r := requestOf(0)
	r.Agent, r.Task, r.Model, r.Except = "shadow", "t", "large", []string{"plain"}
	if got := k.do(t, at(Hour), r); got.Answer.Status != Granted {
		t.Fatal(got)
	}
	o := k.w.Outlook(100)
	way := Route{Rung: Rung{"openai", "large"}, Class: DefaultClass, Agent: "shadow", Task: "t"}
	if c := o.Tightest(&way); c == nil || c.ScopeKind != KindTask || c.Scope != "t" || c.Limit != 1000 || c.Held != 150 {
		t.Errorf("tightest: %+v", c)
	}
	left := map[Dim]int64{}
	for _, g := range o.Ceilings[way.Rung] {
		left[g.Dim] = g.Left()
	}
	if len(left) != 3 || left[DimRPM] != 9 || left[DimTPM] != 750 || left[DimRPD] != 99 {
		t.Errorf("ceilings: %v", left)
	}
	if c := k.w.Outlook(0).Tightest(&way); c == nil || c.ScopeKind != KindGlobal {
		t.Errorf("with no room for tasks: %+v", c)
	}
	if c := openDesk(t, servedPolicy()).w.Outlook(100).Tightest(&way); c != nil {
		t.Errorf("nothing is limited: %+v", c)
	}
}
