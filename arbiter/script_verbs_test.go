package arbiter

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// The verbs of the scripts.
func (st *story) do(verb, name string) string {
	st.t.Helper()
	switch verb {
	case "policy", "provider", "model", "class", "agent", "workflow", "reserve", "price", "ladder":
		st.compile(verb, name)
		return ""
	case "adopt":
		a := st.p.adopt(st.t, day(at(st.now).Wall))
		said := st.command(a)
		st.p.Version++
		return said
	case "wait":
		st.now += st.parse(name)
		st.k.run(st.t, &batch{t: at(st.now)})
		return ""
	case "until":
		st.now = st.epoch + st.parse(name)
		st.k.run(st.t, &batch{t: at(st.now)})
		return ""
	case "request":
		return st.command(st.request(name))
	case "crowd": // so many requests in one batch, told by their verdicts
		return st.crowd(name)
	case "commit":
		return st.command(st.commit(name))
	case "release":
		return st.command(&Release{Lease: st.lease(name), Outcome: st.outcome(), Signal: st.signal()})
	case "extend":
		return st.command(&Extend{Lease: st.lease(name), Arrival: st.now - st.duration("late", 0)})
	case "signal":
		return st.command(&Signal{Lease: st.lease(name), Activate: st.has("activate"), FirstByte: st.has("first_byte"), Outcome: st.outcome(), Signal: st.signal()})
	case "revoke":
		return st.command(&Revoke{Lease: st.lease(name), Tree: st.has("tree")})
	case "roll":
		return st.command(&Roll{Provider: name, Next: day(at(st.now).Wall)})
	case "tick":
		return st.command(&Tick{})
	case "show":
		return st.show(name)
	}
	st.fail("no such command: %s", verb)
	return ""
}

// compile changes the policy that the next adopt brings into force.
func (st *story) compile(verb, name string) {
	p := st.p
	switch verb {
	case "policy":
		st.settings()
	case "provider":
		i := slices.IndexFunc(p.Providers, func(o Provider) bool { return o.Name == name })
		if i < 0 {
			i = len(p.Providers)
			p.Providers = append(p.Providers, Provider{Name: name})
		}
		o := &p.Providers[i]
		o.Limit, o.Ceilings = st.limit(), st.ceilings()
		if len(o.Models) == 0 {
			o.Models = []Model{{Limit: NoLimit, Prices: st.prices()}}
		}
	case "model": // of the last provider
		o := &p.Providers[len(p.Providers)-1]
		if len(o.Models) == 1 && o.Models[0].Name == "" {
			o.Models = nil
		}
		o.Models = append(o.Models, Model{Name: name, Limit: st.limit(), Ceilings: st.ceilings(), LimitGroup: st.text("group", ""), Prices: st.prices(),
			MaxOutput: Tokens(st.number("max_output", 0)), MaxInput: Tokens(st.number("max_input", 0))})
	case "class":
		c := Class{Name: name, Share: st.fraction("share"), Priority: st.priority("priority", Low), Limit: st.limit()}
		p.Classes = append(slices.DeleteFunc(p.Classes, func(o Class) bool { return o.Name == name }), c)
	case "agent":
		p.Agents = append(p.Agents, NamedLimit{name, st.limit()})
	case "workflow":
		p.Workflows = append(p.Workflows, NamedLimit{name, st.limit()})
	case "ladder": // tiers=cheap,other/model;dear
		l := Ladder{Name: name}
		for tier := range strings.SplitSeq(st.text("tiers", ""), ";") {
			var rungs []Rung
			for r := range strings.SplitSeq(tier, ",") {
				provider, model, _ := strings.Cut(r, "/")
				rungs = append(rungs, Rung{provider, model})
			}
			l.Tiers = append(l.Tiers, rungs)
		}
		p.Ladders = append(p.Ladders, l)
	case "reserve":
		st.args["level"] = name
		p.Reserves[st.priority("level", Low)] = Reserve{Rate: st.fraction("rate"), Budget: st.fraction("budget")}
	}
}

func (st *story) prices() []Price {
	list := []Price{{Rates: Rates{Input: Pico(st.scaled("in", 1e6, 2_000_000)), Output: Pico(st.scaled("out", 1e6, 10_000_000))}}}
	if st.has("unpriced") {
		list = nil
	}
	return list
}

