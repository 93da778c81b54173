package demo

import (
	"context"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// tap reads along on the SDK's connection and counts each answer to a lease request: the SDK waits out a deferral by
// itself and tells nobody why. It reads messages by the published field names, as any stranger could.
type tap struct{ tally *tally }

func (t tap) options() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(t.unary),
		grpc.WithChainStreamInterceptor(t.stream),
	}
}

func (t tap) unary(ctx context.Context, method string, in, out any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if !strings.HasSuffix(method, "/RequestLease") {
		return invoke(ctx, method, in, out, cc, opts...)
	}
	sent := time.Now()
	err := invoke(ctx, method, in, out, cc, opts...)
	if err == nil {
		t.answer(reflected(out), mayWait(reflected(in)), time.Since(sent))
	}
	return err
}

func (t tap) stream(ctx context.Context, d *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := open(ctx, d, cc, method, opts...)
	if err != nil || !strings.HasSuffix(method, "/Session") {
		return s, err
	}
	return &tappedStream{ClientStream: s, tap: t, asked: map[uint64]question{}}, nil
}

func (t tap) answer(m protoreflect.Message, mayWait bool, took time.Duration) {
	status := int(number(m, "status"))
	t.tally.answer(status, text(m, "reason"), mayWait, took)
}

// question is a lease request that has not been answered.
type question struct {
	sent    time.Time
	mayWait bool
}

// tappedStream is a Session stream.
type tappedStream struct {
	grpc.ClientStream
	tap   tap
	mu    sync.Mutex
	asked map[uint64]question
}

func (s *tappedStream) SendMsg(m any) error {
	now := time.Now()
	frames(m, func(id uint64, frame protoreflect.Message) {
		if request, ok := part(frame, "request"); ok {
			s.mu.Lock()
			s.asked[id] = question{now, mayWait(request)}
			s.mu.Unlock()
		}
	})
	return s.ClientStream.SendMsg(m)
}

func (s *tappedStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err != nil {
		return err
	}
	now := time.Now()
	frames(m, func(id uint64, frame protoreflect.Message) {
		s.mu.Lock()
		q, asked := s.asked[id]
		delete(s.asked, id)
		s.mu.Unlock()
		if lease, ok := part(frame, "lease"); ok && asked {
			s.tap.answer(lease, q.mayWait, now.Sub(q.sent))
		}
	})
	return nil
}

// frames calls f for each frame of a session message.
func frames(m any, f func(id uint64, frame protoreflect.Message)) {
	list, ok := field(reflected(m), "frames")
	if !ok {
		return
	}
	for i := range list.List().Len() {
		frame := list.List().Get(i).Message()
		id, _ := field(frame, "id")
		f(id.Uint(), frame)
	}
}

func mayWait(request protoreflect.Message) bool { return number(request, "max_wait_ms") > 0 }

func reflected(m any) protoreflect.Message {
	if p, ok := m.(proto.Message); ok {
		return p.ProtoReflect()
	}
	return nil
}

// field is a field of m by its name; ok is false when m has no such field.
func field(m protoreflect.Message, name protoreflect.Name) (v protoreflect.Value, ok bool) {
	if m == nil {
		return v, false
	}
	f := m.Descriptor().Fields().ByName(name)
	if f == nil {
		return v, false
	}
	return m.Get(f), true
}

// part is a message inside m; ok is false when it is not set.
func part(m protoreflect.Message, name protoreflect.Name) (protoreflect.Message, bool) {
	f := m.Descriptor().Fields().ByName(name)
	if f == nil || !m.Has(f) {
		return nil, false
	}
	return m.Get(f).Message(), true
}

func number(m protoreflect.Message, name protoreflect.Name) int64 {
	v, ok := field(m, name)
	if !ok {
		return 0
	}
	switch n := v.Interface().(type) {
	case protoreflect.EnumNumber:
		return int64(n)
	case int64:
		return n
	}
	return 0
}

func text(m protoreflect.Message, name protoreflect.Name) string {
	v, ok := field(m, name)
	if !ok {
		return ""
	}
	return v.String()
}
