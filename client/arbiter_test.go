package client_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/token-budget-arbiter/tba/client"
	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
)

// fakeArbiter speaks the service over an in-memory listener. It keeps no
// budgets: a test says what it answers, and reads what it was asked.
type fakeArbiter struct {
	tbav1.UnimplementedTokenBudgetArbiterServer

	onRequest func(context.Context, *tbav1.LeaseRequest) (*tbav1.LeaseResponse, error)
	onCommit  func(*tbav1.LeaseCommit) (*tbav1.CommitResponse, error)
	onRelease func(*tbav1.LeaseRelease) (*tbav1.ReleaseResponse, error)
	onExtend  func(*tbav1.ExtendLeaseRequest) (*tbav1.ExtendLeaseResponse, error)
	noWatch   error
	noSession bool // answers UNIMPLEMENTED to Session
	deafAfter int  // frames read before a session stops answering. 0: never
	ttl       time.Duration

	mu        sync.Mutex
	lis       *bufconn.Listener
	srv       *grpc.Server
	leases    map[string]string // request id → lease id
	requests  []*tbav1.LeaseRequest
	commits   []*tbav1.LeaseCommit
	releases  []*tbav1.LeaseRelease
	extends   []*tbav1.ExtendLeaseRequest
	signals   []*tbav1.SignalLeaseRequest
	keys      []string
	rpcs      int // unary calls
	sessions  map[*pipe]struct{}
	opened    int // sessions ever
	watchers  map[chan *tbav1.BackpressureSignal]struct{}
	lastLevel *tbav1.BackpressureSignal // repeated every 5 s; nil: silence
}

// pipe is one session.
type pipe struct {
	stream tbav1.TokenBudgetArbiter_SessionServer
	ctx    context.Context
	cut    context.CancelFunc
	wake   chan struct{}
	mu     sync.Mutex
	queue  []*tbav1.SessionResponse_Frame
}

func (p *pipe) send(f *tbav1.SessionResponse_Frame) {
	p.mu.Lock()
	p.queue = append(p.queue, f)
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// run sends what has gathered.
func (p *pipe) run() {
	for {
		select {
		case <-p.wake:
		case <-p.ctx.Done():
			return
		}
		p.mu.Lock()
		batch := p.queue
		p.queue = nil
		p.mu.Unlock()
		if len(batch) > 0 {
			_ = p.stream.Send(&tbav1.SessionResponse{Frames: batch}) // a broken stream shows in Session
		}
	}
}

func newFake() *fakeArbiter {
	f := &fakeArbiter{
		ttl: 2 * time.Minute, leases: map[string]string{},
		lastLevel: &tbav1.BackpressureSignal{},
		sessions:  map[*pipe]struct{}{}, watchers: map[chan *tbav1.BackpressureSignal]struct{}{},
	}
	f.start()
	return f
}

func (f *fakeArbiter) start() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lis = bufconn.Listen(1 << 20)
	f.srv = grpc.NewServer()
	tbav1.RegisterTokenBudgetArbiterServer(f.srv, f)
	srv, lis := f.srv, f.lis
	go func() { _ = srv.Serve(lis) }()
}

// stop takes the arbiter away; start brings it back.
func (f *fakeArbiter) stop() {
	f.mu.Lock()
	srv := f.srv
	for p := range f.sessions {
		p.cut()
	}
	f.mu.Unlock()
	srv.Stop()
}

func (f *fakeArbiter) dial(ctx context.Context, _ string) (net.Conn, error) {
	f.mu.Lock()
	lis := f.lis
	f.mu.Unlock()
	return lis.DialContext(ctx)
}

// client connects to f; both end with the test.
func (f *fakeArbiter) client(t testing.TB, opts ...client.Option) *client.Client {
	t.Helper()
	c, err := f.connect(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		f.stop()
	})
	return c
}

func (f *fakeArbiter) connect(opts ...client.Option) (*client.Client, error) {
	return client.Dial("passthrough:///arbiter", append([]client.Option{client.WithGRPC(
		grpc.WithContextDialer(f.dial), grpc.WithTransportCredentials(insecure.NewCredentials()),
	)}, opts...)...)
}

