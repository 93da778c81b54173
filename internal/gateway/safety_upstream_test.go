package gateway

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/token-budget-arbiter/tba/internal/provider"
)

// dropper answers the first request of its first connection and keeps the connection. The second request it reads whole, counts, and
// answers by closing: a provider that died after it began.
func dropper(t *testing.T) (address string, executed *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	executed = new(atomic.Int64)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				from := bufio.NewReader(c)
				for {
					r, err := http.ReadRequest(from)
					if err != nil {
						return
					}
					_, _ = io.Copy(io.Discard, r.Body)
					if executed.Add(1) == 2 {
						return
					}
					_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
				}
			}()
		}
	}()
	return l.Addr().String(), executed
}

// net/http sends a POST again by itself when it carries Idempotency-Key and its reused connection breaks. Each try of a call has a lease
// of its own, so it must not: the key does not go up.
func TestBrokenConnectionExecutesOnce(t *testing.T) {
	t.Parallel()
	openai, _ := provider.Lookup(provider.OpenAI)
	e, _, ok := openai.Endpoint(http.MethodPost, "/v1/chat/completions")
	if !ok {
		t.Fatal("no endpoint")
	}
	target, _ := openai.Target(e, "/v1/chat/completions")
	for _, header := range []string{"Idempotency-Key", "X-Idempotency-Key", "idempotency-key"} {
		address, executed := dropper(t)
		base := &url.URL{Scheme: "http", Host: address}
		up := &Upstream{Name: "a", Dialect: openai, BaseURL: base, AllowPrivate: true}
		rt := up.transport()
		var err error
		for range 2 {
			in := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", nil)
			in.Header[header] = []string{"1"}
			out, err2 := outgoing(t.Context(), in, up, e, target, "", []byte("{}"))
			if err2 != nil {
				t.Fatal(err2)
			}
			var resp *http.Response
			if resp, err = rt.RoundTrip(out); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		}
		if n := executed.Load(); err == nil || n != 2 {
			t.Errorf("%s: executed %d times, want 2, the second without an answer: %v", header, n, err)
		}
	}

	// The trap itself, so that the rule can go when it does.
	address, executed := dropper(t)
	shared := newTransport(transportOptions{AllowPrivate: true, Plain: true}).http
	for range 2 {
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address, strings.NewReader("{}"))
		r.Header.Set("Idempotency-Key", "1")
		resp, err := shared.RoundTrip(r)
		if err != nil {
			t.Fatalf("net/http no longer repeats: %v", err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	if n := executed.Load(); n != 3 {
		t.Errorf("net/http executed %d times, want 3: the trap has gone", n)
	}
}

// frames is an HTTP/2 provider on the level of frames: it answers stream by stream what answer writes when a request is complete.
func frames(t *testing.T, answer func(f *http2.Framer, stream uint32, nth int64)) (base *url.URL, roots *x509.CertPool, executed *atomic.Int64) {
	t.Helper()
	// Only its certificate is needed.
	ca := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(ca.Close)
	roots = x509.NewCertPool()
	roots.AddCert(ca.Certificate())
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: ca.TLS.Certificates, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	executed = new(atomic.Int64)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if _, err := io.ReadFull(c, make([]byte, len(http2.ClientPreface))); err != nil {
					return
				}
				f := http2.NewFramer(c, c)
				_ = f.WriteSettings()
				for {
					frame, err := f.ReadFrame()
					if err != nil {
						return
					}
					switch frame := frame.(type) {
					case *http2.SettingsFrame:
						if !frame.IsAck() {
							_ = f.WriteSettingsAck()
						}
					case *http2.DataFrame:
						if frame.StreamEnded() {
							answer(f, frame.StreamID, executed.Add(1))
						}
					}
				}
			}()
		}
	}()
	return &url.URL{Scheme: "https", Host: l.Addr().String()}, roots, executed
}

func answerOK(f *http2.Framer, stream uint32) {
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	_ = e.WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true})
	_ = f.WriteData(stream, true, []byte("{}"))
}

func TestResetStreamExecutesOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		answer   func(*http2.Framer, uint32, int64)
		executed int64
		fails    bool
	}{
		{"PROTOCOL_ERROR may come after the work", func(f *http2.Framer, stream uint32, _ int64) {
			_ = f.WriteRSTStream(stream, http2.ErrCodeProtocol)
		}, 1, true},
		{"INTERNAL_ERROR too", func(f *http2.Framer, stream uint32, _ int64) {
			_ = f.WriteRSTStream(stream, http2.ErrCodeInternal)
		}, 1, true},
		{"REFUSED_STREAM promises that nothing was done", func(f *http2.Framer, stream uint32, nth int64) {
			if nth == 1 {
				_ = f.WriteRSTStream(stream, http2.ErrCodeRefusedStream)
				return
			}
			answerOK(f, stream)
		}, 2, false},
		{"GOAWAY promises it for later streams", func(f *http2.Framer, stream uint32, nth int64) {
			if nth == 1 {
				_ = f.WriteGoAway(0, http2.ErrCodeNo, nil)
				return
			}
			answerOK(f, stream)
		}, 2, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			base, roots, executed := frames(t, c.answer)
			rt := newTransport(transportOptions{AllowPrivate: true, TLS: &tls.Config{RootCAs: roots}})
			defer rt.CloseIdleConnections()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base.String(), strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			resp, err := rt.RoundTrip(r)
			if err == nil {
				resp.Body.Close()
			}
			if n := executed.Load(); n != c.executed {
				t.Errorf("executed %d times, want %d", n, c.executed)
			}
			if (err != nil) != c.fails {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestTransportSpeaksHTTP2AndVerifies(t *testing.T) {
	t.Parallel()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) }))
	s.EnableHTTP2 = true
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	if err := send(t, newTransport(transportOptions{AllowPrivate: true}), s.URL); err == nil {
		t.Error("a certificate of nobody was taken")
	}
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	rt := newTransport(transportOptions{AllowPrivate: true, TLS: &tls.Config{RootCAs: roots}})
	defer rt.CloseIdleConnections()
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, strings.NewReader("{}"))
	resp, err := rt.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); string(body) != "HTTP/2.0" {
		t.Errorf("spoke %s", body)
	}
}

// More header than a provider needs is refused before it is held.
func TestLongAnswerHeaders(t *testing.T) {
	t.Parallel()
	address := rawServer(t, "HTTP/1.1 200 OK\r\nX-Long: "+strings.Repeat("a", 2*maxResponseHeaders)+"\r\n\r\n")
	if err := send(t, newTransport(transportOptions{AllowPrivate: true, Plain: true}), "http://"+address); err == nil {
		t.Error("passed")
	}
}

func TestOutgoing(t *testing.T) {
	t.Parallel()
	openai, _ := provider.Lookup(provider.OpenAI)
	e, _, _ := openai.Endpoint(http.MethodPost, "/v1/chat/completions")
	target, _ := openai.Target(e, "/v1/chat/completions")
	in := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader("as it came"))
	in.Header.Set("X-A", "b")
	before := in.Header.Clone()
	base, _ := url.Parse("http://h.example:1/v1")
	up := &Upstream{Name: "house", Dialect: openai, BaseURL: base}

	type key struct{}
	ctx, cancel := context.WithCancelCause(context.WithValue(t.Context(), key{}, 1))
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{})
	out, err := outgoing(traced, in, up, e, target, "", []byte("as it goes"))
	if err != nil {
		t.Fatal(err)
	}
	if out.ContentLength != 10 || out.Host != "h.example:1" || out.Method != http.MethodPost {
		t.Errorf("%d %s %s", out.ContentLength, out.Host, out.Method)
	}
	for range 2 {
		again, err := out.GetBody()
		if err != nil {
			t.Fatal(err)
		}
		if b, _ := io.ReadAll(again); string(b) != "as it goes" {
			t.Errorf("body %q", b)
		}
	}
	if httptrace.ContextClientTrace(out.Context()) != nil || out.Context().Value(key{}) != 1 {
		t.Error("the trace of others is kept, or other values are not")
	}
	why := errors.New("why")
	if cancel(why); !errors.Is(context.Cause(out.Context()), why) || out.Context().Err() == nil {
		t.Error("the call does not end with its context")
	}
	out.Header.Set("X-A", "c")
	if fmt.Sprint(in.Header) != fmt.Sprint(before) {
		t.Errorf("the agent's headers were changed: %v", in.Header)
	}
	if rest, _ := io.ReadAll(in.Body); string(rest) != "as it came" {
		t.Errorf("the agent's body was read")
	}

	up.Key = func() (string, error) { return "", errors.New("read secret from file /x: no value") }
	if _, err := outgoing(t.Context(), in, up, e, target, "", nil); err == nil || !strings.Contains(err.Error(), "house") || !strings.Contains(err.Error(), "/x") {
		t.Errorf("a key that cannot be read: %v", err)
	}
	tool, _ := provider.Lookup(provider.HTTP)
	e, _, _ = tool.Endpoint(http.MethodPost, "/search")
	target, _ = tool.Target(e, "/search")
	if _, err := outgoing(t.Context(), in, &Upstream{Name: "search", Dialect: tool}, e, target, "", nil); err == nil || !strings.Contains(err.Error(), "base_url") {
		t.Errorf("no base_url: %v", err)
	}
}
