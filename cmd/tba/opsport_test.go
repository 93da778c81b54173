package main

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestProfilesStayOnThisMachine: with keys the ops port may be open to others, who get health and metrics alone.
func TestProfilesStayOnThisMachine(t *testing.T) {
	t.Parallel()
	o := newOpsPort(slog.New(slog.DiscardHandler))
	t.Cleanup(o.close)
	for remote, want := range map[string]int{
		"192.0.2.1:5": http.StatusForbidden, "[2001:db8::1]:5": http.StatusForbidden, "@": http.StatusForbidden, "": http.StatusForbidden,
		"127.0.0.1:5": http.StatusOK, "[::1]:5": http.StatusOK, "[::ffff:127.0.0.1]:5": http.StatusOK,
	} {
		for path, want := range map[string]int{"/debug/pprof/cmdline": want, "/debug/pprof/": want, "/livez": http.StatusOK, "/metrics": http.StatusOK} {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
			r.RemoteAddr = remote
			w := httptest.NewRecorder()
			o.http.Handler.ServeHTTP(w, r)
			if w.Code != want {
				t.Errorf("%s from %q: %d, want %d", path, remote, w.Code, want)
			}
		}
	}
}
