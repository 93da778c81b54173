package rpc

import (
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/engine"
	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
)

const (
	// outlookAge is how old the limits of an answer may be while requests come in.
	outlookAge = time.Second
	// outlookShare bounds the work: after a look that took d, none for outlookShare·d.
	outlookShare = 100
	// outlookRows bounds how many budgets of agents, workflows and tasks are remembered.
	outlookRows = 10_000
)

// outlook is the latest look at a pool.
type outlook struct {
	busy atomic.Bool
	next atomic.Int64 // Unix ns
	last atomic.Pointer[arbiter.Outlook]
}

// routeOf is the way of a request through the budgets as far as it is known before the grant; nil when its limits are not wanted.
func routeOf(m *tbav1.LeaseRequest) *arbiter.Route {
	if !m.GetWantLimits() {
		return nil
	}
	return &arbiter.Route{Agent: m.GetAgentId(), Workflow: m.GetWorkflowId(), Task: m.GetTaskId()}
}

// outlook is what is known of a pool; nil before the first look. It looks again in the background when it is time to: no answer waits for it.
func (s *Server) outlook(pool string) *arbiter.Outlook {
	v, ok := s.outlooks.Load(pool)
	if !ok {
		v, _ = s.outlooks.LoadOrStore(pool, new(outlook))
	}
	o, _ := v.(*outlook)
	if time.Now().UnixNano() >= o.next.Load() && o.busy.CompareAndSwap(false, true) {
		go func() {
			defer o.busy.Store(false)
			ctx, cancel := context.WithTimeout(context.Background(), outlookAge)
			defer cancel()
			began := time.Now()
			err := s.reader.View(ctx, pool, func(st *arbiter.State) error {
				o.last.Store(st.Outlook(outlookRows))
				return nil
			})
			if err != nil {
				s.log.Debug("limits for answers are not renewed", "pool", pool, "error", err)
			}
			o.next.Store(began.Add(max(outlookAge, outlookShare*time.Since(began))).UnixNano())
		}()
	}
	return o.last.Load()
}

// addLimits tells a grant what is left on its way.
func (s *Server) addLimits(m *tbav1.LeaseResponse, o *engine.Outcome, pool string, route *arbiter.Route) {
	seen := s.outlook(pool)
	if seen == nil || o.Answer.Status != arbiter.Granted {
		return
	}
	l := &o.Answer.Lease
	route.Rung, route.Class = arbiter.Rung{Provider: l.Provider, Model: l.Model}, l.Class
	if c := seen.Tightest(route); c != nil {
		state := &tbav1.LimitState{Name: limitName(c), Unit: limitUnit(c), Limit: c.Limit, Used: c.Used, Held: c.Held}
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
