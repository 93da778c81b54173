package provider

import "github.com/tidwall/gjson"

// messagesEvent reads one event of an Anthropic stream: input and cache counts come with message_start, cumulative
// counts with each message_delta, which wins field by field. (Compatible servers put the whole prompt into the first and
// its true split into the second.)
func (m *Meter) messagesEvent(doc gjson.Result) eventKind {
	switch doc.Get("type").Str {
	case "ping":
		return eventQuiet
	case "message_start":
		m.messageUsage(doc.Get("message"))
	case "content_block_start":
		block := doc.Get("content_block")
		m.produced(block.Get("text"))
		m.produced(block.Get("thinking"))
	case "content_block_delta":
		doc.Get("delta").ForEach(func(key, v gjson.Result) bool {
			switch key.Str {
			case "text", "thinking", "partial_json":
				m.produced(v)
			}
			return true
		})
	case "message_delta":
		m.messageUsage(doc)
		clone(&m.finish, doc.Get("delta.stop_reason").Str)
	case "message_stop":
		m.end = true
	}
	return eventPlain
}

// messageUsage reads usage, model and tier from a message or a message_delta.
func (m *Meter) messageUsage(doc gjson.Result) {
	var usage, model gjson.Result
	pick(doc, sought{"usage", &usage}, sought{"model", &model})
	m.messageBill(usage, model)
}

func (m *Meter) messageBill(usage, model gjson.Result) {
	m.tally.read(usage)
	clone(&m.model, model.Str)
	if usage.IsObject() && m.tier != "fast" { // a delta has the counts and perhaps no speed
		var speed, tier gjson.Result
		pick(usage, sought{"speed", &speed}, sought{"service_tier", &tier})
		if speed.Str == "fast" {
			tier = speed
		}
		clone(&m.tier, tier.String())
	}
}

// wholeMessage reads a whole message.
func (m *Meter) wholeMessage(doc gjson.Result) {
	var usage, model, content, reason gjson.Result
	pick(doc, sought{"usage", &usage}, sought{"model", &model}, sought{"content", &content}, sought{"stop_reason", &reason})
	m.messageBill(usage, model)
	m.blocks(content)
	clone(&m.finish, reason.Str)
}

// blocks counts the content of a whole message.
func (m *Meter) blocks(content gjson.Result) {
	content.ForEach(func(_, block gjson.Result) bool {
		var kind, text, thinking, input gjson.Result
		pick(block, sought{"type", &kind}, sought{"text", &text}, sought{"thinking", &thinking}, sought{"input", &input})
		switch kind.Str {
		case "text":
			m.produced(text)
		case "thinking":
			m.produced(thinking)
		case "tool_use", "server_tool_use":
			m.produced(input)
		}
		return true
	})
}
