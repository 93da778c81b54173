package demo

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// message makes an empty message of the wire contract, which the SDK has registered.
func message(t *testing.T, name protoreflect.FullName) protoreflect.Message {
	t.Helper()
	kind, err := protoregistry.GlobalTypes.FindMessageByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return kind.New()
}

func set(t *testing.T, m protoreflect.Message, name protoreflect.Name, v any) {
	t.Helper()
	f := m.Descriptor().Fields().ByName(name)
	if f == nil {
		t.Fatalf("%s has no field %s", m.Descriptor().FullName(), name)
	}
	m.Set(f, protoreflect.ValueOf(v))
}

func lease(t *testing.T, status protoreflect.EnumNumber, reason string) protoreflect.Message {
	m := message(t, "tba.v1.LeaseResponse")
	set(t, m, "status", status)
	set(t, m, "reason", reason)
	return m
}

func request(t *testing.T, maxWaitMS int64) protoreflect.Message {
	m := message(t, "tba.v1.LeaseRequest")
	set(t, m, "max_wait_ms", maxWaitMS)
	return m
}

func TestTapReadsUnaryAnswers(t *testing.T) {
	t.Parallel()
	tally := newTally()
	ask := func(method string, in, out protoreflect.Message, err error) {
		invoke := func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { return err }
		if got := (tap{tally}).unary(t.Context(), method, in.Interface(), out.Interface(), nil, invoke); !errors.Is(got, err) {
			t.Errorf("%s: %v", method, got)
		}
	}
	const rpc = "/tba.v1.TokenBudgetArbiter/RequestLease"
	ask(rpc, request(t, 0), lease(t, granted, ""), nil)
	ask(rpc, request(t, 2000), lease(t, granted, ""), nil)
	ask(rpc, request(t, 0), lease(t, deferred, "rpm"), nil)
	ask(rpc, request(t, 0), lease(t, denied, "budget"), nil)
	ask(rpc, request(t, 0), lease(t, denied, "budget"), errors.New("no network"))
	ask("/tba.v1.TokenBudgetArbiter/CommitLease", message(t, "tba.v1.LeaseCommit"), message(t, "tba.v1.CommitResponse"), nil)
	c := tally.counts()
	if c.granted != 2 || c.deferred != 1 || c.denied != 1 || c.refusedBy["rpm"] != 1 || c.refusedBy["budget"] != 1 || len(tally.atOnce) != 1 {
		t.Errorf("%+v, %d at once", c, len(tally.atOnce))
	}
}

// pipe is a stream whose answers are given in advance.
type pipe struct {
	grpc.ClientStream
	answers []protoreflect.Message
}

func (*pipe) SendMsg(any) error { return nil }

func (p *pipe) RecvMsg(m any) error {
	if len(p.answers) == 0 {
		return errors.New("end of stream")
	}
	from := p.answers[0]
	p.answers = p.answers[1:]
	from.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		reflected(m).Set(f, v)
		return true
	})
	return nil
}

func TestTapReadsSessionFrames(t *testing.T) {
	t.Parallel()
	batch := func(name protoreflect.FullName, call protoreflect.Name, byID map[uint64]protoreflect.Message) protoreflect.Message {
		m := message(t, name)
		list := m.Mutable(m.Descriptor().Fields().ByName("frames")).List()
		for id, content := range byID {
			frame := list.NewElement()
			set(t, frame.Message(), "id", id)
			set(t, frame.Message(), call, content)
			list.Append(frame)
		}
		return m
	}
	tally := newTally()
	under := &pipe{answers: []protoreflect.Message{
		batch("tba.v1.SessionResponse", "lease", map[uint64]protoreflect.Message{1: lease(t, granted, ""), 2: lease(t, deferred, "slots")}),
		batch("tba.v1.SessionResponse", "commit", map[uint64]protoreflect.Message{3: message(t, "tba.v1.CommitResponse")}),
		batch("tba.v1.SessionResponse", "lease", map[uint64]protoreflect.Message{9: lease(t, granted, "")}),
	}}
	open := func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, ...grpc.CallOption) (grpc.ClientStream, error) {
		return under, nil
	}
	stream, err := (tap{tally}).stream(t.Context(), nil, nil, "/tba.v1.TokenBudgetArbiter/Session", open)
	if err != nil {
		t.Fatal(err)
	}
	send := func(m protoreflect.Message) {
		if err := stream.SendMsg(m.Interface()); err != nil {
			t.Fatal(err)
		}
	}
	send(batch("tba.v1.SessionRequest", "request", map[uint64]protoreflect.Message{1: request(t, 0), 2: request(t, 0)}))
	send(batch("tba.v1.SessionRequest", "commit", map[uint64]protoreflect.Message{3: message(t, "tba.v1.LeaseCommit")}))
	for stream.RecvMsg(message(t, "tba.v1.SessionResponse").Interface()) == nil {
	}
	c := tally.counts()
	if c.granted != 1 || c.deferred != 1 || c.refusedBy["slots"] != 1 || c.p99 > time.Minute.Microseconds() {
		t.Errorf("%+v: an answer that nobody asked for does not count", c)
	}
	other, err := (tap{tally}).stream(t.Context(), nil, nil, "/tba.v1.TokenBudgetArbiter/StreamBackpressure", open)
	if err != nil || other != grpc.ClientStream(under) {
		t.Errorf("another stream was tapped: %v, %v", other, err)
	}
}
