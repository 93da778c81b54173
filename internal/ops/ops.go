// Package ops is liveness, readiness, metrics, profiles.
//
// Nothing here is called while a command is decided: a scrape reads the engine's counters and the confirmed state, and events are counted
// from the pool's ring as they come. The one exception is a handful of atomic additions per journal entry, for the histogram of appends.
package ops

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/engine"
)

// Source is what the metrics are read from. *engine.Engine is one.
type Source interface {
	Pools() []string
	Stats() []engine.PoolStats
	PoolStatus(pool string) (engine.PoolStatus, error)
	Waiting(pool string) []engine.WaitingRow
	View(ctx context.Context, pool string, fn func(*arbiter.State) error) error
}

// Feed tells what happens in the pools. *engine.Engine is one.
type Feed interface {
	Events(pool string, since uint64, limit int, kinds ...arbiter.EventKind) (engine.EventPage, error)
	Follow(pool string) (<-chan struct{}, error)
}

// Server is the ops port: /livez, /readyz, /metrics and /debug/pprof/. Make one with New; it serves from before the pools are open until after they
// are closed. Safe for concurrent use.
type Server struct {
	log      *slog.Logger
	registry *prometheus.Registry
	started  time.Time
	appends  appendTimes
	reloads  reloads
	counted  counted

	ready  atomic.Pointer[func() error]
	source atomic.Pointer[watched]
	stop   context.CancelFunc
	ctx    context.Context
	wait   sync.WaitGroup
}

// watched is a source with a name, because an interface has no atomic pointer.
type watched struct{ Source }

// New returns a server that is alive and not ready. version goes into tba_build_info; log may be nil.
func New(version string, log *slog.Logger) *Server {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &Server{log: log, registry: prometheus.NewRegistry(), started: time.Now()}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.counted.init()
	s.SetReady(func() error { return errors.New("starting: the journal is read") })
	s.registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		&collector{server: s, version: version},
	)
	return s
}

// Watch reads metrics from source and counts the events of its open pools from now on. Call it once, after the pools are open.
func (s *Server) Watch(source Source, feed Feed) {
	s.source.Store(&watched{source})
	for _, pool := range source.Pools() {
		s.wait.Go(func() { s.countEvents(pool, feed) })
	}
}

// SetReady replaces what /readyz asks: nil is ready, an error says what is missing.
func (s *Server) SetReady(check func() error) { s.ready.Store(&check) }

// Hooks are for engine.Options: they measure appends.
func (s *Server) Hooks() engine.Hooks {
	return engine.Hooks{Appended: func(_ string, took time.Duration, _ int) { s.appends.observe(took) }}
}

// Reloaded counts an attempt to load the configuration file; nil is a success.
func (s *Server) Reloaded(err error) { s.reloads.count(err) }

// Close stops counting events. The handler goes on with what there is. A second Close does nothing.
func (s *Server) Close() {
	s.stop()
	s.wait.Wait()
}

// Handler serves the ops port. It has no authentication: the port belongs on loopback or behind a network policy.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { text(w, http.StatusOK, "ok\n") })
	mux.HandleFunc("GET /readyz", s.serveReady)
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelWarn), MaxRequestsInFlight: 4}))
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		text(w, http.StatusOK, "/livez\n/readyz?verbose\n/metrics\n/debug/pprof/\n")
	})
	return mux
}

// NewHTTPServer returns a server for handler with time limits: a profile may take a minute, a header may not.
func NewHTTPServer(handler http.Handler) *http.Server {
	return &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 2 * time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10}
}

// serveReady is 200 when every pool can grant, else 503 with the reasons. With ?verbose it tells each pool's state in any case.
func (s *Server) serveReady(w http.ResponseWriter, r *http.Request) {
	err := (*s.ready.Load())()
	status, word := http.StatusOK, "ok"
	if err != nil {
		status, word = http.StatusServiceUnavailable, err.Error()
	}
	var b strings.Builder
	fmt.Fprintln(&b, word)
	if r.URL.Query().Has("verbose") {
		s.describe(&b)
	}
	text(w, status, b.String())
}

// describe writes one line a pool.
func (s *Server) describe(b *strings.Builder) {
	fmt.Fprintf(b, "up for %s\n", time.Since(s.started).Round(time.Second))
	source := s.source.Load()
	if source == nil {
		return
	}
	for _, pool := range source.Pools() {
		p, err := source.PoolStatus(pool)
		if err != nil {
			continue // closed meanwhile
		}
		fmt.Fprintf(b, "pool %s: %s, journal at %d-%d, policy version %d, %d waiting", pool, p.State, p.Epoch, p.Seq, p.PolicyVersion, p.Waiting)
		if p.Message != "" {
			fmt.Fprintf(b, ": %s", p.Message)
		}
		b.WriteByte('\n')
	}
}

func text(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body)) // a prober that is gone needs no answer
}
