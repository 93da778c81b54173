package arbiter

import "slices"

// BudgetRow is one row of the budget tree in one unit.
type BudgetRow struct {
	Kind NodeKind
	// Name is empty for the global row and for a provider's unnamed default model; Parent is a model's provider.
	Name, Parent string
	Unit         Unit
	// Limit is Unlimited when the row bounds nothing in this unit.
	Limit, Spent, Held, Assumed int64
	// Shadow is what passed a shadowed limit, ShadowCalls how many leases it would have refused; Calls the leases granted.
	Shadow, ShadowCalls, Calls int64
	Shadowed                   bool
	// Period is 0 for tasks and workflows.
	Period uint32
	Bounds Period
}

// Available is what the row can still grant; 0 when it is over its limit, Unlimited without one.
func (r *BudgetRow) Available() int64 {
	if r.Limit == Unlimited {
		return Unlimited
	}
	return max(r.Limit-r.Spent-r.Assumed-r.Held, 0)
}

// OverBy is by how much spent, assumed and held pass the limit: after a late commit, an overrun or a lowered limit.
func (r *BudgetRow) OverBy() int64 {
	if r.Limit == Unlimited {
		return 0
	}
	return max(r.Spent+r.Assumed+r.Held-r.Limit, 0)
}

// BudgetRows lists every row that has a limit or was used in a period, tokens before money; period 0 is the open one. Money rows
// without a limit are listed too. Nil for an unknown period.
func (s *State) BudgetRows(period uint32) []BudgetRow {
	var list []BudgetRow
	s.EachBudget(period, func(r *BudgetRow) { list = append(list, *r) })
	return list
}

// EachBudget gives take the rows of BudgetRows one by one, of some kinds or of all: agents, tasks and credentials may be many. take must
// not keep the row. False for an unknown period.
func (s *State) EachBudget(period uint32, take func(*BudgetRow), kinds ...NodeKind) (known bool) {
	b := s.current()
	if period != 0 {
		b = s.book(period)
	}
	if b == nil {
		return false
	}
	for i := range s.nodes.n {
		n := s.nodes.at(i)
		if n.kind == KindGlobal && i != 0 {
			continue // a dropped row
		}
		if len(kinds) > 0 && !slices.Contains(kinds, n.kind) {
			continue
		}
		a := s.balance(b, i)
		if a.empty() && n.limit == NoLimit && n.kind != KindGlobal && n.kind != KindProvider {
			continue
		}
		row := BudgetRow{Kind: n.kind, Name: n.name, Shadowed: n.limit.Shadow, Calls: a.calls, Period: b.number, Bounds: b.period}
		if n.kind == KindModel {
			row.Parent = s.nodes.at(n.parent).name
		}
		if n.kind.perTask() {
			row.Period, row.Bounds = 0, Period{}
		}
		row.Unit, row.Limit, row.Spent, row.Held, row.Assumed, row.Shadow = UnitTokens, int64(n.limit.Tokens), a.spent.tokens, a.held.tokens, a.assumed.tokens, a.shadow.tokens
		row.ShadowCalls = a.shadowCalls.tokens
		take(&row)
		row.Unit, row.Limit, row.Spent, row.Held, row.Assumed, row.Shadow = UnitNanos, int64(n.limit.Nanos), a.spent.nanos, a.held.nanos, a.assumed.nanos, a.shadow.nanos
		row.ShadowCalls = a.shadowCalls.nanos
		take(&row)
	}
	return true
}

// PeriodRow is a period that is open, or closed and not final.
type PeriodRow struct {
	Number uint32
	Period
	// Closed periods take no new leases; Leases is how many records still belong to it.
	Closed bool
	Leases int64
}

// Periods lists the periods in order; the open one is last.
func (s *State) Periods() []PeriodRow {
	var list []PeriodRow
	for i, b := range s.books {
		list = append(list, PeriodRow{b.number, b.period, i < len(s.books)-1, b.leases})
	}
	return list
}

