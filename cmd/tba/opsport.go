package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"

	"github.com/token-budget-arbiter/tba/internal/identity"
	"github.com/token-budget-arbiter/tba/internal/ops"
)

// opsPort serves health, metrics and profiles from before the journal is read until after the last lease.
type opsPort struct {
	*ops.Server
	http *http.Server
}

func newOpsPort(log *slog.Logger) *opsPort {
	o := &opsPort{Server: ops.New(build().Version, log)}
	o.http = ops.NewHTTPServer(o.Handler())
	o.http.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelDebug)
	return o
}

func (o *opsPort) serve(l net.Listener, failed chan<- error) {
	go func() {
		if err := o.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			failed <- fmt.Errorf("serve ops on %s: %w", l.Addr(), err)
		}
	}()
}

func (o *opsPort) close() {
	o.Close()
	o.http.Close()
}

func isLocal(l net.Listener) bool { return identity.IsLoopback(l.Addr()) }
