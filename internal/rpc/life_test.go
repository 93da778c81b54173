package rpc

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/token-budget-arbiter/tba/arbiter"
	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
)

// life drives one lease by the verbs of the table of lease life and tells what each one answered.
type life struct {
	w     *world
	id    string
	token []byte
	req   *tbav1.LeaseRequest
}

func begin(t *testing.T, w *world, reserved bool) *life {
	t.Helper()
	req := &tbav1.LeaseRequest{AgentId: "a", EstimatedTokens: 1000, RequestId: "r-1", DeferredStart: reserved}
	l := w.grant(t, req)
	return &life{w: w, id: l.GetLeaseId(), token: l.GetLeaseToken(), req: req}
}

func reasonOf(err error) string {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.GetDomain() == "tba" {
			return info.GetReason()
		}
	}
	return ""
}

func failed(err error) string { return fmt.Sprintf("%s %s", status.Code(err), reasonOf(err)) }

func (l *life) again() string {
	out, err := l.w.lease.RequestLease(context.Background(), proto.CloneOf(l.req))
	if err != nil {
		return failed(err)
	}
	if out.GetLeaseId() != l.id || !out.GetReplayed() {
		return fmt.Sprintf("another answer: %v", out)
	}
	return out.GetPhase().String()
}

func (l *life) other() string {
	m := proto.CloneOf(l.req)
	m.EstimatedTokens++
	_, err := l.w.lease.RequestLease(context.Background(), m)
	return failed(err)
}

func (l *life) activate() string {
	out, err := l.w.lease.SignalLease(context.Background(), &tbav1.SignalLeaseRequest{LeaseId: l.id, LeaseToken: l.token, Kind: tbav1.SignalLeaseRequest_ACTIVATE})
	if err != nil {
		return failed(err)
	}
	return out.GetPhase().String()
}

func (l *life) extend() string {
	out, err := l.w.lease.ExtendLease(context.Background(), &tbav1.ExtendLeaseRequest{LeaseId: l.id, LeaseToken: l.token})
	if err != nil {
		return failed(err)
	}
	return fmt.Sprintf("%s %ds", out.GetPhase(), out.GetTtlSeconds())
}

func (l *life) commit(tokens int64) string {
	out, err := l.w.lease.CommitLease(context.Background(), &tbav1.LeaseCommit{LeaseId: l.id, ActualTokens: &tokens})
	if err != nil {
		return failed(err)
	}
	return fmt.Sprintf("%s %d %v", out.GetResult(), out.GetRecordedTokens(), out.GetFlags())
}

func (l *life) release() string {
	out, err := l.w.lease.ReleaseLease(context.Background(), &tbav1.LeaseRelease{LeaseId: l.id})
	if err != nil {
		return failed(err)
	}
	return out.GetResult().String()
}

func (l *life) revoke() string {
	out, err := l.w.admin.RevokeLease(context.Background(), &tbav1.RevokeLeaseRequest{LeaseId: l.id, Reason: "test"})
	if err != nil {
		return failed(err)
	}
	return fmt.Sprint(len(out.GetLeaseIds()))
}

func check(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %s, want %s", what, got, want)
	}
}

