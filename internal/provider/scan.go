package provider

import (
	"encoding/binary"
	"encoding/json"
	"math/bits"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth is how deep a body may nest. Servers stop near here too; what matters is that there is a bound at all:
// gjson's own check recurses without one, and 8 MiB of "[" would overflow the stack, which no recover catches.
const maxDepth = 1000

// scanner reads one JSON text from front to back, once, checking the grammar as it goes and copying nothing. Its
// methods may be called in any state; after a fault they do nothing more. Bytes that are no UTF-8 are let through
// inside strings: whether they are welcome is for the provider to say.
type scanner struct {
	b     []byte
	i     int
	depth int
	space int    // bytes of white space passed outside strings
	fault string // what is wrong; "" so far
	at    int    // where
}

// text is a string as it stands in the body, without its quotes.
type text struct {
	raw     []byte
	escaped bool
	n       int // bytes when decoded
}

// decode is the string itself.
func (t text) decode() string {
	if t.escaped {
		var s string
		if json.Unmarshal([]byte(`"`+string(t.raw)+`"`), &s) == nil {
			return s
		}
	}
	return string(t.raw)
}

// value is one value of any kind; of objects and lists only that they were there.
type value struct {
	kind byte // '"', '0', 't', 'f', 'n', '{', '['; 0 after a fault
	text text // strings and numbers
}

func (s *scanner) fail(what string) {
	if s.fault == "" {
		s.fault, s.at = what, s.i
	}
	s.i = len(s.b)
}

// peek passes white space and is the next byte, 0 at the end.
func (s *scanner) peek() byte {
	for from := s.i; ; s.i++ {
		if s.i >= len(s.b) {
			return 0
		}
		if c := s.b[s.i]; c > ' ' || c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			s.space += s.i - from
			return c
		}
	}
}

// enter passes the opening bracket of a list or object.
func (s *scanner) enter() {
	s.i++
	if s.depth++; s.depth > maxDepth {
		s.fail("nests deeper than 1000 levels")
	}
}

// more says whether a list or object, of which n elements are read, has another one, and passes the comma or bracket.
func (s *scanner) more(end byte, n int) bool {
	switch c := s.peek(); {
	case s.fault != "":
		return false
	case c == end:
		s.i++
		s.depth--
		return false
	case n == 0:
		return true
	case c != ',':
		s.fail("has no comma or bracket where one is due")
		return false
	}
	s.i++
	return true
}

