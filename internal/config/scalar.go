package config

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/catalog"
)

// MaxAmount bounds every amount: 2^53-1, what Lua and JSON numbers carry exactly.
const MaxAmount = arbiter.MaxAmount

// Count is a number of tokens, requests or slots, from 0 to 2^53-1. Written with or without underscores: 500_000_000.
type Count int64

var countForms = regexp.MustCompile(`^\+?([0-9][0-9_, ']*)(?:\.([0-9]+))?\s*(?:[eE]\+?([0-9]{1,2})|([kKmMgGbB]))?$`)

func (c *Count) parse(text string) error {
	s := strings.TrimSpace(text)
	if strings.HasPrefix(s, "-") {
		return &wrong{"negative", fmt.Sprintf("%s is negative", plain(s)), ""}
	}
	n, err := catalog.ParseDecimal(s, 0)
	if err == nil && !strings.Contains(s, ".") {
		*c = Count(n)
		return nil
	}
	if allDigits(s) {
		return &wrong{"too-large", fmt.Sprintf("%s is above 2^53-1 (9,007,199,254,740,991)", plain(s)), ""}
	}
	return &wrong{"number", fmt.Sprintf("%q is not a whole number", plain(text)), meantCount(s)}
}

// meantCount rewrites 5M, 1e6, 10,000 and 500.0 as the whole number they probably stand for.
func meantCount(s string) string {
	m := countForms.FindStringSubmatch(s)
	if m == nil {
		return ""
	}
	shift := 0
	switch strings.ToLower(m[4]) {
	case "k":
		shift = 3
	case "m":
		shift = 6
	case "g", "b":
		shift = 9
	}
	if m[3] != "" {
		shift, _ = strconv.Atoi(m[3])
	}
	digits := strings.NewReplacer("_", "", ",", "", " ", "", "'", "").Replace(m[1])
	fraction := strings.TrimRight(m[2], "0")
	if len(fraction) > shift {
		return ""
	}
	digits += fraction + strings.Repeat("0", shift-len(fraction))
	if n, err := catalog.ParseDecimal(digits, 0); err == nil {
		return grouped(n)
	}
	return ""
}

// grouped writes 5000000 as 5_000_000, the way the file may.
func grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	if len(s) <= 4 {
		return s
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "_" + s[i:]
	}
	return s
}

func (c Count) String() string { return grouped(int64(c)) }

// Share is a part of a whole in millionths, from 0 to 1,000,000. Written as a decimal: 0.20.
type Share int64

// ShareOne is the whole.
const ShareOne Share = 1_000_000

func (s *Share) parse(text string) error {
	t := strings.TrimSpace(text)
	if p, ok := strings.CutSuffix(t, "%"); ok {
		if n, err := catalog.ParseDecimal(strings.TrimSpace(p), 4); err == nil {
			return &wrong{"share", fmt.Sprintf("%q is not a decimal from 0 to 1", plain(text)), catalog.FormatDecimal(n, 6)}
		}
	}
	if strings.HasPrefix(t, "-") {
		return &wrong{"negative", fmt.Sprintf("%s is negative", plain(t)), ""}
	}
	n, err := catalog.ParseDecimal(t, 6)
	if err != nil {
		return &wrong{"share", fmt.Sprintf("%q is not a decimal from 0 to 1 with at most 6 decimals", plain(text)), ""}
	}
	if n > int64(ShareOne) {
		w := &wrong{"share", fmt.Sprintf("%s is above 1", plain(t)), ""}
		if n <= 100*int64(ShareOne) && n%100 == 0 {
			w.suggestion = catalog.FormatDecimal(n/100, 6)
		}
		return w
	}
	*s = Share(n)
	return nil
}

func (s Share) String() string { return catalog.FormatDecimal(int64(s), 6) }

// USD is an amount of money in 10^-9 USD, from 0 to 2^53-1 (9,007,199.254740991 USD). Written as a decimal: 250.00.
type USD int64

func (u *USD) parse(text string) error {
	t := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(text), "$"))
	if strings.HasPrefix(t, "-") {
		return &wrong{"negative", fmt.Sprintf("%s is negative", plain(t)), ""}
	}
	n, err := catalog.ParseDecimal(t, 9)
	if err != nil {
		if _, err := catalog.ParseDecimal(t, 0); err == nil || allDigits(strings.Replace(t, ".", "", 1)) {
			if whole, _, _ := strings.Cut(t, "."); len(whole) >= 7 {
				return &wrong{"too-large", fmt.Sprintf("%s USD is above 9,007,199.254740991, the largest amount that can be counted exactly in nano-USD (2^53-1)", plain(t)), ""}
			}
			return &wrong{"number", fmt.Sprintf("%s USD has more than 9 decimals", plain(t)), ""}
		}
		return &wrong{"number", fmt.Sprintf("%q is not an amount in USD", plain(text)), meantUSD(t)}
	}
	*u = USD(n)
	return nil
}