// TestLifeOverTheWire walks the rows of the table of lease life that a client can reach.
func TestLifeOverTheWire(t *testing.T) {
	t.Parallel()
	const ttl = time.Minute
	policy := func(rule arbiter.ExpiryRule) *arbiter.Policy {
		return testPolicy(func(p *arbiter.Policy) { p.Lease.TTL, p.Lease.OnExpiry = int64(ttl), rule })
	}
	for name, row := range map[string]struct {
		reserved bool
		rule     arbiter.ExpiryRule
		steps    func(t *testing.T, l *life)
	}{
		"active": {steps: func(t *testing.T, l *life) {
			check(t, "again", l.again(), "ACTIVE")
			check(t, "other parameters", l.other(), "FailedPrecondition request_id_reused")
			check(t, "activate", l.activate(), "ACTIVE")
			time.Sleep(ttl / 2)
			check(t, "extend", l.extend(), "ACTIVE 60s")
			check(t, "commit", l.commit(900), "RECORDED 900 []")
			check(t, "again", l.again(), "COMMITTED")
			check(t, "same commit", l.commit(900), "ALREADY_RECORDED 900 []")
			check(t, "other commit", l.commit(901), "CONFLICT 900 []")
			check(t, "release", l.release(), "ALREADY_COMMITTED")
			check(t, "extend", l.extend(), "FailedPrecondition resolved")
			check(t, "activate", l.activate(), "FailedPrecondition resolved")
			check(t, "revoke", l.revoke(), "0")
		}},
		"overrun": {steps: func(t *testing.T, l *life) {
			check(t, "commit", l.commit(1500), "RECORDED 1500 [OVERRUN]")
		}},
		"zero is zero": {steps: func(t *testing.T, l *life) {
			check(t, "commit", l.commit(0), "RECORDED 0 []")
		}},
		"released": {steps: func(t *testing.T, l *life) {
			check(t, "release", l.release(), "RELEASED")
			check(t, "again", l.again(), "RELEASED")
			check(t, "extend", l.extend(), "FailedPrecondition resolved")
			check(t, "release", l.release(), "ALREADY_RELEASED")
			check(t, "commit", l.commit(700), "RECORDED 700 [AFTER_RELEASE]")
			check(t, "same commit", l.commit(700), "ALREADY_RECORDED 700 [AFTER_RELEASE]")
		}},
		"reserved": {reserved: true, steps: func(t *testing.T, l *life) {
			check(t, "again", l.again(), "RESERVED")
			check(t, "activate", l.activate(), "ACTIVE")
			check(t, "commit", l.commit(10), "RECORDED 10 []")
		}},
		"never begun": {reserved: true, steps: func(t *testing.T, l *life) {
			time.Sleep(3 * time.Second) // past start_by
			check(t, "activate", l.activate(), "FailedPrecondition expired")
			check(t, "again", l.again(), "RETURNED")
			check(t, "commit", l.commit(5), "RECORDED 5 [LATE]")
		}},
		"expired": {steps: func(t *testing.T, l *life) {
			time.Sleep(ttl + time.Second)
			check(t, "again", l.again(), "RETURNED")
			check(t, "extend", l.extend(), "FailedPrecondition expired")
			check(t, "commit", l.commit(800), "RECORDED 800 [LATE]")
		}},
		"expired and released": {steps: func(t *testing.T, l *life) {
			time.Sleep(ttl + time.Second)
			check(t, "release", l.release(), "RELEASED")
		}},
		"held": {rule: arbiter.ExpiryAssume, steps: func(t *testing.T, l *life) {
			time.Sleep(ttl + time.Second)
			check(t, "again", l.again(), "HELD")
			check(t, "extend", l.extend(), "FailedPrecondition expired")
			check(t, "commit", l.commit(800), "RECORDED 800 [LATE]")
		}},
		"assumed": {rule: arbiter.ExpiryAssume, steps: func(t *testing.T, l *life) {
			time.Sleep(ttl + 11*time.Minute) // and the grace
			check(t, "again", l.again(), "ASSUMED")
			check(t, "commit", l.commit(800), "RECORDED 800 [LATE]")
		}},
		"too old": {steps: func(t *testing.T, l *life) {
			time.Sleep(2 * time.Hour) // past commit_by: the lease is forgotten
			check(t, "extend", l.extend(), "NotFound unknown_lease")
			tokens := int64(800)
			out, err := l.w.lease.CommitLease(t.Context(), &tbav1.LeaseCommit{LeaseId: l.id, LeaseToken: l.token, ActualTokens: &tokens})
			if err != nil || out.GetResult() != tbav1.CommitResponse_TOO_OLD {
				t.Errorf("commit with token: %v, %v", out, err)
			}
		}},
		"revoked": {steps: func(t *testing.T, l *life) {
			check(t, "revoke", l.revoke(), "1")
			check(t, "extend", l.extend(), "FailedPrecondition revoked")
			check(t, "again", l.again(), "REVOKED")
			check(t, "commit", l.commit(300), "RECORDED 300 [LATE]")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, setup{policy: policy(row.rule)})
				row.steps(t, begin(t, w, row.reserved))
			})
		})
	}
}

// TestUnknownLease covers the first row of the table of lease life.
func TestUnknownLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	l := &life{w: w, id: "01ARZ3NDEKTSV4RRFFQ69G5FAV"}
	check(t, "activate", l.activate(), "NotFound unknown_lease")
	check(t, "extend", l.extend(), "NotFound unknown_lease")
	check(t, "commit", l.commit(1), "UNKNOWN_LEASE 0 []")
	check(t, "release", l.release(), "UNKNOWN_LEASE")
	check(t, "revoke", l.revoke(), "NotFound unknown_lease")
}

