package arbiter

import (
	"errors"
	"math/bits"
)

// Tokens counts language-model tokens. Valid amounts are 0 to MaxAmount.
type Tokens int64

// Requests counts provider calls. Valid amounts are 0 to MaxAmount.
type Requests int64

// Nanos is money in billionths of a US dollar (1 USD = 10⁹). Valid amounts are 0 to MaxAmount, about nine million dollars.
type Nanos int64

// Pico is a price: millionths of a Nanos (10⁻¹² USD) for one token. A published price of $0.0028 per million tokens is 2,800.
type Pico int64

// PPM is a fraction in parts per million; 1,000,000 is the whole.
type PPM int64

const (
	// MaxAmount bounds every amount of tokens, requests and money: 2⁵³−1, the largest integer that Lua and JSON numbers carry exactly.
	MaxAmount = 1<<53 - 1
	// Whole is the PPM of 1.
	Whole PPM = 1_000_000
	// MaxFactor bounds what a service tier multiplies prices with.
	MaxFactor = 100 * Whole
	// Unlimited is the limit of a budget that bounds nothing.
	Unlimited = -1

	picosPerNano = 1000
)

// Durations in nanoseconds: floor 0 counts time in int64 and never reads a clock.
const (
	Microsecond int64 = 1_000
	Millisecond       = 1_000 * Microsecond
	Second            = 1_000 * Millisecond
	Minute            = 60 * Second
	Hour              = 60 * Minute
)

// Time is the moment of a decision, both in nanoseconds.
// Now is logical: monotone within a journal, the basis of every deadline and window.
// Wall is Unix time, used for periods, price dates and display only.
type Time struct{ Now, Wall int64 }

// ErrAmount says that an amount is negative or above MaxAmount.
var ErrAmount = errors.New("amount must be between 0 and 9007199254740991")

func validAmount(n int64) bool { return n >= 0 && n <= MaxAmount }

// addAmount adds two valid amounts and stops at MaxAmount, so that a sum of sums stays exact in JSON and never wraps.
func addAmount(a, b int64) int64 { return min(a+b, MaxAmount) }

// mulDiv returns a·b/c rounded down, with a 128-bit product. It saturates at the largest int64. All arguments must be ≥ 0 and c > 0.
func mulDiv(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= uint64(c) {
		return 1<<63 - 1
	}
	q, _ := bits.Div64(hi, lo, uint64(c))
	if q > 1<<63-1 {
		return 1<<63 - 1
	}
	return int64(q)
}

// mulDivUp is mulDiv rounded up.
func mulDivUp(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= uint64(c) {
		return 1<<63 - 1
	}
	q, r := bits.Div64(hi, lo, uint64(c))
	if r > 0 {
		q++
	}
	if q > 1<<63-1 {
		return 1<<63 - 1
	}
	return int64(q)
}

// share returns f of n, rounded down.
func (f PPM) share(n int64) int64 { return mulDiv(n, int64(f), int64(Whole)) }

// ratio returns a/b in parts per million, at most Whole when a ≤ b; b = 0 gives Whole.
func ratio(a, b int64) PPM {
	if b <= 0 {
		return Whole
	}
	return PPM(mulDiv(max(a, 0), int64(Whole), b))
}

// Usage counts the tokens of one call. The five counts that are billed are disjoint; Reasoning is a part of Output. The zero value is a call that used nothing.
type Usage struct {
	Input, CacheRead, CacheWrite, CacheWriteLong, Output, Reasoning Tokens
}

// Total is what the call counts against token budgets.
func (u Usage) Total() Tokens { return u.InputTotal() + u.Output }

// InputTotal is the prompt with its cached parts; price tiers are judged by it.
func (u Usage) InputTotal() Tokens { return u.Input + u.CacheRead + u.CacheWrite + u.CacheWriteLong }

