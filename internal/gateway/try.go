package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/provider"
)

// maxQueued is how often a call may go back into the queue after a 429.
const maxQueued = 8

// maxErrorBody is what is read of an error's body.
const maxErrorBody = 64 << 10

// next says what becomes of a call after a try.
type next uint8

const (
	done    next = iota // the answer goes to the agent
	again               // the same call in the queue again: it was throttled, no try is spent
	anew                // the same call in another form: what the provider said was about ours
	further             // another rung may cure it
)

// run makes as many tries of a call as the rules allow, each with its own lease, and returns the answer of the last one; nil when the
// agent has gone.
func (x *exchange) run(client context.Context) *http.Response {
	x.within(client)
	for {
		grant, err := x.g.leaser.Acquire(x.ctx, x.ask)
		switch {
		case client.Err() != nil:
			if err == nil && grant.Lease != nil {
				x.begin(&grant).settle(Report{Outcome: arbiter.OutcomeNotSent}, true)
			}
			return nil
		case err != nil:
			return x.refuse(refuseError(err))
		case grant.Status != arbiter.Granted:
			x.g.seniority.remember(x, grant.Ticket)
			if x.keyless && grant.Check.Reason == arbiter.ReasonNoRung {
				return x.refuse(refuseKeys())
			}
			return x.refuse(refuseGrant(&grant, x.dialect, time.Now(), x.refuseOptions()))
		}
		t := x.begin(&grant)
		resp, what := t.forward()
		if what == done {
			return resp // the try ends with its body
		}
		if x.try = nil; what != anew {
			x.last = resp
		}
		if x.ask.MaxWait = max(time.Until(x.until), 0); what == further {
			x.ask.Except = append(x.ask.Except, rungName(grant.Provider, grant.Model))
			x.g.hooks.failover(t)
		}
	}
}

func (x *exchange) refuseOptions() refuseOptions {
	return refuseOptions{budgetStatus: x.settings.BudgetStatus, agent: x.ask.Agent, requestID: traceOf(x.in.Header), model: x.asked, tried: x.failed > 0}
}

// refuse is our own refusal, or what the provider said if it said something: its own word is the better one.
func (x *exchange) refuse(f *refusal) *http.Response {
	if x.last != nil {
		return x.last
	}
	return f.response(x.in, x.dialect)
}

// try is one lease and the call under it.
type try struct {
	x      *exchange
	grant  Grant
	up     *upstream
	ctx    context.Context // of the call that goes up: not the agent's own, which may end before its answer is read to the end
	cancel context.CancelFunc
	unhook func() bool                // takes the agent's going off the call
	left   sync.Once                  // the agent's going, told by its context or by a write that failed
	extend atomic.Pointer[time.Timer] // until the lease has to be extended

	target     provider.Target
	key        string // the provider's, as it was sent
	usageAsked bool   // the stream was asked for its usage by us
	cap        int64  // the output cap that was put into the call; 0: none
	sent       bool   // the request may have reached the provider
	started    time.Time
	firstByte  time.Duration
	meter      *provider.Meter
	metering   atomic.Bool  // an answer that is billed is coming in
	gone       atomic.Bool  // the agent has left, or the deadline is over
	lost       atomic.Bool  // the lease was revoked
	stalled    atomic.Bool  // the provider fell silent in the middle of its answer
	drain      atomic.Int32 // read on although the agent has left: see drains
	ended      atomic.Bool  // settled
}

func (x *exchange) begin(g *Grant) *try {
	t := &try{x: x, grant: *g, up: x.pool.upstreams[g.Provider], started: time.Now()}
	t.ctx, t.cancel = context.WithCancel(context.WithoutCancel(x.ctx))
	t.unhook = context.AfterFunc(x.ctx, t.leave)
	if g.TTL > 0 {
		t.extend.Store(time.AfterFunc(g.TTL/3, t.prolong))
	}
	if x.tried == 0 && x.queued == 0 {
		x.overhead = max(time.Since(x.began)-g.Waited, 0)
	}
	x.try = t
	return t
}

// leave is called when the agent has gone or the deadline is over: the call that is up is stopped, unless its bill is worth waiting for
// and nobody listens. It may be called more than once; when it returns, what becomes of the call is decided.
func (t *try) leave() { t.left.Do(t.abandon) }

