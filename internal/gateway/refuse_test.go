package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/provider"
)

// refusedAt is Unix time of every refusal in these tests.
var refusedAt = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// dialects are those that a path of the gateway can have.
func dialects(t testing.TB) []*provider.Dialect {
	t.Helper()
	var list []*provider.Dialect
	for _, name := range []string{provider.OpenAI, provider.Anthropic, provider.Gemini, provider.Mistral, "http"} {
		d, ok := provider.Lookup(name)
		if !ok {
			t.Fatalf("no dialect %s", name)
		}
		list = append(list, d)
	}
	return list
}

// everyReason lists all reasons of the arbiter, also those that come later.
func everyReason() []arbiter.Reason {
	list := make([]arbiter.Reason, 0, len(reasons))
	for _, r := range reasons {
		if r != arbiter.ReasonNone {
			list = append(list, r)
		}
	}
	slices.Sort(list)
	return list
}

// exampleOf is a refusal by r with figures that fit it.
func exampleOf(r arbiter.Reason, status arbiter.Status, wait time.Duration) *Grant {
	c := arbiter.Check{Reason: r, ScopeKind: arbiter.KindProvider, Scope: "openai", Unit: arbiter.UnitRequests, Limit: 60, Used: 57, Held: 3, Asked: 1}
	switch r {
	case arbiter.ReasonTPM, arbiter.ReasonInputTPM, arbiter.ReasonOutputTPM:
		c.Unit, c.Limit, c.Used, c.Held, c.Asked = arbiter.UnitTokens, 90_000, 80_000, 9_000, 4_000
	case arbiter.ReasonBudget:
		c.Of, c.ScopeKind, c.Scope, c.Unit = r, arbiter.KindGlobal, "", arbiter.UnitNanos
		c.Limit, c.Used, c.Held, c.Asked, c.ResetsAt = 250_000_000_000, 249_990_000_000, 5_000_000, 12_500_000, time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC).UnixNano()
	case arbiter.ReasonClass:
		c.ScopeKind, c.Scope, c.Unit, c.Limit, c.Used, c.Held, c.Asked = arbiter.KindClass, "batch", arbiter.UnitTokens, 1_000_000, 999_000, 0, 4_000
		c.ResetsAt = time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC).UnixNano()
	case arbiter.ReasonHold, arbiter.ReasonBreaker, arbiter.ReasonQueue, arbiter.ReasonExhausted:
		c = arbiter.Check{Reason: r, ScopeKind: arbiter.KindModel, Scope: "gpt-5.4"}
	case arbiter.ReasonTooLarge:
		c.Of, c.ScopeKind, c.Scope, c.Unit, c.Limit, c.Used, c.Held, c.Asked = arbiter.ReasonInputTPM, arbiter.KindModel, "gpt-5.4", arbiter.UnitTokens, 272_000, 0, 0, 400_000
	case arbiter.ReasonUnpricedModel:
		c = arbiter.Check{Reason: r, ScopeKind: arbiter.KindModel, Scope: "claude-opus-4.1"}
	case arbiter.ReasonNoRung:
		c = arbiter.Check{Reason: r}
	case arbiter.ReasonPrincipal:
		c = arbiter.Check{Reason: r, ScopeKind: arbiter.KindCredential, Unit: arbiter.UnitRequests, Limit: 100, Held: 100, Asked: 1}
	}
	return &Grant{Status: status, Check: c, RetryAfter: wait, Decision: "3-118-2041"}
}

// shapes are the ways in which a refusal can come.
var shapes = []struct {
	name   string
	status arbiter.Status
	wait   time.Duration
}{
	{"deferred 12s", arbiter.Deferred, 11400 * time.Millisecond},
	{"deferred 2h", arbiter.Deferred, 2 * time.Hour},
	{"denied", arbiter.Denied, 0},
}

// answer writes f and reads it back as a client does.
func answer(t testing.TB, f *refusal, d *provider.Dialect) (*http.Response, []byte) {
	t.Helper()
	rec := httptest.NewRecorder()
	f.write(rec, d)
	resp := rec.Result()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, body
}

