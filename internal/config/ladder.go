package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/catalog"
)

// placedRung is a rung with what its order depends on.
type placedRung struct {
	Rung
	word   string // as the file has it
	path   string
	prices []arbiter.Price
}

// ladders compiles the ladders of the file that belong to a pool: those all of whose providers it has.
func (c *compiler) ladders(p *Pool) []Ladder {
	var out []Ladder
	for _, e := range c.file.Ladders {
		path := child("ladders", e.Name)
		if !c.belongs(e.Value, p) {
			continue
		}
		if err := checkID(e.Name); err != nil {
			c.d.faultKey(path, "name", "%s: %v", path, err)
			continue
		}
		if id := p.knows(e.Name); id != "" {
			c.d.faultKey(path, "name", "%s: %s is a model of pool %s, and a request names either in the same place: give the ladder another name", path, id, p.Name)
			continue
		}
		if l, ok := c.ladder(p, e.Name, e.Value, path); ok {
			out = append(out, l)
		}
	}
	return out
}

// belongs reports whether a ladder is of this pool. One that is of none is compiled for the first, which names what is missing.
func (c *compiler) belongs(l ladderKeys, p *Pool) bool {
	fits := func(b *Budget) bool {
		for _, w := range l.words() {
			if _, ok := b.Providers.Get(providerOf(w)); !ok {
				return false
			}
		}
		return true
	}
	all := c.file.budgets()
	if !slices.ContainsFunc(all, func(b budgetAt) bool { return fits(b.budget) }) {
		return p.Name == all[0].budget.Pool
	}
	return slices.ContainsFunc(all, func(b budgetAt) bool { return b.budget.Pool == p.Name && fits(b.budget) })
}

func (l ladderKeys) words() []string {
	return slices.Concat(append([][]string{l.Rungs}, l.Tiers...)...)
}

// providerOf is the part before the slash: names of providers have none, those of models may.
func providerOf(word string) string {
	name, _, _ := strings.Cut(word, "/")
	return name
}

// knows is how the pool spells a model of that id, "" when it has none.
func (p *Pool) knows(id string) string {
	for i := range p.Policy.Providers {
		if name := p.spelling(i, id); name != "" {
			return p.Policy.Providers[i].Name + "/" + name
		}
	}
	return ""
}

// spelling is the policy's name for an id of the model at one provider, "" when it has none.
func (p *Pool) spelling(provider int, id string) string {
	for _, try := range ids(id) {
		if alias := p.Upstreams[provider].aliases[try]; alias != "" {
			return alias
		}
		for _, m := range p.Policy.Providers[provider].Models {
			if m.Name == try {
				return try
			}
		}
	}
	return ""
}

func (c *compiler) ladder(p *Pool, name string, v ladderKeys, path string) (l Ladder, ok bool) {
	before := len(c.d.faults)
	l = Ladder{Name: name}
	switch {
	case len(v.Rungs) > 0 && len(v.Tiers) > 0:
		c.d.fault(child(path, "tiers"), "conflict", "%s has rungs and tiers: tiers are rungs too, write one of them", path)
		return l, false
	case len(v.words()) == 0:
		c.d.fault(path, "required", "%s has no rungs: name at least one, such as rungs: [mistral/mistral-small-2603, openai/gpt-5.4-mini]", path)
		return l, false
	}
	var seen []placedRung
	if len(v.Rungs) > 0 {
		for i, w := range v.Rungs {
			if r, ok := c.rung(p, w, item(child(path, "rungs"), i), seen); ok {
				seen = append(seen, r)
			}
		}
	}
	var sizes []int
	for i, tier := range v.Tiers {
		at := item(child(path, "tiers"), i)
		if len(tier) == 0 {
			c.d.fault(at, "required", "%s has no rungs", at)
		}
		for j, w := range tier {
			if r, ok := c.rung(p, w, item(at, j), seen); ok {
				seen = append(seen, r)
			}
		}
		sizes = append(sizes, len(tier))
	}
	tools := c.kindsAgree(p, seen)
	c.paid(v.Paid, seen, tools, child(path, "paid"))
	l.Zero = c.zeroHits(v.Zero, tools, child(path, "zero_hits"))
	if len(c.d.faults) > before && c.d.faults.errors() {
		return l, false
	}
	if sizes == nil {
		sizes = c.order(seen)
	}
	for _, n := range sizes {
		tier := make([]Rung, n)
		for i := range tier {
			tier[i] = seen[i].Rung
		}
		l.Tiers, seen = append(l.Tiers, tier), seen[n:]
	}
	return l, true
}

