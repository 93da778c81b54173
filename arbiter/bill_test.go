package arbiter

import (
	"math"
	"testing"
	"time"
)

// served is a policy of one provider with two models, service tiers and rates of a tier of its own.
func servedPolicy() *Policy {
	p := onePolicy()
	pr := &p.Providers[0]
	pr.ServiceTiers = []ServiceTier{{"default", Whole}, {"flex", Whole / 2}, {"priority", 2 * Whole}, {"batch", 0}}
	pr.Models = []Model{
		{Name: "large", Limit: NoLimit, Prices: []Price{longContext}, ServiceRates: []ServiceRates{{"fast", Rates{Input: 8_000_000, CacheRead: 8_000_000, CacheWrite: 8_000_000, Output: 40_000_000}}}},
		{Name: "small", Limit: NoLimit, Prices: []Price{{Rates: Rates{Input: 100_000, CacheRead: 10_000, CacheWrite: 125_000, Output: 500_000}}}},
	}
	p.Providers = append(p.Providers, Provider{Name: "plain", Limit: NoLimit, Models: []Model{{Name: "large", Limit: NoLimit, Prices: []Price{{Rates: Rates{Input: 1_000_000, Output: 1_000_000}}}}}})
	return p
}

// The price of a call is that of the model and the service tier that the answer names; tokens and money count on the lease's rung.
func TestServedPrice(t *testing.T) {
	t.Parallel()
	thousand := Usage{Input: 1000, Output: 100}
	for _, c := range []struct {
		name   string
		on     string // provider of the lease
		commit Commit
		nanos  Nanos
		flags  Flags
	}{
		{"as leased", "openai", Commit{Usage: thousand}, 2_000_000 + 1_200_000, 0},
		{"named by the answer", "openai", Commit{Usage: thousand, Model: "large", Tier: "default"}, 3_200_000, 0},
		{"a smaller model served", "openai", Commit{Usage: thousand, Model: "small"}, 100_000 + 50_000, 0},
		{"an unknown model is the lease's", "openai", Commit{Usage: thousand, Model: "large-2027"}, 3_200_000, 0},
		{"flex is half", "openai", Commit{Usage: thousand, Tier: "flex"}, 1_600_000, 0},
		{"priority is double, more than was held", "openai", Commit{Usage: thousand, Tier: "priority"}, 6_400_000, FlagOverrun},
		{"a smaller model in flex", "openai", Commit{Usage: thousand, Model: "small", Tier: "flex"}, 75_000, 0},
		{"a tier may be free", "openai", Commit{Usage: thousand, Tier: "batch"}, 0, 0},
		{"rates of a tier's own", "openai", Commit{Usage: thousand, Tier: "fast"}, 8_000_000 + 4_000_000, FlagOverrun},
		{"they are that model's alone", "openai", Commit{Usage: thousand, Model: "small", Tier: "fast"}, 150_000, FlagEstimated},
		{"a tier without a price is the standard one, and flagged", "openai", Commit{Usage: thousand, Tier: "ultra"}, 3_200_000, FlagEstimated},
		{"where no tier has a price all cost the same", "plain", Commit{Usage: thousand, Tier: "ultra"}, 1_100_000, 0},
		{"rounded up once, after the factor", "openai", Commit{Usage: Usage{Input: 1}, Model: "small", Tier: "flex"}, 50, 0},
		{"one number", "openai", Commit{HasActual: true, Actual: 1100, Tier: "flex"}, 1_600_000, 0},
		{"T23", "openai", Commit{Usage: Usage{Input: 853, CacheRead: 11, CacheWrite: 5}, Model: "t23"}, 1_720_700, 0},
		{"T24", "openai", Commit{Usage: Usage{Input: 20_212 - 16_298, CacheRead: 16_298, Output: 931}, Model: "t24"}, 5_564_900, FlagOverrun},
		{"T26: at the cliff", "openai", Commit{Usage: Usage{Input: 200_000}}, usd(400_000), FlagOverrun},
		{"T26: above it", "openai", Commit{Usage: Usage{Input: 200_001}}, 800_004_000, FlagOverrun},
		{"T26: above it in flex", "openai", Commit{Usage: Usage{Input: 200_001}, Tier: "flex"}, 400_002_000, FlagOverrun},
		{"T26: cache writes", "openai", Commit{Usage: Usage{Input: 245_000, CacheWrite: 5000}}, usd(980_000) + usd(37_500), FlagOverrun},
		{"two steps of 150,000 each are below the cliff", "openai", Commit{Usage: Usage{Input: 300_000}, Longest: 150_000}, usd(600_000), FlagOverrun},
		{"one of them above it", "openai", Commit{Usage: Usage{Input: 300_000}, Longest: 200_001}, usd(1_200_000), FlagOverrun},
	} {
		p := servedPolicy()
		p.Providers[0].Models = append(p.Providers[0].Models,
			Model{Name: "t23", Limit: NoLimit, Prices: []Price{{Rates: Rates{Input: 2_000_000, CacheRead: 200_000, CacheWrite: 2_500_000}}}},
			Model{Name: "t24", Limit: NoLimit, Prices: []Price{{Rates: Rates{Input: 500_000, CacheRead: 50_000, Output: 3_000_000}}}})
		k := openDesk(t, p)
		ask := &Request{Lease: leaseID(0), Agent: "a", Model: "large", Provider: c.on, Except: []string{map[string]string{"openai": "plain", "plain": "openai"}[c.on]},
			Input: 1000, Output: 100, Priority: ClassPriority}
		if got := k.do(t, at(Hour), ask); got.Answer.Lease.Provider != c.on {
			t.Fatalf("%s: %v", c.name, got)
		}
		c.commit.Lease, c.commit.Outcome = leaseID(0), OutcomeOK
		c.commit.HasUsage = !c.commit.HasActual
		got := k.do(t, at(Hour), &c.commit)
		if a := got.Answer; a.Result != Recorded || a.Nanos != c.nanos || a.Flags != c.flags {
			t.Errorf("%s: %d nanos, flags %b, want %d, %b (%v)", c.name, a.Nanos, a.Flags, c.nanos, c.flags, got.Err)
		}
		rows := 0
		k.f.EachBudget(0, func(r *BudgetRow) { // the follower's: replay needs no price
			if r.Unit != UnitNanos || r.Kind != KindModel {
				return
			}
			if want := int64(c.nanos); r.Name == "large" && r.Parent == c.on {
				rows++
				if r.Spent != want {
					t.Errorf("%s: %s/%s has %d nanos, want %d", c.name, r.Parent, r.Name, r.Spent, want)
				}
			} else if r.Spent != 0 {
				t.Errorf("%s: %s/%s has %d nanos: it is not the lease's rung", c.name, r.Parent, r.Name, r.Spent)
			}
		}, KindModel)
		if rows != 1 {
			t.Errorf("%s: the rung has %d rows", c.name, rows)
		}
	}
}