// Valid reports ErrAmount when a count is negative or the total is above MaxAmount.
func (u Usage) Valid() error {
	var sum int64
	for _, n := range [...]Tokens{u.Input, u.CacheRead, u.CacheWrite, u.CacheWriteLong, u.Output} {
		if !validAmount(int64(n)) {
			return ErrAmount
		}
		sum += int64(n)
	}
	if sum > MaxAmount || u.Reasoning < 0 || u.Reasoning > u.Output {
		return ErrAmount
	}
	return nil
}

// Rates are the prices of the five kinds of token. A zero is a price of zero; unknown prices are never written as zero (see Price).
type Rates struct {
	Input          Pico `json:"input"`
	CacheRead      Pico `json:"cache_read"`
	CacheWrite     Pico `json:"cache_write"`
	CacheWriteLong Pico `json:"cache_write_long"`
	Output         Pico `json:"output"`
}

// Tier replaces the rates of the whole call once its prompt is longer than OverInput: a cliff, not a step.
type Tier struct {
	OverInput Tokens `json:"over_input"`
	Rates
}

// Price is what one model costs between two dates, Unix nanoseconds: From ≤ t < To; 0 leaves that side open. Tiers ascend.
type Price struct {
	From, To int64 `json:",omitempty"`
	Rates
	Tiers []Tier `json:",omitempty"`
}

// RatesFor returns the rates of a call with this prompt length.
func (p *Price) RatesFor(input Tokens) *Rates {
	r := &p.Rates
	for i := range p.Tiers {
		if input > p.Tiers[i].OverInput {
			r = &p.Tiers[i].Rates
		}
	}
	return r
}

// Cost is the price of u, rounded up once to whole Nanos and held at MaxAmount.
//
// Worked example (scenario T23): 853 fresh, 11 cached at 0.2 $/M, 5 written at 2.5 $/M, input 2 $/M:
// 853·2,000,000 + 11·200,000 + 5·2,500,000 = 1,720,700,000 pico = 1,720,700 nano = $0.0017207.
func (p *Price) Cost(u Usage) Nanos { return p.RatesFor(u.InputTotal()).Cost(u) }

// Cost is Price.Cost at rates whose tier is already chosen.
func (r *Rates) Cost(u Usage) Nanos { return r.cost(u, Whole) }

// cost is Cost times the factor of a service tier, at most MaxFactor, still rounded up once.
//
// Worked example: 1 token at 2,800 pico in a tier of half the price is 1,400 pico, so 2 nano; without the tier it is 3.
func (r *Rates) cost(u Usage, factor PPM) Nanos {
	var hi, lo uint64
	add := func(n Tokens, price Pico) {
		h, l := bits.Mul64(uint64(n), uint64(price))
		var carry uint64
		lo, carry = bits.Add64(lo, l, 0)
		hi, _ = bits.Add64(hi, h, carry)
	}
	add(u.Input, r.Input)
	add(u.CacheRead, r.CacheRead)
	add(u.CacheWrite, r.CacheWrite)
	add(u.CacheWriteLong, r.CacheWriteLong)
	add(u.Output, r.Output)
	by := uint64(picosPerNano)
	if factor != Whole {
		top, mid := bits.Mul64(hi, uint64(factor))
		carried, low := bits.Mul64(lo, uint64(factor))
		var carry uint64
		if hi, carry = bits.Add64(mid, carried, 0); top+carry > 0 {
			return MaxAmount
		}
		lo, by = low, picosPerNano*uint64(Whole)
	}
	if hi >= by {
		return MaxAmount
	}
	q, rem := bits.Div64(hi, lo, by)
	if rem > 0 {
		q++
	}
	return Nanos(min(q, MaxAmount))
}

// PriceAt returns the price in force at a Unix time in nanoseconds, or nil when none is: the call is then unpriced, never free.
func PriceAt(prices []Price, wall int64) *Price {
	for i := range prices {
		p := &prices[i]
		if (p.From == 0 || wall >= p.From) && (p.To == 0 || wall < p.To) {
			return p
		}
	}
	return nil
}
