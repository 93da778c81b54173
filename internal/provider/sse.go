package provider

import "bytes"

// maxEvent bounds one line and one event that is read: 32 MiB, the official SDKs' own line limit. A larger event passes
// unread.
const maxEvent = 32 << 20

// keepBuffer is the capacity a buffer may keep for the next event. One large event must not stay in memory for the rest
// of a long stream.
const keepBuffer = 16 << 10

// event is one server-sent event, or one element of a streamed JSON array. data is valid until the next call of next.
type event struct {
	data       []byte // data lines joined by \n
	start, end int64  // where its first field line begins and where its last byte ends, counted from the stream's start
	failed     bool   // the event is named "error"
	lost       bool   // it was larger than maxEvent: data is not all of it
	tail       bool   // the stream ended in it: data may be cut
}

// sse cuts a stream of server-sent events into events, from whatever pieces the bytes arrive in. Lines end with \n, \r\n
// or a lone \r. Beyond the standard it takes a line that begins with { or [ as data, since errors come so, and the last
// event needs no blank line after it.
type sse struct {
	pos     int64  // offset of the next byte
	line    []byte // beginning of the line that is not whole yet
	lineAt  int64  // offset of its first byte
	data    []byte // copy of the event's data; not used while it is one line inside the caller's bytes
	one     []byte // the event's only data line
	count   int    // data lines of this event
	kept    bool   // one lies in data
	start   int64  // offset of the event, if inside
	inside  bool   // a field line of an event has come
	failed  bool
	bare    bool
	lost    bool
	long    bool // the line is above maxEvent
	begun   bool // the first line has been seen, and with it a byte order mark
	afterCR bool // a \n that comes now belongs to the line before
	done    bool // the event has been handed out
}

// next reads from p, the bytes that follow those of earlier calls, until an event is whole. n is how many bytes it took:
// all of them when ok is false.
func (s *sse) next(p []byte) (ev event, n int, ok bool) {
	s.reset()
	if s.afterCR && len(p) > 0 {
		s.afterCR = false
		if p[0] == '\n' {
			n, s.pos = 1, s.pos+1
			s.lineAt = s.pos
		}
	}
	feed := -1 // index of the next \n in p, once looked for; len(p): none
	for n < len(p) {
		rest := p[n:]
		if feed < n {
			feed = len(p)
			if k := bytes.IndexByte(rest, '\n'); k >= 0 {
				feed = n + k
			}
		}
		end := feed
		if k := bytes.IndexByte(p[n:feed], '\r'); k >= 0 {
			end = n + k
		}
		if end == len(p) {
			s.keep(rest)
			s.pos += int64(len(rest))
			n = len(p)
			break
		}
		width := 1
		if p[end] == '\r' {
			if end+1 == len(p) {
				s.afterCR = true
			} else if p[end+1] == '\n' {
				width = 2
			}
		}
		line, joined := p[n:end], false
		if len(s.line) > 0 || s.long {
			s.keep(line)
			line, joined = s.line, true
		}
		s.pos += int64(end + width - n)
		n = end + width
		whole := s.take(line, joined)
		s.line = trim(s.line)
		s.lineAt = s.pos
		if whole {
			return s.event(), n, true
		}
	}
	s.save()
	return event{}, n, false
}

// finish hands out what stands at the end of the stream without the blank line after it.
func (s *sse) finish() (ev event, ok bool) {
	s.reset()
	if len(s.line) > 0 || s.long {
		s.take(s.line, true)
		s.line = nil
	}
	if !s.inside {
		return event{}, false
	}
	ev = s.event()
	ev.tail = true
	return ev, true
}

// pending is the offset from which on the bytes belong to an event that is not whole yet; ok is false between events.
func (s *sse) pending() (at int64, ok bool) {
	if s.inside && !s.done {
		return s.start, true
	}
	return s.lineAt, len(s.line) > 0 && s.line[0] != ':'
}

func (s *sse) event() event {
	s.done = true
	return event{data: s.one, start: s.start, end: s.pos, failed: s.failed, lost: s.lost}
}

func (s *sse) reset() {
	if !s.done {
		return
	}
	s.data, s.one, s.count, s.kept = trim(s.data), nil, 0, false
	s.inside, s.failed, s.bare, s.lost, s.done = false, false, false, false, false
}

// take reads one line and says whether it ends an event. A joined line lies in s.line, which is used again.
func (s *sse) take(line []byte, joined bool) (whole bool) {
	if !s.begun {
		s.begun = true
		line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
	}
	long := s.long || len(line) > maxEvent
	s.long = false
	switch {
	case long:
		s.enter()
		s.lost = true
		return false
	case len(line) == 0:
		return s.inside
	case line[0] == ':':
		return false
	}
	s.enter()
	if s.bare || line[0] == '{' || line[0] == '[' {
		s.bare = true
		s.add(line, joined)
		return false
	}
	field, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(field) {
	case "data":
		s.add(value, joined)
	case "event":
		s.failed = string(value) == "error"
	}
	return false
}

func (s *sse) enter() {
	if !s.inside {
		s.inside, s.start = true, s.lineAt
	}
}

// add appends one data line.
func (s *sse) add(value []byte, joined bool) {
	if s.lost = s.lost || len(s.one)+len(value) >= maxEvent; s.lost {
		return
	}
	if s.count++; s.count == 1 {
		s.one = value
		if joined {
			s.save()
		}
		return
	}
	s.save()
	s.data = append(append(s.data, '\n'), value...)
	s.one = s.data
}

// save copies the data line out of bytes that will be used again.
func (s *sse) save() {
	if s.count == 0 || s.kept {
		return
	}
	s.data = append(s.data[:0], s.one...)
	s.one, s.kept = s.data, true
}

// keep appends to the line that is not whole yet.
func (s *sse) keep(p []byte) {
	if s.long || len(s.line)+len(p) > maxEvent {
		s.line, s.long = nil, true
		return
	}
	s.line = append(s.line, p...)
}

// trim empties a buffer and gives back a large one.
func trim(b []byte) []byte {
	if cap(b) > keepBuffer {
		return nil
	}
	return b[:0]
}