// refusal is an error as an arbiter words it.
func refusal(c codes.Code, reason string, retry time.Duration) error {
	st, err := status.New(c, "the "+reason+" test").WithDetails(
		&errdetails.ErrorInfo{Reason: reason, Domain: "tba"},
		&errdetails.RetryInfo{RetryDelay: durationpb.New(retry)},
	)
	if err != nil {
		panic(err)
	}
	return st.Err()
}

func (f *fakeArbiter) request(ctx context.Context, m *tbav1.LeaseRequest) (*tbav1.LeaseResponse, error) {
	f.mu.Lock()
	f.requests = append(f.requests, m)
	hook := f.onRequest
	f.mu.Unlock()
	var settled []*tbav1.SettledCommit
	for _, c := range m.GetSettle() {
		s := &tbav1.SettledCommit{LeaseId: c.GetLeaseId()}
		if r, err := f.commit(c); err != nil {
			s.Outcome = &tbav1.SettledCommit_Error{Error: frameError(err)}
		} else {
			s.Outcome = &tbav1.SettledCommit_Commit{Commit: r}
		}
		settled = append(settled, s)
	}
	if hook != nil {
		r, err := hook(ctx, m)
		if r != nil {
			r.Settled = settled
		}
		return r, err
	}
	r := f.grant(m)
	r.Settled = settled
	return r, nil
}

// grant answers a repeated request id with the same lease.
func (f *fakeArbiter) grant(m *tbav1.LeaseRequest) *tbav1.LeaseResponse {
	f.mu.Lock()
	defer f.mu.Unlock()
	id, again := f.leases[m.GetRequestId()]
	if !again {
		id = fmt.Sprintf("lease-%d", len(f.leases)+1)
		f.leases[m.GetRequestId()] = id
	}
	return &tbav1.LeaseResponse{
		Status: tbav1.LeaseStatus_GRANTED, LeaseId: id, LeaseToken: []byte("token of " + id),
		AssignedProvider: "openai", AssignedModel: "gpt-5-mini", GrantedTokens: m.GetEstimatedTokens(),
		TtlSeconds: int32(f.ttl / time.Second), TtlMs: f.ttl.Milliseconds(), StartByMs: 2000,
		EstimatedCostNanos: 4_200_000, Phase: tbav1.Lease_ACTIVE, Replayed: again,
	}
}

func (f *fakeArbiter) commit(m *tbav1.LeaseCommit) (*tbav1.CommitResponse, error) {
	f.mu.Lock()
	f.commits = append(f.commits, m)
	hook := f.onCommit
	f.mu.Unlock()
	if hook != nil {
		return hook(m)
	}
	r := &tbav1.CommitResponse{RecordedTokens: m.GetActualTokens(), CostNanos: 1000 * m.GetActualTokens()}
	if m.ActualTokens == nil {
		r.RecordedTokens, r.Flags = 1000, []tbav1.CommitResponse_Flag{tbav1.CommitResponse_ESTIMATED}
	}
	return r, nil
}

func (f *fakeArbiter) release(m *tbav1.LeaseRelease) (*tbav1.ReleaseResponse, error) {
	f.mu.Lock()
	f.releases = append(f.releases, m)
	hook := f.onRelease
	f.mu.Unlock()
	if hook != nil {
		return hook(m)
	}
	return &tbav1.ReleaseResponse{}, nil
}

func (f *fakeArbiter) extend(m *tbav1.ExtendLeaseRequest) (*tbav1.ExtendLeaseResponse, error) {
	f.mu.Lock()
	f.extends = append(f.extends, m)
	hook := f.onExtend
	f.mu.Unlock()
	if hook != nil {
		return hook(m)
	}
	return &tbav1.ExtendLeaseResponse{TtlMs: f.ttl.Milliseconds(), Phase: tbav1.Lease_ACTIVE}, nil
}

