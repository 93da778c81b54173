package main

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/token-budget-arbiter/tba/internal/config"
	"github.com/token-budget-arbiter/tba/internal/identity"
	"github.com/token-budget-arbiter/tba/internal/rpc"
)

// ports are the bound addresses. A sidecar has no gRPC.
type ports struct {
	http, grpc, ops net.Listener
	file            string // of the addresses, "" for none
}

// addresses is the file that --addr-file names.
type addresses struct {
	HTTP string `json:"http"`
	GRPC string `json:"grpc,omitempty"`
	Ops  string `json:"ops"`
}

// bind takes the ports first of all: a taken one must not cost a long replay before it is noticed.
func bind(l config.Listen, keys *identity.Keyring) (*ports, error) {
	p := &ports{file: l.AddrFile}
	return p, p.take(func(bound net.Addr, flag string) error { return identity.CheckBind(bound, keys, flag) },
		wanted{&p.ops, l.Ops, "--listen-ops"}, wanted{&p.http, l.HTTP, "--listen-http"}, wanted{&p.grpc, l.GRPC, "--listen-grpc"})
}

// wanted is a port to take.
type wanted struct {
	to         *net.Listener
	addr, flag string
}

// take binds the ports and announces them, or takes none. allowed judges the address that was bound: a name may mean any.
func (p *ports) take(allowed func(bound net.Addr, flag string) error, list ...wanted) error {
	for _, x := range list {
		got, err := net.Listen("tcp", x.addr)
		if err == nil {
			*x.to = got
			if err = allowed(got.Addr(), x.flag); err == nil {
				continue
			}
			p.close()
			return fail(exitConfig, "tba config explain auth.keys", "%w", err)
		}
		p.close()
		next := "correct " + x.flag + " (tba config explain listen)"
		if errors.Is(err, syscall.EADDRINUSE) {
			next = "another program, or another tba, has that port: stop it, or name another: " + x.flag + " 127.0.0.1:0 takes a free one"
		} else if errors.Is(err, syscall.EACCES) {
			next = "ports below 1024 are the system's: name a higher one by " + x.flag
		}
		return fail(exitFailure, next, "%s %s: %w", x.flag, x.addr, err)
	}
	if err := p.announce(); err != nil {
		p.close()
		return err
	}
	return nil
}

func (p *ports) addresses() addresses {
	at := addresses{HTTP: p.http.Addr().String(), Ops: p.ops.Addr().String()}
	if p.grpc != nil {
		at.GRPC = p.grpc.Addr().String()
	}
	return at
}

// newHTTP is the server of the HTTP port. cert is nil for plain HTTP.
func newHTTP(h http.Handler, cert *tls.Config, log *slog.Logger) *http.Server {
	s := rpc.NewHTTPServer(h)
	s.TLSConfig = cert
	s.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelDebug)
	return s
}

// serveHTTP serves until the listener closes; what else ends it goes to failed.
func serveHTTP(s *http.Server, l net.Listener, failed chan<- error) {
	serve := func() error { return s.Serve(l) }
	if s.TLSConfig != nil {
		serve = func() error { return s.ServeTLS(l, "", "") }
	}
	if err := serve(); !errors.Is(err, http.ErrServerClosed) {
		failed <- fmt.Errorf("serve HTTP on %s: %w", l.Addr(), err)
	}
}

// local reports whether nobody beyond this machine can reach any of them.
func (p *ports) local() bool {
	return identity.IsLoopback(p.http.Addr()) && identity.IsLoopback(p.grpc.Addr()) && identity.IsLoopback(p.ops.Addr())
}

// announce writes the address file. It is there as soon as the ports are; /readyz says when the server is ready.
func (p *ports) announce() error {
	if p.file == "" {
		return nil
	}
	b, err := json.Marshal(p.addresses())
	if err == nil {
		err = replaceFile(p.file, append(b, '\n'), 0o644)
	}
	if err != nil {
		return fail(exitFailure, "name a file in a folder that can be written: --addr-file FILE", "--addr-file: %w", err)
	}
	return nil
}

// close gives the ports back, and takes the address file away: it would name ports of somebody else.
func (p *ports) close() {
	for _, l := range []net.Listener{p.http, p.grpc, p.ops} {
		if l != nil {
			l.Close()
		}
	}
	if p.file != "" && p.http != nil {
		_ = os.Remove(p.file) // it may be gone already
	}
}

// certificate serves the certificate of the files and reads them again when they change.
type certificate struct {
	cert, key string

	mu      sync.Mutex
	loaded  *tls.Certificate
	changed time.Time // of the files when they were read
	looked  time.Time
}

// serverTLS is nil without a certificate.
func serverTLS(t config.TLS) (*tls.Config, error) {
	if t.Cert == "" {
		return nil, nil
	}
	c := &certificate{cert: t.Cert, key: t.Key}
	if _, err := c.get(nil); err != nil {
		return nil, fail(exitConfig, "tba config explain tls", "tls: %w", err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: c.get}, nil
}

// get keeps the old certificate while new files are not there, or not a pair, yet.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.loaded != nil && time.Since(c.looked) < time.Second {
		return c.loaded, nil
	}
	c.looked = time.Now()
	newest := newest(c.cert, c.key)
	if c.loaded != nil && newest.Equal(c.changed) {
		return c.loaded, nil
	}
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		if c.loaded != nil {
			return c.loaded, nil
		}
		return nil, fmt.Errorf("load certificate: %w", err)
	}
	c.loaded, c.changed = &pair, newest
	return c.loaded, nil
}

func newest(paths ...string) (t time.Time) {
	for _, p := range paths {
		if st, err := os.Stat(p); err == nil && st.ModTime().After(t) {
			t = st.ModTime()
		}
	}
	return t
}
