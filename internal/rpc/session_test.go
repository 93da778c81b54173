package rpc

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/token-budget-arbiter/tba/arbiter"
	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
)

func requestFrame(id uint64, m *tbav1.LeaseRequest) *tbav1.SessionRequest_Frame {
	return &tbav1.SessionRequest_Frame{Id: id, Call: &tbav1.SessionRequest_Frame_Request{Request: m}}
}

func commitFrame(id uint64, lease string, tokens int64) *tbav1.SessionRequest_Frame {
	return &tbav1.SessionRequest_Frame{Id: id, Call: &tbav1.SessionRequest_Frame_Commit{Commit: &tbav1.LeaseCommit{LeaseId: lease, ActualTokens: &tokens}}}
}

func cancelFrame(id, other uint64) *tbav1.SessionRequest_Frame {
	return &tbav1.SessionRequest_Frame{Id: id, Call: &tbav1.SessionRequest_Frame_Cancel{Cancel: &tbav1.SessionCancel{Id: other}}}
}

// reader collects the frames of a session as they come.
func (x *testSession) reader() <-chan *tbav1.SessionResponse_Frame {
	frames := make(chan *tbav1.SessionResponse_Frame, 64)
	go func() {
		defer close(frames)
		_ = x.receive(func(f *tbav1.SessionResponse_Frame) {
			select {
			case frames <- f:
			case <-x.stream.Context().Done():
			}
		})
	}()
	return frames
}

func oneSlot() *arbiter.Policy {
	return testPolicy(func(p *arbiter.Policy) {
		p.Providers = p.Providers[:1]
		p.Providers[0].Ceilings = arbiter.Ceilings{MaxConcurrent: 1}
		p.Lease.TTL = int64(time.Minute)
	})
}

func TestSessionCalls(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	x := openSession(t, w.lease)
	frames := x.reader()
	x.push(requestFrame(7, &tbav1.LeaseRequest{AgentId: "a", EstimatedTokens: 100, DeferredStart: true}))
	lease := (<-frames).GetLease()
	if lease.GetStatus() != tbav1.LeaseStatus_GRANTED || lease.GetPhase() != tbav1.Lease_RESERVED || len(lease.GetLeaseToken()) == 0 {
		t.Fatalf("%v", lease)
	}
	x.push(&tbav1.SessionRequest_Frame{Id: 8, Call: &tbav1.SessionRequest_Frame_Signal{Signal: &tbav1.SignalLeaseRequest{LeaseId: lease.GetLeaseId(), Kind: tbav1.SignalLeaseRequest_ACTIVATE}}})
	if f := <-frames; f.GetId() != 8 || f.GetSignal().GetPhase() != tbav1.Lease_ACTIVE {
		t.Errorf("signal: %v", f)
	}
	x.push(&tbav1.SessionRequest_Frame{Id: 9, Call: &tbav1.SessionRequest_Frame_Extend{Extend: &tbav1.ExtendLeaseRequest{LeaseId: lease.GetLeaseId()}}})
	if f := <-frames; f.GetId() != 9 || f.GetExtend().GetTtlSeconds() < 118 {
		t.Errorf("extend: %v", f)
	}
	x.push(&tbav1.SessionRequest_Frame{Id: 10, Call: &tbav1.SessionRequest_Frame_Release{Release: &tbav1.LeaseRelease{LeaseId: lease.GetLeaseId()}}})
	if f := <-frames; f.GetId() != 10 || f.GetRelease().GetResult() != tbav1.ReleaseResponse_RELEASED {
		t.Errorf("release: %v", f)
	}
	x.push(commitFrame(11, lease.GetLeaseId(), 50))
	if f := <-frames; f.GetId() != 11 || f.GetCommit().GetRecordedTokens() != 50 {
		t.Errorf("commit: %v", f)
	}
	x.push(&tbav1.SessionRequest_Frame{Id: 12, Call: &tbav1.SessionRequest_Frame_Extend{Extend: &tbav1.ExtendLeaseRequest{LeaseId: lease.GetLeaseId()}}})
	if f := <-frames; f.GetId() != 12 || f.GetError().GetReason() != "resolved" || codes.Code(f.GetError().GetCode()) != codes.FailedPrecondition {
		t.Errorf("extend of a committed lease: %v", f)
	}
	x.push(&tbav1.SessionRequest_Frame{Id: 13})
	if f := <-frames; f.GetId() != 13 || codes.Code(f.GetError().GetCode()) != codes.InvalidArgument {
		t.Errorf("frame without a call: %v", f)
	}
	x.push(requestFrame(14, &tbav1.LeaseRequest{EstimatedTokens: -1}))
	if f := <-frames; f.GetId() != 14 || codes.Code(f.GetError().GetCode()) != codes.InvalidArgument {
		t.Errorf("bad request: %v", f)
	}
	second := w.grant(t, &tbav1.LeaseRequest{AgentId: "a", EstimatedTokens: 10})
	x.push(requestFrame(15, &tbav1.LeaseRequest{AgentId: "a", EstimatedTokens: 10, Settle: []*tbav1.LeaseCommit{{LeaseId: second.GetLeaseId(), ActualTokens: proto.Int64(4)}}}))
	if f := <-frames; f.GetId() != 15 || len(f.GetLease().GetSettled()) != 1 || f.GetLease().GetSettled()[0].GetCommit().GetRecordedTokens() != 4 {
		t.Errorf("settle: %v", f)
	}
	// Closed in order, the session ends in order, after the last answer.
	x.push(requestFrame(16, &tbav1.LeaseRequest{AgentId: "a", EstimatedTokens: 10}))
	if f := <-frames; f.GetId() != 16 {
		t.Errorf("last: %v", f)
	}
	if err := x.stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if f, more := <-frames; more {
		t.Errorf("after the end: %v", f)
	}
	if _, err := x.stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("end: %v", err)
	}
}

