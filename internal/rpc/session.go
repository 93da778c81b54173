package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/engine"
	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
	"github.com/token-budget-arbiter/tba/internal/identity"
)

const (
	// sessionCalls bounds the unanswered frames of one session: ten thousand blocking callers may share it.
	sessionCalls = 16 << 10
	// noticeBatch is how many notices go into one message at most.
	noticeBatch = 512
	// sessionWatches bounds the subscriptions of one session.
	sessionWatches = 64
)

// session is one Session stream. Three goroutines share it however many calls are under way: one reads frames and hands them to the engine
// in their order, one sends answers as they are ready, many in a message, one sends notices: errors found at the door, backpressure,
// revocations, the end of the server.
type session struct {
	*Server
	stream grpc.BidiStreamingServer[tbav1.SessionRequest, tbav1.SessionResponse]
	caller *identity.Caller
	remote net.Addr
	pipe   *engine.Pipe
	ctx    context.Context
	cancel context.CancelCauseFunc
	sendMu sync.Mutex // one message at a time, from answers and notices

	notices chan notice // bounded: a client that reads nothing is not read either

	mu      sync.Mutex
	calls   []sessionCall // by tag of the pipe
	free    []uint64
	waiting map[uint64]uint64             // frame id → tag, of requests that may wait
	watches map[uint64]context.CancelFunc // frame id → end of a subscription
	held    map[arbiter.LeaseID]*followed // granted here and not ended here
	pools   map[string]*followed          // whose events are followed
	open    int                           // frames whose answer was not sent
	ended   bool                          // the client sends no more

	// The reader's own, reused from message to message: the engine copies commands before SubmitAll returns.
	tags     []uint64
	ops      []engine.Op
	errs     []error
	requests []arbiter.Request
	commits  []arbiter.Commit
	request  tbav1.LeaseRequest
	commit   tbav1.LeaseCommit
}

// sessionCall is what is remembered of a frame until it is answered.
type sessionCall struct {
	frame uint64
	kind  protowire.Number // field of the call, and of its answer
	pool  string
	model string
	route *arbiter.Route // of a request that wants its limits
	lease arbiter.LeaseID
	group *settling // of a request with commits that ride on it
	place int       // in the group; its last is the request
}

// notice is a frame on its way to the client: the answer to frame id, or what nobody asked for with id 0. answers says that it answers a frame
// that is counted as open.
type notice struct {
	id      uint64
	field   protowire.Number
	message proto.Message
	answers bool
}

// errEnded is why a session ends that the client closed in order.
var errEnded = errors.New("the client ended the session")

// Session carries all calls in frames on one stream, pipelined.
func (s *arbiterService) Session(stream grpc.BidiStreamingServer[tbav1.SessionRequest, tbav1.SessionResponse]) error {
	c, err := s.gate.caller(stream.Context(), identity.ActionListen)
	if err != nil {
		return toStatus(err)
	}
	x := &session{
		Server: s.Server, stream: stream, caller: c, remote: remoteOf(stream.Context()), pipe: s.engine.NewPipe(sessionCalls),
		notices: make(chan notice, 256),
		waiting: map[uint64]uint64{}, watches: map[uint64]context.CancelFunc{},
		held: map[arbiter.LeaseID]*followed{}, pools: map[string]*followed{},
	}
	x.ctx, x.cancel = context.WithCancelCause(stream.Context())
	var running sync.WaitGroup
	running.Go(x.sendNotices)
	go x.read() // Recv ends only when this function has returned, so nobody waits for it
	fault := x.sendAnswers()
	x.cancel(fault)
	x.pipe.Close()
	running.Wait()
	if cause := context.Cause(x.ctx); !errors.Is(cause, errEnded) && !errors.Is(cause, context.Canceled) {
		return toStatus(cause)
	}
	return nil
}

// read takes messages until the client or the session ends.
func (x *session) read() {
	var in framesIn
	for {
		err := x.stream.RecvMsg(&in)
		if errors.Is(err, io.EOF) {
			x.mu.Lock()
			x.ended = true
			done := x.open == 0
			x.mu.Unlock()
			if done {
				x.cancel(errEnded)
			}
			return
		}
		if err == nil && in.fault != nil {
			err = invalid("frames", "malformed", "%v: send SessionRequest messages", in.fault)
		}
		if err != nil {
			x.cancel(recvFault(err))
			return
		}
		if err := x.submit(in.list); err != nil {
			x.cancel(err)
			return
		}
	}
}

