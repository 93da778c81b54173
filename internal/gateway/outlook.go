package gateway

import (
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/provider"
)

// figuresOf are what o saw on the path of a lease for model at a provider: the budget with the smallest part left, and the ceilings of its
// rung. What an answer tells an agent need not be of this very moment. o is nil where nobody has looked yet.
func figuresOf(o *arbiter.Outlook, a *Ask, at, model string) (tightest *arbiter.Check, limits []provider.Limit) {
	if o == nil {
		return nil, nil
	}
	route := arbiter.Route{Rung: arbiter.Rung{Provider: at, Model: model}, Class: a.Class, Agent: a.Agent, Workflow: a.Workflow, Task: a.Task}
	if ceilings := o.Ceilings[route.Rung]; len(ceilings) > 0 {
		limits = make([]provider.Limit, len(ceilings))
		for i := range ceilings {
			limits[i] = limitOf(&ceilings[i])
		}
	}
	return o.Tightest(&route), limits
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
