package engine

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/journal"
)

// Defaults of Options.
const (
	DefaultInboxSize     = 32 << 10
	DefaultMaxWaiters    = 100_000
	DefaultDrainTimeout  = 30 * time.Second
	DefaultSnapshotEvery = 8 << 20
	DefaultEventsKept    = 4096
)

// Options configures an Engine. Store is required; other zero fields take the
// defaults named beside them.
type Options struct {
	// Store keeps the journals. The engine never closes it. When it is a
	// journal.Archive too, closed periods are archived there.
	Store journal.Store
	// Writer names this process in entry headers and writer hints, at most
	// journal.MaxNameBytes of A-Z a-z 0-9 . _ : -. Empty: random.
	Writer string
	// TokenKeys sign lease tokens and tickets. The zero value is replaced by
	// random keys, which no other process and no later run accepts.
	TokenKeys TokenKeys
	// Logger receives faults and state changes of pools, never single
	// decisions. nil discards.
	Logger *slog.Logger
	// InboxSize bounds the commands of a pool that no batch has taken yet
	// (DefaultInboxSize); commits, releases, extensions and signals may take
	// as much again.
	InboxSize int
	// MaxWaiters bounds the requests of a pool that wait for room
	// (DefaultMaxWaiters).
	MaxWaiters int
	// DrainTimeout bounds how long Drain waits for running leases
	// (DefaultDrainTimeout).
	DrainTimeout time.Duration
	// SnapshotEvery is the least number of log bytes between two snapshots of
	// a pool (DefaultSnapshotEvery). The size of the last one is the other.
	SnapshotEvery int64
	// EventsKept is the length of a pool's ring of events (DefaultEventsKept).
	EventsKept int
	// Forward carries a command to the writer that holds the pool. nil
	// answers CodeUnavailable instead.
	Forward Forwarder
	// Hooks observe. The zero value observes nothing.
	Hooks Hooks
}

// Forwarder carries commands to another replica.
type Forwarder interface {
	// Forward hands op to the writer of its pool, under the same lease id and
	// with its first-seen time (logical), and returns its answer.
	Forward(ctx context.Context, writer string, op Op, firstSeen int64) (Outcome, error)
}

// Hooks are called where things happen. They must return at once and be safe
// for concurrent use. nil ones are skipped.
type Hooks struct {
	// Answered is called for each answered command, on the goroutine that
	// reads the answer. cmd may be read during the call, and with an error
	// only its type.
	Answered func(pool string, cmd arbiter.Command, out *Outcome, err error)
	// Appended is called on the writer's goroutine: how long one append took
	// until its outcome was known, and how many commands it answered.
	Appended func(pool string, took time.Duration, commands int)
	// Saved is called when a snapshot was stored: encoding and saving time,
	// and its size.
	Saved func(pool string, encode, save time.Duration, bytes int64)
}

// Engine runs the pools of one process. All methods may be called
// concurrently. Make one with New.
type Engine struct {
	opts    Options
	log     *slog.Logger
	archive journal.Archive // nil when the store has none

	mu       sync.RWMutex
	signer   *signer
	pools    map[string]*pool
	draining bool
}

// New returns an engine without open pools.
func New(opts Options) (*Engine, error) {
	if opts.Store == nil {
		return nil, arbiter.Errorf(arbiter.CodeInvalid, "options", "new engine: no journal store")
	}
	if opts.Writer == "" {
		var b [8]byte
		rand.Read(b[:])
		opts.Writer = "tba-" + hex.EncodeToString(b[:])
	}
	if !journal.ValidName(opts.Writer) {
		return nil, arbiter.Errorf(arbiter.CodeInvalid, "options", "new engine: writer name %q: 1 to %d characters of A-Z a-z 0-9 . _ : -", opts.Writer, journal.MaxNameBytes)
	}
	if opts.TokenKeys == (TokenKeys{}) {
		opts.TokenKeys = NewTokenKeys()
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	for _, o := range [...]struct {
		n   *int
		def int
	}{{&opts.InboxSize, DefaultInboxSize}, {&opts.MaxWaiters, DefaultMaxWaiters}, {&opts.EventsKept, DefaultEventsKept}} {
		if *o.n <= 0 {
			*o.n = o.def
		}
	}
	if opts.DrainTimeout <= 0 {
		opts.DrainTimeout = DefaultDrainTimeout
	}
	if opts.SnapshotEvery <= 0 {
		opts.SnapshotEvery = DefaultSnapshotEvery
	}
	e := &Engine{opts: opts, log: opts.Logger, signer: newSigner(opts.TokenKeys), pools: map[string]*pool{}}
	e.archive, _ = opts.Store.(journal.Archive)
	return e, nil
}

// SetTokenKeys replaces the live keys (rotation).
func (e *Engine) SetTokenKeys(keys TokenKeys) {
	s := newSigner(keys)
	e.mu.Lock()
	e.signer = s
	e.mu.Unlock()
}

// Pools returns the names of the open pools, sorted.
func (e *Engine) Pools() []string {
	e.mu.RLock()
	defer e.mu.RUnlock()
	names := make([]string, 0, len(e.pools))
	for name := range e.pools {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// VerifyToken reads a lease token that this engine (or one with the same keys)
// signed for this principal, and returns the pool and the claims. ok is false
// for anything else; a token of another principal looks like a forged one.
func (e *Engine) VerifyToken(token []byte, principal uint64) (pool string, claims arbiter.Claims, ok bool) {
	pool, claims, ok = e.keys().parseLeaseToken(token)
	if !ok || claims.Principal != principal {
		return "", arbiter.Claims{}, false
	}
	return pool, claims, true
}

func (e *Engine) keys() *signer {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.signer
}

// TokenPool returns the pool that a lease token of live keys names, or "".
func (e *Engine) TokenPool(token []byte) string {
	pool, _, ok := e.keys().parseLeaseToken(token)
	if !ok {
		return ""
	}
	return pool
}

// find returns an open pool; the empty name is DefaultPool.
func (e *Engine) find(name string) (*pool, *arbiter.Error) {
	if name == "" {
		name = DefaultPool
	}
	e.mu.RLock()
	p := e.pools[name]
	e.mu.RUnlock()
	if p == nil {
		return nil, arbiter.Errorf(arbiter.CodeNotFound, "unknown_pool", "pool %.128q is not open here: name a pool of the configuration", name)
	}
	return p, nil
}
