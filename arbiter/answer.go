package arbiter

import "fmt"

// Status is the verdict on a request; the numbers are the wire's.
type Status uint8

// Verdicts.
const (
	Granted Status = iota
	Deferred
	Denied
)

func (s Status) String() string { return [...]string{"GRANTED", "DEFERRED", "DENIED"}[min(s, 2)] }

// Dim is a dimension of a provider's limits.
type Dim uint8

// Dimensions.
const (
	DimNone Dim = iota
	DimRPM
	DimTPM
	DimInputTPM
	DimOutputTPM
	DimRPD
	DimSlots
	dimCount
)

func (d Dim) String() string {
	return [...]string{"", "rpm", "tpm", "input_tpm", "output_tpm", "rpd", "slots"}[min(d, dimCount-1)]
}

// Reason says which rule refused. The zero value is none. String gives the wire word.
type Reason uint8

// Reasons. The first six are full dimensions.
const (
	ReasonNone Reason = iota
	ReasonRPM
	ReasonTPM
	ReasonInputTPM
	ReasonOutputTPM
	ReasonRPD
	ReasonSlots
	ReasonBudget        // a limited budget has no room; Scope names it
	ReasonClass         // the class is above its share of the period budget
	ReasonHold          // the provider asked to wait
	ReasonBreaker       // the provider has a bad time
	ReasonQueue         // older or higher requests wait for the same room
	ReasonTooLarge      // more than the limit allows, ever
	ReasonUnpricedModel // no price is known, and none is assumed
	ReasonPrincipal     // open leases or held tokens of the credential
	ReasonExhausted     // the provider's own account is used up
	ReasonNoRung        // the request excepts every rung that could serve it
	reasonCount
)

var reasonWords = [reasonCount]string{"", "rpm", "tpm", "input_tpm", "output_tpm", "rpd", "slots", "budget", "class", "hold", "breaker", "queue", "too_large", "unpriced_model", "principal", "exhausted", "no_rung"}

func (r Reason) String() string { return reasonWords[min(r, reasonCount-1)] }

// Unit says what Answer.Limit, Used, Held and Asked count.
type Unit uint8

// Units.
const (
	UnitNone Unit = iota
	UnitTokens
	UnitNanos
	UnitRequests
)

func (u Unit) String() string { return [...]string{"", "tokens", "nanos", "requests"}[min(u, 3)] }

// Check is one limit that was asked and how it stood: the figures of a refusal. The zero value is "no limit objected".
type Check struct {
	Reason Reason
	// Of is the kind of limit behind ReasonTooLarge (a dimension's reason or ReasonBudget).
	Of Reason
	// ScopeKind and Scope name the budget, provider or model, e.g. KindProvider "openai".
	ScopeKind NodeKind
	Scope     string
	// Provider is a model's; empty for other scopes, and for a model that no provider has. A nameless default model goes by its name alone.
	Provider string
	Unit     Unit
	// Limit is what is allowed, Used what is spent (or in the window), Held what running leases hold, Asked what this request wants.
	Limit, Used, Held, Asked int64
	// ResetsAt is when the budget starts anew, Unix ns; 0 when it does not.
	ResetsAt int64
}

// LimitName names the limit as operators know it: "global", "provider/openai", "model/openai/gpt-5.4", "class/batch"; "" when there is none.
func (c *Check) LimitName() string {
	scope := c.ScopeName()
	switch {
	case scope != "":
		return c.ScopeKind.String() + "/" + scope
	case c.ScopeKind == KindGlobal && c.Unit == UnitNone:
		return ""
	}
	return c.ScopeKind.String()
}

// ScopeName is whose limit it is: a model goes by its provider's name too, a nameless one by that alone. "" where the kind says it all.
func (c *Check) ScopeName() string {
	switch {
	case c.Provider == "" || c.Provider == c.Scope:
		return c.Scope
	case c.Scope == "":
		return c.Provider
	}
	return c.Provider + "/" + c.Scope
}

