package rpc

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/token-budget-arbiter/tba/arbiter"
	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
)

// errorDomain marks the details that only an arbiter attaches to an error: so a client tells its word from a broken network's.
const errorDomain = "tba"

// statuses is the one place where a code becomes a status. HTTP is what the Connect protocol makes of the gRPC code, so that
// both forms of the JSON port agree. A conflict is FAILED_PRECONDITION: clients retry ABORTED and HTTP 409, and a repeat cannot help.
var statuses = map[arbiter.Code]struct {
	grpc codes.Code
	http int
}{
	arbiter.CodeInvalid:         {codes.InvalidArgument, http.StatusBadRequest},
	arbiter.CodeNotFound:        {codes.NotFound, http.StatusNotFound},
	arbiter.CodeConflict:        {codes.FailedPrecondition, http.StatusBadRequest},
	arbiter.CodePermission:      {codes.PermissionDenied, http.StatusForbidden},
	arbiter.CodeUnauthenticated: {codes.Unauthenticated, http.StatusUnauthorized},
	arbiter.CodePrecondition:    {codes.FailedPrecondition, http.StatusBadRequest},
	arbiter.CodeUnavailable:     {codes.Unavailable, http.StatusServiceUnavailable},
	arbiter.CodeResource:        {codes.ResourceExhausted, http.StatusTooManyRequests},
	arbiter.CodeUnimplemented:   {codes.Unimplemented, http.StatusNotImplemented},
}

func grpcCode(c arbiter.Code) codes.Code {
	if s, ok := statuses[c]; ok {
		return s.grpc
	}
	return codes.Internal
}

func httpStatus(c arbiter.Code) int {
	if s, ok := statuses[c]; ok {
		return s.http
	}
	return http.StatusInternalServerError
}

// asError finds the arbiter's error in err, or makes one: a caller that gave up is not a fault of anybody, and what is left is a fault of ours.
func asError(err error) *arbiter.Error {
	var e *arbiter.Error
	switch {
	case errors.As(err, &e):
		if word, ended := endWords[e.Reason]; ended {
			return &arbiter.Error{Code: e.Code, Reason: word, Text: "lease_id: " + e.Text, RetryAfter: e.RetryAfter}
		}
		if e.Reason == "unknown_pool" && e.Code == arbiter.CodeNotFound { // a fault of the request: NOT_FOUND is for leases
			return &arbiter.Error{Code: arbiter.CodeInvalid, Reason: e.Reason, Text: "pool: " + e.Text}
		}
		return e
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return arbiter.Errorf(arbiter.CodeUnavailable, "cancelled", "the caller gave up before there was an answer: repeat under the same request_id")
	default:
		return arbiter.Errorf(arbiter.CodeUnavailable, "internal", "cannot answer: %v", err)
	}
}

// endWords are the wire's words for a lease that can no longer be extended or signalled.
var endWords = map[string]string{"lease_expired": "expired", "lease_assumed": "expired", "lease_revoked": "revoked", "lease_resolved": "resolved"}

// details are what goes with an error beside its text.
func details(e *arbiter.Error) []protoadapt.MessageV1 {
	list := []protoadapt.MessageV1{&errdetails.ErrorInfo{Reason: e.Reason, Domain: errorDomain}}
	if e.RetryAfter > 0 {
		list = append(list, &errdetails.RetryInfo{RetryDelay: durationpb.New(time.Duration(e.RetryAfter))})
	}
	if e.Code == arbiter.CodeInvalid {
		list = append(list, &errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{
			{Field: fieldOf(e), Description: e.Text, Reason: strings.ToUpper(e.Reason)},
		}})
	}
	return list
}

// fieldOf is the request field an invalid argument is about. Our own texts begin with it; arbiter's reasons name it.
func fieldOf(e *arbiter.Error) string {
	switch e.Reason {
	case "unknown_class":
		return "agent_class"
	case "unknown_provider":
		return "preferred_provider"
	case "unknown_model":
		return "model"
	case "unknown_ladder":
		return "ladder"
	}
	field, _, found := strings.Cut(e.Text, ":")
	if !found || strings.ContainsAny(field, " \"") {
		return ""
	}
	return field
}

// failure is how a call of the services ends: gRPC reads its status, the other wires find the error in it. So nothing is lost on a detour.
type failure struct{ of *arbiter.Error }

func (f failure) Error() string { return f.of.Text }

// Unwrap gives the error that has no wire's form yet.
func (f failure) Unwrap() error { return f.of }

// GRPCStatus is the error as gRPC carries it.
func (f failure) GRPCStatus() *status.Status {
	s := status.New(grpcCode(f.of.Code), f.of.Text)
	if with, err := s.WithDetails(details(f.of)...); err == nil {
		s = with
	}
	return s
}

// toStatus is what the services return for an error.
func toStatus(err error) error { return failure{asError(err)} }

// toConnect is an error as the Connect protocol carries it.
func toConnect(err error) error {
	e := asError(err)
	c := connect.NewError(connect.Code(grpcCode(e.Code)), errors.New(e.Text))
	for _, m := range details(e) {
		if d, err := connect.NewErrorDetail(protoadapt.MessageV2Of(m)); err == nil {
			c.AddDetail(d)
		}
	}
	if e.RetryAfter > 0 {
		c.Meta().Set("Retry-After", retryAfterSeconds(e.RetryAfter))
	}
	return c
}

// toFrame is an error as a batch item or a session frame carries it.
func toFrame(err error) *tbav1.RequestError {
	e := asError(err)
	return &tbav1.RequestError{Code: int32(grpcCode(e.Code)), Reason: e.Reason, Message: e.Text, RetryAfterMs: ceilMillis(e.RetryAfter)}
}

// invalid makes an INVALID_ARGUMENT whose text begins with the field: value, bound, what to do.
func invalid(field, reason, format string, args ...any) *arbiter.Error {
	return arbiter.Errorf(arbiter.CodeInvalid, reason, field+": "+format, args...)
}
