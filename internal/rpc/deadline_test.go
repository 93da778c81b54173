package rpc

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// A stream that is silent for longer than a write may take goes on, over HTTP/1 and HTTP/2: the deadline is that of a write, not of a pause.
func TestAPauseIsNoStalledWrite(t *testing.T) {
	t.Parallel()
	for _, h2 := range []bool{false, true} {
		const within = 300 * time.Millisecond
		s := httptest.NewUnstartedServer(Deadlines(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "one ")
			_ = http.NewResponseController(w).Flush()
			pause := time.NewTimer(2 * within)
			defer pause.Stop()
			select {
			case <-pause.C:
			case <-r.Context().Done():
			}
			_, _ = io.WriteString(w, "two")
		}), time.Minute, within))
		s.EnableHTTP2 = h2
		s.StartTLS()
		resp, err := s.Client().Get(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || string(text) != "one two" || (resp.ProtoMajor == 2) != h2 {
			t.Errorf("%s: %q %v", resp.Proto, text, err)
		}
		s.Close()
	}
}