func (f *fakeArbiter) signal(m *tbav1.SignalLeaseRequest) (*tbav1.SignalLeaseResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.signals = append(f.signals, m)
	return &tbav1.SignalLeaseResponse{Phase: tbav1.Lease_ACTIVE}, nil
}

// hush ends the signals.
func (f *fakeArbiter) hush() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lastLevel = nil
}

// push sends a signal to all who listen, and to those who come later.
func (f *fakeArbiter) push(m *tbav1.BackpressureSignal) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lastLevel = m
	for ch := range f.watchers {
		ch <- m
	}
}

func (f *fakeArbiter) watch(ctx context.Context, send func(*tbav1.BackpressureSignal)) {
	ch := make(chan *tbav1.BackpressureSignal, 16)
	f.mu.Lock()
	f.watchers[ch] = struct{}{}
	if f.lastLevel != nil {
		ch <- f.lastLevel
	}
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.watchers, ch)
		f.mu.Unlock()
	}()
	beat := time.NewTicker(5 * time.Second)
	defer beat.Stop()
	for {
		select {
		case m := <-ch:
			send(m)
		case <-beat.C:
			f.mu.Lock()
			m := f.lastLevel
			f.mu.Unlock()
			if m != nil {
				send(m)
			}
		case <-ctx.Done():
			return
		}
	}
}

// revoke tells every session.
func (f *fakeArbiter) revoke(leaseID, reason string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for p := range f.sessions {
		p.send(&tbav1.SessionResponse_Frame{Answer: &tbav1.SessionResponse_Frame_Revocation{
			Revocation: &tbav1.Revocation{LeaseId: leaseID, Reason: reason},
		}})
	}
}

// cut breaks every session.
func (f *fakeArbiter) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for p := range f.sessions {
		p.cut()
	}
}

func frameError(err error) *tbav1.RequestError {
	st := status.Convert(err)
	e := &tbav1.RequestError{Code: int32(st.Code()), Message: st.Message()}
	for _, d := range st.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			e.Reason = d.GetReason()
		case *errdetails.RetryInfo:
			e.RetryAfterMs = d.GetRetryDelay().AsDuration().Milliseconds()
		}
	}
	return e
}

