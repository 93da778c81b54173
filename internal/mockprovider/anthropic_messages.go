package mockprovider

import (
	"net/http"
	"strings"

	"github.com/tidwall/gjson"
)

var anthropicAPI = api{
	speaks: &anthropic,
	paths: map[string]*endpoint{
		"/v1/messages":              &messages,
		"/v1/messages/count_tokens": &countTokens,
		"/v1/models":                &anthropicModels,
		"/v1/chat/completions":      anthropicStyle.endpoint(&anthropicCompatible),
	},
	route: func(path string) (*endpoint, string) {
		name, ok := strings.CutPrefix(path, "/v1/models/")
		if !ok || name == "" {
			return nil, ""
		}
		return &endpoint{name: "models", speaks: &anthropic, get: true, free: true, plain: func(*turn) any { return anthropicModel(name) }}, name
	},
}

// anthropicCompatible speaks at the endpoint that is compatible with OpenAI: its shape of errors, Anthropic's words.
var anthropicCompatible = speaker{
	idHeader: "Request-Id",
	limits:   anthropic.limits,
	throttled: func(h http.Header, id, model string, r refusal) any {
		_ = anthropic.throttled(h, id, model, r) // for its headers
		return openAIErrorBody("This request would exceed your account's rate limit. Please try again later.", "invalid_request_error", "rate_limit_error")
	},
	fault: func(id string, f fault) (int, any) {
		status, body := anthropic.fault(id, f)
		e := body.(anthropicError)
		return status, openAIErrorBody(e.Error.Message, "invalid_request_error", e.Error.Type)
	},
	refuse: func(id, model, kind string) (int, any) {
		status, body := anthropic.refuse(id, model, kind)
		e := body.(anthropicError)
		code := e.Error.Type
		if detail := e.Error.Details["error_code"]; detail != "" {
			code = detail
		}
		return status, openAIErrorBody(e.Error.Message, "invalid_request_error", code)
	},
	streamError: func(t *turn) { t.event("", openAIErrorBody("Overloaded", "invalid_request_error", "overloaded_error")) },
}

var messages = endpoint{
	name: "messages", speaks: &anthropic,
	read: func(doc gjson.Result, q *query) *fault {
		if q.cap = count(doc.Get("max_tokens")); q.cap < 1 {
			return &fault{http.StatusBadRequest, "max_tokens: Field required"}
		}
		readAnthropicTools(doc, q)
		return nil
	},
	plain: func(t *turn) any {
		content := object{{"type", "text"}, {"text", t.text()}, {"citations", nil}}
		if t.q.tool != nil {
			content = object{{"type", "tool_use"}, {"id", "toolu_" + t.id}, {"name", t.q.tool.name}, {"input", gjson.Parse(t.q.tool.arguments).Value()}}
		}
		return anthropicMessage(t, list{content}, anthropicStop(t), t.usage(anthropicUsage(t.bill)))
	},
	stream: streamMessage,
}

func readAnthropicTools(doc gjson.Result, q *query) {
	answered := false
	last(doc.Get("messages")).Get("content").ForEach(func(_, block gjson.Result) bool {
		answered = answered || block.Get("type").Str == "tool_result"
		return !answered
	})
	if answered || doc.Get("tool_choice.type").Str == "none" {
		return
	}
	doc.Get("tools").ForEach(func(_, tool gjson.Result) bool {
		if schema := tool.Get("input_schema"); schema.Exists() {
			q.tool = callOf(tool.Get("name").Str, schema)
		}
		return q.tool == nil
	})
}

// anthropicUsage leaves what was read from the cache or written to it out of input_tokens.
func anthropicUsage(b Bill) object {
	return object{
		{"input_tokens", b.Input - b.CacheRead - b.CacheWrite},
		{"cache_creation_input_tokens", b.CacheWrite},
		{"cache_read_input_tokens", b.CacheRead},
		{"cache_creation", object{{"ephemeral_5m_input_tokens", b.CacheWrite}, {"ephemeral_1h_input_tokens", 0}}},
		{"output_tokens", b.Output},
		{"output_tokens_details", present(b.Reasoning > 0, object{{"thinking_tokens", b.Reasoning}})},
		{"service_tier", "standard"},
	}
}

func anthropicMessage(t *turn, content list, stop, usage any) object {
	return object{{"id", "msg_" + t.id}, {"type", "message"}, {"role", "assistant"}, {"model", t.q.model}, {"content", content},
		{"stop_reason", stop}, {"stop_sequence", nil}, {"usage", usage}}
}

func anthropicStop(t *turn) string {
	switch {
	case t.q.tool != nil:
		return "tool_use"
	case t.capped():
		return "max_tokens"
	}
	return "end_turn"
}

// interim is how many pieces a stream has before a message_delta tells what was used so far.
const interim = 16

func streamMessage(t *turn) {
	send := func(name string, rest ...member) { t.event(name, append(object{{"type", name}}, rest...)) }
	start := t.bill
	start.Output, start.Reasoning = min(start.Output, 1), 0
	send("message_start", member{"message", anthropicMessage(t, list{}, nil, t.usage(anthropicUsage(start)))})
	index := member{"index", 0}
	block, kind, field := object{{"type", "text"}, {"text", ""}}, "text_delta", "text"
	if t.q.tool != nil {
		block = object{{"type", "tool_use"}, {"id", "toolu_" + t.id}, {"name", t.q.tool.name}, {"input", object{}}}
		kind, field = "input_json_delta", "partial_json"
	}
	send("content_block_start", index, member{"content_block", block})
	send("ping")
	delta := func(stop, usage any) {
		send("message_delta", member{"delta", object{{"stop_reason", stop}, {"stop_sequence", nil}}}, member{"usage", usage})
	}
	for piece := range t.pieces() {
		send("content_block_delta", index, member{"delta", object{{"type", kind}, {field, piece}}})
		if t.shown%interim == 0 {
			delta(nil, t.usage(anthropicInterim(t)))
		}
	}
	send("content_block_stop", index)
	delta(anthropicStop(t), t.usage(anthropicUsage(t.bill)))
	send("message_stop")
}

// anthropicInterim has the output so far; what the start has told may be null here.
func anthropicInterim(t *turn) object {
	u := object{{"output_tokens", t.made.Output}}
	if t.fault.is(FaultNullUsage) {
		u = append(object{{"input_tokens", nil}, {"cache_creation_input_tokens", nil}, {"cache_read_input_tokens", nil}}, u...)
	}
	return u
}

var countTokens = endpoint{
	name: "count_tokens", speaks: &anthropic, free: true,
	read:  func(gjson.Result, *query) *fault { return nil },
	plain: func(t *turn) any { return object{{"input_tokens", t.q.prompt}} },
}

func anthropicModel(name string) object {
	return object{{"type", "model"}, {"id", name}, {"display_name", name}, {"created_at", "2026-01-01T00:00:00Z"}}
}

var anthropicModels = endpoint{name: "models", speaks: &anthropic, get: true, free: true, plain: func(t *turn) any {
	var data list
	for _, name := range t.u.Models {
		data = append(data, anthropicModel(name))
	}
	return object{{"data", data}, {"has_more", false}, {"first_id", t.u.Models[0]}, {"last_id", t.u.Models[len(t.u.Models)-1]}}
}}