// What a lease holds is priced in the service tier that the call asks for: T26's rule for the reservation. A grant that is cut fits its budget.
func TestTierOfTheHold(t *testing.T) {
	t.Parallel()
	for tier, want := range map[string]Nanos{"": 3_200_000, "default": 3_200_000, "flex": 1_600_000, "priority": 6_400_000, "fast": 12_000_000, "batch": 0, "ultra": 3_200_000} {
		k := openDesk(t, servedPolicy())
		r := &Request{Lease: leaseID(0), Agent: "a", Model: "large", Except: []string{"plain"}, Tier: tier, Input: 1000, Output: 100, Priority: ClassPriority}
		if got := k.do(t, at(Hour), r); got.Answer.Lease.Nanos != want {
			t.Errorf("%q: %v, want %d", tier, got, want)
		}
		if got := k.do(t, at(Hour), &Commit{Lease: leaseID(0), HasUsage: true, Usage: Usage{Input: 1000, Output: 100}, Tier: tier}); got.Answer.Nanos != want || got.Answer.Flags&FlagOverrun != 0 {
			t.Errorf("%q: committed %v, want %d", tier, got, want)
		}
	}
	for tier, want := range map[string]Tokens{"": 666, "flex": 1500, "priority": 250, "batch": 5000} {
		p := servedPolicy()
		p.Global.Nanos = 10_000_000
		k := openDesk(t, p)
		got := k.do(t, at(Hour), &Request{Lease: leaseID(0), Agent: "a", Model: "large", Except: []string{"plain"}, Tier: tier, Input: 1000, Output: 5000, Min: 1001, Priority: ClassPriority})
		if l := got.Answer.Lease; l.Output != want || l.Nanos > 10_000_000 {
			t.Errorf("%q: cut to %d of output for %d nanos, want %d", tier, l.Output, l.Nanos, want)
		}
	}
	a, b := requestOf(0), requestOf(0)
	if b.Tier = "flex"; a.Sum() == b.Sum() {
		t.Error("another tier is another request")
	}
}

