package main

import (
	"strings"
	"time"
)

// The rows of the Admin API, fields in its order and under its names. They are decoded from the JSON of the server, so
// that this program needs nothing that a script does not have.

type budgetRow struct {
	Name          string     `json:"name"`
	Kind          string     `json:"kind"`
	Unit          string     `json:"unit"`
	Limit         integer    `json:"limit"`
	Spent         integer    `json:"spent"`
	Held          integer    `json:"held"`
	Assumed       integer    `json:"assumed"`
	Available     integer    `json:"available"`
	OverBy        integer    `json:"over_by"`
	PeriodStart   *time.Time `json:"period_start"`
	PeriodEnd     *time.Time `json:"period_end"`
	PeriodID      string     `json:"period_id"`
	Unlimited     bool       `json:"unlimited"`
	Shadow        bool       `json:"shadow"`
	ShadowOver    integer    `json:"shadow_over"`
	ShadowRefused integer    `json:"shadow_refused"`
	DeclaredLimit integer    `json:"declared_limit"`
	Final         bool       `json:"final"`
	Pool          string     `json:"pool"`

	cost integer // of tables: what the tokens cost
}

// perBudget is the rows for a table: one line for each budget, with what it cost, and one for a limit in USD. What has
// neither limit nor use has nothing to say.
func perBudget(rows []budgetRow) []budgetRow {
	cost := map[string]integer{}
	for _, b := range rows {
		if b.Unit == "nano_usd" {
			cost[b.Name] = b.Spent + b.Assumed
		}
	}
	var out []budgetRow
	for _, b := range rows {
		if b.Unlimited && (b.Unit == "nano_usd" || b.Spent+b.Held+b.Assumed == 0) {
			continue
		}
		b.cost = cost[b.Name]
		out = append(out, b)
	}
	return out
}

// used is the part of the limit that is gone or held.
func (b budgetRow) used() float64 {
	if b.Unlimited || b.Limit == 0 {
		return 0
	}
	return float64(b.Spent+b.Held+b.Assumed) / float64(b.Limit)
}

func (b budgetRow) shade() shade {
	switch {
	case b.Unlimited:
		return dim
	case b.OverBy > 0 || b.used() >= 0.95:
		return bad
	case b.used() >= 0.70:
		return warn
	}
	return good
}

var budgetColumns = []column[budgetRow]{
	{title: "BUDGET", cell: func(b budgetRow) string { return b.Name }},
	{title: "LIMIT", right: true, cell: func(b budgetRow) string {
		if b.Unlimited {
			return "none"
		}
		return amount(b.Limit, b.Unit)
	}},
	{title: "SPENT", right: true, cell: func(b budgetRow) string { return amount(b.Spent, b.Unit) }},
	{title: "HELD", right: true, cell: func(b budgetRow) string { return amount(b.Held, b.Unit) }},
	{title: "ASSUMED", right: true, cell: func(b budgetRow) string { return amount(b.Assumed, b.Unit) }},
	{title: "AVAILABLE", right: true, cell: func(b budgetRow) string {
		if b.Unlimited {
			return "-"
		}
		return amount(b.Available, b.Unit)
	}},
	{title: "USED", right: true, shade: budgetRow.shade, cell: func(b budgetRow) string {
		if b.Unlimited {
			return "-"
		}
		return part(b.used())
	}},
	{title: "COST", right: true, cell: func(b budgetRow) string {
		if b.Unit == "nano_usd" {
			return ""
		}
		return dollars(b.cost)
	}},
	{title: "UNIT", cell: func(b budgetRow) string {
		return map[string]string{"nano_usd": "USD"}[b.Unit] + strings.TrimPrefix(b.Unit, "nano_usd")
	}},
	{title: "NOTE", cell: func(b budgetRow) string {
		var notes []string
		if b.OverBy > 0 {
			notes = append(notes, "over by "+amount(b.OverBy, b.Unit))
		}
		switch {
		case b.Shadow && b.ShadowRefused > 0:
			notes = append(notes, "shadow, would have refused "+count(b.ShadowRefused))
		case b.Shadow:
			notes = append(notes, "shadow")
		}
		if b.DeclaredLimit > 0 {
			notes = append(notes, "declared "+amount(b.DeclaredLimit, b.Unit))
		}
		return strings.Join(notes, "; ")
	}},
}

