package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"

	"github.com/token-budget-arbiter/tba/internal/provider"
)

// Upstream is where a provider is and how to reach it. Immutable, for any number of goroutines.
type Upstream struct {
	// Name is the provider's name in the file. Dialect is what it speaks.
	Name    string
	Dialect *provider.Dialect
	// BaseURL is what one would give to the provider's own SDK; nil is the provider's own address.
	BaseURL *url.URL
	// AllowPrivate permits addresses of this host and of private networks. Instance metadata stays out of reach.
	AllowPrivate bool
	// Key reads the credential, "" for none: then nothing is sent in its slot. Nil is none. Its error must not hold the value.
	Key func() (string, error)
	// HeaderTimeout bounds the wait from the last byte of the request to the first of the answer; 0 is ten minutes, what the
	// official SDKs wait. An answer that is not streamed arrives only when it is whole.
	HeaderTimeout time.Duration

	last atomic.Pointer[destination]
}

// The transport's sizes. A call holds its connection for as long as the model writes, so the pool is for hundreds of them;
// over HTTP/2 they share a few.
const (
	dialTimeout        = 5 * time.Second
	handshakeTimeout   = 10 * time.Second
	headerTimeout      = 10 * time.Minute
	idlePerHost        = 512
	maxResponseHeaders = 256 << 10
	// Servers in Python and Node, which is what a local model usually sits behind, close an idle connection after 5 s. A POST
	// that meets the closing is not repeated (it may have run), so ours are closed first. Providers keep theirs for minutes.
	idlePlain = 4 * time.Second
	idleTLS   = 90 * time.Second
	// A dead HTTP/2 connection would otherwise hold all its calls until their deadlines: a model may think for minutes in silence.
	pingAfter = 30 * time.Second
	pingWait  = 15 * time.Second
)

// transportOptions are what differs between the transports of two upstreams.
type transportOptions struct {
	AllowPrivate  bool
	Plain         bool          // http, not https
	HeaderTimeout time.Duration // 0: headerTimeout
	TLS           *tls.Config   // nil: the system's roots
	Resolver      *net.Resolver // nil: the system's
}

// transport sends calls to one upstream. Each call goes out at most once: a repeat is the caller's decision, because each has its
// own lease. The one exception are calls of which it is certain that the provider did not begin with them (a connection that was
// closed before a byte was written, an HTTP/2 stream that was refused or that a GOAWAY excludes).
//
// No proxy is used, whatever the environment says: the check of the address would be that of the proxy.
// Redirects are not followed: see usable. Answers are decoded: see decodeResponse. Trailers are dropped.
type transport struct{ http *http.Transport }

func newTransport(o transportOptions) *transport {
	idle := idleTLS
	if o.Plain {
		idle = idlePlain
	}
	if o.HeaderTimeout <= 0 {
		o.HeaderTimeout = headerTimeout
	}
	config := &tls.Config{}
	if o.TLS != nil {
		config = o.TLS.Clone()
	}
	config.MinVersion = max(config.MinVersion, tls.VersionTLS12)
	config.ClientSessionCache = tls.NewLRUClientSessionCache(64)
	dialer := newDialer(o.AllowPrivate, dialTimeout)
	dialer.Resolver = o.Resolver
	t := &transport{&http.Transport{
		DialContext:            dialer.DialContext,
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    handshakeTimeout,
		DisableCompression:     true,
		WriteBufferSize:        2 << 10, // headers and a short prompt in one write; a call holds it while its answer streams
		MaxIdleConns:           2 * idlePerHost,
		MaxIdleConnsPerHost:    idlePerHost,
		IdleConnTimeout:        idle,
		ResponseHeaderTimeout:  o.HeaderTimeout,
		MaxResponseHeaderBytes: maxResponseHeaders,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingWait},
	}}
	// Not the HTTP/2 of net/http: after PROTOCOL_ERROR, which may come when the work is done, that one sends a call up to seven times
	// more (Go 1.26). Only a transport that speaks HTTP/2 already is refused.
	_ = http2.ConfigureTransport(t.http) //nolint:staticcheck // deprecated in favour of the one of net/http
	return t
}

