package arbiter

// Outlook is what was left of budgets and ceilings at one moment, to be told to callers: what they read need not be of this very moment, and
// no decision waits for it. Immutable, so safe for concurrent use.
type Outlook struct {
	// Ceilings are those of each rung that refuse, the tightest of each dimension: of two, a provider's and a model's, the one with less left.
	// Running calls have no ceiling here: theirs is not a rate.
	Ceilings map[Rung][]GaugeRow

	budgets map[budgetKey][]Check
}

type budgetKey struct {
	kind         NodeKind
	parent, name string
}

// Route is the way of a lease through the budgets. Empty names are on no way, except the class and the agent without one.
type Route struct {
	Rung
	Class, Agent, Workflow, Task string
}

// Outlook looks at everything; of agents, workflows and tasks it keeps at most about most rows.
func (s *State) Outlook(most int) *Outlook {
	o := &Outlook{Ceilings: map[Rung][]GaugeRow{}, budgets: map[budgetKey][]Check{}}
	s.EachBudget(0, func(r *BudgetRow) {
		if r.Limit == Unlimited || r.Shadowed || len(o.budgets) >= most && r.Kind > KindClass {
			return
		}
		key := budgetKey{r.Kind, r.Parent, r.Name}
		o.budgets[key] = append(o.budgets[key], Check{
			ScopeKind: r.Kind, Scope: r.Name, Provider: r.Parent, Unit: r.Unit, Limit: r.Limit, Used: r.Spent + r.Assumed, Held: r.Held, ResetsAt: r.Bounds.End,
		})
	}, KindGlobal, KindProvider, KindModel, KindClass, KindAgent, KindWorkflow, KindTask)
	for _, r := range s.RungRows() {
		var list []GaugeRow
		for i := range r.Gauges {
			list = tighten(list, &r.Gauges[i])
		}
		o.Ceilings[Rung{r.Provider, r.Model}] = list
	}
	return o
}

func tighten(list []GaugeRow, g *GaugeRow) []GaugeRow {
	if g.Shadowed || g.Dim == DimSlots {
		return list
	}
	for i := range list {
		if list[i].Dim == g.Dim {
			if g.Left() < list[i].Left() {
				list[i] = *g
			}
			return list
		}
	}
	return append(list, *g)
}

// Left is what the ceiling still has, in its unit; 0 when it is passed.
func (g *GaugeRow) Left() int64 { return max(g.Ceiling-g.Used-g.Held, 0) }

// Tightest is the budget with the smallest part left on a lease's way; nil when none there is limited. It must not be changed.
func (o *Outlook) Tightest(r *Route) (tightest *Check) {
	least := PPM(0)
	for _, key := range [...]budgetKey{
		{kind: KindGlobal}, {KindProvider, "", r.Provider}, {KindModel, r.Provider, r.Model}, {KindClass, "", r.Class},
		{KindAgent, "", r.Agent}, {KindWorkflow, "", r.Workflow}, {KindTask, "", r.Task},
	} {
		list := o.budgets[key]
		for i := range list {
			c := &list[i]
			if left := ratio(c.Limit-c.Used-c.Held, max(c.Limit, 1)); tightest == nil || left < least {
				least, tightest = left, c
			}
		}
	}
	return tightest
}
