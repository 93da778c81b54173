package provider

import "bytes"

// MeterOptions says what is known of an answer before its first byte.
type MeterOptions struct {
	ContentType string // the answer's own; "" is judged by its first bytes
	Stream      bool   // a stream was asked for
	StripUsage  bool   // drop the chunk of a chat stream that has nothing but usage: the gateway asked for it, the caller did not
}

// Meter reads the bill from an answer as it passes. It must not be used by two goroutines at once.
type Meter struct {
	e       *Endpoint
	o       MeterOptions
	buf     []byte
	started bool
	result  Metered
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

// Fault is an error inside an answer with status 200.
type Fault struct {
	Status int    // what the status should have been, so that Dialect.Classify judges the fault like any other error
	Body   []byte // a JSON error body in the endpoint's dialect, at most 64 KiB
	First  bool   // nothing has been passed on yet: another rung may still answer
}

// NewMeter starts the metering of one answer of e.
func (e *Endpoint) NewMeter(o MeterOptions) *Meter { return &Meter{e: e, o: o} }

// Pass takes the next bytes of the answer and returns what may go on to the caller now, which is p itself or a part of
// it in the usual case. The result is valid until the next call. Bytes are held back only while the first event is not
// known to be no error, and, with StripUsage, until the end of an event that may have to be dropped.
func (m *Meter) Pass(p []byte) (out []byte) {
	m.started = m.started || len(bytes.TrimSpace(p)) > 0
	m.buf = append(m.buf, p...)
	return p
}

// Finish takes the end of the answer and returns the bytes that were still held back. It is for an end that the transport
// calls proper; after a broken connection it must not be called.
func (m *Meter) Finish() (out []byte) {
	m.result.Usage, m.result.HasUsage = m.e.dialect.Usage(m.buf)
	m.result.Complete = m.result.HasUsage
	return nil
}

// Started says that the first event, or the beginning of a plain body, is known to be no error: status and headers may go
// out.
func (m *Meter) Started() bool { return m.started }

// Result is what is known so far. It may be asked at any time.
func (m *Meter) Result() Metered { return m.result }
