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
	Model string // the model that served: price by this one; "" when the answer does not say
	Tier  string // the service tier that served; "" when the answer does not say
	// Longest is the longest prompt of one step, where one call ran several on the provider's side (Anthropic's
	// iterations). Price tiers are judged by it. 0: there was one step.
	Longest  arbiter.Tokens
	Adjusted bool // a count was impossible (negative, fractional, parts above their sum) and was put right
}

// Usage reads the bill from a whole JSON answer. ok is false when there is none in it: no usage object, null, or an
// object without a single number, all of which mean "not known" and never zero.
func (d *Dialect) Usage(body []byte) (u Usage, ok bool) {
	doc, isObject := object(body)
	if !isObject {
		return Usage{}, false
	}
	return d.usage(doc)
}

// bound keeps the total within maxCount and reasoning within the output.
func (u *Usage) bound() {
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
}

// count reads a token count as providers write them: integer, float, or either inside a string. ok is false for
// everything else. odd says that the value was negative, fractional or too large and was clamped.
func count(r gjson.Result) (n int64, ok, odd bool) {
	switch r.Type {
	case gjson.Number:
		return parseCount(r.Raw)
	case gjson.String:
		return parseCount(strings.TrimSpace(r.Str))
	}
	return 0, false, false
}

// parseCount is count for a text.
func parseCount(text string) (n int64, ok, odd bool) {
	if text == "" {
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
