package client

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
)

// Bounds of one message, far below the 256 KiB that a server takes.
const (
	maxFrames     = 128
	maxFrameBytes = 64 << 10
)

// signalPatience is how long a subscription may be silent; signals come every
// 5 s at least.
const signalPatience = 20 * time.Second

var errSilent = errors.New("nothing heard from the arbiter")

// link is one stream: a goroutine that sends what has gathered, one that hands
// out answers.
type link struct {
	s      *session
	stream grpc.BidiStreamingClient[tbav1.SessionRequest, tbav1.SessionResponse]
	cancel context.CancelFunc
	wake   chan struct{} // capacity 1: something to send
	done   chan struct{} // closed at the end
	err    error         // why, set before done is closed

	mu      sync.Mutex
	queue   []*call
	waiting map[uint64]waiter
	next    uint64
	heard   time.Time // zero: nothing yet
	silent  bool      // given up by killIfSilent
}

// waiter is a call without answer, or a subscription.
type waiter struct {
	answers chan *answer // capacity 1. nil: nobody waits any more
	signals func(*tbav1.BackpressureSignal)
}

func newLink(s *session, stream grpc.BidiStreamingClient[tbav1.SessionRequest, tbav1.SessionResponse], cancel context.CancelFunc) *link {
	return &link{
		s: s, stream: stream, cancel: cancel,
		wake: make(chan struct{}, 1), done: make(chan struct{}),
		waiting: map[uint64]waiter{},
	}
}

// put queues a call. The frame is a copy: after a break the same call may go
// out on another link while this one still holds it.
func (l *link) put(m *call, signals func(*tbav1.BackpressureSignal)) (uint64, <-chan *answer) {
	w := waiter{answers: make(chan *answer, 1), signals: signals}
	l.mu.Lock()
	l.next++
	id := l.next
	l.waiting[id] = w
	l.queue = append(l.queue, &call{Id: id, Call: m.GetCall()})
	l.mu.Unlock()
	l.nudge()
	return id, w.answers
}

// abandon gives up waiting, unless the answer was faster: then it lies in the
// channel of the call, and abandon returns false. With cancel the server is
// told; a grant that crosses the cancel is given back when it arrives.
func (l *link) abandon(id uint64, cancel bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.waiting[id]; !ok {
		return false
	}
	if !cancel {
		delete(l.waiting, id)
		return true
	}
	l.waiting[id] = waiter{}
	l.next++
	l.queue = append(l.queue, &call{Id: l.next, Call: &tbav1.SessionRequest_Frame_Cancel{Cancel: &tbav1.SessionCancel{Id: id}}})
	l.nudge()
	return true
}

func (l *link) nudge() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *link) run() {
	l.s.c.work.Go(l.send) // run is counted, so the count cannot be at zero here
	l.receive()
}

func (l *link) send() {
	var spare []*call
	for {
		select {
		case <-l.wake:
		case <-l.done:
			return
		}
		l.mu.Lock()
		batch := l.queue
		l.queue = spare[:0]
		l.mu.Unlock()
		for rest := batch; len(rest) > 0; {
			n := chunk(rest)
			if err := l.stream.Send(&tbav1.SessionRequest{Frames: rest[:n]}); err != nil {
				return // receive gets the status
			}
			rest = rest[n:]
		}
		clear(batch)
		spare = batch
	}
}

// chunk returns how many frames fit into one message, at least 1.
func chunk(frames []*call) int {
	size := 0
	for i, f := range frames {
		size += proto.Size(f) + 8
		if i > 0 && (size > maxFrameBytes || i == maxFrames) {
			return i
		}
	}
	return len(frames)
}

func (l *link) receive() {
	for {
		m, err := l.stream.Recv()
		if err != nil {
			l.end(err)
			return
		}
		l.mu.Lock()
		first := l.heard.IsZero()
		l.heard = time.Now()
		l.mu.Unlock()
		if first {
			l.s.heard()
		}
		for _, a := range m.GetFrames() {
			l.deliver(a)
		}
	}
}

func (l *link) deliver(a *answer) {
	if a.GetId() == 0 {
		// A drain notice asks for nothing here: the server refuses requests with a
		// hint, goes on taking commits on this stream, and then ends it.
		if r := a.GetRevocation(); r != nil {
			l.s.c.revoked(r)
		}
		return
	}
	l.mu.Lock()
	w, ok := l.waiting[a.GetId()]
	if ok && a.GetBackpressure() == nil {
		delete(l.waiting, a.GetId())
		if w.answers != nil {
			w.answers <- a // has room; under the lock, so that abandon can tell who was faster
		}
	}
	l.mu.Unlock()
	switch {
	case !ok:
	case w.signals != nil && a.GetBackpressure() != nil:
		w.signals(a.GetBackpressure())
	case w.answers == nil:
		l.giveBack(a.GetLease())
	}
}

// giveBack releases a grant that nobody waits for any more.
func (l *link) giveBack(m *tbav1.LeaseResponse) {
	release := l.s.c.handBack(m)
	if release == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next++
	l.queue = append(l.queue, &call{Id: l.next, Call: releaseCall(release).GetCall()})
	l.nudge()
}

func (l *link) end(err error) {
	l.mu.Lock()
	answered, silent := !l.heard.IsZero(), l.silent
	l.mu.Unlock()
	switch {
	case l.s.c.ctx.Err() != nil:
		err = ErrClosed
	case silent:
		err = &UnavailableError{Reason: "network", cause: errSilent}
	case errors.Is(err, io.EOF):
		err = &UnavailableError{Reason: "network", cause: errors.New("the arbiter ended the session")}
	default:
		err = fromRPC(context.Background(), err)
	}
	l.err = l.s.ended(l, answered, err)
	l.cancel()
	close(l.done)
}

// failure says why the link ended; only after done.
func (l *link) failure() error { return l.err }

// kill ends a link on which nothing is heard any more, and waits for that: the
// next try must not meet it again.
func (l *link) kill() {
	l.mu.Lock()
	l.silent = true
	l.mu.Unlock()
	l.cancel()
	<-l.done
}

// killIfSilent ends the link if nothing at all was heard on it for d.
func (l *link) killIfSilent(d time.Duration) {
	l.mu.Lock()
	dead := time.Since(l.heard) >= d
	l.mu.Unlock()
	if dead {
		l.kill()
	}
}

// dog ends a context when it is not fed.
type dog struct {
	timer  *time.Timer
	cancel context.CancelCauseFunc
}

func watchdog(ctx context.Context) (context.Context, *dog) {
	ctx, cancel := context.WithCancelCause(ctx)
	return ctx, &dog{cancel: cancel, timer: time.AfterFunc(signalPatience, func() { cancel(errSilent) })}
}

func (d *dog) feed() { d.timer.Reset(signalPatience) }

func (d *dog) stop() {
	d.timer.Stop()
	d.cancel(nil)
}
