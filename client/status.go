package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
)

// errorDomain marks the details that only an arbiter attaches to an error.
const errorDomain = "tba"

// fromRPC turns the error of an RPC into one of this package. ctx is the
// caller's: its end is never taken for a fault of the arbiter.
func fromRPC(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return &UnavailableError{Reason: "network", cause: err}
	}
	st, _ := status.FromError(err)
	r := said{code: st.Code(), message: st.Message()}
	for _, d := range st.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			r.reason, r.server = d.GetReason(), d.GetDomain() == errorDomain
		case *errdetails.RetryInfo:
			r.retryAfter = max(d.GetRetryDelay().AsDuration(), 0)
		}
	}
	return r.err()
}

// fromFrame does the same for an error inside an answer, which only a server
// can have written.
func fromFrame(m *tbav1.RequestError) error {
	return said{
		code: codes.Code(m.GetCode()), reason: m.GetReason(), message: m.GetMessage(),
		retryAfter: duration(m.GetRetryAfterMs()), server: true,
	}.err()
}

// said is an error as somebody worded it.
type said struct {
	code            codes.Code
	reason, message string
	retryAfter      time.Duration
	server          bool
}

func (r said) err() error {
	switch r.code {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Aborted, codes.Internal, codes.Unknown, codes.DataLoss, codes.OK:
		if r.reason == "" {
			r.reason = "network"
			if r.server {
				r.reason = "unavailable"
			}
		}
		return &UnavailableError{
			Reason: r.reason, RetryAfter: r.retryAfter, server: r.server,
			left:  r.code == codes.DeadlineExceeded || r.code == codes.Canceled || r.reason == "cancelled",
			cause: fmt.Errorf("%s: %s", r.code, r.message),
		}
	case codes.InvalidArgument, codes.NotFound, codes.FailedPrecondition, codes.OutOfRange, codes.AlreadyExists:
		// No proxy and no client library makes these up.
		r.server = true
	}
	return &RefusedError{Code: r.code, Reason: r.reason, Message: r.message, RetryAfter: r.retryAfter, server: r.server}
}

// code returns the gRPC code of a refusal, or OK for any other error.
func code(err error) codes.Code {
	var r *RefusedError
	if errors.As(err, &r) {
		return r.Code
	}
	return codes.OK
}
