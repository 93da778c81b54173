package catalog

import (
	"fmt"
	"math/bits"

	"github.com/token-budget-arbiter/tba/arbiter"
)

// Bounds of a plausible price of one token: what lies outside was meant in another unit.
const (
	// PicoPerToken is the pico-USD of one USD.
	PicoPerToken = 1_000_000_000_000
	// MaxPrice is $10,000 per million tokens, more than ten times the dearest model ever listed.
	MaxPrice arbiter.Pico = PicoPerToken / 100
	// MinPrice is $0.0001 per million tokens, a twentieth of the cheapest. Below it only 0 is accepted.
	MinPrice arbiter.Pico = 100
)

// PerMillion reads a price in USD per million tokens, the unit of price lists ("2.50" is 2,500,000 pico-USD a token).
// More than 6 decimals (finer than a pico-USD a token), a sign and an implausible price are errors; the last says which
// unit was probably meant.
func PerMillion(text string) (arbiter.Pico, error) {
	n, err := ParseDecimal(text, 6)
	if err != nil {
		if p, ok := smallPerToken(text); ok {
			return 0, fmt.Errorf("%s USD per million tokens is next to nothing: did you mean per_token, which is %s per million?", text, p)
		}
		return 0, err
	}
	p := arbiter.Pico(n)
	switch {
	case p > MaxPrice:
		return 0, fmt.Errorf("%s USD per million tokens is above %s: did you mean %s?", text, Format(MaxPrice), FormatDecimal(n, 12))
	case p != 0 && p < MinPrice:
		return 0, fmt.Errorf("%s USD per million tokens is next to nothing: did you mean per_token, which is %s per million?", text, FormatDecimal(n, 0))
	}
	return p, nil
}

// smallPerToken recognises a per-token price in a per-million field: 0.0000025 is 2.5 per million.
func smallPerToken(text string) (string, bool) {
	n, err := ParseDecimal(text, 12)
	if err != nil || n == 0 || arbiter.Pico(n) > MaxPrice || n >= 1_000_000_000 {
		return "", false
	}
	return Format(arbiter.Pico(n)), true
}

// PerToken reads a price in USD per token ("0.0000025"). More than 12 decimals, a sign and an implausible price are errors:
// 8 a token is 8,000,000 a million, which nobody asks.
func PerToken(text string) (arbiter.Pico, error) {
	n, err := ParseDecimal(text, 12)
	if err != nil {
		if _, err := ParseDecimal(text, 0); err != nil {
			return 0, err
		}
		return 0, fmt.Errorf("%s USD per token is above any price: did you mean %s USD per million tokens?", text, text)
	}
	p := arbiter.Pico(n)
	switch {
	case p > MaxPrice:
		return 0, fmt.Errorf("%s USD per token is %s USD per million tokens: did you mean %s per million?", text, Format(p), text)
	case p != 0 && p < MinPrice:
		return 0, fmt.Errorf("%s USD per token is %s USD per million tokens, next to nothing", text, Format(p))
	}
	return p, nil
}

// Format is a price in USD per million tokens, the unit of price lists.
func Format(p arbiter.Pico) string { return FormatDecimal(int64(p), 6) }

// Ratio is a factor on a price in millionths.
type Ratio int64

const (
	ratioScale = 6
	// RatioOne is the factor 1.
	RatioOne Ratio = 1_000_000
	maxRatio       = 100 * RatioOne
)

// Scale returns p with every rate multiplied by r. Each rate is rounded up to a whole pico-USD a token, less than
// $0.000001 per million: a service tier never costs less than its bill. A factor of [RatioOne] returns p itself.
func Scale(p arbiter.Price, r Ratio) arbiter.Price {
	if r == RatioOne {
		return p
	}
	p.Rates = scaleRates(p.Rates, r)
	tiers := make([]arbiter.Tier, len(p.Tiers))
	for i, t := range p.Tiers {
		tiers[i] = arbiter.Tier{OverInput: t.OverInput, Rates: scaleRates(t.Rates, r)}
	}
	p.Tiers = tiers
	return p
}

func scaleRates(v arbiter.Rates, r Ratio) arbiter.Rates {
	by := func(p arbiter.Pico) arbiter.Pico {
		// Prices are at most MaxPrice (2^34) and factors at most 100 (2^27): the product fits 64 bits.
		_, n := bits.Mul64(uint64(p), uint64(r))
		return arbiter.Pico((n + uint64(RatioOne) - 1) / uint64(RatioOne))
	}
	return arbiter.Rates{
		Input: by(v.Input), CacheRead: by(v.CacheRead), CacheWrite: by(v.CacheWrite),
		CacheWriteLong: by(v.CacheWriteLong), Output: by(v.Output),
	}
}