// checkLaws asserts what holds for every refusal whatsoever.
func checkLaws(t *testing.T, what string, f *refusal, d *provider.Dialect) {
	t.Helper()
	resp, _ := answer(t, f, d)
	h := resp.Header
	fault := func(format string, args ...any) {
		t.Helper()
		t.Errorf("%s in %s: %s", what, d.Name(), fmt.Sprintf(format, args...))
	}
	switch s := resp.StatusCode; {
	case s == http.StatusConflict, s == http.StatusRequestTimeout:
		fault("status %d is repeated by SDKs", s)
	case s >= 500 && s != http.StatusServiceUnavailable, s < 400:
		fault("status %d is none of ours", s)
	case s >= 500 && f.detail != nil && (f.detail.Reason == "budget" || f.detail.Reason == "class" || f.detail.Reason == "too_large" || f.detail.Reason == "principal"):
		fault("status %d for a refusal by budget", s)
	}
	if h.Get("X-Tba-Origin") != "arbiter" {
		fault("x-tba-origin is %q", h.Get("X-Tba-Origin"))
	}
	should := h.Get("X-Should-Retry")
	if should != "true" && should != "false" {
		fault("x-should-retry is %q", should)
	}
	wait, ms := h.Get("Retry-After"), h.Get("Retry-After-Ms")
	switch {
	case should == "false" && (wait != "" || ms != ""):
		fault("false comes with retry-after %q, -ms %q", wait, ms)
	case should == "true" && (wait == "" || ms == ""):
		fault("true comes without a retry-after")
	case should == "true":
		seconds, err := strconv.Atoi(wait)
		if err != nil || seconds < 1 || seconds > 60 {
			fault("retry-after %q is not 1..60", wait)
		}
		millis, err := strconv.Atoi(ms)
		if err != nil || millis > 60_000 || (millis+999)/1000 != seconds {
			fault("retry-after-ms %q does not round up to retry-after %q", ms, wait)
		}
		if resp.StatusCode == http.StatusServiceUnavailable && seconds > 5 {
			fault("an outage of %d s", seconds)
		}
	}
	if f.message == "" || strings.ContainsAny(f.message, "\n\r\x00") {
		fault("message %q", f.message)
	}
}

func TestRefusalLaws(t *testing.T) {
	t.Parallel()
	waits := []time.Duration{1, time.Millisecond, 999 * time.Millisecond, time.Second, 1001 * time.Millisecond, 30 * time.Second, 59*time.Second + 1,
		60 * time.Second, 61 * time.Second, 61*time.Second + 1, time.Hour, 10_000 * time.Hour}
	for _, d := range dialects(t) {
		for _, r := range append(everyReason(), arbiter.ReasonNone) {
			for agent := range 20 {
				o := refuseOptions{agent: strconv.Itoa(agent), tried: agent%2 == 0}
				for _, wait := range waits {
					g := exampleOf(r, arbiter.Deferred, wait)
					f := refuseGrant(g, d, refusedAt, o)
					checkLaws(t, fmt.Sprintf("%s deferred %v", r, wait), f, d)
					if f.retryAfter > 0 && f.retryAfter < min(wait, longestHint) && f.status == http.StatusTooManyRequests {
						t.Errorf("%s: a hint of %v is before the room at %v", r, f.retryAfter, wait)
					}
				}
				checkLaws(t, r.String()+" denied", refuseGrant(exampleOf(r, arbiter.Denied, 0), d, refusedAt, o), d)
			}
		}
		for code := arbiter.CodeInvalid; code <= arbiter.CodeUnimplemented; code++ {
			for _, wait := range append(waits, 0) {
				checkLaws(t, fmt.Sprintf("code %d, %v", code, wait), refuseError(&arbiter.Error{Code: code, Reason: "word", Text: "text", RetryAfter: int64(wait)}), d)
			}
		}
		for _, err := range []error{context.Canceled, context.DeadlineExceeded, errors.New("dial tcp 10.0.0.1:7481: refused"), fmt.Errorf("x: %w", context.Canceled)} {
			f := refuseError(err)
			checkLaws(t, err.Error(), f, d)
			if strings.Contains(f.message, "10.0.0.1") {
				t.Errorf("%q tells an address", f.message)
			}
		}
	}
}

