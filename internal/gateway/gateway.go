package gateway

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/identity"
	"github.com/token-budget-arbiter/tba/internal/provider"
)

// Options of a Gateway. Leaser and Settings are required.
type Options struct {
	Leaser   Leaser
	Settings *Settings
	// Keys are auth.keys; nil serves everybody as identity.Local, for loopback only.
	Keys *identity.Keyring
	// Addresses limits requests per client address; nil limits nobody.
	Addresses *identity.Addresses
	// FailedAuth limits failed authentications per address; nil limits none.
	FailedAuth *identity.Addresses
	// Policy is the policy in force of a pool, nil when there is none: priorities are bounded by it. nil where the arbiter, across the
	// network, bounds them itself; it then judges the credentials too.
	Policy func(pool string) *arbiter.Policy
	// Logger receives what an operator has to mend. nil discards.
	Logger *slog.Logger
	Hooks  Hooks
}

// Gateway is the proxy, an http.Handler. Safe for concurrent use.
type Gateway struct {
	leaser    Leaser
	log       *slog.Logger
	hooks     Hooks
	failed    *identity.Addresses
	policy    func(pool string) *arbiter.Policy
	settings  atomic.Pointer[Settings]
	keys      atomic.Pointer[identity.Keyring]
	addresses atomic.Pointer[identity.Addresses]
	learned   *estimator
	seniority *seniority
	drains    drains
	running   inflight
}

// New makes a gateway that serves at once.
func New(o Options) *Gateway {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	g := &Gateway{
		leaser: o.Leaser, log: o.Logger, hooks: o.Hooks, failed: o.FailedAuth, policy: o.Policy,
		learned: newEstimator(), seniority: newSeniority(),
	}
	g.SetSettings(o.Settings)
	g.keys.Store(o.Keys)
	g.addresses.Store(o.Addresses)
	return g
}

// SetSettings replaces the settings for calls that begin from now on.
func (g *Gateway) SetSettings(s *Settings) {
	s.who = identifier{keys: g.keys.Load, policy: g.policy, failed: g.failed, compat: compatOf(s.identity.Compat), maxWait: s.MaxWait}
	if old := g.settings.Swap(s); old != nil {
		old.close()
	}
}

// SetKeys replaces auth.keys.
func (g *Gateway) SetKeys(keys *identity.Keyring) { g.keys.Store(keys) }

// SetAddresses replaces the limits per address.
func (g *Gateway) SetAddresses(a *identity.Addresses) { g.addresses.Store(a) }

// Drain refuses new calls (503, try again) and waits until those that run have ended and are settled, or ctx is over.
func (g *Gateway) Drain(ctx context.Context) error {
	return g.running.drain(ctx)
}

// roots are the first segments of the gateway's own paths; any provider's name is one more. See [Settings.find].
var roots = []string{"v1", provider.Anthropic, provider.Gemini, "tools"}

// Serves reports whether a path is the gateway's.
func (g *Gateway) Serves(path string) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return slices.Contains(roots, first) || g.settings.Load().upstream(first) != nil
}

// ServeHTTP carries one call.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	lastOnConnection(w, r)
	x := &exchange{g: g, settings: g.settings.Load(), began: time.Now(), w: w}
	f := x.open(w, r)
	if f == nil && !g.running.enter() {
		f = refuseDraining()
	}
	if f != nil {
		f.write(w, x.dialect)
		x.status, x.refused = f.status, true
		g.hooks.ended(x)
		return
	}
	defer g.running.leave()
	if x.models {
		x.listModels(w)
		g.hooks.ended(x)
		return
	}
	defer x.close()
	resp := x.run(r.Context()) //nolint:bodyclose // carry closes it
	if resp == nil {
		panic(http.ErrAbortHandler) // the agent has gone, or has half closed: nothing may look like an answer
	}
	x.carry(resp)
}

// carry gives an answer to the agent, every byte as soon as it is there. An answer that breaks off breaks off for the agent too, so
// that its SDK can tell it from a whole one.
func (x *exchange) carry(resp *http.Response) {
	defer resp.Body.Close()
	x.status, x.refused = resp.StatusCode, resp.Header.Get(headerOrigin) == originArbiter
	w := x.w
	maps.Copy(w.Header(), resp.Header)
	w.WriteHeader(resp.StatusCode)
	c := http.NewResponseController(w)
	p, giveBack := x.buffer()
	defer giveBack()
	for {
		n, err := resp.Body.Read(p)
		if n > 0 {
			if _, gone := w.Write(p[:n]); gone != nil {
				return
			}
		}
		switch {
		case err == nil:
			_ = c.Flush() // an agent that has gone is noticed by the next write
		case errors.Is(err, io.EOF):
			return
		default:
			_ = c.Flush() // what came before the break is the agent's
			panic(http.ErrAbortHandler)
		}
	}
}

// buffers are what answers are copied through; streams, which are open for long and come in small pieces, have smaller ones.
var (
	buffers       = sync.Pool{New: func() any { return new([copySize]byte) }}
	streamBuffers = sync.Pool{New: func() any { return new([streamSize]byte) }}
)

const (
	copySize   = 16 << 10
	streamSize = 4 << 10
)

func (x *exchange) buffer() (p []byte, giveBack func()) {
	if x.call.Stream {
		b := streamBuffers.Get().(*[streamSize]byte)
		return b[:], func() { streamBuffers.Put(b) }
	}
	b := buffers.Get().(*[copySize]byte)
	return b[:], func() { buffers.Put(b) }
}
