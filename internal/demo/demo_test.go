package demo

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/token-budget-arbiter/tba/client"
	"github.com/token-budget-arbiter/tba/internal/config"
	"github.com/token-budget-arbiter/tba/internal/mockprovider"
	"github.com/token-budget-arbiter/tba/internal/provider"
)

func TestTheTraceIsWhole(t *testing.T) {
	t.Parallel()
	rows, err := readTrace(sample)
	if err != nil {
		t.Fatal(err)
	}
	var prompts, outputs int64
	for i, r := range rows {
		prompts, outputs = prompts+r.prompt, outputs+r.output
		if i > 0 && r.at < rows[i-1].at {
			t.Fatalf("call %d is earlier than the one before", i)
		}
		if int(r.prompt)*4 > len(fillerText) {
			t.Fatalf("a prompt of %d tokens is longer than the text it is made of", r.prompt)
		}
	}
	if len(rows) != 2000 || prompts/2000 < 1800 || prompts/2000 > 2200 || outputs/2000 < 20 || outputs/2000 > 35 {
		t.Errorf("%d calls of %d + %d tokens in the mean", len(rows), prompts/2000, outputs/2000)
	}
	for _, bad := range []string{"", "a,b,c\n", "a,b,c\nnever,1,2\n", "a,b,c\n2023-11-16 18:17:03.97,1,x\n", "a,b,c\n2023-11-16 18:17:03.97,1\n"} {
		if _, err := readTrace(bad); err == nil {
			t.Errorf("taken: %q", bad)
		}
	}
}

func TestTheScheduleIsTheSameForASeed(t *testing.T) {
	t.Parallel()
	rows, err := readTrace(sample)
	if err != nil {
		t.Fatal(err)
	}
	members := fleet()
	a, b, other := newSchedule(rows, members, 1, 30), newSchedule(rows, members, 1, 30), newSchedule(rows, members, 2, 30)
	same := 0
	var last job
	classes := map[string]int{}
	for range 2 * len(rows) {
		j := a.take()
		if j != b.take() {
			t.Fatal("two schedules of one seed differ")
		}
		if j == other.take() {
			same++
		}
		if j.at < last.at || j.cap < 2*j.output && j.cap < 64 {
			t.Fatalf("%+v after %+v", j, last)
		}
		classes[members[j.agent].class]++
		last = j
	}
	if same > len(rows)/4 {
		t.Errorf("another seed gave %d equal calls", same)
	}
	for _, p := range plans {
		if classes[p.class] < 200 {
			t.Errorf("class %s got %d calls", p.class, classes[p.class])
		}
	}
}

func TestWaves(t *testing.T) {
	t.Parallel()
	rows := make([]row, 1000)
	for i := range rows {
		rows[i].at = time.Duration(i) * time.Minute
	}
	s := newSchedule(rows, fleet(), 1, 10)
	for i, n := range []int{250, 24, 250, 24, 250} { // 25 s of 10 a second, then 50 s of one in 2 s, whose last call opens the next wave
		start := time.Duration(i/2) * (busy + calm)
		from, to := start, start+busy
		if i%2 == 1 {
			from, to = start+busy+2*time.Second, start+busy+calm
		}
		for k := range n {
			if at := s.take().at; at < from || at >= to {
				t.Fatalf("phase %d, call %d: at %v, want %v to %v", i, k, at, from, to)
			}
		}
	}
}

func TestTheFleetHasFiveClassesAndEveryProviderBoundCallers(t *testing.T) {
	t.Parallel()
	members := fleet()
	bound, ids := map[string]int{}, map[string]bool{}
	for _, m := range members {
		ids[m.id] = true
		bound[m.model]++
	}
	if len(members) < 100 || len(ids) != len(members) {
		t.Errorf("%d agents, %d names", len(members), len(ids))
	}
	for _, model := range upstreamModel {
		if bound[model] == 0 {
			t.Errorf("nobody is bound to %s", model)
		}
	}
}

