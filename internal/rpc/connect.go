package rpc

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"connectrpc.com/connect"

	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
	"github.com/token-budget-arbiter/tba/internal/gen/tba/v1/tbav1connect"
)

// connectOptions are the same for every handler of the HTTP port.
func connectOptions() []connect.HandlerOption {
	return []connect.HandlerOption{
		connect.WithReadMaxBytes(maxMessage),
		connect.WithCodec(jsonCodec{"json"}),
		connect.WithCodec(jsonCodec{"json; charset=utf-8"}),
	}
}

// mountConnect puts the services under their names, the arbiter under the bare one too.
func (s *Server) mountConnect(mux *http.ServeMux) {
	path, handler := tbav1connect.NewTokenBudgetArbiterHandler(connectArbiter{&s.arbiter}, connectOptions()...)
	mux.Handle("POST "+path, handler)
	mux.Handle("POST /"+bareName+"/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		full := r.Clone(r.Context())
		full.URL.Path = path + strings.TrimPrefix(r.URL.Path, "/"+bareName+"/")
		handler.ServeHTTP(w, full)
	}))
	adminPath, adminHandler := tbav1connect.NewAdminHandler(connectAdmin{&s.admin}, connectOptions()...)
	mux.Handle("POST "+adminPath, adminHandler)
}

// unary runs a call of the gRPC service for the Connect protocol: one implementation, two wires.
func unary[I, O any](ctx context.Context, req *connect.Request[I], call func(context.Context, *I) (*O, error)) (*connect.Response[O], error) {
	out, err := call(ctx, req.Msg)
	if err != nil {
		return nil, toConnect(err)
	}
	return connect.NewResponse(out), nil
}

// connectArbiter is the arbiter's service in the Connect protocol. Session needs a stream in both directions and is gRPC only.
type connectArbiter struct{ grpc *arbiterService }

func (c connectArbiter) RequestLease(ctx context.Context, r *connect.Request[tbav1.LeaseRequest]) (*connect.Response[tbav1.LeaseResponse], error) {
	return unary(ctx, r, c.grpc.RequestLease)
}

func (c connectArbiter) CommitLease(ctx context.Context, r *connect.Request[tbav1.LeaseCommit]) (*connect.Response[tbav1.CommitResponse], error) {
	return unary(ctx, r, c.grpc.CommitLease)
}

func (c connectArbiter) ReleaseLease(ctx context.Context, r *connect.Request[tbav1.LeaseRelease]) (*connect.Response[tbav1.ReleaseResponse], error) {
	return unary(ctx, r, c.grpc.ReleaseLease)
}

func (c connectArbiter) ExtendLease(ctx context.Context, r *connect.Request[tbav1.ExtendLeaseRequest]) (*connect.Response[tbav1.ExtendLeaseResponse], error) {
	return unary(ctx, r, c.grpc.ExtendLease)
}

func (c connectArbiter) SignalLease(ctx context.Context, r *connect.Request[tbav1.SignalLeaseRequest]) (*connect.Response[tbav1.SignalLeaseResponse], error) {
	return unary(ctx, r, c.grpc.SignalLease)
}

func (c connectArbiter) Explain(ctx context.Context, r *connect.Request[tbav1.ExplainRequest]) (*connect.Response[tbav1.Decision], error) {
	return unary(ctx, r, c.grpc.Explain)
}

func (c connectArbiter) StreamBackpressure(ctx context.Context, r *connect.Request[tbav1.BackpressureSubscription], out *connect.ServerStream[tbav1.BackpressureSignal]) error {
	if err := c.grpc.stream(ctx, r.Msg, func(x *signal) error { return out.Send(x.message) }); err != nil {
		return toConnect(err)
	}
	return nil
}

func (c connectArbiter) Session(context.Context, *connect.BidiStream[tbav1.SessionRequest, tbav1.SessionResponse]) error {
	return connect.NewError(connect.CodeUnimplemented, errors.New("Session is served on the gRPC port: connect there, or use RequestLease and CommitLease"))
}

// connectAdmin is Admin in the Connect protocol.
type connectAdmin struct{ grpc *adminService }

var _ tbav1connect.AdminHandler = connectAdmin{}

func (c connectAdmin) ListBudgets(ctx context.Context, r *connect.Request[tbav1.ListBudgetsRequest]) (*connect.Response[tbav1.ListBudgetsResponse], error) {
	return unary(ctx, r, c.grpc.ListBudgets)
}

func (c connectAdmin) ListProviders(ctx context.Context, r *connect.Request[tbav1.ListProvidersRequest]) (*connect.Response[tbav1.ListProvidersResponse], error) {
	return unary(ctx, r, c.grpc.ListProviders)
}

func (c connectAdmin) ListLeases(ctx context.Context, r *connect.Request[tbav1.ListLeasesRequest]) (*connect.Response[tbav1.ListLeasesResponse], error) {
	return unary(ctx, r, c.grpc.ListLeases)
}

func (c connectAdmin) ListClasses(ctx context.Context, r *connect.Request[tbav1.ListClassesRequest]) (*connect.Response[tbav1.ListClassesResponse], error) {
	return unary(ctx, r, c.grpc.ListClasses)
}

func (c connectAdmin) ListEvents(ctx context.Context, r *connect.Request[tbav1.ListEventsRequest]) (*connect.Response[tbav1.ListEventsResponse], error) {
	return unary(ctx, r, c.grpc.ListEvents)
}

func (c connectAdmin) GetStatus(ctx context.Context, r *connect.Request[tbav1.GetStatusRequest]) (*connect.Response[tbav1.GetStatusResponse], error) {
	return unary(ctx, r, c.grpc.GetStatus)
}

func (c connectAdmin) ReportUsage(ctx context.Context, r *connect.Request[tbav1.ReportUsageRequest]) (*connect.Response[tbav1.ReportUsageResponse], error) {
	return unary(ctx, r, c.grpc.ReportUsage)
}

func (c connectAdmin) ReportShadow(ctx context.Context, r *connect.Request[tbav1.ReportShadowRequest]) (*connect.Response[tbav1.ReportShadowResponse], error) {
	return unary(ctx, r, c.grpc.ReportShadow)
}

func (c connectAdmin) RaiseBudget(ctx context.Context, r *connect.Request[tbav1.RaiseBudgetRequest]) (*connect.Response[tbav1.RaiseBudgetResponse], error) {
	return unary(ctx, r, c.grpc.RaiseBudget)
}

func (c connectAdmin) DrainProvider(ctx context.Context, r *connect.Request[tbav1.DrainProviderRequest]) (*connect.Response[tbav1.DrainProviderResponse], error) {
	return unary(ctx, r, c.grpc.DrainProvider)
}

func (c connectAdmin) ResumeProvider(ctx context.Context, r *connect.Request[tbav1.ResumeProviderRequest]) (*connect.Response[tbav1.ResumeProviderResponse], error) {
	return unary(ctx, r, c.grpc.ResumeProvider)
}

func (c connectAdmin) RevokeLease(ctx context.Context, r *connect.Request[tbav1.RevokeLeaseRequest]) (*connect.Response[tbav1.RevokeLeaseResponse], error) {
	return unary(ctx, r, c.grpc.RevokeLease)
}

func (c connectAdmin) ResetLearned(ctx context.Context, r *connect.Request[tbav1.ResetLearnedRequest]) (*connect.Response[tbav1.ResetLearnedResponse], error) {
	return unary(ctx, r, c.grpc.ResetLearned)
}
