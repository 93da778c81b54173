package provider

import (
	"strings"

	"github.com/tidwall/gjson"
)

// generate reads one chunk of a generateContent stream or a whole answer; they have the same shape. A stream has no last
// event of its own: it is done when a finish reason has come and the bytes end.
func (m *Meter) generate(doc gjson.Result) eventKind {
	doc.ForEach(func(key, v gjson.Result) bool {
		switch key.Str {
		case "usageMetadata":
			m.tally.read(v)
			clone(&m.tier, v.Get("trafficType").Str)
		case "modelVersion":
			clone(&m.model, v.Str)
		case "candidates":
			v.ForEach(func(_, c gjson.Result) bool {
				m.candidate(c)
				return true
			})
		case "promptFeedback":
			m.finished(v.Get("blockReason").Str)
		}
		return true
	})
	return eventPlain
}

func (m *Meter) candidate(c gjson.Result) {
	c.ForEach(func(key, v gjson.Result) bool {
		switch key.Str {
		case "content":
			v.Get("parts").ForEach(func(_, part gjson.Result) bool {
				m.part(part)
				return true
			})
		case "finishReason":
			if v.Str != "FINISH_REASON_UNSPECIFIED" {
				m.finished(v.Str)
			}
		}
		return true
	})
}

func (m *Meter) finished(reason string) {
	clone(&m.finish, reason)
	m.stop = m.stop || reason != ""
}

func (m *Meter) part(part gjson.Result) {
	part.ForEach(func(key, v gjson.Result) bool {
		switch key.Str {
		case "text":
			m.produced(v)
		case "functionCall", "function_call":
			m.produced(v.Get("args"))
		case "executableCode", "executable_code":
			m.produced(v.Get("code"))
		case "inlineData", "inline_data":
			m.media(firstOf(v, "mimeType", "mime_type").Str, v.Get("data").Str)
		}
		return true
	})
}

// media counts a picture or sound that came as base64.
func (m *Meter) media(kind, data string) {
	switch {
	case strings.HasPrefix(kind, "image/"):
		m.text += imageText
	case strings.HasPrefix(kind, "audio/"):
		m.text += int64(len(data)) / audioPerText
	}
}

// interactionsEvent reads one event of an interaction. The older name of its last event has no "d".
func (m *Meter) interactionsEvent(doc gjson.Result) eventKind {
	switch doc.Get("event_type").Str {
	case "interaction.completed", "interaction.complete":
		m.end = true
		m.state(doc.Get("interaction"))
	case "interaction.created", "interaction.start":
		m.state(doc.Get("interaction"))
	case "step.delta", "content.delta":
		m.step(doc.Get("delta"))
	}
	return eventPlain
}

func (m *Meter) state(interaction gjson.Result) {
	m.billed(interaction)
	if status := interaction.Get("status").Str; status != "in_progress" {
		clone(&m.finish, status)
	}
}

// step counts one part of an interaction's output: text, a summary of thoughts, arguments, media. What a tool of the
// provider's found is its result and not produced.
func (m *Meter) step(part gjson.Result) {
	m.produced(part.Get("text"))
	m.produced(part.Get("content.text"))
	m.produced(part.Get("partial_arguments"))
	m.produced(part.Get("arguments"))
	switch part.Get("type").Str {
	case "image":
		m.media("image/", "")
	case "audio":
		m.media("audio/", part.Get("data").Str)
	}
}

// interaction reads a whole interaction.
func (m *Meter) interaction(doc gjson.Result) {
	m.state(doc)
	for _, name := range [...]string{"outputs", "steps"} {
		doc.Get(name).ForEach(func(_, part gjson.Result) bool {
			if content := part.Get("content"); content.IsArray() {
				content.ForEach(func(_, c gjson.Result) bool {
					m.step(c)
					return true
				})
				return true
			}
			m.step(part)
			return true
		})
	}
}