// rung resolves one word of a ladder: a provider, or a provider and a model by any of its ids.
func (c *compiler) rung(p *Pool, word, path string, before []placedRung) (r placedRung, ok bool) {
	provider, id, named := strings.Cut(word, "/")
	at := slices.IndexFunc(p.Policy.Providers, func(x arbiter.Provider) bool { return x.Name == provider })
	if at < 0 {
		whose := "pool " + p.Name + " has"
		if len(c.file.budgets()) > 1 {
			whose = "no pool has all providers of this ladder: " + whose
		}
		c.d.suggest(path, "unknown-rung", catalog.Nearest(word, p.rungWords()), "%s: %s no provider %q", path, whose, plain(provider))
		return r, false
	}
	models := p.Policy.Providers[at].Models
	r = placedRung{Rung: Rung{Provider: provider}, word: word, path: path}
	if !named {
		r.Model, r.prices = models[0].Name, models[0].Prices
	} else {
		name := p.spelling(at, id)
		if name == "" {
			c.d.suggest(path, "unknown-rung", catalog.Nearest(word, p.rungWords()), "%s: provider %s has no model %q in this file or in the catalogue", path, provider, plain(id))
			return r, false
		}
		i := slices.IndexFunc(models, func(m arbiter.Model) bool { return m.Name == name })
		r.Model, r.prices = name, models[i].Prices
	}
	if len(r.prices) == 0 {
		if p.Policy.FallbackPrice == nil {
			c.d.fault(path, "unpriced-rung", "%s: %s has no price, and rungs are ordered by theirs: set it at the provider or the model (0 is allowed)", path, plain(word))
			return r, false
		}
		r.prices = []arbiter.Price{{Rates: *p.Policy.FallbackPrice}}
	}
	for _, b := range before {
		if b.Rung == r.Rung {
			c.d.fault(path, "duplicate", "%s: %s is the same rung as %s in %s", path, plain(word), plain(b.word), b.path)
			return r, false
		}
	}
	return r, true
}

// rungWords are the words that a rung of the pool may be.
func (p *Pool) rungWords() (out []string) {
	for _, x := range p.Policy.Providers {
		out = append(out, x.Name)
		for _, m := range x.Models {
			if m.Name != "" {
				out = append(out, x.Name+"/"+m.Name)
			}
		}
	}
	slices.Sort(out)
	return out
}

// kindsAgree reports whether the rungs are tools. A ladder has tools or models: a call can go to one kind alone.
func (c *compiler) kindsAgree(p *Pool, rungs []placedRung) (tools bool) {
	for i, r := range rungs {
		up, _ := p.Upstream(r.Provider)
		tool := up.Kind == "http"
		if i > 0 && tool != tools {
			c.d.fault(r.path, "conflict", "%s: %s and %s cannot take each other's calls: one is a tool (kind: http), the other serves models", r.path, plain(r.word), plain(rungs[0].word))
			return tools
		}
		tools = tool
	}
	return tools
}

