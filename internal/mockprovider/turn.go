package mockprovider

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"
)

// endpoint is one thing that an upstream can be asked for.
type endpoint struct {
	name   string
	speaks *speaker
	get    bool // GET, else POST
	free   bool // costs nothing and is held against no limit
	// read fills in what the body says beyond model, stream and prompt, or says what this endpoint does not take.
	read func(doc gjson.Result, q *query) *fault
	// plain is the whole answer.
	plain func(t *turn) any
	// stream writes the answer event by event; nil answers whole.
	stream func(t *turn)
	// framing of streams that are not "text/event-stream" with line feeds.
	newline string
}

// turn is one answer in the making.
type turn struct {
	s        *Server
	u        *upstream
	w        http.ResponseWriter
	ctx      context.Context
	endpoint *endpoint
	arrival  arrival
	charge   charge
	q        *query
	fault    *Fault
	reply    *reply

	id      string
	created int64
	bill    Bill // of the whole answer
	made    Bill // what was generated so far
	began   time.Time
	begun   bool // the head of the answer is out
	left    bool // the call is closed in the books
	over    bool // nothing is written any more
	sent    int
	events  int64
	shown   int // pieces so far
	buf     []byte
	tail    func() // closes a stream that ends with an error, where the framing needs it
}

// capped says whether the answer was ended by the cap of the request.
func (t *turn) capped() bool { return t.bill.Output >= t.charge.cap }

// text is the whole answer.
func (t *turn) text() string { return words(t.bill.Output - t.bill.Reasoning) }

const word = "tok "

var manyWords = strings.Repeat(word, 1024)

// words are n tokens of four bytes.
func words(n int64) string {
	if n <= 1024 {
		return manyWords[:n*int64(len(word))]
	}
	return strings.Repeat(word, int(n))
}

// soFar is the bill of what was made so far.
func (t *turn) soFar() Bill {
	b := t.bill
	b.Output, b.Reasoning = t.made.Output, t.made.Reasoning
	return b
}

// usage is u, unless a fault takes it away.
func (t *turn) usage(u object) any {
	switch {
	case t.fault.is(FaultNoUsage):
		return absent{}
	case t.fault.is(FaultNullUsage) && !t.q.stream:
		return nil
	}
	return u
}

// early is the usage member of an event before the last one.
func (t *turn) early(usual any) any {
	switch {
	case t.fault.is(FaultNoUsage):
		return absent{}
	case t.fault.is(FaultNullUsage):
		return nil
	}
	return usual
}

// until waits for a moment of the upstream's own time, counted from the start of the answer. It returns false when the
// caller went.
func (t *turn) until(d time.Duration) bool {
	wait := time.Until(t.began.Add(d / time.Duration(t.s.options.Speedup)))
	if wait <= 0 {
		return t.ctx.Err() == nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-t.ctx.Done():
		return false
	}
}

// work is the time that so many tokens take.
func (t *turn) work(tokens int64) time.Duration {
	return time.Duration(float64(tokens) / float64(t.u.Speed) * float64(time.Second))
}

// gone closes the call of a caller who hung up: the prompt is billed, and the output that time allowed.
func (t *turn) gone(planned int64) {
	spent := time.Since(t.began)*time.Duration(t.s.options.Speedup) - t.u.FirstToken
	t.made.Output = min(max(int64(spent.Seconds()*float64(t.u.Speed)), t.made.Output), max(planned-1, t.made.Output))
	t.made.Reasoning = min(t.made.Output, t.bill.Reasoning)
	t.leave(statusClientGone, false)
	t.over = true
}

// leave closes the call in the books with what was made so far.
func (t *turn) leave(status int, broken bool) {
	if t.left {
		return
	}
	t.left = true
	t.u.leave(t.arrival, status, t.soFar(), broken)
}

// finished closes the call when all is made. The slot is free before the answer's last bytes are written: who has read
// them may send the next call at once. A call that will be cut is closed by the cut.
func (t *turn) finished() {
	t.made = t.bill
	if !t.fault.is(FaultCut) {
		t.leave(http.StatusOK, false)
	}
}

// whole waits for the whole answer and writes it.
func (t *turn) whole() {
	if !t.until(t.u.FirstToken + t.work(t.bill.Output)) {
		t.gone(t.bill.Output)
		return
	}
	stalls := t.fault.is(FaultStall)
	if !stalls {
		t.finished()
	}
	if status := t.fault.zeroHits(); status > http.StatusOK {
		t.head("application/json")
		t.w.WriteHeader(status)
		if status != http.StatusNoContent {
			t.write([]byte(`{"error":"nothing found"}`))
		}
		return
	}
	body := append(appendJSON(nil, t.endpoint.plain(t)), '\n')
	t.head("application/json")
	t.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	t.w.WriteHeader(http.StatusOK)
	if stalls {
		t.made = t.bill
		t.write(body[:len(body)/2])
		t.flush()
		<-t.ctx.Done()
		t.leave(statusClientGone, true)
		return
	}
	t.write(body)
	t.end()
}

func (t *turn) head(contentType string) {
	t.endpoint.speaks.limits(t.w.Header(), t.arrival.limits)
	t.reply.identify()
	t.w.Header().Set("Content-Type", contentType)
}