func TestScaleKeepsTheProportionsOfTheExample(t *testing.T) {
	t.Parallel()
	s := ScaleFor(25*time.Second, time.Time{})
	if s.GlobalTokens != 1_522_910 {
		t.Errorf("global budget %d, want ten times 152,291", s.GlobalTokens)
	}
	for i, want := range []Ceiling{
		{Provider: provider.OpenAI, Allocated: 4 * 152_291, RPM: 500, TPM: 1_000_000, Slots: 48},
		{Provider: provider.Anthropic, Allocated: 3 * 152_291, RPM: 250, TPM: 500_000, Slots: 24},
		{Provider: provider.Gemini, Allocated: 2 * 152_291, RPM: 400, TPM: 750_000, Slots: 4},
		{Provider: provider.Mistral, Allocated: 152_291, RPM: 150, TPM: 250_000, Slots: 16},
	} {
		got := s.Ceilings[i]
		got.firstToken, got.speed, got.burstRequests, got.burstTokens = 0, 0, 0, 0
		if got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	if half := ScaleFor(75*time.Second, time.Time{}); half.GlobalTokens != s.GlobalTokens {
		t.Errorf("a whole wave of 75 s has a budget of %d, its busy part one of %d", half.GlobalTokens, s.GlobalTokens)
	}
	start := time.Date(2026, 12, 1, 10, 0, 0, 999, time.UTC)
	endless := ScaleFor(0, start)
	if endless.GlobalTokens < 2*s.GlobalTokens || endless.period() != `{every: 2m30s, anchor: "2026-12-01T10:00:00Z"}` {
		t.Errorf("without end: %+v, %s", endless, endless.period())
	}
	if _, err := mockprovider.New(s.MockOptions()); err != nil {
		t.Error(err)
	}
}

func TestThePolicyLoads(t *testing.T) {
	t.Parallel()
	for _, d := range []time.Duration{0, 25 * time.Second} {
		thePolicyLoads(t, ScaleFor(d, time.Now()))
	}
}

func thePolicyLoads(t *testing.T, s Scale) {
	text := s.PolicyYAML(func(p string) string { return "http://127.0.0.1:1/" + p })
	c, err := config.Sources{}.LoadBytes("demo.yaml", text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	pool, ok := c.Pool("")
	if !ok {
		t.Fatal("no pool")
	}
	p := pool.Policy
	if int64(p.Global.Tokens) != s.GlobalTokens || len(p.Providers) != 4 || len(p.Classes) != 6 {
		t.Errorf("%+v", p)
	}
	if len(p.Ladders) != len(ladders) {
		t.Errorf("ladders %+v", p.Ladders)
	}
	for i, x := range p.Providers {
		c := s.Ceilings[i]
		if x.Name != c.Provider || int64(x.RPM) != c.RPM || int64(x.TPM) != c.TPM || int64(x.MaxConcurrent) != c.Slots || x.Models[0].Name != upstreamModel[c.Provider] {
			t.Errorf("%+v, want %+v", x, c)
		}
	}
}

func TestAuditAndCheck(t *testing.T) {
	t.Parallel()
	scale := Scale{GlobalTokens: 100, Ceilings: []Ceiling{{Provider: "a", Allocated: 60}, {Provider: "b", Allocated: 60}}}
	full := map[string]int64{"rpm": 1, "tpm": 1, "slots": 1, "budget": 1}
	for _, c := range []struct {
		name      string
		reports   []mockprovider.Report
		refusedBy map[string]int64
		overshoot int64
		says      string
	}{
		{"all kept", []mockprovider.Report{{Name: "a", Bill: mockprovider.Bill{Input: 50, Output: 10}, Stormed: 2}, {Name: "b", Bill: mockprovider.Bill{Input: 40}}}, full, 0, ""},
		{"slice passed", []mockprovider.Report{{Name: "a", Bill: mockprovider.Bill{Input: 65}}}, full, 5, "5 tokens"},
		{"global passed", []mockprovider.Report{{Name: "a", Bill: mockprovider.Bill{Input: 60}}, {Name: "b", Bill: mockprovider.Bill{Input: 60}}}, full, 20, "20 tokens"},
		{"window broken", []mockprovider.Report{{Name: "a", WindowViolations: 3}}, full, 0, "3 calls reached"},
		{"slots broken", []mockprovider.Report{{Name: "a", SlotViolations: 4}}, full, 0, "4 calls found"},
		{"nothing proved", nil, map[string]int64{"rpm": 3, "budget": 1}, 0, "tpm, slots"},
	} {
		s := Summary{RefusedBy: c.refusedBy}
		s.audit(scale, c.reports, 1)
		err := s.Check()
		if s.BudgetOvershootTokens != c.overshoot || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: overshoot %d, %v", c.name, s.BudgetOvershootTokens, err)
		}
	}
	var s Summary
	s.audit(scale, []mockprovider.Report{{Name: "a", Bill: mockprovider.Bill{Input: 110}, Throttled: 2, Stormed: 1}}, 2)
	if s.BudgetOvershootTokens != 0 || s.Provider429 != 2 || s.Storm429 != 1 || s.UsedTokens != 110 {
		t.Errorf("over two periods: %+v", s)
	}
}

func TestSummaryNames(t *testing.T) {
	t.Parallel()
	b, err := json.Marshal(Summary{RefusedBy: map[string]int64{"tpm": 1}})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"granted", "deferred", "denied", "refused_by", "provider_429", "committed_tokens", "budget_overshoot_tokens",
		"window_violations", "grant_p50_us", "grant_p99_us", "leases_open"} {
		if !strings.Contains(string(b), `"`+name+`":`) {
			t.Errorf("%s is not in %s", name, b)
		}
	}
	var text strings.Builder
	if err := (Summary{RefusedBy: map[string]int64{"tpm": 1, "rpm": 7}, Trace: Attribution}).WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text.String(), "rpm 7, tpm 1") || !strings.Contains(text.String(), "CC-BY 4.0") {
		t.Error(text.String())
	}
}

