package gateway

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/token-budget-arbiter/tba/internal/provider"
)

// Headers of every answer that say who gave it.
const (
	headerOrigin   = "X-Tba-Origin"
	headerDecision = "X-Tba-Decision"

	originArbiter  = "arbiter"
	originUpstream = "upstream"
)

const (
	// longestHint is the longest retry-after that all SDKs wait for: above it some ignore it and hammer, some sleep for hours.
	longestHint = 60 * time.Second
	// clearsSoon is the longest wait that is still worth a hint; from here to longestHint the SDK comes back a second early and waits here.
	clearsSoon = 61 * time.Second
	// shortestHint keeps an SDK that believes retry-after-ms from a busy loop.
	shortestHint = 250 * time.Millisecond
)

// refusal is an answer of the gateway's own: why the call does not go up, in the terms of HTTP. The dialect of the path words it.
type refusal struct {
	status  int
	kind    provider.Kind
	message string
	// retry is x-should-retry; nil sends none.
	retry *bool
	// retryAfter is 0 for no hint; never above longestHint. The law of the SDKs: false never comes with a hint.
	retryAfter time.Duration
	// detail is the tba member of the body; nil for {"reason": ...} alone.
	detail *detail
	// decision names the decision for Explain; "" for none.
	decision string
	// requestID is what the call is known by in logs; "" for none.
	requestID string
	// limits are the ceilings that refused, as of at, for the dialect's limit headers.
	limits []provider.Limit
	at     time.Time
}

var (
	yes = true
	no  = false
)

// problem is f as the dialects word it.
func (f *refusal) problem() provider.Problem {
	p := provider.Problem{Status: f.status, Kind: f.kind, Message: f.message, RequestID: f.requestID, RetryAfter: f.retryAfter}
	if f.detail != nil {
		p.Detail, _ = json.Marshal(f.detail) // strings and integers always encode
	}
	return p
}

// header writes everything of f but its body.
func (f *refusal) header(h http.Header, d *provider.Dialect) {
	h.Set("Content-Type", "application/json")
	if d.Name() == provider.HTTP { // its body is an RFC 9457 problem
		h.Set("Content-Type", "application/problem+json")
	}
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set(headerOrigin, originArbiter)
	if f.decision != "" {
		h.Set(headerDecision, f.decision)
	}
	if f.status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
	if f.retry != nil {
		h.Set("X-Should-Retry", strconv.FormatBool(*f.retry))
	}
	if f.retryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(wholeSeconds(f.retryAfter), 10))
		h.Set("Retry-After-Ms", strconv.FormatInt(int64((f.retryAfter+time.Millisecond-1)/time.Millisecond), 10))
	}
	if len(f.limits) > 0 {
		d.SetLimits(h, f.limits, f.at)
	}
}

// wholeSeconds rounds up: whoever waits it is never early.
func wholeSeconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// write answers with f in dialect d. A client that has left is nobody's fault.
func (f *refusal) write(w http.ResponseWriter, d *provider.Dialect) {
	body := d.ErrorBody(f.problem())
	f.header(w.Header(), d)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(f.status)
	_, _ = w.Write(body)
}

// response is what write sends, for a call whose answers are responses.
func (f *refusal) response(r *http.Request, d *provider.Dialect) *http.Response {
	body := d.ErrorBody(f.problem())
	resp := &http.Response{
		Status: strconv.Itoa(f.status) + " " + http.StatusText(f.status), StatusCode: f.status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Request: r,
	}
	f.header(resp.Header, d)
	resp.Header.Set("Content-Length", strconv.Itoa(len(body)))
	return resp
}
