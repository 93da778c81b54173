package engine

import (
	"testing"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
)

func TestBounds(t *testing.T) {
	t.Parallel()
	monthly := func(zone string, anchor int64) arbiter.PeriodSpec {
		return arbiter.PeriodSpec{Kind: "monthly", TimeZone: zone, Anchor: anchor}
	}
	kind := func(kind, zone string) arbiter.PeriodSpec { return arbiter.PeriodSpec{Kind: kind, TimeZone: zone} }
	for _, c := range []struct {
		name           string
		spec           arbiter.PeriodSpec
		at, start, end string
	}{
		{"month in UTC", monthly("", 0), "2026-02-28T23:59:59Z", "2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z"},
		{"T46: month in Tokyo begins 9 h before UTC's", monthly("Asia/Tokyo", 1), "2026-07-31T15:00:00Z", "2026-08-01T00:00:00+09:00", "2026-09-01T00:00:00+09:00"},
		{"T46: one second before", monthly("Asia/Tokyo", 1), "2026-07-31T14:59:59Z", "2026-07-01T00:00:00+09:00", "2026-08-01T00:00:00+09:00"},
		{"T46: day at +08:00, due at 16:00Z", kind("daily", "Asia/Shanghai"), "2026-08-19T16:00:00Z", "2026-08-20T00:00:00+08:00", "2026-08-21T00:00:00+08:00"},
		{"T46: not at 15:59:59Z", kind("daily", "Asia/Shanghai"), "2026-08-19T15:59:59Z", "2026-08-19T00:00:00+08:00", "2026-08-20T00:00:00+08:00"},
		{"T48: last seconds of April", monthly("", 1), "2026-04-30T23:59:50Z", "2026-04-01T00:00:00Z", "2026-05-01T00:00:00Z"},
		{"T48: first seconds of May", monthly("", 1), "2026-05-01T00:00:10Z", "2026-05-01T00:00:00Z", "2026-06-01T00:00:00Z"},
		{"anchor 31 in April falls on the 30th", monthly("", 31), "2026-04-30T00:00:00Z", "2026-04-30T00:00:00Z", "2026-05-31T00:00:00Z"},
		{"anchor 31 around February", monthly("", 31), "2026-03-01T12:00:00Z", "2026-02-28T00:00:00Z", "2026-03-31T00:00:00Z"},
		{"anchor 29 in a leap year", monthly("", 29), "2028-02-29T00:00:00Z", "2028-02-29T00:00:00Z", "2028-03-29T00:00:00Z"},
		{"anchor 15 before the 15th of January", monthly("", 15), "2026-01-14T00:00:00Z", "2025-12-15T00:00:00Z", "2026-01-15T00:00:00Z"},
		{"quarter", kind("quarterly", ""), "2026-05-20T00:00:00Z", "2026-04-01T00:00:00Z", "2026-07-01T00:00:00Z"},
		{"quarter with an anchor not yet reached", arbiter.PeriodSpec{Kind: "quarterly", Anchor: 31}, "2026-04-29T00:00:00Z", "2026-01-31T00:00:00Z", "2026-04-30T00:00:00Z"},
		{"quarter over the year's end", arbiter.PeriodSpec{Kind: "quarterly", Anchor: 5}, "2026-01-04T00:00:00Z", "2025-10-05T00:00:00Z", "2026-01-05T00:00:00Z"},
		{"week from Monday", arbiter.PeriodSpec{Kind: "weekly", Anchor: 1}, "2026-11-29T23:00:00Z", "2026-11-23T00:00:00Z", "2026-11-30T00:00:00Z"},
		{"week from Sunday", arbiter.PeriodSpec{Kind: "weekly"}, "2026-11-29T00:00:00Z", "2026-11-29T00:00:00Z", "2026-12-06T00:00:00Z"},
		{"23 hours: clocks go forward in Paris", kind("daily", "Europe/Paris"), "2026-03-29T12:00:00Z", "2026-03-29T00:00:00+01:00", "2026-03-30T00:00:00+02:00"},
		{"25 hours: clocks go back in Paris", kind("daily", "Europe/Paris"), "2026-10-25T12:00:00Z", "2026-10-25T00:00:00+02:00", "2026-10-26T00:00:00+01:00"},
		{"a midnight that does not exist (São Paulo 2018)", kind("daily", "America/Sao_Paulo"), "2018-11-04T12:00:00Z", "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z"},
		{"the day before it", kind("daily", "America/Sao_Paulo"), "2018-11-04T02:59:59Z", "2018-11-03T03:00:00Z", "2018-11-04T03:00:00Z"},
		{"a midnight that happens twice (Havana 2026)", kind("daily", "America/Havana"), "2026-11-01T04:30:00Z", "2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z"},
		{"the same, second time round", kind("daily", "America/Havana"), "2026-11-01T05:30:00Z", "2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z"},
		{"hour", kind("hourly", ""), "2026-01-01T10:59:59Z", "2026-01-01T10:00:00Z", "2026-01-01T11:00:00Z"},
		{"hour of a zone at half past", kind("hourly", "Asia/Kolkata"), "2026-01-01T10:31:00Z", "2026-01-01T10:30:00Z", "2026-01-01T11:30:00Z"},
		{"an hour that happens twice is two", kind("hourly", "Europe/Paris"), "2026-10-25T01:30:00Z", "2026-10-25T01:00:00Z", "2026-10-25T02:00:00Z"},
		{"half an hour skipped (Lord Howe)", kind("hourly", "Australia/Lord_Howe"), "2026-10-03T15:40:00Z", "2026-10-03T15:30:00Z", "2026-10-03T16:00:00Z"},
		{"every 6 h from an anchor", arbiter.PeriodSpec{Kind: "every", Every: 6 * arbiter.Hour, Anchor: int64(90 * time.Minute)}, "1970-01-01T01:00:00Z", "1969-12-31T19:30:00Z", "1970-01-01T01:30:00Z"},
	} {
		at, start, end := instant(t, c.at), instant(t, c.start), instant(t, c.end)
		got, err := Bounds(c.spec, at)
		if err != nil || got != (arbiter.Period{Start: start, End: end}) {
			t.Errorf("%s: [%s, %s) %v, want [%s, %s)", c.name, time.Unix(0, got.Start).UTC(), time.Unix(0, got.End).UTC(), err, c.start, c.end)
		}
	}
}

