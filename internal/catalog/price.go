package catalog

import (
	"fmt"
	"time"
)

// Price is USD per token in units of 10^-12 (pico-USD). A published price of $0.0028 per million tokens is 2,800.
// The zero value is free.
type Price int64

// Bounds of a plausible price of one token: what lies outside was meant in another unit.
const (
	// PicoPerToken is the pico-USD of one USD.
	PicoPerToken = 1_000_000_000_000
	// MaxPrice is $10,000 per million tokens, more than ten times the dearest model ever listed.
	MaxPrice Price = PicoPerToken / 100
	// MinPrice is $0.0001 per million tokens, a twentieth of the cheapest. Below it only 0 is accepted.
	MinPrice Price = 100
)

// PerMillion reads a price in USD per million tokens, the unit of price lists ("2.50" is 2,500,000 pico-USD a token).
// More than 6 decimals (finer than a pico-USD a token), a sign and an implausible price are errors; the last says which
// unit was probably meant.
func PerMillion(text string) (Price, error) {
	n, err := ParseDecimal(text, 6)
	if err != nil {
		if p, ok := smallPerToken(text); ok {
			return 0, fmt.Errorf("%s USD per million tokens is next to nothing: did you mean per_token, which is %s per million?", text, p)
		}
		return 0, err
	}
	p := Price(n)
	switch {
	case p > MaxPrice:
		return 0, fmt.Errorf("%s USD per million tokens is above %s: did you mean %s?", text, MaxPrice, FormatDecimal(n, 12))
	case p != 0 && p < MinPrice:
		return 0, fmt.Errorf("%s USD per million tokens is next to nothing: did you mean per_token, which is %s per million?", text, FormatDecimal(n, 0))
	}
	return p, nil
}

// smallPerToken recognises a per-token price in a per-million field: 0.0000025 is 2.5 per million.
func smallPerToken(text string) (string, bool) {
	n, err := ParseDecimal(text, 12)
	if err != nil || n == 0 || Price(n) > MaxPrice || n >= 1_000_000_000 {
		return "", false
	}
	return Price(n).String(), true
}

// PerToken reads a price in USD per token ("0.0000025"). More than 12 decimals, a sign and an implausible price are errors:
// 8 a token is 8,000,000 a million, which nobody asks.
func PerToken(text string) (Price, error) {
	n, err := ParseDecimal(text, 12)
	if err != nil {
		if _, err := ParseDecimal(text, 0); err != nil {
			return 0, err
		}
		return 0, fmt.Errorf("%s USD per token is above any price: did you mean %s USD per million tokens?", text, text)
	}
	p := Price(n)
	switch {
	case p > MaxPrice:
		return 0, fmt.Errorf("%s USD per token is %s USD per million tokens: did you mean %s per million?", text, p, text)
	case p != 0 && p < MinPrice:
		return 0, fmt.Errorf("%s USD per token is %s USD per million tokens, next to nothing", text, p)
	}
	return p, nil
}

// String is the price in USD per million tokens, the unit of price lists.
func (p Price) String() string { return FormatDecimal(int64(p), 6) }

// Rates are the prices of the token classes of one call.
type Rates struct {
	Input, CacheRead, CacheWrite, CacheWriteLong, Output Price
}

// Tier replaces the rates of the whole request, output and cache writes included, when its total input
// (fresh + cache read + cache write + cache write long) is above OverInput: a cliff, not a margin.
type Tier struct {
	OverInput int64
	Rates     Rates
}

// Row is what a model costs from From (zero: always) until before To (zero: until further notice).
type Row struct {
	From, To time.Time
	Rates
	Tiers []Tier // ascending OverInput
}

// Ratio is a factor on a price in millionths.
type Ratio int64

const (
	ratioScale = 6
	// RatioOne is the factor 1.
	RatioOne Ratio = 1_000_000
	maxRatio       = 100 * RatioOne
)
