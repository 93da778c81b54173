package rpc

import (
	"context"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/engine"
	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
	"github.com/token-budget-arbiter/tba/internal/identity"
)

// RevokeLease tells a holder, or a tree of them, to stop. It is logged before it is answered.
func (s *adminService) RevokeLease(ctx context.Context, m *tbav1.RevokeLeaseRequest) (*tbav1.RevokeLeaseResponse, error) {
	c, err := s.gate.caller(ctx, identity.ActionAct)
	if err != nil {
		return nil, toStatus(err)
	}
	if err := firstError(checkID("pool", m.GetPool()), checkReason(m.GetReason())); err != nil {
		return nil, toStatus(err)
	}
	pool, err := c.PoolFor(m.GetPool())
	if err != nil {
		return nil, toStatus(err)
	}
	id, err := parseLease("lease_id", m.GetLeaseId())
	if err != nil {
		return nil, toStatus(err)
	}
	// The answer only counts: whom it has hit is seen by comparing.
	var members []arbiter.LeaseID
	var before, after map[arbiter.LeaseID]arbiter.Phase
	if err := s.view(ctx, pool, func(st *arbiter.State) error {
		_, before = family(st, id, m.GetTree())
		return nil
	}); err != nil {
		return nil, toStatus(err)
	}
	revoked := 0
	for more := true; more; { // a large tree takes several commands
		out, fault := s.engine.Do(ctx, engine.Op{Pool: pool, Command: &arbiter.Revoke{Lease: id, Tree: m.GetTree()}})
		if fault == nil && out.Answer.Result == arbiter.UnknownLease {
			fault = arbiter.Errorf(arbiter.CodeNotFound, "unknown_lease", "lease_id: no such lease in pool %s", pool)
		}
		if fault != nil {
			return nil, toStatus(s.refused(fault))
		}
		revoked, more = revoked+out.Answer.Revoked, out.Answer.More
	}
	s.log.InfoContext(ctx, "lease revoked", "actor", c.Name, "pool", pool, "lease", m.GetLeaseId(), "tree", m.GetTree(), "revoked", revoked, "reason", cleanText(m.GetReason()))
	if err := s.view(ctx, pool, func(st *arbiter.State) error {
		members, after = family(st, id, m.GetTree())
		return nil
	}); err != nil {
		return nil, toStatus(err)
	}
	out := &tbav1.RevokeLeaseResponse{}
	for _, id := range members {
		phase := after[id]
		if was, known := before[id]; phase == was && known {
			continue
		}
		if phase == arbiter.RevokedPhase || phase == arbiter.Returned { // one whose call had not begun ends at once
			out.LeaseIds = append(out.LeaseIds, engine.FormatLeaseID(id))
		}
	}
	return out, nil
}

// family is a lease and, with tree, all that descend from it, parents first, each with its phase.
func family(st *arbiter.State, root arbiter.LeaseID, tree bool) ([]arbiter.LeaseID, map[arbiter.LeaseID]arbiter.Phase) {
	members, phases := []arbiter.LeaseID{root}, map[arbiter.LeaseID]arbiter.Phase{}
	if l, ok := st.Lease(root); ok {
		phases[root] = l.Phase
	}
	if !tree {
		return members, phases
	}
	type child struct {
		id    arbiter.LeaseID
		phase arbiter.Phase
	}
	children := map[arbiter.LeaseID][]child{}
	st.EachLease(arbiter.LeaseFilter{Ended: true}, func(r *arbiter.LeaseRow) bool {
		if r.Parent != (arbiter.LeaseID{}) {
			children[r.Parent] = append(children[r.Parent], child{r.Lease, r.Phase})
		}
		return true
	})
	for i := 0; i < len(members); i++ {
		for _, c := range children[members[i]] {
			if _, seen := phases[c.id]; !seen { // parents are named by callers: they may form a ring
				phases[c.id] = c.phase
				members = append(members, c.id)
			}
		}
	}
	return members, phases
}

// checkReason wants a reason: an operator action without one cannot be understood later.
func checkReason(reason string) *arbiter.Error {
	if reason == "" {
		return invalid("reason", "missing", "empty: say why, it is audited")
	}
	return checkBytes("reason", len(reason), maxText)
}

// act refuses an action that does not exist yet, but only to somebody who might take it.
func (s *adminService) act(ctx context.Context, call, instead string) error {
	if _, err := s.gate.caller(ctx, identity.ActionAct); err != nil {
		return toStatus(err)
	}
	return toStatus(notBuilt(call, instead))
}

// RaiseBudget is not built yet.
func (s *adminService) RaiseBudget(ctx context.Context, _ *tbav1.RaiseBudgetRequest) (*tbav1.RaiseBudgetResponse, error) {
	return nil, s.act(ctx, "RaiseBudget", "change the limit in the file and reload it")
}

// DrainProvider is not built yet.
func (s *adminService) DrainProvider(ctx context.Context, _ *tbav1.DrainProviderRequest) (*tbav1.DrainProviderResponse, error) {
	return nil, s.act(ctx, "DrainProvider", "set the provider's allocated_tokens to what it has spent and reload the file")
}

// ResumeProvider is not built yet.
func (s *adminService) ResumeProvider(ctx context.Context, _ *tbav1.ResumeProviderRequest) (*tbav1.ResumeProviderResponse, error) {
	return nil, s.act(ctx, "ResumeProvider", "set the provider's allocated_tokens back and reload the file")
}

// ResetLearned is not built yet.
func (s *adminService) ResetLearned(ctx context.Context, _ *tbav1.ResetLearnedRequest) (*tbav1.ResetLearnedResponse, error) {
	return nil, s.act(ctx, "ResetLearned", "set lease.ttl in the file and reload it")
}

// ReportShadow is not built yet.
func (s *adminService) ReportShadow(ctx context.Context, _ *tbav1.ReportShadowRequest) (*tbav1.ReportShadowResponse, error) {
	if _, err := s.gate.caller(ctx, identity.ActionRead); err != nil {
		return nil, toStatus(err)
	}
	return nil, toStatus(notBuilt("ReportShadow", "tba_lease_requests_total counts grants by the reason that would have refused"))
}
