package mockprovider

import (
	"strings"

	"github.com/tidwall/gjson"
)

// responses is the Responses API of OpenAI. A response that goes on from an earlier one pays for all the turns before it,
// although they are not in its body.
var responses = endpoint{
	name: "responses", speaks: &responsesWords, read: readResponses,
	plain: func(t *turn) any {
		t.s.remember("resp_"+t.id, t.bill.Input+t.bill.Output)
		status, _ := responseStatus(t)
		return responseObject(t, status, list{responseItem(t, "completed", t.text())}, t.usage(responseUsage(t.bill)))
	},
	stream: streamResponse,
}

// responsesWords are OpenAI's own, except that a stream ends with a failed response.
var responsesWords = func() speaker {
	words := openai
	words.streamError = func(t *turn) {
		if t.events == 0 { // both forms are seen: the nested one, and the one of the reference
			t.event("error", object{{"type", "error"}, {"error", object{{"type", "service_unavailable_error"},
				{"code", "server_is_overloaded"}, {"message", openAIOverload}, {"param", nil}}}, {"sequence_number", t.number()}})
		} else {
			t.event("error", object{{"type", "error"}, {"code", "server_error"}, {"message", openAIOverload}, {"param", nil}, {"sequence_number", t.number()}})
		}
		failed := responseObject(t, "failed", list{}, nil)
		for i := range failed {
			if failed[i].name == "error" {
				failed[i].value = object{{"code", "server_error"}, {"message", openAIOverload}}
			}
		}
		t.event("response.failed", object{{"type", "response.failed"}, {"sequence_number", t.number()}, {"response", failed}})
	}
	return words
}()

func readResponses(doc gjson.Result, q *query) *fault {
	q.cap = count(doc.Get("max_output_tokens"))
	q.previous = doc.Get("previous_response_id").Str
	if last(doc.Get("input")).Get("type").Str == "function_call_output" || doc.Get("tool_choice").Str == "none" {
		return nil
	}
	doc.Get("tools").ForEach(func(_, tool gjson.Result) bool {
		if name := tool.Get("name").Str; name != "" && tool.Get("type").Str == "function" {
			q.tool = callOf(name, tool.Get("parameters"))
		}
		return q.tool == nil
	})
	return nil
}

func responseUsage(b Bill) object {
	return object{
		{"input_tokens", b.Input},
		{"input_tokens_details", object{{"cached_tokens", b.CacheRead}, {"cache_write_tokens", b.CacheWrite}}},
		{"output_tokens", b.Output},
		{"output_tokens_details", object{{"reasoning_tokens", b.Reasoning}}},
		{"total_tokens", b.Input + b.Output},
	}
}

// responseStatus is how the answer ends, and the reason why it is not whole.
func responseStatus(t *turn) (status string, details any) {
	if t.capped() && t.q.tool == nil {
		return "incomplete", object{{"reason", "max_output_tokens"}}
	}
	return "completed", nil
}

func responseObject(t *turn, status string, output list, usage any) object {
	var incomplete any
	if status == "incomplete" {
		_, incomplete = responseStatus(t)
	}
	return object{
		{"id", "resp_" + t.id}, {"object", "response"}, {"created_at", t.created}, {"status", status}, {"background", false},
		{"error", nil}, {"incomplete_details", incomplete}, {"instructions", nil}, {"max_output_tokens", orNull(t.q.cap > 0, t.q.cap)},
		{"metadata", object{}}, {"model", t.q.model}, {"output", output}, {"parallel_tool_calls", true},
		{"previous_response_id", orNull(t.q.previous != "", t.q.previous)},
		{"reasoning", object{{"effort", nil}, {"summary", nil}}}, {"service_tier", "default"}, {"store", true}, {"temperature", 1},
		{"text", object{{"format", object{{"type", "text"}}}}}, {"tool_choice", "auto"}, {"tools", list{}}, {"top_p", 1},
		{"truncation", "disabled"}, {"usage", usage}, {"user", nil},
	}
}

// responseItem is the one item of the output: a message, or the call of a function.
func responseItem(t *turn, status, text string) object {
	if t.q.tool != nil {
		if status == "completed" {
			text = t.q.tool.arguments
		}
		return object{{"id", "fc_" + t.id}, {"type", "function_call"}, {"status", status}, {"arguments", text}, {"call_id", "call_" + t.id}, {"name", t.q.tool.name}}
	}
	content := list{}
	if status == "completed" {
		content = list{responsePart(text)}
	}
	return object{{"id", "msg_" + t.id}, {"type", "message"}, {"status", status}, {"content", content}, {"role", "assistant"}}
}

func responsePart(text string) object {
	return object{{"type", "output_text"}, {"annotations", list{}}, {"logprobs", list{}}, {"text", text}}
}

func streamResponse(t *turn) {
	send := func(name string, rest ...member) {
		t.event(name, append(object{{"type", name}, {"sequence_number", t.number()}}, rest...))
	}
	whole := func(name, status string, output list, usage any) {
		send(name, member{"response", responseObject(t, status, output, usage)})
	}
	whole("response.created", "in_progress", list{}, nil)
	whole("response.in_progress", "in_progress", list{}, nil)
	item := member{"item_id", "msg_" + t.id}
	where, part := member{"output_index", 0}, member{"content_index", 0}
	send("response.output_item.added", where, member{"item", responseItem(t, "in_progress", "")})
	var text strings.Builder
	if t.q.tool != nil {
		item.value = "fc_" + t.id
		for piece := range t.pieces() {
			send("response.function_call_arguments.delta", item, where, member{"delta", piece})
		}
		send("response.function_call_arguments.done", item, where, member{"name", t.q.tool.name}, member{"arguments", t.q.tool.arguments})
	} else {
		send("response.content_part.added", item, where, part, member{"part", responsePart("")})
		for piece := range t.pieces() {
			text.WriteString(piece)
			send("response.output_text.delta", item, where, part, member{"delta", piece}, member{"logprobs", list{}}, member{"obfuscation", "mO7kq"})
		}
		send("response.output_text.done", item, where, part, member{"text", text.String()}, member{"logprobs", list{}})
		send("response.content_part.done", item, where, part, member{"part", responsePart(text.String())})
	}
	done := responseItem(t, "completed", text.String())
	send("response.output_item.done", where, member{"item", done})
	status, _ := responseStatus(t)
	t.s.remember("resp_"+t.id, t.bill.Input+t.bill.Output)
	whole("response."+status, status, list{done}, t.usage(responseUsage(t.bill)))
}
