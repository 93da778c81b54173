package gateway

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/provider"
)

const (
	// outlookAge is how old the figures in answer headers may be while calls come in.
	outlookAge = time.Second
	// outlookShare bounds the work: after a look that took d, none for outlookShare·d.
	outlookShare = 100
	// outlookRows bounds how many budgets of agents, workflows and tasks are remembered.
	outlookRows = 10_000
)

// outlook remembers what is left of budgets and ceilings, for the headers of answers: what an agent is told there need not be of this
// very moment, and no call waits for it. Safe for concurrent use.
type outlook struct {
	view func(ctx context.Context, pool string, fn func(*arbiter.State) error) error

	mu    sync.Mutex
	pools map[string]*glances
}

// glances are the looks at one pool.
type glances struct {
	busy atomic.Bool
	next atomic.Int64 // Unix ns
	last atomic.Pointer[glance]
}

// glance is one look. Immutable.
type glance struct {
	budgets map[budgetName][]arbiter.Check // limited ones; tokens and money
	kinds   uint                           // bit per kind that budgets has
	rungs   map[rung][]provider.Limit
}

type rung struct{ provider, model string }

type budgetName struct {
	kind   arbiter.NodeKind
	parent string // a model's provider
	name   string
}

func newOutlook(view func(context.Context, string, func(*arbiter.State) error) error) *outlook {
	return &outlook{view: view, pools: map[string]*glances{}}
}

// freshen looks again in the background when it is time to; a grant is the moment for it: its answer comes later.
func (o *outlook) freshen(pool string) *glances {
	o.mu.Lock()
	g := o.pools[pool]
	if g == nil {
		g = &glances{}
		o.pools[pool] = g
	}
	o.mu.Unlock()
	if now := time.Now(); now.UnixNano() >= g.next.Load() && g.busy.CompareAndSwap(false, true) {
		go func() {
			defer g.busy.Store(false)
			ctx, cancel := context.WithTimeout(context.Background(), outlookAge)
			defer cancel()
			began := time.Now()
			if seen, err := o.look(ctx, pool); err == nil { // without, the headers are left out or stay as they were
				g.last.Store(seen)
			}
			g.next.Store(began.Add(max(outlookAge, outlookShare*time.Since(began))).UnixNano())
		}()
	}
	return g
}

func (o *outlook) look(ctx context.Context, pool string) (*glance, error) {
	g := &glance{budgets: map[budgetName][]arbiter.Check{}, rungs: map[rung][]provider.Limit{}}
	err := o.view(ctx, pool, func(s *arbiter.State) error {
		s.EachBudget(0, func(r *arbiter.BudgetRow) {
			name := budgetName{r.Kind, r.Parent, r.Name}
			if r.Limit == arbiter.Unlimited || r.Shadowed || len(g.budgets) >= outlookRows && r.Kind > arbiter.KindClass {
				return
			}
			g.kinds |= 1 << r.Kind
			g.budgets[name] = append(g.budgets[name], arbiter.Check{
				ScopeKind: r.Kind, Scope: r.Name, Unit: r.Unit, Limit: r.Limit, Used: r.Spent + r.Assumed, Held: r.Held, ResetsAt: r.Bounds.End,
			})
		}, arbiter.KindGlobal, arbiter.KindProvider, arbiter.KindModel, arbiter.KindClass, arbiter.KindAgent, arbiter.KindWorkflow, arbiter.KindTask)
		for _, r := range s.RungRows() {
			name := rung{r.Provider, r.Model}
			for i := range r.Gauges {
				g.rungs[name] = tighten(g.rungs[name], &r.Gauges[i])
			}
		}
		return nil
	})
	return g, err
}

// tighten adds a ceiling to the limits of a rung; of two of one dimension, a provider's and a model's, the one with less left stays.
func tighten(list []provider.Limit, g *arbiter.GaugeRow) []provider.Limit {
	if g.Shadowed || g.Dim == arbiter.DimSlots {
		return list
	}
	l := provider.Limit{Dim: g.Dim, Per: time.Minute, Limit: g.Ceiling, Remaining: max(g.Ceiling-g.Used-g.Held, 0), HasReset: true}
	switch {
	case g.Dim == arbiter.DimRPD:
		l.Per, l.HasReset = 24*time.Hour, false
	case g.Used+g.Held > 0: // a window is whole again when its last charge has left it
		l.Reset = time.Minute
	}
	for i := range list {
		if list[i].Dim == l.Dim {
			if l.Remaining < list[i].Remaining {
				list[i] = l
			}
			return list
		}
	}
	return append(list, l)
}

// of is what the last look saw on the path of a lease for model at a provider: the budget with the smallest part left, and the ceilings of its rung.
func (g *glances) of(a *Ask, at, model string) (tightest *arbiter.Check, limits []provider.Limit) {
	seen := g.last.Load()
	if seen == nil {
		return nil, nil
	}
	least := 2.0
	for _, name := range [...]budgetName{
		{kind: arbiter.KindGlobal}, {arbiter.KindProvider, "", at}, {arbiter.KindModel, at, model}, {arbiter.KindClass, "", a.Class},
		{arbiter.KindAgent, "", a.Agent}, {arbiter.KindWorkflow, "", a.Workflow}, {arbiter.KindTask, "", a.Task},
	} {
		if seen.kinds&(1<<name.kind) == 0 {
			continue
		}
		budgets := seen.budgets[name]
		for i := range budgets {
			c := &budgets[i]
			if left := float64(c.Limit-c.Used-c.Held) / float64(max(c.Limit, 1)); left < least {
				least, tightest = left, c
			}
		}
	}
	return tightest, seen.rungs[rung{at, model}]
}