// TestRefusalTable is the table of docs/gateway.md, refusals, row by row.
func TestRefusalTable(t *testing.T) {
	t.Parallel()
	by := map[string]*provider.Dialect{}
	for _, d := range dialects(t) {
		by[d.Name()] = d
	}
	for _, row := range []struct {
		what     string
		dialect  string
		grant    *Grant
		override int
		status   int
		kind     provider.Kind
		retry    bool
	}{
		{"a window clears soon", "openai", exampleOf(arbiter.ReasonTPM, arbiter.Deferred, 61*time.Second), 0, 429, provider.RateLimited, true},
		{"slots clear soon", "gemini", exampleOf(arbiter.ReasonSlots, arbiter.Deferred, time.Second), 0, 429, provider.RateLimited, true},
		{"a window clears late", "openai", exampleOf(arbiter.ReasonRPD, arbiter.Deferred, 61*time.Second+1), 0, 429, provider.RateLimited, false},
		{"the class's share grows late", "mistral", exampleOf(arbiter.ReasonClass, arbiter.Deferred, time.Hour), 0, 429, provider.RateLimited, false},
		{"a budget is used up", "openai", exampleOf(arbiter.ReasonBudget, arbiter.Denied, 0), 0, 429, provider.QuotaExhausted, false},
		{"a budget is used up", "anthropic", exampleOf(arbiter.ReasonBudget, arbiter.Denied, 0), 0, 429, provider.QuotaExhausted, false},
		{"a budget is used up", "mistral", exampleOf(arbiter.ReasonBudget, arbiter.Denied, 0), 0, 402, provider.QuotaExhausted, false},
		{"a budget is used up", "gemini", exampleOf(arbiter.ReasonBudget, arbiter.Denied, 0), 0, 403, provider.QuotaExhausted, false},
		{"a budget is used up", "http", exampleOf(arbiter.ReasonBudget, arbiter.Denied, 0), 0, 402, provider.QuotaExhausted, false},
		{"budget_status overrides", "openai", exampleOf(arbiter.ReasonBudget, arbiter.Denied, 0), 402, 402, provider.QuotaExhausted, false},
		{"a budget resets within the wait", "gemini", exampleOf(arbiter.ReasonBudget, arbiter.Deferred, time.Hour), 0, 403, provider.QuotaExhausted, false},
		{"a budget is held for a moment", "gemini", exampleOf(arbiter.ReasonBudget, arbiter.Deferred, 6*time.Second), 0, 429, provider.RateLimited, true},
		{"the provider's account is empty", "mistral", exampleOf(arbiter.ReasonExhausted, arbiter.Deferred, 90*time.Hour), 0, 402, provider.QuotaExhausted, false},
		{"larger than any limit", "anthropic", exampleOf(arbiter.ReasonTooLarge, arbiter.Denied, 0), 402, 400, provider.TooLarge, false},
		{"no price", "openai", exampleOf(arbiter.ReasonUnpricedModel, arbiter.Denied, 0), 0, 403, provider.Denied, false},
		{"all rungs down", "openai", exampleOf(arbiter.ReasonBreaker, arbiter.Deferred, 8*time.Second), 0, 503, provider.Unavailable, true},
	} {
		f := refuseGrant(row.grant, by[row.dialect], refusedAt, refuseOptions{budgetStatus: row.override})
		if f.status != row.status || f.kind != row.kind || *f.retry != row.retry {
			t.Errorf("%s, %s: %d kind %d retry %v, want %d kind %d retry %v", row.what, row.dialect, f.status, f.kind, *f.retry, row.status, row.kind, row.retry)
		}
	}
	for _, row := range []struct {
		err    error
		status int
		kind   provider.Kind
		retry  bool
	}{
		{arbiter.Errorf(arbiter.CodeUnauthenticated, "no_credential", "x"), 401, provider.Unauthenticated, false},
		{arbiter.Errorf(arbiter.CodePermission, "class_not_allowed", "x"), 403, provider.Denied, false},
		{arbiter.Errorf(arbiter.CodeInvalid, "unknown_class", "x"), 400, provider.BadRequest, false},
		{arbiter.Errorf(arbiter.CodeNotFound, "unknown_pool", "x"), 400, provider.BadRequest, false},
		{arbiter.Errorf(arbiter.CodeConflict, "request_id_reused", "x"), 400, provider.BadRequest, false},
		{arbiter.Errorf(arbiter.CodeResource, "too_many_tasks", "x"), 429, provider.RateLimited, false},
		{arbiter.Errorf(arbiter.CodeResource, "too_large", "x"), 400, provider.TooLarge, false},
		{&arbiter.Error{Code: arbiter.CodeResource, Reason: "rate_limited", Text: "x", RetryAfter: arbiter.Second}, 429, provider.RateLimited, true},
		{&arbiter.Error{Code: arbiter.CodeUnavailable, Reason: "journal", Text: "x", RetryAfter: arbiter.Minute}, 503, provider.Unavailable, true},
		{context.DeadlineExceeded, 503, provider.Unavailable, true},
	} {
		if f := refuseError(row.err); f.status != row.status || f.kind != row.kind || *f.retry != row.retry {
			t.Errorf("%v: %d kind %d retry %v, want %d kind %d retry %v", row.err, f.status, f.kind, *f.retry, row.status, row.kind, row.retry)
		}
	}
}

