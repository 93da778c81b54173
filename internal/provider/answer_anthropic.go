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
	usage := doc.Get("usage")
	m.tally.read(usage)
	clone(&m.model, doc.Get("model").Str)
	if usage.IsObject() && m.tier != "fast" { // a delta has the counts and perhaps no speed
		clone(&m.tier, m.tally.bill.tierOf(doc))
	}
}

// blocks counts the content of a whole message.
func (m *Meter) blocks(content gjson.Result) {
	content.ForEach(func(_, block gjson.Result) bool {
		switch block.Get("type").Str {
		case "text":
			m.produced(block.Get("text"))
		case "thinking":
			m.produced(block.Get("thinking"))
		case "tool_use", "server_tool_use":
			m.produced(block.Get("input"))
		}
		return true
	})
}
