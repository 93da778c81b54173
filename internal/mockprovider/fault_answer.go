package mockprovider

import (
	"fmt"
	"net"
	"net/http"

	"github.com/token-budget-arbiter/tba/internal/provider"
)

// fail answers with a fault that bills nothing, and books its status.
func (c *calling) fail(a arrival, model string) {
	if c.fault.is(FaultReset) {
		c.u.fails(a, 0)
		c.reset()
	}
	c.endpoint.speaks.limits(c.w.Header(), a.limits)
	// The status is in the books before the caller can read it.
	w := &lateWriter{ResponseWriter: c.w, before: func(status int) { c.u.fails(a, status) }}
	c.reply.w = w
	c.answerFault(model)
}

// lateWriter tells the status before it goes out.
type lateWriter struct {
	http.ResponseWriter
	before func(status int)
}

func (w *lateWriter) WriteHeader(status int) {
	w.before(status)
	w.ResponseWriter.WriteHeader(status)
}

// answerFault writes what the fault answers.
func (c *calling) answerFault(model string) {
	f, p := c.fault, c.reply
	h := p.w.Header()
	wait := f.wait()
	switch f.Kind {
	case FaultReset:
		c.reset()
	case FaultThrottle:
		p.write(http.StatusTooManyRequests, p.speaks.throttled(h, p.id("req_"), model, refusal{wait: wait}))
	case FaultRamp, FaultExhausted, FaultTooLarge, FaultOverloaded:
		if wait > 0 && c.u.Dialect != provider.Gemini {
			h.Set("Retry-After", seconds(wait))
		}
		status, body := p.speaks.refuse(p.id("req_"), model, f.Kind)
		p.write(status, body)
	case FaultHTML:
		h.Set("Content-Type", "text/html")
		p.w.WriteHeader(f.n(0))
		_, _ = fmt.Fprintf(p.w, "<html>\r\n<head><title>%d %s</title></head>\r\n<body><center><h1>%[1]d %[2]s</h1></center></body>\r\n</html>\r\n", f.n(0), statusText(f.n(0)))
	case FaultEmpty:
		h.Set("Content-Length", "0")
		p.w.WriteHeader(f.n(0))
	case FaultRedirect:
		h.Set("Location", "http://169.254.169.254/latest/meta-data/")
		p.w.WriteHeader(f.n(0))
	case FaultErrorBody, FaultErrorFirst:
		_, body := p.speaks.fault(p.id("req_"), fault{status: 502, message: statusText(502)})
		p.write(http.StatusOK, body)
	default: // status and early
		if wait > 0 {
			h.Set("Retry-After", seconds(wait))
		}
		if f.n(0) == http.StatusTooManyRequests {
			p.write(http.StatusTooManyRequests, p.speaks.throttled(h, p.id("req_"), model, refusal{wait: wait}))
			return
		}
		p.fault(fault{status: f.n(0)})
	}
}

// reset breaks the connection so that the caller's system is told at once.
func (c *calling) reset() {
	conn, _, err := http.NewResponseController(c.w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
	panic(http.ErrAbortHandler)
}
