package rpc

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/identity"
)

// Times of the HTTP port. There is none for a whole exchange: a lease may wait an hour and a stream lasts. Each part has its own.
const (
	headerTimeout = 5 * time.Second  // from the first byte of a request to the end of its header
	bodyTimeout   = 10 * time.Second // for the rest of a request
	writeTimeout  = 10 * time.Second // for one write: a reader that stalls longer is cut off
	idleTimeout   = 2 * time.Minute
)

// HTTP returns the handler of the HTTP port: the arbiter and Admin in the Connect protocol, backpressure as Server-Sent Events
// and plain reads under /api/v1/. It limits, authenticates and bounds every request. other takes the paths that are not ours;
// nil answers them with 404.
func (s *Server) HTTP(other http.Handler) http.Handler {
	api := http.NewServeMux()
	s.mountConnect(api)
	api.HandleFunc("GET /api/v1/backpressure", s.serveSSE)
	s.mountReads(api)
	api.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeProblem(w, r, arbiter.Errorf(arbiter.CodeNotFound, "no_such_path", "%s %s is not served here: calls are POST /tba.v1.TokenBudgetArbiter/RequestLease and the like, reads GET /api/v1/status, calls to models go under /v1, /anthropic, /gemini, /tools or the name of a provider of the file", r.Method, cut(r.URL.Path)))
	})
	mux := http.NewServeMux()
	for _, prefix := range []string{"/tba.v1.TokenBudgetArbiter/", "/" + bareName + "/", "/tba.v1.Admin/", "/api/v1/"} {
		mux.Handle(prefix, s.authenticated(api))
	}
	if other == nil {
		other = api
	}
	mux.Handle("/", other)
	return s.bounded(mux)
}

// NewHTTPServer returns a server with the time and header limits of the HTTP port. A client that sends its header byte by byte is cut off
// after five seconds.
func NewHTTPServer(handler http.Handler) *http.Server {
	return &http.Server{Handler: handler, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: 32 << 10}
}

// bounded limits an address, a body and each write.
func (s *Server) bounded(next http.Handler) http.Handler {
	timed := Deadlines(next, bodyTimeout, writeTimeout)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if wait, ok := s.gate.addresses.Load().TakeHost(r.RemoteAddr); !ok {
			s.refuse(w, r, rateLimited(wait))
			return
		}
		if r.Body != nil && r.Body != http.NoBody {
			r.Body = http.MaxBytesReader(w, r.Body, maxMessage+1)
		}
		timed.ServeHTTP(w, r)
	})
}

// authenticated finds the caller and refuses what a browser was tricked into.
func (s *Server) authenticated(next http.Handler) http.Handler {
	cross := http.NewCrossOriginProtection() // POST from another origin's page: no arbiter call comes from there
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := cross.Check(r); err != nil {
			s.refuse(w, r, arbiter.Errorf(arbiter.CodePermission, "cross_origin", "origin %q: calls from a page of another origin are refused", cut(r.Header.Get("Origin"))))
			return
		}
		if s.gate.keys.Load().Empty() && !identity.LoopbackHost(r.Host) {
			// Without keys only this machine is served, but a name that an attacker's page resolves to it would reach us through the browser.
			s.refuse(w, r, arbiter.Errorf(arbiter.CodePermission, "host", "host %q: without auth.keys only localhost is answered: call 127.0.0.1, or set auth.keys", cut(r.Host)))
			return
		}
		if r.ContentLength > maxMessage {
			s.refuse(w, r, arbiter.Errorf(arbiter.CodeInvalid, "too_large", "a message of %d bytes is above the bound of %d: send less at once", r.ContentLength, maxMessage))
			return
		}
		if r.Method == http.MethodPost && !strings.HasPrefix(r.URL.Path, "/api/") && !spoken(r.Header.Get("Content-Type")) {
			writeProblem(w, r, arbiter.Errorf(arbiter.CodeInvalid, "content_type", "content-type %q is not spoken here: send JSON with the header content-type: application/json", cut(r.Header.Get("Content-Type"))))
			return
		}
		c, err := s.gate.authenticate(r.Header.Get("Authorization"), hostAddr(r.RemoteAddr))
		if err != nil {
			if err.Code == arbiter.CodeUnauthenticated {
				w.Header().Set("WWW-Authenticate", `Bearer realm="tba"`)
			}
			s.refuse(w, r, err)
			return
		}
		next.ServeHTTP(w, r.WithContext(withCaller(r.Context(), c)))
	})
}

// spoken reports whether a call's content type is one of the Connect and gRPC-Web protocols. curl -d alone sends a form.
func spoken(contentType string) bool {
	kind, _, _ := strings.Cut(strings.ToLower(contentType), ";")
	switch kind = strings.TrimSpace(kind); kind {
	case "application/json", "application/proto":
		return true
	}
	return strings.HasPrefix(kind, "application/connect+") || strings.HasPrefix(kind, "application/grpc")
}

// refuse answers in the protocol of the request.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, e *arbiter.Error) {
	if e.RetryAfter > 0 {
		w.Header().Set("Retry-After", retryAfterSeconds(e.RetryAfter))
	}
	if r.Method == http.MethodPost && s.connectErrors.IsSupported(r) {
		_ = s.connectErrors.Write(w, r, toConnect(e)) // a client that is gone cannot be told
		return
	}
	writeProblem(w, r, e)
}

// hostAddr is a remote address as net/http writes it.
func hostAddr(remote string) net.Addr {
	if ap, err := netip.ParseAddrPort(remote); err == nil {
		return net.TCPAddrFromAddrPort(ap)
	}
	return nil
}

// httpCaller is the caller that authenticated put there, when it may do a.
func httpCaller(ctx context.Context, a identity.Action) (*identity.Caller, *arbiter.Error) {
	c, ok := ctx.Value(callerKey{}).(*identity.Caller)
	if !ok {
		return nil, arbiter.Errorf(arbiter.CodeUnauthenticated, "no_credential", "authorization: nobody was authenticated")
	}
	return c, c.Allow(a)
}

func newConnectErrors() *connect.ErrorWriter { return connect.NewErrorWriter(connectOptions()...) }
