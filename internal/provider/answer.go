package provider

import (
	"bytes"
	"strings"
	"unsafe"

	"github.com/tidwall/gjson"
)

// verdict of one event, for the one who forwards it.
type eventKind uint8

const (
	eventPlain     eventKind = iota
	eventQuiet               // says nothing: a ping
	eventUsageOnly           // a chat chunk without choices that exists for its usage
)

// What media that was produced counts for, as text, where no usage came. An image is 1,056 tokens (OpenAI's medium
// quality at 1024², between Google's 1,290 and its own low of 272) and a partial one 100; audio is 25 tokens a second at
// 48,000 bytes a second, of which base64 makes 64,000.
const (
	imageText        = 4 * 1056
	partialImageText = 4 * 100
	audioPerText     = 64000 / (4 * 25)
)

// read says whether an answer of e has anything to read at all.
func (e *Endpoint) read() bool {
	return e.answer != answerNone || e.name == "count_tokens" || e.name == "moderations"
}

// bill is the shape of usage in e's answers.
func (e *Endpoint) bill() *bill {
	switch {
	case e.answer == answerMessages:
		return &anthropicBill
	case e.answer == answerInteractions:
		return &interactionsBill
	case e.dialect.name == Gemini:
		return &generateBill
	}
	return &openAIBill
}

// endsWithDone says whether data: [DONE] is the proper end of e's streams.
func (e *Endpoint) endsWithDone() bool {
	switch e.answer {
	case answerResponses, answerMessages, answerGenerate, answerInteractions:
		return false
	}
	return true
}

// event reads one event of a stream.
func (m *Meter) event(doc gjson.Result) eventKind {
	switch m.e.answer {
	case answerChat:
		return m.chat(doc)
	case answerResponses:
		return m.responsesEvent(doc)
	case answerMessages:
		return m.messagesEvent(doc)
	case answerGenerate:
		return m.generate(doc)
	case answerInteractions:
		return m.interactionsEvent(doc)
	case answerConversations:
		return m.conversationsEvent(doc)
	case answerImages, answerAudio:
		return m.mediaEvent(doc)
	}
	return eventPlain
}

// answer reads a whole answer.
func (m *Meter) answer(doc gjson.Result) {
	switch m.e.answer {
	case answerChat:
		m.chat(doc)
	case answerResponses:
		m.response(doc)
	case answerMessages:
		m.wholeMessage(doc)
	case answerGenerate:
		m.generate(doc)
	case answerInteractions:
		m.interaction(doc)
	case answerConversations:
		m.billed(doc)
		doc.Get("outputs").ForEach(func(_, o gjson.Result) bool {
			m.produced(o.Get("content"))
			m.produced(o.Get("arguments"))
			return true
		})
	case answerImages:
		if m.billed(doc); !m.tally.found {
			doc.Get("data").ForEach(func(_, _ gjson.Result) bool {
				m.text += imageText
				return true
			})
		}
	case answerAudio:
		m.billed(doc)
		m.produced(doc.Get("text"))
	case answerInput:
		m.billed(doc)
	}
}

// billed reads usage, model and tier from where a whole answer has them.
func (m *Meter) billed(doc gjson.Result) {
	b := m.tally.bill
	m.tally.read(doc.Get(b.at))
	clone(&m.model, doc.Get(b.model).Str)
	clone(&m.tier, b.tierOf(doc))
}

// produced counts text: a string, or parts with text in them, also nested ones such as Mistral's thinking.
func (m *Meter) produced(r gjson.Result) { m.producedIn(r, 0) }

// producedIn bounds how deep parts are followed: the answer decides, and the stack is not without end.
func (m *Meter) producedIn(r gjson.Result, depth int) {
	switch {
	case r.Type == gjson.String:
		m.text += int64(len(r.Str))
	case r.IsArray():
		r.ForEach(func(_, part gjson.Result) bool {
			if part.Type == gjson.String {
				m.text += int64(len(part.Str))
				return true
			}
			for _, name := range [...]string{"text", "thinking", "refusal", "transcript", "content"} {
				if v := part.Get(name); v.Exists() && depth < 8 {
					m.producedIn(v, depth+1)
					break
				}
			}
			return true
		})
	case r.IsObject(): // arguments that are JSON and not a string of it
		m.text += int64(len(r.Raw))
	}
}

// textKeys are the members of answers that hold produced text.
var textKeys = map[string]bool{"content": true, "text": true, "reasoning_content": true, "reasoning": true, "thinking": true,
	"arguments": true, "refusal": true, "transcript": true}

// cutText counts the text in a plain body that has not come to its end: every string under a name that holds text.
func (m *Meter) cutText() (n int64) {
	key, isKey := "", true
	for i, b := 0, m.body; i < len(b); i++ {
		switch b[i] {
		case '{', ',':
			isKey = true
		case ':':
			isKey = false
		case '"':
			from := i + 1
			for i++; i < len(b) && b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
			if s := b[from:min(i, len(b))]; isKey {
				key = view(s)
			} else if textKeys[key] {
				n += unescaped(s)
			}
		}
	}
	return n
}

// unescaped is the length of a JSON string's text; an escape that is cut short counts for nothing.
func unescaped(s []byte) (n int64) {
	for len(s) > 0 {
		k := bytes.IndexByte(s, '\\')
		if k < 0 {
			return n + int64(len(s))
		}
		n += int64(k)
		switch s = s[k:]; {
		case len(s) >= 6 && s[1] == 'u':
			n, s = n+1, s[6:]
		case len(s) >= 2 && s[1] != 'u':
			n, s = n+1, s[2:]
		default:
			return n
		}
	}
	return n
}

// sought is a member that is looked for in an object, and the place for it.
type sought struct {
	name string
	to   *gjson.Result
}

// pick reads several members of an object in one pass. Of a name that stands twice the first counts, as in Get.
func pick(obj gjson.Result, want ...sought) {
	obj.ForEach(func(key, v gjson.Result) bool {
		for i := range want {
			if w := &want[i]; w.name == key.Str {
				if !w.to.Exists() {
					*w.to = v
				}
				break
			}
		}
		return true
	})
}

// view is b as a string without a copy, for parsing; it must not outlive b.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// hasSuffix is for the types of events: response.output_text.delta.
func hasSuffix(s string, suffixes ...string) bool {
	for _, x := range suffixes {
		if strings.HasSuffix(s, x) {
			return true
		}
	}
	return false
}
