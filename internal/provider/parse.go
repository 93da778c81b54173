package provider

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// ErrNotJSON says that a body is not a JSON object.
var ErrNotJSON = errors.New("body is not a JSON object")

// Parse reads what a request costs from its body, in one walk. It returns ErrNotJSON (wrapped, with the place) for
// anything but one JSON object of at most 1,000 levels; missing or odd fields are left at zero, because it is the
// provider who judges them. Where a field stands twice the last one counts, as it does for servers; messages count each
// time. Bodies of endpoints that are not read (GET, tools) may be anything. A form gives ErrNotForm: use ParseForm.
//
// The Call keeps a reference to body for Rewrite.
func (e *Endpoint) Parse(path string, body []byte) (Call, error) {
	c := Call{Choices: 1, Stream: e.streams, Continues: e.continues, silent: e.silent}
	if e.form == formAny {
		return c, nil
	}
	if e.form == formMultipart {
		return c, fmt.Errorf("read %s request: %w", e.name, ErrNotForm)
	}
	w := walk{scanner: scanner{b: body}, e: e, c: &c, plan: &plan{body: body}}
	w.plan.marks = w.plan.room[:0]
	if w.peek() != '{' {
		w.fail("does not begin with {")
	}
	w.object(e.fields, -1)
	w.end()
	if w.fault != "" {
		return Call{}, fmt.Errorf("read %s %s request: %w: it %s (byte %d)", e.dialect.name, e.name, ErrNotJSON, w.fault, w.at)
	}
	if e.dialect.name == Gemini {
		// The path decides; interactions have the model in the body.
		if _, model, _, ok := geminiPath(path); ok {
			c.Model = model
		}
		c.Model = strings.TrimPrefix(c.Model, "models/")
	}
	w.finish()
	c.plan = w.plan
	return c, nil
}

// maxMarks bounds how often the few fields that Rewrite may change can be repeated.
const maxMarks = 64

// walk reads one request.
type walk struct {
	scanner
	e    *Endpoint
	c    *Call
	plan *plan

	marked        int // fields that Rewrite may change, each time they stand there
	media         []media
	agent         string // the model is this agent's
	newer, older  int64  // chat's two caps
	prompts       int64  // prompts answered one by one
	best          int64  // candidates made for each
	size, quality string // of an image to be made
}

// object reads the fields of a request or of a roleConfig object; the next byte is its opening brace. parent is the
// mark of the object, -1 at the top.
func (w *walk) object(fields map[string]role, parent int) {
	if w.fault != "" {
		return
	}
	w.enter()
	n := 0
	for ; w.more('}', n); n++ {
		w.peek()
		from := w.i
		k := w.key()
		name := k.raw
		if k.escaped {
			name = []byte(k.decode())
		}
		r := fields[string(name)]
		if r == roleNone && parent < 0 {
			w.lookalike(name)
		}
		w.peek()
		m := mark{role: r, parent: parent, key: from, from: w.i}
		if r == roleCap {
			m.older = string(name) == "max_tokens"
		}
		w.field(r, m)
	}
	if parent < 0 {
		w.plan.end, w.plan.members = w.i-1, n
	}
}

// lookalike refuses a field that some servers (those written in Go) read as one that is judged here, and others do not.
func (w *walk) lookalike(name []byte) {
	if w.e.dialect.name != OpenAI {
		return
	}
	for _, guarded := range [...]string{"model", "stream", "n", "max_tokens", "max_completion_tokens", "max_output_tokens", "best_of"} {
		if len(name) >= len(guarded) && bytes.EqualFold(name, []byte(guarded)) && w.e.fields[guarded] != roleNone {
			w.c.Refuse = fmt.Sprintf("the field %q can be taken for %q: spell it so", name, guarded)
		}
	}
}

// mark adds what Rewrite may have to change; the walk stands behind the value.
func (w *walk) mark(m mark) int {
	m.to = w.i
	if !m.inner {
		if w.marked++; w.marked > maxMarks {
			w.fail("has the same fields again and again")
			return 0
		}
	}
	w.plan.marks = append(w.plan.marks, m)
	return len(w.plan.marks) - 1
}

