package client

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"

	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
)

// Backpressure says how full a pool is and what to do about it.
type Backpressure struct {
	// Level of the pool.
	Level Level
	// Consumed is (spent + assumed) / limit of the global budget, 0 to 1.
	Consumed float64
	// Headrooms is per provider, 0 (full, held or open) to 1 (idle).
	Headrooms map[string]float64
	// Delay is recommended before each new call.
	Delay time.Duration
	// ShedLowPriority asks to drop or put off low-priority work.
	ShedLowPriority bool
	// Message says the same in words.
	Message string
	// Sequence grows with each signal of one server.
	Sequence uint64
	// ClassLevels is the level per agent class where it differs from the pool's.
	ClassLevels map[string]Level
	// Reasons is what set the level, most severe first.
	Reasons []string
}

// For returns the level that counts for an agent class.
func (b Backpressure) For(class string) Level {
	if l, ok := b.ClassLevels[class]; ok {
		return l
	}
	return b.Level
}

func backpressure(m *tbav1.BackpressureSignal) Backpressure {
	b := Backpressure{
		Level: Level(m.GetLevel()), Consumed: m.GetGlobalBudgetConsumedPct(), Headrooms: m.GetProviderHeadrooms(),
		Delay: delay(m.GetRecommendedDelayMs()), ShedLowPriority: m.GetShedLowPriority(),
		Message: m.GetMessage(), Sequence: m.GetSequence(), Reasons: m.GetReasons(),
	}
	for class, level := range m.GetClassLevels() {
		if b.ClassLevels == nil {
			b.ClassLevels = make(map[string]Level, len(m.GetClassLevels()))
		}
		b.ClassLevels[class] = Level(level)
	}
	return b
}

// Subscription names a listener to backpressure.
type Subscription struct {
	// AgentID says who listens. Required.
	AgentID string
	// Class of the listener. Empty: class "default".
	Class string
	// Pool to listen to. Empty: the client's.
	Pool string
	// MinInterval is the shortest time between two signals; the latest wins. 0:
	// as they come.
	MinInterval time.Duration
}

// Watch calls f with each signal until ctx ends, whose cause it returns, or the
// arbiter refuses the subscription (*RefusedError). It comes back by itself
// after a break. f runs on the goroutine that reads: it must not block,
// and may run once more while Watch returns.
func (c *Client) Watch(ctx context.Context, s Subscription, f func(Backpressure)) error {
	if s.Pool == "" {
		s.Pool = c.opts.pool
	}
	m := &tbav1.BackpressureSubscription{AgentId: s.AgentID, AgentClass: s.Class, Pool: s.Pool, MinIntervalMs: ms(s.MinInterval)}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.ctx, func() { cancel(ErrClosed) })()
	for attempt := 0; ; attempt++ {
		var heard atomic.Bool
		err := c.watchOnce(ctx, m, func(m *tbav1.BackpressureSignal) {
			heard.Store(true)
			f(backpressure(m))
		})
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var r *RefusedError
		if errors.As(err, &r) && r.Code != codes.ResourceExhausted {
			return err
		}
		if heard.Load() {
			attempt = 0
		}
		var away *UnavailableError
		if errors.As(err, &away) && !away.server && c.sessionInUse() {
			continue // the next session waits by itself
		}
		if err := sleep(ctx, fullJitter(attempt)); err != nil {
			return err
		}
	}
}

func (c *Client) watchOnce(ctx context.Context, m *tbav1.BackpressureSubscription, f func(*tbav1.BackpressureSignal)) error {
	if c.sessionInUse() {
		err := c.session.watch(ctx, m, f)
		var none *noSessionError
		if !errors.As(err, &none) && code(err) != codes.Unimplemented {
			return err
		}
	}
	return c.unary.watch(ctx, m, f)
}

// feeds shares one subscription among the agents of a class: the signal is the
// same for all of them.
type feeds struct {
	client *Client
	mu     sync.Mutex
	open   map[feedKey]*feed
}

type feedKey struct{ pool, class string }

type feed struct {
	listeners map[*Agent]struct{}
	cancel    context.CancelFunc
	last      *Backpressure // nil: nothing heard
	heard     time.Time     // when
}

func (fs *feeds) join(a *Agent) error {
	key := feedKey{a.opts.Pool, a.opts.Class}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f := fs.open[key]
	if f == nil {
		ctx, cancel := context.WithCancel(fs.client.ctx)
		f = &feed{listeners: map[*Agent]struct{}{}, cancel: cancel}
		s := Subscription{AgentID: a.opts.ID, Class: a.opts.Class, Pool: a.opts.Pool}
		if !fs.client.spawn(func() { fs.run(ctx, f, s) }) {
			cancel()
			return ErrClosed
		}
		if fs.open == nil {
			fs.open = map[feedKey]*feed{}
		}
		fs.open[key] = f
	}
	f.listeners[a] = struct{}{}
	if f.last != nil && time.Since(f.heard) < signalPatience {
		a.hear(*f.last)
	}
	return nil
}

func (fs *feeds) leave(a *Agent) {
	key := feedKey{a.opts.Pool, a.opts.Class}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f := fs.open[key]
	if f == nil {
		return
	}
	delete(f.listeners, a)
	if len(f.listeners) == 0 {
		f.cancel()
		delete(fs.open, key)
	}
}

// run keeps a feed until its context ends.
func (fs *feeds) run(ctx context.Context, f *feed, s Subscription) {
	err := fs.client.Watch(ctx, s, func(b Backpressure) { fs.spread(f, b) })
	if ctx.Err() == nil {
		fs.refuse(f, err)
	}
}

func (fs *feeds) spread(f *feed, b Backpressure) {
	fs.mu.Lock()
	f.last, f.heard = &b, time.Now()
	agents := slices.Collect(maps.Keys(f.listeners))
	fs.mu.Unlock()
	for _, a := range agents {
		a.hear(b)
	}
}

// refuse tells the agents of a feed that the arbiter does not want them to listen.
func (fs *feeds) refuse(f *feed, err error) {
	fs.mu.Lock()
	agents := slices.Collect(maps.Keys(f.listeners))
	fs.mu.Unlock()
	for _, a := range agents {
		a.deafen(err)
	}
}
