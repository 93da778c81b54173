package catalog

import (
	"errors"
	"fmt"
	"strings"
)

// ErrDecimal is the cause of every error of [ParseDecimal].
var ErrDecimal = errors.New("not a plain decimal number")

// maxDecimal is the largest amount [ParseDecimal] returns: 2^53-1, the bound of every amount of the product.
const maxDecimal = 1<<53 - 1

// ParseDecimal reads a non-negative decimal such as "0.0028", "1_000" or "2.50" and returns it times 10^scale, exactly.
// It never goes through a float. Zeros at the end of the fraction do not count as decimals.
// Errors wrap [ErrDecimal]: a sign, an exponent, a stray character, more than scale decimals, or a result above 2^53-1.
func ParseDecimal(text string, scale int) (int64, error) {
	s := strings.TrimSpace(text)
	whole, fraction, dotted := strings.Cut(s, ".")
	if strings.HasPrefix(s, "-") {
		return 0, fmt.Errorf("%w: %q is negative", ErrDecimal, text)
	}
	if whole == "" && fraction == "" {
		return 0, fmt.Errorf("%w: %q", ErrDecimal, text)
	}
	if dotted && fraction == "" {
		return 0, fmt.Errorf("%w: %q ends in a point", ErrDecimal, text)
	}
	fraction = strings.TrimRight(fraction, "0")
	if len(fraction) > scale {
		return 0, fmt.Errorf("%w: %q has more than %d decimals", ErrDecimal, text, scale)
	}
	if strings.HasPrefix(whole, "_") || strings.HasSuffix(whole, "_") || strings.Contains(whole, "__") {
		return 0, fmt.Errorf("%w: %q", ErrDecimal, text)
	}
	digits := strings.ReplaceAll(whole, "_", "") + fraction + strings.Repeat("0", scale-len(fraction))
	var n int64
	for _, c := range []byte(digits) {
		if c < '0' || c > '9' {
			return 0, fmt.Errorf("%w: %q", ErrDecimal, text)
		}
		if n = n*10 + int64(c-'0'); n > maxDecimal {
			return 0, fmt.Errorf("%w: %q is too large", ErrDecimal, text)
		}
	}
	return n, nil
}

// FormatDecimal is the inverse of [ParseDecimal]: n divided by 10^scale, without zeros at the end.
func FormatDecimal(n int64, scale int) string {
	sign := ""
	if n < 0 {
		sign, n = "-", -n
	}
	s := fmt.Sprintf("%0*d", scale+1, n)
	whole, fraction := s[:len(s)-scale], strings.TrimRight(s[len(s)-scale:], "0")
	if fraction == "" {
		return sign + whole
	}
	return sign + whole + "." + fraction
}
