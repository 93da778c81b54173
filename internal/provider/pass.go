package provider

import (
	"bytes"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
)

// sniff judges an answer by its first byte that is not blank, because content types lie.
func (m *Meter) sniff(p []byte) framing {
	first := bytes.TrimLeft(p, " \t\r\n")
	switch {
	case len(first) == 0 && len(p) <= maxHeld:
		return framingUnknown
	case len(first) == 0:
		return framingRaw
	case first[0] == '[' && m.e.answer == answerGenerate:
		return framingArray
	case first[0] == '{', first[0] == '[':
		return framingBody
	case strings.Contains(strings.ToLower(m.o.ContentType), "json") && (first[0] == '\xef' || !m.o.Stream):
		return framingBody // a byte order mark, or no JSON at all
	case m.o.Stream:
		return framingSSE // whatever it is called: no JSON begins like data:
	case m.e.answer == answerAudio && strings.HasPrefix(strings.ToLower(m.o.ContentType), "text/"):
		return framingText
	}
	return framingRaw
}

// passEvents reads the events in p and decides what of them goes on.
func (m *Meter) passEvents(p []byte) []byte {
	total := m.sent + int64(len(m.held)+len(p))
	for n := 0; n < len(p); {
		if m.dropped {
			if at := m.sse.pos; m.sse.afterCR && p[n] == '\n' {
				m.drops = append(m.drops, span{at, at + 1})
			}
			m.dropped = false
		}
		var ev event
		var took int
		var ok bool
		if m.how == framingSSE {
			ev, took, ok = m.sse.next(p[n:])
		} else {
			ev, took, ok = m.array.next(p[n:])
		}
		if n += took; !ok {
			break
		}
		m.take(ev)
	}
	return m.release(p, total, m.mark(total))
}

// mark is the offset up to which bytes may go on.
func (m *Meter) mark(total int64) int64 {
	if !m.started {
		if total-m.sent <= maxHeld {
			return m.sent
		}
		m.started = !m.refused
		return total
	}
	if m.o.StripUsage && m.how == framingSSE {
		if at, pending := m.sse.pending(); pending && total-at <= maxHeld {
			return max(at, m.sent)
		}
	}
	return total
}

// release returns the bytes up to mark but for those that are dropped, and keeps the rest. Drops lie before mark.
func (m *Meter) release(p []byte, total, mark int64) []byte {
	if len(m.held) == 0 && len(m.drops) == 0 {
		k := mark - m.sent
		m.held, m.sent = append(m.held, p[k:]...), mark
		return p[:k:k]
	}
	m.out = slices.Grow(m.out[:0], int(mark-m.sent))
	at := m.sent
	for _, d := range m.drops {
		m.emit(p, at, d.from)
		at = d.to
	}
	m.emit(p, at, mark)
	m.drops = m.drops[:0]
	old := int64(len(m.held))
	if rest := mark - m.sent; rest <= old {
		if m.held = append(m.held[:copy(m.held, m.held[rest:])], p...); len(m.held) == 0 {
			m.held = trim(m.held)
		}
	} else {
		m.held = append(trim(m.held), p[rest-old:]...)
	}
	m.sent = mark
	return m.out
}

// emit appends the bytes between two offsets to out: first come those held, then p.
func (m *Meter) emit(p []byte, from, to int64) {
	from, to = from-m.sent, to-m.sent
	h := int64(len(m.held))
	if from < h {
		m.out = append(m.out, m.held[from:min(to, h)]...)
	}
	if to > h {
		m.out = append(m.out, p[max(from-h, 0):to-h]...)
	}
}

