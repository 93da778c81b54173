package mockprovider

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// fault is an error answer that no limit caused. An empty message takes the dialect's own words for the status.
type fault struct {
	status  int
	message string
}

// speaker says what a dialect's upstream says: bodies as values for encoding/json, headers in place.
type speaker struct {
	// check finds what this provider refuses and others accept. nil takes everything.
	check func(h http.Header, body []byte) *fault
	// limits writes the limit headers.
	limits func(h http.Header, s snapshot)
	// throttled is the body of a 429; it may add headers. Wait 0 names no wait.
	throttled func(h http.Header, id, model string, r refusal) any
	// fault is the body of any other error, and the status under which this provider sends it.
	fault func(id string, f fault) (status int, body any)
	// refuse is how this provider says that it is ramped, exhausted, too large or overloaded.
	refuse func(id, model, kind string) (status int, body any)
	// streamError ends a stream that has begun.
	streamError func(t *turn)
	// idHeader carries the request id.
	idHeader string
}

// reply writes the one answer to a call.
type reply struct {
	w      http.ResponseWriter
	u      *upstream
	speaks *speaker
	number int64
}

func (p *reply) id(prefix string) string { return fmt.Sprintf("%s%s-%08d", prefix, p.u.Name, p.number) }

func (p *reply) throttled(a arrival, r refusal, model string) {
	if r.axis == slotAxis {
		r.wait = time.Second // the provider cannot know when a slot frees
	}
	p.speaks.limits(p.w.Header(), a.limits)
	p.write(http.StatusTooManyRequests, p.speaks.throttled(p.w.Header(), p.id("req_"), model, r))
}

func (p *reply) fault(f fault) {
	if f.message == "" {
		f.message = statusText(f.status)
	}
	status, body := p.speaks.fault(p.id("req_"), f)
	p.write(status, body)
}

func (p *reply) identify() {
	if p.speaks.idHeader != "" {
		p.w.Header().Set(p.speaks.idHeader, p.id("req_"))
	}
}

func (p *reply) write(status int, body any) {
	p.identify()
	p.w.Header().Set("Content-Type", "application/json")
	p.w.WriteHeader(status)
	// A failed write means that the caller is gone; the call is in the books already.
	_ = json.NewEncoder(p.w).Encode(body)
}

// seconds is d in whole seconds, rounded up: who waits that long is never early.
func seconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}

// wholeMillis rounds a wait up to the millisecond, the finest that the texts and headers show.
func wholeMillis(d time.Duration) time.Duration {
	return (d + time.Millisecond - 1) / time.Millisecond * time.Millisecond
}