// The day of the grant decides the price, also of the model that served: Gemini's prices double on 2026-12-01.
func TestServedPriceOfTheGrantsDay(t *testing.T) {
	t.Parallel()
	double := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC).UnixNano()
	dated := func(in, out Pico) []Price {
		return []Price{{To: double, Rates: Rates{Input: in, Output: out}}, {From: double, Rates: Rates{Input: 2 * in, Output: 2 * out}}}
	}
	p := onePolicy()
	p.Providers[0].Models = []Model{{Name: "argon", Limit: NoLimit, Prices: dated(2_000_000, 10_000_000)}, {Name: "carbon", Limit: NoLimit, Prices: dated(1_000_000, 5_000_000)}}
	k := newDesk("pool")
	when := func(s int64) Time { return Time{Now: Hour + s*Second, Wall: double + s*Second} }
	k.do(t, when(-20), p.adopt(t, day(double-20*Second)))
	ask := func(n int) *Request {
		r := requestOf(n)
		r.Input, r.Output = 1000, 100
		return r
	}
	if hold := k.do(t, when(-10), ask(0)).Answer.Lease.Nanos; hold != 3_000_000 {
		t.Errorf("the day before: hold %d", hold)
	}
	if hold := k.do(t, when(0), ask(1)).Answer.Lease.Nanos; hold != 6_000_000 {
		t.Errorf("on the day: hold %d", hold)
	}
	k.do(t, when(-5), ask(2)) // time does not go back: granted at 0
	for n, c := range []struct {
		model string
		want  Nanos
	}{{"argon", 3_000_000}, {"argon", 6_000_000}, {"carbon", 3_000_000}} {
		got := k.do(t, when(10), &Commit{Lease: leaseID(n), HasUsage: true, Usage: Usage{Input: 1000, Output: 100}, Model: c.model})
		if got.Answer.Nanos != c.want {
			t.Errorf("lease %d, served by %s: %v, want %d nanos", n, c.model, got, c.want)
		}
	}
}

// A model that fell back to a fallback price is priced by what served it, if the policy knows that.
func TestServedFallbackPrice(t *testing.T) {
	t.Parallel()
	p := servedPolicy()
	p.FallbackPrice = &Rates{Input: 20_000_000, Output: 20_000_000}
	for model, want := range map[string]Nanos{"": 22_000_000, "small": 150_000, "ghost": 22_000_000} {
		k := openDesk(t, p)
		r := requestOf(0)
		r.Model, r.Provider, r.Input, r.Output = "ghost", "openai", 1000, 100
		if got := k.do(t, at(Hour), r); got.Answer.Flags&FlagFallback == 0 {
			t.Fatalf("%v", got)
		}
		if got := k.do(t, at(Hour), &Commit{Lease: leaseID(0), HasUsage: true, Usage: Usage{Input: 1000, Output: 100}, Model: model}); got.Answer.Nanos != want {
			t.Errorf("served by %q: %v, want %d nanos", model, got, want)
		}
	}
}

func TestServedValidation(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*Policy){
		"a nameless tier":     func(p *Policy) { p.Providers[0].ServiceTiers[0].Name = "" },
		"a double tier":       func(p *Policy) { p.Providers[0].ServiceTiers[0].Name = "flex" },
		"a negative factor":   func(p *Policy) { p.Providers[0].ServiceTiers[0].Factor = -1 },
		"a factor of 101":     func(p *Policy) { p.Providers[0].ServiceTiers[0].Factor = 101 * Whole },
		"nameless rates":      func(p *Policy) { p.Providers[0].Models[0].ServiceRates[0].Name = "" },
		"a negative price":    func(p *Policy) { p.Providers[0].Models[0].ServiceRates[0].Output = -1 },
		"a price beyond 2^53": func(p *Policy) { p.Providers[0].Models[0].ServiceRates[0].Output = math.MaxInt64 },
	} {
		p := servedPolicy()
		if err := p.Validate(); err != nil {
			t.Fatal(err)
		}
		if spoil(p); p.Validate() == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	k := openDesk(t, servedPolicy())
	k.do(t, at(Hour), requestOf(0))
	for _, n := range []Tokens{-1, MaxAmount + 1} {
		if got := k.do(t, at(Hour), &Commit{Lease: leaseID(0), HasUsage: true, Longest: n}); got.Err == nil || got.Err.Reason != "longest_prompt" {
			t.Errorf("longest %d: %v", n, got)
		}
	}
}

