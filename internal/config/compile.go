package config

import (
	"strings"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/catalog"
)

// Pool is one compiled budget.
type Pool struct {
	Name string
	// Policy is what Decide reads. Immutable. Its Version is 0: the engine numbers it when it differs from the one in force.
	Policy *arbiter.Policy
	// Upstreams are the providers as the network sees them, in the order of Policy.Providers.
	Upstreams []Upstream
	// Ladders are those of Policy, with what is the network's to know.
	Ladders []Ladder
	// MaxAttempts bounds the executed tries of one call: that of the pool's tasks, else the gateway's.
	MaxAttempts int
}

// Upstream is where a provider is and how to speak to it. It holds what must never enter a policy or a journal.
type Upstream struct {
	Name         string
	Kind         string // openai, anthropic, gemini, mistral or http
	BaseURL      string // "" for the provider's own
	AllowPrivate bool
	APIKey       Secret

	aliases map[string]string // other ids of a model → its name in the policy
}

// compiler turns one checked budget into a policy.
type compiler struct {
	d    *decoder
	file *File
	cat  *catalog.Catalog
	now  time.Time // whose prices order the rungs of a ladder
}

func (c *compiler) pool(b *Budget, path string) Pool {
	p := &arbiter.Policy{
		Shadow:       c.file.Mode == "shadow",
		Guard:        int64(c.file.Window.Guard),
		Period:       b.Period.Spec,
		Global:       limit(b.GlobalTokens, b.GlobalUSD, b.Shadow),
		Tasks:        limit(b.Tasks.DefaultTokens, b.Tasks.DefaultUSD, b.Tasks.Shadow),
		Lease:        c.lease(b),
		Breaker:      arbiter.DefaultBreaker,
		Weights:      c.weights(),
		Backpressure: c.levels(),
	}
	p.Period.TimeZone = b.TimeZone
	if text, ok := c.d.anchors[child(path, "period")]; ok {
		zone, err := time.LoadLocation(b.TimeZone)
		if err != nil {
			zone = time.UTC // reported by the check of time_zone
		}
		if at, err := anchorTime(text, zone); err == nil {
			p.Period.Anchor = at.UnixNano()
		}
	}
	p.Breaker.Failures = int64(c.file.Breaker.Failures)
	p.Breaker.Recovery = int64(c.file.Breaker.Recovery)
	p.Breaker.Ramp = int64(c.file.Breaker.Ramp)
	for i, r := range []Reserve{b.Priorities.Low, b.Priorities.Medium, b.Priorities.High, b.Priorities.Critical} {
		p.Reserves[i] = arbiter.Reserve{Rate: arbiter.PPM(r.Reserve), Budget: arbiter.PPM(r.BudgetReserve)}
	}
	for _, e := range b.AgentClasses {
		p.Classes = append(p.Classes, arbiter.Class{
			Name: e.Name, Share: arbiter.PPM(e.Value.Share), Priority: priority(e.Value.Priority),
			Limit: limit(e.Value.LimitTokens, e.Value.LimitUSD, e.Value.Shadow),
		})
	}
	if _, ok := b.AgentClasses.Get(arbiter.DefaultClass); !ok {
		p.Classes = append(p.Classes, arbiter.Class{Name: arbiter.DefaultClass, Priority: arbiter.Low, Limit: arbiter.NoLimit})
	}
	p.Agents = namedLimits(b.Agents)
	p.Workflows = namedLimits(b.Workflows)
	if f := c.file.Catalog.Fallback; f != nil {
		if rates, ok := c.rates(f, "catalog.fallback_price"); ok {
			p.FallbackPrice = &rates
		}
	}
	pool := Pool{Name: b.Pool, Policy: p}
	for _, e := range b.Providers {
		at := child(child(path, "providers"), e.Name)
		v := e.Value
		split := ShareOne
		if v.Split != nil {
			split = *v.Split
		}
		up := Upstream{
			Name: e.Name, Kind: kindOf(e.Name, v.Kind), BaseURL: v.BaseURL, AllowPrivate: v.Private, APIKey: v.APIKey,
			aliases: map[string]string{},
		}
		provider := arbiter.Provider{
			Name: e.Name, Zone: v.RPDZone, Tool: up.Kind == "http", ServiceTiers: c.cat.ServiceTiers(c.tiersOf(&up)),
			Limit:    limit(v.Tokens, v.USD, v.Shadow),
			Ceilings: c.ceilings(v.Ceilings, split, at),
			Models:   c.models(&up, v, split, at),
		}
		if provider.Zone == "" && up.Kind == "gemini" {
			provider.Zone = "America/Los_Angeles" // its day ends at midnight Pacific time
		}
		p.Providers = append(p.Providers, provider)
		pool.Upstreams = append(pool.Upstreams, up)
	}
	pool.MaxAttempts = int(c.file.Gateway.MaxAttempts)
	if n := b.Tasks.MaxAttempts; n != nil {
		pool.MaxAttempts = int(*n)
	}
	pool.Ladders = c.ladders(&pool)
	for i := range pool.Ladders {
		p.Ladders = append(p.Ladders, pool.Ladders[i].decided())
	}
	return pool
}

