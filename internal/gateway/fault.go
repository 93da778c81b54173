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

	"github.com/token-budget-arbiter/tba/internal/provider"
)

// errorAnswer is a provider's error as the agent gets it: unchanged when it can read it, else in words of its dialect. Waits that
// would make some SDKs sleep for hours, or retry for ever, do not go on (provider-facts §4.3).
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
	succeed(h, &t.grant, x.dialect, nil, time.Now())
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
