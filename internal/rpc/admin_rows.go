package rpc

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/engine"
	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
)

// ListProviders returns limits, use, health and price: per provider one row without model, then one per model.
func (s *adminService) ListProviders(ctx context.Context, m *tbav1.ListProvidersRequest) (*tbav1.ListProvidersResponse, error) {
	pool, err := s.readPool(ctx, m.GetPool())
	if err != nil {
		return nil, toStatus(err)
	}
	out := &tbav1.ListProvidersResponse{}
	if err := s.view(ctx, pool, func(st *arbiter.State) error {
		rows := st.RungRows()
		for i := 0; i < len(rows); {
			n := i
			for n < len(rows) && rows[n].Provider == rows[i].Provider {
				n++
			}
			if m.GetProvider() == "" || m.GetProvider() == rows[i].Provider {
				out.Providers = append(out.Providers, providerRow(st, rows[i:n], pool))
				for j := i; j < n; j++ {
					if rows[j].Model != "" {
						out.Providers = append(out.Providers, modelRow(st, &rows[j], pool))
					}
				}
			}
			i = n
		}
		return nil
	}); err != nil {
		return nil, toStatus(err)
	}
	return out, nil
}

// providerRow is a provider as a whole: its own ceilings, the health of its best rung.
func providerRow(st *arbiter.State, rungs []arbiter.RungRow, pool string) *tbav1.Provider {
	best := &rungs[0]
	var leases int64
	for i := range rungs {
		leases += rungs[i].Running
		if rungs[i].Headroom > best.Headroom {
			best = &rungs[i]
		}
	}
	p := modelRow(st, best, pool)
	p.Model, p.Leases = "", leases
	if best.Model != "" {
		p.Dimensions = p.Dimensions[:0]
		for i, g := range best.Gauges {
			if g.Kind == arbiter.KindProvider {
				p.Dimensions = append(p.Dimensions, dimension(st, &best.Gauges[i]))
			}
		}
	}
	return p
}

func modelRow(st *arbiter.State, r *arbiter.RungRow, pool string) *tbav1.Provider {
	p := &tbav1.Provider{
		Name: r.Provider, Model: r.Model, Dimensions: dimensions(st, r), Headroom: fraction(r.Headroom),
		ConsecutiveFailures: int32(min(r.Failures, math.MaxInt32)), Ramp: fraction(r.Ramp), Leases: r.Running,
		LatencyP50Ms: r.P50 / nanosPerMilli, LatencyP99Ms: r.P99 / nanosPerMilli, Pool: pool,
	}
	switch r.Breaker {
	case arbiter.BreakerOpen:
		p.Breaker, p.BreakerUntil = tbav1.Provider_OPEN, stamp(wallOf(st, r.Until))
	case arbiter.BreakerProbing:
		p.Breaker = tbav1.Provider_PROBING
	case arbiter.BreakerClosed:
		if r.Ramp < arbiter.Whole {
			p.Breaker = tbav1.Provider_RAMP
		}
	}
	if r.Rates != nil {
		p.Price = &tbav1.Provider_Price{
			InputPico: int64(r.Rates.Input), OutputPico: int64(r.Rates.Output), CacheReadPico: int64(r.Rates.CacheRead),
			CacheWritePico: int64(r.Rates.CacheWrite), CacheWriteLongPico: int64(r.Rates.CacheWriteLong), Source: "config",
		}
	}
	return p
}

func dimensions(st *arbiter.State, r *arbiter.RungRow) []*tbav1.Provider_Dimension {
	var list []*tbav1.Provider_Dimension
	for i := range r.Gauges {
		list = append(list, dimension(st, &r.Gauges[i]))
	}
	return list
}

func dimension(st *arbiter.State, g *arbiter.GaugeRow) *tbav1.Provider_Dimension {
	return &tbav1.Provider_Dimension{
		Name: g.Dim.String(), Ceiling: g.Ceiling, InForce: g.InForce, Used: g.Used, Held: g.Held, Shadow: g.Shadowed, ShadowRefused: g.ShadowCalls,
		Headroom: fraction(g.Headroom), HoldUntil: stamp(wallOf(st, g.Hold)),
	}
}

// ListLeases returns leases by age, oldest first. A page token is the place of the last row: rows that end meanwhile shift nothing.
func (s *adminService) ListLeases(ctx context.Context, m *tbav1.ListLeasesRequest) (*tbav1.ListLeasesResponse, error) {
	pool, err := s.readPool(ctx, m.GetPool())
	if err != nil {
		return nil, toStatus(err)
	}
	limit, err := pageSize(m.GetLimit(), defaultPage)
	if err != nil {
		return nil, toStatus(err)
	}
	after, err := parsePage(m.GetPageToken())
	if err != nil {
		return nil, toStatus(err)
	}
	filter := arbiter.LeaseFilter{
		Agent: m.GetAgentId(), Class: m.GetAgentClass(), Task: m.GetTaskId(), Provider: m.GetProvider(), Ended: m.GetIncludeEnded(),
	}
	if m.GetLeaseId() != "" {
		if filter.Lease, err = parseLease("lease_id", m.GetLeaseId()); err != nil {
			return nil, toStatus(err)
		}
	}
	out := &tbav1.ListLeasesResponse{}
	page := pageOf[arbiter.LeaseRow]{size: limit, compare: func(a, b *arbiter.LeaseRow) int { return comparePlace(placeOf(a), placeOf(b)) }}
	if err := s.view(ctx, pool, func(st *arbiter.State) error {
		st.EachLease(filter, func(r *arbiter.LeaseRow) bool {
			out.Total++
			if comparePlace(placeOf(r), after) > 0 {
				page.offer(r)
			}
			return true
		})
		rows, more := page.done()
		for i := range rows {
			out.Leases = append(out.Leases, toLease(st, &rows[i], pool))
		}
		if more {
			out.NextPageToken = placeOf(&rows[len(rows)-1]).String()
		}
		return nil
	}); err != nil {
		return nil, toStatus(err)
	}
	return out, nil
}

