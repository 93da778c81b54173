package provider

import (
	"strings"

	"github.com/tidwall/gjson"

	"github.com/token-budget-arbiter/tba/arbiter"
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

// bill names the fields of one shape of usage object and says what they include (provider-facts §3.6).
type bill struct {
	at        string // where the usage object stands in a whole answer
	model     string // where the answer names the model that served
	tier      string // where it names its service tier, from the answer's root
	names     [slots][]string
	exclusive bool // the prompt count leaves cached tokens out
	outside   bool // the output count leaves reasoning out
}

var (
	// openAIBill is the shape of OpenAI's endpoints, old names and new, which Mistral, DeepSeek, Groq and the compatible
	// endpoints of others share with small differences: the prompt includes cached tokens, the output reasoning.
	openAIBill = bill{
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
	}

	anthropicBill = bill{
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
	}

	generateBill = bill{
		at: "usageMetadata", model: "modelVersion", tier: "usageMetadata.trafficType", outside: true,
		names: [slots][]string{
			slotPrompt:    {"promptTokenCount"},
			slotTool:      {"toolUsePromptTokenCount"},
			slotRead:      {"cachedContentTokenCount"},
			slotOutput:    {"candidatesTokenCount"},
			slotReasoning: {"thoughtsTokenCount"},
			slotTotal:     {"totalTokenCount"},
		},
	}

	interactionsBill = bill{
		at: "usage", model: "model", tier: "service_tier", outside: true,
		names: [slots][]string{
			slotPrompt:    {"total_input_tokens"},
			slotTool:      {"total_tool_use_tokens"},
			slotRead:      {"total_cached_tokens"},
			slotOutput:    {"total_output_tokens"},
			slotReasoning: {"total_thought_tokens"},
			slotTotal:     {"total_tokens"},
		},
	}
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

// tally is what the usage objects of one answer have said so far. Their counts are cumulative or final: a new one takes
// the place of the old, field by field, and is never added to it.
type tally struct {
	bill     *bill
	n        [slots]int64
	longest  int64
	has      uint16 // bit per slot
	found    bool
	adjusted bool
}

func (t *tally) set(s slot, n int64) {
	t.n[s] = n
	t.has |= 1 << s
}

// read takes in one usage object and says whether it had a single number. Null, absent and empty ones change nothing, nor
// does a zero where a count is known already: servers send zeros until they know.
func (t *tally) read(obj gjson.Result) bool {
	if !obj.IsObject() {
		return false
	}
	next, found := t.numbers(obj)
	if !found {
		return false
	}
	t.found = true
	// A prompt may shrink to 0 when the same object says where it went: into the cache.
	moved := t.bill.exclusive && next.n[slotRead]+next.n[slotWrite] > 0
	for s := range slots {
		if next.has&(1<<s) != 0 && (next.n[s] > 0 || t.n[s] == 0 || s == slotPrompt && moved) {
			t.set(s, next.n[s])
		}
	}
	t.longest = max(t.longest, next.longest)
	t.adjusted = t.adjusted || next.adjusted
	return true
}

// numbers reads one usage object by itself.
func (t *tally) numbers(obj gjson.Result) (next tally, found bool) {
	var rank [slots]int // 1 + place of the name that was taken
	obj.ForEach(func(key, v gjson.Result) bool {
		for s, names := range &t.bill.names {
			for i, name := range names {
				if rank[s] != 0 && rank[s] <= i+1 {
					break
				}
				leaf := v
				if k := key.Str; len(name) > len(k) && name[len(k)] == '.' && name[:len(k)] == k {
					leaf = v.Get(name[len(k)+1:])
				} else if name != k {
					continue
				}
				if n, ok, odd := count(leaf); ok {
					next.set(slot(s), n)
					next.adjusted = next.adjusted || odd
					found, rank[s] = true, i+1
				}
			}
		}
		return true
	})
	if t.bill.exclusive {
		found = t.iterations(obj.Get("iterations"), &next) || found
	}
	return next, found
}

// iterations adds up the steps that Anthropic ran inside one call. The numbers at the top may leave steps out, so the
// larger of the two is the bill.
func (t *tally) iterations(list gjson.Result, next *tally) (found bool) {
	var sum tally
	list.ForEach(func(_, step gjson.Result) bool {
		var prompt int64
		for s, names := range &t.bill.names {
			n, ok, odd := count(step.Get(names0(names)))
			if !ok {
				continue
			}
			found = true
			sum.set(slot(s), min(sum.n[s]+n, maxCount))
			sum.adjusted = sum.adjusted || odd
			if slot(s) == slotPrompt || slot(s) == slotRead || slot(s) == slotWrite {
				prompt = min(prompt+n, maxCount)
			}
		}
		sum.longest = max(sum.longest, prompt)
		return true
	})
	if found {
		next.longest = sum.longest
		if sum.billed() > next.billed() {
			longest := sum.longest
			*next = sum
			next.longest = longest
		}
	}
	return found
}

// names0 is the only name that an exclusive bill has for a slot.
func names0(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return names[0]
}

func (t *tally) billed() float64 {
	return float64(t.n[slotPrompt]) + float64(t.n[slotRead]) + float64(t.n[slotWrite]) + float64(t.n[slotOutput])
}

// usage turns the numbers into five disjoint counts.
func (t *tally) usage() Usage {
	u := Usage{Adjusted: t.adjusted, Longest: arbiter.Tokens(t.longest)}
	n := func(s slot) arbiter.Tokens { return arbiter.Tokens(t.n[s]) }
	prompt := min(n(slotPrompt)+n(slotTool), maxCount)
	u.CacheRead, u.CacheWrite, u.CacheWriteLong = n(slotRead), n(slotWriteShort), n(slotWriteLong)
	// The total of cache writes is split by life; without the split all of it has the default life.
	if t.has&(1<<slotWrite) != 0 {
		u.CacheWriteLong = min(n(slotWriteLong), n(slotWrite))
		u.CacheWrite = n(slotWrite) - u.CacheWriteLong
		split := n(slotWriteShort) + n(slotWriteLong)
		u.Adjusted = u.Adjusted || t.has&(1<<slotWriteShort) != 0 && split > 0 && split != n(slotWrite)
	}
	u.Output, u.Reasoning = n(slotOutput), n(slotReasoning)
	if t.bill.outside {
		u.Output = min(u.Output+u.Reasoning, maxCount)
	}
	// Whatever a total has above its parts was generated: thoughts are left out of a count but not of the total (seen:
	// prompt 41, output 5, total 389).
	if total := n(slotTotal); total > prompt+u.Output {
		u.Output = total - prompt
	}
	u.Input = prompt
	if !t.bill.exclusive {
		if u.Input -= u.CacheRead + u.CacheWrite + u.CacheWriteLong; u.Input < 0 {
			u.Input, u.Adjusted = 0, true
		}
	}
	u.bound()
	return u
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
	if s != "" && s != *into {
		*into = strings.Clone(s)
	}
}