// recvFault is why nothing more can be read, for the client as far as it is still there.
func recvFault(err error) error {
	var ours *arbiter.Error
	switch code := status.Code(err); {
	case errors.As(err, &ours):
		return err
	case code == codes.ResourceExhausted:
		return arbiter.Errorf(arbiter.CodeResource, "too_long", "a message is above %d bytes: put fewer frames into one", maxMessage)
	case code == codes.Canceled, errors.Is(err, context.Canceled):
		return context.Canceled
	}
	return fmt.Errorf("read the session: %w", err)
}

// submit hands the frames of one message to the engine in one go.
func (x *session) submit(frames []frameIn) error {
	x.tags, x.ops = x.tags[:0], x.ops[:0]
	x.requests, x.commits = sized(x.requests, len(frames)), sized(x.commits, len(frames))
	limit := x.gate.addresses.Load().Configured()
	limited := limit.Limits(x.remote)
	for i := range frames {
		f := &frames[i]
		if f.id == 0 {
			return invalid("frames.id", "missing", "0: give each frame an id, answers carry it")
		}
		if limited {
			if wait, ok := limit.Take(x.remote); !ok {
				x.answerError(f.id, rateLimited(wait))
				continue
			}
		}
		call := sessionCall{frame: f.id, kind: f.call}
		op, ok, err := x.translate(f, &call)
		if err == nil && ok {
			err = x.queue(call, op)
		}
		if err != nil {
			x.answerError(f.id, err)
		}
	}
	if len(x.ops) == 0 {
		return nil
	}
	x.errs = sized(x.errs, len(x.ops))[:len(x.ops)]
	x.pipe.SubmitAll(x.tags, x.ops, x.errs)
	for i, err := range x.errs {
		if err != nil {
			x.notSubmitted(x.leave(x.tags[i]), err)
			x.errs[i] = nil
		}
	}
	return nil
}

// queue remembers a call and puts its op, after the commits that ride on it, among those that go to the engine.
func (x *session) queue(call sessionCall, op engine.Op) *arbiter.Error {
	if len(x.request.GetSettle()) > 0 && call.kind == fieldRequest {
		return x.queueSettling(call, op)
	}
	tag, err := x.enter(call, op.MaxWait > 0)
	if err == nil {
		x.tags, x.ops = append(x.tags, tag), append(x.ops, op)
	}
	return err
}

// notSubmitted answers a call that the engine did not take.
func (x *session) notSubmitted(call sessionCall, err error) {
	if g := call.group; g != nil {
		if !x.settled(&call, &engine.Reply{Err: err}) {
			x.sent(1)
			return
		}
		id, field, m := g.answer(x.Server)
		x.notice(notice{id, field, m, true})
		return
	}
	x.notice(errorNotice(call.frame, x.refused(err), true))
}

// sized returns an empty slice with room for n, so that pointers into it stay good while it is filled.
func sized[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, 0, n)
	}
	return s[:0]
}

// translate makes an op of a frame. ok is false when the frame is none for the engine, or was dealt with.
func (x *session) translate(f *frameIn, call *sessionCall) (op engine.Op, ok bool, err *arbiter.Error) {
	switch f.call {
	case fieldSubscribe:
		m := new(tbav1.BackpressureSubscription)
		if err := decode(f, m); err != nil {
			return op, false, err
		}
		return op, false, x.subscribeFrame(f.id, m)
	case fieldCancel:
		m := new(tbav1.SessionCancel)
		err := decode(f, m)
		x.cancelFrame(m.GetId())
		return op, false, err
	}
	if err := x.caller.Allow(identity.ActionLease); err != nil {
		return op, false, err
	}
	switch f.call {
	case fieldRequest:
		if err := decode(f, &x.request); err != nil {
			return op, false, err
		}
		x.requests = append(x.requests, arbiter.Request{})
		call.model, call.route = x.request.GetModel(), routeOf(&x.request)
		op, err = x.requestOp(&x.request, x.caller, &x.requests[len(x.requests)-1])
	case fieldCommit:
		if err := decode(f, &x.commit); err != nil {
			return op, false, err
		}
		x.commits = append(x.commits, arbiter.Commit{})
		cmd := &x.commits[len(x.commits)-1]
		op, err = x.commitOp(&x.commit, x.caller, cmd)
		call.lease = cmd.Lease
	case fieldRelease:
		m, cmd := new(tbav1.LeaseRelease), new(arbiter.Release)
		if err := decode(f, m); err != nil {
			return op, false, err
		}
		op, err = releaseOp(m, x.caller, cmd)
		call.lease = cmd.Lease
	case fieldExtend:
		m := new(tbav1.ExtendLeaseRequest)
		if err := decode(f, m); err != nil {
			return op, false, err
		}
		op, err = x.extendOp(m, x.caller)
	case fieldSignal:
		m := new(tbav1.SignalLeaseRequest)
		if err := decode(f, m); err != nil {
			return op, false, err
		}
		op, err = x.signalOp(m, x.caller)
	default:
		err = invalid("frames.call", "missing", "frame %d has no call that this server knows: set exactly one", f.id)
	}
	call.pool = op.Pool
	return op, err == nil, err
}