// models lists the default model first, then what the file names, then the rest of the catalogue for this provider.
// A model has one entry whatever its ids, so that no alias goes round its limits.
func (c *compiler) models(up *Upstream, v Provider, split Share, path string) []arbiter.Model {
	seller := c.seller(up.Name, up.Kind)
	var out []arbiter.Model
	listed := map[string]bool{}
	if len(v.Models) == 0 || v.Price != nil {
		out = append(out, arbiter.Model{Limit: arbiter.NoLimit, Prices: c.defaultPrice(up.Kind, v, path)})
	}
	for _, e := range v.Models {
		m := e.Value
		at := child(child(path, "models"), e.Name)
		model := arbiter.Model{
			Name: e.Name, LimitGroup: m.LimitGroup,
			Limit: limit(m.Tokens, m.USD, m.Shadow), Ceilings: c.ceilings(m.Ceilings, split, at),
		}
		entry, err := c.cat.Lookup(seller, e.Name)
		if err == nil {
			c.fill(&model, entry)
			if base, dated := catalog.Undated(e.Name); !dated || base != entry.ID {
				if listed[entry.ID] {
					c.d.faultKey(at, "duplicate", "%s is another name of %s, which is listed already", at, entry.ID)
				}
				listed[entry.ID] = true
				up.alias(entry, e.Name)
			}
		}
		switch {
		case m.Price != nil:
			if rates, ok := c.rates(m.Price, child(at, "price")); ok {
				model.Prices, model.ServiceRates = []arbiter.Price{{Rates: rates}}, nil
			}
		case err != nil && c.file.Catalog.Fallback == nil:
			nearest := ""
			if u, ok := err.(*catalog.UnpricedError); ok {
				nearest = u.Nearest
			}
			c.d.note(Fault{Severity: Error, Path: at, Rule: "unpriced-model", Suggestion: nearest,
				Text: "the catalogue has no price for model " + e.Name + " of " + up.Name + ": set its price (0 is allowed) or catalog.fallback_price"}, c.d.places[at].key)
		}
		if m.MaxOutput != nil {
			model.MaxOutput = arbiter.Tokens(*m.MaxOutput)
		}
		if m.MaxInput != nil {
			model.MaxInput = arbiter.Tokens(*m.MaxInput)
		}
		out = append(out, model)
	}
	if seller != catalog.Provider(up.Name) && up.BaseURL != "" {
		return out // a server that speaks a dialect does not have the models of its inventor
	}
	for _, entry := range c.cat.Models() {
		if entry.Provider != seller || listed[entry.ID] {
			continue
		}
		model := arbiter.Model{Name: entry.ID, Limit: arbiter.NoLimit}
		c.fill(&model, entry)
		out = append(out, model)
		up.alias(entry, entry.ID)
	}
	return out
}

func (u *Upstream) alias(entry catalog.Model, name string) {
	for _, id := range append([]string{entry.ID}, entry.Aliases...) {
		if id != name {
			u.aliases[id] = name
		}
	}
}