func (st *story) settings() {
	p, l := st.p, &st.p.Lease
	p.Shadow = st.text("mode", "") == "shadow"
	p.Global = Limit{Tokens: Tokens(st.number("tokens", int64(p.Global.Tokens))), Nanos: Nanos(st.scaled("usd", 1e9, int64(p.Global.Nanos))), Shadow: st.has("shadow")}
	p.Tasks = Limit{Tokens: Tokens(st.number("task_tokens", int64(p.Tasks.Tokens))), Nanos: Nanos(st.scaled("task_usd", 1e9, int64(p.Tasks.Nanos)))}
	p.Guard = st.duration("guard", p.Guard)
	l.TTL, l.StartBy, l.Grace, l.CommitBy = st.duration("ttl", l.TTL), st.duration("start_by", l.StartBy), st.duration("grace", l.Grace), st.duration("commit_by", l.CommitBy)
	l.Max, l.Forget = st.duration("max", l.Max), st.duration("forget", l.Forget)
	if st.text("on_expiry", "") == "assume" {
		l.OnExpiry = ExpiryAssume
	}
	l.MaxHoldShare = max(l.MaxHoldShare, st.fraction("max_hold_share"))
	l.MaxOpen, l.MaxHeld = Requests(st.number("max_open", int64(l.MaxOpen))), Tokens(st.number("max_held", int64(l.MaxHeld)))
	p.Breaker.Failures, p.Breaker.Recovery = st.number("failures", p.Breaker.Failures), st.duration("recovery", p.Breaker.Recovery)
	p.Breaker.Ramp = st.duration("ramp", p.Breaker.Ramp)
	if st.has("fallback_in") {
		p.FallbackPrice = &Rates{Input: Pico(st.scaled("fallback_in", 1e6, 0)), Output: Pico(st.scaled("fallback_out", 1e6, 0))}
	}
}

// lease is the id behind a name of the script.
func (st *story) lease(name string) LeaseID {
	if id, ok := st.leases[name]; ok {
		return id
	}
	st.leases[name] = leaseID(1000 + len(st.leases))
	return st.leases[name]
}

func (st *story) request(name string) *Request {
	r := &Request{Lease: st.lease(name), Agent: st.text("agent", "a"), Class: st.text("class", ""), Task: st.text("task", ""), Workflow: st.text("workflow", ""),
		Provider: st.text("prefer", ""), Model: st.text("model", ""), Priority: st.priority("priority", ClassPriority),
		Input: Tokens(st.number("in", 100)), Output: Tokens(st.number("out", 50)), Min: Tokens(st.number("min", 0)), MaxWait: st.duration("max_wait", 0),
		Deferred: st.has("deferred"), Principal: uint64(st.number("key", 0))}
	if st.has("tokens") {
		r.Input, r.Output, r.Undivided = 0, Tokens(st.number("tokens", 0)), true
	}
	r.Ladder = st.text("ladder", "")
	if st.has("except") {
		r.Except = strings.Split(st.args["except"], ",")
	}
	if st.has("parent") {
		r.Parent = st.lease(st.args["parent"])
	}
	if st.has("blocked") {
		r.Blocked = RungSet(nil).Add(uint32(st.number("blocked", 0)))
	}
	r.Fingerprint = r.Sum()
	return r
}

func (st *story) commit(name string) *Commit {
	c := &Commit{Lease: st.lease(name), Outcome: st.outcome(), Latency: st.duration("latency", 0), Signal: st.signal(), Principal: uint64(st.number("key", 0))}
	if st.has("actual") {
		c.HasActual, c.Actual = true, Tokens(st.number("actual", 0))
	}
	if st.has("usage") {
		c.HasUsage = true
		if _, err := fmt.Sscanf(st.args["usage"], "%d/%d", &c.Usage.Input, &c.Usage.Output); err != nil {
			st.fail("usage: %v", err)
		}
	}
	return c
}

func (st *story) outcome() Outcome {
	words := []string{"", "ok", "error", "timeout", "throttled", "exhausted", "overloaded", "cancelled", "not_sent"}
	i := slices.Index(words, st.text("outcome", ""))
	if i < 0 {
		st.fail("no such outcome")
	}
	return Outcome(i)
}

func (st *story) signal() ProviderSignal {
	s := ProviderSignal{RetryAfter: st.duration("retry_after", 0)}
	for d := range dimCount {
		if d.String() == st.text("dim", "") {
			s.Dim = d
		}
	}
	return s
}

