package provider

import (
	"bytes"
	"mime"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
)

const (
	// maxHeld bounds what is held back: a first event or a body above it is no error and a chunk above it is more than
	// usage, so neither has to wait.
	maxHeld = maxErrorBody
	// maxBody bounds the copy of a plain body, the same as a decompressed answer may have. A larger one passes unread.
	maxBody = 64 << 20
)

// MeterOptions says what is known of an answer before its first byte.
type MeterOptions struct {
	ContentType string // the answer's own; "" is judged by its first bytes
	Stream      bool   // a stream was asked for
	StripUsage  bool   // drop the chunk of a chat stream that has nothing but usage: the gateway asked for it, the caller did not
}

// Metered is what a Meter has read so far. The zero value has seen nothing.
type Metered struct {
	Usage        Usage  // the last that was said: counts are cumulative or final and never added up. Model may be known without HasUsage
	HasUsage     bool   // a usage was read; an explicit zero counts
	TextBytes    int64  // text that was produced (content, reasoning shown, tool arguments): what an estimate starts from
	Complete     bool   // the answer ended as it should
	Fault        *Fault // an error inside a 200; nil when there was none
	FinishReason string // the provider's own word, "" before it came
}

// Meter reads the bill from an answer as it passes. It must not be used by two goroutines at once.
type Meter struct {
	e     *Endpoint
	o     MeterOptions
	how   framing
	sse   sse
	array elements

	started bool
	refused bool   // the first event was an error: nothing starts any more
	dropped bool   // the event before was dropped: a \n that still belongs to it goes too
	sent    int64  // offset of the first byte that has neither been passed on nor dropped
	held    []byte // the bytes from there on that earlier calls brought
	out     []byte
	drops   []span

	tally  tally
	model  string
	tier   string
	text   int64
	finish string
	fault  *Fault
	end    bool // the dialect's own last event has come
	stop   bool // an answer without a last event of its own says that it is done
	eof    bool
	body   []byte // copy of a plain body
	lost   bool   // it is larger than maxBody
	whole  bool   // it was JSON to its end
}

// framing is how the bytes of an answer hang together.
type framing uint8

const (
	framingUnknown framing = iota // not enough bytes yet
	framingSSE                    // server-sent events
	framingArray                  // one JSON array, element by element
	framingBody                   // one JSON text
	framingText                   // plain text: all of it is what was asked for
	framingRaw                    // bytes without anything to read
)

type span struct{ from, to int64 }

// NewMeter starts the metering of one answer of e.
func (e *Endpoint) NewMeter(o MeterOptions) *Meter {
	m := &Meter{e: e, o: o}
	m.tally.bill = e.bill()
	kind, _, err := mime.ParseMediaType(o.ContentType)
	if err != nil {
		kind, _, _ = strings.Cut(o.ContentType, ";")
		kind = strings.ToLower(strings.TrimSpace(kind))
	}
	switch {
	case !e.read():
		m.how = framingRaw
	case kind == "text/event-stream":
		m.how = framingSSE
	case kind == "application/json", strings.HasSuffix(kind, "+json"), kind == "", strings.HasPrefix(kind, "text/"), kind == "application/octet-stream":
	default:
		m.how = framingRaw
	}
	return m
}

// Started says that the first event, or the beginning of a plain body, is known to be no error: status and headers may go
// out.
func (m *Meter) Started() bool { return m.started }

// Result is what is known so far. It may be asked at any time.
func (m *Meter) Result() Metered {
	r := Metered{HasUsage: m.tally.found, TextBytes: m.text, FinishReason: m.finish, Fault: m.fault}
	if r.HasUsage {
		r.Usage = m.tally.usage()
		// Text cannot have cost nothing: the server does not count, or has not yet.
		if r.Usage.Total() == 0 && m.text > 0 && m.streaming() {
			r.Usage, r.HasUsage = Usage{}, false
		}
	}
	r.Usage.Model, r.Usage.Tier = m.model, m.tier
	switch m.how {
	case framingSSE:
		r.Complete = m.end || m.stop && m.eof
	case framingArray:
		r.Complete = m.stop && m.eof && m.array.closed
	case framingBody:
		r.Complete = m.whole || m.lost && m.eof
		if !m.whole && !m.lost {
			r.TextBytes = m.cutText()
		}
	case framingText:
		r.Complete = m.eof
	case framingRaw: // of what should have been JSON nothing is known
		r.Complete = m.eof && (m.e.answer == answerNone || m.e.answer == answerAudio)
	}
	r.Complete = r.Complete && m.fault == nil
	// What costs no tokens says so, unless it failed.
	if m.e.unbilled && m.fault == nil {
		r.HasUsage = true
	}
	return r
}

func (m *Meter) streaming() bool { return m.how == framingSSE || m.how == framingArray }

// Pass takes the next bytes of the answer and returns what may go on to the caller now, which is p itself or a part of
// it in the usual case. The result is valid until the next call. Bytes are held back only while the first event (of a
// plain body: its first 64 KiB) is not known to be no error, and, with StripUsage, until the end of an event that may
// have to be dropped. Comments and pings are no first events.
func (m *Meter) Pass(p []byte) (out []byte) {
	if len(p) == 0 {
		return nil
	}
	m.out = trim(m.out)
	switch m.how {
	case framingUnknown:
		m.held = append(m.held, p...)
		if m.how = m.sniff(m.held); m.how == framingUnknown {
			return nil
		}
		p, m.held = m.held, nil
		return m.Pass(p)
	case framingSSE, framingArray:
		return m.passEvents(p)
	case framingBody:
		return m.passBody(p)
	case framingText:
		m.text += int64(len(p))
	}
	m.started = true
	return p
}

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
	case strings.Contains(strings.ToLower(m.o.ContentType), "json"):
		return framingBody // a byte order mark, or no JSON at all
	case m.o.Stream:
		return framingSSE
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
		m.held = append(m.held[:copy(m.held, m.held[rest:])], p...)
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
		return m.finishBody()
	}
	empty := m.sent+int64(len(m.held)) == 0 && m.how != framingRaw && m.how != framingText
	if !empty {
		m.start()
	}
	total := m.sent + int64(len(m.held))
	return m.release(nil, total, total)
}

func (m *Meter) finishBody() []byte {
	if doc, ok := document(bytes.TrimPrefix(bytes.TrimSpace(m.body), []byte("\xef\xbb\xbf")), true); ok {
		m.whole = true
		m.faultIn(doc, false)
		m.answer(doc)
	}
	if m.started {
		return nil
	}
	m.start()
	return m.body
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
