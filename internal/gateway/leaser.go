package gateway

import (
	"context"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/identity"
	"github.com/token-budget-arbiter/tba/internal/provider"
)

// Leaser grants leases: the arbiter as the gateway sees it. [Local] and [Remote] make one. Safe for concurrent use.
type Leaser interface {
	// Acquire asks for a lease and waits up to a.MaxWait for room. A deferral and a denial are Grants, not errors. The error is an
	// *arbiter.Error when there is no verdict (CodeUnavailable among them), or the context's.
	Acquire(ctx context.Context, a *Ask) (Grant, error)
}

// Lease is one granted lease. Exactly one of Commit and Release ends it.
type Lease interface {
	// Commit hands the final report over: it is on its way to the journal when Commit returns, so that a call which starts after this one
	// is decided after it. Nobody waits for the journal; the arbiter keeps a commit until it is written. An error says that the report
	// could not be handed over: the lease ends by its time.
	Commit(r Report) error
	// Release gives the lease back: the call was refused before it cost anything, or was throttled. After a throttle the ticket keeps
	// the call's seniority and retryAfter is how long its rung stays held.
	Release(ctx context.Context, r Report) (ticket []byte, retryAfter time.Duration, err error)
	// Extend moves the lease's end while the call runs. An error of code CodeNotFound or CodePrecondition means that it is lost or revoked.
	Extend(ctx context.Context) error
	// FirstByte says that the answer has begun: the verdict a probe waits for.
	FirstByte(ctx context.Context) error
}

// Ask is what one try of a call asks the arbiter for. The caller may have asked for less than it is allowed, never for more: the
// fields are bounded by its credential before they come here.
type Ask struct {
	// Caller is who asks, known by its credential. Key is that credential as it came, for an arbiter across the network; it is never logged.
	Caller *identity.Caller
	Key    string

	Pool, Agent, Class, Task, Workflow string
	// Parent is the lease under which the agent itself works; "" for none.
	Parent string
	// Priority is arbiter.ClassPriority for the class's default.
	Priority arbiter.Priority
	// Ladder or Model says where the call may go; neither leaves the choice to the score. Except are rungs it must not be placed on.
	Ladder, Model string
	Except        []string
	// Tier is the service tier that the call asks for, in the provider's word; what is held is priced in it.
	Tier string
	// Input and Output are the estimate, tokens.
	Input, Output arbiter.Tokens
	// MaxWait bounds the waiting for room, Deadline the whole call; 0 is none.
	MaxWait, Deadline time.Duration
	// Ticket is the seniority of an earlier try of the same call.
	Ticket []byte
}

// Grant is the arbiter's answer.
type Grant struct {
	Status arbiter.Status
	// Check says what refused, and with which figures, unless Granted.
	Check arbiter.Check
	// Message is the refusal in the words of an arbiter across the network; "" of one in this process.
	Message string
	// RetryAfter is the wait until there may be room; 0 unless Deferred.
	RetryAfter time.Duration
	// Lease is the lease of a Granted; nil otherwise.
	Lease Lease
	// ID is the lease's name on the wire.
	ID string
	// Provider and Model are the rung. Model is empty where the provider's file names none.
	Provider, Model string
	// Input and Output are what the lease holds, tokens: the answer must not be longer than Output.
	Input, Output arbiter.Tokens
	// TTL is the life of the lease without an extension.
	TTL time.Duration
	// Level and DelayMS are the pool's backpressure.
	Level   arbiter.Level
	DelayMS int32
	// Decision names the decision for Explain.
	Decision string
	// Ticket keeps the seniority of a deferral.
	Ticket []byte
	// Waited is how long the arbiter held the request for room.
	Waited time.Duration
	Flags  arbiter.Flags
	// Figures tells what is left on the lease's path, as of about a second ago: the budget with the smallest part left (nil: none is
	// limited, or not known yet) and the ceilings of the rung. nil when the arbiter does not tell.
	Figures func() (tightest *arbiter.Check, limits []provider.Limit)
}

// Report is how a try ended.
type Report struct {
	Outcome arbiter.Outcome
	// HasUsage says that Usage is what the provider billed. Otherwise Actual is an estimate of it.
	HasUsage bool
	Usage    arbiter.Usage
	Actual   arbiter.Tokens
	// Model and Tier are what served according to the answer, the model as the policy names it; "" when it does not say. The price is theirs.
	Model, Tier string
	// Longest is the longest prompt of one step at the provider, tokens; 0: there was one step.
	Longest arbiter.Tokens
	// Estimated marks the figure as the gateway's guess.
	Estimated bool
	// Latency of the whole call and until the first byte of its answer; 0 is unknown.
	Latency, FirstByte time.Duration
	Signal             arbiter.ProviderSignal
}