// tiersOf is whose service tiers hold: a provider's own where the catalogue has some, else those of its dialect's inventor, unless it is
// another server that speaks the dialect.
func (c *compiler) tiersOf(up *Upstream) string {
	if seller := c.seller(up.Name, up.Kind); up.BaseURL == "" && len(c.cat.ServiceTiers(up.Name)) == 0 {
		return seller
	}
	return up.Name
}

// seller is whose price list holds: the provider's own name when the catalogue knows it (deepseek speaks openai's dialect),
// else that of the dialect.
func (c *compiler) seller(name, kind string) string {
	own := catalog.Provider(name)
	for _, m := range c.cat.Models() {
		if m.Provider == own {
			return own
		}
	}
	return kind
}

func (c *compiler) fill(m *arbiter.Model, entry catalog.Model) {
	m.Prices = entry.Prices
	if entry.Fast != nil {
		m.ServiceRates = []arbiter.ServiceRates{{Name: "fast", Rates: *entry.Fast}}
	}
	m.MaxOutput = arbiter.Tokens(max(0, entry.MaxOutput))
	if m.MaxInput = arbiter.Tokens(entry.MaxInput); m.MaxInput == 0 {
		m.MaxInput = arbiter.Tokens(entry.Context)
	}
}

func (c *compiler) defaultPrice(kind string, v Provider, path string) []arbiter.Price {
	if v.Price != nil {
		rates, _ := c.rates(v.Price, child(path, "price"))
		return []arbiter.Price{{Rates: rates}}
	}
	if kind == "http" {
		return []arbiter.Price{{}} // a tool has no tokens to be priced
	}
	rates, ok := catalog.DefaultRates(kind)
	switch {
	case ok && v.BaseURL == "":
		return []arbiter.Price{{Rates: rates}}
	case c.file.Catalog.Fallback == nil:
		c.d.fault(path, "unpriced-provider", "%s has no default price: set %s (0 is allowed), name its models, or set catalog.fallback_price", path, child(path, "price"))
	}
	return nil
}

// rates reads a price of the file in its own unit.
func (c *compiler) rates(p *Price, path string) (arbiter.Rates, bool) {
	parse, from, at := catalog.PerMillion, p.PriceRates, path
	if p.PerToken != nil {
		if p.PriceRates != (PriceRates{}) {
			c.d.fault(path, "price", "%s is in USD per million tokens or under per_token, not both", path)
			return arbiter.Rates{}, false
		}
		parse, from, at = catalog.PerToken, *p.PerToken, child(path, "per_token")
	}
	if from.Input == nil || from.Output == nil {
		c.d.fault(at, "price", "%s needs input and output (0 is allowed, and means free)", at)
		return arbiter.Rates{}, false
	}
	ok := true
	read := func(key string, text *Decimal, missing arbiter.Pico) arbiter.Pico {
		if text == nil {
			return missing
		}
		v, err := parse(string(*text))
		if err != nil {
			c.d.fault(child(at, key), "price-unit", "%s: %v", child(at, key), err)
			ok = false
		}
		return v
	}
	var r arbiter.Rates
	r.Input = read("input", from.Input, 0)
	r.Output = read("output", from.Output, 0)
	r.CacheRead = read("cache_read", from.CacheRead, r.Input)
	r.CacheWrite = read("cache_write", from.CacheWrite, r.Input)
	r.CacheWriteLong = read("cache_write_long", from.CacheWriteLong, r.CacheWrite)
	return r, ok
}

