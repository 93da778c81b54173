package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/journal"
)

const (
	// maxBatch bounds the decisions of one entry, so that the first caller of
	// a crowd does not wait for the last.
	maxBatch = 1024
	// housekeeping is how often an idle pool looks at its calendar.
	housekeeping = int64(time.Second)
	// endRest is how long an idle writer rests at least between two looks at
	// leases that may have ended; commands see ended leases at once.
	endRest = int64(20 * time.Millisecond)
	// tickEvery is how often idle rows and closed periods are looked at.
	tickEvery = int64(5 * time.Second)
	// idleAfter is how long a pool is quiet before it is snapshotted so that
	// it does not pin a log which it shares with others.
	idleAfter = int64(60 * time.Second)
	// maxClockGap is how far the store's and this process's wall clocks may
	// differ while a period is closed.
	maxClockGap = int64(time.Second)
)

// pool is one journal with its writer and its follower.
type pool struct {
	e       *Engine
	name    string
	hash    uint64
	log     *slog.Logger
	journal journal.Journal
	clock   *clock
	inbox   inbox
	calls   freelist
	follow  *follower
	watch   *watchdog

	pressure pressure
	stats    poolStats
	health   health
	outlook  outlook

	ctx    context.Context // ends when the pool is closed
	cancel context.CancelFunc
	quit   chan struct{} // asks the writer to stop
	done   chan struct{} // the writer has stopped
	once   sync.Once
	saving chan struct{} // holds a token while a snapshot is under way
	final  chan error    // set before quit: the writer leaves a last snapshot

	// The writer's own.
	state    *arbiter.State
	pos      journal.Position
	epoch    uint64
	proven   uint64
	enc      journal.Encoder
	intern   func(string) uint32
	decision arbiter.Decision
	taken    [lanes][]*call // from the inbox, empty between rounds
	left     []*call
	work     [lanes][]*call // extend, control and settle lanes not yet in an entry
	queue    queue
	batch    batch
	handed   recent          // leases that a repeat of their request was given
	policy   *arbiter.Policy // whose class priorities are in levels
	levels   map[string]arbiter.Priority
	due      []arbiter.Due
	facts    []arbiter.Fact
	number   uint64 // of decisions
	nextEnd  int64  // logical time before which no lease ends
	nextTick int64
	tickFrom uint32
	panics   int   // in a row
	shown    int64 // logical time at which the waiters were published
	fullTill int64 // only commits and releases until then; 0 is no shortage
	mass     mass
	logBytes int64 // since the last snapshot was asked for
	lastWork int64 // logical time of the last entry
	skewed   bool
}

