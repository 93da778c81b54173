package provider

import (
	"bytes"
	"strings"

	"github.com/tidwall/gjson"
)

// chat reads a chunk of a chat or completion stream, or a whole answer: they differ in delta and message alone. Usage is
// taken wherever it comes: beside an empty list of choices, with content, with the finish, or from Groq's x_groq.
func (m *Meter) chat(doc gjson.Result) eventKind {
	var choices, usage gjson.Result
	filtered := false
	doc.ForEach(func(key, v gjson.Result) bool {
		switch key.Str {
		case "choices":
			choices = v
		case "usage":
			usage = v
		case "x_groq":
			m.tally.read(v.Get("usage"))
		case "model":
			clone(&m.model, v.Str)
		case "service_tier":
			clone(&m.tier, v.Str)
		case "prompt_filter_results":
			filtered = true
		}
		return true
	})
	m.tally.read(usage)
	none := choices.IsArray()
	choices.ForEach(func(_, c gjson.Result) bool {
		none = false
		m.choice(c)
		return true
	})
	if none && usage.IsObject() && !filtered {
		return eventUsageOnly
	}
	return eventPlain
}

var (
	deltaBegins = []byte(`"delta":{"content":"`)
	notFinished = []byte(`"finish_reason":null`)
)

// plainDelta reads, without parsing it, the chunk that nearly every event of a chat stream is: one choice with one piece of text, no finish
// and no usage. It is known by its braces: two are open before the delta and none opens after it, so that there is no other object in it.
// false: it may be something else, or its text has escapes, and has to be parsed.
func (m *Meter) plainDelta(data []byte) bool {
	at := bytes.Index(data, deltaBegins)
	if at < 0 || m.model == "" { // the first chunk tells the model
		return false
	}
	before, text := data[:at], data[at+len(deltaBegins):]
	end := bytes.IndexByte(text, '"')
	if end < 0 || bytes.IndexByte(text[:end], '\\') >= 0 {
		return false
	}
	after := text[end:]
	if bytes.Count(before, []byte("{")) != 2 || bytes.IndexByte(after, '{') >= 0 || !bytes.Contains(after, notFinished) ||
		bytes.Contains(before, []byte("error")) || bytes.Contains(after, []byte("error")) {
		return false
	}
	m.text += int64(end)
	return true
}

func (m *Meter) choice(c gjson.Result) {
	c.ForEach(func(key, v gjson.Result) bool {
		switch key.Str {
		case "delta", "message":
			m.message(v)
		case "text":
			m.produced(v)
		case "finish_reason":
			clone(&m.finish, v.Str)
		}
		return true
	})
}

func (m *Meter) message(msg gjson.Result) {
	var reasoning, again int64
	msg.ForEach(func(key, v gjson.Result) bool {
		switch key.Str {
		case "content", "refusal":
			m.produced(v)
		case "reasoning_content":
			reasoning = int64(len(v.Str))
		case "reasoning": // some servers send both names with the same text
			again = int64(len(v.Str))
		case "tool_calls":
			v.ForEach(func(_, call gjson.Result) bool {
				m.produced(call.Get("function.arguments"))
				return true
			})
		case "function_call":
			m.produced(v.Get("arguments"))
		case "audio":
			m.produced(v.Get("transcript"))
		}
		return true
	})
	m.text += max(reasoning, again)
}

// responsesEvent reads one event of the Responses API. Usage comes with the event that ends it.
func (m *Meter) responsesEvent(doc gjson.Result) eventKind {
	switch kind := doc.Get("type").Str; kind {
	case "response.completed", "response.incomplete":
		m.end = true
		m.outcome(doc.Get("response"))
	case "response.failed", "response.created", "response.in_progress", "response.queued":
		m.outcome(doc.Get("response"))
	case "response.image_generation_call.partial_image":
		m.text += partialImageText
	default:
		if !strings.HasSuffix(kind, ".delta") {
			break
		}
		if delta := doc.Get("delta"); hasSuffix(kind, "response.audio.delta", "response.output_audio.delta") {
			m.text += int64(len(delta.Str)) / audioPerText
		} else {
			m.produced(delta)
		}
	}
	return eventPlain
}

// outcome reads what a response object says beside its output: in a stream the output has been counted as it came.
func (m *Meter) outcome(response gjson.Result) (output gjson.Result) {
	var usage, model, tier, why, status gjson.Result
	pick(response, sought{"usage", &usage}, sought{"model", &model}, sought{"service_tier", &tier}, sought{"incomplete_details", &why},
		sought{"status", &status}, sought{"output", &output})
	m.tally.read(usage)
	clone(&m.model, model.Str)
	clone(&m.tier, tier.String())
	if reason := why.Get("reason").Str; reason != "" {
		clone(&m.finish, reason)
	} else if status.Str != "in_progress" && status.Str != "queued" {
		clone(&m.finish, status.Str)
	}
	return output
}

// response reads a whole answer of the Responses API.
func (m *Meter) response(doc gjson.Result) {
	m.outcome(doc).ForEach(func(_, item gjson.Result) bool {
		var kind, content, summary, arguments, input, code gjson.Result
		pick(item, sought{"type", &kind}, sought{"content", &content}, sought{"summary", &summary}, sought{"arguments", &arguments},
			sought{"input", &input}, sought{"code", &code})
		for _, v := range [...]gjson.Result{content, summary, arguments, input, code} {
			m.produced(v)
		}
		if kind.Str == "image_generation_call" {
			m.text += imageText
		}
		return true
	})
}

// mediaEvent reads one event of an image, speech or transcription stream, of OpenAI or Mistral.
func (m *Meter) mediaEvent(doc gjson.Result) eventKind {
	switch kind := doc.Get("type").Str; {
	case hasSuffix(kind, ".partial_image"):
		m.text += partialImageText
	case hasSuffix(kind, "image_generation.completed", "image_edit.completed"):
		m.end = true
		m.text += imageText
		m.billed(doc)
	case kind == "speech.audio.delta":
		m.text += int64(len(doc.Get("audio").Str)) / audioPerText
	case hasSuffix(kind, "text.delta"):
		m.produced(firstOf(doc, "delta", "text"))
	case hasSuffix(kind, "speech.audio.done", "transcript.text.done", "transcription.done"):
		m.end = true
		m.billed(doc)
	}
	return eventPlain
}

// conversationsEvent reads one event of Mistral's conversations.
func (m *Meter) conversationsEvent(doc gjson.Result) eventKind {
	switch doc.Get("type").Str {
	case "message.output.delta":
		if content := doc.Get("content"); content.IsObject() {
			m.produced(firstOf(content, "text", "thinking"))
		} else {
			m.produced(content)
		}
		clone(&m.model, doc.Get("model").Str)
	case "function.call.delta":
		m.produced(doc.Get("arguments"))
	case "conversation.response.done":
		m.end = true
		m.billed(doc)
	}
	return eventPlain
}