// TestHintsSpread asserts that agents that were refused together do not come back together, and one agent always gets the same hint.
func TestHintsSpread(t *testing.T) {
	t.Parallel()
	seen := map[time.Duration]bool{}
	for agent := range 200 {
		o := refuseOptions{agent: strconv.Itoa(agent)}
		hint := spread(16*time.Second, longestHint, o)
		if hint < 16*time.Second || hint > 18*time.Second || hint != spread(16*time.Second, longestHint, o) {
			t.Fatalf("agent %d: %v", agent, hint)
		}
		seen[hint.Truncate(100*time.Millisecond)] = true
	}
	if len(seen) < 15 { // of 21 tenths of a second
		t.Errorf("200 agents share %d moments", len(seen))
	}
	if got := spread(time.Hour, longestHint, refuseOptions{}); got != longestHint {
		t.Errorf("an hour: %v", got)
	}
}

// TestRefusalAsResponse asserts that both ways out say the same.
func TestRefusalAsResponse(t *testing.T) {
	t.Parallel()
	for _, d := range dialects(t) {
		f := refuseGrant(exampleOf(arbiter.ReasonRPM, arbiter.Deferred, 3*time.Second), d, refusedAt, refuseOptions{})
		written, body := answer(t, f, d)
		r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", nil)
		resp := f.response(r, d)
		other, err := io.ReadAll(resp.Body)
		if err != nil || !bytes.Equal(body, other) || resp.StatusCode != written.StatusCode || resp.Request != r || resp.ContentLength != int64(len(body)) {
			t.Errorf("%s: %d %q, %v, written %d %q", d.Name(), resp.StatusCode, other, err, written.StatusCode, body)
		}
		if fmt.Sprint(resp.Header) != fmt.Sprint(written.Header) {
			t.Errorf("%s: %v, written %v", d.Name(), resp.Header, written.Header)
		}
	}
}

// TestDetail asserts that a program finds every figure of a refusal.
func TestDetail(t *testing.T) {
	t.Parallel()
	d, _ := provider.Lookup(provider.OpenAI)
	f := refuseGrant(exampleOf(arbiter.ReasonBudget, arbiter.Denied, 0), d, refusedAt, refuseOptions{})
	const want = `{"reason":"budget","scope":"global","budget":"global","unit":"nano_usd","limit":250000000000,"used":249990000000,"held":5000000,"asked":12500000,"resets_at":"2026-12-01T00:00:00Z","decision_id":"3-118-2041"}`
	if got := string(f.problem().Detail); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if !strings.Contains(f.message, "$249.99") || !strings.Contains(f.message, "2026-12-01T00:00:00Z") {
		t.Errorf("message %q lacks figures or time", f.message)
	}
	f = refuseGrant(exampleOf(arbiter.ReasonUnpricedModel, arbiter.Denied, 0), d, refusedAt, refuseOptions{model: "claude-opus-4.1"})
	if !strings.Contains(f.message, `"claude-opus-4.1"`) {
		t.Errorf("message %q does not name the id", f.message)
	}
}

func TestUSD(t *testing.T) {
	t.Parallel()
	for nanos, want := range map[int64]string{0: "$0.00", 1: "$0.000000001", 1_720_700: "$0.0017207", 250_000_000: "$0.25", 12_500_000_000: "$12.50", -5_000_000_000: "-$5.00"} {
		if got := usd(nanos); got != want {
			t.Errorf("%d: %s, want %s", nanos, got, want)
		}
	}
}
