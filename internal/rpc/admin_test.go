package rpc

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/token-budget-arbiter/tba/arbiter"
	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
)

func TestBudgetsClassesAndUsage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{policy: testPolicy(func(p *arbiter.Policy) {
		p.Global.Tokens = 1000
		p.Providers[0].Limit = arbiter.Limit{Tokens: 700, Nanos: arbiter.Unlimited}
		p.Classes[2].Share = arbiter.Whole / 2
	})})
	ctx := t.Context()
	lease := w.grant(t, &tbav1.LeaseRequest{AgentId: "a", AgentClass: "chat", EstimatedTokens: 300, PreferredProvider: "openai", Model: "gpt-5.4", TaskId: "t"})
	if _, err := w.lease.CommitLease(ctx, &tbav1.LeaseCommit{LeaseId: lease.GetLeaseId(), ActualTokens: proto.Int64(250)}); err != nil {
		t.Fatal(err)
	}
	w.grant(t, &tbav1.LeaseRequest{AgentId: "a", AgentClass: "chat", EstimatedTokens: 100, Model: "gpt-5.4"})
	out, err := w.admin.ListBudgets(ctx, &tbav1.ListBudgetsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]*tbav1.Budget{}
	for _, b := range out.GetBudgets() {
		rows[b.GetName()+" "+b.GetUnit()] = b
	}
	for name, want := range map[string][4]int64{ // limit, spent, held, available
		"global tokens": {1000, 250, 100, 650}, "provider/openai tokens": {700, 250, 100, 350}, "class/chat tokens": {0, 250, 100, 0}, "model/openai/gpt-5.4 tokens": {0, 250, 100, 0}, "agent/a tokens": {0, 250, 100, 0},
	} {
		b := rows[name]
		if got := [4]int64{b.GetLimit(), b.GetSpent(), b.GetHeld(), b.GetAvailable()}; got != want || b.GetUnlimited() != (want[0] == 0) {
			t.Errorf("%s: %v, want %v", name, b, want)
		}
	}
	if g := rows["global tokens"]; g.GetPeriodId() == "" || !g.GetPeriodEnd().AsTime().After(time.Now()) || g.GetPool() != "default" || out.GetBudgets()[0].GetName() != "global" {
		t.Errorf("period and order: %v", g)
	}
	classes, err := w.admin.ListClasses(ctx, &tbav1.ListClassesRequest{})
	if err != nil || len(classes.GetClasses()) != 3 {
		t.Fatal(classes, err)
	}
	if c := classes.GetClasses()[1]; c.GetName() != "chat" || c.GetShare() != 0.5 || c.GetGuarantee() != 500 || c.GetUsed() != 250 || c.GetHeld() != 100 || c.GetLeases() != 1 || c.GetPriority() != tbav1.Priority_MEDIUM || c.GetCostNanos() == 0 {
		t.Errorf("class: %v", c)
	}
	for by, want := range map[string]string{"": "", "provider": "openai", "class": "chat", "agent": "a", "task": "t"} {
		m := &tbav1.ReportUsageRequest{}
		if by != "" {
			m.GroupBy = []string{by}
		}
		report, err := w.admin.ReportUsage(ctx, m)
		if err != nil || len(report.GetRows()) == 0 {
			t.Errorf("usage by %q: %v, %v", by, report, err)
			continue
		}
		r := report.GetRows()[0]
		if r.GetTokens() != 250 || r.GetProvider()+r.GetAgentClass()+r.GetAgentId()+r.GetTaskId() != want || r.GetCostNanos() == 0 {
			t.Errorf("usage by %q: %v", by, r)
		}
	}
	_, err = w.admin.ReportUsage(ctx, &tbav1.ReportUsageRequest{GroupBy: []string{"colour"}})
	check(t, "group_by", violation(err), "group_by")
}

