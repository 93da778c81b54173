package rpc

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/token-budget-arbiter/tba/arbiter"
	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
)

// published builds the messages of the published definition, which has no package line, from its numbers and types alone.
func published(t *testing.T) func(name string) *dynamicpb.Message {
	t.Helper()
	field := func(name string, number int32, kind descriptorpb.FieldDescriptorProto_Type) *descriptorpb.FieldDescriptorProto {
		return &descriptorpb.FieldDescriptorProto{Name: &name, Number: &number, Type: kind.Enum(), Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()}
	}
	const text, int32t, int64t = descriptorpb.FieldDescriptorProto_TYPE_STRING, descriptorpb.FieldDescriptorProto_TYPE_INT32, descriptorpb.FieldDescriptorProto_TYPE_INT64
	fd, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: proto.String("published.proto"), Syntax: proto.String("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{
			{Name: proto.String("LeaseRequest"), Field: []*descriptorpb.FieldDescriptorProto{
				field("agent_id", 1, text), field("agent_class", 2, text), field("estimated_tokens", 3, int32t),
				field("preferred_provider", 4, text), field("priority", 5, int32t), field("task_id", 6, text),
			}},
			{Name: proto.String("LeaseResponse"), Field: []*descriptorpb.FieldDescriptorProto{
				field("lease_id", 1, text), field("assigned_provider", 2, text), field("granted_tokens", 3, int32t),
				field("ttl_seconds", 4, int32t), field("status", 5, int32t), field("backpressure", 6, int32t),
			}},
			{Name: proto.String("LeaseCommit"), Field: []*descriptorpb.FieldDescriptorProto{field("lease_id", 1, text), field("actual_tokens", 2, int64t)}},
			{Name: proto.String("LeaseRelease"), Field: []*descriptorpb.FieldDescriptorProto{field("lease_id", 1, text)}},
			{Name: proto.String("Result"), Field: []*descriptorpb.FieldDescriptorProto{field("result", 1, int32t)}},
			{Name: proto.String("BackpressureSubscription"), Field: []*descriptorpb.FieldDescriptorProto{field("agent_id", 1, text)}},
			{Name: proto.String("BackpressureSignal"), Field: []*descriptorpb.FieldDescriptorProto{
				field("level", 1, int32t), field("global_budget_consumed_pct", 2, descriptorpb.FieldDescriptorProto_TYPE_DOUBLE),
				field("recommended_delay_ms", 4, int32t), field("shed_low_priority", 5, descriptorpb.FieldDescriptorProto_TYPE_BOOL), field("message", 6, text),
			}},
		},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return func(name string) *dynamicpb.Message {
		return dynamicpb.NewMessage(fd.Messages().ByName(protoreflect.Name(name)))
	}
}

func set(m *dynamicpb.Message, name string, value any) {
	m.Set(m.Descriptor().Fields().ByName(protoreflect.Name(name)), protoreflect.ValueOf(value))
}

func value(m *dynamicpb.Message, name string) any {
	return m.Get(m.Descriptor().Fields().ByName(protoreflect.Name(name))).Interface()
}

