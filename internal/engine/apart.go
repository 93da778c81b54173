package engine

import (
	"math"

	"github.com/token-budget-arbiter/tba/arbiter"
)

// apart are the shapes of waiters that are held up by a budget of their own:
// one for each task, say. They keep nothing from others and may be many, so
// they are asked together and rest in between.
type apart struct {
	levels  [arbiter.Critical + 1][]*shape
	count   int
	news    bool  // room may have appeared since they were asked
	due     bool  // they are being asked
	asking  int   // counts the times
	restTo  int64 // logical time before which news do not count
	readyAt int64 // logical time at which one of them is worth asking without news
}

// begin decides whether the shapes apart are asked in this pass.
func (a *apart) begin(dirty bool, now int64) {
	a.news = a.news || dirty
	if !a.due && a.count > 0 && (a.news && now >= a.restTo || now >= a.readyAt) {
		a.due, a.news = true, false
		a.asking++
	}
}

// end notes that all were asked, or left out for good reason.
func (a *apart) end(now int64) {
	if !a.due {
		return
	}
	a.due, a.restTo, a.readyAt = false, now+int64(a.count)*shapeRest, math.MaxInt64
	for level := range a.levels {
		for _, s := range a.levels[level] {
			a.readyAt = min(a.readyAt, s.readyAt)
		}
	}
}

// ownScope names the budget of a single caller that a request waits for.
func ownScope(c *arbiter.Check) (kind arbiter.NodeKind, scope string, ok bool) {
	if c.Reason != arbiter.ReasonBudget && c.Reason != arbiter.ReasonPrincipal {
		return 0, "", false
	}
	switch c.ScopeKind {
	case arbiter.KindAgent, arbiter.KindWorkflow, arbiter.KindTask, arbiter.KindCredential:
		return c.ScopeKind, c.Scope, true
	}
	return 0, "", false
}
