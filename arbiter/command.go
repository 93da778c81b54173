package arbiter

import "encoding/binary"

// LeaseID names a lease: a hash of principal, agent and request id, or random. It is made at ingress, before anything is decided,
// so that a repeat or a late landing can never grant twice. The zero value names none.
type LeaseID [16]byte

// splitID and joinID carry an id in two words of undoable state.
func splitID(id LeaseID) (low, high int64) {
	return int64(binary.LittleEndian.Uint64(id[:8])), int64(binary.LittleEndian.Uint64(id[8:]))
}

func joinID(low, high int64) (id LeaseID) {
	binary.LittleEndian.PutUint64(id[:8], uint64(low))
	binary.LittleEndian.PutUint64(id[8:], uint64(high))
	return id
}

// Command is a question to the state machine: *Request, *Commit, *Release, *Extend, *Signal, *Revoke, *Adopt, *Roll or *Tick.
// Decide reads it and keeps nothing of it.
type Command interface{ command() }

func (*Request) command() {}
func (*Commit) command()  {}
func (*Release) command() {}
func (*Extend) command()  {}
func (*Signal) command()  {}
func (*Revoke) command()  {}
func (*Adopt) command()   {}
func (*Roll) command()    {}
func (*Tick) command()    {}

// Request asks for a lease. Strings are at most 128 bytes, checked at ingress.
type Request struct {
	Lease LeaseID
	// Fingerprint is a hash of all parameters of the call (Request.Sum): the same lease id with another one is a conflict.
	Fingerprint uint64
	// Principal is the hash of the credential's name; 0 without credentials.
	Principal uint64
	// Agent may be empty: it then shares the budget row of the nameless agent.
	Agent string
	// Class is empty for DefaultClass; an unknown one is CodeInvalid.
	Class          string
	Task, Workflow string
	// Provider is the preferred one, a wish; empty is none. An unknown one is CodeInvalid.
	Provider string
	// Model restricts the choice to rungs that serve it; empty takes each provider's default model.
	Model string
	// Ladder places the request on the rungs of a ladder, tier by tier, instead of by score. Empty is none; an unknown one is CodeInvalid,
	// and so is one together with Model.
	Ladder string
	// Except are rungs that the request must not be placed on, each "provider" (all of it) or "provider/model": tried already, or of no use
	// to the caller. What the policy does not have is ignored: a rung may go between two tries. When none is left the answer is DENIED, no_rung.
	Except []string
	// Tier is the service tier that the call asks its provider for, in the provider's word: what is held is priced in it. Empty is the
	// standard one.
	Tier string
	// Priority is already bounded by the credential; ClassPriority takes the class's.
	Priority Priority
	// Input and Output are the estimate. Where the caller gave one number, it is all Output, priced as output.
	Input, Output Tokens
	// Undivided says that the caller gave one number for prompt and answer: Output holds both and is clamped to the longest prompt and answer of the model together.
	Undivided bool
	// Min allows a partial grant: only the output shrinks, and the whole grant is at least Min. 0 allows none.
	Min Tokens
	// Deferred leaves the call not begun until Signal activate.
	Deferred bool
	// NoStartDelay dates the lease from now, not from now + start_by: the caller forwards at once (gateway). Not with Deferred.
	NoStartDelay bool
	Parent       LeaseID
	// MaxWait is how long the caller will still wait, ns: a budget that resets within it defers instead of denying.
	MaxWait int64
	// Blocked are rungs that an older or higher request waits for; they are passed over. nil blocks none.
	Blocked RungSet
}

// ClassPriority as a Request's priority takes the class's default.
const ClassPriority Priority = 0xff

// Sum hashes the parameters that make two requests the same (FNV-1a, 64 bits); the result goes into Fingerprint.
// It covers all that decides what is granted and at which price: everything but the lease id, the principal, MaxWait and Blocked.
func (r *Request) Sum() uint64 {
	h := uint64(14695981039346656037)
	byteIn := func(b byte) { h = (h ^ uint64(b)) * 1099511628211 }
	textIn := func(s string) {
		for i := 0; i < len(s); i++ {
			byteIn(s[i])
		}
		byteIn(0)
	}
	for _, s := range [...]string{r.Agent, r.Class, r.Task, r.Workflow, r.Provider, r.Model} {
		textIn(s)
	}
	for _, n := range [...]int64{int64(r.Input), int64(r.Output), int64(r.Min)} {
		for i := 0; i < 64; i += 8 {
			byteIn(byte(n >> i))
		}
	}
	byteIn(byte(r.Priority))
	for _, flag := range [...]bool{r.Undivided, r.Deferred, r.NoStartDelay} {
		if flag {
			byteIn(1)
		} else {
			byteIn(0)
		}
	}
	for _, b := range r.Parent {
		byteIn(b)
	}
	if r.Ladder != "" || len(r.Except) > 0 { // else as before there were any
		textIn(r.Ladder)
		for _, e := range r.Except {
			textIn(e)
		}
	}
	if r.Tier != "" { // likewise
		byteIn(1)
		textIn(r.Tier)
	}
	return h
}

