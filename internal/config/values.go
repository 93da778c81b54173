package config

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/catalog"
)

// Map is a mapping of names to values in the order of the file.
type Map[T any] []Entry[T]

// Entry is one name with its value.
type Entry[T any] struct {
	Name  string
	Value T
}

// ordered is a *Map of any type, for the decoder.
type ordered interface {
	elem() reflect.Value // a new element, settable
	put(name string, e reflect.Value)
}

func (m *Map[T]) elem() reflect.Value { return reflect.ValueOf(new(T)).Elem() }

func (m *Map[T]) put(name string, e reflect.Value) {
	*m = append(*m, Entry[T]{name, e.Interface().(T)})
}

// Get returns the value of a name.
func (m Map[T]) Get(name string) (v T, ok bool) {
	for _, e := range m {
		if e.Name == name {
			return e.Value, true
		}
	}
	return v, false
}

// Decimal is a non-negative decimal as written, for prices: it is read exactly once its unit is known.
type Decimal string

var decimalForm = regexp.MustCompile(`^[0-9]{1,18}(\.[0-9]{1,30})?$`)

func (t *Decimal) parse(text string) error {
	s := strings.TrimSpace(text)
	if strings.HasPrefix(s, "-") {
		return &wrong{"negative", fmt.Sprintf("%s is negative", plain(s)), ""}
	}
	if !decimalForm.MatchString(s) {
		w := &wrong{"price", fmt.Sprintf("%q is not a price such as 2.50", plain(text)), ""}
		if bare := strings.TrimPrefix(s, "$"); bare != s && decimalForm.MatchString(bare) {
			w.suggestion = bare
		}
		return w
	}
	*t = Decimal(s)
	return nil
}

// Period is the spec of a budget period. The engine computes its ends.
type Period struct{ Spec arbiter.PeriodSpec }

var calendar = []string{"hourly", "daily", "weekly", "monthly", "quarterly"}

var weekdays = []string{"sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"}

// named returns the period that a single word stands for. Weeks begin on Monday.
func (p *Period) parse(text string) error {
	for _, k := range calendar {
		if k == text {
			p.Spec = arbiter.PeriodSpec{Kind: k}
			if k == "weekly" {
				p.Spec.Anchor = int64(time.Monday)
			}
			return nil
		}
	}
	return &wrong{"period", fmt.Sprintf("%q is not hourly, daily, weekly, monthly, quarterly or {every, anchor}", plain(text)), catalog.Nearest(text, calendar)}
}

// periodParts are the keys of the long form.
type periodParts struct {
	Every  string `yaml:"every" doc:"A span such as 336h (at least 1m), or weekly, monthly or quarterly." example:"336h"`
	Anchor string `yaml:"anchor" doc:"Where one period begins. For a span: a date or an RFC 3339 time. For weekly a day of the week; for monthly and quarterly a day of the month, 31 being the last one of shorter months." example:"2026-01-05"`
}

func (p *Period) decode(d *decoder, n *yaml.Node, path string) {
	if n.Kind == yaml.ScalarNode {
		d.scalar(n, path, p.parse)
		return
	}
	var parts periodParts
	before := len(d.faults)
	d.structure(n, reflect.ValueOf(&parts).Elem(), path)
	if len(d.faults) > before {
		return
	}
	if parts.Every == "" {
		d.fault(path, "period", "%s needs every", path)
		return
	}
	if err := p.parse(parts.Every); err == nil {
		if parts.Anchor == "" {
			return
		}
		var err error
		if p.Spec.Anchor, err = calendarAnchor(p.Spec.Kind, parts.Anchor); err != nil {
			d.outcome(child(path, "anchor"), d.places[child(path, "anchor")].value, err)
		}
		return
	}
	var every Duration
	if err := every.parse(parts.Every); err != nil {
		d.outcome(child(path, "every"), d.places[child(path, "every")].value, err)
		return
	}
	if every < Duration(time.Minute) {
		d.fault(child(path, "every"), "period", "%s is below 1m", child(path, "every"))
		return
	}
	p.Spec = arbiter.PeriodSpec{Kind: "every", Every: int64(every)}
	// A date needs the pool's zone, which may stand further down: see anchored.
	if parts.Anchor == "" {
		d.suggest(path, "period", "anchor: 2026-01-05", "%s needs an anchor: a date or time at which one period begins", path)
		return
	}
	if _, err := anchorTime(parts.Anchor, time.UTC); err != nil {
		d.outcome(child(path, "anchor"), d.places[child(path, "anchor")].value, err)
		return
	}
	d.anchors[path] = parts.Anchor
}

func calendarAnchor(kind, text string) (int64, error) {
	switch kind {
	case "weekly":
		for i, w := range weekdays {
			if w == strings.ToLower(text) {
				return int64(i), nil
			}
		}
		return 0, &wrong{"period", fmt.Sprintf("%q is not a day of the week", plain(text)), catalog.Nearest(text, weekdays)}
	case "monthly", "quarterly":
		var day Count
		if err := day.parse(text); err != nil || day < 1 || day > 31 {
			return 0, &wrong{"period", fmt.Sprintf("%q is not a day of the month from 1 to 31", plain(text)), ""}
		}
		return int64(day), nil
	}
	return 0, &wrong{"period", fmt.Sprintf("%s periods have no anchor", kind), ""}
}

// anchorTime reads a date, at midnight in the zone, or an RFC 3339 time.
func anchorTime(text string, zone *time.Location) (time.Time, error) {
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if t, err := time.ParseInLocation(layout, text, zone); err == nil && t.Year() >= 1970 && t.Year() <= 2200 {
			return t, nil
		}
	}
	return time.Time{}, &wrong{"period", fmt.Sprintf("%q is not a date (2026-01-05) or time (2026-01-05T06:00:00Z) from 1970 to 2200", plain(text)), ""}
}