// TestPublishedClient: a client generated from the published definition works, under its bare service name and under the full one.
func TestPublishedClient(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	message := published(t)
	for _, service := range []string{"/TokenBudgetArbiter/", "/tba.v1.TokenBudgetArbiter/"} {
		call := func(method string, in *dynamicpb.Message, out string) *dynamicpb.Message {
			m := message(out)
			if err := w.conn.Invoke(t.Context(), service+method, in, m); err != nil {
				t.Fatalf("%s%s: %v", service, method, err)
			}
			return m
		}
		take := func() string {
			in := message("LeaseRequest")
			set(in, "agent_id", "old-client")
			set(in, "agent_class", "chat")
			set(in, "estimated_tokens", int32(1000))
			set(in, "preferred_provider", "anthropic")
			set(in, "task_id", "t-1")
			lease := call("RequestLease", in, "LeaseResponse")
			if value(lease, "status") != int32(0) || value(lease, "granted_tokens") != int32(1000) || value(lease, "ttl_seconds") != int32(120) || value(lease, "assigned_provider") == "" {
				t.Errorf("%v", lease)
			}
			return value(lease, "lease_id").(string)
		}
		in := message("LeaseCommit")
		set(in, "lease_id", take())
		set(in, "actual_tokens", int64(900))
		if out := call("CommitLease", in, "Result"); value(out, "result") != int32(0) {
			t.Errorf("commit: %v", out)
		}
		in = message("LeaseRelease")
		set(in, "lease_id", take())
		if out := call("ReleaseLease", in, "Result"); value(out, "result") != int32(0) {
			t.Errorf("release: %v", out)
		}
		ctx, cancel := context.WithCancel(t.Context())
		stream, err := w.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, service+"StreamBackpressure")
		if err != nil {
			t.Fatal(err)
		}
		in, out := message("BackpressureSubscription"), message("BackpressureSignal")
		set(in, "agent_id", "old-client")
		if err := stream.SendMsg(in); err != nil {
			t.Fatal(err)
		}
		if err := stream.RecvMsg(out); err != nil || value(out, "level") != int32(0) || value(out, "message") == "" {
			t.Errorf("signal: %v, %v", out, err)
		}
		cancel()
	}
}

// TestPublishedNumbers pins the numbers that published clients rely on.
func TestPublishedNumbers(t *testing.T) {
	t.Parallel()
	b, err := proto.Marshal(&tbav1.LeaseResponse{Status: tbav1.LeaseStatus_DENIED, Backpressure: tbav1.BackpressureSignal_CRITICAL})
	if err != nil {
		t.Fatal(err)
	}
	want := protowire.AppendVarint(protowire.AppendTag(protowire.AppendVarint(protowire.AppendTag(nil, 5, protowire.VarintType), 2), 6, protowire.VarintType), 4)
	if string(b) != string(want) {
		t.Errorf("% x, want % x", b, want)
	}
}

func TestReflectionAndHealth(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := reflectionpb.NewServerReflectionClient(w.conn).ServerReflectionInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(m *reflectionpb.ServerReflectionRequest) *reflectionpb.ServerReflectionResponse {
		if err := stream.Send(m); err != nil {
			t.Fatal(err)
		}
		out, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	var names []string
	for _, s := range ask(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}).GetListServicesResponse().GetService() {
		names = append(names, s.GetName())
	}
	for _, name := range []string{"TokenBudgetArbiter", "tba.v1.TokenBudgetArbiter", "tba.v1.Admin", "grpc.health.v1.Health"} {
		if !slices.Contains(names, name) {
			t.Errorf("%s is not listed in %v", name, names)
		}
		out := ask(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: name}})
		if len(out.GetFileDescriptorResponse().GetFileDescriptorProto()) == 0 {
			t.Errorf("%s has no descriptor: %v", name, out)
		}
	}
	health := healthpb.NewHealthClient(w.conn)
	for _, want := range []healthpb.HealthCheckResponse_ServingStatus{healthpb.HealthCheckResponse_SERVING, healthpb.HealthCheckResponse_NOT_SERVING} {
		for _, name := range []string{"", "TokenBudgetArbiter", "tba.v1.TokenBudgetArbiter"} {
			if out, err := health.Check(ctx, &healthpb.HealthCheckRequest{Service: name}); err != nil || out.GetStatus() != want {
				t.Errorf("health of %q: %v, %v", name, out, err)
			}
		}
		w.server.Drain(time.Second)
	}
}