func (f *fakeArbiter) Session(stream tbav1.TokenBudgetArbiter_SessionServer) error {
	if f.noSession {
		return status.Error(codes.Unimplemented, "unknown method Session")
	}
	ctx, cut := context.WithCancel(stream.Context())
	defer cut()
	p := &pipe{stream: stream, ctx: ctx, cut: cut, wake: make(chan struct{}, 1)}
	f.mu.Lock()
	f.sessions[p] = struct{}{}
	f.opened++
	f.mu.Unlock()
	var work sync.WaitGroup
	defer work.Wait()
	work.Go(p.run)
	defer func() {
		cut()
		f.mu.Lock()
		delete(f.sessions, p)
		f.mu.Unlock()
	}()
	frames := make(chan *tbav1.SessionRequest_Frame)
	go func() {
		defer cut()
		for {
			m, err := stream.Recv()
			if err != nil {
				return
			}
			for _, in := range m.GetFrames() {
				select {
				case frames <- in:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	pending := map[uint64]context.CancelFunc{}
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return status.Error(codes.Unavailable, "connection lost")
		case in := <-frames:
			if f.deafAfter > 0 && n > f.deafAfter {
				continue
			}
			if id := in.GetCancel().GetId(); id != 0 {
				if cancel := pending[id]; cancel != nil {
					cancel()
				}
				continue
			}
			call, cancel := context.WithCancel(ctx)
			if in.GetRequest() != nil || in.GetSubscribe() != nil {
				pending[in.GetId()] = cancel
			}
			work.Go(func() { f.answer(call, p, in); cancel() })
		}
	}
}

func (f *fakeArbiter) answer(ctx context.Context, p *pipe, in *tbav1.SessionRequest_Frame) {
	out := &tbav1.SessionResponse_Frame{Id: in.GetId()}
	var err error
	switch c := in.GetCall().(type) {
	case *tbav1.SessionRequest_Frame_Request:
		var m *tbav1.LeaseResponse
		m, err = f.request(ctx, c.Request)
		out.Answer = &tbav1.SessionResponse_Frame_Lease{Lease: m}
	case *tbav1.SessionRequest_Frame_Commit:
		var m *tbav1.CommitResponse
		m, err = f.commit(c.Commit)
		out.Answer = &tbav1.SessionResponse_Frame_Commit{Commit: m}
	case *tbav1.SessionRequest_Frame_Release:
		var m *tbav1.ReleaseResponse
		m, err = f.release(c.Release)
		out.Answer = &tbav1.SessionResponse_Frame_Release{Release: m}
	case *tbav1.SessionRequest_Frame_Extend:
		var m *tbav1.ExtendLeaseResponse
		m, err = f.extend(c.Extend)
		out.Answer = &tbav1.SessionResponse_Frame_Extend{Extend: m}
	case *tbav1.SessionRequest_Frame_Signal:
		var m *tbav1.SignalLeaseResponse
		m, err = f.signal(c.Signal)
		out.Answer = &tbav1.SessionResponse_Frame_Signal{Signal: m}
	case *tbav1.SessionRequest_Frame_Subscribe:
		if err = f.noWatch; err != nil {
			break
		}
		f.watch(ctx, func(m *tbav1.BackpressureSignal) {
			p.send(&tbav1.SessionResponse_Frame{Id: in.GetId(), Answer: &tbav1.SessionResponse_Frame_Backpressure{Backpressure: m}})
		})
		err = status.Error(codes.Canceled, "subscription ended")
	}
	if errors.Is(err, errLost) || p.ctx.Err() != nil {
		return
	}
	if err != nil {
		out.Answer = &tbav1.SessionResponse_Frame_Error{Error: frameError(err)}
	}
	p.send(out)
}

// errLost is an answer that never arrives.
var errLost = errors.New("answer lost")

func (f *fakeArbiter) count(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rpcs++
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		f.keys = append(f.keys, md.Get("authorization")...)
	}
}

func (f *fakeArbiter) RequestLease(ctx context.Context, m *tbav1.LeaseRequest) (*tbav1.LeaseResponse, error) {
	f.count(ctx)
	return f.request(ctx, m)
}

func (f *fakeArbiter) CommitLease(ctx context.Context, m *tbav1.LeaseCommit) (*tbav1.CommitResponse, error) {
	f.count(ctx)
	return f.commit(m)
}

func (f *fakeArbiter) ReleaseLease(ctx context.Context, m *tbav1.LeaseRelease) (*tbav1.ReleaseResponse, error) {
	f.count(ctx)
	return f.release(m)
}

func (f *fakeArbiter) ExtendLease(ctx context.Context, m *tbav1.ExtendLeaseRequest) (*tbav1.ExtendLeaseResponse, error) {
	f.count(ctx)
	return f.extend(m)
}

func (f *fakeArbiter) SignalLease(ctx context.Context, m *tbav1.SignalLeaseRequest) (*tbav1.SignalLeaseResponse, error) {
	f.count(ctx)
	return f.signal(m)
}

func (f *fakeArbiter) StreamBackpressure(_ *tbav1.BackpressureSubscription, s tbav1.TokenBudgetArbiter_StreamBackpressureServer) error {
	if f.noWatch != nil {
		return f.noWatch
	}
	f.watch(s.Context(), func(m *tbav1.BackpressureSignal) { _ = s.Send(m) })
	return nil
}

// seen returns copies of what f was asked.
func (f *fakeArbiter) seen() (requests []*tbav1.LeaseRequest, commits []*tbav1.LeaseCommit, releases []*tbav1.LeaseRelease) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append(requests, f.requests...), append(commits, f.commits...), append(releases, f.releases...)
}

func (f *fakeArbiter) counts() (rpcs, sessions, extends int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rpcs, f.opened, len(f.extends)
}