// command runs one command and puts the reply in words.
func (st *story) command(c Command) string {
	st.t.Helper()
	r := st.k.do(st.t, at(st.now), c)
	if r.Err != nil {
		return "error " + r.Err.Reason + ": " + r.Err.Text + "\n"
	}
	a := &r.Answer
	switch c.(type) {
	case *Request:
		return st.verdict(a)
	case *Commit:
		return fmt.Sprintf("%s %d tokens $%s%s\n", resultWords[a.Result], a.Tokens, usdWords(int64(a.Nanos)), flagWords(a.Flags))
	case *Release:
		said := resultWords[a.Result] + flagWords(a.Flags)
		if a.RetryAfter > 0 {
			said += " retry after " + time.Duration(a.RetryAfter).String()
		}
		return said + "\n"
	case *Extend:
		return fmt.Sprintf("%s until %s\n", resultWords[a.Result], st.clock(a.Lease.Deadline))
	case *Signal:
		return fmt.Sprintf("%s %s\n", resultWords[a.Result], a.Lease.Phase)
	case *Revoke:
		return fmt.Sprintf("revoked %d\n", a.Revoked)
	}
	return ""
}

func (st *story) verdict(a *Answer) string {
	if a.Status == Granted {
		l := &a.Lease
		said := fmt.Sprintf("GRANTED %s %d+%d tokens $%s until %s%s", rungName(l.Provider, l.Model), l.Input, l.Output, usdWords(int64(l.Nanos)), st.clock(l.Deadline), flagWords(a.Flags))
		if a.Check.Reason != ReasonNone {
			said += " shadow_denied " + checkWords(&a.Check)
		}
		return said + "\n"
	}
	said := a.Status.String() + " " + checkWords(&a.Check)
	if a.RetryAfter > 0 {
		said += " retry after " + time.Duration(a.RetryAfter).Round(time.Millisecond).String()
	}
	if a.Check.ResetsAt > 0 {
		said += " resets at " + st.clock(a.Check.ResetsAt-wallBase)
	}
	return said + "\n"
}

// rungName leaves a nameless default model out.
func rungName(provider, model string) string { return strings.TrimRight(provider+"/"+model, "/") }

func checkWords(c *Check) string {
	said := c.Reason.String()
	if c.Of != c.Reason && c.Of != ReasonNone {
		said += " " + c.Of.String()
	}
	if c.Scope != "" || c.ScopeKind != KindGlobal || c.Of == ReasonBudget {
		said += strings.TrimRight(fmt.Sprintf(" of %s %s", c.ScopeKind, c.Scope), " ")
	}
	if c.Unit != UnitNone {
		said += fmt.Sprintf(" (%d used, %d held, %d asked of %d %s)", c.Used, c.Held, c.Asked, c.Limit, c.Unit)
	}
	return said
}

// crowd sends n requests with the same settings in one batch.
func (st *story) crowd(name string) string {
	st.t.Helper()
	n := int(st.number("n", 1))
	b := &batch{t: at(st.now)}
	for i := range n {
		b.commands = append(b.commands, st.request(fmt.Sprintf("%s%d", name, i+1)))
	}
	var said []string
	for _, r := range st.k.run(st.t, b) {
		s := r.Answer.Status.String() + " " + r.Answer.Check.Reason.String()
		if r.Err != nil {
			s = "error " + r.Err.Reason
		}
		said = append(said, strings.TrimSpace(s))
	}
	var list strings.Builder
	for i := 0; i < len(said); {
		j := i
		for j < len(said) && said[j] == said[i] {
			j++
		}
		fmt.Fprintf(&list, "%d %s\n", j-i, said[i])
		i = j
	}
	return list.String()
}

func (st *story) event(e *Event) string {
	said := e.Kind.String()
	switch e.Kind {
	case EventThrottled:
		said += fmt.Sprintf(" %s %s until %s", rungName(e.Provider, e.Model), e.Dim, st.clock(e.Until))
		if e.Exhausted {
			said += ", its account"
		}
	case EventBreaker:
		said += fmt.Sprintf(" %s %s", rungName(e.Provider, e.Model), e.State)
		if e.Until > 0 {
			said += " until " + time.Duration(e.Until-st.epoch).Round(time.Second).String()
		}
	case EventPeriodClosed, EventPeriodFinal:
		said += fmt.Sprintf(" %d: %d tokens $%s", e.Period, e.Tokens, usdWords(int64(e.Nanos)))
	case EventPolicy:
		said += fmt.Sprintf(" version %d", e.Version)
	case EventUnattributed:
		said += fmt.Sprintf(" %d tokens $%s", e.Tokens, usdWords(int64(e.Nanos)))
	default:
		said += fmt.Sprintf(" %s agent %s, %d tokens, at %s", rungName(e.Provider, e.Model), e.Agent, e.Tokens, st.clock(e.At))
	}
	return said
}