// ceilings multiplies by the pool's part of a shared key, rounded down: the parts never sum to more than the whole.
func (c *compiler) ceilings(v Ceilings, split Share, path string) arbiter.Ceilings {
	part := func(n *Count, key string) int64 {
		if n == nil || *n == 0 {
			return 0
		}
		got := mulDown(int64(*n), int64(split), int64(ShareOne))
		if got == 0 && split > 0 {
			c.d.fault(child(path, key), "zero-ceiling", "%s times split %s is below 1", child(path, key), split)
		}
		return got
	}
	out := arbiter.Ceilings{
		RPM: arbiter.Requests(part(v.RPM, "rpm_ceiling")), TPM: arbiter.Tokens(part(v.TPM, "tpm_ceiling")),
		InputTPM: arbiter.Tokens(part(v.InputTPM, "input_tpm_ceiling")), OutputTPM: arbiter.Tokens(part(v.OutputTPM, "output_tpm_ceiling")),
		RPD: arbiter.Requests(part(v.RPD, "rpd_ceiling")), MaxConcurrent: arbiter.Requests(part(v.MaxConcurrency, "max_concurrency")),
		Generated: v.TokenAccounting == "generated", UncachedOnly: !v.CountCached, ShadowRates: v.Shadow,
	}
	if v.Burst != nil {
		out.Burst = arbiter.PPM(*v.Burst)
	}
	return out
}

func (c *compiler) lease(b *Budget) arbiter.LeaseRules {
	l, r := c.file.Lease, arbiter.DefaultLeaseRules
	r.StartBy, r.Grace, r.CommitBy = int64(l.StartBy), int64(l.Grace), int64(l.CommitBy)
	if l.TTL != nil {
		r.TTL = int64(*l.TTL)
	}
	if l.Max != nil {
		r.Max = int64(*l.Max)
	}
	if rule := b.OnExpiry; rule == "assume" || rule == "" && l.OnExpiry == "assume" {
		r.OnExpiry = arbiter.ExpiryAssume
	}
	r.MaxHoldShare = arbiter.PPM(l.MaxHoldShare)
	if l.MaxOpen != nil {
		r.MaxOpen = arbiter.Requests(*l.MaxOpen)
	}
	if l.MaxHeld != nil {
		r.MaxHeld = arbiter.Tokens(*l.MaxHeld)
	}
	return r
}

func (c *compiler) weights() [4]arbiter.Weights {
	w := arbiter.DefaultWeights
	from := c.file.Routing.Weights
	for i, v := range []Weights{from.Low, from.Medium, from.High, from.Critical} {
		for to, s := range map[*arbiter.PPM]*Share{&w[i].Headroom: v.Headroom, &w[i].Cost: v.Cost, &w[i].Preferred: v.Preferred, &w[i].Latency: v.Latency} {
			if s != nil {
				*to = arbiter.PPM(*s)
			}
		}
	}
	return w
}

func (c *compiler) levels() arbiter.BackpressureLevels {
	t := arbiter.DefaultBackpressure
	from := c.file.Backpressure
	for i, v := range []Level{from.Mild, from.Moderate, from.Severe, from.Critical} {
		if v.Consumed != nil {
			t.Consumed[i] = arbiter.PPM(*v.Consumed)
		}
		if v.Headroom != nil {
			t.Headroom[i] = arbiter.PPM(*v.Headroom)
		}
		if v.Delay != nil {
			t.DelayMS[i] = int32(min(time.Duration(*v.Delay), maxDelay) / time.Millisecond)
		}
	}
	return t
}

func limit(tokens *Count, usd *USD, shadow bool) arbiter.Limit {
	l := arbiter.NoLimit
	l.Shadow = shadow
	if tokens != nil {
		l.Tokens = arbiter.Tokens(*tokens)
	}
	if usd != nil {
		l.Nanos = arbiter.Nanos(*usd)
	}
	return l
}

func namedLimits(m Map[NamedLimit]) (out []arbiter.NamedLimit) {
	for _, e := range m {
		out = append(out, arbiter.NamedLimit{Name: e.Name, Limit: limit(e.Value.LimitTokens, e.Value.LimitUSD, e.Value.Shadow)})
	}
	return out
}

func priority(word string) arbiter.Priority {
	for p := arbiter.Low; p <= arbiter.Critical; p++ {
		if strings.EqualFold(word, p.String()) {
			return p
		}
	}
	return arbiter.Low
}

// kindOf is the dialect of a provider: what the file says, else its name.
func kindOf(name, kind string) string {
	if kind == "" {
		kind = name
	}
	return catalog.Provider(kind)
}
