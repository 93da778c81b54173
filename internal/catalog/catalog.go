// Package catalog holds models, prices and provider limits as dated data.
//
// The embedded file is a seed with a date and a source on each row. A file of the operator overrides it row by row.
// A model without a row has no price: the answer is an [*UnpricedError] that names the nearest known id, never 0.
package catalog

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
)

//go:embed prices.yaml
var seed []byte

// Embedded returns the catalogue that ships with the binary. It is read once; the result is shared and must not be changed.
var Embedded = sync.OnceValue(func() *Catalog {
	c, err := Parse("prices.yaml", seed)
	if err != nil {
		panic(fmt.Sprintf("catalog: embedded price file: %v", err))
	}
	return c
})

// Catalog is an immutable set of models. Safe for concurrent use. The zero value knows no model.
type Catalog struct {
	asOf        time.Time
	models      []Model
	multipliers map[string]map[string]Ratio // provider, service tier
	byID        map[string][]int            // id or alias → places in models
}

// Model is one model of one provider.
type Model struct {
	ID       string
	Provider string // as [Provider] spells it
	Aliases  []string
	// Context, MaxInput and MaxOutput are tokens. Context and MaxInput are 0 and MaxOutput is -1 when unknown:
	// an embedding model has a known MaxOutput of 0.
	Context, MaxInput, MaxOutput int64
	Retires                      time.Time // zero: no date known
	Source, Confidence           string
	Prices                       []arbiter.Price // by date, without gaps, open to both sides
	Fast                         *arbiter.Rates  // the provider's fast service tier where it has prices of its own
}

// At returns the price that holds at t. Before the first row it is the first, after the last the last.
func (m *Model) At(t time.Time) *arbiter.Price { return arbiter.PriceAt(m.Prices, t.UnixNano()) }

// Cost is what a call costs at t, rounded up once to whole nano-USD.
func (m *Model) Cost(u arbiter.Usage, t time.Time) arbiter.Nanos { return m.At(t).Cost(u) }

// UnpricedError says that the catalogue has no price for a model.
type UnpricedError struct {
	Provider string // "" when any would do
	Model    string
	Nearest  string // "" when nothing resembles it
}

// Error is one line: unpriced model "x" of provider "y"; did you mean "z"?
func (e *UnpricedError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "unpriced model %q", e.Model)
	if e.Provider != "" {
		fmt.Fprintf(&b, " of provider %q", e.Provider)
	}
	if e.Nearest != "" {
		fmt.Fprintf(&b, "; did you mean %q?", e.Nearest)
	}
	return b.String()
}

// Provider maps the names under which a provider is known to the one the product uses: google is gemini.
// Other names come back in lower case.
func Provider(name string) string {
	switch name = strings.ToLower(name); name {
	case "google":
		return "gemini"
	default:
		return name
	}
}

// index builds the look-up after all models are there.
func (c *Catalog) index() {
	c.byID = make(map[string][]int, len(c.models))
	for i, m := range c.models {
		for _, id := range append([]string{m.ID}, m.Aliases...) {
			c.byID[id] = append(c.byID[id], i)
		}
	}
}

// AsOf is the day the prices were collected; zero when the file does not say.
func (c *Catalog) AsOf() time.Time { return c.asOf }

// Models returns all models in the order of the file.
func (c *Catalog) Models() []Model { return slices.Clone(c.models) }

// Lookup finds a model by id or alias; provider "" means any, as long as one provider alone has it.
// An id with a date at its end (gpt-5.4-2026-03-01, claude-haiku-4-5@20251001) is looked up whole, then without it.
// An id ending in -latest is never priced, since what it means moves. Errors: [*UnpricedError].
func (c *Catalog) Lookup(provider, id string) (Model, error) {
	provider = Provider(provider)
	if m, ok := c.find(provider, id); ok {
		return m, nil
	}
	if base, ok := Undated(id); ok {
		if m, ok := c.find(provider, base); ok {
			return m, nil
		}
	}
	return Model{}, &UnpricedError{Provider: provider, Model: id, Nearest: c.nearest(provider, id)}
}

func (c *Catalog) find(provider, id string) (Model, bool) {
	found := -1
	for _, i := range c.byID[id] {
		if provider != "" && c.models[i].Provider != provider {
			continue
		}
		if found >= 0 {
			return Model{}, false
		}
		found = i
	}
	if found < 0 {
		return Model{}, false
	}
	return c.models[found], true
}

