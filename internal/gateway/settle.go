package gateway

import (
	"context"
	"strings"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/provider"
)

// settleTimeout is how long a release waits for the journal.
const settleTimeout = 5 * time.Second

// settle ends the lease, once: a release when the call cost nothing, else a commit.
func (t *try) settle(r Report, release bool) {
	if t.ended.Swap(true) {
		return
	}
	x := t.x
	t.unhook()
	if timer := t.extend.Load(); timer != nil {
		timer.Stop()
	}
	r.FirstByte = t.firstByte
	if t.sent {
		r.Latency = time.Since(t.started)
	}
	if r.Signal.Status >= 400 { // how fast a provider refuses says nothing of how long its calls take
		r.Latency, r.FirstByte = 0, 0
	}
	if !release {
		if err := t.grant.Lease.Commit(r); err != nil {
			x.g.log.Warn("commit was not taken, the lease ends by its time", "lease", t.grant.ID, "error", err)
		}
		x.g.hooks.settled(t, &r)
		return
	}
	defer t.cancel() // whatever is left of the answer is not wanted
	ctx, cancel := context.WithTimeout(context.WithoutCancel(x.ctx), settleTimeout)
	defer cancel()
	ticket, _, err := t.grant.Lease.Release(ctx, r)
	if err != nil {
		x.g.log.Warn("lease could not be released, it ends by its time", "lease", t.grant.ID, "error", err)
	}
	if len(ticket) > 0 {
		x.ask.Ticket = ticket
	}
}

// close settles what nothing has settled.
func (t *try) close() {
	if !t.ended.Load() {
		t.settle(t.bill(arbiter.OutcomeCancelled), false)
	}
	t.x.g.drains.leave(t)
	t.cancel()
}

// bill is the report of an answer: what the provider says it cost, else what it must have cost at least.
func (t *try) bill(o arbiter.Outcome) Report {
	x := t.x
	if t.meter == nil {
		if !t.sent {
			return Report{Outcome: arbiter.OutcomeNotSent, HasUsage: true}
		}
		return t.guess(o)
	}
	m := t.meter.Result()
	if x.endpoint.Unbilled() {
		return Report{Outcome: o, HasUsage: true}
	}
	r := t.guess(o)
	whole := m.HasUsage && m.Complete
	if m.HasUsage { // the last that was seen, by kind; what is missing is guessed
		guessed := r.Usage.Input
		var doubtful bool
		if r.Usage, doubtful = t.plausible(&m.Usage); whole && !doubtful {
			x.g.learned.observe(x, &m.Usage)
			r.Estimated = false
			return t.served(r, &m.Usage)
		}
		if r.Usage.InputTotal() == 0 {
			r.Usage.Input = guessed
		}
	}
	if !whole || r.Usage.Output == 0 {
		r.Usage.Output = max(r.Usage.Output, arbiter.Tokens(provider.EstimateText(m.TextBytes)))
	}
	return t.served(r, &m.Usage)
}

// served puts into a report who answered, by the name that the policy has for it: an answer names models with a date or by an alias.
func (t *try) served(r Report, u *provider.Usage) Report {
	r.Tier, r.Longest = u.Tier, u.Longest
	if r.Model = strings.TrimPrefix(u.Model, "models/"); r.Model != "" && r.Model != t.grant.Model {
		r.Model, _ = t.x.pool.ModelID(t.grant.Provider, r.Model) // "" is the lease's
	}
	return r
}

// onePass are the endpoints at which a call is one prompt and one pass of the model: what it counts has a bound.
var onePass = map[string]bool{"chat": true, "fim": true, "messages": true, "generate": true}

// plausible is a bill within twice the model's context. doubtful says that it was not, or that the provider's
// counts cannot all be true.
func (t *try) plausible(u *provider.Usage) (sane arbiter.Usage, doubtful bool) {
	sane, doubtful = u.Usage, u.Adjusted
	most := arbiter.Tokens(2 * t.x.pool.contexts[rungName(t.grant.Provider, t.grant.Model)])
	if most == 0 || u.Longest > 0 || !onePass[t.x.endpoint.Name()] {
		return sane, doubtful
	}
	each := most * arbiter.Tokens(max(t.x.call.Choices, 1))
	for _, n := range [...]struct {
		count *arbiter.Tokens
		most  arbiter.Tokens
	}{{&sane.Input, most}, {&sane.CacheRead, most}, {&sane.CacheWrite, most}, {&sane.CacheWriteLong, most}, {&sane.Output, each}} {
		if *n.count > n.most {
			*n.count, doubtful = n.most, true
		}
	}
	sane.Reasoning = min(sane.Reasoning, sane.Output)
	return sane, doubtful
}

// guess is the report of a call whose answer nobody saw: its prompt was read.
func (t *try) guess(o arbiter.Outcome) Report {
	if t.x.endpoint.Unbilled() {
		return Report{Outcome: o, HasUsage: true}
	}
	input := t.x.g.learned.input(t.x.asked, t.x.estimated)
	return Report{Outcome: o, HasUsage: true, Usage: arbiter.Usage{Input: max(clamp(input), 1)}, Estimated: true}
}
