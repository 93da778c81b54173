package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/catalog"
)

// integer is a 64-bit number of the JSON API, which writes them as strings. It is written back as a number: all amounts
// are at most 2^53-1, which JSON numbers carry exactly.
type integer int64

func (n *integer) UnmarshalJSON(b []byte) error {
	v, err := strconv.ParseInt(strings.Trim(string(b), `"`), 10, 64)
	if err != nil {
		return fmt.Errorf("read integer %.40s: %w", b, err)
	}
	*n = integer(v)
	return nil
}

// count is a number with separators.
func count(n integer) string { return humanize.Comma(int64(n)) }

// amount is a number in a unit of the API: tokens, or nano_usd, which people read as USD.
func amount(n integer, unit string) string {
	if unit == "nano_usd" {
		return dollars(n)
	}
	return count(n)
}

// dollars is nano-USD as USD: two decimals from a dollar on, as many as it takes below.
func dollars(n integer) string {
	whole, nanos := int64(n)/1e9, int64(n)%1e9
	if whole == 0 && nanos != 0 {
		return "$" + strings.TrimRight(fmt.Sprintf("0.%09d", nanos), "0")
	}
	return fmt.Sprintf("$%s.%02d", humanize.Comma(whole), nanos/1e7)
}

// part is a share from 0 to 1 in percent.
func part(f float64) string {
	p := f * 100
	if p > 0 && p < 1 || p > 99 && p < 100 { // a limit that is nearly reached is not reached
		return strconv.FormatFloat(p, 'f', 1, 64) + " %"
	}
	return strconv.FormatFloat(p, 'f', 0, 64) + " %"
}

// span is a duration in milliseconds, with two units at most.
func span(ms integer) string {
	d := time.Duration(ms) * time.Millisecond
	switch {
	case d <= 0:
		return ""
	case d < time.Second:
		return d.String()
	case d < time.Minute:
		return strings.TrimSuffix(strconv.FormatFloat(d.Seconds(), 'f', 1, 64), ".0") + "s"
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
}

// when is an instant in the zone of the reader.
func when(t *time.Time) string {
	if t == nil || t.IsZero() {
		return ""
	}
	return t.Local().Format("2006-01-02 15:04:05 MST")
}

// clockTime is when without the date, for what has just happened.
func clockTime(t *time.Time) string {
	if t == nil || t.IsZero() {
		return ""
	}
	if l := t.Local(); time.Since(l) < 12*time.Hour {
		return l.Format("15:04:05.000")
	}
	return t.Local().Format("2006-01-02 15:04:05")
}

// lower is an enum of the API as people write it.
func lower(word string) string { return strings.ToLower(strings.ReplaceAll(word, "_", " ")) }

// raw is a part of an answer that is passed on as it came.
type raw = json.RawMessage

// perMillion is a price in pico-USD per token as price lists write it: USD per million tokens.
func perMillion(pico integer) string { return catalog.Format(arbiter.Pico(pico)) }
