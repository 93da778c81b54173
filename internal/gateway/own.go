package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/catalog"
	"github.com/token-budget-arbiter/tba/internal/provider"
)

// The gateway's own refusals: of calls that never come to the arbiter, and of calls whose provider gave nothing that could be passed on.

func refuseOwn(status int, kind provider.Kind, retry *bool, reason, format string, args ...any) *refusal {
	return &refusal{status: status, kind: kind, retry: retry, message: fmt.Sprintf(format, args...), detail: &detail{Reason: reason}}
}

func refuseNotFound(reason, format string, args ...any) *refusal {
	return refuseOwn(http.StatusNotFound, provider.NotFound, &no, reason, format, args...)
}

func refuseDraining() *refusal {
	f := refuseOwn(http.StatusServiceUnavailable, provider.Unavailable, &yes, "draining", "the gateway is going down: call again in a second")
	f.retryAfter = time.Second
	return f
}

// refuseAddress is for an address that calls more often than limits.per_address allows.
func refuseAddress(wait time.Duration) *refusal {
	e := arbiter.Errorf(arbiter.CodeResource, "per_address", "too many calls from your address: limits.per_address of the gateway bounds them")
	e.RetryAfter = int64(max(wait, shortestHint))
	return refuseError(e)
}

func refuseBody(err error) *refusal {
	return refuseOwn(http.StatusBadRequest, provider.BadRequest, &no, "bad_body", "%v", err)
}

// refuseModel is for a model that has no price, with the nearest one that has.
func refuseModel(err error) *refusal {
	text := err.Error()
	var unpriced *catalog.UnpricedError
	if errors.As(err, &unpriced) {
		text += ": name a model of the catalogue or a ladder, or give it a price in the file"
	}
	return refuseOwn(http.StatusForbidden, provider.Denied, &no, arbiter.ReasonUnpricedModel.String(), "%s", text)
}

// refuseConfig is for a call that cannot be made as the gateway is configured: an operator's matter.
func refuseConfig(name string) *refusal {
	return refuseOwn(http.StatusServiceUnavailable, provider.Unavailable, &no, "provider_config", "provider %s cannot be called as it is configured: an operator has to see to it", name)
}

// refuseUpstream is for a provider that did not answer. The cause is for the log: it names addresses.
func refuseUpstream(name string, timeout bool) *refusal {
	what := "gave no answer"
	if timeout {
		what = "did not answer in time"
	}
	f := refuseOwn(http.StatusServiceUnavailable, provider.Unavailable, &yes, "provider", "provider %s %s", name, what)
	f.retryAfter = time.Second
	return f
}

// refuseUnmetered is for a path of a provider that no endpoint of its dialect has, with the one that was probably meant.
func (x *exchange) refuseUnmetered(method, path string) *refusal {
	if e, _, ok := x.dialect.Endpoint(method, "/v1"+x.path); ok && e != nil {
		return refuseNotFound("unmetered_path", "%s %s is no path of this dialect: did you mean %s?", method, path, strings.TrimSuffix(path, x.path)+"/v1"+x.path)
	}
	if _, _, ok := x.dialect.Endpoint(http.MethodPost, x.path); ok {
		return refuseNotFound("unmetered_path", "%s %s is no call: use POST", method, path)
	}
	for _, name := range [...]string{provider.Anthropic, provider.Gemini} {
		if d, _ := provider.Lookup(name); x.pinned == "" {
			if _, _, ok := d.Endpoint(method, path); ok {
				return refuseNotFound("unmetered_path", "%s %s is no path of this dialect: did you mean /%s%s?", method, path, name, path)
			}
		}
	}
	return refuseNotFound("unmetered_path", "%s %s cannot be metered, so it is not forwarded: name it under gateway.passthrough to let it through", method, path)
}

// refuseKeys is for a call all of whose providers have refused the gateway's credential lately.
func refuseKeys() *refusal {
	return refuseOwn(http.StatusServiceUnavailable, provider.Unavailable, &no, "provider_credential",
		"no provider that could take the call accepts the gateway's credential: an operator has to see to it")
}

// refuseAccount is for a provider that refuses the gateway's own credential.
func refuseAccount(name string, v provider.Verdict) *refusal {
	return refuseOwn(http.StatusServiceUnavailable, provider.Unavailable, &no, "provider_credential",
		"provider %s refuses the gateway's credential (%s): an operator has to see to budget.providers.%s.api_key", name, v.Rule, name)
}

// refuseGarbled is for an error that no SDK can read.
func refuseGarbled(name string, status int, v provider.Verdict) *refusal {
	text := v.Message
	if text == "" {
		text = "no readable body"
	}
	f := refuseOwn(status, kindOf(v.Class), nil, "provider", "provider %s answered %d: %s", name, status, text)
	if v.Class == provider.Throttle && v.Wait > 0 && v.Wait <= longestHint {
		f.retryAfter = v.Wait
	}
	return f
}

func kindOf(c provider.Class) provider.Kind {
	switch c {
	case provider.Throttle:
		return provider.RateLimited
	case provider.Exhausted:
		return provider.QuotaExhausted
	case provider.Impossible:
		return provider.TooLarge
	case provider.Caller, provider.Policy:
		return provider.BadRequest
	}
	return provider.Unavailable
}

// refuseStopped is for a call that was stopped before its answer began.
func refuseStopped(revoked bool) *refusal {
	if revoked {
		return refuseOwn(http.StatusForbidden, provider.Denied, &no, reasonRevoked, "an operator has revoked this call's lease")
	}
	return refuseOwn(http.StatusServiceUnavailable, provider.Unavailable, &no, "deadline", "the call's deadline (%s) was over before its provider answered", headerDeadline)
}

// streamEnd is how a stream ends that is stopped after it has begun.
func streamEnd(revoked bool) provider.Problem { return refuseStopped(revoked).problem() }
