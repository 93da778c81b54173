package gateway

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/config"
	"github.com/token-budget-arbiter/tba/internal/provider"
)

// exchange is one call of an agent: what it asked for and which tries were made for it. One goroutine at a time uses it.
type exchange struct {
	g        *Gateway
	settings *Settings
	pool     *poolSettings
	began    time.Time

	route
	call provider.Call
	body []byte
	w    http.ResponseWriter
	in   *http.Request // the agent's, with its headers
	ask  *Ask
	// until is when the call waits for room no more; retried says that this is the agent's own second try or later.
	until   time.Time
	retried bool
	// estimated is the input without what was learned about it.
	estimated int64
	// outputCap bounds the answers, all choices together; the lease holds as much, or less where that was learned.
	outputCap int64
	// onLadder is set when the call runs down a ladder.
	onLadder *config.Ladder
	asked    string // model or ladder as the agent wrote it
	keyless  bool   // rungs are left out because their key does not work
	goesAs   string // the model as it goes up, where that is not as the agent wrote it; on a ladder the rung decides

	ctx    context.Context
	cancel context.CancelFunc
	// status is what the agent gets, 0 before; refused says that the word is ours.
	status  int
	refused bool
	// overhead is what the gateway added before the first try went up.
	overhead time.Duration
	tried    int            // executed tries
	failed   int            // those of them that failed
	queued   int            // times it went back into the queue after a 429
	try      *try           // the running one
	last     *http.Response // the latest answer that could be passed on if nothing better comes
}

// open reads a call up to the point where it may be leased.
func (x *exchange) open(w http.ResponseWriter, r *http.Request) *refusal {
	g, s := x.g, x.settings
	path, f := cleanPath(r)
	var known bool
	x.route, known = s.find(r.Method, path) // first, because every refusal is in the dialect of the path
	if wait, ok := g.addresses.Load().TakeHost(r.RemoteAddr); !ok {
		return refuseAddress(wait)
	}
	switch {
	case f != nil:
		return f
	case !known:
		return refuseNotFound("unknown_path", "path %q is none of the gateway's: /v1 (OpenAI), /anthropic, /gemini, /tools/LADDER, or /PROVIDER for one provider", path)
	}
	if x.endpoint == nil && !x.models {
		if !s.Passes(path) {
			return x.refuseUnmetered(r.Method, path)
		}
		x.endpoint = x.dialect.Passthrough()
	}
	caller, key, f := s.who.caller(r)
	if f != nil {
		return f
	}
	if !x.models {
		if x.body, f = readBody(w, r, s.MaxBody, x.dialect); f != nil {
			return f
		}
		if f = x.parse(r.Header.Get("Content-Type")); f != nil {
			return f
		}
		if x.call.Refuse != "" {
			return refuseOwn(http.StatusBadRequest, provider.BadRequest, &no, "unmetered", "%s", x.call.Refuse)
		}
	}
	if x.ask, f = s.who.identify(r, caller, key, &x.call); f != nil {
		return f
	}
	if x.pool = s.pool(x.ask.Pool); x.pool == nil {
		return refuseNotFound("unknown_pool", "pool %q is not served here", x.ask.Pool)
	}
	_, x.retried = patienceOf(r.Header)
	if x.in = r; x.models {
		return nil
	}
	return x.aim()
}

// parse reads what the body says about the call's cost.
func (x *exchange) parse(contentType string) *refusal {
	var err error
	if x.endpoint.Multipart() {
		x.call, err = x.endpoint.ParseForm(contentType, x.body)
	} else {
		x.call, err = x.endpoint.Parse(x.path, x.body)
	}
	if err != nil {
		return refuseBody(err)
	}
	return nil
}