// GaugeRow is one ceiling of a rung and how full it is.
type GaugeRow struct {
	Dim Dim
	// Kind and Scope say whose ceiling it is: the provider's, or the model's (or its limit group's).
	Kind  NodeKind
	Scope string
	// Ceiling, InForce, Used and Held are in requests or tokens a minute, requests a day, or running calls. InForce is what 429s and the
	// ramp leave of the ceiling.
	Ceiling, InForce, Used, Held int64
	Headroom                     PPM
	// Shadowed ceilings refuse nobody. ShadowCalls is how many leases on this rung this dimension would have refused.
	Shadowed    bool
	ShadowCalls int64
	// Hold is until when the provider asked to wait for this dimension, logical ns; 0 is none.
	Hold int64
}

// RungRow is one model at one provider.
type RungRow struct {
	Number          uint32
	Provider, Model string
	Gauges          []GaugeRow
	Headroom        PPM
	Breaker         BreakerState
	Failures        int64
	// Until is when an open breaker probes or a hold of the whole rung ends, logical ns; 0 is neither.
	Until int64
	// P50, P99 and TTL are learned, ns; Calls is how many calls taught them.
	P50, P99, TTL, Calls int64
	// Rates are today's; nil when no price is in force.
	Rates *Rates
	// Running is how many leases are open.
	Running int64
	// Uncached is the learned part of prompts that is not read from a cache; Whole until exact usage was seen.
	Uncached PPM
	// Ramp is the part of its ceilings that the rung may use since it came back from an open breaker; Whole but on the ramp.
	Ramp PPM
	// ShadowCalls is how many leases something else than a ceiling or a budget would have refused in shadow mode: a class share, a
	// hold, the breaker, the queue, a credential's caps.
	ShadowCalls int64
}

// RungRows lists the rungs of the policy in its order.
func (s *State) RungRows() []RungRow {
	if s.rules == nil {
		return nil
	}
	var list []RungRow
	for i := range s.rules.providers {
		for _, number := range s.rules.providers[i].rungs {
			list = append(list, s.rungRow(number))
		}
	}
	return list
}

func (s *State) rungRow(number uint32) RungRow {
	r, rung, h := s.rules.rungs[number], s.rungs.at(number), s.health(number)
	b := s.breaker(rung)
	row := RungRow{
		Number: number, Provider: s.rules.providers[r.provider].name, Model: r.model.Name, Headroom: s.rateHeadroom(r, h),
		Breaker: BreakerState(b.state), Failures: b.failures,
		P50: rung.latency.p50, P99: rung.latency.p99, Calls: rung.latency.seen, TTL: s.ttl(rung), Running: s.nodes.at(r.row).open, ShadowCalls: rung.shadowed[DimNone],
	}
	row.Uncached, row.Ramp = rung.freshRatio(), s.ramped(rung)
	if h.reason != ReasonNone {
		row.Until = h.until
	}
	if p := PriceAt(r.model.Prices, s.wall); p != nil {
		row.Rates = &p.Rates
	}
	for i := range r.gauges {
		g := &r.gauges[i]
		used, held := s.load(g)
		inForce := rung.inForce(g)
		gr := GaugeRow{Dim: g.dim, Kind: g.kind, Scope: g.name, Ceiling: g.ceiling, InForce: inForce, Used: used, Held: held,
			Headroom: Whole - min(ratio(used+held, inForce), Whole), Shadowed: g.shadow, ShadowCalls: rung.shadowed[g.dim]}
		if g.dim != DimRPD && row.Ramp < Whole {
			gr.InForce = min(gr.InForce, max(row.Ramp.share(g.ceiling), 1))
		}
		if until := max(rung.holds[g.dim], rung.holds[DimNone]); until > s.now {
			gr.Hold = until
		}
		row.Gauges = append(row.Gauges, gr)
	}
	return row
}

// ClassRow is one agent class.
type ClassRow struct {
	Name     string
	Share    PPM
	Priority Priority
	// Running is its open leases; Requests and Tokens what it was granted in the last 60 s.
	Running, Requests, Tokens int64
	// Spent, Held and Assumed are tokens of the open period; Allowed is what it may commit now, Unlimited without shares.
	Spent, Held, Assumed, Allowed int64
	// Guarantee is its part of the token ceilings, a minute.
	Guarantee int64
}

