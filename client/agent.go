package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// AgentOptions describes an agent. Hooks run on the goroutine of the call or of
// the signal: they must not block.
type AgentOptions struct {
	// ID of the agent, at most 128 bytes. Required.
	ID string
	// Class of the agent. Empty: class "default".
	Class string
	// Pool to lease from. Empty: the client's.
	Pool string
	// Priority of calls that name none. Zero: the default of the class.
	Priority Priority
	// Workflow and Task of calls that name none.
	Workflow, Task string
	// Patience bounds how long a call may wait before it is sent, over all its
	// delays, deferrals and pauses. 0: as long as its context lives.
	Patience time.Duration

	// OnLevel hears each change of the backpressure level that counts for the
	// agent's class.
	OnLevel func(from, to Level)
	// OnShed decides about a call that backpressure wants gone: low priority from
	// LevelSevere on; asked once per call and level. nil: ShedDefer. At LevelCritical a call below
	// PriorityCritical is paused, whatever OnShed says, unless that is ShedDrop.
	OnShed func(Shed) ShedAction
	// OnConsumption hears what each finished call has used.
	OnConsumption func(Spend)
}

// Agent makes calls the way its fleet needs it: it listens to backpressure from
// the start, adds the recommended delay before each call, waits out deferrals,
// sheds low-priority work, and ends every lease. Safe for concurrent use.
// Close it.
type Agent struct {
	c    *Client
	opts AgentOptions
	sums sums

	mu      sync.Mutex
	level   Level
	delay   time.Duration
	shed    bool
	heard   time.Time // when these came
	signal  Backpressure
	changed chan struct{} // closed and replaced when level or shed change
	refused error
	closed  bool
}

// NewAgent starts an agent on a client; it listens to backpressure at once.
// Errors: an empty ID, ErrClosed.
func NewAgent(c *Client, o AgentOptions) (*Agent, error) {
	if c == nil {
		return nil, errors.New("new agent: client is nil: Dial one first")
	}
	if o.ID == "" {
		return nil, errors.New("new agent: ID is empty: say who calls")
	}
	if _, err := o.Priority.wire(); err != nil {
		return nil, fmt.Errorf("new agent %s: %w", o.ID, err)
	}
	if o.Pool == "" {
		o.Pool = c.opts.pool
	}
	a := &Agent{c: c, opts: o, changed: make(chan struct{})}
	if err := c.feeds.join(a); err != nil {
		return nil, fmt.Errorf("new agent %s: %w", o.ID, err)
	}
	return a, nil
}

// Close ends the subscription and the pauses of waiting calls, which return
// ErrClosed. Calls under way end as usual.
func (a *Agent) Close() {
	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		return
	}
	a.closed = true
	a.wakeAll()
	a.mu.Unlock()
	a.c.feeds.leave(a)
}

// ID returns the agent's id.
func (a *Agent) ID() string { return a.opts.ID }

// Level returns the backpressure level that counts for the agent's class, from
// the latest signal or answer. LevelNone when nothing was heard for 20 s.
func (a *Agent) Level() Level {
	a.mu.Lock()
	defer a.mu.Unlock()
	level, _, _ := a.current()
	return level
}

// Delay returns the delay that the next call gets.
func (a *Agent) Delay() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, delay, _ := a.current()
	return delay
}

// current returns what counts now, with a.mu held. An old level is worse than
// none: it could halt an agent that nobody halts any more.
func (a *Agent) current() (Level, time.Duration, bool) {
	if time.Since(a.heard) >= signalPatience {
		return LevelNone, 0, false
	}
	return a.level, a.delay, a.shed
}

// Backpressure returns the latest signal. Zero: none was heard.
func (a *Agent) Backpressure() Backpressure {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.signal
}

// Err returns why the arbiter refused the subscription. nil: it did not.
func (a *Agent) Err() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.refused
}

// hear takes a signal.
func (a *Agent) hear(b Backpressure) {
	level := b.For(a.opts.Class)
	a.mu.Lock()
	a.signal = b
	from := a.set(level, b.Delay, b.ShedLowPriority || level >= LevelSevere)
	a.mu.Unlock()
	a.tellLevel(from, level)
}

// observe takes what an answer says in passing, which is often newer than the
// last signal. It speaks of the pool, so a class with a level of its own keeps
// that.
func (a *Agent) observe(level Level, delay time.Duration) {
	a.mu.Lock()
	if own, ok := a.signal.ClassLevels[a.opts.Class]; ok {
		level = own
	}
	from := a.set(level, delay, level >= LevelSevere)
	a.mu.Unlock()
	a.tellLevel(from, level)
}

func (a *Agent) set(level Level, delay time.Duration, shed bool) (from Level) {
	from = a.level
	if a.level != level || a.shed != shed {
		a.wakeAll()
	}
	a.level, a.delay, a.shed, a.heard = level, delay, shed, time.Now()
	return from
}

func (a *Agent) tellLevel(from, to Level) {
	if from != to && a.opts.OnLevel != nil {
		a.opts.OnLevel(from, to)
	}
}

func (a *Agent) deafen(err error) {
	a.mu.Lock()
	a.refused = err
	a.mu.Unlock()
}

// wakeAll lets paused calls look again, with a.mu held.
func (a *Agent) wakeAll() {
	close(a.changed)
	a.changed = make(chan struct{})
}

// wait sleeps before a call. It ends early only with ctx or the client.
func (a *Agent) wait(ctx context.Context, d time.Duration) error {
	if d > 0 {
		a.sums.waited(d)
	}
	return a.c.pause(ctx, d)
}