func TestProviders(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{policy: testPolicy(func(p *arbiter.Policy) {
		p.Providers[0].Ceilings = arbiter.Ceilings{RPM: 60, MaxConcurrent: 4}
		p.Providers[0].Models[0].Ceilings = arbiter.Ceilings{TPM: 10_000}
		p.Breaker.Failures = 2
	})})
	ctx := t.Context()
	for range 2 {
		lease := w.grant(t, &tbav1.LeaseRequest{AgentId: "a", EstimatedTokens: 100, Model: "gpt-5.4"})
		if _, err := w.lease.CommitLease(ctx, &tbav1.LeaseCommit{LeaseId: lease.GetLeaseId(), Outcome: tbav1.LeaseCommit_ERROR, ActualTokens: proto.Int64(0)}); err != nil {
			t.Fatal(err)
		}
	}
	out, err := w.admin.ListProviders(ctx, &tbav1.ListProvidersRequest{Provider: "openai"})
	if err != nil || len(out.GetProviders()) != 2 {
		t.Fatal(out, err)
	}
	whole, model := out.GetProviders()[0], out.GetProviders()[1]
	if whole.GetModel() != "" || len(whole.GetDimensions()) != 2 || model.GetModel() != "gpt-5.4" || len(model.GetDimensions()) != 3 {
		t.Errorf("rows: %v", out)
	}
	if model.GetBreaker() != tbav1.Provider_OPEN || model.GetBreakerUntil() == nil || model.GetConsecutiveFailures() != 2 || model.GetHeadroom() != 0 || model.GetPrice().GetInputPico() != 2_500_000 {
		t.Errorf("open breaker: %v", model)
	}
	if d := whole.GetDimensions()[0]; d.GetName() != "rpm" || d.GetCeiling() != 60 || d.GetUsed() != 2 {
		t.Errorf("rpm: %v", d)
	}
}

func TestLeasePages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{})
		var want []string
		for i := range 7 {
			lease := w.grant(t, &tbav1.LeaseRequest{AgentId: fmt.Sprint("a", i%2), AgentClass: "chat", TaskId: "t", EstimatedTokens: 10})
			want = append(want, lease.GetLeaseId())
			time.Sleep(time.Second)
		}
		var got []string
		for token := ""; ; {
			page, err := w.admin.ListLeases(t.Context(), &tbav1.ListLeasesRequest{Limit: 3, PageToken: token})
			if err != nil || page.GetTotal() != 7 || len(page.GetLeases()) > 3 {
				t.Fatal(page, err)
			}
			for _, l := range page.GetLeases() {
				got = append(got, l.GetLeaseId())
			}
			if token = page.GetNextPageToken(); token == "" {
				break
			}
		}
		check(t, "oldest first", fmt.Sprint(got), fmt.Sprint(want))
		page, err := w.admin.ListLeases(t.Context(), &tbav1.ListLeasesRequest{AgentId: "a1", AgentClass: "chat", TaskId: "t"})
		if err != nil || page.GetTotal() != 3 {
			t.Fatal(page, err)
		}
		if l := page.GetLeases()[0]; l.GetAgentId() != "a1" || l.GetAgeMs() != 6000 || l.GetExpiresInMs() != 114_000 || l.GetTokens() != 10 || l.GetPhase() != tbav1.Lease_ACTIVE || l.GetPriority() != tbav1.Priority_MEDIUM {
			t.Errorf("row: %v", l)
		}
		_, err = w.admin.ListLeases(t.Context(), &tbav1.ListLeasesRequest{PageToken: "xx"})
		check(t, "page_token", violation(err), "page_token")
		_, err = w.admin.ListLeases(t.Context(), &tbav1.ListLeasesRequest{Limit: -1})
		check(t, "limit", violation(err), "limit")
		_, err = w.admin.ListLeases(t.Context(), &tbav1.ListLeasesRequest{LeaseId: "xx"})
		check(t, "lease_id", violation(err), "lease_id")
	})
}

func TestEventsAndStatus(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{opts: Options{About: About{Version: "v", Journal: "memory", Warnings: []string{"memory only"}, ConfigError: func() string { return "file:1:1: error" }}}})
		w.grant(t, &tbav1.LeaseRequest{AgentId: "a", EstimatedTokens: 10})
		time.Sleep(3 * time.Minute)
		out, err := w.admin.ListEvents(t.Context(), &tbav1.ListEventsRequest{Types: []string{"lease_expired"}})
		if err != nil || len(out.GetEvents()) != 1 || out.GetEvents()[0].GetAgentId() != "a" || out.GetEvents()[0].GetTokens() != 10 || out.GetEvents()[0].GetMessage() == "" {
			t.Fatal(out, err)
		}
		rest, err := w.admin.ListEvents(t.Context(), &tbav1.ListEventsRequest{SinceSequence: out.GetLastSequence()})
		if err != nil || len(rest.GetEvents()) != 0 {
			t.Error(rest, err)
		}
		_, err = w.admin.ListEvents(t.Context(), &tbav1.ListEventsRequest{Types: []string{"party"}})
		check(t, "types", violation(err), "types")
		s, err := w.admin.GetStatus(t.Context(), &tbav1.GetStatusRequest{})
		if err != nil || s.GetVersion() != "v" || s.GetState() != "ready" || s.GetMode() != "enforce" || s.GetJournal() != "memory" || s.GetPolicyHash() == "" || s.GetPolicySince() == nil ||
			s.GetConfigError() != "file:1:1: error" || s.GetUptimeMs() != 180_000 || len(s.GetPools()) != 1 || s.GetPeriodEnd() == nil || len(s.GetWarnings()) != 1 {
			t.Error(s, err)
		}
	})
}