// ClassRows lists the classes of the policy in its order.
func (s *State) ClassRows() []ClassRow {
	if s.rules == nil {
		return nil
	}
	var list []ClassRow
	b := s.current()
	for i := range s.rules.classes {
		c := &s.rules.classes[i]
		a := s.balance(b, c.row)
		row := ClassRow{Name: c.Name, Share: c.Share, Priority: c.Priority, Running: s.nodes.at(c.row).open,
			Requests: s.meters.at(c.meters[0]).sum, Tokens: s.meters.at(c.meters[1]).sum,
			Spent: a.spent.tokens, Held: a.held.tokens, Assumed: a.assumed.tokens, Allowed: Unlimited,
			Guarantee: c.Share.share(s.rules.tokens - s.rules.rateAbove[c.Priority].share(s.rules.tokens))}
		if l := s.nodes.at(0).limit.Tokens; l != Unlimited && len(s.rules.classes) > 1 && s.rules.unassigned < Whole {
			_, row.Allowed, _ = s.classRoom(c, b, UnitTokens, int64(l), 0)
		}
		list = append(list, row)
	}
	return list
}

// LeaseFilter chooses leases; empty strings and the zero id choose all.
type LeaseFilter struct {
	Lease                        LeaseID
	Agent, Class, Provider, Task string
	// Ended includes committed, released, assumed and returned leases that are not forgotten yet.
	Ended bool
	// Limit bounds the rows of LeaseRows; 0 is 1,000.
	Limit int
}

// LeaseRow is one lease with its names.
type LeaseRow struct {
	LeaseState
	Agent, Task, Workflow string
	Parent                LeaseID
	Flags                 Flags
	SpentTokens           Tokens
	SpentNanos            Nanos
}

// LeaseRows lists leases in table order.
func (s *State) LeaseRows(f LeaseFilter) []LeaseRow {
	if f.Limit == 0 {
		f.Limit = 1000
	}
	var list []LeaseRow
	s.EachLease(f, func(r *LeaseRow) bool {
		list = append(list, *r)
		return len(list) < f.Limit
	})
	return list
}

// EachLease gives take the leases of a filter in table order, one by one, until it returns false. take must not keep the row.
func (s *State) EachLease(f LeaseFilter, take func(*LeaseRow) bool) {
	first, end := uint32(0), s.leases.n
	if f.Lease != (LeaseID{}) {
		l, slot := s.findSlot(f.Lease)
		if l == nil {
			return
		}
		first, end = slot, slot+1
	}
	for slot := first; slot < end; slot++ {
		l := s.leases.at(slot)
		if l.phase() == PhaseNone || !f.Ended && !l.phase().Live() {
			continue
		}
		if f.Agent != "" && f.Agent != s.nodes.at(l.agent).name {
			continue
		}
		row := LeaseRow{LeaseState: s.leaseState(l), Agent: s.nodes.at(l.agent).name, Parent: l.parent, Flags: l.flags(),
			SpentTokens: Tokens(l.spentTokens), SpentNanos: Nanos(l.spentNanos)}
		if l.task != 0 {
			row.Task = s.nodes.at(l.task).name
		}
		if l.workflow != 0 {
			row.Workflow = s.nodes.at(l.workflow).name
		}
		if f.Class != "" && f.Class != row.Class || f.Provider != "" && f.Provider != row.Provider || f.Task != "" && f.Task != row.Task {
			continue
		}
		if !take(&row) {
			return
		}
	}
}

// Counts are totals of the lease table.
type Counts struct {
	// Phases counts leases by Phase.
	Phases [int(Returned) + 1]int64
	// Unattributed is spend that came after commit_by and is in no budget.
	UnattributedCalls  int64
	UnattributedTokens Tokens
	UnattributedNanos  Nanos
}

// Counts returns the totals; it costs nothing.
func (s *State) Counts() Counts {
	return Counts{s.live, s.unattributed.calls, Tokens(s.unattributed.tokens), Nanos(s.unattributed.nanos)}
}

// Running is how many leases are open: reserved, active or revoked.
func (c *Counts) Running() int64 {
	return c.Phases[Reserved] + c.Phases[Active] + c.Phases[RevokedPhase]
}
