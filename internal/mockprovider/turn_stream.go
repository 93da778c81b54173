package mockprovider

import (
	"iter"
	"net/http"
)

// streamed writes the answer as it is made.
func (t *turn) streamed() {
	if !t.until(t.u.FirstToken) {
		t.gone(t.bill.Output)
		return
	}
	contentType := "text/event-stream; charset=utf-8"
	if t.q.array {
		contentType = "application/json; charset=UTF-8"
	}
	if !t.begun {
		t.head(contentType)
		t.w.Header().Set("Cache-Control", "no-cache")
		t.w.WriteHeader(http.StatusOK)
	}
	t.endpoint.stream(t)
	t.end()
}

// end closes what a stream left open, and cuts an answer that was shorter than the bytes after which it is cut.
func (t *turn) end() {
	if t.fault.is(FaultCut) && !t.left {
		t.cut()
	}
	if !t.over {
		t.finished()
	}
}

// pieces yields the text of the answer, or the arguments of its call, as they are made. It ends early when the caller
// goes or a fault strikes; what is written after that goes nowhere.
func (t *turn) pieces() iter.Seq[string] {
	return func(yield func(string) bool) {
		text, tokens := t.text(), t.bill.Output-t.bill.Reasoning
		n := int((tokens + t.u.PieceTokens - 1) / t.u.PieceTokens)
		if t.q.tool != nil {
			text = t.q.tool.arguments
			n = min(max(n, 1), 8)
		}
		strike := -1
		if t.fault.is(FaultStall, FaultErrorMid) {
			strike = min(t.fault.n(n), n)
		}
		t.made.Output, t.made.Reasoning = 0, 0
		if t.bill.Reasoning > 0 {
			if !t.until(t.u.FirstToken + t.work(t.bill.Reasoning)) {
				t.gone(t.bill.Reasoning)
				return
			}
			t.made.Output, t.made.Reasoning = t.bill.Reasoning, t.bill.Reasoning
		}
		from, made := 0, int64(0)
		for i := range n {
			if i == strike {
				t.strike()
				return
			}
			upTo := min(int64(i+1)*t.u.PieceTokens, tokens)
			to := int(upTo) * len(word)
			if t.q.tool != nil {
				upTo, to = tokens*int64(i+1)/int64(n), len(text)*(i+1)/n
			}
			if !t.until(t.u.FirstToken + t.work(t.bill.Reasoning+upTo)) {
				t.gone(t.bill.Reasoning + upTo)
				return
			}
			t.made.Output += upTo - made
			made = upTo
			t.shown++
			if i == n-1 && strike < 0 {
				t.finished()
			}
			if !yield(text[from:to]) || t.over {
				return
			}
			from = to
		}
		if strike == n {
			t.strike()
			return
		}
		t.finished()
	}
}

// strike lets a fault in the middle of a stream happen.
func (t *turn) strike() {
	if t.fault.is(FaultStall) {
		<-t.ctx.Done()
		t.leave(statusClientGone, true)
	} else {
		t.leave(http.StatusOK, true)
		t.endpoint.speaks.streamError(t)
		if t.tail != nil {
			t.tail()
		}
	}
	t.over = true
}

// event writes one event of a stream; name may be "".
func (t *turn) event(name string, v any) {
	if t.over {
		return
	}
	nl := t.endpoint.newline
	if nl == "" {
		nl = "\n"
	}
	b := t.buf[:0]
	if t.fault.is(FaultComments) {
		b = append(append(b, ": keep-alive"...), nl+nl...)
	}
	if name != "" {
		b = append(append(append(b, "event: "...), name...), nl...)
	}
	b = append(b, "data: "...)
	b = appendJSON(b, v)
	b = append(b, nl+nl...)
	t.buf = b
	t.write(b)
	t.flush()
}

// raw writes bytes of a stream as they are.
func (t *turn) raw(text string) {
	if t.over {
		return
	}
	t.write([]byte(text))
	t.flush()
}

// number is the place of the next event in its stream.
func (t *turn) number() int64 {
	t.events++
	return t.events - 1
}

// write sends bytes until the answer is cut.
func (t *turn) write(b []byte) {
	if t.fault.is(FaultCut) && t.sent+len(b) >= t.fault.n(0) {
		_, _ = t.w.Write(b[:max(t.fault.n(0)-t.sent, 0)])
		t.cut()
	}
	t.sent += len(b)
	_, _ = t.w.Write(b) // that the caller is gone is seen by the context
}

func (t *turn) flush() { _ = http.NewResponseController(t.w).Flush() }

func (t *turn) cut() {
	t.flush()
	t.leave(http.StatusOK, true)
	panic(http.ErrAbortHandler)
}
