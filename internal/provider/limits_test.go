package provider

import (
	"net/http"
	"slices"
	"testing"
	"time"

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