// UnitName is the word for what the figures count: "tokens", "requests", "slots" or "nano_usd"; "" without figures.
func (c *Check) UnitName() string {
	switch {
	case c.Reason == ReasonSlots, c.Of == ReasonSlots:
		return "slots"
	case c.Unit == UnitNanos:
		return "nano_usd"
	}
	return c.Unit.String()
}

// LeaseState is what an answer about a lease says of it.
type LeaseState struct {
	Lease           LeaseID
	Provider, Model string
	Phase           Phase
	Class           string
	Priority        Priority
	// Input and Output are the tokens held (or, once ended, last held); Nanos their price.
	Input, Output Tokens
	Nanos         Nanos
	Period        uint32
	// Granted, StartBy, Deadline and CommitBy are logical times, ns.
	Granted, StartBy, Deadline, CommitBy int64
}

// Tokens is what the lease holds in all.
func (l *LeaseState) Tokens() Tokens { return l.Input + l.Output }

// Result is what became of a commit, release, extend or signal; the numbers of the first six are the wire's for commits.
type Result uint8

// Results.
const (
	Recorded Result = iota
	AlreadyRecorded
	Conflict
	AcceptedPending
	TooOld
	UnknownLease
	Released
	AlreadyReleased
	AlreadyCommitted
	Extended
	Signalled
)

// Flags tell how a figure came to be.
type Flags uint16

// Flags.
const (
	FlagLate         Flags = 1 << iota // committed or released after its end
	FlagAfterRelease                   // committed after a release
	FlagRecreated                      // rebuilt from its token
	FlagEstimated                      // no exact usage
	FlagOverrun                        // more than was held
	FlagRepeat                         // the answer of an earlier request with this id
	FlagExpired                        // that lease has ended by itself
	FlagResolved                       // that lease was committed or released
	FlagProbe                          // the one call that tests an open rung
	FlagPartial                        // less output than asked
	FlagStarted                        // the window entry is dated by the true start
	FlagFallback                       // the model is unknown and priced by the policy's fallback
	FlagVoid                           // the grant reached nobody and was taken back: a repeat is asked anew
	FlagExact                          // the usage is the provider's, kind by kind; of facts only
)

// Answer is what Decide says. Which parts are set depends on the command.
type Answer struct {
	// Status, with Check as the reason when it is not Granted. In shadow mode a grant carries the Check that would have refused.
	Status Status
	Check  Check
	// RetryAfter is the wait until the request can be admitted as things stand, ns; 0 unless Deferred.
	RetryAfter int64
	// Wanted are the rungs a deferred request waits for. The set is reused by the next decision.
	Wanted RungSet
	// Lease is the lease in question.
	Lease LeaseState
	// Result of a command on a lease.
	Result Result
	Flags  Flags
	// Tokens and Nanos are what a commit recorded (with Conflict: what was recorded first).
	Tokens Tokens
	Nanos  Nanos
	// Revoked is how many leases a Revoke told to stop. More says that the tree has others: send the same command again.
	Revoked int
	More    bool
	// Next is where the next Tick goes on.
	Next uint32
}

// Code classes an Error; rpc maps each to gRPC and HTTP.
type Code uint8

// Codes.
const (
	CodeInvalid Code = iota + 1
	CodeNotFound
	CodeConflict
	CodePermission
	CodeUnauthenticated
	CodePrecondition
	CodeUnavailable
	CodeResource
	CodeUnimplemented
)

// Error is a command that cannot be answered by a verdict. Reason is a stable word, Text says what, where and what to do.
type Error struct {
	Code   Code
	Reason string
	Text   string
	// RetryAfter is a hint, ns; 0 is none.
	RetryAfter int64
}

func (e *Error) Error() string { return e.Text }

// Errorf makes an Error with a formatted text.
func Errorf(code Code, reason, format string, args ...any) *Error {
	return &Error{Code: code, Reason: reason, Text: fmt.Sprintf(format, args...)}
}