// A tool does not speak the language of a model: a score never places a call on it that does not name it.
func TestToolIsNamed(t *testing.T) {
	t.Parallel()
	p := servedPolicy()
	p.Providers = append([]Provider{{Name: "search", Tool: true, Limit: NoLimit, Models: []Model{{Limit: NoLimit, Prices: []Price{{}}}}}}, p.Providers...) // free: the best score of all
	p.Ladders = []Ladder{{Name: "find", Tiers: [][]Rung{{{Provider: "search"}}}}}
	p.FallbackPrice = &Rates{Input: 1_000_000, Output: 1_000_000}
	k := openDesk(t, p)
	n := 0
	ask := func(change func(*Request)) Answer {
		n++
		r := requestOf(n)
		change(r)
		r.Fingerprint = r.Sum()
		return k.do(t, at(Hour), r).Answer
	}
	for range 20 {
		if a := ask(func(*Request) {}); a.Status != Granted || a.Lease.Provider == "search" {
			t.Fatalf("unnamed: %+v", a)
		}
		if a := ask(func(r *Request) { r.Model = "nobody's" }); a.Status != Granted || a.Lease.Provider == "search" {
			t.Fatalf("a model that nobody knows: %+v", a)
		}
		if a := ask(func(r *Request) { r.Provider = "plain" }); a.Status != Granted || a.Lease.Provider == "search" {
			t.Fatalf("another preferred: %+v", a)
		}
	}
	if a := ask(func(r *Request) { r.Provider = "search" }); a.Lease.Provider != "search" {
		t.Errorf("preferred: %+v", a)
	}
	if a := ask(func(r *Request) { r.Ladder = "find" }); a.Lease.Provider != "search" {
		t.Errorf("on its ladder: %+v", a)
	}
	if a := ask(func(r *Request) { r.Except = []string{"openai", "plain"} }); a.Status != Denied || a.Check.Reason != ReasonNoRung {
		t.Errorf("nothing else is left: %+v", a)
	}
	p.Providers[0].Models[0].Name = "web"
	k.reload(t, Hour, p)
	if a := ask(func(r *Request) { r.Model = "web" }); a.Lease.Provider != "search" {
		t.Errorf("by model: %+v", a)
	}
}

// An account that is used up shuts every model of its provider; a limit of one model that opens in an hour shuts that model.
func TestExhaustedModelOnly(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		signal ProviderSignal
		shut   bool // the other model
	}{
		{ProviderSignal{Status: 429}, true},
		{ProviderSignal{Status: 429, RetryAfter: 3600 * Second}, true},
		{ProviderSignal{Status: 402}, true},
		{ProviderSignal{Status: 429, RetryAfter: 3600 * Second, ModelOnly: true}, false},
		{ProviderSignal{Status: 403}, false},
	} {
		k := openDesk(t, servedPolicy())
		ask := func(n int, model string) Answer {
			r := requestOf(n)
			r.Model, r.Except = model, []string{"plain"}
			return k.do(t, at(Hour), r).Answer
		}
		ask(0, "large")
		k.do(t, at(Hour), &Release{Lease: leaseID(0), Outcome: OutcomeExhausted, Signal: c.signal})
		if a := ask(1, "large"); a.Status != Deferred || a.Check.Reason != ReasonExhausted || a.RetryAfter < 59*Minute {
			t.Errorf("%+v: the model itself: %+v", c.signal, a)
		}
		if a := ask(2, "small"); (a.Status != Granted) != c.shut {
			t.Errorf("%+v: another model: %+v", c.signal, a)
		}
	}
}
