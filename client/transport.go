package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Transport is an http.RoundTripper that takes a lease around each request, so
// that a provider's own client library becomes a well-behaved agent. It waits
// like [Agent.Call], and returns that method's errors when there is no lease.
//
// The lease is released when the request was never written, and when the answer
// is a 429, which the caller then gets: a transport does not repeat. Else it is
// committed when the body ends or is closed. A body that is neither read to its
// end nor closed keeps its lease.
//
// Set the fields before the first request. Safe for concurrent use.
type Transport struct {
	// Agent takes the leases. Required.
	Agent *Agent
	// Base sends the requests. nil: http.DefaultTransport.
	Base http.RoundTripper
	// Spec says what a request will need. Required. It must not read the body,
	// unless through GetBody.
	Spec func(*http.Request) CallSpec
	// Direct points a copy of the request to where the lease is for: its URL, its
	// key. nil: requests go where they point, and a lease for another provider
	// than the one that Spec names is given back with an error.
	Direct func(*http.Request, *Lease) error
	// Usage says what a call has used, at the end of its body, when the trailers
	// are there; what the body says is for the caller to catch on its way. nil,
	// or a zero Usage: the lease is settled at its hold, as an estimate.
	Usage func(*http.Response) Usage
}

// RoundTrip sends r under a lease.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.Agent == nil || t.Spec == nil {
		closeBody(r)
		return nil, errors.New("lease transport: Agent and Spec are required")
	}
	a, spec := t.Agent, t.Spec(r)
	a.sums.calls.Add(1)
	waiting, cancel := a.waiting(r.Context(), spec)
	lease, err := a.obtain(waiting, spec, a.request(spec), 0)
	cancel()
	if err != nil {
		closeBody(r)
		return nil, err
	}
	x := &trip{transport: t, lease: lease, start: time.Now()}
	ctx, end := context.WithCancelCause(r.Context())
	x.cancel = func() { end(context.Canceled) }
	x.unbind = context.AfterFunc(lease.Context(), func() { end(context.Cause(lease.Context())) })
	x.ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn:          func(string) { x.traced.Store(true) },
		WroteHeaderField: func(string, []string) { x.wrote.Store(true) },
		WroteHeaders:     func() { x.wrote.Store(true) },
	})
	return x.send(r, spec)
}

func closeBody(r *http.Request) {
	if r.Body != nil {
		r.Body.Close()
	}
}

// trip is one request under its lease.
type trip struct {
	transport *Transport
	lease     *Lease
	ctx       context.Context
	cancel    func()
	unbind    func() bool // the lease ends ctx no more
	start     time.Time

	// A base that tells nothing of its connections must be taken to have sent.
	traced, wrote atomic.Bool

	response *http.Response
	report   Report
	once     sync.Once
}

func (x *trip) send(r *http.Request, spec CallSpec) (*http.Response, error) {
	out := r.Clone(x.ctx)
	if err := x.direct(out, spec); err != nil {
		closeBody(r)
		x.release(err, OutcomeNotSent, nil)
		x.cancel()
		return nil, fmt.Errorf("lease transport: %w", err)
	}
	base := x.transport.Base
	if base == nil {
		base = http.DefaultTransport
	}
	returned := false
	defer func() {
		if !returned { // the base panicked
			x.finish(OutcomeError)
		}
	}()
	resp, err := base.RoundTrip(out)
	returned = true
	if err != nil {
		return nil, x.failed(err)
	}
	x.response = resp
	x.report = Report{FirstByte: time.Since(x.start), Provider: signalOf(resp)}
	if resp.StatusCode == http.StatusTooManyRequests {
		x.release(errors.New(resp.Status), OutcomeThrottled, x.report.Provider)
	}
	switch body := resp.Body.(type) {
	case io.ReadWriteCloser: // a switched protocol
		resp.Body = struct {
			*leasedBody
			io.Writer
		}{&leasedBody{ReadCloser: body, x: x}, body}
	default:
		resp.Body = &leasedBody{ReadCloser: body, x: x}
	}
	if resp.ContentLength == 0 && resp.StatusCode != http.StatusSwitchingProtocols {
		x.finish(x.outcome(nil))
	}
	return resp, nil
}

