package rpc

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/engine"
	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
	"github.com/token-budget-arbiter/tba/internal/identity"
)

// adminService reads what the arbiter knows, from the confirmed state, and lets operators act on it.
type adminService struct {
	tbav1.UnimplementedAdminServer
	*Server
}

// readPool is the pool of a read by somebody who may read it.
func (s *Server) readPool(ctx context.Context, asked string) (string, *arbiter.Error) {
	c, err := s.gate.caller(ctx, identity.ActionRead)
	if err != nil {
		return "", err
	}
	if err := checkID("pool", asked); err != nil {
		return "", err
	}
	return c.PoolFor(asked)
}

// stamp is an instant on the wire; absent for 0.
func stamp(unix int64) *timestamppb.Timestamp {
	if unix == 0 {
		return nil
	}
	return timestamppb.New(time.Unix(0, unix))
}

// wallOf turns a logical time of s into Unix time; 0 stays 0.
func wallOf(s *arbiter.State, at int64) int64 {
	if at == 0 {
		return 0
	}
	return s.Wall() + (at - s.Now())
}

// periodNumber reads a period id; 0 is the open one.
func periodNumber(id string) (uint32, *arbiter.Error) {
	if id == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(id, 10, 32)
	if err != nil || n == 0 {
		return 0, invalid("period_id", "unknown_period", "%q is no period id: use one of closed_periods, or none for the current period", cut(id))
	}
	return uint32(n), nil
}

func unknownPeriod(id string) *arbiter.Error {
	return arbiter.Errorf(arbiter.CodeNotFound, "unknown_period", "period_id %q is not kept: closed_periods lists those that are; older ones are in the archive of the journal", cut(id))
}

// ListBudgets returns the budget tree of one period, parents first.
func (s *adminService) ListBudgets(ctx context.Context, m *tbav1.ListBudgetsRequest) (*tbav1.ListBudgetsResponse, error) {
	pool, err := s.readPool(ctx, m.GetPool())
	if err != nil {
		return nil, toStatus(err)
	}
	number, err := periodNumber(m.GetPeriodId())
	if err != nil {
		return nil, toStatus(err)
	}
	size, err := pageSize(m.GetLimit(), maxPage)
	if err != nil {
		return nil, toStatus(err)
	}
	after, err := parseBudgetPage(m.GetPageToken())
	if err != nil {
		return nil, toStatus(err)
	}
	out := &tbav1.ListBudgetsResponse{}
	page := pageOf[arbiter.BudgetRow]{size: size, compare: compareBudgets}
	if err := s.view(ctx, pool, func(st *arbiter.State) error {
		known := st.EachBudget(number, func(r *arbiter.BudgetRow) {
			if after == nil || compareBudgets(r, after) > 0 {
				page.offer(r)
			}
		}, listedKinds...)
		if !known && number != 0 {
			return unknownPeriod(m.GetPeriodId())
		}
		for _, p := range st.Periods() {
			if p.Closed {
				out.ClosedPeriods = append(out.ClosedPeriods, strconv.FormatUint(uint64(p.Number), 10))
			}
		}
		return nil
	}); err != nil {
		return nil, toStatus(err)
	}
	rows, more := page.done()
	for i := range rows {
		out.Budgets = append(out.Budgets, toBudget(&rows[i], pool))
	}
	if more {
		out.NextPageToken = budgetPage(&rows[len(rows)-1])
	}
	return out, nil
}

// listedKinds are the budgets that are shown. Rows of credentials only count what one holds, under a hash for a name.
var listedKinds = []arbiter.NodeKind{
	arbiter.KindGlobal, arbiter.KindProvider, arbiter.KindModel, arbiter.KindClass, arbiter.KindAgent, arbiter.KindWorkflow, arbiter.KindTask,
}

// nodeName is the name of a budget row: "global", "provider/openai", "model/openai/gpt-5.4".
func nodeName(kind arbiter.NodeKind, parent, name string) string {
	switch {
	case kind == arbiter.KindGlobal:
		return kind.String()
	case parent != "" && name == "":
		return kind.String() + "/" + parent
	case parent != "":
		return kind.String() + "/" + parent + "/" + name
	}
	return kind.String() + "/" + name
}

