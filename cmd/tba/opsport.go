package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/token-budget-arbiter/tba/internal/ops"
)

// opsPort serves health, metrics and profiles from before the journal is read until after the last lease.
type opsPort struct {
	*ops.Server
	http    *http.Server
	gateway *ops.Gateway
}

func newOpsPort(log *slog.Logger) *opsPort {
	o := &opsPort{Server: ops.New(build().Version, log)}
	o.gateway = o.Gateway()
	o.http = ops.NewHTTPServer(sameMachine(o.Handler()))
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

// sameMachine keeps profiles and the command line from other machines, wherever the port listens: the port knows no keys,
// since neither a prober nor Prometheus should need one.
func sameMachine(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/debug/") && !loopbackPeer(r.RemoteAddr) {
			http.Error(w, "profiles are served to this machine only: ask 127.0.0.1 there, through ssh -L for instance", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func loopbackPeer(remote string) bool {
	at, err := netip.ParseAddrPort(remote)
	return err == nil && at.Addr().Unmap().IsLoopback()
}