// Open opens the journal of a pool, loads its state and starts to serve it.
// policy is adopted when it differs from the journal's and is not older; nil
// keeps the journal's. The errors are those of the store
// (journal.ErrUninitialised, ErrCorrupt, ErrLocked and others, by errors.Is)
// and of Adopt. Opening an open pool is CodeConflict.
func (e *Engine) Open(ctx context.Context, name string, policy *arbiter.Policy) error {
	if !journal.ValidName(name) {
		return arbiter.Errorf(arbiter.CodeInvalid, "pool", "open pool %.64q: want 1 to %d characters of A-Z a-z 0-9 . _ : -", name, journal.MaxNameBytes)
	}
	e.mu.Lock()
	if e.draining {
		e.mu.Unlock()
		return errClosed(name)
	}
	if _, open := e.pools[name]; open {
		e.mu.Unlock()
		return arbiter.Errorf(arbiter.CodeConflict, "pool_open", "pool %s is open already", name)
	}
	e.mu.Unlock()

	p, err := e.load(ctx, name)
	if err != nil {
		return fmt.Errorf("open pool %s: %w", name, err)
	}
	p.start()
	if policy != nil {
		if err := p.adopt(ctx, policy, true); err != nil {
			return fmt.Errorf("open pool %s: %w", name, errors.Join(err, p.close()))
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, open := e.pools[name]; open || e.draining {
		go p.close()
		return arbiter.Errorf(arbiter.CodeConflict, "pool_open", "pool %s was opened or closed meanwhile", name)
	}
	e.pools[name] = p
	return nil
}

// load reads snapshot and log into two states that must be equal.
func (e *Engine) load(ctx context.Context, name string) (*pool, error) {
	p := &pool{
		e: e, name: name, hash: nameHash(name), log: e.log.With("pool", name), clock: newClock(),
		quit: make(chan struct{}), done: make(chan struct{}), saving: make(chan struct{}, 1),
	}
	p.ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	p.inbox = inbox{name: name, size: e.opts.InboxSize, wake: make(chan struct{}, 1)}
	p.queue.init()
	p.intern = p.enc.Intern
	var err error
	if p.journal, err = e.opts.Store.Open(ctx, name); err != nil {
		p.cancel()
		return nil, err
	}
	if err = p.readClock(ctx); err == nil {
		for try := 1; ; try++ {
			if err = p.replay(ctx); !errors.Is(err, journal.ErrTrimmed) || try == 3 {
				break
			}
		}
	}
	if err != nil {
		p.cancel()
		return nil, err
	}
	return p, nil
}

// replay builds the follower's state from snapshot and log, and the writer's
// as its copy by way of the encoding.
func (p *pool) replay(ctx context.Context) error {
	shadow, pos := arbiter.NewState(p.name), journal.Position{}
	manifest, r, err := p.journal.Snapshots().Load(ctx)
	switch {
	case err == nil:
		b, err := io.ReadAll(r)
		r.Close()
		if err != nil {
			return fmt.Errorf("load snapshot at %s: %w", manifest.At, err)
		}
		if shadow, err = arbiter.DecodeState(b); err != nil {
			return fmt.Errorf("load snapshot at %s: %w", manifest.At, err)
		}
		pos = manifest.At
	case !errors.Is(err, journal.ErrNoSnapshot):
		return err
	}
	head, err := p.journal.Head(ctx)
	if err != nil {
		return err
	}
	f := newFollower(p, shadow, pos)
	p.stats.snapshotBytes.Store(manifest.Bytes)
	for f.pos != head.Pos && head.Pos.Seq > 0 {
		if f.pos.Seq >= head.Pos.Seq {
			return fmt.Errorf("replay after %s: %w: the log ends at %s", f.pos, journal.ErrForked, head.Pos)
		}
		entries, err := p.journal.Read(ctx, f.pos, 0)
		if err != nil {
			return err
		}
		for i := range entries {
			if err := f.apply(&entries[i]); err != nil {
				return err
			}
			p.logBytes += int64(len(entries[i].Raw()))
		}
	}
	if err := shadow.Check(); err != nil {
		p.health.stopGrants("its journal replays to a state that is not sound: " + err.Error())
		p.log.Error("invariant broken after replay", "error", err)
	}
	encoded := shadow.AppendTo(nil)
	p.follow, p.pos, p.epoch = f, head.Pos, head.Epoch
	f.pos = head.Pos // of an empty log: seq 0 and its random id
	f.target = head.Pos.Seq
	if p.state, err = arbiter.DecodeState(encoded); err != nil {
		return fmt.Errorf("copy state: %w", err)
	}
	if p.state.Digest() != shadow.Digest() {
		return fmt.Errorf("copy state at %s: its encoding does not read back as it was written", head.Pos)
	}
	p.proven = head.Pos.Seq
	p.mass.encoded.Store(int64(len(encoded)))
	counts := p.state.Counts()
	p.mass.leases = known(&counts)
	p.lastWork = p.clock.now()
	return nil
}

func (p *pool) readClock(ctx context.Context) error {
	sent := p.clock.since()
	t, err := p.e.opts.Store.Now(ctx)
	if err != nil {
		return err
	}
	p.clock.reading(t, sent, p.clock.since())
	return nil
}

func (p *pool) start() {
	p.watch = newWatchdog(p)
	p.pressure.init()
	p.follow.publish()
	go p.follow.run()
	go p.pressure.run(p.follow)
	go p.run()
}

// close stops writer and follower. What was answered is in the journal. The
// error says that one of them does not end, because the journal or a reader of
// the state does not let it go: it is left behind.
func (p *pool) close() error {
	p.once.Do(func() {
		p.inbox.close(errClosed(p.name))
		close(p.quit)
		p.cancel()
	})
	timer := time.NewTimer(closeTimeout)
	defer timer.Stop()
	for _, done := range [...]chan struct{}{p.done, p.follow.done} {
		select {
		case <-done:
		case <-timer.C:
			return fmt.Errorf("pool %s: the journal has not let go of the writer for %s", p.name, closeTimeout)
		}
	}
	return nil
}

// closeTimeout bounds the wait for writer and follower, who have been told to
// stop at once.
const closeTimeout = 5 * time.Second

// closeSaved is close with a last snapshot, for which it waits until ctx ends.
func (p *pool) closeSaved(ctx context.Context) (err error) {
	select {
	case p.saving <- struct{}{}: // no other snapshot from here on
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("wait for the snapshot under way: %w", ctx.Err()), p.close())
	}
	p.once.Do(func() {
		p.inbox.close(errClosed(p.name))
		p.final = make(chan error, 1)
		close(p.quit)
		select { // the writer's last appends, then the snapshot
		case err = <-p.final:
		case <-ctx.Done():
			err = fmt.Errorf("wait for the last snapshot: %w", ctx.Err())
		}
		p.cancel()
	})
	return errors.Join(err, p.close())
}

// run is the writer.
func (p *pool) run() {
	defer close(p.done)
	defer p.follow.stop()
	defer p.leaveSnapshot()
	defer p.hangUp()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-p.quit:
			if p.final != nil { // drained: what was accepted is still decided
				for p.take(); p.round() && p.ctx.Err() == nil; {
				}
			}
			return
		default:
		}
		p.take()
		if p.round() || !p.inbox.sleep(p.queue.count > 0) {
			continue
		}
		p.publishWaiting()
		timer.Reset(time.Duration(max(p.wakeAt()-p.clock.now(), 0)))
		select {
		case <-p.inbox.wake:
			continue
		case <-timer.C:
		case <-p.quit:
		}
		p.inbox.awake()
	}
}

var errPanic = errors.New("panic")

// protect turns a panic of package arbiter, which is a broken invariant, into
// an error with its place.
func protect(f func()) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%w: %v\n%s", errPanic, v, debug.Stack())
		}
	}()
	f()
	return nil
}

// health is what Ready asks; set by the writer and the follower.
type health struct {
	silent   atomic.Bool // the journal does not answer
	full     atomic.Bool // only commits and releases are recorded
	draining atomic.Bool // no requests any more

	mu      sync.Mutex
	stopped string // why nothing is granted until an operator looks
	broken  error  // why nothing is recorded
}

func (h *health) stopGrants(why string) {
	h.mu.Lock()
	if h.stopped == "" {
		h.stopped = why
	}
	h.mu.Unlock()
}

func (h *health) fail(err error) {
	h.mu.Lock()
	if h.broken == nil {
		h.broken = err
	}
	h.mu.Unlock()
}

func (h *health) faults() (stopped string, broken error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stopped, h.broken
}
