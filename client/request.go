package client

import (
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
)

const (
	// DefaultMaxWait is how long a request without MaxWait may wait for room.
	DefaultMaxWait = 30 * time.Second
	// NoWait asks for an answer at once.
	NoWait time.Duration = -1
)

// Request asks for one lease. Ids are at most 128 bytes without control
// characters.
type Request struct {
	// ID makes the request idempotent per agent: the same ID gets the first grant
	// again, other parameters under the same ID are refused. Empty: a fresh one
	// is made, which covers repeats by this client.
	ID string
	// AgentID says who calls. Required.
	AgentID string
	// Class is the agent's class. Empty: class "default".
	Class string
	// Pool to lease from. Empty: the pool of the credential, else "default".
	Pool string
	// Task, Workflow and Parent (a lease id) place the call in its tree; budgets
	// of each apply. Empty: none.
	Task, Workflow, Parent string

	// InputTokens and OutputTokens are the parts of the estimate: the prompt, and
	// the cap on the answer. At most 2^31-1 together.
	InputTokens, OutputTokens int64
	// Tokens is the estimate of a caller that does not know the parts; all of it
	// is then priced as output. Excludes the parts.
	Tokens int64
	// MinTokens accepts a grant down to this size; only the output part shrinks.
	// 0: all or nothing.
	MinTokens int64

	// Provider gets a bonus in the choice. Empty: none.
	Provider string
	// Model is the model the call needs. Empty: any.
	Model string
	// Ladder names the rungs to try in order, tier by tier. Empty: placed by
	// score. Excludes Model.
	Ladder string
	// Except are rungs that the call must not be placed on, each "provider" or
	// "provider/model", e.g. those that were tried already; at most 64. When none
	// is left the answer is a *DeniedError with Reason "no_rung".
	Except []string

	// ServiceTier is the service tier that the call asks its provider for
	// ("flex", "priority", ...), in the provider's word: the money held is priced
	// in it. Empty: the standard one.
	ServiceTier string

	// Priority of the call. Zero: the default of the class.
	Priority Priority
	// MaxWait is how long the arbiter may hold the request while there is no
	// room. 0: the client's default. NoWait: answer at once.
	MaxWait time.Duration
	// Deadline is the time in which a lease is still of use; it bounds a ticket's
	// slot. 0: until the deadline of the context, else MaxWait.
	Deadline time.Duration
	// Ticket of an earlier DeferredError, or of a throttled call: seniority.
	Ticket []byte
	// DeferredStart: the lease is born reserved, and begins with Lease.Activate.
	DeferredStart bool
	// NoStartDelay: the call goes out as soon as the lease is there. Excludes
	// DeferredStart.
	NoStartDelay bool
	// WantLimits asks for Lease.Limits.
	WantLimits bool
	// DryRun decides and charges nothing; the lease it returns has ended.
	DryRun bool
}

// tokens returns the estimate, and its output part if that is known.
func (r *Request) tokens() (total int64, output *int64, err error) {
	switch {
	case r.Tokens < 0 || r.InputTokens < 0 || r.OutputTokens < 0 || r.MinTokens < 0:
		return 0, nil, errors.New("token amounts must not be negative")
	case r.Tokens > 0 && (r.InputTokens > 0 || r.OutputTokens > 0):
		return 0, nil, errors.New("set Tokens, or InputTokens and OutputTokens, not both")
	case r.Tokens > 0:
		total = r.Tokens
	case r.InputTokens > math.MaxInt32 || r.OutputTokens > math.MaxInt32:
		total = math.MaxInt64
	default:
		total, output = r.InputTokens+r.OutputTokens, &r.OutputTokens
		if total == 0 {
			output = nil
		}
	}
	if total > math.MaxInt32 {
		return 0, nil, fmt.Errorf("estimate is above %d tokens: split the call", math.MaxInt32)
	}
	return total, output, nil
}

// excepts reports whether the call must not be placed on a rung.
func (r *Request) excepts(provider, model string) bool {
	return slices.Contains(r.Except, provider) || model != "" && slices.Contains(r.Except, provider+"/"+model)
}

// wire checks what the wire cannot say; everything else is the arbiter's to judge.
func (r *Request) wire(deadline time.Time, hasDeadline bool) (*tbav1.LeaseRequest, error) {
	if r.AgentID == "" {
		return nil, errors.New("request: AgentID is empty: say who calls")
	}
	total, output, err := r.tokens()
	if err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	priority, err := r.Priority.wire()
	if err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	until := r.Deadline
	if hasDeadline {
		if left := time.Until(deadline); until <= 0 || left < until {
			until = max(left, time.Millisecond)
		}
	}
	m := &tbav1.LeaseRequest{
		RequestId: r.ID, AgentId: r.AgentID, AgentClass: r.Class, Pool: r.Pool,
		TaskId: r.Task, WorkflowId: r.Workflow, ParentLeaseId: r.Parent,
		EstimatedTokens: int32(total), EstimatedOutputTokens: output, MinTokens: r.MinTokens,
		PreferredProvider: r.Provider, Model: r.Model, Ladder: r.Ladder, Except: r.Except,
		Priority: priority, MaxWaitMs: ms(r.MaxWait), DeadlineMs: ms(until),
		Ticket: r.Ticket, DeferredStart: r.DeferredStart, DryRun: r.DryRun, PriorityIsSet: priority != nil,
		NoStartDelay: r.NoStartDelay, WantLimits: r.WantLimits, ServiceTier: r.ServiceTier,
	}
	if m.RequestId == "" {
		m.RequestId = rand.Text()
	}
	return m, nil
}
