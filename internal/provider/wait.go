package provider

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxWait is the longest wait that is believed. Real ones reach days (302,539,000 ms was seen, and quotas reset by the
// month); above a year the value is a mistake and counts as absent.
const maxWait = 366 * 24 * time.Hour

// RetryAfter is how long the headers tell the caller to wait: retry-after-ms wins over retry-after. now places the
// forms that name an instant; a Date header of the same answer replaces it, so that skew between the clocks cancels.
// ok is false when neither header holds a wait that can be believed. A wait of 0 is possible: whoever sleeps on it
// needs a floor of his own.
func RetryAfter(h http.Header, now time.Time) (wait time.Duration, ok bool) {
	return reader{h, now}.retryAfter()
}

// ParseWait reads one wait in any form that providers send: seconds (`120`, `1.5`, `1e3`), a duration (`17ms`,
// `6m0s`, `23h47m36.648s`), an HTTP date, an RFC 3339 instant, a Unix time in seconds or milliseconds. Of a list
// (`60, 120`) the first counts. An instant in the past is 0. Empty, negative, unreadable or above a year: ok is false.
func ParseWait(value string, now time.Time) (wait time.Duration, ok bool) {
	value = strings.TrimSpace(value)
	if t, err := http.ParseTime(value); err == nil {
		return until(t, now)
	}
	if t, err := time.Parse(time.RFC3339, value); err == nil {
		return until(t, now)
	}
	if first, _, list := strings.Cut(value, ","); list {
		value = strings.TrimSpace(first)
	}
	if d, err := time.ParseDuration(value); err == nil {
		return believed(d)
	}
	n, err := strconv.ParseFloat(value, 64)
	if err != nil || math.IsNaN(n) {
		return 0, false
	}
	// Three magnitudes are told apart: a wait in seconds, a Unix time in seconds (from 2001 on), one in milliseconds.
	switch {
	case n >= 1e14:
		return 0, false
	case n >= 1e12:
		return until(time.UnixMilli(int64(n)), now)
	case n >= 1e9:
		return until(time.Unix(int64(n), 0), now)
	}
	return seconds(value, n)
}

// seconds turns a plain number of seconds into a duration; through ParseDuration, because 18.642 · 10⁹ in floating
// point is not 18,642,000,000.
func seconds(text string, n float64) (time.Duration, bool) {
	if d, err := time.ParseDuration(text + "s"); err == nil {
		return believed(d)
	}
	if n > maxWait.Seconds() {
		return 0, false
	}
	return believed(time.Duration(math.Ceil(n * 1e9)))
}

func believed(d time.Duration) (time.Duration, bool) {
	if d < 0 || d > maxWait {
		return 0, false
	}
	return d, true
}

func until(t, now time.Time) (time.Duration, bool) {
	d := max(t.Sub(now), 0)
	return believed(d)
}

// waitPhrases introduce a wait in the sentence of an error: OpenAI, Gemini, Azure.
var waitPhrases = [...]string{"try again in ", "retry in ", "retry after "}

// waitInText finds a wait in an error's sentence: "Please try again in 18.642s", "Please retry in 36.429760048s.",
// "Please retry after 37 seconds".
func waitInText(message string) (time.Duration, bool) {
	lower := strings.ToLower(message)
	for _, phrase := range waitPhrases {
		_, rest, found := strings.Cut(lower, phrase)
		if !found {
			continue
		}
		word, _, _ := strings.Cut(strings.TrimLeft(rest, " "), " ")
		word = strings.TrimRight(word, ".,;:!)")
		if d, err := time.ParseDuration(word); err == nil {
			return believed(d)
		}
		if n, err := strconv.ParseFloat(word, 64); err == nil && !math.IsNaN(n) {
			return seconds(word, n)
		}
	}
	return 0, false
}

// reader looks at the headers of one answer at one instant.
type reader struct {
	h   http.Header
	now time.Time
}

// wall is the provider's own time of the answer if it gave one.
func (r reader) wall() time.Time {
	if t, err := http.ParseTime(r.h.Get("Date")); err == nil {
		return t
	}
	return r.now
}

func (r reader) retryAfter() (time.Duration, bool) {
	if v := strings.TrimSpace(r.h.Get("Retry-After-Ms")); v != "" {
		if n, err := strconv.ParseFloat(v, 64); err == nil && n >= 0 && n <= float64(maxWait/time.Millisecond) {
			return time.Duration(math.Ceil(n * 1e6)), true
		}
	}
	return ParseWait(r.h.Get("Retry-After"), r.wall())
}
