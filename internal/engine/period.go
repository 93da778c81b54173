package engine

import (
	"fmt"
	"sync"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
)

// Bounds returns the budget period that holds the instant wall (Unix ns):
// Start ≤ wall < End, in the time zone of the spec.
//
// Calendar periods begin at local midnight; an anchor past the end of a month
// falls on its last day. A midnight that a change of the clocks skips begins at
// the instant of the change, one that happens twice begins the first time. So
// a local day has 23, 24 or 25 hours and every instant lies in exactly one
// period. Hourly periods are the hours of the local clock: an hour that
// happens twice is two periods.
//
// An unknown kind or zone and a length below one second are CodeInvalid.
func Bounds(spec arbiter.PeriodSpec, wall int64) (arbiter.Period, error) {
	loc, err := zone(spec.TimeZone)
	if err != nil {
		return arbiter.Period{}, err
	}
	t := time.Unix(0, wall).In(loc)
	y, m, d := t.Date()
	switch spec.Kind {
	case "every":
		if spec.Every < arbiter.Second {
			return arbiter.Period{}, arbiter.Errorf(arbiter.CodeInvalid, "period", "period of %s: want at least 1s", time.Duration(spec.Every))
		}
		past := (wall - spec.Anchor) % spec.Every
		if past < 0 {
			past += spec.Every
		}
		return arbiter.Period{Start: wall - past, End: wall - past + spec.Every}, nil
	case "hourly":
		return hour(t), nil
	case "daily":
		return span(t, loc, func(i int) (int, time.Month, int) { return y, m, d + i }), nil
	case "weekly":
		back := (int(t.Weekday()) - int(spec.Anchor) + 14) % 7
		return span(t, loc, func(i int) (int, time.Month, int) { return y, m, d - back + 7*i }), nil
	case "monthly":
		return span(t, loc, func(i int) (int, time.Month, int) { return monthDay(y, m, i, spec.Anchor) }), nil
	case "quarterly":
		first := m - (m-1)%3
		return span(t, loc, func(i int) (int, time.Month, int) { return monthDay(y, first, 3*i, spec.Anchor) }), nil
	}
	return arbiter.Period{}, arbiter.Errorf(arbiter.CodeInvalid, "period", "period %q: want hourly, daily, weekly, monthly, quarterly or every", spec.Kind)
}

// Day returns the calendar day of a zone that holds the instant wall.
func Day(zoneName string, wall int64) (arbiter.Period, error) {
	return Bounds(arbiter.PeriodSpec{Kind: "daily", TimeZone: zoneName}, wall)
}

// span finds the period among the starts of the dates at(−1) to at(2): the
// date of t itself may lie before the anchor of its month.
func span(t time.Time, loc *time.Location, at func(int) (int, time.Month, int)) arbiter.Period {
	start := midnight(at(-1))(loc)
	for i := 0; i <= 2; i++ {
		next := midnight(at(i))(loc)
		if next > t.UnixNano() {
			return arbiter.Period{Start: start, End: next}
		}
		start = next
	}
	panic(fmt.Sprintf("engine: no period around %s", t)) // a date is at most one period away from its own
}

// monthDay returns the anchor day of the month that is add months after m,
// or its last day.
func monthDay(y int, m time.Month, add int, anchor int64) (int, time.Month, int) {
	first := time.Date(y, m+time.Month(add), 1, 0, 0, 0, 0, time.UTC)
	last := first.AddDate(0, 1, -1).Day()
	return first.Year(), first.Month(), min(max(int(anchor), 1), last)
}

// midnight returns the Unix ns at which a local date begins.
func midnight(y int, m time.Month, d int) func(*time.Location) int64 {
	return func(loc *time.Location) int64 {
		clock := time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Unix() // the reading, as if the zone were UTC
		offset := func(unix int64) int64 {
			_, off := time.Unix(unix, 0).In(loc).Zone()
			return int64(off)
		}
		before, after := offset(clock-86400), offset(clock+86400)
		first, second := clock-max(before, after), clock-min(before, after)
		for _, unix := range [...]int64{first, second} {
			if offset(unix) == clock-unix {
				return unix * int64(time.Second)
			}
		}
		// The reading is skipped: it begins when the clocks change.
		change, _ := time.Unix(second, 0).In(loc).ZoneBounds()
		return change.UnixNano()
	}
}

// hour is the hour of the local clock around t, cut where the offset changes.
func hour(t time.Time) arbiter.Period {
	_, off := t.Zone()
	past := ((t.Unix()+int64(off))%3600 + 3600) % 3600
	start := time.Unix(t.Unix()-past, 0)
	end := start.Add(time.Hour)
	from, until := t.ZoneBounds()
	if !from.IsZero() && from.After(start) {
		start = from
	}
	if !until.IsZero() && until.Before(end) {
		end = until
	}
	return arbiter.Period{Start: start.UnixNano(), End: end.UnixNano()}
}

// zones keeps loaded time zones: time.LoadLocation reads its database each time.
var zones sync.Map // string → *time.Location

func zone(name string) (*time.Location, error) {
	if name == "" {
		return time.UTC, nil
	}
	if loc, ok := zones.Load(name); ok {
		return loc.(*time.Location), nil
	}
	loc, err := time.LoadLocation(name)
	if err != nil || name == "Local" {
		return nil, arbiter.Errorf(arbiter.CodeInvalid, "time_zone", "time zone %.64q is unknown: use an IANA name such as Europe/Paris", name)
	}
	zones.Store(name, loc)
	return loc, nil
}
