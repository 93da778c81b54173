package client

import (
	"context"
	"errors"
	"time"
)

// callError is what a call function says about an error.
type callError struct {
	err     error
	outcome Outcome
	signal  *ProviderSignal
}

func (e *callError) Error() string { return e.err.Error() }
func (e *callError) Unwrap() error { return e.err }

// NotSent marks an error of a call that never left: no request reached the
// provider. The lease is released and its place in the rate window freed. nil
// stays nil.
func NotSent(err error) error { return WithOutcome(err, OutcomeNotSent, nil) }

// Throttled marks an error that is a provider's 429, with its instruction to
// wait (0: none). The lease is released, the fleet learns of it, and
// [Agent.Call] asks again with the seniority of this try. nil stays nil.
func Throttled(err error, retryAfter time.Duration) error {
	return WithOutcome(err, OutcomeThrottled, &ProviderSignal{Status: 429, RetryAfter: retryAfter})
}

// WithOutcome marks an error with what is known about it: how the call ended,
// and what the provider said (nil: nothing). OutcomeNotSent, OutcomeThrottled,
// OutcomeExhausted and OutcomeOverloaded used nothing and release the lease;
// the others commit it. nil stays nil.
func WithOutcome(err error, o Outcome, p *ProviderSignal) error {
	if err == nil {
		return nil
	}
	return &callError{err: err, outcome: o, signal: p}
}

// verdict reads an error of a call function. bound is the context it ran with.
func verdict(bound context.Context, err error) (Outcome, *ProviderSignal) {
	var marked *callError
	if errors.As(err, &marked) {
		return marked.outcome, marked.signal
	}
	switch {
	case err == nil:
		return OutcomeOK, nil
	case errors.Is(err, context.DeadlineExceeded):
		return OutcomeTimeout, nil
	case errors.Is(err, context.Canceled), bound.Err() != nil:
		return OutcomeCancelled, nil
	}
	return OutcomeError, nil
}

// unused reports whether a call with this outcome has used nothing.
func (o Outcome) unused() bool {
	switch o {
	case OutcomeNotSent, OutcomeThrottled, OutcomeExhausted, OutcomeOverloaded:
		return true
	}
	return false
}