// transport makes the transport for up.
func (up *Upstream) transport() *transport {
	return newTransport(transportOptions{
		AllowPrivate: up.AllowPrivate, Plain: up.BaseURL != nil && up.BaseURL.Scheme == "http", HeaderTimeout: up.HeaderTimeout,
	})
}

// CloseIdleConnections drops the connections that no call uses.
func (t *transport) CloseIdleConnections() { t.http.CloseIdleConnections() }

// RoundTrip sends one call. An error that wraps errAddress means that nothing was sent.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.http.RoundTrip(r)
	if err != nil {
		if strings.Contains(err.Error(), "malformed") {
			err = badAnswer{err}
		}
		return nil, err
	}
	// net/http writes the trailers into its own response, at the end of the body. Of this copy nobody sees them.
	answer := *resp
	answer.Trailer = nil
	if fault := usable(&answer); fault != "" {
		refuseAnswer(&answer, fault)
	} else if err := decodeResponse(&answer); err != nil {
		refuseAnswer(&answer, err.Error())
	}
	withoutKey(&answer, provider.Credential(r.Header, ""))
	return &answer, nil
}

// badAnswer is an error of net/http that quotes what the provider sent. That may be anything, and errors are logged.
type badAnswer struct{ error }

func (badAnswer) Error() string   { return "the provider's answer is not HTTP" }
func (b badAnswer) Unwrap() error { return b.error }

// withoutKey takes the provider's key out of an answer that repeats it, as some servers do to say which one was wrong: it is nothing that
// an agent or a log may see. Bodies are looked through when they are errors; those are read to maxErrorBody.
func withoutKey(resp *http.Response, key string) {
	if len(key) < minEcho {
		return
	}
	for name, values := range resp.Header {
		if slices.ContainsFunc(values, func(v string) bool { return strings.Contains(v, key) }) {
			delete(resp.Header, name)
		}
	}
	if resp.StatusCode < http.StatusBadRequest || resp.Body == nil {
		return
	}
	resp.Body = &keylessBody{from: resp.Body, key: key}
	resp.ContentLength = -1
	resp.Header.Del("Content-Length")
}

// keylessBody is an error's body without the key. It is read whole with the first Read, and not before: it may be long in coming.
type keylessBody struct {
	from io.ReadCloser
	key  string
	rest io.Reader // nil before the first Read
}

func (b *keylessBody) Read(p []byte) (int, error) {
	if b.rest == nil {
		body, err := io.ReadAll(io.LimitReader(b.from, maxErrorBody))
		if err == nil {
			err = io.EOF
		}
		b.rest = io.MultiReader(bytes.NewReader(bytes.ReplaceAll(body, []byte(b.key), []byte("***"))), ends{err})
	}
	return b.rest.Read(p)
}

func (b *keylessBody) Close() error { return b.from.Close() }

// ends is a reader that has come to its end, a good one or a bad one.
type ends struct{ err error }

func (e ends) Read([]byte) (int, error) { return 0, e.err }

// usable says what is wrong with an answer that must not reach the agent as it is; "" for nothing.
func usable(resp *http.Response) string {
	switch code := resp.StatusCode; {
	case code >= 300 && code < 400:
		// An SDK that followed it would carry its credential along; if we followed it, the provider's.
		return fmt.Sprintf("the provider answered with a redirect (%d), which is not followed", code)
	case code < 200 || code > 999:
		return fmt.Sprintf("the provider answered with status %d, which ends no call", code)
	}
	return ""
}