// aim turns what the agent asked for into what the arbiter is asked.
func (x *exchange) aim() *refusal {
	p, a := x.pool, x.ask
	x.asked = cmp.Or(x.route.ladder, x.route.model, x.call.Model)
	l, ok := p.Ladder(x.asked)
	switch {
	case ok:
		x.onLadder, a.Ladder = l, x.asked
	case x.dialect.Name() == provider.HTTP && x.pinned == "":
		return refuseNotFound("unknown_ladder", "there is no ladder %q: call /tools/LADDER with one that the file has under ladders", x.asked)
	case x.asked != "":
		if f := x.aimAtModel(); f != nil {
			return f
		}
	case x.pinned == "" && !x.endpoint.Unbilled():
		return refuseOwn(http.StatusBadRequest, provider.BadRequest, &no, "no_model", "the call names no model: name one, or a ladder")
	}
	a.Except = p.except(x.endpoint, x.pinned)
	if len(a.Except) == len(p.upstreams) {
		return refuseNotFound("no_provider", "no provider of pool %s serves %s", p.Name, x.path)
	}
	a.Except = slices.Clip(a.Except) // shared: it grows by copying
	open := len(a.Except)
	for _, up := range p.upstreams {
		a.Except = up.exceptShut(a.Except, x.began)
	}
	x.keyless = len(a.Except) > open
	x.until = x.began.Add(a.MaxWait)
	x.estimate()
	a.Ticket = x.g.seniority.recall(x)
	return nil
}

// aimAtModel finds a model by its id, by another spelling of it, or as a rung is written: "provider/model" goes to that provider alone.
func (x *exchange) aimAtModel() *refusal {
	name, err := x.pool.ModelID(x.pinned, x.asked)
	if err == nil {
		x.ask.Model = name
		return nil
	}
	at, id, ok := strings.Cut(x.asked, "/")
	if ok && x.pool.upstreams[at] != nil && (x.pinned == "" || x.pinned == at) {
		if name, err := x.pool.ModelID(at, id); err == nil {
			x.ask.Model, x.pinned, x.goesAs = name, at, id
			return nil
		}
	}
	return refuseModel(err)
}

// estimate sets how many tokens the call may take.
func (x *exchange) estimate() {
	a, c, e := x.ask, &x.call, &x.settings.estimation
	buffer := float64(e.Buffer) / float64(arbiter.Whole)
	a.Tier = c.Tier
	if x.endpoint.Unbilled() {
		a.Input, a.Output = 0, 0
		return
	}
	x.estimated = c.Input()
	input := x.g.learned.input(x.asked, x.estimated)
	a.Input = clamp(int64(float64(input) * (1 + buffer)))
	x.outputCap = c.Output(x.longestOutput(), int64(e.DefaultOutput))
	held := x.outputCap
	if e.Output == "learned" {
		held = x.g.learned.output(a.Class, x.asked, held, e.LearnedMin, buffer)
	}
	a.Output = clamp(held)
}

// longestOutput is the longest answer of the models that may serve, 0 when unknown.
func (x *exchange) longestOutput() (most int64) {
	if x.onLadder != nil {
		for _, tier := range x.onLadder.Tiers {
			for _, r := range tier {
				most = max(most, x.pool.outputs[rungName(r.Provider, r.Model)])
			}
		}
		return most
	}
	for _, up := range x.pool.upstreams {
		most = max(most, x.pool.outputs[rungName(up.Name, x.ask.Model)])
	}
	return most
}

func clamp(n int64) arbiter.Tokens { return arbiter.Tokens(min(max(n, 0), arbiter.MaxAmount)) }

// within opens the call's own context: the agent's, with the deadline it asked for.
func (x *exchange) within(client context.Context) {
	if d := x.ask.Deadline; d > 0 {
		x.ctx, x.cancel = context.WithDeadline(client, x.began.Add(d))
	} else {
		x.ctx, x.cancel = client, func() {}
	}
}

// close ends whatever is still open of the call: the step that makes every lease end exactly once.
func (x *exchange) close() {
	if t := x.try; t != nil {
		t.close()
	}
	if x.cancel != nil {
		x.cancel()
	}
	x.g.hooks.ended(x)
}

// expired reports whether the call has used up the time that the agent gave it.
func (x *exchange) expired() bool { return errors.Is(x.ctx.Err(), context.DeadlineExceeded) }