func (t *try) abandon() {
	t.gone.Store(true)
	if t.metering.Load() && !t.x.expired() && t.x.g.drains.enter(t) {
		return
	}
	t.cancel()
}

// prolong keeps the lease of a long call.
func (t *try) prolong() {
	if t.ended.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(t.ctx, extendTimeout)
	defer cancel()
	err := t.grant.Lease.Extend(ctx)
	var e *arbiter.Error
	switch {
	case t.ended.Load():
	case errors.As(err, &e) && e.Reason == reasonRevoked:
		t.lost.Store(true)
		t.cancel()
	case e != nil && (e.Code == arbiter.CodeNotFound || e.Code == arbiter.CodePrecondition):
		t.x.g.log.Warn("lease of a running call has ended; what the call uses counts all the same", "lease", t.grant.ID, "error", err)
	default:
		t.extend.Store(time.AfterFunc(t.grant.TTL/3, t.prolong))
	}
}

const (
	extendTimeout    = 10 * time.Second
	firstByteTimeout = time.Second
	reasonRevoked    = "lease_revoked"
)

// forward sends the call up and judges the answer as far as it must before a byte of it goes to the agent.
func (t *try) forward() (*http.Response, next) {
	x := t.x
	if t.up == nil { // the policy has a provider that the file of this process has not
		t.settle(Report{Outcome: arbiter.OutcomeNotSent}, true)
		x.g.log.Error("the arbiter granted a provider that is not in this gateway's file", "provider", t.grant.Provider)
		return refuseConfig(t.grant.Provider).response(x.in, x.dialect), further
	}
	req, err := t.request()
	if err != nil {
		t.settle(Report{Outcome: arbiter.OutcomeNotSent}, true)
		x.g.log.Error("call cannot be made", "provider", t.up.Name, "error", err)
		t.up.shut(t.grant.Model, unread, time.Now())
		x.keyless = true
		return refuseConfig(t.up.Name).response(x.in, x.dialect), further
	}
	t.sent = true
	resp, err := t.up.sends.RoundTrip(req)
	if err != nil {
		return t.unanswered(err)
	}
	t.firstByte = time.Since(t.started)
	resp.Body = newLivelyBody(t, resp.Body)
	if t.grant.Flags&arbiter.FlagProbe != 0 && resp.StatusCode < http.StatusBadRequest {
		t.tellFirstByte()
	}
	if t.zeroHits(resp) && !t.paid() {
		return t.fallThrough(resp)
	}
	if resp.StatusCode >= http.StatusMultipleChoices {
		return t.refused(resp)
	}
	body := &meteredBody{t: t, from: resp.Body}
	t.meter = x.endpoint.NewMeter(provider.MeterOptions{
		ContentType: resp.Header.Get("Content-Type"), Stream: x.call.Stream, StripUsage: t.usageAsked,
	})
	if fault := body.prime(); fault != nil {
		return t.faulted(resp, fault)
	}
	if body.err != nil && !errors.Is(body.err, io.EOF) && len(body.held) == 0 {
		resp.Body.Close()
		return t.unheard(body.err) // settled by body
	}
	if x.call.Stream {
		resp.Header.Del("Content-Length") // a chunk may be taken out, and an answer that is cut must not look whole
	}
	t.metering.Store(true)
	x.tried++
	t.answer(resp, true)
	resp.Body = body
	x.body = nil // no other try needs it
	return resp, done
}

// tellFirstByte gives the verdict of a probe as soon as it is known: the rung is shut until then. The answer waits for it, but not for an
// arbiter that cannot be reached: the commit says the same later.
func (t *try) tellFirstByte() {
	ctx, cancel := context.WithTimeout(t.ctx, firstByteTimeout)
	defer cancel()
	if err := t.grant.Lease.FirstByte(ctx); err != nil {
		t.x.g.log.Debug("first byte of a probe is not reported", "lease", t.grant.ID, "error", err)
	}
}

