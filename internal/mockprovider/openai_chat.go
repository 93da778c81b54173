package mockprovider

import "github.com/tidwall/gjson"

// chatStyle is how one provider speaks the chat completions of OpenAI.
type chatStyle struct {
	prefix      string // of ids
	openai      bool   // service tier, fingerprint, obfuscation: what only OpenAI has
	usageAlways bool   // in the last piece of every stream, asked for or not (Mistral)
	usageLast   bool   // in the last piece and not in one of its own (Mistral, Gemini)
	thoughtless bool   // completion_tokens without reasoning, the total with it (Gemini)
	wholeCalls  bool   // a call of a function comes in one piece (Mistral)
}

var (
	openAIStyle    = chatStyle{prefix: "chatcmpl-", openai: true}
	anthropicStyle = chatStyle{prefix: "msg_"}
	geminiStyle    = chatStyle{usageLast: true, thoughtless: true}
	mistralStyle   = chatStyle{prefix: "cmpl-", usageAlways: true, usageLast: true, wholeCalls: true}
)

func (c chatStyle) endpoint(speaks *speaker) *endpoint {
	return &endpoint{name: "chat", speaks: speaks, read: readChat, plain: c.plain, stream: c.stream}
}

// readChat reads the chat request of OpenAI and of Mistral. max_tokens is the older name of the same cap.
func readChat(doc gjson.Result, q *query) *fault {
	q.cap = count(firstOf(doc, "max_completion_tokens", "max_tokens"))
	q.choices = max(count(doc.Get("n")), 1)
	q.wantsUsage = doc.Get("stream_options.include_usage").Bool()
	role := last(doc.Get("messages")).Get("role").Str
	if role == "tool" || role == "function" || doc.Get("tool_choice").Str == "none" {
		return nil
	}
	doc.Get("tools").ForEach(func(_, tool gjson.Result) bool {
		if f := tool.Get("function"); f.Get("name").Str != "" {
			q.tool = callOf(f.Get("name").Str, f.Get("parameters"))
		}
		return q.tool == nil
	})
	return nil
}

func (c chatStyle) usage(b Bill) object {
	completion := b.Output
	if c.thoughtless {
		completion -= b.Reasoning
	}
	u := object{{"prompt_tokens", b.Input}, {"completion_tokens", completion}, {"total_tokens", b.Input + b.Output}}
	if !c.openai {
		if b.CacheRead > 0 {
			u = append(u, member{"prompt_tokens_details", object{{"cached_tokens", b.CacheRead}}})
		}
		if b.Reasoning > 0 && !c.thoughtless {
			u = append(u, member{"completion_tokens_details", object{{"reasoning_tokens", b.Reasoning}}})
		}
		return u
	}
	return append(u,
		member{"prompt_tokens_details", object{{"cached_tokens", b.CacheRead}, {"cache_write_tokens", present(b.CacheWrite > 0, b.CacheWrite)}, {"audio_tokens", 0}}},
		member{"completion_tokens_details", object{{"reasoning_tokens", b.Reasoning}, {"audio_tokens", 0},
			{"accepted_prediction_tokens", 0}, {"rejected_prediction_tokens", 0}}})
}

func finishReason(t *turn) string {
	switch {
	case t.q.tool != nil:
		return "tool_calls"
	case t.capped():
		return "length"
	}
	return "stop"
}

func (c chatStyle) plain(t *turn) any {
	var choices list
	total, n := t.bill.Output-t.bill.Reasoning, t.q.choices
	for i := range n {
		message := object{{"role", "assistant"}, {"content", words(total*(i+1)/n - total*i/n)}}
		if t.q.tool != nil {
			message[1].value = orNull(!c.openai && c.wholeCalls, "")
			message = append(message, member{"tool_calls", list{c.call(t, t.q.tool.arguments)}})
		}
		if c.openai {
			message = append(message, member{"refusal", nil}, member{"annotations", list{}})
		}
		choices = append(choices, object{{"index", i}, {"message", message}, {"logprobs", present(c.openai, nil)}, {"finish_reason", finishReason(t)}})
	}
	return append(c.top(t, "chat.completion"), member{"choices", choices}, member{"usage", t.usage(c.usage(t.bill))})
}

func (c chatStyle) top(t *turn, kind string) object {
	o := object{{"id", c.prefix + t.id}, {"object", kind}, {"created", t.created}, {"model", t.q.model}}
	if c.openai {
		o = append(o, member{"service_tier", "default"}, member{"system_fingerprint", "fp_mock"})
	}
	return o
}

