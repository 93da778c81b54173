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
	*arbiter.Outlook
	limits map[arbiter.Rung][]provider.Limit
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
	g := &glance{limits: map[arbiter.Rung][]provider.Limit{}}
	if err := o.view(ctx, pool, func(s *arbiter.State) error {
		g.Outlook = s.Outlook(outlookRows)
		return nil
	}); err != nil {
		return nil, err
	}
	for rung, ceilings := range g.Ceilings {
		for i := range ceilings {
			g.limits[rung] = append(g.limits[rung], limitOf(&ceilings[i]))
		}
	}
	return g, nil
}

// limitOf is a ceiling as limit headers state it.
func limitOf(g *arbiter.GaugeRow) provider.Limit {
	l := provider.Limit{Dim: g.Dim, Per: time.Minute, Limit: g.Ceiling, Remaining: g.Left(), HasReset: true}
	switch {
	case g.Dim == arbiter.DimRPD:
		l.Per, l.HasReset = 24*time.Hour, false
	case g.Used+g.Held > 0: // a window is whole again when its last charge has left it
		l.Reset = time.Minute
	}
	return l
}

// of is what the last look saw on the path of a lease for model at a provider: the budget with the smallest part left, and the ceilings of its rung.
func (g *glances) of(a *Ask, at, model string) (tightest *arbiter.Check, limits []provider.Limit) {
	seen := g.last.Load()
	if seen == nil {
		return nil, nil
	}
	route := arbiter.Route{Rung: arbiter.Rung{Provider: at, Model: model}, Class: a.Class, Agent: a.Agent, Workflow: a.Workflow, Task: a.Task}
	return seen.Tightest(&route), seen.limits[route.Rung]
}
