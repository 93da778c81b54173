package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/token-budget-arbiter/tba/internal/engine"
	"github.com/token-budget-arbiter/tba/internal/identity"
)

// opsPort serves health from before the journal is read until after the last lease.
type opsPort struct {
	server *http.Server
	check  atomic.Pointer[func() error]
}

func newOpsPort(log *slog.Logger) *opsPort {
	o := &opsPort{}
	o.ready(func() error { return errors.New("starting: the journal is read") })
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := (*o.check.Load())(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	o.server = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	return o
}

func (o *opsPort) serve(l net.Listener, failed chan<- error) {
	go func() {
		if err := o.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			failed <- fmt.Errorf("serve ops on %s: %w", l.Addr(), err)
		}
	}()
}

func (o *opsPort) ready(check func() error) { o.check.Store(&check) }
func (o *opsPort) drain()                   { o.ready(func() error { return errors.New("draining") }) }
func (o *opsPort) hooks() engine.Hooks      { return engine.Hooks{} }
func (o *opsPort) reloaded(error)           {}
func (o *opsPort) close()                   { o.server.Close() }

func isLocal(l net.Listener) bool { return identity.IsLoopback(l.Addr()) }
