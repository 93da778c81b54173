package client

import (
	"context"
	"fmt"

	"google.golang.org/grpc/metadata"

	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
)

// unary puts each frame into an RPC of its own.
type unary struct {
	stub tbav1.TokenBudgetArbiterClient
	key  string
}

// call is what a session frame carries, and what an RPC can carry as well.
type call = tbav1.SessionRequest_Frame

// answer is a frame of the server.
type answer = tbav1.SessionResponse_Frame

func (u *unary) outgoing(ctx context.Context) context.Context {
	if u.key == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+u.key)
}

func (u *unary) do(ctx context.Context, c *call) (*answer, error) {
	ctx = u.outgoing(ctx)
	switch in := c.GetCall().(type) {
	case *tbav1.SessionRequest_Frame_Request:
		out, err := u.stub.RequestLease(ctx, in.Request)
		if err != nil {
			return nil, fromRPC(ctx, err)
		}
		return &answer{Answer: &tbav1.SessionResponse_Frame_Lease{Lease: out}}, nil
	case *tbav1.SessionRequest_Frame_Commit:
		out, err := u.stub.CommitLease(ctx, in.Commit)
		if err != nil {
			return nil, fromRPC(ctx, err)
		}
		return &answer{Answer: &tbav1.SessionResponse_Frame_Commit{Commit: out}}, nil
	case *tbav1.SessionRequest_Frame_Release:
		out, err := u.stub.ReleaseLease(ctx, in.Release)
		if err != nil {
			return nil, fromRPC(ctx, err)
		}
		return &answer{Answer: &tbav1.SessionResponse_Frame_Release{Release: out}}, nil
	case *tbav1.SessionRequest_Frame_Extend:
		out, err := u.stub.ExtendLease(ctx, in.Extend)
		if err != nil {
			return nil, fromRPC(ctx, err)
		}
		return &answer{Answer: &tbav1.SessionResponse_Frame_Extend{Extend: out}}, nil
	case *tbav1.SessionRequest_Frame_Signal:
		out, err := u.stub.SignalLease(ctx, in.Signal)
		if err != nil {
			return nil, fromRPC(ctx, err)
		}
		return &answer{Answer: &tbav1.SessionResponse_Frame_Signal{Signal: out}}, nil
	}
	panic(fmt.Sprintf("client: no RPC for %T", c.GetCall()))
}

// watch delivers signals until ctx ends or the stream breaks; it never returns nil.
func (u *unary) watch(ctx context.Context, sub *tbav1.BackpressureSubscription, deliver func(*tbav1.BackpressureSignal)) error {
	ctx, silent := watchdog(ctx)
	defer silent.stop()
	stream, err := u.stub.StreamBackpressure(u.outgoing(ctx), sub)
	if err != nil {
		return fromRPC(ctx, err)
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			return fromRPC(ctx, err)
		}
		silent.feed()
		deliver(m)
	}
}
