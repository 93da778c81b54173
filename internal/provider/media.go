package provider

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"
	"strings"
)

// kind is what a file in a message is.
type kind uint8

const (
	kindNone kind = iota
	kindSome      // a file, of what kind is not said
	kindImage
	kindAudio
	kindVideo
	kindDocument
)

// media is one file. The zero sizes mean not known.
type media struct {
	kind   kind
	width  int64 // pixels
	height int64
	bytes  int64 // decoded size; 0: it is elsewhere
	rate   int64 // bytes a second, of sound
	low    bool  // detail: low
}

const (
	unknownImage = 1600   // tokens, when the size cannot be read or the provider publishes no rule
	unseenFile   = 10_000 // tokens of a file that is elsewhere: 4 pages, 5 minutes of sound or 38 seconds of film
	pdfBytes     = 20     // bytes of a PDF for each token
	audioRate    = 4_000  // bytes a second of compressed speech, on the low side: 32 kbit/s
	audioTokens  = 32     // a second; Gemini's, the highest that is published
	videoRate    = 125_000
	videoTokens  = 263 // a second
	maxHeader    = 256 << 10
	maxFiles     = 1000 // files of one request that are looked into; providers take at most 600
)

func kindByName(key []byte) kind {
	switch s := string(key); {
	case strings.HasPrefix(s, "image"):
		return kindImage
	case s == "input_audio", strings.HasPrefix(s, "audio"):
		return kindAudio
	case strings.HasPrefix(s, "video"):
		return kindVideo
	case strings.HasPrefix(s, "document"), s == "file", s == "file_data", s == "file_url":
		return kindDocument
	case s == "url", s == "uri", s == "data", s == "bytes", s == "b64_json", s == "file_id":
		return kindNone
	}
	return kindSome
}

func kindByType(t []byte) kind {
	switch {
	case len(t) == 0:
	case string(t) == "file": // at Anthropic it says where the file is, not what
		return kindSome
	case bytes.Contains(t, []byte("image")), bytes.Contains(t, []byte("screenshot")):
		return kindImage
	case bytes.Contains(t, []byte("audio")):
		return kindAudio
	case bytes.Contains(t, []byte("video")):
		return kindVideo
	case bytes.Contains(t, []byte("document")), bytes.Contains(t, []byte("file")):
		return kindDocument
	}
	return kindNone
}

func kindByMime(mime []byte) kind {
	mime = bytes.ReplaceAll(mime, []byte(`\/`), []byte("/"))
	switch {
	case bytes.HasPrefix(mime, []byte("image/")):
		return kindImage
	case bytes.HasPrefix(mime, []byte("audio/")):
		return kindAudio
	case bytes.HasPrefix(mime, []byte("video/")):
		return kindVideo
	case bytes.HasPrefix(mime, []byte("application/pdf")):
		return kindDocument
	}
	return kindNone
}

func isText(mime []byte) bool {
	mime = bytes.ReplaceAll(mime, []byte(`\/`), []byte("/"))
	return bytes.HasPrefix(mime, []byte("text/")) || bytes.HasPrefix(mime, []byte("application/json")) ||
		bytes.HasPrefix(mime, []byte("application/xml"))
}

// readFile judges an encoded file by its stated type, else by its first bytes, else by what its place promised. plain
// says that it is a text whose m.bytes count as such. Without look its bytes are left alone.
func readFile(hint kind, mime []byte, t text, look bool) (m media, plain bool) {
	payload := t.raw
	inBase64 := true
	if rest, ok := bytes.CutPrefix(payload, []byte("data:")); ok {
		head, tail, _ := bytes.Cut(rest, []byte(","))
		payload = tail
		declared, params, _ := bytes.Cut(head, []byte(";"))
		if len(declared) > 0 {
			mime = declared
		}
		inBase64 = bytes.Contains(params, []byte("base64"))
	}
	m = media{kind: hint, bytes: int64(len(payload))}
	if inBase64 {
		m.bytes = int64(len(payload)) / 4 * 3
	}
	if isText(mime) {
		return m, true
	}
	if k := kindByMime(mime); k != kindNone {
		m.kind = k
	}
	if !look {
		return m, false
	}
	m.inspect(func() io.Reader {
		var r io.Reader = bytes.NewReader(payload)
		if t.escaped {
			r = &slashes{payload} // some encoders write "/" as "\/"
		}
		if inBase64 {
			r = base64.NewDecoder(base64.StdEncoding, r)
		}
		return r
	})
	return m, false
}