// take reads one event.
func (m *Meter) take(ev event) {
	if ev.end-m.sent > maxHeld && !m.refused {
		m.started = true
	}
	data := bytes.TrimSpace(ev.data)
	switch {
	case ev.lost:
		m.start()
		return
	case len(data) == 0:
		return
	case string(data) == "[DONE]":
		m.end = m.end || m.e.endsWithDone()
		m.start()
		return
	}
	if m.started && !ev.failed && m.e.answer == answerChat && m.plainDelta(data) {
		return
	}
	suspect := ev.failed || bytes.Contains(data, []byte("error")) || m.e.answer == answerResponses && bytes.Contains(data, []byte("failed"))
	doc, ok := document(data, suspect || ev.tail)
	if !ok {
		if ev.failed {
			m.fail(quotedError(data))
		}
		m.start()
		return
	}
	if suspect {
		m.faultIn(doc, ev.failed)
	}
	switch m.event(doc) {
	case eventQuiet:
		return
	case eventUsageOnly:
		if m.o.StripUsage && !m.refused && ev.start >= m.sent && ev.end-ev.start <= maxHeld {
			m.drops = append(m.drops, span{ev.start, ev.end})
			m.dropped = true
		}
	}
	m.start()
}

// Last takes the last bytes of the answer where the transport hands them over together with its end. It is Pass and Finish in one, and
// copies nothing of a plain body that came whole: the result may be p itself.
func (m *Meter) Last(p []byte) (out []byte) {
	if len(p) > 0 && m.how == framingUnknown && len(m.held) == 0 {
		m.how = m.sniff(p)
	}
	if m.how == framingBody && len(m.body) == 0 && !m.started && !m.eof && len(p) <= maxHeld {
		m.eof = true
		if out = m.finishBody(p); !m.whole {
			m.body = bytes.Clone(p) // Result looks for text in what was cut short
		}
		return out
	}
	out = bytes.Clone(m.Pass(p)) // Finish uses the same buffers
	return append(out, m.Finish()...)
}

func (m *Meter) start() { m.started = m.started || !m.refused }

// passBody keeps a copy of a plain body, and the body itself until it is too long for an error.
func (m *Meter) passBody(p []byte) []byte {
	if m.lost {
		return p
	}
	m.body = append(m.body, p...)
	out := p
	if !m.started {
		if len(m.body) <= maxHeld {
			return nil
		}
		m.started, out = true, m.body
	}
	if len(m.body) > maxBody {
		m.body, m.lost = nil, true
	}
	return out
}

// Finish takes the end of the answer and returns the bytes that were still held back, those of a first event that is an
// error among them. It is for an end that the transport calls proper; after a broken connection it must not be called.
func (m *Meter) Finish() (out []byte) {
	if m.eof {
		return nil
	}
	m.eof = true
	switch m.how {
	case framingSSE:
		if ev, ok := m.sse.finish(); ok {
			m.take(ev)
		}
	case framingBody:
		return m.finishBody(m.body)
	}
	empty := m.sent+int64(len(m.held)) == 0 && m.how != framingRaw && m.how != framingText
	if !empty {
		m.start()
	}
	total := m.sent + int64(len(m.held))
	return m.release(nil, total, total)
}

func (m *Meter) finishBody(all []byte) []byte {
	body := bytes.TrimPrefix(bytes.TrimSpace(all), []byte("\xef\xbb\xbf"))
	suspect := mayFail(body)
	if !suspect && m.e.answer == answerChat && m.wholeChat(body) {
		m.whole = true
	} else if doc, ok := document(body, true); ok {
		m.whole = true
		if suspect {
			m.faultIn(doc, false)
		}
		m.answer(doc)
	}
	if m.started {
		return nil
	}
	m.start()
	return all
}

// document parses one JSON object, or the first element of an array if it is one (Vertex wraps its errors so). The
// result is a view of b: what is kept of it must be cloned. Without strict an object is only seen to begin and end like
// one: an event that came to its end has not been cut, and reading it finds what is there, whatever else is wrong.
func document(b []byte, strict bool) (gjson.Result, bool) {
	if len(b) < 2 || b[0] != '{' && b[0] != '[' {
		return gjson.Result{}, false
	}
	if loose := !strict && b[0] == '{' && b[len(b)-1] == '}'; !loose && !ValidJSON(b) {
		return gjson.Result{}, false
	}
	doc := gjson.Parse(view(b))
	if doc.IsArray() {
		doc = doc.Get("0")
	}
	return doc, doc.IsObject()
}
