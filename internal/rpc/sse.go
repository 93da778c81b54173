package rpc

import (
	"fmt"
	"net/http"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/engine"
	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
	"github.com/token-budget-arbiter/tba/internal/identity"
)

// serveSSE is backpressure as Server-Sent Events: GET /api/v1/backpressure?agent_id=..&agent_class=..&pool=..&min_interval_ms=..
// Each event is named "backpressure", its id is the sequence, its data the signal as JSON on one line. The signal repeats every 5 s, which is
// the heartbeat too. Nothing is lost by a reconnect: the first event tells how things stand.
func (s *Server) serveSSE(w http.ResponseWriter, r *http.Request) {
	c, err := httpCaller(r.Context(), identity.ActionListen)
	if err != nil {
		writeProblem(w, r, err)
		return
	}
	m := new(tbav1.BackpressureSubscription)
	if err := fromQuery(m.ProtoReflect(), r.URL.Query()); err != nil {
		writeProblem(w, r, err)
		return
	}
	watch, pool, err := s.subscribe(m, c)
	if err != nil {
		writeProblem(w, r, err)
		return
	}
	defer watch.Close()
	flush, ok := w.(http.Flusher)
	if !ok {
		writeProblem(w, r, arbiter.Errorf(arbiter.CodeUnavailable, "internal", "this connection cannot stream"))
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // a proxy that buffers would hold the events back
	w.WriteHeader(http.StatusOK)
	var buf []byte
	_ = s.follow(r.Context(), watch, time.Duration(m.GetMinIntervalMs())*time.Millisecond, func(p *engine.Pressure) error {
		data, err := toJSON.Marshal(s.signal(pool, p).message)
		if err != nil {
			return err
		}
		buf = fmt.Appendf(buf[:0], "event: backpressure\nid: %d\ndata: %s\n\n", p.Sequence, data)
		if _, err := w.Write(buf); err != nil {
			return err
		}
		flush.Flush()
		return nil
	}) // the stream ends with the client, the server, or a write that stalls: nobody is left to be told
}
