// Package mockprovider: upstreams that speak the four dialects with real limits, for dev, demo and tests.
//
// A Server holds several upstreams behind one handler, each under /NAME. Every upstream counts what reaches it in its
// own sliding log, refuses what is above its limits in the words of its dialect, takes as long as a model of its speed
// would, streams as its dialect does, fails on purpose when a script or a header asks for it, and keeps the books from which
// Report says what was really used. It trusts nothing that a caller claims about its lease. An upstream may also be a
// search, for the ladders of tools.
package mockprovider

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/token-budget-arbiter/tba/internal/provider"
)

// Bounds of the options. They keep every product of a count and a window inside an int64.
const (
	maxCeiling = 100_000_000
	maxWindow  = time.Minute
	maxSpeedup = 10_000
)

// Options says which upstreams a Server has.
type Options struct {
	Upstreams []Upstream
	// Window is how long the "minute" of the limits lasts, at most the default of one minute. Shorter ones make
	// windows turn within a short test.
	Window time.Duration
	// Speedup divides every latency; 0 is 1, at most 10,000. Limits are not touched by it.
	Speedup int
	// KeepCalls is how many of the newest calls Calls returns; 0 is 100,000. Reports cover all calls, kept or not.
	KeepCalls int
}

// Upstream is one provider with one account's limits. A limit of 0 is no limit.
type Upstream struct {
	Name    string // its path; letters, digits, dash and underscore
	Dialect string // openai, anthropic, gemini (google), mistral or http, which is a search
	Keys    []string
	// Models are what the list of models names; nil is one. Any other model is served too.
	Models []string

	RPM      int64 // requests in a window
	TPM      int64 // prompt + output cap in a window, charged at arrival
	InputTPM int64 // prompt in a window
	// BurstRequests and BurstTokens add a token bucket of that size beside the window, refilled at ceiling/window:
	// what a real provider does against a minute's worth of calls in one second.
	BurstRequests, BurstTokens int64
	MaxConcurrency             int64
	// CountRejected charges refused calls too, as OpenAI does: who hammers, stays out.
	CountRejected bool

	// FirstToken is the time to the first token (0: 300 ms), Speed the tokens a second after it (0: 100).
	FirstToken time.Duration
	Speed      int64
	// DefaultCap is the output cap of a request without one; 0 is 4,096.
	DefaultCap int64
	// PieceTokens is how many tokens one event of a stream carries; 0 is 4.
	PieceTokens int64

	Outages []Outage
	Storms  []Storm
	// Faults happen to single calls; of those that are not used up the first one counts.
	Faults []Fault

	// Instant answers every call at once with bytes made beforehand, for measuring what stands before it: no limits, no
	// faults, no check of the body. Each answer has 100 tokens of input and InstantOutput (0: 64) of output, and is so
	// in the books; a stream has one event for each token.
	Instant       bool
	InstantOutput int64
}

// Outage is a span in which every call fails, counted from the start of the server.
type Outage struct {
	From, For time.Duration
	// Status is what is answered, 500 to 599; 0 breaks the connection without an answer.
	Status int
}

// Storm is a span in which every call is answered 429 although no limit is reached, counted from the start.
type Storm struct {
	From, For time.Duration
	// RetryAfter is what the answer tells the caller to wait; 0 tells nothing.
	RetryAfter time.Duration
}

// dialectOf is the dialect's own name; an alias is resolved, an unknown name stays.
func dialectOf(name string) string {
	if d, ok := provider.Lookup(name); ok {
		return d.Name()
	}
	return name
}