// TestSessionOrder: frames of one message mean one after the other, and a waiting request holds up nothing behind it.
func TestSessionOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{policy: oneSlot()})
		x := openSession(t, w.lease)
		frames := x.reader()
		x.push(requestFrame(1, &tbav1.LeaseRequest{AgentId: "a", EstimatedTokens: 10}))
		first := (<-frames).GetLease()
		synctest.Wait()
		if err := x.stream.Send(&tbav1.SessionRequest{Frames: []*tbav1.SessionRequest_Frame{
			requestFrame(2, &tbav1.LeaseRequest{AgentId: "a", EstimatedTokens: 10, MaxWaitMs: 30_000}),
			requestFrame(3, &tbav1.LeaseRequest{AgentId: "a", EstimatedTokens: 10}),
			requestFrame(2, &tbav1.LeaseRequest{AgentId: "a", EstimatedTokens: 10, MaxWaitMs: 30_000}),
		}}); err != nil {
			t.Fatal(err)
		}
		got := map[uint64][]*tbav1.SessionResponse_Frame{}
		for range 2 {
			f := <-frames
			got[f.GetId()] = append(got[f.GetId()], f)
		}
		if f := got[3]; len(f) != 1 || f[0].GetLease().GetStatus() != tbav1.LeaseStatus_DEFERRED {
			t.Errorf("a request that may not wait: %v", f)
		}
		if f := got[2]; len(f) != 1 || f[0].GetError().GetReason() != "frame_id_in_use" {
			t.Errorf("the same id again: %v", f)
		}
		if err := x.stream.Send(&tbav1.SessionRequest{Frames: []*tbav1.SessionRequest_Frame{commitFrame(4, first.GetLeaseId(), 5)}}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			switch f := <-frames; f.GetId() {
			case 4:
				if f.GetCommit().GetRecordedTokens() != 5 {
					t.Errorf("commit: %v", f)
				}
			case 2:
				if f.GetLease().GetStatus() != tbav1.LeaseStatus_GRANTED {
					t.Errorf("the waiter: %v", f)
				}
			default:
				t.Errorf("unexpected: %v", f)
			}
		}
	})
}

func TestSessionCancel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{policy: oneSlot()})
		w.grant(t, &tbav1.LeaseRequest{AgentId: "a", EstimatedTokens: 10})
		x := openSession(t, w.lease)
		frames := x.reader()
		x.push(requestFrame(1, &tbav1.LeaseRequest{AgentId: "a", EstimatedTokens: 10, MaxWaitMs: 60_000}))
		time.Sleep(time.Second)
		x.push(cancelFrame(2, 1))
		began := time.Now()
		if f := <-frames; f.GetId() != 1 || codes.Code(f.GetError().GetCode()) != codes.Canceled || time.Since(began) != 0 {
			t.Errorf("cancelled: %v", f)
		}
		x.push(cancelFrame(3, 99)) // of nothing: not answered
		x.push(requestFrame(4, &tbav1.LeaseRequest{AgentId: "a", EstimatedTokens: 10}))
		if f := <-frames; f.GetId() != 4 {
			t.Errorf("next: %v", f)
		}
	})
}

