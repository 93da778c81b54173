package provider

import (
	"strings"

	"github.com/tidwall/gjson"
)

// slot is one number of a usage object, by what it counts.
type slot uint8

const (
	slotPrompt     slot = iota
	slotTool            // prompt that tools of the provider caused, outside slotPrompt
	slotRead            // read from a cache
	slotWrite           // written to a cache, all lives together
	slotWriteShort      // of these, with the default life
	slotWriteLong       // of these, with a long life
	slotOutput          //
	slotReasoning       //
	slotTotal           //
	slots
)

// bill names the fields of one shape of usage object and says what they include.
type bill struct {
	at        string // where the usage object stands in a whole answer
	model     string // where the answer names the model that served
	tier      string // where it names its service tier, from the answer's root
	names     [slots][]string
	exclusive bool // the prompt count leaves cached tokens out
	outside   bool // the output count leaves reasoning out
	members   map[string][]holding
}

// holding is what one member of a usage object may hold.
type holding struct {
	slot slot
	rank int    // 1 + place among the slot's names: the first one counts
	rest string // path inside the member, "" for the member itself
}

// indexed is b with members.
func indexed(b bill) bill {
	b.members = map[string][]holding{}
	for s, names := range &b.names {
		for i, name := range names {
			b.members[name] = append(b.members[name], holding{slot(s), i + 1, ""})
			if member, rest, ok := strings.Cut(name, "."); ok {
				b.members[member] = append(b.members[member], holding{slot(s), i + 1, rest})
			}
		}
	}
	return b
}

var (
	// openAIBill is the shape of OpenAI's endpoints, old names and new, which Mistral, DeepSeek, Groq and the compatible
	// endpoints of others share with small differences: the prompt includes cached tokens, the output reasoning.
	openAIBill = indexed(bill{
		at: "usage", model: "model", tier: "service_tier",
		names: [slots][]string{
			slotPrompt: {"prompt_tokens", "input_tokens"},
			slotTool:   {"connector_tokens"},
			slotRead: {"prompt_tokens_details.cached_tokens", "input_tokens_details.cached_tokens", "prompt_token_details.cached_tokens",
				"num_cached_tokens", "cached_tokens", "prompt_cache_hit_tokens"},
			slotWrite: {"prompt_tokens_details.cache_write_tokens", "input_tokens_details.cache_write_tokens"},
			slotWriteLong: {"prompt_tokens_details.cache_write_tokens_details.ttl_12h_tokens",
				"input_tokens_details.cache_write_tokens_details.ttl_12h_tokens"},
			slotOutput:    {"completion_tokens", "output_tokens"},
			slotReasoning: {"completion_tokens_details.reasoning_tokens", "output_tokens_details.reasoning_tokens"},
			slotTotal:     {"total_tokens"},
		},
	})

	anthropicBill = indexed(bill{
		at: "usage", model: "model", tier: "usage.service_tier", exclusive: true,
		names: [slots][]string{
			slotPrompt:     {"input_tokens"},
			slotRead:       {"cache_read_input_tokens"},
			slotWrite:      {"cache_creation_input_tokens"},
			slotWriteShort: {"cache_creation.ephemeral_5m_input_tokens"},
			slotWriteLong:  {"cache_creation.ephemeral_1h_input_tokens"},
			slotOutput:     {"output_tokens"},
			slotReasoning:  {"output_tokens_details.thinking_tokens"},
		},
	})

	generateBill = indexed(bill{
		at: "usageMetadata", model: "modelVersion", tier: "usageMetadata.trafficType", outside: true,
		names: [slots][]string{
			slotPrompt:    {"promptTokenCount"},
			slotTool:      {"toolUsePromptTokenCount"},
			slotRead:      {"cachedContentTokenCount"},
			slotOutput:    {"candidatesTokenCount"},
			slotReasoning: {"thoughtsTokenCount"},
			slotTotal:     {"totalTokenCount"},
		},
	})

	interactionsBill = indexed(bill{
		at: "usage", model: "model", tier: "service_tier", outside: true,
		names: [slots][]string{
			slotPrompt:    {"total_input_tokens"},
			slotTool:      {"total_tool_use_tokens"},
			slotRead:      {"total_cached_tokens"},
			slotOutput:    {"total_output_tokens"},
			slotReasoning: {"total_thought_tokens"},
			slotTotal:     {"total_tokens"},
		},
	})
)

// of reads the bill from a whole answer.
func (b *bill) of(doc gjson.Result) (Usage, bool) {
	t := tally{bill: b}
	if !t.read(doc.Get(b.at)) {
		return Usage{}, false
	}
	u := t.usage()
	u.Model, u.Tier = doc.Get(b.model).String(), b.tierOf(doc)
	return u, true
}

// tierOf is the service tier that served. Anthropic's fast mode has a field of its own.
func (b *bill) tierOf(doc gjson.Result) string {
	if b.exclusive && doc.Get("usage.speed").Str == "fast" {
		return "fast"
	}
	return doc.Get(b.tier).String()
}

// openAIUsage, anthropicUsage and geminiUsage read whole answers of their dialects.
func openAIUsage(doc gjson.Result) (Usage, bool)    { return openAIBill.of(doc) }
func anthropicUsage(doc gjson.Result) (Usage, bool) { return anthropicBill.of(doc) }

func geminiUsage(doc gjson.Result) (Usage, bool) {
	if doc.Get("usageMetadata").IsObject() {
		return generateBill.of(doc)
	}
	return interactionsBill.of(doc)
}

// clone keeps a string that is a view of bytes that will be used again.
func clone(into *string, s string) {
	if s == "" || s == *into {
		return
	}
	switch s { // the words that most answers have
	case "stop":
		*into = "stop"
	case "end_turn":
		*into = "end_turn"
	case "STOP":
		*into = "STOP"
	case "completed":
		*into = "completed"
	case "default":
		*into = "default"
	case "standard":
		*into = "standard"
	default:
		*into = strings.Clone(s)
	}
}
