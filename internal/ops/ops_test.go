package ops

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/engine"
	"github.com/token-budget-arbiter/tba/internal/journal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func policy() *arbiter.Policy {
	return &arbiter.Policy{
		Version: 1, Guard: 250 * arbiter.Millisecond, Period: arbiter.PeriodSpec{Kind: "monthly"},
		Global: arbiter.Limit{Tokens: 10_000, Nanos: arbiter.Unlimited}, Tasks: arbiter.NoLimit,
		Providers: []arbiter.Provider{{Name: "openai", Limit: arbiter.NoLimit, Ceilings: arbiter.Ceilings{RPM: 100},
			Models: []arbiter.Model{{Name: "gpt-5.4", Limit: arbiter.NoLimit, Prices: []arbiter.Price{{Rates: arbiter.Rates{Input: 1_000_000, Output: 1_000_000}}}}}}},
		Classes: []arbiter.Class{{Name: arbiter.DefaultClass, Limit: arbiter.NoLimit}},
		Lease:   arbiter.DefaultLeaseRules, Breaker: arbiter.DefaultBreaker, Weights: arbiter.DefaultWeights, Backpressure: arbiter.DefaultBackpressure,
	}
}

func start(t *testing.T, s *Server) *engine.Engine {
	t.Helper()
	store := journal.NewMemory(journal.MemoryOptions{})
	e, err := engine.New(engine.Options{Store: store, Hooks: s.Hooks()})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Init(context.Background(), "default"); err != nil {
		t.Fatal(err)
	}
	if err := e.Open(context.Background(), "default", policy()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	s.Watch(e, e)
	t.Cleanup(s.Close)
	return e
}

func get(t *testing.T, s *Server, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	body, err := io.ReadAll(w.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Code, string(body)
}

// sample reads the value of one series from an exposition.
func sample(t *testing.T, page, series string) float64 {
	t.Helper()
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(series) + ` (\S+)$`).FindStringSubmatch(page)
	if m == nil {
		t.Errorf("no series %s", series)
		return -1
	}
	v, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestMetricsTellWhatHappened(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New("1.2.3", nil)
		e := start(t, s)
		ctx := t.Context()
		ask := func(agent string, n arbiter.Tokens) engine.Outcome {
			out, err := e.Do(ctx, engine.Op{Command: &arbiter.Request{Agent: agent, Output: n, Priority: arbiter.ClassPriority}})
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
		lease := ask("a", 100).Answer.Lease.Lease
		if _, err := e.Do(ctx, engine.Op{Command: &arbiter.Commit{Lease: lease, HasActual: true, Actual: 90}}); err != nil {
			t.Fatal(err)
		}
		ask("b", 50)     // its holder falls silent
		ask("c", 20_000) // can never fit
		time.Sleep(3 * time.Minute)
		throttled := ask("d", 10).Answer.Lease.Lease
		if _, err := e.Do(ctx, engine.Op{Command: &arbiter.Release{Lease: throttled, Outcome: arbiter.OutcomeThrottled, Signal: arbiter.ProviderSignal{Status: 429, RetryAfter: arbiter.Minute}}}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		_, page := get(t, s, "/metrics")
		for series, want := range map[string]float64{
			`tba_build_info{version="1.2.3"}`:                                                                      1,
			`tba_lease_requests_total{outcome="granted",pool="default",reason=""}`:                                 3,
			`tba_lease_requests_total{outcome="denied",pool="default",reason="too_large"}`:                         1,
			`tba_leases_active{pool="default"}`:                                                                    0,
			`tba_leases_expired_total{pool="default"}`:                                                             1,
			`tba_leases{phase="returned",pool="default"}`:                                                          1,
			`tba_budget_tokens{class="",kind="global",model="",pool="default",provider="",state="spent"}`:          90,
			`tba_budget_tokens{class="",kind="global",model="",pool="default",provider="",state="limit"}`:          10_000,
			`tba_budget_tokens{class="default",kind="class",model="",pool="default",provider="",state="spent"}`:    90,
			`tba_budget_usd{class="",kind="model",model="gpt-5.4",pool="default",provider="openai",state="spent"}`: 0.00009,
			`tba_provider_throttled_total{dimension="",model="gpt-5.4",pool="default",provider="openai"}`:          1,
			`tba_headroom_ratio{model="gpt-5.4",pool="default",provider="openai"}`:                                 0,
			`tba_rate_limit{dimension="rpm",model="gpt-5.4",pool="default",provider="openai",state="ceiling"}`:     100,
			`tba_breaker_state{model="gpt-5.4",pool="default",provider="openai",state="closed"}`:                   1,
			`tba_backpressure_level{pool="default"}`:                                                               4,
			`tba_config_reload_failed`:                                                                             0,
		} {
			if got := sample(t, page, series); got != want {
				t.Errorf("%s: %v, want %v", series, got, want)
			}
		}
		if n := sample(t, page, `tba_journal_append_seconds_count`); n < 5 || n != sample(t, page, `tba_journal_entries_total{pool="default"}`) {
			t.Errorf("appends: %v", n)
		}
		s.Reloaded(errors.New("broken"))
		_, page = get(t, s, "/metrics")
		if sample(t, page, `tba_config_reload_failed`) != 1 || sample(t, page, `tba_config_reloads_total{result="failed"}`) != 1 {
			t.Error("a failed reload is not told")
		}
		s.Reloaded(nil)
		_, page = get(t, s, "/metrics")
		if sample(t, page, `tba_config_reload_failed`) != 0 || sample(t, page, `tba_config_last_reload_timestamp_seconds`) <= 0 {
			t.Error("a repaired reload is not told")
		}
	})
}

// TestSeriesStayFew: names that clients choose are never labels.
func TestSeriesStayFew(t *testing.T) {
	t.Parallel()
	s := New("v", nil)
	e := start(t, s)
	count := func() int {
		_, page := get(t, s, "/metrics")
		n := 0
		for line := range strings.Lines(page) {
			if strings.HasPrefix(line, "tba_") {
				n++
			}
		}
		return n
	}
	one := func(i int) {
		id := strconv.Itoa(i)
		if _, err := e.Do(t.Context(), engine.Op{Command: &arbiter.Request{Agent: "agent-" + id, Task: "task-" + id, Workflow: "flow-" + id, Output: 1, Priority: arbiter.ClassPriority}}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 200 { // beyond the RPM ceiling too
		one(i)
	}
	before := count()
	for i := range 500 {
		one(1000 + i)
	}
	if after := count(); after != before || before == 0 {
		t.Errorf("%d series, then %d", before, after)
	}
}

func TestHealth(t *testing.T) {
	t.Parallel()
	s := New("v", nil)
	if code, body := get(t, s, "/livez"); code != 200 || body != "ok\n" {
		t.Errorf("livez: %d %s", code, body)
	}
	if code, body := get(t, s, "/readyz"); code != 503 || !strings.Contains(body, "starting") {
		t.Errorf("readyz before the start: %d %s", code, body)
	}
	if code, page := get(t, s, "/metrics"); code != 200 || sample(t, page, `tba_build_info{version="v"}`) != 1 {
		t.Errorf("metrics before the start: %d", code)
	}
	e := start(t, s)
	s.SetReady(e.Ready)
	if err := e.View(t.Context(), "default", func(*arbiter.State) error { return nil }); err != nil { // the follower has the policy then
		t.Fatal(err)
	}
	if code, body := get(t, s, "/readyz"); code != 200 || body != "ok\n" {
		t.Errorf("readyz: %d %s", code, body)
	}
	if code, body := get(t, s, "/readyz?verbose"); code != 200 || !strings.Contains(body, "pool default: ready") {
		t.Errorf("readyz?verbose: %d %s", code, body)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if code, body := get(t, s, "/readyz"); code != 503 || !strings.Contains(body, "no pool") {
		t.Errorf("readyz after the end: %d %s", code, body)
	}
	if code, body := get(t, s, "/debug/pprof/goroutine?debug=1"); code != 200 || !strings.Contains(body, "goroutine profile") {
		t.Errorf("pprof: %d", code)
	}
	if code, _ := get(t, s, "/nothing"); code != 404 {
		t.Errorf("unknown path: %d", code)
	}
}

func TestAppendHistogram(t *testing.T) {
	t.Parallel()
	var a appendTimes
	for _, d := range []time.Duration{50 * time.Microsecond, 100 * time.Microsecond, 3 * time.Millisecond, time.Minute} {
		a.observe(d)
	}
	count, sum, buckets := a.read()
	if count != 4 || sum < 60 || buckets[0.0001] != 2 || buckets[0.0025] != 2 || buckets[0.005] != 3 || buckets[5] != 3 {
		t.Errorf("%d %v %v", count, sum, buckets)
	}
}
