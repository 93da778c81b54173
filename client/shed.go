package client

import (
	"context"
	"fmt"
	"time"
)

// Shed is a call that backpressure wants gone.
type Shed struct {
	// Agent is the agent's id.
	Agent string
	// Call is what it was about to do.
	Call CallSpec
	// Priority is the call's, the agent's filled in.
	Priority Priority
	// Level is the level that counts for the agent.
	Level Level
}

// ShedAction is what becomes of a call that backpressure wants gone.
type ShedAction int

// Actions.
const (
	// ShedDefer holds the call until the level has fallen. The default.
	ShedDefer ShedAction = iota
	// ShedDrop lets Agent.Call return a *ShedError.
	ShedDrop
	// ShedProceed asks for a lease all the same; the arbiter may still refuse.
	ShedProceed
)

// ShedError says that a call was given up because of backpressure, before the
// arbiter was asked.
type ShedError struct {
	// Level is the level at that moment.
	Level Level
	// Cause is the end of the patience, when the call was held first. nil: it was
	// dropped.
	Cause error
}

// Error tells the level.
func (e *ShedError) Error() string {
	if e.Cause != nil {
		return fmt.Sprintf("call held back at backpressure level %s: %v", e.Level, e.Cause)
	}
	return fmt.Sprintf("call dropped at backpressure level %s", e.Level)
}

// FromServer is false: the client applied the level, nobody decided about this
// call.
func (e *ShedError) FromServer() bool { return false }

// Unwrap returns the cause.
func (e *ShedError) Unwrap() error { return e.Cause }

// admit lets a call through, holds it, or sheds it, by level and priority.
func (a *Agent) admit(ctx context.Context, spec CallSpec, p Priority) error {
	action, asked := ShedDefer, Level(-1)
	for {
		a.mu.Lock()
		level, _, shed := a.current()
		changed, closed, left := a.changed, a.closed, signalPatience-time.Since(a.heard)
		a.mu.Unlock()
		if closed {
			return ErrClosed
		}
		halted := level >= LevelCritical && p < PriorityCritical
		low := shed && a.low(p)
		if !halted && !low {
			return nil
		}
		if asked < 0 {
			a.sums.shed.Add(1)
		}
		if asked != level && a.opts.OnShed != nil {
			action = a.opts.OnShed(Shed{Agent: a.opts.ID, Call: spec, Priority: p, Level: level})
		}
		asked = level
		switch {
		case action == ShedDrop:
			return &ShedError{Level: level}
		case action == ShedProceed && !halted:
			return nil
		}
		stale := time.NewTimer(left)
		select {
		case <-changed:
		case <-stale.C:
		case <-ctx.Done():
			stale.Stop()
			return &ShedError{Level: level, Cause: context.Cause(ctx)}
		case <-a.c.ctx.Done():
			stale.Stop()
			return ErrClosed
		}
		stale.Stop()
	}
}

// low reports whether a priority is LOW: named so, or left to class "default",
// whose priority is LOW by contract. Other classes are the arbiter's to judge.
func (a *Agent) low(p Priority) bool {
	return p == PriorityLow || (p == PriorityDefault && (a.opts.Class == "" || a.opts.Class == "default"))
}