// key passes a key and its colon.
func (s *scanner) key() text {
	if s.peek() != '"' {
		s.fail("has no key where one is due")
		return text{}
	}
	k := s.string()
	if s.peek() != ':' {
		s.fail("has no colon after a key")
		return text{}
	}
	s.i++
	return k
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// special marks the bytes of eight that end or interrupt a string: quote, backslash, control. Only the lowest mark is
// exact, and only that one is used (S. E. Anderson, "Determine if a word has a byte less than n").
func special(x uint64) uint64 {
	quote := x ^ ones*'"'
	slash := x ^ ones*'\\'
	return ((quote-ones)&^quote | (slash-ones)&^slash | (x-ones*' ')&^x) & highs
}

// string passes a string; the next byte is its opening quote.
func (s *scanner) string() text {
	b, from := s.b, s.i+1
	more := 0 // bytes that escapes take beyond what they stand for
	for i := from; i < len(b); {
		if i+8 <= len(b) {
			m := special(binary.LittleEndian.Uint64(b[i:]))
			if m == 0 {
				i += 8
				continue
			}
			i += bits.TrailingZeros64(m) >> 3
		}
		switch c := b[i]; {
		case c == '"':
			s.i = i + 1
			return text{raw: b[from:i], escaped: more > 0, n: i - from - more}
		case c == '\\':
			long, short := escape(b[i:])
			if long == 0 {
				s.i = i
				s.fail("has a bad escape in a string")
				return text{}
			}
			i += long
			more += long - short
		case c < ' ':
			s.i = i
			s.fail("has a control byte in a string")
			return text{}
		default:
			i++
		}
	}
	s.i = len(b)
	s.fail("ends inside a string")
	return text{}
}

// escape is the length of the escape that b starts with and the length of what it stands for; 0 when it is bad.
func escape(b []byte) (long, short int) {
	if len(b) < 2 {
		return 0, 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2, 1
	case 'u':
	default:
		return 0, 0
	}
	r, ok := hex4(b[2:])
	if !ok {
		return 0, 0
	}
	if utf16.IsSurrogate(r) {
		if len(b) >= 12 && b[6] == '\\' && b[7] == 'u' {
			if low, ok := hex4(b[8:]); ok && utf16.DecodeRune(r, low) != utf8.RuneError {
				return 12, 4
			}
		}
		return 6, 3 // half a pair reads as U+FFFD
	}
	return 6, utf8.RuneLen(r)
}

func hex4(b []byte) (r rune, ok bool) {
	if len(b) < 4 {
		return 0, false
	}
	for _, c := range b[:4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// number passes a number.
func (s *scanner) number() []byte {
	from := s.i
	digits := func() bool {
		start := s.i
		for s.i < len(s.b) && s.b[s.i]-'0' <= 9 {
			s.i++
		}
		return s.i > start
	}
	at := func(set string) bool { return s.i < len(s.b) && strings.IndexByte(set, s.b[s.i]) >= 0 }
	if at("-") {
		s.i++
	}
	ok := true
	if at("0") {
		s.i++
	} else {
		ok = digits()
	}
	if ok && at(".") {
		s.i++
		ok = digits()
	}
	if ok && at("eE") {
		s.i++
		if at("+-") {
			s.i++
		}
		ok = digits()
	}
	if !ok {
		s.fail("has a bad number")
		return nil
	}
	return s.b[from:s.i]
}

func (s *scanner) word(w string) {
	if len(s.b)-s.i < len(w) || string(s.b[s.i:s.i+len(w)]) != w {
		s.fail("has something that is no value")
		return
	}
	s.i += len(w)
}

// value passes any value.
func (s *scanner) value() (v value) {
	c := s.peek()
	switch {
	case c == '"':
		v.text = s.string()
	case c == '{':
		s.enter()
		for n := 0; s.more('}', n); n++ {
			s.key()
			s.value()
		}
	case c == '[':
		s.enter()
		for n := 0; s.more(']', n); n++ {
			s.value()
		}
	case c == 't':
		s.word("true")
	case c == 'f':
		s.word("false")
	case c == 'n':
		s.word("null")
	case c == '-' || '0' <= c && c <= '9':
		v.text.raw = s.number()
		c = '0'
	case s.i >= len(s.b):
		s.fail("ends too early")
	default:
		s.fail("has something that is no value")
	}
	if s.fault == "" {
		v.kind = c
	}
	return v
}

// end checks that nothing but white space is left.
func (s *scanner) end() {
	if s.peek(); s.i < len(s.b) {
		s.fail("goes on after its end")
	}
}

// ValidJSON says whether body is one JSON value and nothing else, at most 1,000 levels deep. It takes any body,
// where gjson.Valid overflows the stack of the process on a few million brackets.
func ValidJSON(body []byte) bool {
	s := scanner{b: body}
	s.value()
	s.end()
	return s.fault == ""
}

// truth reads a switch as lenient servers do: 1 and "true" are as good as true.
func (v value) truth() bool {
	switch v.kind {
	case 't':
		return true
	case '0':
		return v.whole() != 0
	case '"':
		switch strings.ToLower(v.text.decode()) {
		case "true", "t", "1", "yes", "y", "on":
			return true
		}
	}
	return false
}

// whole reads a count, written as a number or inside a string: rounded up, 0 for nonsense and below zero, at most 2^53-1.
func (v value) whole() (n int64) {
	switch v.kind {
	case '0':
		n, _, _ = parseCount(string(v.text.raw))
	case '"':
		n, _, _ = parseCount(strings.TrimSpace(v.text.decode()))
	}
	return n
}

// string reads a string value; everything else is "".
func (v value) string() string {
	if v.kind != '"' {
		return ""
	}
	return v.text.decode()
}
