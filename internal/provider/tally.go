package provider

import (
	"github.com/tidwall/gjson"

	"github.com/token-budget-arbiter/tba/arbiter"
)

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
	var steps gjson.Result
	obj.ForEach(func(key, v gjson.Result) bool {
		if t.bill.exclusive && key.Str == "iterations" && !steps.Exists() {
			steps = v
		}
		held := t.bill.members[key.Str]
		for i := range held {
			at := &held[i]
			if rank[at.slot] != 0 && rank[at.slot] <= at.rank {
				continue
			}
			leaf := v
			if at.rest != "" {
				leaf = v.Get(at.rest)
			}
			if n, ok, odd := count(leaf); ok {
				next.set(at.slot, n)
				next.adjusted = next.adjusted || odd
				found, rank[at.slot] = true, at.rank
			}
		}
		return true
	})
	if t.bill.exclusive {
		found = t.iterations(steps, &next) || found
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
