package gateway

import (
	"bytes"
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/token-budget-arbiter/tba/internal/provider"
)

// seen is one request as it reached a provider.
type seen struct {
	method, uri string
	header      http.Header
	body        string
	chunked     bool
}

// upstreamLog is a provider that remembers what reached it and answers with answer, or with a small JSON object.
type upstreamLog struct {
	*httptest.Server
	mu     sync.Mutex
	calls  []seen
	answer http.HandlerFunc
}

func newUpstreamLog(t testing.TB, answer http.HandlerFunc) *upstreamLog {
	t.Helper()
	u := &upstreamLog{answer: answer}
	u.Server = httptest.NewUnstartedServer(u)
	u.Config.ErrorLog = log.New(io.Discard, "", 0)
	u.Start()
	t.Cleanup(u.Close)
	return u
}

func (u *upstreamLog) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	u.mu.Lock()
	u.calls = append(u.calls, seen{r.Method, r.RequestURI, r.Header.Clone(), string(body), len(r.TransferEncoding) > 0})
	u.mu.Unlock()
	if u.answer != nil {
		u.answer(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"ok":true}`)
}

// take empties the log.
func (u *upstreamLog) take() []seen {
	u.mu.Lock()
	defer u.mu.Unlock()
	calls := slices.Clone(u.calls)
	u.calls = nil
	return calls
}

// upstream is u as a provider of dialect kind.
func (u *upstreamLog) upstream(t testing.TB, kind, key string) *Upstream {
	t.Helper()
	d, ok := provider.Lookup(kind)
	if !ok {
		t.Fatalf("no dialect %s", kind)
	}
	base, err := url.Parse(u.URL)
	if err != nil {
		t.Fatal(err)
	}
	return &Upstream{Name: kind, Dialect: d, BaseURL: base, AllowPrivate: true, Key: func() (string, error) { return key, nil }}
}

// through is the smallest gateway that keeps every rule of the safety files: paths, bodies, headers, transport. It leases nothing.
type through struct {
	up    *Upstream
	rt    http.RoundTripper
	limit int64
}

type throughBody struct{}

func (g *through) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, f := cleanPath(r)
	var body []byte
	if f == nil {
		body, f = readBody(w, r, g.limit, g.up.Dialect)
	}
	if f != nil {
		f.write(w, g.up.Dialect)
		return
	}
	proxy := httputil.ReverseProxy{
		Rewrite:       func(*httputil.ProxyRequest) {},
		Transport:     g,
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0),
	}
	proxy.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), throughBody{}, body)))
}

func (g *through) RoundTrip(in *http.Request) (*http.Response, error) {
	path, f := cleanPath(in)
	if f != nil {
		return f.response(in, g.up.Dialect), nil
	}
	e, model, ok := g.up.Dialect.Endpoint(in.Method, path)
	target, served := g.up.Dialect.Target(e, path)
	if !ok || !served {
		return refuseRequest(http.StatusNotFound, provider.NotFound, "path", "no such path").response(in, g.up.Dialect), nil
	}
	body, _ := in.Context().Value(throughBody{}).([]byte)
	out, err := outgoing(in.Context(), in, g.up, e, target, model, body)
	if err != nil {
		return nil, err
	}
	resp, err := g.rt.RoundTrip(out)
	if err != nil {
		return nil, err
	}
	incoming(resp.Header)
	return resp, nil
}

// serveThrough runs a gateway before up on a real listener and returns its address.
func serveThrough(t testing.TB, up *Upstream, limit int64) *httptest.Server {
	t.Helper()
	rt := up.transport()
	s := httptest.NewUnstartedServer(&through{up: up, rt: rt, limit: limit})
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Config.ReadHeaderTimeout = 5 * time.Second
	s.Config.MaxHeaderBytes = 64 << 10
	s.Start()
	t.Cleanup(func() { s.Close(); rt.CloseIdleConnections() })
	return s
}

// agent is a client without memory: nothing of one test is reused in another.
var agent = &http.Transport{DisableKeepAlives: true, DisableCompression: true}

// post sends a chat call with header to the gateway at address.
func post(t testing.TB, address string, header http.Header, body []byte) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range header {
		r.Header[k] = v
	}
	resp, err := agent.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(answer)
}
