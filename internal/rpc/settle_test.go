package rpc

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/engine"
	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
)

// TestSessionSettleWaits: a request that carries commits waits and is given up like any other, its commits count at once, and the session
// ends in order after the one answer.
func TestSessionSettleWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{policy: oneSlot()})
		x := openSession(t, w.lease)
		frames := x.reader()
		x.push(requestFrame(1, &tbav1.LeaseRequest{AgentId: "a", EstimatedTokens: 10}))
		first := (<-frames).GetLease().GetLeaseId()
		x.push(requestFrame(2, &tbav1.LeaseRequest{AgentId: "b", EstimatedTokens: 10, MaxWaitMs: 60_000, Settle: []*tbav1.LeaseCommit{{LeaseId: "nonsense"}}}))
		time.Sleep(time.Second)
		x.push(cancelFrame(3, 2))
		if f := <-frames; f.GetId() != 2 || codes.Code(f.GetError().GetCode()) != codes.Canceled {
			t.Errorf("given up: %v", f)
		}
		x.push(requestFrame(4, &tbav1.LeaseRequest{AgentId: "b", EstimatedTokens: 10, Settle: []*tbav1.LeaseCommit{
			{LeaseId: "nonsense"}, {LeaseId: first, ActualTokens: proto.Int64(7)},
		}}))
		f := <-frames
		settled := f.GetLease().GetSettled()
		if f.GetId() != 4 || f.GetLease().GetStatus() != tbav1.LeaseStatus_GRANTED || len(settled) != 2 {
			t.Fatalf("settled: %v", f)
		}
		if settled[0].GetError().GetReason() != "bad_lease_id" || settled[1].GetLeaseId() != first || settled[1].GetCommit().GetRecordedTokens() != 7 {
			t.Errorf("settled: %v", settled)
		}
		if err := x.stream.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if f, more := <-frames; more {
			t.Errorf("after the end: %v", f)
		}
	})
}

// TestSessionForgetsSettled: a lease that a ride-along commit has ended is the session's no longer, and the repeat of an ended one never is.
func TestSessionForgetsSettled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	x := &session{Server: w.server, ctx: t.Context(), held: map[arbiter.LeaseID]*followed{}, pools: map[string]*followed{}}
	granted := func(id byte, token string) {
		r := engine.Reply{Outcome: engine.Outcome{Token: []byte(token)}}
		if token == "" {
			r.Token = nil
		}
		r.Answer.Lease.Lease = arbiter.LeaseID{id}
		x.mu.Lock()
		defer x.mu.Unlock()
		x.track(&sessionCall{kind: fieldRequest, pool: "default", group: &settling{}}, &r)
	}
	granted(1, "signed")
	granted(2, "")
	if len(x.held) != 1 {
		t.Errorf("%d leases are held, want 1", len(x.held))
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.track(&sessionCall{kind: fieldCommit, pool: "default", lease: arbiter.LeaseID{1}, group: &settling{}}, &engine.Reply{})
	if len(x.held) != 0 {
		t.Errorf("%d leases are held after their commits", len(x.held))
	}
}