// decode reads the call of a frame. What is broken inside it is the fault of this frame alone.
func decode(f *frameIn, m proto.Message) *arbiter.Error {
	if err := proto.Unmarshal(f.body, m); err != nil {
		return invalid("frames.call", "malformed", "frame %d: %v", f.id, err)
	}
	return nil
}

// enter remembers a call and returns its tag.
func (x *session) enter(call sessionCall, mayWait bool) (uint64, *arbiter.Error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if mayWait {
		if _, taken := x.waiting[call.frame]; taken {
			return 0, invalid("frames.id", "frame_id_in_use", "%d names a frame that is not answered yet: give each its own", call.frame)
		}
	}
	var tag uint64
	if n := len(x.free); n > 0 {
		tag, x.free = x.free[n-1], x.free[:n-1]
		x.calls[tag] = call
	} else {
		tag = uint64(len(x.calls))
		x.calls = append(x.calls, call)
	}
	if mayWait {
		x.waiting[call.frame] = tag
	}
	x.open++
	return tag, nil
}

// leave forgets a call and returns it.
func (x *session) leave(tag uint64) sessionCall {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.leaveLocked(tag)
}

func (x *session) leaveLocked(tag uint64) sessionCall {
	call := x.calls[tag]
	x.calls[tag] = sessionCall{}
	x.free = append(x.free, tag)
	if t, ok := x.waiting[call.frame]; ok && t == tag {
		delete(x.waiting, call.frame)
	}
	return call
}

// sent counts answers that are on their way. After the last one of a session that the client has closed, the session ends.
func (x *session) sent(n int) {
	x.mu.Lock()
	x.open -= n
	done := x.ended && x.open == 0
	x.mu.Unlock()
	if done {
		x.cancel(errEnded)
	}
}

// cancelFrame gives up a request that waits or ends a subscription. Unknown ids are answered or never came: nothing to do.
func (x *session) cancelFrame(id uint64) {
	x.mu.Lock()
	tag, waits := x.waiting[id]
	stop := x.watches[id]
	x.mu.Unlock()
	if waits {
		x.pipe.Cancel(tag)
	}
	if stop != nil {
		stop()
	}
}

// answerError answers a frame that the engine never saw.
func (x *session) answerError(id uint64, err error) {
	x.mu.Lock()
	x.open++
	x.mu.Unlock()
	x.notice(errorNotice(id, err, true))
}

// notice hands a frame to the goroutine that sends notices. It blocks while the client does not read.
func (x *session) notice(n notice) {
	select {
	case x.notices <- n:
	case <-x.ctx.Done():
	}
}

// sendAnswers sends what the engine has answered until the session ends.
func (x *session) sendAnswers() error {
	var replies []engine.Reply
	var calls []sessionCall
	var out framesOut
	var scratch answers
	for {
		var err error
		if replies, err = x.pipe.Next(x.ctx, replies); err != nil {
			return context.Cause(x.ctx)
		}
		calls = calls[:0]
		x.mu.Lock()
		for i := range replies {
			call := x.leaveLocked(replies[i].Tag)
			x.track(&call, &replies[i])
			calls = append(calls, call)
		}
		x.mu.Unlock()
		for i := range replies {
			if err := x.answer(&out, &scratch, &calls[i], &replies[i]); err != nil {
				return err
			}
			if out.full() || i == len(replies)-1 && out.count > 0 {
				if err := x.send(&out); err != nil {
					return err
				}
			}
		}
		x.sent(len(replies))
	}
}

// send sends what has gathered in out.
func (x *session) send(out *framesOut) error {
	x.sendMu.Lock()
	defer x.sendMu.Unlock()
	return x.stream.SendMsg(out)
}

// errorNotice is the answer to a call that failed.
func errorNotice(id uint64, err error, answers bool) notice {
	return notice{id, fieldError, errorAnswer(err), answers}
}

// errorAnswer is an error as a frame carries it. A frame the client gave up is CANCELLED.
func errorAnswer(err error) *tbav1.RequestError {
	if errors.Is(err, context.Canceled) {
		return &tbav1.RequestError{Code: int32(codes.Canceled), Reason: "cancelled", Message: "given up by the client"}
	}
	return toFrame(err)
}
