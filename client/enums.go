package client

import (
	"fmt"

	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
)

// Priority orders requests; a higher one is served first and may use reserves.
// The zero value leaves it to the agent's class.
type Priority int

// Priorities, lowest first.
const (
	PriorityDefault Priority = iota
	PriorityLow
	PriorityMedium
	PriorityHigh
	PriorityCritical
)

// String returns the word used in configuration, or "default".
func (p Priority) String() string {
	return word(int(p), "default", "low", "medium", "high", "critical")
}

func (p Priority) wire() (*tbav1.Priority, error) {
	if p == PriorityDefault {
		return nil, nil
	}
	if p < PriorityLow || p > PriorityCritical {
		return nil, fmt.Errorf("priority is %d: use PriorityDefault to PriorityCritical", int(p))
	}
	return tbav1.Priority(p - PriorityLow).Enum(), nil
}

// Level says how full a pool is. The zero value, LevelNone, asks for nothing.
type Level int

// Levels, emptiest first.
const (
	// LevelNone leaves room for everybody.
	LevelNone Level = iota
	// LevelMild suggests cheap providers.
	LevelMild
	// LevelModerate wants the recommended delay before each call.
	LevelModerate
	// LevelSevere wants low-priority work dropped or put off.
	LevelSevere
	// LevelCritical wants everything below critical priority halted.
	LevelCritical
)

// String returns "none", "mild", "moderate", "severe" or "critical".
func (l Level) String() string {
	return word(int(l), "none", "mild", "moderate", "severe", "critical")
}

// Outcome says how a call ended; the arbiter judges the provider's health by
// it. The zero value says nothing: a commit then counts as OutcomeOK.
type Outcome int

// Outcomes.
const (
	OutcomeUnspecified Outcome = iota
	// OutcomeOK is an answer.
	OutcomeOK
	// OutcomeError is a failure of the provider: 5xx, reset, nonsense.
	OutcomeError
	// OutcomeTimeout is no answer in time.
	OutcomeTimeout
	// OutcomeThrottled is a 429: this rate is unwelcome.
	OutcomeThrottled
	// OutcomeExhausted means that money or a daily amount at the provider is gone.
	OutcomeExhausted
	// OutcomeOverloaded is the provider saying that it is overloaded.
	OutcomeOverloaded
	// OutcomeCancelled means that the caller gave up.
	OutcomeCancelled
	// OutcomeNotSent means that the call never left.
	OutcomeNotSent
)

// String returns the outcome in lower case with underscores.
func (o Outcome) String() string {
	return word(int(o), "unspecified", "ok", "error", "timeout", "throttled", "exhausted", "overloaded", "cancelled", "not_sent")
}

// Phase is where a lease is in its life, as the arbiter sees it.
type Phase int

// Phases. PhaseReserved and PhaseActive are running leases.
const (
	PhaseUnspecified Phase = iota
	PhaseReserved
	PhaseActive
	PhaseHeld
	PhaseRevoked
	PhaseCommitted
	PhaseReleased
	PhaseAssumed
	PhaseReturned
)

// String returns the phase in lower case.
func (p Phase) String() string {
	return word(int(p), "unspecified", "reserved", "active", "held", "revoked", "committed", "released", "assumed", "returned")
}

// word names an enum value; a number that this version does not know is shown.
func word(n int, words ...string) string {
	if n < 0 || n >= len(words) {
		return fmt.Sprintf("unknown(%d)", n)
	}
	return words[n]
}
