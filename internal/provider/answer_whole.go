package provider

import "github.com/tidwall/gjson"

// chatWalk reads a whole chat answer in the same walk that checks its grammar: the ordinary answer is looked at once.
type chatWalk struct {
	scanner
	m           *Meter
	text        int64
	model, tier string
	finish      string
	usage, groq gjson.Result
	choices     int  // lists of choices
	odd         bool // something that gjson's reading of JSON has to decide
}

// wholeChat reads body as chat does. ok is false when it is no JSON object or an odd one; then nothing has been read.
func (m *Meter) wholeChat(body []byte) (ok bool) {
	w := chatWalk{scanner: scanner{b: body}, m: m}
	if w.peek() != '{' {
		return false
	}
	w.object(w.answer)
	if w.end(); w.fault != "" || w.odd || w.choices > 1 {
		return false
	}
	m.tally.read(w.groq.Get("usage"))
	m.tally.read(w.usage)
	clone(&m.model, w.model)
	clone(&m.tier, w.tier)
	clone(&m.finish, w.finish)
	m.text += w.text
	return true
}

// object passes an object and hands each member to read, which must pass the value; the next byte is its opening brace.
func (w *chatWalk) object(read func(name string)) {
	w.enter()
	for n := 0; w.more('}', n); n++ {
		k := w.key()
		w.odd = w.odd || k.escaped
		read(view(k.raw))
	}
}

// list passes a list and reads each object in it; the next byte is its opening bracket.
func (w *chatWalk) list(read func(name string)) {
	w.enter()
	for n := 0; w.more(']', n); n++ {
		if w.peek() == '{' {
			w.object(read)
		} else {
			w.value()
		}
	}
}

func (w *chatWalk) answer(name string) {
	switch name {
	case "choices":
		w.choices++
		if w.peek() == '[' {
			w.list(w.choice)
			return
		}
		w.odd = true
	case "usage":
		w.usage = w.raw()
		return
	case "x_groq":
		w.odd = w.odd || w.groq.Exists()
		w.groq = w.raw()
		return
	case "model":
		w.word(&w.model)
		return
	case "service_tier":
		w.word(&w.tier)
		return
	}
	w.value()
}

func (w *chatWalk) choice(name string) {
	switch name {
	case "delta", "message":
		if w.peek() == '{' {
			w.message()
			return
		}
	case "text":
		w.produced()
		return
	case "finish_reason":
		w.word(&w.finish)
		return
	}
	w.value()
}

func (w *chatWalk) message() {
	var reasoning, again int64
	w.object(func(name string) {
		switch name {
		case "content", "refusal":
			w.produced()
		case "reasoning_content":
			reasoning = int64(w.value().text.n)
		case "reasoning": // some servers send both names with the same text
			again = int64(w.value().text.n)
		case "tool_calls", "function_call", "audio": // rarer and deeper
			w.odd = true
			w.value()
		default:
			w.value()
		}
	})
	w.text += max(reasoning, again)
}

// produced counts a text; a list of parts is for gjson.
func (w *chatWalk) produced() {
	v := w.value()
	w.text += int64(v.text.n)
	w.odd = w.odd || v.kind == '[' || v.kind == '{'
}

// word keeps a string that is not empty.
func (w *chatWalk) word(into *string) {
	v := w.value()
	if v.kind == '"' && len(v.text.raw) > 0 {
		*into = view(v.text.raw)
		w.odd = w.odd || v.text.escaped
	}
}

// raw passes a value of any kind.
func (w *chatWalk) raw() gjson.Result {
	w.peek()
	from := w.i
	w.value()
	if w.fault != "" {
		return gjson.Result{}
	}
	return gjson.Parse(view(w.b[from:w.i]))
}