// RungSet is a set of rung numbers (RungRow.Number, Answer.Wanted), a bit each.
type RungSet []uint64

// Has reports whether rung r is in the set. A nil set is empty.
func (s RungSet) Has(r uint32) bool { return int(r>>6) < len(s) && s[r>>6]&(1<<(r&63)) != 0 }

// Add puts rung r into the set and returns it, grown if need be.
func (s RungSet) Add(r uint32) RungSet {
	for int(r>>6) >= len(s) {
		s = append(s, 0)
	}
	s[r>>6] |= 1 << (r & 63)
	return s
}

// Outcome is how a provider call ended; the numbers are the wire's.
type Outcome uint8

// Outcomes. Error, Timeout and Overloaded count as failures of the provider; Throttled and Exhausted are instructions, not failures; Cancelled and NotSent say nothing about it.
const (
	OutcomeUnset Outcome = iota
	OutcomeOK
	OutcomeError
	OutcomeTimeout
	OutcomeThrottled
	OutcomeExhausted
	OutcomeOverloaded
	OutcomeCancelled
	OutcomeNotSent
)

// ProviderSignal is what a provider said about its limits. The zero value says nothing.
type ProviderSignal struct {
	// Status is the HTTP status; 0 is unknown.
	Status int32
	// Dim is the dimension that was throttled; DimNone is unknown and holds the whole rung.
	Dim Dim
	// RetryAfter is the provider's wait, ns; 0 is none given.
	RetryAfter int64
	// ModelOnly says that it is about the model that was called alone: others of the provider may answer. Without it an account that is used
	// up shuts all of them.
	ModelOnly bool
}

// Claims is a verified lease token: enough to settle a lease that this history does not know.
type Claims struct {
	Lease             LeaseID
	Principal         uint64
	Agent, Class      string
	Task, Workflow    string
	Provider, Model   string
	Priority          Priority
	Input, Output     Tokens
	Nanos             Nanos
	Period            uint32
	Granted, Deadline int64
	CommitBy          int64
	Epoch, Seq        uint64
	// Waited is how long before Granted the request was first seen, ns: the seniority of the call when a throttled try ends.
	Waited int64
}

// Commit reports what a call used.
type Commit struct {
	Lease     LeaseID
	Principal uint64
	// HasUsage says Usage is exact. Otherwise HasActual says Actual is the total. With neither the lease settles at its hold, flagged estimated.
	HasUsage, HasActual bool
	Usage               Usage
	Actual              Tokens
	// Estimated marks the figure as the caller's guess.
	Estimated bool
	// Model is what served according to the answer, as the policy names it at the lease's provider; the price is its. Empty or unknown is the
	// lease's. Tokens and money count on the lease's rung all the same.
	Model string
	// Tier is the service tier that served, in the provider's word; empty is the standard one.
	Tier string
	// Longest is the longest prompt of one step, where one call had several at the provider: the rates of long prompts are judged by it. 0 is
	// the whole prompt.
	Longest Tokens
	Outcome Outcome
	// Latency and FirstByte of the call, ns; 0 is unknown.
	Latency, FirstByte int64
	Signal             ProviderSignal
	// Token re-creates a lost lease; nil without one.
	Token *Claims
}

// Release gives a lease back unused, or reports a throttled try.
type Release struct {
	Lease     LeaseID
	Principal uint64
	// Outcome NotSent proves that the call never began: its window entry is dropped.
	Outcome Outcome
	Signal  ProviderSignal
	Token   *Claims
	// Void says that the grant reached nobody: a repeat of its request is not told that its lease is over (FlagVoid).
	Void bool
}

// Extend moves the end of a lease one TTL past Arrival.
type Extend struct {
	Lease     LeaseID
	Principal uint64
	// Arrival is the logical time at which the command reached the arbiter: before the end counts, however late it is decided.
	Arrival int64
}

// Signal reports progress of a running call.
type Signal struct {
	Lease     LeaseID
	Principal uint64
	// Activate says that a deferred call begins now; FirstByte that the answer has begun.
	Activate, FirstByte bool
	Outcome             Outcome
	Signal              ProviderSignal
}

// Revoke tells a holder to stop; the lease stays counted until it commits or ends. Tree revokes all that descend from it too, 1,024 a
// command: while Answer.More is true the caller sends it again.
type Revoke struct {
	Lease LeaseID
	Tree  bool
}

// Period is one budget period, Unix nanoseconds, Start ≤ t < End.
type Period struct{ Start, End int64 }

// Adopt brings a policy into force. Policy is Policy.Encode's result. Period is the one that holds now by that policy's PeriodSpec.
type Adopt struct {
	Version uint64
	Hash    [32]byte
	Policy  []byte
	Period  Period
}

// Roll starts the next period (Provider empty) or the next calendar day of one provider's RPD counters. Due names what is due.
type Roll struct {
	// Provider is empty for the budget period.
	Provider string
	Next     Period
}

// Tick does bounded housekeeping: idle tasks go to tombstones, closed periods become final. The engine sends it every few seconds,
// each time with the Answer.Next of the one before.
type Tick struct{ From uint32 }