// TestTenThousandCallers: all ask at once and wait; every one gets an answer, no more run at a time than the slots allow.
func TestTenThousandCallers(t *testing.T) {
	t.Parallel()
	const slots = 500
	w := newWorld(t, setup{policy: testPolicy(func(p *arbiter.Policy) {
		p.Providers = p.Providers[:1]
		p.Providers[0].Ceilings = arbiter.Ceilings{MaxConcurrent: slots}
	})})
	var running, most, granted atomic.Int64
	var callers sync.WaitGroup
	for i := range 10_000 {
		callers.Go(func() {
			out, err := w.lease.RequestLease(context.Background(), &tbav1.LeaseRequest{AgentId: "a" + strconv.Itoa(i%100), EstimatedTokens: 10, MaxWaitMs: 600_000})
			if err != nil || out.GetStatus() != tbav1.LeaseStatus_GRANTED {
				t.Errorf("caller %d: %v, %v", i, out, err)
				return
			}
			now := running.Add(1)
			for seen := most.Load(); now > seen && !most.CompareAndSwap(seen, now); seen = most.Load() {
			}
			granted.Add(1)
			running.Add(-1)
			if _, err := w.lease.CommitLease(context.Background(), &tbav1.LeaseCommit{LeaseId: out.GetLeaseId(), ActualTokens: proto.Int64(5)}); err != nil {
				t.Errorf("commit of caller %d: %v", i, err)
			}
		})
	}
	callers.Wait()
	if granted.Load() != 10_000 || most.Load() > slots {
		t.Errorf("%d granted, %d at a time with %d slots", granted.Load(), most.Load(), slots)
	}
	if s, err := w.admin.GetStatus(t.Context(), &tbav1.GetStatusRequest{}); err != nil || s.GetLeasesOpen() != 0 || s.GetWaiting() != 0 {
		t.Errorf("afterwards: %v, %v", s, err)
	}
}

// TestCallerVanishesWhileItWaits: it leaves no place in the queue and no lease.
func TestCallerVanishesWhileItWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{policy: oneSlot()})
		first := w.grant(t, &tbav1.LeaseRequest{AgentId: "a", EstimatedTokens: 10})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := w.lease.RequestLease(ctx, &tbav1.LeaseRequest{AgentId: "b", EstimatedTokens: 10, MaxWaitMs: 600_000})
			done <- err
		}()
		time.Sleep(time.Second)
		cancel()
		if err := <-done; status.Code(err) != codes.Canceled {
			t.Error(err)
		}
		time.Sleep(2 * time.Second)
		if s, err := w.admin.GetStatus(t.Context(), &tbav1.GetStatusRequest{}); err != nil || s.GetWaiting() != 0 || s.GetLeasesOpen() != 1 {
			t.Errorf("afterwards: %v, %v", s, err)
		}
		if _, err := w.lease.CommitLease(t.Context(), &tbav1.LeaseCommit{LeaseId: first.GetLeaseId()}); err != nil {
			t.Fatal(err)
		}
		w.grant(t, &tbav1.LeaseRequest{AgentId: "c", EstimatedTokens: 10})
	})
}

// TestSubscriberThatNeverReads holds neither grants nor the subscriber beside it, and gets the latest when it reads again.
func TestSubscriberThatNeverReads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{policy: testPolicy(func(p *arbiter.Policy) { p.Global.Tokens = 1000 })})
		subscribe := func(id string) grpc.ServerStreamingClient[tbav1.BackpressureSignal] {
			stream, err := w.lease.StreamBackpressure(t.Context(), &tbav1.BackpressureSubscription{AgentId: id})
			if err != nil {
				t.Fatal(err)
			}
			return stream
		}
		_, good := subscribe("lazy"), subscribe("good")
		if m, err := good.Recv(); err != nil || m.GetLevel() != tbav1.BackpressureSignal_NONE {
			t.Fatal(m, err)
		}
		time.Sleep(8 * time.Hour) // heartbeats far beyond any flow control window
		for range 8 {
			lease := w.grant(t, &tbav1.LeaseRequest{AgentId: "a", EstimatedTokens: 120})
			if _, err := w.lease.CommitLease(t.Context(), &tbav1.LeaseCommit{LeaseId: lease.GetLeaseId()}); err != nil {
				t.Fatal(err)
			}
		}
		for {
			m, err := good.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if m.GetLevel() == tbav1.BackpressureSignal_CRITICAL {
				break
			}
		}
	})
}
