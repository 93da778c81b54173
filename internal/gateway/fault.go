package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/provider"
)

// What becomes of a provider's error: it is read, judged by its class, and given to the agent in words that its SDK understands.

// refused is an answer of 300 or more: read, judged, and passed on unchanged when nothing can cure it.
func (t *try) refused(resp *http.Response) (*http.Response, next) {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody)) // half an error is still one
	resp.Body.Close()
	return t.judge(resp, body)
}

// faulted is an error inside an answer that said 200, before a byte of it went on.
func (t *try) faulted(resp *http.Response, fault *provider.Fault) (*http.Response, next) {
	resp.Body.Close()
	resp.StatusCode = fault.Status
	resp.Header.Set("Content-Type", "application/json")
	resp.Body = io.NopCloser(bytes.NewReader(fault.Body))
	withoutKey(resp, t.key)
	return t.refused(resp)
}

// judge decides by the class of an error what becomes of the lease and of the call (docs/gateway.md, one call).
func (t *try) judge(resp *http.Response, body []byte) (*http.Response, next) {
	x := t.x
	now := time.Now()
	v := t.up.Dialect.Classify(resp.StatusCode, resp.Header, body, now)
	t.up.repeats.judge(t.grant.Model, &v, now)
	x.g.hooks.upstream(t, resp.StatusCode, v)
	signal := signalOf(resp.StatusCode, &v)
	answer := t.errorAnswer(resp, body, v)

	if t.usageAsked && resp.StatusCode == http.StatusBadRequest && mentionsStreamOptions(body) {
		t.up.refusesUsage.Store(true)
		t.settle(Report{Outcome: arbiter.OutcomeOK}, true)
		return answer, anew // once without the option; it cost nothing
	}
	report := Report{Outcome: v.Class.Outcome(), Signal: signal}
	if v.Class == provider.Auth {
		t.up.shut(t.grant.Model, sumOf(t.key), now)
		x.keyless = true
		report.Outcome = arbiter.OutcomeCancelled // says nothing about the provider, only about our key
	}
	if v.Ambiguous {
		guess := t.guess(report.Outcome)
		guess.Signal = signal
		t.settle(guess, false)
	} else {
		t.settle(report, true)
	}
	switch v.Class {
	case provider.Throttle:
		if x.queued++; x.queued <= maxQueued && !x.retried && time.Now().Before(x.until) {
			return answer, again
		}
		x.g.seniority.remember(x, x.ask.Ticket) // its SDK may come back
	case provider.Auth:
		x.g.log.Error("provider refuses our key", "provider", t.up.Name, "model", t.grant.Model, "rule", v.Rule, "code", v.Code)
		if x.tried++; !x.retried { // spends no try: it cost nothing, and each such rung is asked once
			return answer, further
		}
	case provider.Overload, provider.Provider, provider.Exhausted:
		if v.Class == provider.Exhausted {
			x.g.log.Error("provider shuts off our account", "provider", t.up.Name, "model", t.grant.Model, "rule", v.Rule, "code", v.Code)
		}
		x.tried++
		if x.failed++; x.mayTry() {
			return answer, further
		}
	}
	return answer, done
}

// signalOf is what the arbiter is told of an error.
func signalOf(status int, v *provider.Verdict) arbiter.ProviderSignal {
	return arbiter.ProviderSignal{Status: int32(status), Dim: v.Dim, RetryAfter: int64(v.Wait), ModelOnly: modelOnly(v)}
}

// modelOnly reports whether an account is used up for the model that was called alone: by a limit that opens by itself, not for want of money.
func modelOnly(v *provider.Verdict) bool {
	return v.Class == provider.Exhausted && (v.Until == provider.UntilHint || v.Until == provider.UntilPacificDay)
}

// errorAnswer is a provider's error as the agent gets it: unchanged when it can read it, else in words of its dialect. Waits that
// would make some SDKs sleep for hours, or retry for ever, do not go on.
func (t *try) errorAnswer(resp *http.Response, body []byte, v provider.Verdict) *http.Response {
	x := t.x
	switch {
	case v.Class == provider.Auth: // never the agent's fault
		return refuseAccount(t.up.Name, v).response(x.in, x.dialect)
	case !provider.ValidJSON(body) || len(bytes.TrimSpace(body)) == 0:
		f := refuseGarbled(t.up.Name, resp.StatusCode, v)
		resp = f.response(x.in, x.dialect)
	default:
		incoming(resp.Header)
		resp.Body = io.NopCloser(bytes.NewReader(body))
		resp.ContentLength = int64(len(body))
		resp.Header.Set("Content-Length", strconv.Itoa(len(body)))
	}
	h := resp.Header
	succeed(h, &t.grant, x.dialect, time.Now())
	told, _ := provider.RetryAfter(h, time.Now())
	wait := max(told, v.Wait) // Gemini says it in the body
	final := v.Class == provider.Exhausted || v.Class == provider.Impossible || v.Class == provider.Throttle && wait > longestHint
	if final || wait > longestHint {
		told = 0
	}
	tellWait(h, told)
	switch {
	case final:
		h.Set("X-Should-Retry", "false")
	case v.Class == provider.Throttle && told == 0 && wait > 0:
		h.Set("Retry-After", strconv.FormatInt(wholeSeconds(wait), 10))
	}
	return resp
}

// tellWait leaves the provider's hints as they are when they all mean told, in numbers. What else they may be (dates by another clock, two
// that contradict each other, numbers beyond all measure) is read differently by each SDK, and by some as centuries.
func tellWait(h http.Header, told time.Duration) {
	for name, unit := range map[string]time.Duration{"Retry-After": time.Second, "Retry-After-Ms": time.Millisecond} {
		given := h.Get(name)
		if given == "" {
			continue
		}
		if n, err := strconv.ParseFloat(given, 64); err == nil && told > 0 && n == float64(told)/float64(unit) {
			continue
		}
		if h.Del(name); told > 0 {
			h.Set(name, strconv.FormatInt(int64((told+unit-1)/unit), 10))
		}
	}
}

// neverSent reports whether an error proves that the provider got nothing of the call.
func neverSent(err error) bool {
	if errors.Is(err, errAddress) {
		return true
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return true
	}
	var dns *net.DNSError
	return errors.As(err, &dns)
}

func timedOut(err error) bool {
	var n net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &n) && n.Timeout()
}

// mentionsStreamOptions reports whether a refusal is about the option that the gateway put in.
func mentionsStreamOptions(body []byte) bool { return bytes.Contains(body, []byte("stream_options")) }