// call is the call of a function, with as much of its arguments as there is.
func (c chatStyle) call(t *turn, arguments string) object {
	id := "call_" + t.id
	if c.wholeCalls {
		id = "mock00001" // Mistral's have nine characters
	}
	return object{{"id", id}, {"type", "function"}, {"function", object{{"name", t.q.tool.name}, {"arguments", arguments}}}}
}

func (c chatStyle) stream(t *turn) {
	before := present(t.q.wantsUsage && !c.usageLast, nil)
	send := func(choices list, usage any) {
		o := append(c.top(t, "chat.completion.chunk"), member{"choices", choices}, member{"usage", usage})
		if c.openai {
			o = append(o, member{"obfuscation", "mO7kq"})
		}
		t.event("", o)
	}
	delta := func(index int64, finish any, d object) list {
		return list{object{{"index", index}, {"delta", d}, {"logprobs", present(c.openai, nil)}, {"finish_reason", finish}}}
	}
	wanted := t.q.wantsUsage || c.usageAlways || t.fault.is(FaultNullUsage)
	bill := present(wanted, t.usage(c.usage(t.bill)))
	n := t.q.choices
	for i := range n {
		d := object{{"role", "assistant"}, {"content", ""}}
		if t.q.tool != nil && !c.wholeCalls {
			d[1].value = nil
			call := append(object{{"index", 0}}, c.call(t, "")...)
			d = append(d, member{"tool_calls", list{call}})
		} else if c.openai {
			d = append(d, member{"refusal", nil})
		}
		send(delta(i, nil, d), t.early(before))
	}
	switch {
	case t.q.tool != nil && c.wholeCalls:
		for range t.pieces() { // it takes its time, and shows at the end
		}
		call := append(c.call(t, t.q.tool.arguments), member{"index", 0})
		send(delta(0, "tool_calls", object{{"content", ""}, {"tool_calls", list{call}}}), bill)
		t.raw("data: [DONE]\n\n")
		return
	case t.q.tool != nil:
		for piece := range t.pieces() {
			for i := range n {
				send(delta(i, nil, object{{"tool_calls", list{object{{"index", 0}, {"function", object{{"arguments", piece}}}}}}}), t.early(before))
			}
		}
	default:
		for piece := range t.pieces() {
			send(delta(int64(t.shown-1)%n, nil, object{{"content", piece}}), t.early(before))
		}
	}
	for i := range n {
		last := object{}
		usage := t.early(before)
		if c.usageLast {
			last, usage = object{{"content", ""}}, present(i == n-1, bill)
		}
		send(delta(i, finishReason(t), last), usage)
	}
	if _, none := bill.(absent); !none && !c.usageLast {
		send(list{}, bill)
	}
	t.raw("data: [DONE]\n\n")
}

// completions are the legacy ones of OpenAI.
var completions = endpoint{
	name: "completions", speaks: &openai,
	read: func(doc gjson.Result, q *query) *fault {
		q.cap = count(doc.Get("max_tokens"))
		if q.cap == 0 {
			q.cap = 16 // as the reference says
		}
		q.choices = max(count(doc.Get("n")), count(doc.Get("best_of")), 1)
		q.wantsUsage = doc.Get("stream_options.include_usage").Bool()
		return nil
	},
	plain: func(t *turn) any {
		return append(legacyTop(t), member{"choices", list{legacyChoice(t.text(), finishReason(t))}}, member{"usage", t.usage(openAIStyle.usage(t.bill))})
	},
	stream: func(t *turn) {
		before := present(t.q.wantsUsage, nil)
		for piece := range t.pieces() {
			t.event("", append(legacyTop(t), member{"choices", list{legacyChoice(piece, nil)}}, member{"usage", t.early(before)}))
		}
		t.event("", append(legacyTop(t), member{"choices", list{legacyChoice("", finishReason(t))}}, member{"usage", t.early(before)}))
		u := t.usage(openAIStyle.usage(t.bill))
		if _, none := u.(absent); t.q.wantsUsage && !none {
			t.event("", append(legacyTop(t), member{"choices", list{}}, member{"usage", u}))
		}
		t.raw("data: [DONE]\n\n")
	},
}

func legacyTop(t *turn) object {
	return object{{"id", "cmpl-" + t.id}, {"object", "text_completion"}, {"created", t.created}, {"model", t.q.model}}
}

func legacyChoice(text string, finish any) object {
	return object{{"text", text}, {"index", 0}, {"logprobs", nil}, {"finish_reason", finish}}
}