func (c *compiler) paid(words []string, rungs []placedRung, tools bool, path string) {
	if len(words) > 0 && len(rungs) > 0 && !tools {
		c.d.fault(path, "conflict", "%s is for tools (kind: http): an answer of a model is never empty in this sense", path)
		return
	}
	var known []string
	for _, r := range rungs {
		known = append(known, r.word)
	}
	for i, w := range words {
		at := slices.Index(known, w)
		if at < 0 {
			c.d.suggest(item(path, i), "unknown-rung", catalog.Nearest(w, known), "%s: %q is no rung of this ladder", item(path, i), plain(w))
			continue
		}
		rungs[at].Paid = true
	}
}

func (c *compiler) zeroHits(z *zeroHitsKeys, tools bool, path string) *ZeroHits {
	if z == nil {
		return nil
	}
	if !tools {
		c.d.fault(path, "conflict", "%s is for tools (kind: http): an answer of a model is never empty in this sense", path)
	}
	if len(z.Status) == 0 && z.JSONPath == "" {
		c.d.fault(path, "required", "%s needs status or json_path: no answer would count as empty", path)
	}
	out := &ZeroHits{JSONPath: z.JSONPath, Empty: z.Empty}
	for i, s := range z.Status {
		if at := item(child(path, "status"), i); s < 200 || s > 599 {
			c.d.fault(at, "range", "%s is %s: an HTTP status from 200 to 599", at, s)
		}
		out.Status = append(out.Status, int(s))
	}
	return out
}

// blend is what a rung costs for comparisons, in pico-USD per four tokens: three of input and one of output, the proportion of a
// usual chat. Rungs are compared by it, calls are never billed by it.
func (r *placedRung) blend(at time.Time) int64 {
	p := arbiter.PriceAt(r.prices, at.UnixNano())
	if p == nil {
		p = &r.prices[0]
	}
	return 3*int64(p.Input) + int64(p.Output)
}

// order groups rungs into tiers, by the prices in force. A tier's dearest rung costs at most a quarter more than its cheapest, and
// paid rungs are never in one with free ones. Worked example: 1.00, 1.20, 1.30, 2.00 are the tiers {1.00, 1.20}, {1.30}, {2.00}.
func (c *compiler) order(rungs []placedRung) (sizes []int) {
	sizes, wrong := tiers(rungs, c.now)
	if wrong < 0 {
		return sizes
	}
	r, b := &rungs[wrong], &rungs[wrong-1]
	usd := func(r *placedRung) string { return catalog.Format(arbiter.Pico(r.blend(c.now) / 4)) }
	text := fmt.Sprintf("%s: %s (%s USD per million tokens) is cheaper than %s (%s) before it, and rungs are cheapest first: put it first, or write tiers, whose order is taken as it is",
		r.path, plain(r.word), usd(r), plain(b.word), usd(b))
	if b.Paid && !r.Paid {
		text = fmt.Sprintf("%s: %s is free and comes after %s, which is paid: free rungs come first", r.path, plain(r.word), plain(b.word))
	}
	// A price that changes by its date must not make a file wrong over night.
	for _, x := range rungs {
		for _, p := range x.prices {
			if _, w := tiers(rungs, time.Unix(0, p.From)); w < 0 {
				c.d.warn(r.path, "ladder-order", "%s", text)
				return sizes
			}
		}
	}
	c.d.fault(r.path, "ladder-order", "%s", text)
	return sizes
}

// tiers is order at one moment; wrong is the first rung that is out of order, -1 for none.
func tiers(rungs []placedRung, at time.Time) (sizes []int, wrong int) {
	wrong = -1
	var least, most int64
	for i := range rungs {
		cost := rungs[i].blend(at)
		if i > 0 && rungs[i].Paid == rungs[i-1].Paid && 4*max(cost, most) <= 5*min(cost, least) {
			least, most = min(cost, least), max(cost, most)
			sizes[len(sizes)-1]++
			continue
		}
		if free := i > 0 && rungs[i-1].Paid && !rungs[i].Paid; wrong < 0 && i > 0 && (free || cost < least && rungs[i].Paid == rungs[i-1].Paid) {
			wrong = i
		}
		least, most = cost, cost
		sizes = append(sizes, 1)
	}
	return sizes, wrong
}