// nearest prefers the provider's own models; another provider's id helps only who asked the wrong one.
func (c *Catalog) nearest(provider, id string) string {
	var own, all []string
	for _, m := range c.models {
		ids := append([]string{m.ID}, m.Aliases...)
		all = append(all, ids...)
		if m.Provider == provider {
			own = append(own, ids...)
		}
	}
	slices.Sort(own)
	slices.Sort(all)
	if s := Nearest(id, own); s != "" {
		return s
	}
	return Nearest(id, all)
}

// Multiplier is the factor that a service tier (batch, flex, priority, ...) puts on a provider's prices.
// ok is false for a tier that is not listed: its price is not known. The empty tier, "default", "standard" and "auto" are 1.
func (c *Catalog) Multiplier(provider, tier string) (r Ratio, ok bool) {
	switch tier {
	case "", "default", "standard", "auto":
		return RatioOne, true
	}
	r, ok = c.multipliers[Provider(provider)][tier]
	return r, ok
}

// ServiceTiers are the service tiers of a provider by the words with which its answers name them, with their factors, by name: those that
// the catalogue lists, under all their words, and the words for the standard one. Empty for a provider that has none listed.
func (c *Catalog) ServiceTiers(provider string) []arbiter.ServiceTier {
	provider = Provider(provider)
	listed := c.multipliers[provider]
	if len(listed) == 0 {
		return nil
	}
	all := map[string]Ratio{}
	for _, word := range [...]string{"default", "standard", "auto", "on_demand"} {
		all[word] = RatioOne
	}
	maps.Copy(all, listed)
	if provider == "gemini" { // its answers have a traffic type instead
		all["ON_DEMAND"], all["TRAFFIC_TYPE_UNSPECIFIED"] = RatioOne, RatioOne
		for tier, factor := range listed {
			all["ON_DEMAND_"+strings.ToUpper(tier)] = factor
		}
	}
	out := make([]arbiter.ServiceTier, 0, len(all))
	for _, word := range slices.Sorted(maps.Keys(all)) {
		out = append(out, arbiter.ServiceTier{Name: word, Factor: arbiter.PPM(all[word])})
	}
	return out
}

// Override returns a catalogue in which the models and multipliers of over replace those of c with the same provider
// and id; a model of over also takes over the aliases it names.
func (c *Catalog) Override(over *Catalog) *Catalog {
	taken := map[string]bool{}
	for _, m := range over.models {
		for _, id := range append([]string{m.ID}, m.Aliases...) {
			taken[m.Provider+"/"+id] = true
		}
	}
	n := &Catalog{asOf: c.asOf, multipliers: map[string]map[string]Ratio{}}
	for _, m := range c.models {
		if taken[m.Provider+"/"+m.ID] {
			continue
		}
		m.Aliases = slices.DeleteFunc(slices.Clone(m.Aliases), func(a string) bool { return taken[m.Provider+"/"+a] })
		n.models = append(n.models, m)
	}
	n.models = append(n.models, over.models...)
	if over.asOf.After(n.asOf) {
		n.asOf = over.asOf
	}
	for _, from := range []*Catalog{c, over} {
		for provider, tiers := range from.multipliers {
			if n.multipliers[provider] == nil {
				n.multipliers[provider] = map[string]Ratio{}
			}
			maps.Copy(n.multipliers[provider], tiers)
		}
	}
	n.index()
	return n
}

// DefaultRates are the prices of a provider's calls that name no model, in USD per million input and output tokens:
// openai 2.50 and 10, anthropic 3 and 15, gemini 1.25 and 5, mistral 0.70 and 2.80. Cache tokens cost as much as input.
// ok is false for any other provider.
func DefaultRates(provider string) (arbiter.Rates, bool) {
	var in, out arbiter.Pico
	switch Provider(provider) {
	case "openai":
		in, out = 2_500_000, 10_000_000
	case "anthropic":
		in, out = 3_000_000, 15_000_000
	case "gemini":
		in, out = 1_250_000, 5_000_000
	case "mistral":
		in, out = 700_000, 2_800_000
	default:
		return arbiter.Rates{}, false
	}
	return arbiter.Rates{Input: in, CacheRead: in, CacheWrite: in, CacheWriteLong: in, Output: out}, true
}