func TestSessionNotices(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{policy: testPolicy(func(p *arbiter.Policy) { p.Lease.TTL = int64(time.Minute) })})
		x := openSession(t, w.lease)
		frames := x.reader()
		leases := make([]string, 3)
		for i := range leases {
			x.push(requestFrame(uint64(i+1), &tbav1.LeaseRequest{AgentId: "a", EstimatedTokens: 10}))
			leases[i] = (<-frames).GetLease().GetLeaseId()
		}
		w.grant(t, &tbav1.LeaseRequest{AgentId: "b", EstimatedTokens: 10}) // not of this session
		x.push(commitFrame(4, leases[2], 3))
		<-frames
		if _, err := w.admin.RevokeLease(t.Context(), &tbav1.RevokeLeaseRequest{LeaseId: leases[0], Reason: "runaway"}); err != nil {
			t.Fatal(err)
		}
		if f := <-frames; f.GetId() != 0 || f.GetRevocation().GetLeaseId() != leases[0] || f.GetRevocation().GetReason() != "revoked" || f.GetRevocation().GetEndsInMs() != 60_000 {
			t.Errorf("revoked: %v", f)
		}
		time.Sleep(61 * time.Second)
		ended := map[string]string{}
		for range 2 {
			f := <-frames
			ended[f.GetRevocation().GetLeaseId()] = f.GetRevocation().GetReason()
		}
		if ended[leases[0]] != "expired" || ended[leases[1]] != "expired" {
			t.Errorf("expired: %v", ended)
		}
		w.server.Drain(30 * time.Second)
		if f := <-frames; f.GetDrain().GetClosesInMs() != 30_000 {
			t.Errorf("drain: %v", f)
		}
		x.push(commitFrame(5, leases[1], 3))
		if f := <-frames; f.GetCommit().GetResult() != tbav1.CommitResponse_RECORDED {
			t.Errorf("commit while draining: %v", f)
		}
		w.server.Close()
		if f, more := <-frames; more {
			t.Errorf("after close: %v", f)
		}
		if _, err := x.stream.Recv(); status.Code(err) != codes.Unavailable {
			t.Errorf("end: %v", err)
		}
	})
}

// TestSessionMissesNoEnd: more leases end at once than the pool keeps events, and the holder hears of each.
func TestSessionMissesNoEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const leases = 50
		w := newWorld(t, setup{events: 4, policy: testPolicy(func(p *arbiter.Policy) { p.Lease.TTL = int64(time.Minute) })})
		x := openSession(t, w.lease)
		frames := x.reader()
		open := map[string]bool{}
		for i := range leases {
			x.push(requestFrame(uint64(i+1), &tbav1.LeaseRequest{AgentId: "a", EstimatedTokens: 10}))
			open[(<-frames).GetLease().GetLeaseId()] = true
		}
		var committed string
		for committed = range open {
			break
		}
		if _, err := w.lease.CommitLease(t.Context(), &tbav1.LeaseCommit{LeaseId: committed}); err != nil { // beside the session
			t.Fatal(err)
		}
		delete(open, committed)
		time.Sleep(61 * time.Second)
		for len(open) > 0 {
			m := (<-frames).GetRevocation()
			if !open[m.GetLeaseId()] || m.GetReason() != "expired" {
				t.Fatalf("unexpected: %v", m)
			}
			delete(open, m.GetLeaseId())
		}
		synctest.Wait()
		select {
		case f := <-frames:
			t.Errorf("more than the ends: %v", f)
		default:
		}
	})
}

// TestSessionTellsBrokenInput: a message that cannot be read ends the session with the reason, not as if all were well.
func TestSessionTellsBrokenInput(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	for name, c := range map[string]struct {
		message any
		code    codes.Code
	}{
		"above the limit": {&tbav1.SessionRequest{Frames: []*tbav1.SessionRequest_Frame{requestFrame(1, &tbav1.LeaseRequest{Ticket: make([]byte, maxMessage)})}}, codes.ResourceExhausted},
		"no message":      {&emptypb.Empty{}, codes.InvalidArgument},
	} {
		stream, err := w.conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, tbav1.TokenBudgetArbiter_Session_FullMethodName)
		if err != nil {
			t.Fatal(err)
		}
		if m, ok := c.message.(*emptypb.Empty); ok {
			m.ProtoReflect().SetUnknown([]byte{0x0a, 0x05, 1}) // a frame of five bytes that has one
		}
		if err := stream.SendMsg(c.message); err != nil {
			t.Fatal(err)
		}
		if err := stream.RecvMsg(new(tbav1.SessionResponse)); status.Code(err) != c.code {
			t.Errorf("%s: %v, want %v", name, err, c.code)
		}
	}
}

