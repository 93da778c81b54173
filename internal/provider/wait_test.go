package provider

import (
	"net/http"
	"testing"
	"time"
)

var noon = time.Date(2026, 7, 25, 12, 0, 0, 0, time.UTC)

func TestParseWait(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		value string
		want  time.Duration
		ok    bool
	}{
		{"120", 120 * time.Second, true},
		{"0", 0, true},
		{" 30 ", 30 * time.Second, true},
		{"Sat, 25 Jul 2026 12:05:00 GMT", 300 * time.Second, true},
		{"Wed, 21 Oct 2015 07:28:00 GMT", 0, true},
		{"17ms", 17 * time.Millisecond, true},
		{"500ms", 500 * time.Millisecond, true},
		{"1.5s", 1500 * time.Millisecond, true},
		{"1.5", 1500 * time.Millisecond, true},
		{"18.642", 18642 * time.Millisecond, true},
		{"6m0s", 360 * time.Second, true},
		{"23h47m36.648s", 85656648 * time.Millisecond, true},
		{"2026-07-25T12:00:30Z", 30 * time.Second, true},
		{"2026-07-25T20:00:30+08:00", 30 * time.Second, true},
		{"1784980830", 30 * time.Second, true},
		{"1784980830000", 30 * time.Second, true},
		{"1784980700", 0, true},
		{"60, 120", 60 * time.Second, true},
		{"1e3", 1000 * time.Second, true},
		{"302539", 302539 * time.Second, true},
		{"", 0, false},
		{"-5", 0, false},
		{"-5s", 0, false},
		{"abc", 0, false},
		{"1e99", 0, false},
		{"1e400", 0, false},
		{"NaN", 0, false},
		{"Inf", 0, false},
		{"99999999", 0, false},
		{"9999999999", 0, false},
	} {
		got, ok := ParseWait(c.value, noon)
		if got != c.want || ok != c.ok {
			t.Errorf("ParseWait(%q) = %v, %v; want %v, %v", c.value, got, ok, c.want, c.ok)
		}
	}
}

func TestRetryAfterHeaders(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		h    http.Header
		want time.Duration
		ok   bool
	}{
		{"milliseconds win", http.Header{"Retry-After-Ms": {"250"}, "Retry-After": {"1"}}, 250 * time.Millisecond, true},
		{"fraction of a millisecond", http.Header{"Retry-After-Ms": {"0.5"}}, 500 * time.Microsecond, true},
		{"three and a half days", http.Header{"Retry-After-Ms": {"302539000"}}, 302539 * time.Second, true},
		{"bad milliseconds", http.Header{"Retry-After-Ms": {"soon"}, "Retry-After": {"1"}}, time.Second, true},
		{"negative milliseconds", http.Header{"Retry-After-Ms": {"-1"}, "Retry-After": {"2"}}, 2 * time.Second, true},
		{"their clock runs 10 s behind", http.Header{"Retry-After": {"Sat, 25 Jul 2026 12:00:20 GMT"}, "Date": {"Sat, 25 Jul 2026 11:59:50 GMT"}}, 30 * time.Second, true},
		{"nothing", http.Header{}, 0, false},
	} {
		got, ok := RetryAfter(c.h, noon)
		if got != c.want || ok != c.ok {
			t.Errorf("%s: %v, %v; want %v, %v", c.name, got, ok, c.want, c.ok)
		}
	}
}

func TestWaitInText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"Rate limit reached. Please try again in 18.642s. Visit ...":             18642 * time.Millisecond,
		"Please try again in 174ms.":                                             174 * time.Millisecond,
		"Please try again in 1m30s":                                              90 * time.Second,
		"You exceeded your current quota. Please retry in 36.429760048s.":        36429760048,
		"Please retry after 37 seconds if you need":                              37 * time.Second,
		"Please retry after 86400 seconds.":                                      86400 * time.Second,
		"PLEASE RETRY AFTER 2 SECONDS":                                           2 * time.Second,
		"Please try again in a while.":                                           0,
		"Rate limit of 50000 per 60s exceeded for UserByModelByMinuteUncachedIn": 0,
	} {
		if got, _ := waitInText(text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func FuzzParseWait(f *testing.F) {
	for _, s := range []string{"120", "Sat, 25 Jul 2026 12:05:00 GMT", "17ms", "23h47m36.648s", "2026-07-25T12:00:30Z", "1784980830",
		"", "-5", "abc", "1e99", "60, 120", "NaN", "0x1p-2", "9223372036854775807", "1_000", "+3", ".5", "1e-320"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		for _, form := range []string{value, value + "s", "Please try again in " + value} {
			if w, ok := ParseWait(form, noon); w < 0 || w > maxWait || !ok && w != 0 {
				t.Fatalf("ParseWait(%q) = %v, %v", form, w, ok)
			}
			if w, ok := waitInText(form); w < 0 || w > maxWait || !ok && w != 0 {
				t.Fatalf("waitInText(%q) = %v, %v", form, w, ok)
			}
		}
		h := http.Header{"Retry-After-Ms": {value}, "Retry-After": {value}}
		if w, ok := RetryAfter(h, noon); w < 0 || w > maxWait || !ok && w != 0 {
			t.Fatalf("RetryAfter(%q) = %v, %v", value, w, ok)
		}
	})
}