// field reads the value of one field; the next byte is the value's first.
func (w *walk) field(r role, m mark) {
	c := w.c
	switch r {
	case roleNone:
		w.value()
	case roleModel:
		c.Model = w.value().string()
		w.mark(m)
	case roleAgent:
		w.agent = w.value().string()
	case roleStream:
		c.Stream = w.value().truth() || w.e.streams
	case roleCap:
		v := w.value()
		m.null = v.kind == 'n'
		n := v.whole()
		if m.older {
			w.older = n
		} else {
			w.newer = n
		}
		w.mark(m)
	case roleChoices:
		c.Choices = max(w.value().whole(), 1)
	case roleBestOf:
		w.best = w.value().whole()
	case roleTier:
		c.Tier = w.value().string()
	case roleSpeed:
		if s := w.value().string(); s != "" && s != "standard" {
			c.Tier = s
		}
	case roleUser:
		c.User = w.value().string()
	case roleMetadata:
		w.nested(m, metadataFields)
	case roleContinues:
		if v := w.value(); v.kind != 'n' && (v.kind != '"' || v.text.n > 0) {
			c.Continues = true
		}
	case roleBackground:
		if w.value().truth() {
			c.Refuse = "a background call is billed after its answer: send it without background"
		}
	case roleUsageOption:
		w.nested(m, usageOptionFields)
	case roleInclude:
		c.WantsUsage = w.value().truth()
		w.mark(m)
	case roleConfig:
		if w.e.dialect.name == Mistral {
			w.nested(m, completionArgFields)
		} else {
			w.nested(m, configFields)
		}
	case roleGenerate:
		w.nested(m, w.e.fields)
	case roleMessages:
		w.messages()
	case roleSystem:
		if w.peek() != 'n' {
			c.Messages++
		}
		w.content(kindNone, true)
	case rolePrompts:
		w.prompts = w.tokensOrText()
	case roleText:
		w.tokensOrText()
	case roleTools:
		w.tools()
	case roleSchema:
		if c := w.peek(); c == '{' || c == '[' {
			w.json()
		} else {
			w.value()
		}
	case roleContent:
		w.content(kindNone, true)
	case roleImageSize:
		w.size = w.value().string()
	case roleImageQuality:
		w.quality = w.value().string()
	}
}

// nested reads an object with fields of its own, or passes whatever else stands there. The mark of the object comes
// before the marks of its fields.
func (w *walk) nested(m mark, fields map[string]role) {
	i := w.mark(m)
	if w.peek() == '{' {
		w.object(fields, i)
		w.plan.marks[i].object = true
	} else {
		w.value()
	}
	w.plan.marks[i].to = w.i
}

// messages reads a list of messages, one message without its list, or a text that stands for one.
func (w *walk) messages() {
	if w.peek() != '[' {
		if w.peek() != 'n' {
			w.c.Messages++
		}
		w.content(kindNone, true)
		return
	}
	w.enter()
	for n := 0; w.more(']', n); n++ {
		w.c.Messages++
		w.content(kindNone, true)
	}
}

// tokensOrText reads a prompt: a text, a list of texts, of tokens or of lists of tokens. It returns how many prompts
// there were. Each token counts as four bytes of text.
func (w *walk) tokensOrText() (prompts int64) {
	switch w.peek() {
	case '"':
		w.c.TextBytes += int64(w.string().n)
		return 1
	case '[':
	default:
		w.value()
		return 0
	}
	w.enter()
	tokens := false
	for n := 0; w.more(']', n); n++ {
		switch w.peek() {
		case '[':
			prompts += max(w.tokensOrText(), 1)
		case '{':
			w.content(kindNone, true) // chat-like input of compatible servers
			prompts++
		default:
			switch v := w.value(); v.kind {
			case '0':
				w.c.TextBytes += 4
				tokens = true
			case '"':
				w.c.TextBytes += int64(v.text.n)
				prompts++
			}
		}
	}
	if tokens {
		prompts++
	}
	return prompts
}

// json passes a value and counts its bytes without the white space between them.
func (w *walk) json() {
	w.peek()
	from, space := w.i, w.space
	w.value()
	if w.fault == "" {
		w.c.JSONBytes += int64(w.i - from - (w.space - space))
	}
}

// tools reads a list of tools. One entry at Google may declare many functions.
func (w *walk) tools() {
	if w.peek() != '[' {
		w.value()
		return
	}
	from, space := w.i, w.space
	w.enter()
	for n := 0; w.more(']', n); n++ {
		if w.peek() != '{' {
			w.value()
			continue
		}
		w.enter()
		declared := int64(0)
		for k := 0; w.more('}', k); k++ {
			name := w.key()
			if w.peek() != '[' || string(name.raw) != "functionDeclarations" && string(name.raw) != "function_declarations" {
				w.value()
				continue
			}
			w.enter()
			for ; w.more(']', int(declared)); declared++ {
				w.value()
			}
		}
		w.c.Tools += max(declared, 1)
	}
	if w.fault == "" {
		w.c.JSONBytes += int64(w.i - from - (w.space - space))
	}
}

// finish works out what needs the whole request.
func (w *walk) finish() {
	c := w.c
	if w.agent != "" {
		w.plan.agent = true
		if c.Model == "" {
			c.Model = w.agent
		}
	}
	// Of two caps the larger counts: newer servers go by one name, older by the other.
	c.MaxOutput = max(w.newer, w.older)
	// Every prompt is answered, and every candidate is billed.
	c.Choices = times(max(c.Choices, w.best), max(w.prompts, 1))
	for i := range w.media {
		c.MediaTokens = min(c.MediaTokens+w.e.dialect.mediaTokens(c.Model, &w.media[i]), maxCount)
	}
	if w.e.implied != nil {
		c.MaxOutput = w.e.implied(w)
	}
}