var upstreamName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// settle checks the options and fills the defaults in; all faults come in one error.
func (o Options) settle() (Options, error) {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if o.Window == 0 {
		o.Window = maxWindow
	}
	if o.Window < time.Millisecond || o.Window > maxWindow {
		fault("window is %v: use 1ms to %v", o.Window, maxWindow)
	}
	if o.Speedup == 0 {
		o.Speedup = 1
	}
	if o.Speedup < 1 || o.Speedup > maxSpeedup {
		fault("speedup is %d: use 1 to %d", o.Speedup, maxSpeedup)
	}
	if o.KeepCalls == 0 {
		o.KeepCalls = 100_000
	}
	if o.KeepCalls < 0 {
		fault("keep_calls is %d: use 0 for the default or a positive number", o.KeepCalls)
	}
	if len(o.Upstreams) == 0 {
		fault("no upstreams: name at least one")
	}
	seen := map[string]bool{}
	list := make([]Upstream, len(o.Upstreams))
	for i, u := range o.Upstreams {
		if !upstreamName.MatchString(u.Name) {
			fault("upstream %d has the name %q: use 1 to 64 letters, digits, dashes or underscores", i, u.Name)
		}
		if seen[u.Name] {
			fault("upstream %q is there twice: names are paths", u.Name)
		}
		seen[u.Name] = true
		if err := u.check(); err != nil {
			fault("upstream %q: %w", u.Name, err)
		}
		list[i] = u.withDefaults()
	}
	o.Upstreams = list
	return o, errors.Join(faults...)
}

func (u Upstream) check() error {
	if _, known := apis[dialectOf(u.Dialect)]; !known {
		return fmt.Errorf("dialect %q is not known: use one of %s, %s", u.Dialect, strings.Join(provider.Names(), ", "), provider.HTTP)
	}
	for _, x := range [...]struct {
		name string
		n    int64
	}{{"rpm", u.RPM}, {"tpm", u.TPM}, {"input_tpm", u.InputTPM}, {"burst_requests", u.BurstRequests},
		{"burst_tokens", u.BurstTokens}, {"max_concurrency", u.MaxConcurrency}, {"speed", u.Speed}, {"default_cap", u.DefaultCap},
		{"piece_tokens", u.PieceTokens}, {"instant_output", u.InstantOutput}} {
		if x.n < 0 || x.n > maxCeiling {
			return fmt.Errorf("%s is %d: use 0 to %d", x.name, x.n, maxCeiling)
		}
	}
	if u.BurstRequests > 0 && u.RPM == 0 || u.BurstTokens > 0 && u.TPM == 0 {
		return errors.New("a burst needs the ceiling that refills it")
	}
	if u.FirstToken < 0 {
		return fmt.Errorf("time to the first token is %v: use 0 or more", u.FirstToken)
	}
	for _, o := range u.Outages {
		if o.From < 0 || o.For <= 0 || o.Status != 0 && (o.Status < 500 || o.Status > 599) {
			return fmt.Errorf("outage %+v: use a start of 0 or more, a positive length and a status of 0 or 500 to 599", o)
		}
	}
	for _, s := range u.Storms {
		if s.From < 0 || s.For <= 0 || s.RetryAfter < 0 {
			return fmt.Errorf("storm %+v: use a start of 0 or more, a positive length and a wait of 0 or more", s)
		}
	}
	for i := range u.Faults {
		if err := u.Faults[i].check(); err != nil {
			return err
		}
	}
	return nil
}

func (u Upstream) withDefaults() Upstream {
	u.Dialect = dialectOf(u.Dialect)
	if u.FirstToken == 0 {
		u.FirstToken = 300 * time.Millisecond
	}
	if u.Speed == 0 {
		u.Speed = 100
	}
	if u.DefaultCap == 0 {
		u.DefaultCap = 4096
	}
	if u.PieceTokens == 0 {
		u.PieceTokens = 4
	}
	if u.InstantOutput == 0 {
		u.InstantOutput = 64
	}
	if len(u.Models) == 0 {
		u.Models = []string{"mock-" + u.Dialect}
	}
	return u
}

// scripted is what the script says about a call that arrives at this moment: an outage goes before a storm.
func (u *Upstream) scripted(at time.Duration) (outage *Outage, storm *Storm) {
	for i := range u.Outages {
		if o := &u.Outages[i]; at >= o.From && at < o.From+o.For {
			return o, nil
		}
	}
	for i := range u.Storms {
		if s := &u.Storms[i]; at >= s.From && at < s.From+s.For {
			return nil, s
		}
	}
	return nil, nil
}

const statusClientGone = 499 // in the log only: the caller hung up, nobody read a status

// statusText is http.StatusText with the two that Go does not know.
func statusText(status int) string {
	switch status {
	case 529:
		return "Overloaded"
	case statusClientGone:
		return "Client Closed Request"
	}
	return http.StatusText(status)
}
