package rpc

import (
	"context"
	"io"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"

	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
)

func stringReader(s string) io.Reader { return strings.NewReader(s) }

// testSession is a client of a session that sends what has gathered while the last message was on its way.
type testSession struct {
	stream grpc.BidiStreamingClient[tbav1.SessionRequest, tbav1.SessionResponse]
	cancel context.CancelFunc
	mu     sync.Mutex
	queue  []*tbav1.SessionRequest_Frame
	kick   chan struct{}
}

func openSession(t testing.TB, c tbav1.TokenBudgetArbiterClient) *testSession {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := c.Session(ctx)
	if err != nil {
		t.Fatal(err)
	}
	x := &testSession{stream: stream, cancel: cancel, kick: make(chan struct{}, 1)}
	go x.sendLoop(ctx)
	t.Cleanup(cancel)
	return x
}

func (x *testSession) push(f *tbav1.SessionRequest_Frame) {
	x.mu.Lock()
	x.queue = append(x.queue, f)
	x.mu.Unlock()
	select {
	case x.kick <- struct{}{}:
	default:
	}
}

func (x *testSession) sendLoop(ctx context.Context) {
	var spare []*tbav1.SessionRequest_Frame
	for {
		select {
		case <-x.kick:
		case <-ctx.Done():
			return
		}
		x.mu.Lock()
		frames := x.queue
		x.queue = spare[:0]
		x.mu.Unlock()
		if len(frames) > 0 && x.stream.Send(&tbav1.SessionRequest{Frames: frames}) != nil {
			return
		}
		clear(frames)
		spare = frames
	}
}

// receive gives every frame to take until the session ends.
func (x *testSession) receive(take func(*tbav1.SessionResponse_Frame)) error {
	for {
		m, err := x.stream.Recv()
		if err != nil {
			return err
		}
		for _, f := range m.GetFrames() {
			take(f)
		}
	}
}
