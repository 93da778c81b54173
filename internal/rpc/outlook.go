package rpc

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/engine"
	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
)

// routeOf is the way of a request through the budgets as far as it is known before the grant; nil when its limits are not wanted.
func routeOf(m *tbav1.LeaseRequest) *arbiter.Route {
	if !m.GetWantLimits() {
		return nil
	}
	return &arbiter.Route{Agent: m.GetAgentId(), Workflow: m.GetWorkflowId(), Task: m.GetTaskId()}
}

// addLimits tells a grant what is left on its way.
func (s *Server) addLimits(m *tbav1.LeaseResponse, o *engine.Outcome, pool string, route *arbiter.Route) {
	seen := s.reader.Outlook(pool)
	if seen == nil || o.Answer.Status != arbiter.Granted {
		return
	}
	l := &o.Answer.Lease
	route.Rung, route.Class = arbiter.Rung{Provider: l.Provider, Model: l.Model}, l.Class
	if c := seen.Tightest(route); c != nil {
		state := &tbav1.LimitState{Name: c.LimitName(), Unit: c.UnitName(), Limit: c.Limit, Used: c.Used, Held: c.Held}
		if c.ResetsAt > 0 {
			state.ResetsAt = timestamppb.New(time.Unix(0, c.ResetsAt))
		}
		m.Limits = append(m.Limits, state)
	}
	for _, g := range seen.Ceilings[route.Rung] {
		state := &tbav1.LimitState{Name: g.Dim.String(), Unit: arbiter.UnitTokens.String(), Limit: g.Ceiling, Used: g.Used, Held: g.Held}
		if g.Dim == arbiter.DimRPM || g.Dim == arbiter.DimRPD {
			state.Unit = arbiter.UnitRequests.String()
		}
		if g.Dim != arbiter.DimRPD { // a window is whole again when its last charge has left it
			reset := int64(0)
			if g.Used+g.Held > 0 {
				reset = time.Minute.Milliseconds()
			}
			state.ResetMs = &reset
		}
		m.Limits = append(m.Limits, state)
	}
}