// request is the call as it goes up: model, cap and usage option set, all other bytes as they came.
func (t *try) request() (*http.Request, error) {
	x, g := t.x, &t.grant
	var ok bool
	if t.target, ok = t.up.Dialect.Target(x.endpoint, x.path); !ok {
		return nil, fmt.Errorf("provider %s does not serve %s", t.up.Name, x.path)
	}
	model, edit := x.asked, provider.Edit{Model: x.goesAs}
	if x.onLadder != nil {
		edit.Model = g.Model
	}
	model = cmp.Or(edit.Model, model)
	t.cap = t.missingCap()
	edit.MaxOutput = t.cap
	t.usageAsked = t.asksUsage()
	edit.IncludeUsage = t.usageAsked
	body, err := x.endpoint.Rewrite(x.body, &x.call, t.target.Adapt(edit))
	if err != nil {
		return nil, err
	}
	req, err := outgoing(t.ctx, x.in, &t.up.Upstream, x.endpoint, t.target, model, body)
	if err == nil {
		t.key = provider.Credential(req.Header, "")
	}
	return req, err
}

// missingCap is the output cap of a call that has none: what a lease holds must bound what the answer can cost. 0 where the call or the
// model has one of its own.
func (t *try) missingCap() int64 {
	x := t.x
	each := x.outputCap / max(x.call.Choices, 1)
	if own := x.pool.outputs[rungName(t.up.Name, t.grant.Model)]; x.call.MaxOutput > 0 || own > 0 && own <= each {
		return 0
	}
	return each
}

// asksUsage reports whether the call must ask for the usage of its stream: it streams, the provider takes the option, and has not
// refused it before. The chunk that brings it is then ours to drop.
func (t *try) asksUsage() bool {
	return t.x.call.Stream && !t.x.call.WantsUsage && t.target.TakesUsageOption() && !t.up.refusesUsage.Load()
}

// unanswered is a call without an answer: refused, reset, timed out, stopped.
func (t *try) unanswered(err error) (*http.Response, next) {
	switch {
	case t.gone.Load() || t.lost.Load():
		t.settle(t.guess(arbiter.OutcomeCancelled), false)
	case neverSent(err):
		t.settle(Report{Outcome: arbiter.OutcomeError}, true)
	case timedOut(err):
		t.settle(t.guess(arbiter.OutcomeTimeout), false)
	default:
		t.settle(t.guess(arbiter.OutcomeError), false)
	}
	return t.unheard(err)
}

// unheard is what follows when nothing of an answer could go on: there was none, or it broke off before its first event. The lease has ended.
func (t *try) unheard(err error) (*http.Response, next) {
	x := t.x
	if x.in.Context().Err() != nil {
		return nil, done // nobody is there to be told
	}
	if t.gone.Load() || t.lost.Load() {
		return refuseStopped(t.lost.Load()).response(x.in, x.dialect), done
	}
	x.g.log.Warn("provider did not answer", "provider", t.up.Name, "model", t.grant.Model, "error", err)
	x.g.hooks.upstream(t, 0, provider.Verdict{Class: provider.Provider})
	x.tried++
	x.failed++
	f := refuseUpstream(t.up.Name, timedOut(err) || t.stalled.Load())
	if x.mayTry() {
		return f.response(x.in, x.dialect), further
	}
	return f.response(x.in, x.dialect), done
}

// mayTry reports whether another rung may be tried for this call: nobody else is trying it again, and the tries are not used up.
func (x *exchange) mayTry() bool { return !x.retried && x.failed < x.pool.MaxAttempts }

// headerOutputCap tells an agent that a cap was put into its call.
const headerOutputCap = "X-Tba-Output-Cap"

// answer puts what the agent should know on a good answer. final says that no other answer can take its place.
func (t *try) answer(resp *http.Response, final bool) {
	x := t.x
	incoming(resp.Header)
	h := resp.Header
	if final { // straight to where they are sent from
		h = x.w.Header()
		maps.Copy(h, resp.Header)
		resp.Header = nil
	}
	succeed(h, &t.grant, x.dialect, time.Now())
	if t.cap > 0 {
		h[headerOutputCap] = []string{strconv.FormatInt(t.cap, 10)}
	}
	x.g.hooks.upstream(t, resp.StatusCode, provider.Verdict{})
}
