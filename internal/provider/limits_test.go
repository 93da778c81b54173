package provider

import (
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/token-budget-arbiter/tba/arbiter"
)

func TestLimits(t *testing.T) {
	t.Parallel()
	const month = 30 * 24 * time.Hour
	for _, c := range []struct {
		name, dialect string
		h             map[string]string
		want          Limits
	}{
		{"requests and tokens", OpenAI, map[string]string{
			"x-ratelimit-limit-requests": "60", "x-ratelimit-remaining-requests": "59", "x-ratelimit-reset-requests": "1s",
			"x-ratelimit-limit-tokens": "150000", "x-ratelimit-remaining-tokens": "149984", "x-ratelimit-reset-tokens": "6m0s",
			"x-ratelimit-limit-project-tokens": "1000", "x-ratelimit-remaining-project-tokens": "10", "x-ratelimit-reset-project-tokens": "88ms",
			"x-ratelimit-limit-tokens_usage_based": "5",
		}, Limits{List: []Limit{
			{Dim: arbiter.DimRPM, Limit: 60, Remaining: 59, Reset: time.Second, HasReset: true},
			{Dim: arbiter.DimTPM, Limit: 150000, Remaining: 149984, Reset: 6 * time.Minute, HasReset: true},
			{Dim: arbiter.DimTPM, Scope: "project", Limit: 1000, Remaining: 10, Reset: 88 * time.Millisecond, HasReset: true},
		}}},
		{"minus one means not known", OpenAI, map[string]string{
			"x-ratelimit-limit-tokens": "-1", "x-ratelimit-remaining-tokens": "-1", "x-ratelimit-reset-tokens": "0",
		}, Limits{}},
		{"full in no time but not full", OpenAI, map[string]string{
			"x-ratelimit-limit-tokens": "100", "x-ratelimit-remaining-tokens": "5", "x-ratelimit-reset-tokens": "0s",
		}, Limits{List: []Limit{{Dim: arbiter.DimTPM, Limit: 100, Remaining: 5}}}},
		{"full", OpenAI, map[string]string{
			"x-ratelimit-limit-tokens": "100", "x-ratelimit-remaining-tokens": "100", "x-ratelimit-reset-tokens": "0s",
		}, Limits{List: []Limit{{Dim: arbiter.DimTPM, Limit: 100, Remaining: 100, HasReset: true}}}},
		{"azure seconds", OpenAI, map[string]string{
			"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "37",
		}, Limits{List: []Limit{{Dim: arbiter.DimRPM, Limit: -1, Reset: 37 * time.Second, HasReset: true}}}},
		{"absent says nothing", OpenAI, nil, Limits{}},

		{"trios with instants", Anthropic, map[string]string{
			"anthropic-ratelimit-requests-limit": "50", "anthropic-ratelimit-requests-remaining": "49", "anthropic-ratelimit-requests-reset": "2026-07-25T12:00:01Z",
			"anthropic-ratelimit-input-tokens-limit": "20000", "anthropic-ratelimit-input-tokens-remaining": "19000", "anthropic-ratelimit-input-tokens-reset": "2026-07-25T14:00:03+02:00",
			"anthropic-priority-output-tokens-limit": "7", "anthropic-priority-output-tokens-remaining": "0", "anthropic-priority-output-tokens-reset": "2026-07-25T12:01:00Z",
			"anthropic-ratelimit-unified-5h-utilization": "0.25", "anthropic-ratelimit-unified-5h-reset": "1784980830",
		}, Limits{List: []Limit{
			{Dim: arbiter.DimRPM, Limit: 50, Remaining: 49, Reset: time.Second, HasReset: true},
			{Dim: arbiter.DimInputTPM, Limit: 20000, Remaining: 19000, Reset: 3 * time.Second, HasReset: true},
			{Dim: arbiter.DimOutputTPM, Scope: "priority", Limit: 7, Reset: time.Minute, HasReset: true},
			{Scope: "unified_5h", Limit: 1000, Remaining: 750, Reset: 30 * time.Second, HasReset: true},
		}}},

		{"no headers at all", Gemini, map[string]string{"x-ratelimit-limit-requests": "1"}, Limits{}},

		{"newest names", Mistral, map[string]string{
			"x-ratelimit-limit-req-minute": "60", "x-ratelimit-remaining-req-minute": "59",
			"x-ratelimit-limit-tokens-minute": "500000", "x-ratelimit-remaining-tokens-minute": "499000", "x-ratelimit-tokens-query-cost": "1000",
		}, Limits{Cost: 1000, List: []Limit{
			{Dim: arbiter.DimRPM, Per: time.Minute, Limit: 60, Remaining: 59},
			{Dim: arbiter.DimTPM, Per: time.Minute, Limit: 500000, Remaining: 499000},
		}}},
		{"older names", Mistral, map[string]string{
			"x-ratelimitbysize-limit-month": "1000", "x-ratelimitbysize-remaining-month": "10",
			"ratelimitbysize-limit": "500", "ratelimitbysize-remaining": "0", "ratelimitbysize-reset": "37", "ratelimitbysize-query-cost": "32",
		}, Limits{Cost: 32, List: []Limit{
			{Dim: arbiter.DimTPM, Per: month, Limit: 1000, Remaining: 10},
			{Dim: arbiter.DimTPM, Per: time.Minute, Limit: 500, Reset: 37 * time.Second, HasReset: true},
		}}},
	} {
		t.Run(c.dialect+"/"+c.name, func(t *testing.T) {
			t.Parallel()
			h := http.Header{}
			for k, v := range c.h {
				h.Set(k, v)
			}
			got := dialect(t, c.dialect).Limits(h, noon)
			if got.Cost != c.want.Cost || !slices.Equal(got.List, c.want.List) {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}

func TestLimitsWait(t *testing.T) {
	t.Parallel()
	l := Limits{List: []Limit{
		{Dim: arbiter.DimRPM, Limit: 60, Remaining: 59, Reset: time.Second, HasReset: true},
		{Dim: arbiter.DimTPM, Limit: 1000, Remaining: 0, Reset: 252 * time.Second, HasReset: true},
	}}
	if w, ok := l.Wait(arbiter.DimTPM); w != 252*time.Second || !ok {
		t.Errorf("tokens: %v, %v", w, ok)
	}
	if w, _ := l.Wait(arbiter.DimRPM); w != time.Second {
		t.Errorf("requests: %v", w)
	}
	l.List[1].Remaining = 7
	if w, _ := l.Wait(arbiter.DimNone); w != 252*time.Second {
		t.Errorf("unknown: %v, want the later reset", w)
	}
	if _, ok := (Limits{}).Wait(arbiter.DimTPM); ok {
		t.Error("no header, yet a wait")
	}
}

func TestCredentialSlots(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		header, value, query, want string
	}{
		{"Authorization", "Bearer k1", "", "k1"},
		{"Authorization", "bearer  k1 ", "", "k1"},
		{"X-Api-Key", "k2", "", "k2"},
		{"X-Goog-Api-Key", "k3", "", "k3"},
		{"Api-Key", "k4", "", "k4"},
		{"Accept", "x", "alt=sse&key=k5", "k5"},
		{"Authorization", "Basic abc", "", ""},
		{"Authorization", "Bearer ", "key=k6", "k6"},
	} {
		h := http.Header{}
		h.Set(c.header, c.value)
		if got := Credential(h, c.query); got != c.want {
			t.Errorf("%s: %s ?%s: %q, want %q", c.header, c.value, c.query, got, c.want)
		}
	}
	for _, name := range Names() {
		h := http.Header{}
		dialect(t, name).Authorize(h, "secret")
		if got := Credential(h, ""); got != "secret" {
			t.Errorf("%s: authorised with %q", name, got)
		}
	}
	if _, ok := Lookup("cohere"); ok {
		t.Error("unknown dialect found")
	}
	if d, _ := Lookup("google"); d.Name() != Gemini {
		t.Error("google is not gemini")
	}
}

func TestSetLimits(t *testing.T) {
	t.Parallel()
	full := func(dim arbiter.Dim, limit, remaining int64, reset time.Duration) Limit {
		return Limit{Dim: dim, Limit: limit, Remaining: remaining, Reset: reset, HasReset: true}
	}
	for _, c := range []struct {
		name, dialect string
		h             map[string]string
		ours          []Limit
		want          map[string]string
	}{
		{"nothing there", OpenAI, nil, []Limit{full(arbiter.DimRPM, 60, 59, time.Second), full(arbiter.DimTPM, 1000, 0, 252*time.Second)}, map[string]string{
			"x-ratelimit-limit-requests": "60", "x-ratelimit-remaining-requests": "59", "x-ratelimit-reset-requests": "1s",
			"x-ratelimit-limit-tokens": "1000", "x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "4m12s",
		}},
		{"theirs is tighter", OpenAI, map[string]string{"x-ratelimit-limit-tokens": "900", "x-ratelimit-remaining-tokens": "5", "x-ratelimit-reset-tokens": "12ms"},
			[]Limit{full(arbiter.DimTPM, 1000, 6, time.Second)},
			map[string]string{"x-ratelimit-limit-tokens": "900", "x-ratelimit-remaining-tokens": "5", "x-ratelimit-reset-tokens": "12ms"}},
		{"ours is tighter", OpenAI, map[string]string{"x-ratelimit-limit-tokens": "900", "x-ratelimit-remaining-tokens": "500", "x-ratelimit-reset-tokens": "12ms"},
			[]Limit{{Dim: arbiter.DimTPM, Limit: 1000, Remaining: 6}},
			map[string]string{"x-ratelimit-limit-tokens": "1000", "x-ratelimit-remaining-tokens": "6"}},
		{"theirs is not known", OpenAI, map[string]string{"x-ratelimit-limit-tokens": "-1", "x-ratelimit-remaining-tokens": "-1", "x-ratelimit-reset-tokens": "0"},
			[]Limit{full(arbiter.DimTPM, 1000, 999, 1500*time.Microsecond)},
			map[string]string{"x-ratelimit-limit-tokens": "1000", "x-ratelimit-remaining-tokens": "999", "x-ratelimit-reset-tokens": "2ms"}},
		{"the tighter of two of ours", OpenAI, nil, []Limit{full(arbiter.DimRPM, 60, 40, time.Second), full(arbiter.DimRPD, 1000, 3, time.Hour)},
			map[string]string{"x-ratelimit-limit-requests": "1000", "x-ratelimit-remaining-requests": "3", "x-ratelimit-reset-requests": "1h0m0s"}},
		{"no header for it", OpenAI, nil, []Limit{full(arbiter.DimInputTPM, 1, 1, 0), full(arbiter.DimSlots, 1, 1, 0), {Dim: arbiter.DimTPM, Limit: -1, Remaining: -1}}, nil},
		{"instants by their clock", Anthropic, map[string]string{"date": "Sat, 25 Jul 2026 11:59:50 GMT", "anthropic-ratelimit-input-tokens-limit": "9"},
			[]Limit{full(arbiter.DimInputTPM, 20000, 19000, 3100*time.Millisecond), full(arbiter.DimRPM, 50, 0, time.Minute)}, map[string]string{
				"date":                                   "Sat, 25 Jul 2026 11:59:50 GMT",
				"anthropic-ratelimit-input-tokens-limit": "20000", "anthropic-ratelimit-input-tokens-remaining": "19000", "anthropic-ratelimit-input-tokens-reset": "2026-07-25T11:59:54Z",
				"anthropic-ratelimit-requests-limit": "50", "anthropic-ratelimit-requests-remaining": "0", "anthropic-ratelimit-requests-reset": "2026-07-25T12:00:50Z",
			}},
		{"seconds", Mistral, nil, []Limit{full(arbiter.DimTPM, 10, 5, 1500*time.Millisecond), {Dim: arbiter.DimTPM, Per: month, Limit: 7, Remaining: 6}}, map[string]string{
			"x-ratelimit-limit-tokens-minute": "10", "x-ratelimit-remaining-tokens-minute": "5", "x-ratelimit-reset-tokens-minute": "2",
			"x-ratelimit-limit-tokens-month": "7", "x-ratelimit-remaining-tokens-month": "6",
		}},
		{"none at all", Gemini, nil, []Limit{full(arbiter.DimTPM, 1, 1, 0)}, nil},
	} {
		h, want := http.Header{}, http.Header{}
		for k, v := range c.h {
			h.Set(k, v)
		}
		for k, v := range c.want {
			want.Set(k, v)
		}
		dialect(t, c.dialect).SetLimits(h, c.ours, noon)
		if !maps.EqualFunc(h, want, slices.Equal) {
			t.Errorf("%s/%s:\ngot  %v\nwant %v", c.dialect, c.name, h, want)
		}
	}
}

// SetLimits is undone by Limits, and changes nothing that it is given back. What is written is never looser than either.
func TestSetLimitsIsTheInverseOfLimits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom([]string{OpenAI, Anthropic, Mistral}).Draw(t, "dialect")
		d, _ := Lookup(name)
		rows := map[string][]limitRow{OpenAI: openAILimitRows[:3], Anthropic: anthropicLimitRows, Mistral: mistralLimitRows[:3]}[name]
		draw := func(label string) (list []Limit) {
			for i := range rows {
				if !rapid.Bool().Draw(t, label) {
					continue
				}
				x := rows[i].lim
				x.Limit = rapid.Int64Range(0, maxCount).Draw(t, "limit")
				x.Remaining = rapid.Int64Range(0, x.Limit).Draw(t, "remaining")
				if x.HasReset = rapid.Bool().Draw(t, "has reset"); x.HasReset {
					x.Reset = time.Duration(rapid.IntRange(1, 86400).Draw(t, "reset")) * time.Second
				}
				list = append(list, x)
			}
			return list
		}
		ours := draw("ours")
		h := http.Header{}
		d.SetLimits(h, ours, noon)
		got := d.Limits(h, noon)
		if !slices.Equal(got.List, ours) {
			t.Fatalf("%v\ngave %+v\nwant %+v", h, got.List, ours)
		}
		before := h.Clone()
		d.SetLimits(h, got.List, noon)
		if !maps.EqualFunc(h, before, slices.Equal) {
			t.Fatalf("%v became %v", before, h)
		}
		more := draw("more")
		d.SetLimits(h, more, noon)
		for _, x := range d.Limits(h, noon).List {
			for _, y := range slices.Concat(ours, more) {
				if y.Dim == x.Dim && y.Scope == x.Scope && y.Per == x.Per && y.tighter(x) {
					t.Fatalf("%+v is looser than %+v", x, y)
				}
			}
		}
	})
}