// slashes drops the backslashes of a JSON string in which nothing but "/" is escaped.
type slashes struct{ rest []byte }

func (u *slashes) Read(p []byte) (n int, err error) {
	for n < len(p) && len(u.rest) > 0 {
		if c := u.rest[0]; c != '\\' {
			p[n] = c
			n++
		}
		u.rest = u.rest[1:]
	}
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

// inspect looks at the first bytes of a file, at most 256 KiB, and at nothing but its header.
func (m *media) inspect(open func() io.Reader) {
	read := func() io.Reader { return io.LimitReader(open(), maxHeader) }
	var head [32]byte
	n, _ := io.ReadFull(read(), head[:])
	h := head[:n]
	switch {
	case bytes.HasPrefix(h, []byte("\x89PNG")):
		if c, err := png.DecodeConfig(read()); err == nil {
			m.image(c.Width, c.Height)
		}
	case bytes.HasPrefix(h, []byte("\xff\xd8")):
		if c, err := jpeg.DecodeConfig(read()); err == nil {
			m.image(c.Width, c.Height)
		}
	case bytes.HasPrefix(h, []byte("GIF8")):
		if c, err := gif.DecodeConfig(read()); err == nil {
			m.image(c.Width, c.Height)
		}
	case n >= 30 && string(h[:4]) == "RIFF" && string(h[8:12]) == "WEBP":
		m.image(webpSize(h))
	case n >= 32 && string(h[:4]) == "RIFF" && string(h[8:12]) == "WAVE":
		m.kind = kindAudio
		m.rate = int64(binary.LittleEndian.Uint32(h[28:]))
	case bytes.HasPrefix(h, []byte("%PDF")):
		m.kind = kindDocument
	}
}

func (m *media) image(width, height int) {
	m.kind = kindImage
	m.width, m.height = int64(width), int64(height)
}

// webpSize reads the three forms of WebP's first chunk (RFC 9649); 0, 0 for another one.
func webpSize(h []byte) (width, height int) {
	switch string(h[12:16]) {
	case "VP8 ":
		return int(binary.LittleEndian.Uint16(h[26:])) & 0x3fff, int(binary.LittleEndian.Uint16(h[28:])) & 0x3fff
	case "VP8L":
		v := binary.LittleEndian.Uint32(h[21:])
		return int(v&0x3fff) + 1, int(v>>14&0x3fff) + 1
	case "VP8X":
		return int(binary.LittleEndian.Uint32(h[24:])&0xffffff) + 1, int(binary.LittleEndian.Uint32(h[26:])>>8&0xffffff) + 1
	}
	return 0, 0
}

// mediaTokens is what one file counts as input.
func (d *Dialect) mediaTokens(model string, m *media) int64 {
	switch {
	case m.kind == kindImage && m.width > 0 && m.height > 0 && d.image != nil:
		return d.image(model, m)
	case m.kind <= kindImage:
		return unknownImage
	case m.bytes == 0:
		return unseenFile
	case m.kind == kindAudio:
		rate := m.rate
		if rate <= 0 {
			rate = audioRate
		}
		return times(audioTokens, ceilDiv(m.bytes, rate))
	case m.kind == kindVideo:
		return times(videoTokens, ceilDiv(m.bytes, videoRate))
	}
	return m.bytes/pdfBytes + 1
}

// fit scales a size down so that its longer side is at most long and its shorter at most short.
func fit(w, h, long, short int64) (int64, int64) {
	if big := max(w, h); big > long {
		w, h = max(w*long/big, 1), max(h*long/big, 1)
	}
	if small := min(w, h); small > short {
		w, h = max(w*short/small, 1), max(h*short/small, 1)
	}
	return w, h
}
