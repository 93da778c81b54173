package gateway

import (
	"cmp"
	"context"
	"errors"
	"hash/fnv"
	"net/http"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/provider"
)

// detail is the tba member of an error body: the figures of a refusal, the same whatever the dialect.
type detail struct {
	// Reason is the stable word of the rule that refused.
	Reason string `json:"reason"`
	// Scope is what the limit belongs to: global, provider, model, class, agent, workflow, task or credential.
	Scope string `json:"scope,omitempty"`
	// Budget is the limit's name as `tba budgets` lists it: "global", "provider/openai".
	Budget string `json:"budget,omitempty"`
	*figures
	// ResetsAt is when there is room again, RFC 3339; "" when no time is known or waiting does not help.
	ResetsAt   string `json:"resets_at,omitempty"`
	DecisionID string `json:"decision_id,omitempty"`
}

// figures are there when the rule has a limit.
type figures struct {
	Unit  string `json:"unit"`
	Limit int64  `json:"limit"`
	Used  int64  `json:"used"`
	Held  int64  `json:"held"`
	Asked int64  `json:"asked"`
}

// refuseOptions is what a refusal needs beyond the grant.
type refuseOptions struct {
	// budgetStatus overrides the status of a used-up budget; 0 is the dialect's.
	budgetStatus int
	// agent and requestID spread the callers that were refused together, and requestID is told to the client.
	agent, requestID string
	// model is what the call named: for a model without a price.
	model string
	// tried says that the call has been at a provider already: having no rung left is then an outage and no fault of the call.
	tried bool
}

// budgetStatuses are the answers to a used-up budget. The SDKs of OpenAI and Anthropic obey x-should-retry, and their users look for
// a 429 with the code of a quota; those of Gemini and Mistral do not read it and would repeat a 429, as any HTTP client of a tool might.
var budgetStatuses = map[string]int{
	provider.OpenAI: http.StatusTooManyRequests, provider.Anthropic: http.StatusTooManyRequests,
	provider.Gemini: http.StatusForbidden, provider.Mistral: http.StatusPaymentRequired,
}

func budgetStatus(d *provider.Dialect, override int) int {
	if override != 0 {
		return override
	}
	return cmp.Or(budgetStatuses[d.Name()], http.StatusPaymentRequired)
}

// refuseGrant is the table of refusals: what a deferral or a denial is in HTTP. now is Unix time. nil when g is granted.
func refuseGrant(g *Grant, d *provider.Dialect, now time.Time, o refuseOptions) *refusal {
	if g.Status == arbiter.Granted {
		return nil
	}
	c := &g.Check
	f := &refusal{decision: g.Decision, requestID: o.requestID, detail: detailOf(g, now)}
	deferred := g.Status == arbiter.Deferred
	soon := deferred && g.RetryAfter <= clearsSoon
	switch {
	case c.Reason == arbiter.ReasonTooLarge:
		f.status, f.kind, f.retry = http.StatusBadRequest, provider.TooLarge, &no
	case c.Reason == arbiter.ReasonUnpricedModel:
		f.status, f.kind, f.retry = http.StatusForbidden, provider.Denied, &no
	case c.Reason == arbiter.ReasonNoRung && !o.tried: // none of the rungs speaks the dialect of the path
		f.status, f.kind, f.retry = http.StatusBadRequest, provider.BadRequest, &no
	case c.Reason == arbiter.ReasonBreaker, c.Reason == arbiter.ReasonNoRung: // a breaker is only named when no other rung is left
		f.status, f.kind, f.retry = http.StatusServiceUnavailable, provider.Unavailable, &yes
		f.retryAfter = spread(min(max(g.RetryAfter, time.Second), longestOutage), longestOutage, o)
	case soon:
		f.status, f.kind, f.retry = http.StatusTooManyRequests, provider.RateLimited, &yes
		f.retryAfter = spread(max(g.RetryAfter, shortestHint), longestHint, o)
	case c.Reason == arbiter.ReasonBudget, c.Reason == arbiter.ReasonExhausted:
		f.status, f.kind, f.retry = budgetStatus(d, o.budgetStatus), provider.QuotaExhausted, &no
	case deferred:
		f.status, f.kind, f.retry = http.StatusTooManyRequests, provider.RateLimited, &no
	default:
		f.status, f.kind, f.retry = http.StatusForbidden, provider.Denied, &no
	}
	f.message = sentence(g, f, now, o)
	if c.Reason == arbiter.ReasonUnpricedModel && g.Message != "" { // the arbiter's own words: its list of names may be newer
		f.message = g.Message
	}
	f.limits, f.at = limitsOf(g), now
	return f
}

// longestOutage bounds the hint of a 503: an outage may end at any moment.
const longestOutage = 5 * time.Second

// spread moves a hint up by a part of it that depends on the caller alone, so that those who were refused together do not come back
// together. Never down: earlier there is no room.
func spread(wait, most time.Duration, o refuseOptions) time.Duration {
	if wait >= most {
		return most
	}
	room := min(max(wait/8, shortestHint), most-wait)
	h := fnv.New64a()
	h.Write([]byte(o.agent))
	h.Write([]byte{0})
	h.Write([]byte(o.requestID))
	return wait + time.Duration(h.Sum64()%uint64(room+1))
}

// refuseError is the answer where the arbiter gave no verdict. err is an *arbiter.Error or a context's.
func refuseError(err error) *refusal {
	var e *arbiter.Error
	if !errors.As(err, &e) {
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			e = arbiter.Errorf(arbiter.CodeUnavailable, "cancelled", "the call ended before there was an answer")
		} else { // the text may name addresses: it is for the log
			e = arbiter.Errorf(arbiter.CodeUnavailable, "internal", "the arbiter cannot answer")
		}
	}
	f := &refusal{message: e.Text, retry: &no, detail: &detail{Reason: e.Reason}}
	wait := time.Duration(max(e.RetryAfter, 0))
	switch e.Code {
	case arbiter.CodePermission:
		f.status, f.kind = http.StatusForbidden, provider.Denied
	case arbiter.CodeUnauthenticated:
		f.status, f.kind = http.StatusUnauthorized, provider.Unauthenticated
	case arbiter.CodeResource:
		switch {
		case e.Reason == "too_large":
			f.status, f.kind = http.StatusBadRequest, provider.TooLarge
		case wait > 0 && wait <= clearsSoon:
			f.status, f.kind, f.retry = http.StatusTooManyRequests, provider.RateLimited, &yes
			f.retryAfter = min(max(wait, shortestHint), longestHint)
		default:
			f.status, f.kind = http.StatusTooManyRequests, provider.RateLimited
		}
	case arbiter.CodeUnavailable:
		f.status, f.kind, f.retry = http.StatusServiceUnavailable, provider.Unavailable, &yes
		f.retryAfter = min(max(wait, time.Second), longestOutage)
	default:
		// A conflict and an unknown id are lasting: 409 would be repeated, and 404 would be taken for the path.
		f.status, f.kind = http.StatusBadRequest, provider.BadRequest
	}
	return f
}