type providerRow struct {
	Name                string         `json:"name"`
	Model               string         `json:"model"`
	Kind                string         `json:"kind"`
	Dimensions          []dimensionRow `json:"dimensions"`
	Headroom            float64        `json:"headroom"`
	Breaker             string         `json:"breaker"`
	BreakerUntil        *time.Time     `json:"breaker_until"`
	ConsecutiveFailures integer        `json:"consecutive_failures"`
	Ramp                float64        `json:"ramp"`
	Price               *priceRow      `json:"price"`
	Leases              integer        `json:"leases"`
	Drained             bool           `json:"drained"`
	LatencyP50          integer        `json:"latency_p50_ms"`
	LatencyP99          integer        `json:"latency_p99_ms"`
	Pool                string         `json:"pool"`
}

type dimensionRow struct {
	Name          string     `json:"name"`
	Ceiling       integer    `json:"ceiling"`
	InForce       integer    `json:"in_force"`
	Used          integer    `json:"used"`
	Held          integer    `json:"held"`
	Headroom      float64    `json:"headroom"`
	HoldUntil     *time.Time `json:"hold_until"`
	Shadow        bool       `json:"shadow"`
	ShadowRefused integer    `json:"shadow_refused"`
}

type priceRow struct {
	Input          integer `json:"input_pico"`
	Output         integer `json:"output_pico"`
	CacheRead      integer `json:"cache_read_pico"`
	CacheWrite     integer `json:"cache_write_pico"`
	CacheWriteLong integer `json:"cache_write_long_pico"`
	Source         string  `json:"source"`
}

// dimension shows one limit as used of ceiling.
func dimension(name string) func(providerRow) string {
	return func(p providerRow) string {
		for _, d := range p.Dimensions {
			if d.Name != name {
				continue
			}
			text := count(d.Used+d.Held) + "/" + count(d.InForce)
			if d.HoldUntil != nil {
				text += " held"
			}
			return text
		}
		return "-"
	}
}

var providerColumns = []column[providerRow]{
	{title: "PROVIDER", cell: func(p providerRow) string { return p.Name }},
	{title: "MODEL", cell: func(p providerRow) string { return orAll(p.Model) }},
	{title: "HEADROOM", right: true, shade: providerRow.shade, cell: func(p providerRow) string { return part(p.Headroom) }},
	{title: "RPM", right: true, cell: dimension("rpm")},
	{title: "TPM", right: true, cell: dimension("tpm")},
	{title: "SLOTS", right: true, cell: dimension("slots")},
	{title: "LEASES", right: true, cell: func(p providerRow) string { return count(p.Leases) }},
	{title: "BREAKER", shade: providerRow.breakerShade, cell: func(p providerRow) string {
		text := lower(p.Breaker)
		if p.BreakerUntil != nil {
			text += " until " + clockTime(p.BreakerUntil)
		}
		if p.Drained {
			text += ", drained"
		}
		return text
	}},
	{title: "P50", right: true, cell: func(p providerRow) string { return span(p.LatencyP50) }},
	{title: "P99", right: true, cell: func(p providerRow) string { return span(p.LatencyP99) }},
	{title: "IN/OUT $/M", right: true, cell: func(p providerRow) string {
		if p.Price == nil || p.Price.Source == "" {
			return "-"
		}
		return perMillion(p.Price.Input) + "/" + perMillion(p.Price.Output)
	}},
}

func (p providerRow) shade() shade {
	switch {
	case p.Headroom <= 0.10:
		return bad
	case p.Headroom <= 0.30:
		return warn
	}
	return good
}

// idle is a model that runs nothing and is well.
func (p providerRow) idle() bool {
	return p.Model != "" && p.Leases == 0 && p.Breaker == "CLOSED" && !p.Drained && p.LatencyP50 == 0
}

func (p providerRow) breakerShade() shade {
	if p.Breaker == "CLOSED" && !p.Drained {
		return plain
	}
	return bad
}