func TestSessionSubscriptions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{policy: testPolicy(func(p *arbiter.Policy) { p.Global.Tokens = 1000 })})
		x := openSession(t, w.lease)
		frames := x.reader()
		subscribe := func(id uint64) {
			x.push(&tbav1.SessionRequest_Frame{Id: id, Call: &tbav1.SessionRequest_Frame_Subscribe{Subscribe: &tbav1.BackpressureSubscription{AgentId: "a", MinIntervalMs: 100}}})
		}
		subscribe(5)
		if f := <-frames; f.GetId() != 5 || f.GetBackpressure().GetLevel() != tbav1.BackpressureSignal_NONE {
			t.Errorf("first: %v", f)
		}
		subscribe(5)
		if f := <-frames; f.GetId() != 5 || f.GetError().GetReason() != "frame_id_in_use" {
			t.Errorf("twice: %v", f)
		}
		lease := w.grant(t, &tbav1.LeaseRequest{AgentId: "a", EstimatedTokens: 960})
		if _, err := w.lease.CommitLease(t.Context(), &tbav1.LeaseCommit{LeaseId: lease.GetLeaseId()}); err != nil {
			t.Fatal(err)
		}
		if f := <-frames; f.GetBackpressure().GetLevel() != tbav1.BackpressureSignal_CRITICAL {
			t.Errorf("change: %v", f)
		}
		x.push(cancelFrame(6, 5))
		if f := <-frames; f.GetId() != 5 || codes.Code(f.GetError().GetCode()) != codes.Canceled {
			t.Errorf("cancelled: %v", f)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		select {
		case f := <-frames:
			t.Errorf("after the end: %v", f)
		default:
		}
	})
}

// TestSessionThatVanishes: what waited leaves no trace, what was granted runs out.
func TestSessionThatVanishes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{policy: oneSlot()})
		first := w.grant(t, &tbav1.LeaseRequest{AgentId: "a", EstimatedTokens: 10})
		x := openSession(t, w.lease)
		x.push(requestFrame(1, &tbav1.LeaseRequest{AgentId: "b", EstimatedTokens: 10, MaxWaitMs: 600_000}))
		time.Sleep(time.Second)
		if s, err := w.engine.PoolStatus("default"); err != nil || s.Waiting != 1 {
			t.Fatalf("waiting: %+v, %v", s, err)
		}
		x.cancel()
		time.Sleep(2 * time.Second)
		if s, err := w.engine.PoolStatus("default"); err != nil || s.Waiting != 0 {
			t.Errorf("after it vanished: %+v, %v", s, err)
		}
		if _, err := w.lease.CommitLease(t.Context(), &tbav1.LeaseCommit{LeaseId: first.GetLeaseId()}); err != nil {
			t.Fatal(err)
		}
		w.grant(t, &tbav1.LeaseRequest{AgentId: "c", EstimatedTokens: 10}) // the slot is free, nobody stands before it
	})
}

// TestSessionOfNoRead: a client that never reads is not read either, and holds nobody else.
func TestSessionOfNoRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := w.lease.Session(ctx)
	if err != nil {
		t.Fatal(err)
	}
	full := make(chan struct{})
	go func() { // Send blocks once the server stops reading
		for id := uint64(1); ; id++ {
			done := make(chan error, 1)
			go func() {
				done <- stream.Send(&tbav1.SessionRequest{Frames: []*tbav1.SessionRequest_Frame{requestFrame(id, &tbav1.LeaseRequest{EstimatedTokens: -1})}})
			}()
			select {
			case err := <-done:
				if err != nil {
					return
				}
			case <-time.After(300 * time.Millisecond):
				close(full)
				return
			}
		}
	}()
	select {
	case <-full:
	case <-time.After(20 * time.Second):
		t.Error("the server reads without end although nobody takes its answers")
	}
	for range 100 {
		w.grant(t, &tbav1.LeaseRequest{AgentId: "a", EstimatedTokens: 10})
	}
}
