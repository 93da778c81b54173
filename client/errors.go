package client

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
)

// ErrClosed is returned after [Client.Close] or [Agent.Close].
var ErrClosed = errors.New("client is closed")

// ErrLeaseEnded is the cause with which [Lease.Context] ends after a commit or
// release.
var ErrLeaseEnded = errors.New("lease has ended")

// Decided reports whether err is the word of an arbiter: a denial, a deferral,
// a refused request, or "cannot know" said by a server. It is false for a
// broken network, a local fallback, a cancelled context and nil.
func Decided(err error) bool {
	var d interface{ FromServer() bool }
	return errors.As(err, &d) && d.FromServer()
}

// DeniedError says that waiting does not help: the request must change, or the
// budget must.
type DeniedError struct {
	// Reason is a stable word: "budget", "class", "too_large", ...
	Reason string
	// LimitName names the limit, e.g. "global" or "provider/openai".
	LimitName string
	// Unit of the figures: "tokens", "requests", "slots" or "nano_usd".
	Unit string
	// Limit, Used (spent and assumed), Held (by running leases) and Asked (what
	// this request would add) show why it did not fit.
	Limit, Used, Held, Asked int64
	// ResetsAt is when the limit resets. Zero: never.
	ResetsAt time.Time
	// Message is the refusal in the arbiter's words: what, where, what to do.
	Message string
	// DecisionID is the key to the decision's record. Empty: not recorded.
	DecisionID string
}

// Error tells the reason with its figures.
func (e *DeniedError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "lease denied: %s%s", e.Reason, figures(e.LimitName, e.Unit, e.Limit, e.Used, e.Held, e.Asked))
	if !e.ResetsAt.IsZero() {
		fmt.Fprintf(&b, "; resets at %s", e.ResetsAt.UTC().Format(time.RFC3339))
	}
	return b.String()
}

// FromServer is always true: only an arbiter denies.
func (e *DeniedError) FromServer() bool { return true }

// DeferredError says that there is no room now.
type DeferredError struct {
	// RetryAfter is when to ask again: the caller's own slot, so without jitter.
	RetryAfter time.Duration
	// Ticket keeps the caller's seniority; put it into the next Request. It may
	// be used up to 3 s before its slot. Empty: none was given.
	Ticket []byte
	// Reason is a stable word: "rpm", "tpm", "slots", "class", ...
	Reason string
	// LimitName, Unit, Limit, Used, Held, Asked and ResetsAt as in DeniedError.
	LimitName, Unit          string
	Limit, Used, Held, Asked int64
	ResetsAt                 time.Time
	// Message is the deferral in the arbiter's words.
	Message string
	// Delay is recommended before each call; without a ticket wait the larger of
	// it and RetryAfter, never the sum.
	Delay time.Duration
	// DecisionID is the key to the decision's record. Empty: not recorded.
	DecisionID string
	// Local: the fallback said so, because no arbiter could be reached.
	Local bool
}

// Error tells the wait and the reason with its figures.
func (e *DeferredError) Error() string {
	who := ""
	if e.Local {
		who = " locally"
	}
	return fmt.Sprintf("lease deferred%s: %s%s; retry after %v", who, e.Reason,
		figures(e.LimitName, e.Unit, e.Limit, e.Used, e.Held, e.Asked), e.RetryAfter)
}

// FromServer is false for a deferral of the local fallback.
func (e *DeferredError) FromServer() bool { return !e.Local }

// UnavailableError says that nobody could decide: the arbiter was not reached,
// did not answer, or said that it cannot know.
type UnavailableError struct {
	// Reason is a stable word of the server ("draining", "overloaded", ...), or
	// "network".
	Reason string
	// RetryAfter is when a retry makes sense. 0: unknown.
	RetryAfter time.Duration
	// Queued: the commit is kept and repeated in the background.
	Queued bool

	server bool
	known  bool // the link is known to be down, so nothing was tried
	left   bool // the caller is said to have left, or to be out of time
	cause  error
}

// Error tells who failed and why.
func (e *UnavailableError) Error() string {
	text := "arbiter not reached"
	if e.server {
		text = "arbiter cannot decide: " + e.Reason
	}
	if e.cause != nil {
		text += ": " + e.cause.Error()
	}
	return text
}

// FromServer reports whether a server said so; false means the network failed.
func (e *UnavailableError) FromServer() bool { return e.server }

// Unwrap returns the cause.
func (e *UnavailableError) Unwrap() error { return e.cause }

// RefusedError says that the arbiter does not take the request as it is: bad
// input, no permission, a lease that is gone, too many requests.
type RefusedError struct {
	// Code is the gRPC code.
	Code codes.Code
	// Reason is a stable word: "unknown_class", "expired", ...
	Reason string
	// Message says what, where, and what to do.
	Message string
	// RetryAfter is when a retry makes sense. 0: no hint.
	RetryAfter time.Duration

	server bool
}

// Error tells code and message.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("arbiter refused: %s: %s", strings.ToLower(e.Code.String()), e.Message)
}

// FromServer is false when something on the way refused instead.
func (e *RefusedError) FromServer() bool { return e.server }

// CommitError says that a commit did not count as given.
type CommitError struct {
	// Receipt has the recorded figures, if any.
	Receipt Receipt
	// Reason is "conflict" (another amount was recorded before, and stands),
	// "too_old" (recorded as unattributed spend) or "unknown_lease".
	Reason string
}

// Error tells lease and reason.
func (e *CommitError) Error() string {
	if e.Reason == "conflict" {
		return fmt.Sprintf("commit of lease %s: conflict: %d tokens were recorded before", e.Receipt.LeaseID, e.Receipt.Tokens)
	}
	return fmt.Sprintf("commit of lease %s: %s", e.Receipt.LeaseID, e.Reason)
}

// FromServer is always true.
func (e *CommitError) FromServer() bool { return true }

// RevokedError is the cause with which [Lease.Context] ends when the arbiter
// tells the holder to stop. What was used until then is still to be committed.
type RevokedError struct {
	// LeaseID names the lease.
	LeaseID string
	// Reason is the arbiter's word for it.
	Reason string
}

// Error tells lease and reason.
func (e *RevokedError) Error() string {
	return fmt.Sprintf("lease %s revoked: %s", e.LeaseID, e.Reason)
}

// FromServer is always true.
func (e *RevokedError) FromServer() bool { return true }

// LostError is the cause with which [Lease.Context] ends when the lease could
// not be kept alive. A commit still counts.
type LostError struct {
	// LeaseID names the lease.
	LeaseID string
	// Reason is the arbiter's word ("expired", "resolved", ...), or
	// "not_extended" when no extension got through before the end.
	Reason string

	server bool
}

// Error tells lease and reason.
func (e *LostError) Error() string { return fmt.Sprintf("lease %s lost: %s", e.LeaseID, e.Reason) }

// FromServer reports whether the arbiter said so.
func (e *LostError) FromServer() bool { return e.server }

func figures(name, unit string, limit, used, held, asked int64) string {
	if limit == 0 && used == 0 && held == 0 && asked == 0 && name == "" {
		return ""
	}
	s := fmt.Sprintf(" (limit %d, used %d, held %d, asked %d", limit, used, held, asked)
	if unit != "" {
		s += " " + unit
	}
	if name != "" {
		s += " of " + name
	}
	return s + ")"
}