// refuseAnswer turns an upstream's answer into an error answer, 502, that every SDK can read and that has nothing of the
// original in it. It still comes from the upstream: that is where the fault is, and where the next try should not go.
func refuseAnswer(resp *http.Response, message string) {
	if resp.Body != nil {
		resp.Body.Close() // unread: a provider that errs may also dawdle
	}
	body := answerBody(message)
	resp.StatusCode, resp.Status = http.StatusBadGateway, "502 "+http.StatusText(http.StatusBadGateway)
	resp.Header = http.Header{"Content-Type": {"application/json"}}
	resp.ContentLength, resp.TransferEncoding, resp.Uncompressed = int64(len(body)), nil, false
	resp.Body = io.NopCloser(strings.NewReader(body))
}

// answerBody has the fields that the error types of the four dialects' SDKs look for.
func answerBody(message string) string {
	quoted, _ := json.Marshal(message) // a string always can be
	return fmt.Sprintf(`{"type":"error","object":"error","message":%[1]s,"error":{"type":"api_error","code":502,"status":"UNAVAILABLE","message":%[1]s}}`, quoted)
}

// outgoing makes the request for one try at up: endpoint e served as t says, with the model and body of this try. in is the
// agent's request, of which method, headers and query are taken by the rules of headers.go; its body is not touched.
// body must not change until the call is over. Tracing of one's own is hung into the context of the result: see callContext.
// An error means that the call cannot be made at up, by the configuration or because its credential cannot be read; it never
// holds a credential.
func outgoing(ctx context.Context, in *http.Request, up *Upstream, e *provider.Endpoint, t provider.Target, model string, body []byte) (*http.Request, error) {
	to, err := up.destination(t, model)
	if err != nil {
		return nil, fmt.Errorf("call %s for %s: %w", up.Name, e.Name(), err)
	}
	key := ""
	if up.Key != nil {
		if key, err = up.Key(); err != nil {
			return nil, fmt.Errorf("call %s for %s: %w", up.Name, e.Name(), err)
		}
	}
	credential := provider.Credential(in.Header, in.URL.RawQuery)
	// Not http.NewRequest: it parses a URL, and the method has been checked by the server.
	r := (&http.Request{
		Method: in.Method, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		ContentLength: int64(len(body)), Body: http.NoBody, GetBody: func() (io.ReadCloser, error) { return http.NoBody, nil },
		Header: upHeaders(in.Header, credential),
	}).WithContext(callContext{ctx})
	if len(body) > 0 {
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		r.Body, _ = r.GetBody()
	}
	if in.URL.RawQuery == "" {
		own := *to.url // without a query nothing of it is the call's
		r.URL = &own
	} else {
		r.URL = up.Dialect.Join(to.base, t, model, upQuery(up.Dialect, in.URL.RawQuery, credential))
	}
	r.Host = r.URL.Host
	to.target.Authorize(r.Header, key)
	return r, nil
}

// destination is where the calls of one target and model go. Immutable.
type destination struct {
	asked  provider.Target // as the call named it
	model  string
	base   *url.URL
	target provider.Target // at base
	url    *url.URL        // without the query of a call
}

// destination finds where a call goes. The last one is remembered: most calls go where the call before them went.
func (up *Upstream) destination(t provider.Target, model string) (*destination, error) {
	if d := up.last.Load(); d != nil && d.asked == t && d.model == model {
		return d, nil
	}
	base := up.BaseURL
	if base == nil {
		own, err := url.Parse(up.Dialect.BaseURL())
		if err != nil || own.Host == "" {
			return nil, errNoBase
		}
		base = own
	}
	d := &destination{asked: t, model: model, base: base, target: t.At(base), url: up.Dialect.Join(base, t, model, "")}
	up.last.Store(d)
	return d, nil
}

var errNoBase = errors.New("it has no base_url")

// callContext is a context without the traces that others put into it: httputil.ReverseProxy hangs one there that hands a
// provider's 103 and its headers, uncleaned, to the agent.
type callContext struct{ context.Context }

func (c callContext) Value(key any) any {
	v := c.Context.Value(key)
	if _, ok := v.(*httptrace.ClientTrace); ok {
		return nil
	}
	return v
}
