package provider

import (
	"math"
	"strconv"
	"strings"

	"github.com/token-budget-arbiter/tba/arbiter"
)

const (
	anthropicVersionHeader = "Anthropic-Version"
	anthropicVersion       = "2023-06-01"
	anthropicDefaultCap    = 4096 // max_tokens is required; a request without a cap of its own gets this one
)

// anthropic: messages. input_tokens excludes both cache counts; output includes thinking.
var anthropic = Dialect{
	name:     Anthropic,
	keySlot:  "X-Api-Key",
	chatPath: func(string) string { return "/v1/messages" },
	chatBody: func(r ChatRequest) any {
		if r.MaxOutput == 0 {
			r.MaxOutput = anthropicDefaultCap
		}
		return struct {
			Model     string    `json:"model"`
			MaxOutput int64     `json:"max_tokens"`
			Messages  []message `json:"messages"`
		}{r.Model, r.MaxOutput, []message{{"user", r.Text}}}
	},
	usage:  anthropicUsage,
	image:  anthropicImage,
	limits: anthropicLimits,
	rules: []Rule{
		{Name: "anthropic_spend", Status: []int{429}, Codes: []string{"enforced_spend_limit_reached",
			"contract_spend_limit_reached", "linked_organization_spend_limit_reached"}, Class: Exhausted, Until: UntilMonth},
		{Name: "anthropic_self_set", Status: []int{400}, Text: []string{"you have reached your specified api usage limits",
			"workspace api usage limits"}, Class: Exhausted, Until: UntilTextDate},
		{Name: "anthropic_billing", Status: []int{402}, Class: Exhausted, Until: UntilOperator},
		{Name: "anthropic_billing_code", Codes: []string{"linked_organization_billing_unavailable",
			"user_profile_not_billable"}, Class: Exhausted, Until: UntilOperator},
		{Name: "anthropic_credit", Status: []int{400}, Text: []string{"credit balance is too low"}, Class: Exhausted, Until: UntilOperator},
		{Name: "anthropic_ramp", Status: []int{429}, Codes: []string{"ramp_limit_exceeded"}, Class: Throttle, Until: UntilHint, Grows: true},
		{Name: "anthropic_throttle", Status: []int{429}, Codes: []string{"rate_limit_error"}, Class: Throttle, Until: UntilHint},
		{Name: "anthropic_overloaded", Status: []int{529}, Class: Overload, Until: UntilBackoff},
		{Name: "anthropic_overloaded_type", Codes: []string{"overloaded_error"}, Class: Overload, Until: UntilBackoff},
		{Name: "anthropic_error", Status: []int{500}, Class: Provider, Until: UntilBackoff},
		{Name: "anthropic_timeout", Status: []int{504}, Class: Provider, Until: UntilBackoff, Ambiguous: true},
		{Name: "anthropic_bytes", Status: []int{413}, Class: Caller, Until: UntilNever},
		{Name: "anthropic_conflict", Status: []int{409}, Class: Caller, Until: UntilShort},
		{Name: "anthropic_on_hold", Status: []int{403}, Codes: []string{"organization_on_hold"}, Class: Auth, Until: UntilOperator},
	},
}

// anthropicLimitRows are the trios of the account, of the priority tier and of the fast mode. Resets are RFC 3339 instants.
var anthropicLimitRows = func() (rows []limitRow) {
	for _, x := range [...]struct {
		prefix, scope string
	}{{"Anthropic-Ratelimit-", ""}, {"Anthropic-Priority-", "priority"}, {"Anthropic-Fast-", "fast"}} {
		for _, a := range [...]struct {
			name string
			dim  arbiter.Dim
		}{{"Requests", arbiter.DimRPM}, {"Input-Tokens", arbiter.DimInputTPM}, {"Output-Tokens", arbiter.DimOutputTPM}, {"Tokens", arbiter.DimTPM}} {
			p := x.prefix + a.name
			rows = append(rows, limitRow{Limit{Dim: a.dim, Scope: x.scope}, p + "-Limit", p + "-Remaining", p + "-Reset"})
		}
	}
	return rows
}()

// anthropicLimits adds what subscription traffic carries: anthropic-ratelimit-unified-*, with resets in Unix seconds.
func anthropicLimits(r reader) Limits {
	l := readLimits(r, anthropicLimitRows)
	for _, span := range [...]string{"5h", "7d"} {
		p := "Anthropic-Ratelimit-Unified-" + span
		used, err := strconv.ParseFloat(strings.TrimSpace(r.h.Get(p+"-utilization")), 64)
		if err != nil || math.IsNaN(used) || used < 0 {
			continue
		}
		// A share of an unnamed limit: kept in thousandths, so that it stays an integer.
		x := Limit{Scope: "unified_" + span, Limit: 1000, Remaining: int64(math.Floor(1000 * max(1-used, 0)))}
		x.Reset, x.HasReset = ParseWait(r.h.Get(p+"-reset"), r.wall())
		l.List = append(l.List, x)
	}
	return l
}

// anthropicImage is width × height / 750: up to 1,600 after scaling the long side to 1,568 pixels on models before
// Opus 4.7, up to 4,800 from there on.
func anthropicImage(model string, m *media) int64 {
	w, h := m.width, m.height
	if before47(model) {
		w, h = fit(w, h, 1568, 1568)
		return min(ceilDiv(w*h, 750), 1600)
	}
	return min(ceilDiv(w*h, 750), 4800)
}

func before47(model string) bool {
	for _, old := range [...]string{"claude-2", "claude-3", "-4-0", "-4-1", "-4-5", "-4-6", "-4-2025"} {
		if strings.Contains(model, old) {
			return true
		}
	}
	return false
}

// anthropicRoutes leaves out batches, which cannot be metered by the call, and the legacy completions, whose answers
// have no usage.
var anthropicRoutes = []route{
	{post, "/v1/messages", &Endpoint{name: "messages", dialect: &anthropic, answer: answerMessages,
		fields: messagesFields, caps: olderCaps}},
	{post, "/v1/messages/count_tokens", &Endpoint{name: "count_tokens", dialect: &anthropic,
		fields: messagesFields, unbilled: true, silent: true}},
	{get, "/v1/models", models(&anthropic)},
	{get, "/v1/models/*", models(&anthropic)},
}