func toLease(st *arbiter.State, r *arbiter.LeaseRow, pool string) *tbav1.Lease {
	m := &tbav1.Lease{
		LeaseId: engine.FormatLeaseID(r.Lease), AgentId: r.Agent, AgentClass: r.Class, Provider: r.Provider, Model: r.Model,
		Phase: tbav1.Lease_Phase(r.Phase), Tokens: int64(r.Tokens()), CostNanos: int64(r.Nanos), AgeMs: floorMillis(st.Now() - r.Granted),
		TaskId: r.Task, WorkflowId: r.Workflow, Priority: tbav1.Priority(r.Priority), ParentLeaseId: engine.FormatLeaseID(r.Parent), Pool: pool,
	}
	if r.Phase.Live() {
		m.ExpiresInMs = floorMillis(r.Deadline - st.Now())
	} else {
		m.Tokens, m.CostNanos = int64(r.SpentTokens), int64(r.SpentNanos)
	}
	return m
}

// groupings are the budget kinds a usage report can be grouped by, one at a time: the books count each apart, not their combinations.
var groupings = map[string]arbiter.NodeKind{
	"": arbiter.KindGlobal, "provider": arbiter.KindProvider, "model": arbiter.KindModel, "class": arbiter.KindClass,
	"agent": arbiter.KindAgent, "workflow": arbiter.KindWorkflow, "task": arbiter.KindTask,
}

// ReportUsage sums what was spent in a period, by one grouping.
func (s *adminService) ReportUsage(ctx context.Context, m *tbav1.ReportUsageRequest) (*tbav1.ReportUsageResponse, error) {
	pool, err := s.readPool(ctx, m.GetPool())
	if err != nil {
		return nil, toStatus(err)
	}
	number, err := periodNumber(m.GetPeriodId())
	if err != nil {
		return nil, toStatus(err)
	}
	by := strings.Join(m.GetGroupBy(), ",")
	kind, ok := groupings[by]
	if !ok {
		return nil, toStatus(invalid("group_by", "bad_group_by", "%q: name one of provider, model, class, agent, workflow, task", cut(by)))
	}
	out := &tbav1.ReportUsageResponse{}
	rows := map[string]*tbav1.ReportUsageResponse_Row{}
	if err := s.view(ctx, pool, func(st *arbiter.State) error {
		known := st.EachBudget(number, func(b *arbiter.BudgetRow) {
			if b.Kind == arbiter.KindGlobal {
				out.PeriodId = strconv.FormatUint(uint64(b.Period), 10)
				out.PeriodStart, out.PeriodEnd = stamp(b.Bounds.Start), stamp(b.Bounds.End)
			}
			if b.Kind != kind {
				return
			}
			name := nodeName(b.Kind, b.Parent, b.Name)
			row := rows[name]
			if row == nil {
				row = usageRow(b)
				rows[name] = row
				out.Rows = append(out.Rows, row)
			}
			if b.Unit == arbiter.UnitNanos {
				row.CostNanos = b.Spent + b.Assumed
			} else {
				row.Tokens, row.Leases = b.Spent+b.Assumed, b.Calls
			}
		}, kind, arbiter.KindGlobal)
		if !known && number != 0 {
			return unknownPeriod(m.GetPeriodId())
		}
		return nil
	}); err != nil {
		return nil, toStatus(err)
	}
	slices.SortStableFunc(out.Rows, func(a, b *tbav1.ReportUsageResponse_Row) int {
		return cmp.Or(cmp.Compare(b.CostNanos, a.CostNanos), cmp.Compare(b.Tokens, a.Tokens))
	})
	return out, nil
}

func usageRow(b *arbiter.BudgetRow) *tbav1.ReportUsageResponse_Row {
	row := &tbav1.ReportUsageResponse_Row{}
	switch b.Kind {
	case arbiter.KindProvider:
		row.Provider = b.Name
	case arbiter.KindModel:
		row.Provider, row.Model = b.Parent, b.Name
	case arbiter.KindClass:
		row.AgentClass = b.Name
	case arbiter.KindAgent:
		row.AgentId = b.Name
	case arbiter.KindWorkflow:
		row.WorkflowId = b.Name
	case arbiter.KindTask:
		row.TaskId = b.Name
	}
	return row
}