// Headers may hold anything; what is made of them can be written and read again.
func FuzzLimits(f *testing.F) {
	f.Add("60", "59", "1s")
	f.Add("-1", "-1", "0")
	f.Add("1e9", " 7 ", "2026-07-25T12:00:30Z")
	f.Add("9223372036854775807", "0", "23h47m36.648s")
	f.Fuzz(func(t *testing.T, limit, remaining, reset string) {
		for name, row := range map[string]limitRow{OpenAI: openAILimitRows[1], Anthropic: anthropicLimitRows[0], Mistral: mistralLimitRows[0]} {
			h := http.Header{row.limit: {limit}, row.remaining: {remaining}, row.reset: {reset}}
			d := dialect(t, name)
			l := d.Limits(h, noon)
			if len(l.List) == 0 {
				continue
			}
			x := l.List[0]
			if x.Limit < -1 || x.Remaining < -1 || x.Reset < 0 {
				t.Fatalf("%v: %+v", h, x)
			}
			again := http.Header{}
			d.SetLimits(again, l.List, noon)
			y := d.Limits(again, noon).List
			if len(y) != 1 || y[0].Limit != x.Limit || y[0].Remaining != x.Remaining || y[0].HasReset && (y[0].Reset < x.Reset || y[0].Reset >= x.Reset+time.Second) {
				t.Fatalf("%v gave %+v, then %v gave %+v", h, x, again, y)
			}
		}
	})
}
