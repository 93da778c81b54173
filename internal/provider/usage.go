package provider

import (
	"math"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/token-budget-arbiter/tba/arbiter"
)

// maxCount bounds every token count: larger integers do not survive a JSON double.
const maxCount = arbiter.MaxAmount

// Usage is what one call cost and who served it. Its total is at most 2^53-1. The zero value is a call that cost nothing.
type Usage struct {
	arbiter.Usage
	Model    string // the model that served: price by this one; "" when the answer does not say
	Tier     string // the service tier that served; "" when the answer does not say
	Adjusted bool   // a count was impossible (negative, fractional, parts above their sum) and was put right
}

// Usage reads the bill from a whole JSON answer. ok is false when there is none in it: no usage object, null, or an
// object without a single number, all of which mean "not known" and never zero.
func (d *Dialect) Usage(body []byte) (u Usage, ok bool) {
	doc, isObject := object(body)
	if !isObject {
		return Usage{}, false
	}
	if u, ok = d.usage(doc); !ok {
		return Usage{}, false
	}
	room := arbiter.Tokens(maxCount)
	for _, n := range [...]*arbiter.Tokens{&u.Input, &u.CacheRead, &u.CacheWrite, &u.CacheWriteLong, &u.Output} {
		if *n > room {
			*n, u.Adjusted = room, true
		}
		room -= *n
	}
	if u.Reasoning > u.Output {
		u.Reasoning, u.Adjusted = u.Output, true
	}
	return u, true
}

// counter reads the numbers of one usage object and remembers whether it met one at all and whether one was odd.
type counter struct {
	obj      gjson.Result
	found    bool
	adjusted bool
}

// get returns the first of the paths that holds a number, 0 when none does.
func (c *counter) get(paths ...string) arbiter.Tokens {
	n, _ := c.lookup(paths...)
	return n
}

func (c *counter) lookup(paths ...string) (arbiter.Tokens, bool) {
	for _, p := range paths {
		n, ok, odd := count(c.obj.Get(p))
		if ok {
			c.found = true
			c.adjusted = c.adjusted || odd
			return arbiter.Tokens(n), true
		}
	}
	return 0, false
}

// less is total without its parts; parts that exceed their total leave 0 and mark the usage as adjusted.
func (c *counter) less(total arbiter.Tokens, parts ...arbiter.Tokens) arbiter.Tokens {
	for _, p := range parts {
		total -= p
	}
	if total < 0 {
		c.adjusted = true
		return 0
	}
	return total
}

// count reads a token count as providers write them: integer, float, or either inside a string. ok is false for
// everything else. odd says that the value was negative, fractional or too large and was clamped.
func count(r gjson.Result) (n int64, ok, odd bool) {
	var text string
	switch r.Type {
	case gjson.Number:
		text = r.Raw
	case gjson.String:
		text = strings.TrimSpace(r.Str)
	default:
		return 0, false, false
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		clamped := min(max(n, 0), maxCount)
		return clamped, true, clamped != n
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil && !math.IsInf(f, 0) || math.IsNaN(f) {
		return 0, false, false
	}
	switch {
	case f < 0:
		return 0, true, true
	case f > maxCount:
		return maxCount, true, true
	}
	up := math.Ceil(f)
	return int64(up), true, up != f
}

// openAIUsage reads the shape of OpenAI chat completions, which Mistral, DeepSeek, Groq and the compatible endpoints
// of others share with small differences: the prompt includes cached tokens, the completion includes reasoning.
func openAIUsage(doc gjson.Result) (Usage, bool) {
	c := counter{obj: doc.Get("usage")}
	if !c.obj.IsObject() {
		return Usage{}, false
	}
	prompt := c.get("prompt_tokens")
	completion := c.get("completion_tokens")
	read := c.get("prompt_tokens_details.cached_tokens", "prompt_token_details.cached_tokens",
		"num_cached_tokens", "cached_tokens", "prompt_cache_hit_tokens")
	write := c.get("prompt_tokens_details.cache_write_tokens")
	reasoning := c.get("completion_tokens_details.reasoning_tokens")
	// The compatible endpoint of Gemini leaves thoughts out of completion_tokens but not out of the total. Whatever a
	// total has above its parts was generated.
	if total, ok := c.lookup("total_tokens"); ok && total > prompt+completion {
		completion = total - prompt
	}
	counts := arbiter.Usage{
		Input:      c.less(prompt, read, write),
		CacheRead:  read,
		CacheWrite: write,
		Output:     completion,
		Reasoning:  reasoning,
	}
	return Usage{counts, doc.Get("model").String(), doc.Get("service_tier").String(), c.adjusted}, c.found
}
