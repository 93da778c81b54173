package provider

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"strings"
)

// ErrNotForm says that a body is not the multipart form that its Content-Type announces, or is one that servers could
// read in different ways.
var ErrNotForm = errors.New("body is not a multipart form")

// ParseForm reads what a multipart request (audio, image edits) costs. contentType is the request's header, whose
// boundary rules. Files are measured where they lie and not copied. It returns ErrNotForm (wrapped) for a body that is
// no such form, and for one that servers could read in different ways: text before the first boundary or after the
// last, line ends other than CR LF around boundaries, folded headers, encoded parts, names in two spellings. Other
// endpoints give ErrNotForm too.
//
// The Call keeps a reference to body for Rewrite.
func (e *Endpoint) ParseForm(contentType string, body []byte) (Call, error) {
	c := Call{Choices: 1, silent: e.silent}
	bad := func(why string) (Call, error) {
		return Call{}, fmt.Errorf("read %s %s request: %w: %s", e.dialect.name, e.name, ErrNotForm, why)
	}
	if e.form != formMultipart {
		return bad("this endpoint takes none")
	}
	kind, params, err := mime.ParseMediaType(contentType)
	if err != nil || kind != "multipart/form-data" || params["boundary"] == "" {
		return bad("send Content-Type multipart/form-data with a boundary")
	}
	w := walk{e: e, c: &c, plan: &plan{body: body, form: true}}
	w.plan.marks = w.plan.room[:0]
	mark := []byte("--" + params["boundary"])
	if !bytes.HasPrefix(body, mark) {
		return bad("it does not begin with its boundary")
	}
	at := len(mark) // behind a boundary
	for {
		rest := body[at:]
		if tail, ok := bytes.CutPrefix(rest, []byte("--")); ok {
			if len(bytes.Trim(tail, "\r\n")) > 0 {
				return bad("it goes on after its last boundary")
			}
			break
		}
		if !bytes.HasPrefix(rest, []byte("\r\n")) {
			return bad("a boundary has no line of its own")
		}
		at += 2
		size := nextBoundary(body[at:], mark)
		if size < 0 {
			return bad("it ends without its last boundary")
		}
		if why := w.formPart(at, at+size); why != "" {
			return bad(why)
		}
		at += size + len("\r\n") + len(mark)
	}
	w.finish()
	c.plan = w.plan
	return c, nil
}

// nextBoundary is the length of the part before the next boundary; -1 when there is none or it does not follow CR LF.
func nextBoundary(b, mark []byte) int {
	// The part may be empty of headers and content but not of its blank line, so a boundary never comes first.
	for from := 0; ; {
		i := bytes.Index(b[from:], mark)
		if i < 0 {
			return -1
		}
		i += from
		if i >= 2 && b[i-1] == '\n' {
			if b[i-2] != '\r' {
				return -1
			}
			return i - 2
		}
		from = i + 1
	}
}

// formPart reads one part, which lies in body[from:to]; why says what is wrong with it.
func (w *walk) formPart(from, to int) (why string) {
	part := w.plan.body[from:to]
	var name, contentType string
	isFile := false
	at := 0
	for {
		end := bytes.Index(part[at:], []byte("\r\n"))
		if end < 0 {
			return "a part has no blank line after its headers"
		}
		line := string(part[at : at+end])
		at += end + 2
		if line == "" {
			break
		}
		key, val, ok := strings.Cut(line, ":")
		if !ok || line[0] == ' ' || line[0] == '\t' || strings.ContainsAny(line, "\r\n\x00") {
			return "a part has a bad header"
		}
		switch strings.ToLower(key) {
		case "content-disposition":
			kind, params, err := mime.ParseMediaType(val)
			// An extended name is read by some servers and passed over by others; file names may be extended.
			extended := strings.Contains(strings.ReplaceAll(strings.ToLower(val), "filename*", ""), "name*")
			if err != nil || kind != "form-data" || name != "" || extended {
				return "a part has a bad Content-Disposition"
			}
			name = params["name"]
			_, isFile = params["filename"]
		case "content-type":
			contentType = strings.TrimSpace(val)
		case "content-transfer-encoding":
			if v := strings.ToLower(strings.TrimSpace(val)); v != "binary" && v != "8bit" && v != "7bit" {
				return "a part is encoded: send it as it is"
			}
		}
	}
	if name == "" {
		return "a part has no name"
	}
	content := part[at:]
	v := value{kind: '"', text: text{raw: content, n: len(content)}}
	r := w.e.fields[name]
	if isFile && r != roleNone && r != roleContent {
		return "a field is sent as a file"
	}
	switch r {
	case roleModel:
		w.c.Model = string(content)
		w.plan.marks = append(w.plan.marks, mark{role: roleModel, parent: -1, from: from + at, to: to})
	case roleStream:
		w.c.Stream = v.truth()
	case roleChoices:
		w.c.Choices = max(v.whole(), 1)
	case roleUser:
		w.c.User = string(content)
	case roleImageSize:
		w.size = string(content)
	case roleImageQuality:
		w.quality = string(content)
	case roleText:
		w.c.TextBytes += int64(len(content))
	case roleContent:
		m := media{kind: kindByMime([]byte(contentType)), bytes: int64(len(content))}
		if strings.HasPrefix(w.e.name, "audio") {
			m.kind = kindAudio
		}
		if m.kind == kindNone {
			m.kind = kindImage
		}
		if len(w.media) < maxFiles {
			m.inspect(func() io.Reader { return bytes.NewReader(content) })
		}
		w.media = append(w.media, m)
	}
	return ""
}