func (x *trip) direct(out *http.Request, spec CallSpec) error {
	if x.transport.Direct != nil {
		return x.transport.Direct(out, x.lease)
	}
	if spec.Provider != "" && spec.Provider != x.lease.Provider() {
		return fmt.Errorf("the lease is for provider %s, the request for %s: set Direct to follow the lease", x.lease.Provider(), spec.Provider)
	}
	return nil
}

// failed ends the lease of a request without an answer.
func (x *trip) failed(err error) error {
	if x.traced.Load() && !x.wrote.Load() {
		x.release(err, OutcomeNotSent, nil)
	} else {
		x.finish(x.outcome(err))
	}
	x.cancel()
	return x.explain(err)
}

// explain names the end of the lease, where err only speaks of a cancelled context.
func (x *trip) explain(err error) error {
	cause := context.Cause(x.ctx)
	if !errors.Is(err, cause) && (errors.As(cause, new(*RevokedError)) || errors.As(cause, new(*LostError))) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

func (x *trip) outcome(err error) Outcome {
	if err == nil && x.response.StatusCode >= 500 {
		return OutcomeError
	}
	o, _ := verdict(x.ctx, err) // by the end of ctx: err may be any cause of it
	return o
}

func (x *trip) release(why error, o Outcome, p *ProviderSignal) {
	x.once.Do(func() {
		x.unbind() // the body is read after the lease has ended
		x.transport.Agent.giveBack(x.ctx, x.lease, why, o, p)
	})
}

// finish commits in the background: the end of a body should not wait for it.
func (x *trip) finish(o Outcome) {
	x.once.Do(func() {
		x.unbind()
		a, r := x.transport.Agent, x.report
		r.Outcome, r.Latency = o, time.Since(x.start)
		if x.response != nil && x.transport.Usage != nil {
			r.Usage = x.transport.Usage(x.response)
		}
		a.sums.outcome(o)
		x.lease.CommitLater(r, func(got Receipt, err error) { a.spent(x.lease, r, got, err) })
	})
}

// leasedBody ends the lease with the body.
type leasedBody struct {
	io.ReadCloser
	x *trip
}

func (b *leasedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	switch {
	case err == nil:
	case errors.Is(err, io.EOF):
		b.x.finish(b.x.outcome(nil))
	default:
		err = b.x.explain(err)
		b.x.finish(b.x.outcome(err))
	}
	return n, err
}

func (b *leasedBody) Close() error {
	err := b.ReadCloser.Close()
	b.x.finish(b.x.outcome(b.x.ctx.Err())) // who closes after the end of ctx has given up
	b.x.cancel()
	return err
}

// signalOf reads what an answer says about limits.
func signalOf(resp *http.Response) *ProviderSignal {
	const most = 64
	p := &ProviderSignal{Status: resp.StatusCode, RetryAfter: retryAfter(resp.Header.Get("Retry-After"))}
	for name, values := range resp.Header {
		name = strings.ToLower(name)
		if len(values) == 0 || len(p.Headers) == most || !strings.Contains(name, "ratelimit") && name != "retry-after" {
			continue
		}
		if p.Headers == nil {
			p.Headers = map[string]string{}
		}
		p.Headers[name] = values[0]
	}
	return p
}

// retryAfter reads seconds or a date (RFC 9110, 10.2.3). 0: neither.
func retryAfter(v string) time.Duration {
	if s, err := strconv.ParseInt(v, 10, 32); err == nil {
		return time.Duration(max(s, 0)) * time.Second
	}
	if at, err := http.ParseTime(v); err == nil {
		return max(time.Until(at), 0)
	}
	return 0
}