func TestQuantilesAndPeriods(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		n              int
		p50, p99, want int64
	}{{0, 0, 0, 0}, {1, 1, 1, 0}, {2, 1, 2, 0}, {100, 50, 99, 0}, {1000, 500, 990, 0}} {
		list := make([]int64, c.n)
		for i := range list {
			list[i] = int64(i + 1)
		}
		if a, b := quantile(list, 50), quantile(list, 99); a != c.p50 || b != c.p99 {
			t.Errorf("%d values: %d, %d", c.n, a, b)
		}
	}
	from := time.Date(2026, 12, 31, 23, 59, 50, 0, time.UTC)
	if s := ScaleFor(25*time.Second, from); s.periods(from, from.Add(time.Minute)) != 1 || s.renewal(from) != "" {
		t.Error("a run of 25 s is within one period")
	}
	if s := ScaleFor(0, from); s.periods(from, from.Add(time.Minute)) != 1 || s.periods(from, from.Add(6*time.Minute)) != 3 || s.renewal(from.Add(time.Minute)) != " (anew in 90s)" {
		t.Error("periods of 150 s")
	}
}

func TestHowACallCameOut(t *testing.T) {
	t.Parallel()
	wrap := func(err error) error { return fmt.Errorf("agent x: %w", err) }
	for _, c := range []struct {
		err            error
		begun, late    bool
		gaveUp, failed int64
	}{
		{nil, true, false, 0, 0},
		{wrap(&client.DeniedError{Reason: "budget"}), false, false, 0, 0},
		{wrap(&client.DeferredError{Reason: "rpm"}), false, false, 1, 0},
		{wrap(&client.ShedError{}), false, false, 1, 0},
		{errors.New("patience is over"), false, false, 1, 0},
		{wrap(&client.UnavailableError{}), false, false, 0, 1},
		{wrap(&client.RefusedError{}), false, false, 0, 1},
		{errors.New("connection reset"), true, false, 0, 1},
		{wrap(&client.UnavailableError{}), false, true, 1, 0},
	} {
		tally := newTally()
		tally.ended(c.err, c.begun, c.late)
		if got := tally.counts(); got.gaveUp != c.gaveUp || got.failed != c.failed {
			t.Errorf("%v: gave up %d, failed %d", c.err, got.gaveUp, got.failed)
		}
	}
}
