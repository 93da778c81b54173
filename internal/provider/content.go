package provider

import "bytes"

// place is what a key inside a message says about its value.
type place uint8

const (
	placeText    place = iota // text, or more content
	placeCertain              // text even when it looks like an encoded file
	placeSkip                 // ids and switches: nothing the model reads
	placeJSON                 // arguments and results of tools
	placeType                 // the kind of this part
	placeMime                 // the kind of this part's file
	placeDetail               // how closely to look
	placeFile                 // a file: its address, its bytes, or an object with either
	placeBytes                // the bytes themselves
	placeAddress              // where they are
	placeModel                // the model, in a batch of Gemini's
	placeCipher               // text that the provider has encrypted for itself
)

// places: the keys inside messages whose values are not plain text to be counted. The four dialects do not contradict
// each other here, so that one table serves all; what is not in it is text.
var places = map[string]place{
	"text": placeCertain, "content": placeCertain, "thinking": placeCertain, "parts": placeCertain,
	"type": placeType, "role": placeSkip, "id": placeSkip, "status": placeSkip, "tool_call_id": placeSkip, "tool_use_id": placeSkip,
	"call_id": placeSkip, "cache_control": placeSkip, "signature": placeSkip, "thoughtSignature": placeSkip,
	"thought_signature": placeSkip, "citations": placeSkip, "annotations": placeSkip, "taskType": placeSkip,
	"outputDimensionality": placeSkip, "videoMetadata": placeSkip, "filename": placeSkip, "logprobs": placeSkip,
	"arguments": placeJSON, "input": placeJSON, "args": placeJSON, "response": placeJSON, "parameters": placeJSON,
	"input_schema": placeJSON, "schema": placeJSON, "tools": placeJSON,
	"mimeType": placeMime, "mime_type": placeMime, "media_type": placeMime, "format": placeMime,
	"detail":    placeDetail,
	"image_url": placeFile, "image": placeFile, "input_audio": placeFile, "audio": placeFile, "audio_url": placeFile,
	"video": placeFile, "video_url": placeFile, "inlineData": placeFile, "inline_data": placeFile, "fileData": placeFile,
	"file": placeFile, "document": placeFile, "document_url": placeFile, "source": placeFile, "file_data": placeFile,
	"data": placeBytes, "b64_json": placeBytes, "bytes": placeBytes,
	"url": placeAddress, "uri": placeAddress, "file_uri": placeAddress, "fileUri": placeAddress, "file_url": placeAddress,
	"file_id": placeAddress, "model": placeModel, "encrypted_content": placeCipher, "encrypted_index": placeCipher,
}

// content reads text, a list of parts, or one part. certain says that a string here is text whatever it looks like.
func (w *walk) content(hint kind, certain bool) {
	switch w.peek() {
	case '"':
		t := w.string()
		if certain || !encoded(t) {
			w.c.TextBytes += int64(t.n)
			return
		}
		w.file(hint, nil, t)
	case '[':
		w.enter()
		for n := 0; w.more(']', n); n++ {
			w.content(hint, certain)
		}
	case '{':
		w.part(hint)
	default:
		w.value()
	}
}

// part reads one part of a message, a message itself, or an object that holds a file. hint is the kind of file that the
// key above promised. Keys may come in any order, so a file is judged when the part is over.
func (w *walk) part(hint kind) {
	first := len(w.media)
	var kindOf, mime, address, detail []byte
	var data text
	named := kindNone
	w.enter()
	for n := 0; w.more('}', n); n++ {
		k := w.key()
		name := k.raw
		if k.escaped {
			name = []byte(k.decode())
		}
		c := w.peek()
		switch p := places[string(name)]; p {
		case placeSkip:
			w.value()
		case placeJSON:
			switch c {
			case '"':
				w.c.JSONBytes += int64(w.string().n)
			case '{', '[':
				w.json()
			default:
				w.value()
			}
		case placeType:
			kindOf = w.value().text.raw
		case placeMime:
			mime = w.value().text.raw
		case placeDetail:
			detail = w.value().text.raw
		case placeCipher:
			w.c.TextBytes += int64(w.value().text.n) / 4 * 3
		case placeModel:
			m := mark{role: roleModel, parent: -1, from: w.i, inner: true}
			w.value()
			if w.e.dialect.name == Gemini {
				w.mark(m)
			}
		case placeAddress, placeBytes, placeFile:
			inner := kindByName(name)
			switch {
			case c == '"':
				t := w.string()
				switch {
				case p == placeBytes, encoded(t), bytes.HasPrefix(t.raw, []byte("data:")), p == placeFile && string(name) == "file_data":
					if data.raw != nil {
						w.file(hint, mime, data)
					}
					data = t
				case p == placeFile && inner == kindSome:
					w.c.TextBytes += int64(t.n) // the source of a search result is a plain address
				default:
					address = t.raw
				}
				named = max(named, inner)
			case p == placeFile && c == '{':
				if inner == kindSome && kindByType(kindOf) > kindSome {
					inner = kindByType(kindOf)
				}
				w.part(inner)
			default:
				w.content(inner, false)
			}
		default:
			w.content(kindNone, p == placeCertain)
		}
	}
	if w.fault != "" {
		return
	}
	own := kindByType(kindOf)
	for _, k := range [...]kind{own, named} {
		if hint <= kindSome {
			hint = max(hint, k)
		}
	}
	switch {
	case data.raw != nil && string(kindOf) == "text", data.raw != nil && isText(mime) && !encoded(data):
		w.c.TextBytes += int64(data.n)
	case data.raw != nil && bytes.Contains(kindOf, []byte("thinking")):
		w.c.TextBytes += int64(data.n) / 4 * 3
	case data.raw != nil && hint == kindNone && len(mime) == 0 && !encoded(data):
		w.c.TextBytes += int64(data.n)
	case data.raw != nil:
		w.file(hint, mime, data)
	case address != nil && (hint != kindNone || len(mime) > 0):
		if k := kindByMime(mime); k != kindNone {
			hint = k
		}
		w.media = append(w.media, media{kind: hint})
	}
	// The type of a part judges what its nested object left open, and its detail goes for both.
	for i := first; i < len(w.media); i++ {
		if m := &w.media[i]; m.kind == kindSome && own > kindSome {
			m.kind = own
		}
		if string(detail) == "low" {
			w.media[i].low = true
		}
	}
}

// file adds an encoded file: bytes in base64 or a data: URL.
func (w *walk) file(hint kind, mime []byte, t text) {
	m, isText := readFile(hint, mime, t, len(w.media) < maxFiles)
	if isText {
		w.c.TextBytes += m.bytes
		return
	}
	w.media = append(w.media, m)
}

// encoded says whether a string can only be a file: a data: URL, or 256 letters of base64 without a break.
func encoded(t text) bool {
	const sure = 256
	if len(t.raw) < sure {
		return false
	}
	if bytes.HasPrefix(t.raw, []byte("data:")) {
		return true
	}
	for _, c := range t.raw[:sure] {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '+', c == '/', c == '-', c == '_', c == '=', c == '\\':
		default:
			return false
		}
	}
	return true
}