func meantUSD(t string) string {
	s := strings.NewReplacer(",", "", " ", "", "USD", "", "$", "").Replace(t)
	if n, err := catalog.ParseDecimal(s, 9); err == nil {
		return catalog.FormatDecimal(n, 9)
	}
	return meantCount(s)
}

func (u USD) String() string { return catalog.FormatDecimal(int64(u), 9) }

// Duration is a span of time, written with its unit: 250ms, 30s, 10m, 1h30m. From 0 to 10 years.
type Duration time.Duration

const maxDuration = 10 * 365 * 24 * time.Hour

var (
	inDays    = regexp.MustCompile(`^([0-9]{1,4})\s*(d|day|days)$`)
	inWords   = regexp.MustCompile(`^([0-9.]{1,9})\s*(s|sec|secs|second|seconds|m|min|mins|minute|minutes|h|hour|hours|ms)$`)
	overflown = regexp.MustCompile(`^[0-9]{4,}(s|m|h)$`) // well formed, and still refused by the parser
)

func (d *Duration) parse(text string) error {
	t := strings.TrimSpace(text)
	if t == "0" {
		*d = 0
		return nil
	}
	if allDigits(t) {
		return &wrong{"duration", fmt.Sprintf("%s has no unit", plain(t)), t + "s"}
	}
	v, err := time.ParseDuration(t)
	switch {
	case err != nil:
		if overflown.MatchString(t) {
			return &wrong{"too-large", fmt.Sprintf("%s is above 10 years", plain(t)), ""}
		}
		w := &wrong{"duration", fmt.Sprintf("%q is not a duration such as 250ms, 30s, 10m or 1h30m", plain(text)), ""}
		if m := inDays.FindStringSubmatch(t); m != nil {
			n, _ := strconv.Atoi(m[1])
			w.suggestion = fmt.Sprintf("%dh", 24*n)
		} else if m := inWords.FindStringSubmatch(t); m != nil {
			unit := m[2][:1]
			if m[2] == "ms" {
				unit = "ms"
			}
			w.suggestion = m[1] + unit
		}
		return w
	case v < 0:
		return &wrong{"negative", fmt.Sprintf("%s is negative", plain(t)), ""}
	case v > maxDuration:
		return &wrong{"too-large", fmt.Sprintf("%s is above 10 years", plain(t)), ""}
	}
	*d = Duration(v)
	return nil
}

// String leaves out the zero parts that time.Duration prints: 10m, not 10m0s.
func (d Duration) String() string {
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	if d == 0 {
		return "0"
	}
	return s
}

func parseBool(text string) (bool, error) {
	switch text {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	w := &wrong{"bool", fmt.Sprintf("%q is not true or false", plain(text)), ""}
	switch strings.ToLower(text) {
	case "yes", "on", "1", "y", "true":
		w.suggestion = "true"
	case "no", "off", "0", "n", "false":
		w.suggestion = "false"
	}
	return false, w
}

func allDigits(s string) bool {
	if s == "" {
		return false
	}
	for _, c := range s {
		if (c < '0' || c > '9') && c != '_' {
			return false
		}
	}
	return true
}

// clean refuses words with control characters in them and above 4 KiB.
func clean(s string) error {
	switch {
	case len(s) > 4096:
		return &wrong{"too-large", "more than 4096 bytes", ""}
	case !utf8.ValidString(s):
		return &wrong{"text", "not UTF-8", ""}
	case strings.ContainsFunc(s, unicode.IsControl):
		return &wrong{"text", fmt.Sprintf("%q has control characters", plain(s)), ""}
	}
	return nil
}

// checkName bounds the names that the file gives to things: they become ids, labels and keys.
// Model names of some providers have a slash or an at sign.
func checkName(s string) error {
	if s == "" || len(s) > 128 {
		return fmt.Errorf("a name has 1 to 128 bytes")
	}
	for _, c := range []byte(s) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("._:-/@", c) >= 0:
		default:
			return fmt.Errorf("a name has only the characters A-Z a-z 0-9 . _ : - / @")
		}
	}
	return nil
}
