package provider

import (
	"mime"
	"strings"
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
	kind := o.ContentType
	if kind != "application/json" && kind != "text/event-stream" { // nearly always one of these
		kind = mediaType(kind)
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

// mediaType is a content type without its parameters.
func mediaType(contentType string) string {
	kind, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		kind, _, _ = strings.Cut(contentType, ";")
		kind = strings.ToLower(strings.TrimSpace(kind))
	}
	return kind
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
		if len(m.held) > 0 {
			m.held = append(m.held, p...)
			p = m.held
		}
		if m.how = m.sniff(p); m.how == framingUnknown {
			if len(m.held) == 0 {
				m.held = append(m.held, p...)
			}
			return nil
		}
		m.held = nil
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