func toBudget(r *arbiter.BudgetRow, pool string) *tbav1.Budget {
	b := &tbav1.Budget{
		Name: nodeName(r.Kind, r.Parent, r.Name), Kind: r.Kind.String(), Unit: "tokens", Pool: pool,
		Spent: r.Spent, Held: r.Held, Assumed: r.Assumed, Shadow: r.Shadowed, ShadowOver: r.Shadow, ShadowRefused: r.ShadowCalls,
		PeriodStart: stamp(r.Bounds.Start), PeriodEnd: stamp(r.Bounds.End),
	}
	if r.Period != 0 {
		b.PeriodId = strconv.FormatUint(uint64(r.Period), 10)
	}
	if r.Unit == arbiter.UnitNanos {
		b.Unit = "nano_usd"
	}
	if r.Limit == arbiter.Unlimited {
		b.Unlimited = true
		return b
	}
	b.Limit, b.Available = r.Limit, r.Available()
	b.OverBy = r.OverBy()
	return b
}

// ListClasses returns the agent classes, by name.
func (s *adminService) ListClasses(ctx context.Context, m *tbav1.ListClassesRequest) (*tbav1.ListClassesResponse, error) {
	pool, err := s.readPool(ctx, m.GetPool())
	if err != nil {
		return nil, toStatus(err)
	}
	var rows []arbiter.ClassRow
	costs := map[string]int64{}
	var limit arbiter.Tokens
	if err := s.view(ctx, pool, func(st *arbiter.State) error {
		rows = st.ClassRows()
		if p := st.Policy(); p != nil {
			limit = p.Global.Tokens
		}
		st.EachBudget(0, func(b *arbiter.BudgetRow) {
			if b.Unit == arbiter.UnitNanos {
				costs[b.Name] = b.Spent + b.Assumed
			}
		}, arbiter.KindClass)
		return nil
	}); err != nil {
		return nil, toStatus(err)
	}
	waiting := map[string]engine.WaitingRow{}
	for _, w := range s.reader.Waiting(pool) {
		sum := waiting[w.Class]
		sum.Count += w.Count
		sum.Oldest = max(sum.Oldest, w.Oldest)
		waiting[w.Class] = sum
	}
	out := &tbav1.ListClassesResponse{}
	for i := range rows {
		r := &rows[i]
		c := &tbav1.AgentClass{
			Name: r.Name, Share: fraction(r.Share), Priority: tbav1.Priority(r.Priority), Used: r.Spent + r.Assumed, Held: r.Held,
			Waiting: int32(waiting[r.Name].Count), Leases: int32(r.Running), CostNanos: costs[r.Name],
			OldestWaitMs: waiting[r.Name].Oldest.Milliseconds(), Pool: pool,
		}
		if limit != arbiter.Unlimited {
			c.Guarantee = shareOf(r.Share, int64(limit))
		}
		out.Classes = append(out.Classes, c)
	}
	slices.SortFunc(out.Classes, func(a, b *tbav1.AgentClass) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// shareOf is f of n, rounded down, without overflow: n is at most 2^53.
func shareOf(f arbiter.PPM, n int64) int64 {
	whole := int64(arbiter.Whole)
	return n/whole*int64(f) + n%whole*int64(f)/whole
}

// ListEvents returns recent events, oldest first.
func (s *adminService) ListEvents(ctx context.Context, m *tbav1.ListEventsRequest) (*tbav1.ListEventsResponse, error) {
	pool, err := s.readPool(ctx, m.GetPool())
	if err != nil {
		return nil, toStatus(err)
	}
	limit, err := pageSize(m.GetLimit(), defaultPage)
	if err != nil {
		return nil, toStatus(err)
	}
	var kinds []arbiter.EventKind
	for _, word := range m.GetTypes() {
		kind, ok := arbiter.EventKindOf(word)
		if !ok {
			return nil, toStatus(invalid("types", "unknown_event_type", "%q is no type of event", cut(word)))
		}
		kinds = append(kinds, kind)
	}
	// A look at the state waits until the follower has caught up: the events of every answer given so far are there then.
	if err := s.view(ctx, pool, func(*arbiter.State) error { return nil }); err != nil {
		return nil, toStatus(err)
	}
	page, fault := s.feed.Events(pool, m.GetSinceSequence(), limit, kinds...)
	if fault != nil {
		return nil, toStatus(s.refused(fault))
	}
	out := &tbav1.ListEventsResponse{OldestSequence: page.Oldest, LastSequence: page.Last}
	for i := range page.Events {
		out.Events = append(out.Events, toEvent(&page.Events[i], pool))
	}
	return out, nil
}

func toEvent(e *engine.Event, pool string) *tbav1.Event {
	m := &tbav1.Event{
		Sequence: e.Sequence, Time: stamp(e.Wall), Type: e.Kind.String(), LeaseId: engine.FormatLeaseID(e.Lease), AgentId: e.Agent,
		AgentClass: e.Class, Provider: e.Provider, Model: e.Model, Dimension: e.Dim.String(), Tokens: int64(e.Tokens), CostNanos: int64(e.Nanos),
		TaskId: e.Task, Pool: pool,
	}
	if e.Period != 0 {
		m.PeriodId = strconv.FormatUint(uint64(e.Period), 10)
	}
	if e.Until > e.At {
		m.RetryAfterMs = ceilMillis(e.Until - e.At)
	}
	switch e.Kind {
	case arbiter.EventBreaker:
		m.To = e.State.String()
		m.Message = fmt.Sprintf("breaker of %s is %s", rungName(e.Provider, e.Model), m.To)
	case arbiter.EventThrottled:
		if m.Reason = "provider_limit"; e.Exhausted {
			m.Reason = "provider_account"
			m.Message = fmt.Sprintf("the account at %s is used up, its key is refused, or the wait it named is a long one: shut for %d ms", rungName(e.Provider, e.Model), m.RetryAfterMs)
			break
		}
		m.Message = fmt.Sprintf("%s said that its own limit%s is reached and asked to wait %d ms", rungName(e.Provider, e.Model), spaced(m.Dimension), m.RetryAfterMs)
	case arbiter.EventPolicy:
		m.To = strconv.FormatUint(e.Version, 10)
		m.Message = "policy version " + m.To + " is in force"
	case arbiter.EventLeaseExpired:
		m.Reason = "ttl"
		m.Message = fmt.Sprintf("lease of agent %s expired with %d tokens held", e.Agent, e.Tokens)
	}
	return m
}

// spaced is a word behind others; nothing when it is not known.
func spaced(word string) string {
	if word == "" {
		return ""
	}
	return " of " + word
}

func rungName(provider, model string) string {
	if model == "" {
		return provider
	}
	return provider + "/" + model
}

// GetStatus returns the state of the server and of one pool.
func (s *adminService) GetStatus(ctx context.Context, m *tbav1.GetStatusRequest) (*tbav1.GetStatusResponse, error) {
	pool, err := s.readPool(ctx, m.GetPool())
	if err != nil {
		return nil, toStatus(err)
	}
	status, fault := s.reader.PoolStatus(pool)
	if fault != nil {
		return nil, toStatus(s.refused(fault))
	}
	out := &tbav1.GetStatusResponse{
		Version: s.about.Version, State: status.State, Message: status.Message, Pool: pool, Pools: s.reader.Pools(), Mode: "enforce",
		Journal: s.about.Journal, Epoch: status.Epoch, Sequence: status.Seq, UptimeMs: time.Since(s.started).Milliseconds(),
		Waiting: int64(status.Waiting), Subscribers: status.Subscribers, Writer: status.Writer, Warnings: s.about.Warnings,
	}
	if status.PolicyHash != [sha256.Size]byte{} {
		out.PolicyHash = hex.EncodeToString(status.PolicyHash[:8])
	}
	if page, err := s.feed.Events(pool, 0, 1, arbiter.EventPolicy); err == nil && len(page.Events) > 0 && page.Events[0].Version == status.PolicyVersion {
		out.PolicySince = stamp(page.Events[0].Wall)
	}
	if s.about.ConfigError != nil {
		out.ConfigError = s.about.ConfigError()
	}
	if err := s.view(ctx, pool, func(st *arbiter.State) error {
		counts := st.Counts()
		out.LeasesOpen = counts.Running()
		out.Backpressure = toSignalMessage(&engine.Pressure{Pressure: st.Pressure()})
		if p := st.Policy(); p != nil && p.Shadow {
			out.Mode = "shadow"
		}
		if periods := st.Periods(); len(periods) > 0 {
			now := periods[len(periods)-1]
			out.PeriodId = strconv.FormatUint(uint64(now.Number), 10)
			out.PeriodStart, out.PeriodEnd = stamp(now.Start), stamp(now.End)
		}
		return nil
	}); err != nil {
		return nil, toStatus(err)
	}
	return out, nil
}
