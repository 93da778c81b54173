package mockprovider

import "github.com/tidwall/gjson"

// interactions is the newer main API of Gemini: steps, and usage when it is completed.
var interactions = endpoint{
	name: "interactions", speaks: &gemini,
	read: func(doc gjson.Result, q *query) *fault {
		q.cap = count(firstOf(doc, "generation_config.max_output_tokens", "generationConfig.maxOutputTokens"))
		q.previous = doc.Get("previous_interaction_id").Str
		return nil
	},
	plain: func(t *turn) any {
		t.s.remember(t.id, t.bill.Input+t.bill.Output)
		return interaction(t, "completed", list{interactionText(t.text())}, t.usage(interactionUsage(t.bill)))
	},
	stream: func(t *turn) {
		send := func(kind string, rest ...member) { t.event(kind, append(object{{"event_type", kind}}, rest...)) }
		send("interaction.created", member{"interaction", interaction(t, "in_progress", list{}, absent{})})
		send("interaction.status_update", member{"interaction_id", t.id}, member{"status", "in_progress"})
		index := member{"index", 0}
		send("step.start", index, member{"step", object{{"type", "model_output"}}})
		for piece := range t.pieces() {
			send("step.delta", index, member{"delta", object{{"type", "text"}, {"text", piece}}})
		}
		send("step.stop", index)
		t.s.remember(t.id, t.bill.Input+t.bill.Output)
		send("interaction.completed", member{"interaction", interaction(t, "completed", list{}, t.usage(interactionUsage(t.bill)))})
		t.event("done", object{{"event_type", "done"}})
	},
}

func interactionText(text string) object {
	return object{{"type", "model_output"}, {"content", list{object{{"type", "text"}, {"text", text}}}}}
}

func interaction(t *turn, status string, steps list, usage any) object {
	return object{{"id", t.id}, {"object", "interaction"}, {"model", t.q.model}, {"status", status}, {"role", "model"}, {"steps", steps}, {"usage", usage}}
}

func interactionUsage(b Bill) object {
	return object{{"total_input_tokens", b.Input}, {"total_output_tokens", b.Output - b.Reasoning}, {"total_thought_tokens", b.Reasoning},
		{"total_cached_tokens", b.CacheRead}, {"total_tool_use_tokens", 0}, {"total_tokens", b.Input + b.Output}}
}