func TestPartialGrantAndFigures(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{policy: testPolicy(func(p *arbiter.Policy) { p.Global.Tokens = 1000 })})
	ctx := t.Context()
	out, err := w.lease.RequestLease(ctx, &tbav1.LeaseRequest{AgentId: "a", EstimatedTokens: 5000, EstimatedOutputTokens: proto.Int64(4500), MinTokens: 600})
	if err != nil || out.GetStatus() != tbav1.LeaseStatus_GRANTED || out.GetGrantedTokens() != 1000 {
		t.Fatalf("partial: %v, %v", out, err)
	}
	if _, err := w.lease.CommitLease(ctx, &tbav1.LeaseCommit{LeaseId: out.GetLeaseId()}); err != nil {
		t.Fatal(err)
	}
	out, err = w.lease.RequestLease(ctx, &tbav1.LeaseRequest{AgentId: "a", EstimatedTokens: 100})
	if err != nil || out.GetStatus() != tbav1.LeaseStatus_DENIED {
		t.Fatalf("no room: %v, %v", out, err)
	}
	if out.GetReason() != "budget" || out.GetLimitName() != "global" || out.GetLimitUnit() != "tokens" || out.GetLimit() != 1000 ||
		out.GetUsed() != 1000 || out.GetAsked() != 100 || out.GetResetsAt() == nil || out.GetMessage() == "" || out.GetLeaseId() != "" {
		t.Errorf("figures: %v", out)
	}
}

func TestDeferredThenGrantedByWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{policy: testPolicy(func(p *arbiter.Policy) {
			p.Providers = p.Providers[:1]
			p.Providers[0].Ceilings = arbiter.Ceilings{MaxConcurrent: 1}
		})})
		first := w.grant(t, &tbav1.LeaseRequest{AgentId: "a", EstimatedTokens: 10})
		out, err := w.lease.RequestLease(t.Context(), &tbav1.LeaseRequest{AgentId: "b", EstimatedTokens: 10})
		if err != nil || out.GetStatus() != tbav1.LeaseStatus_DEFERRED || out.GetReason() != "slots" || len(out.GetTicket()) == 0 {
			t.Fatalf("no slot: %v, %v", out, err)
		}
		if out.GetRetryAfterMs() <= 0 || int64(out.GetTtlSeconds()) != (out.GetRetryAfterMs()+999)/1000 || out.GetLimitUnit() != "slots" {
			t.Errorf("wait: %v", out)
		}
		waited := make(chan *tbav1.LeaseResponse, 1)
		go func() {
			out, err := w.lease.RequestLease(context.Background(), &tbav1.LeaseRequest{AgentId: "b", EstimatedTokens: 10, MaxWaitMs: 30_000, Ticket: out.GetTicket()})
			if err != nil {
				t.Error(err)
			}
			waited <- out
		}()
		time.Sleep(time.Second)
		synctest.Wait()
		if _, err := w.lease.CommitLease(t.Context(), &tbav1.LeaseCommit{LeaseId: first.GetLeaseId(), ActualTokens: proto.Int64(9)}); err != nil {
			t.Fatal(err)
		}
		if out := <-waited; out.GetStatus() != tbav1.LeaseStatus_GRANTED {
			t.Errorf("after the commit: %v", out)
		}
	})
}

func TestSettleRidesAlong(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	a := w.grant(t, &tbav1.LeaseRequest{AgentId: "a", EstimatedTokens: 100})
	b := w.grant(t, &tbav1.LeaseRequest{AgentId: "a", EstimatedTokens: 100})
	out := w.grant(t, &tbav1.LeaseRequest{AgentId: "a", EstimatedTokens: 100, Settle: []*tbav1.LeaseCommit{
		{LeaseId: a.GetLeaseId(), ActualTokens: proto.Int64(80)},
		{LeaseId: "nonsense"},
		{LeaseId: b.GetLeaseId(), HasUsage: true, Usage: &tbav1.Usage{Input: 50, Output: 20, Reasoning: 30}},
		{LeaseId: b.GetLeaseId(), HasUsage: true, Usage: &tbav1.Usage{Input: 50, Output: 20}},
	}})
	s := out.GetSettled()
	if len(s) != 4 || s[0].GetCommit().GetRecordedTokens() != 80 || s[3].GetCommit().GetRecordedTokens() != 70 {
		t.Errorf("settled: %v", s)
	}
	for i, field := range map[int]string{1: "lease_id", 2: "usage.reasoning"} {
		if e := s[i].GetError(); codes.Code(e.GetCode()) != codes.InvalidArgument || fieldOf(&arbiter.Error{Text: e.GetMessage()}) != field {
			t.Errorf("settled %d: %v", i, s[i])
		}
	}
}

func TestDryRunChargesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	out, err := w.lease.RequestLease(t.Context(), &tbav1.LeaseRequest{AgentId: "a", EstimatedTokens: 100, DryRun: true})
	if err != nil || out.GetStatus() != tbav1.LeaseStatus_GRANTED || len(out.GetLeaseToken()) != 0 {
		t.Fatalf("%v, %v", out, err)
	}
	rows, err := w.admin.ListLeases(t.Context(), &tbav1.ListLeasesRequest{IncludeEnded: true})
	if err != nil || rows.GetTotal() != 0 {
		t.Errorf("leases after a dry run: %v, %v", rows, err)
	}
}