func instant(t *testing.T, s string) int64 {
	t.Helper()
	v, err := time.Parse(time.RFC3339, s)
	if err != nil {
		t.Fatal(err)
	}
	return v.UnixNano()
}

// Periods tile the time line: the end of one is the start of the next, over ten years of hours and in awkward zones.
func TestPeriodsTile(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"", "Europe/Paris", "America/Sao_Paulo", "America/Havana", "Australia/Lord_Howe", "Asia/Kathmandu", "Pacific/Apia", "Africa/Casablanca"} {
		for _, spec := range []arbiter.PeriodSpec{
			{Kind: "daily"}, {Kind: "weekly", Anchor: 1}, {Kind: "monthly", Anchor: 31}, {Kind: "quarterly", Anchor: 30}, {Kind: "hourly"},
		} {
			spec.TimeZone = zone
			at, until := instant(t, "2010-06-15T11:22:33Z"), instant(t, "2019-12-01T00:00:00Z")
			if spec.Kind == "hourly" {
				until = instant(t, "2012-01-10T00:00:00Z")
			}
			last, err := Bounds(spec, at)
			if err != nil {
				t.Fatal(err)
			}
			for last.End < until {
				next, err := Bounds(spec, last.End)
				if err != nil || next.Start != last.End || next.End <= next.Start {
					t.Fatalf("%s in %q: after [%d, %d) comes [%d, %d) %v", spec.Kind, zone, last.Start, last.End, next.Start, next.End, err)
				}
				if mid, _ := Bounds(spec, next.Start+(next.End-next.Start)/2); mid != next {
					t.Fatalf("%s in %q: the middle of [%d, %d) lies in [%d, %d)", spec.Kind, zone, next.Start, next.End, mid.Start, mid.End)
				}
				last = next
			}
		}
	}
}

func TestBoundsRefuses(t *testing.T) {
	t.Parallel()
	for _, spec := range []arbiter.PeriodSpec{{Kind: "fortnightly"}, {Kind: "daily", TimeZone: "Mars/Olympus"}, {Kind: "every"}, {Kind: "daily", TimeZone: "Local"}, {}} {
		if _, err := Bounds(spec, 0); err == nil {
			t.Errorf("%+v: accepted", spec)
		}
	}
}
