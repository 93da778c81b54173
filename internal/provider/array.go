package provider

// elements cuts a streamed JSON array into its elements: Gemini's stream without alt=sse.
type elements struct {
	pos      int64
	start    int64
	buf      []byte // beginning of the element that is not whole yet
	depth    int
	inString bool
	escaped  bool
	lost     bool
	closed   bool // the array's ] has come
}

// next works like sse.next.
func (s *elements) next(p []byte) (ev event, n int, ok bool) {
	from := 0 // where the element begins in p
	for i, c := range p {
		switch {
		case s.escaped:
			s.escaped = false
		case s.inString:
			s.escaped = c == '\\'
			s.inString = c != '"'
		case c == '"':
			s.inString = true
		case c == '[', c == '{':
			if s.depth++; s.depth == 2 {
				s.start, from, s.lost = s.pos+int64(i), i, false
				s.buf = trim(s.buf)
			}
		case c == ']', c == '}':
			s.depth--
			switch s.depth {
			case 0:
				s.closed = c == ']'
			case 1:
				data := p[from : i+1]
				if s.start < s.pos {
					s.keep(data)
					data = s.buf
				}
				s.pos += int64(i + 1)
				return event{data: data, start: s.start, end: s.pos, lost: s.lost}, i + 1, true
			}
		}
	}
	if s.depth > 1 {
		s.keep(p[from:])
	}
	s.pos += int64(len(p))
	return event{}, len(p), false
}

func (s *elements) keep(p []byte) {
	if s.lost = s.lost || len(s.buf)+len(p) > maxEvent; s.lost {
		s.buf = nil
		return
	}
	s.buf = append(s.buf, p...)
}