func usdWords(nanos int64) string {
	s := strings.TrimRight(fmt.Sprintf("%d.%09d", nanos/1e9, nanos%1e9), "0")
	return strings.TrimSuffix(s, ".")
}

// show prints a part of the state.
func (st *story) show(what string) string {
	var b strings.Builder
	s := st.k.w
	switch what {
	case "budgets":
		for _, r := range s.BudgetRows(uint32(st.number("period", 0))) {
			if r.Limit == Unlimited && r.Spent+r.Held+r.Assumed+r.Shadow == 0 || r.Unit == UnitNanos && r.Limit == Unlimited {
				continue
			}
			limit := "no limit"
			if r.Limit != Unlimited {
				limit = fmt.Sprintf("of %d", r.Limit)
			}
			fmt.Fprintf(&b, "%s: spent %d held %d assumed %d %s %s", strings.Join(strings.Fields(strings.Join([]string{r.Kind.String(), r.Parent, r.Name}, " ")), " "), r.Spent, r.Held, r.Assumed, limit, r.Unit)
			if r.Shadow > 0 {
				fmt.Fprintf(&b, ", past a shadowed limit %d in %d calls", r.Shadow, r.ShadowCalls)
			}
			if n := r.OverBy(); n > 0 {
				fmt.Fprintf(&b, ", over by %d", n)
			}
			b.WriteByte('\n')
		}
	case "rungs":
		for _, r := range s.RungRows() {
			fmt.Fprintf(&b, "%s: %s, headroom %d %%, %d running", rungName(r.Provider, r.Model), r.Breaker, r.Headroom/10_000, r.Running)
			if r.Ramp < Whole {
				fmt.Fprintf(&b, ", ramp %d %%", r.Ramp/10_000)
			}
			for _, g := range r.Gauges {
				fmt.Fprintf(&b, ", %s %d+%d of %d", g.Dim, g.Used, g.Held, g.Ceiling)
				if g.InForce < g.Ceiling {
					fmt.Fprintf(&b, " (in force %d)", g.InForce)
				}
				if g.ShadowCalls > 0 {
					fmt.Fprintf(&b, " passed by %d calls", g.ShadowCalls)
				}
				if g.Hold > 0 {
					fmt.Fprintf(&b, " held until %s", st.clock(g.Hold))
				}
			}
			if r.ShadowCalls > 0 {
				fmt.Fprintf(&b, ", %d calls past something else", r.ShadowCalls)
			}
			b.WriteByte('\n')
		}
	case "classes":
		for _, c := range s.ClassRows() {
			allowed := "no bound"
			if c.Allowed != Unlimited {
				allowed = fmt.Sprint(c.Allowed)
			}
			fmt.Fprintf(&b, "%s: share %d %%, spent %d held %d, may use %s, rank %d\n", c.Name, c.Share/10_000, c.Spent, c.Held, allowed, s.ClassRank(c.Name, c.Priority))
		}
	case "leases":
		for _, l := range s.LeaseRows(LeaseFilter{Ended: true}) {
			fmt.Fprintf(&b, "%s %s agent %s task %q: %d tokens, spent %d, ends %s%s\n", l.Phase, rungName(l.Provider, l.Model), l.Agent, l.Task, l.Tokens(), l.SpentTokens, st.clock(l.Deadline), flagWords(l.Flags))
		}
	case "periods":
		for _, p := range s.Periods() {
			fmt.Fprintf(&b, "%d: closed %v, %d leases\n", p.Number, p.Closed, p.Leases)
		}
	case "pressure":
		p := s.Pressure()
		fmt.Fprintf(&b, "%s: delay %d ms, shed low %v: %s\n", p.Level, p.DelayMS, p.ShedLow, p.Message)
	default:
		st.fail("cannot show %q", what)
	}
	return b.String()
}
