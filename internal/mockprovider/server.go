package mockprovider

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// Server is a set of upstreams behind one handler. Its methods may be called from any number of goroutines.
type Server struct {
	options Options
	list    []*upstream
	byName  map[string]*upstream
	http    *http.Server
	addr    net.Addr

	mu       sync.Mutex
	asked    map[string]int64 // calls by the value of their fault header
	contexts map[string]int64 // tokens of the conversations that ended with a response, by its id
}

// New makes the upstreams; scripted times and reports count from this moment. The error names every option that is
// wrong.
func New(o Options) (*Server, error) {
	o, err := o.settle()
	if err != nil {
		return nil, fmt.Errorf("set up mock providers: %w", err)
	}
	s := &Server{options: o, byName: map[string]*upstream{}, asked: map[string]int64{}, contexts: map[string]int64{}}
	began := time.Now()
	for i := range o.Upstreams {
		opt := o.Upstreams[i]
		u := &upstream{
			Upstream: opt, api: apis[opt.Dialect], began: began, keep: o.KeepCalls,
			gate: newGate(&opt, o.Window), watch: newWatch(&opt, o.Window),
			report: Report{Name: opt.Name, Dialect: opt.Dialect},
		}
		u.setFaults(opt.Faults)
		if opt.Instant {
			u.instant = newInstant(s, u)
		}
		s.list = append(s.list, u)
		s.byName[opt.Name] = u
	}
	return s, nil
}

// Handler serves every upstream under /NAME.
func (s *Server) Handler() http.Handler { return http.HandlerFunc(s.serve) }

// Start listens on addr (":0" takes a free port) and serves until Close.
func (s *Server) Start(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("listen for mock providers: %w", err)
	}
	s.addr = l.Addr()
	s.http = &http.Server{Handler: s.Handler(), ReadHeaderTimeout: 10 * time.Second}
	go func() {
		// After Close nobody is there to tell; before it, Serve only ends when the listener breaks, and callers see that.
		_ = s.http.Serve(l)
	}()
	return nil
}

// URL is the base of one upstream, to which the dialect's paths are added; "" before Start.
func (s *Server) URL(name string) string {
	if s.addr == nil {
		return ""
	}
	return "http://" + s.addr.String() + "/" + name
}

// Close stops listening and waits for running calls until ctx ends. It does nothing before Start.
func (s *Server) Close(ctx context.Context) error {
	if s.http == nil {
		return nil
	}
	if err := s.http.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("stop mock providers: %w", err), s.http.Close())
	}
	return nil
}

// maxContexts bounds the conversations that are remembered; then all are forgotten.
const maxContexts = 10_000

// conversation is the tokens of the turns that led to a response, which a request that goes on from it pays again.
func (s *Server) conversation(id string) int64 {
	if id == "" {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.contexts[id]
}

func (s *Server) remember(id string, tokens int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.contexts) >= maxContexts {
		clear(s.contexts)
	}
	s.contexts[id] = tokens
}