// other dimensions that a provider has beyond the columns of the table, for the line under it.
func otherDimensions(rows []providerRow) []string {
	var out []string
	for _, p := range rows {
		var parts []string
		for _, d := range p.Dimensions {
			if !oneOf(d.Name, "rpm", "tpm", "slots") {
				parts = append(parts, d.Name+" "+count(d.Used+d.Held)+"/"+count(d.InForce))
			}
		}
		if len(parts) > 0 {
			out = append(out, strings.TrimSuffix(p.Name+"/"+p.Model, "/")+": "+strings.Join(parts, ", "))
		}
	}
	return out
}

type leaseRow struct {
	LeaseID    string  `json:"lease_id"`
	AgentID    string  `json:"agent_id"`
	AgentClass string  `json:"agent_class"`
	Provider   string  `json:"provider"`
	Model      string  `json:"model"`
	Phase      string  `json:"phase"`
	Tokens     integer `json:"tokens"`
	CostNanos  integer `json:"cost_nanos"`
	AgeMS      integer `json:"age_ms"`
	ExpiresIn  integer `json:"expires_in_ms"`
	TaskID     string  `json:"task_id"`
	WorkflowID string  `json:"workflow_id"`
	Priority   string  `json:"priority"`
	Parent     string  `json:"parent_lease_id"`
	Pool       string  `json:"pool"`
}

var leaseColumns = []column[leaseRow]{
	{title: "LEASE", cell: func(l leaseRow) string { return l.LeaseID }},
	{title: "AGENT", cell: func(l leaseRow) string { return l.AgentID }},
	{title: "CLASS", cell: func(l leaseRow) string { return l.AgentClass }},
	{title: "PRIORITY", cell: func(l leaseRow) string { return lower(l.Priority) }},
	{title: "PROVIDER", cell: func(l leaseRow) string { return strings.TrimSuffix(l.Provider+"/"+l.Model, "/") }},
	{title: "PHASE", cell: func(l leaseRow) string { return lower(l.Phase) }},
	{title: "TOKENS", right: true, cell: func(l leaseRow) string { return count(l.Tokens) }},
	{title: "COST", right: true, cell: func(l leaseRow) string { return dollars(l.CostNanos) }},
	{title: "AGE", right: true, cell: func(l leaseRow) string { return span(l.AgeMS) }},
	{title: "EXPIRES IN", right: true, cell: func(l leaseRow) string { return span(l.ExpiresIn) }},
	{title: "TASK", cell: func(l leaseRow) string { return l.TaskID }},
}

type classRow struct {
	Name      string  `json:"name"`
	Share     float64 `json:"share"`
	Priority  string  `json:"priority"`
	Used      integer `json:"used"`
	Held      integer `json:"held"`
	Guarantee integer `json:"guarantee"`
	Waiting   integer `json:"waiting"`
	Leases    integer `json:"leases"`
	CostNanos integer `json:"cost_nanos"`
	Oldest    integer `json:"oldest_wait_ms"`
	Pool      string  `json:"pool"`
}

var classColumns = []column[classRow]{
	{title: "CLASS", cell: func(c classRow) string { return c.Name }},
	{title: "SHARE", right: true, cell: func(c classRow) string { return part(c.Share) }},
	{title: "PRIORITY", cell: func(c classRow) string { return lower(c.Priority) }},
	{title: "GUARANTEE", right: true, cell: func(c classRow) string { return count(c.Guarantee) }},
	{title: "USED", right: true, cell: func(c classRow) string { return count(c.Used) }},
	{title: "HELD", right: true, cell: func(c classRow) string { return count(c.Held) }},
	{title: "COST", right: true, cell: func(c classRow) string { return dollars(c.CostNanos) }},
	{title: "LEASES", right: true, cell: func(c classRow) string { return count(c.Leases) }},
	{title: "WAITING", right: true, cell: func(c classRow) string { return count(c.Waiting) }},
	{title: "OLDEST WAIT", right: true, cell: func(c classRow) string { return span(c.Oldest) }},
}

func orAll(model string) string {
	if model == "" {
		return "(all)"
	}
	return model
}
