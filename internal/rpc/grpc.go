package rpc

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionv1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/token-budget-arbiter/tba/arbiter"
	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
)

// bareName is the published service name: that definition has no package line.
const bareName = "TokenBudgetArbiter"

// maxStreams bounds the open calls of one connection: 10,000 blocking callers may share one.
const maxStreams = 16 << 10

// streamWorkers keep their grown stacks from call to call, which saves up to a fifth of a call's work. More of them take turns and help less:
// 512 cost as much as none. Calls beyond them, blocking ones above all, get goroutines of their own.
const streamWorkers = 64

// GRPC returns a gRPC server with the arbiter under both names, Admin, health and reflection. Serve it on a listener of identity.Listener and stop it with
// its own methods. TLS is nil for plain text, which CheckBind confines to loopback unless there are keys.
func (s *Server) GRPC(tls credentials.TransportCredentials) *grpc.Server {
	opts := []grpc.ServerOption{
		grpc.ForceServerCodecV2(newSessionCodec()),
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxSendMsgSize(16 << 20), // answers are ours: a page of leases may be large
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxHeaderListSize(16 << 10),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.StaticStreamWindowSize(512 << 10), // fixed windows need no probing of the bandwidth
		grpc.StaticConnWindowSize(2 << 20),
		grpc.WriteBufferSize(64 << 10),
		grpc.ReadBufferSize(64 << 10),
		grpc.ConnectionTimeout(5 * time.Second), // handshake: a client that says nothing holds no slot
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}), // a vanished client is noticed within 40 s
	}
	if tls != nil {
		opts = append(opts, grpc.Creds(tls))
	}
	server := grpc.NewServer(opts...)
	desc := tbav1.TokenBudgetArbiter_ServiceDesc
	server.RegisterService(&desc, &s.arbiter)
	bare := desc
	bare.ServiceName = bareName
	server.RegisterService(&bare, &s.arbiter)
	tbav1.RegisterAdminServer(server, &s.admin)
	healthpb.RegisterHealthServer(server, s.health)
	registerReflection(server)
	return server
}

// healthEvery is how often health is compared with what the pools can do.
const healthEvery = time.Second

// SetServing tells health checks whether new grants are given, as far as that is known outside of the pools: while it is true, health follows
// the pools, and one that cannot grant (its journal is full or silent, an invariant is broken) makes it NOT_SERVING. It starts as false.
func (s *Server) SetServing(serving bool) {
	if serving { // what shows of a pool that was just opened is its policy only once the follower has it
		ctx, cancel := context.WithTimeout(context.Background(), healthEvery)
		defer cancel()
		for _, pool := range s.reader.Pools() {
			_ = s.view(ctx, pool, func(*arbiter.State) error { return nil }) // a pool that cannot be seen is not ready: health tells
		}
	}
	s.serving.Store(serving)
	s.showHealth()
	if serving {
		s.watchHealth.Do(func() { go s.followHealth() })
	}
}

// showHealth tells health checks how things stand.
func (s *Server) showHealth() {
	s.healthMu.Lock()
	defer s.healthMu.Unlock()
	status := healthpb.HealthCheckResponse_NOT_SERVING
	if s.serving.Load() && s.reader.Ready() == nil {
		status = healthpb.HealthCheckResponse_SERVING
	}
	for _, name := range []string{"", bareName, tbav1.TokenBudgetArbiter_ServiceDesc.ServiceName, tbav1.Admin_ServiceDesc.ServiceName} {
		s.health.SetServingStatus(name, status) // watchers hear of changes only
	}
}

// followHealth compares until the server closes.
func (s *Server) followHealth() {
	tick := time.NewTicker(healthEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.showHealth()
		case <-s.closed:
			return
		}
	}
}

func newHealth() *health.Server { return health.NewServer() }

// registerReflection serves reflection in both versions over descriptors that know the bare name too.
func registerReflection(server *grpc.Server) {
	opts := reflection.ServerOptions{Services: server, DescriptorResolver: bareDescriptors()}
	reflectionv1.RegisterServerReflectionServer(server, reflection.NewServerV1(opts))
	reflectionv1alpha.RegisterServerReflectionServer(server, reflection.NewServer(opts))
}

// bareDescriptors resolves everything linked into the program and, besides, the arbiter's service without a package, so that tools
// which ask by reflection can call it under its published name.
func bareDescriptors() protodesc.Resolver {
	files := new(protoregistry.Files)
	full := protodesc.ToFileDescriptorProto(tbav1.File_tba_v1_arbiter_proto)
	name := "token_budget_arbiter.proto"
	f := &descriptorpb.FileDescriptorProto{
		Name: &name, Syntax: full.Syntax, Service: full.Service[:1],
		Dependency: []string{tbav1.File_tba_v1_arbiter_proto.Path(), tbav1.File_tba_v1_lease_proto.Path(), tbav1.File_tba_v1_backpressure_proto.Path()},
	}
	if fd, err := protodesc.NewFile(f, protoregistry.GlobalFiles); err == nil {
		_ = files.RegisterFile(fd) // the first file of an empty registry cannot collide
	}
	return descriptors{files}
}

// descriptors asks the linked files first, then the added ones.
type descriptors struct{ added *protoregistry.Files }

func (d descriptors) FindFileByPath(path string) (protoreflect.FileDescriptor, error) {
	if f, err := protoregistry.GlobalFiles.FindFileByPath(path); err == nil {
		return f, nil
	}
	return d.added.FindFileByPath(path)
}

func (d descriptors) FindDescriptorByName(name protoreflect.FullName) (protoreflect.Descriptor, error) {
	if f, err := protoregistry.GlobalFiles.FindDescriptorByName(name); err == nil {
		return f, nil
	}
	return d.added.FindDescriptorByName(name)
}