func TestRevokeTree(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	ctx := t.Context()
	parent := w.grant(t, &tbav1.LeaseRequest{AgentId: "a", EstimatedTokens: 10})
	child := w.grant(t, &tbav1.LeaseRequest{AgentId: "b", EstimatedTokens: 10, ParentLeaseId: parent.GetLeaseId()})
	w.grant(t, &tbav1.LeaseRequest{AgentId: "c", EstimatedTokens: 10})
	_, err := w.admin.RevokeLease(ctx, &tbav1.RevokeLeaseRequest{LeaseId: parent.GetLeaseId()})
	check(t, "without a reason", violation(err), "reason")
	out, err := w.admin.RevokeLease(ctx, &tbav1.RevokeLeaseRequest{LeaseId: parent.GetLeaseId(), Tree: true, Reason: "runaway"})
	if err != nil || fmt.Sprint(out.GetLeaseIds()) != fmt.Sprint([]string{parent.GetLeaseId(), child.GetLeaseId()}) {
		t.Errorf("%v, %v", out, err)
	}
	// Only what this call has revoked is told: the one whose call had not begun has ended, the committed one was never told.
	late := w.grant(t, &tbav1.LeaseRequest{AgentId: "b", EstimatedTokens: 10, ParentLeaseId: child.GetLeaseId(), DeferredStart: true})
	done := w.grant(t, &tbav1.LeaseRequest{AgentId: "b", EstimatedTokens: 10, ParentLeaseId: child.GetLeaseId()})
	if _, err := w.lease.CommitLease(ctx, &tbav1.LeaseCommit{LeaseId: done.GetLeaseId()}); err != nil {
		t.Fatal(err)
	}
	out, err = w.admin.RevokeLease(ctx, &tbav1.RevokeLeaseRequest{LeaseId: parent.GetLeaseId(), Tree: true, Reason: "again"})
	if err != nil || fmt.Sprint(out.GetLeaseIds()) != fmt.Sprint([]string{late.GetLeaseId()}) {
		t.Errorf("%v, %v, want %s", out, err, late.GetLeaseId())
	}
	many := make([]string, 1500)
	for i := range many {
		many[i] = w.grant(t, &tbav1.LeaseRequest{AgentId: "d", EstimatedTokens: 10, ParentLeaseId: done.GetLeaseId()}).GetLeaseId()
	}
	out, err = w.admin.RevokeLease(ctx, &tbav1.RevokeLeaseRequest{LeaseId: parent.GetLeaseId(), Tree: true, Reason: "all of them"})
	if err != nil || len(out.GetLeaseIds()) != len(many) {
		t.Errorf("%d of %d, %v", len(out.GetLeaseIds()), len(many), err)
	}
	for name, err := range map[string]error{
		"RaiseBudget":    second(w.admin.RaiseBudget(ctx, &tbav1.RaiseBudgetRequest{})),
		"DrainProvider":  second(w.admin.DrainProvider(ctx, &tbav1.DrainProviderRequest{})),
		"ResumeProvider": second(w.admin.ResumeProvider(ctx, &tbav1.ResumeProviderRequest{})),
		"ResetLearned":   second(w.admin.ResetLearned(ctx, &tbav1.ResetLearnedRequest{})),
		"ReportShadow":   second(w.admin.ReportShadow(ctx, &tbav1.ReportShadowRequest{})),
		"Explain":        second(w.lease.Explain(ctx, &tbav1.ExplainRequest{})),
	} {
		if status.Code(err) != codes.Unimplemented || reasonOf(err) != "not_built" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }
