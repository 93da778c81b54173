package gateway

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"

	"github.com/token-budget-arbiter/tba/internal/provider"
)

const (
	duplexBody  = 64 << 10
	duplexFirst = 8 << 10 // more than the transport gathers before it writes
)

// eager begins its answer before it reads the call, then says how much of the call came.
func eager(w http.ResponseWriter, r *http.Request) {
	rc := http.NewResponseController(w)
	_ = rc.EnableFullDuplex()
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, "data: begun\n")
	_ = rc.Flush()
	n, err := io.Copy(io.Discard, r.Body)
	_, _ = fmt.Fprintf(w, "data: %d %v\n", n, err)
}

// slowUp reads the first part of a body at once and the rest when gate is closed, as a transport does whose connection is slow.
type slowUp struct {
	http.RoundTripper
	gate chan struct{}
}

func (s slowUp) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Body = &gatedBody{ReadCloser: r.Body, free: duplexFirst, gate: s.gate}
	return s.RoundTripper.RoundTrip(r)
}

type gatedBody struct {
	io.ReadCloser
	free int
	gate chan struct{}
}

func (b *gatedBody) Read(p []byte) (int, error) {
	if b.free <= 0 {
		<-b.gate
		return b.ReadCloser.Read(p)
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.free)])
	b.free -= n
	return n, err
}

// answerBefore sends a call to address, opens gate when the answer has begun, and returns the answer's second line.
func answerBefore(t *testing.T, address string, gate chan struct{}) (line string, err error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, bytes.NewReader(make([]byte, duplexBody)))
	if err != nil {
		t.Fatal(err)
	}
	keeping := &http.Transport{} // a client that closes its connection after the call is spared the trap
	defer keeping.CloseIdleConnections()
	resp, err := keeping.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	from := bufio.NewReader(resp.Body)
	if first, err := from.ReadString('\n'); err != nil || first != "data: begun\n" {
		t.Fatalf("the answer did not begin: %q %v", first, err)
	}
	if gate != nil {
		close(gate)
	}
	return from.ReadString('\n')
}

// A reverse proxy that streams the call up is broken by a provider that answers before it has read the call: with the first byte of the
// answer the server takes the rest of the call away from the transport. EnableFullDuplex leaves it there. This gateway reads the whole call
// before it asks for a lease, so that nothing is left to take: it needs no cure.
func TestAnswerBeforeTheCallIsRead(t *testing.T) {
	t.Parallel()
	want := fmt.Sprintf("data: %d <nil>\n", duplexBody)
	up := httptest.NewServer(http.HandlerFunc(eager))
	t.Cleanup(up.Close)
	base, err := url.Parse(up.URL)
	if err != nil {
		t.Fatal(err)
	}
	for _, cured := range []bool{false, true} {
		gate := make(chan struct{})
		proxy := &httputil.ReverseProxy{
			Rewrite:       func(p *httputil.ProxyRequest) { p.SetURL(base) },
			Transport:     slowUp{&http.Transport{DisableKeepAlives: true}, gate},
			FlushInterval: -1,
			ErrorLog:      log.New(io.Discard, "", 0),
		}
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if cured {
				_ = http.NewResponseController(w).EnableFullDuplex()
			}
			proxy.ServeHTTP(w, r)
		}))
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
		s.Start()
		t.Cleanup(s.Close)
		line, err := answerBefore(t, s.URL, gate)
		if cured && (err != nil || line != want) {
			t.Errorf("with full duplex: %q %v", line, err)
		}
		if !cured && err == nil {
			t.Errorf("without full duplex the answer came whole: %q: the trap has gone", line)
		}
	}

	d, _ := provider.Lookup(provider.OpenAI)
	s := serveThrough(t, &Upstream{Name: "eager", Dialect: d, BaseURL: base, AllowPrivate: true}, 0)
	if line, err := answerBefore(t, s.URL+"/v1/chat/completions", nil); err != nil || line != want {
		t.Errorf("through the gateway: %q %v", line, err)
	}
}
