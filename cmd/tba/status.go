package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

type statusRow struct {
	Version      string     `json:"version"`
	State        string     `json:"state"`
	Message      string     `json:"message"`
	Pool         string     `json:"pool"`
	Pools        []string   `json:"pools"`
	Mode         string     `json:"mode"`
	Journal      string     `json:"journal"`
	Epoch        integer    `json:"epoch"`
	Sequence     integer    `json:"sequence"`
	UptimeMS     integer    `json:"uptime_ms"`
	LeasesOpen   integer    `json:"leases_open"`
	Waiting      integer    `json:"waiting"`
	Backpressure *pressure  `json:"backpressure"`
	PolicyHash   string     `json:"policy_hash"`
	PolicySince  *time.Time `json:"policy_since"`
	ConfigError  string     `json:"config_error"`
	PeriodID     string     `json:"period_id"`
	PeriodStart  *time.Time `json:"period_start"`
	PeriodEnd    *time.Time `json:"period_end"`
	Subscribers  integer    `json:"subscribers"`
	Writer       string     `json:"writer"`
	Warnings     []string   `json:"warnings"`
}

// pressure is the pool's backpressure.
type pressure struct {
	Level       string             `json:"level"`
	Consumed    float64            `json:"global_budget_consumed_pct"`
	Headrooms   map[string]float64 `json:"provider_headrooms"`
	DelayMS     integer            `json:"recommended_delay_ms"`
	Shed        bool               `json:"shed_low_priority"`
	Message     string             `json:"message"`
	Sequence    integer            `json:"sequence"`
	ClassLevels map[string]string  `json:"class_levels"`
	Reasons     []string           `json:"reasons"`
}

var statusColumns = []column[statusRow]{
	{title: "state", shade: statusRow.shade, cell: func(s statusRow) string {
		if s.Message != "" {
			return s.State + ": " + s.Message
		}
		return s.State
	}},
	{title: "version", cell: func(s statusRow) string {
		if s.UptimeMS <= 0 {
			return s.Version
		}
		return s.Version + ", up " + span(s.UptimeMS)
	}},
	{title: "pool", cell: func(s statusRow) string {
		if len(s.Pools) > 1 {
			return fmt.Sprintf("%s, of %s", s.Pool, strings.Join(s.Pools, ", "))
		}
		return s.Pool
	}},
	{title: "mode", cell: func(s statusRow) string {
		if s.Mode == "shadow" {
			return "shadow: decides and records, refuses nothing"
		}
		return s.Mode
	}},
	{title: "journal", cell: func(s statusRow) string {
		return fmt.Sprintf("%s, epoch %d, entry %s", s.Journal, s.Epoch, count(s.Sequence))
	}},
	{title: "leases", cell: func(s statusRow) string {
		return fmt.Sprintf("%s running, %s waiting", count(s.LeasesOpen), count(s.Waiting))
	}},
	{title: "backpressure", shade: func(s statusRow) shade { return s.Backpressure.shade() }, cell: func(s statusRow) string {
		b := s.Backpressure
		if b == nil {
			return ""
		}
		text := lower(b.Level)
		if b.DelayMS > 0 {
			text += ", delay " + span(b.DelayMS)
		}
		if b.Shed {
			text += ", shed low priority"
		}
		if b.Message != "" {
			text += ": " + b.Message
		}
		return text
	}},
	{title: "headroom", cell: func(s statusRow) string {
		if s.Backpressure == nil {
			return ""
		}
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(s.Backpressure.Headrooms)) {
			parts = append(parts, name+" "+part(s.Backpressure.Headrooms[name]))
		}
		return strings.Join(parts, ", ")
	}},
	{title: "period", cell: func(s statusRow) string {
		if s.PeriodEnd == nil {
			return s.PeriodID
		}
		return fmt.Sprintf("%s, ends %s", s.PeriodID, when(s.PeriodEnd))
	}},
	{title: "policy", cell: func(s statusRow) string {
		if s.PolicySince == nil {
			return shorten(s.PolicyHash)
		}
		return shorten(s.PolicyHash) + " since " + when(s.PolicySince)
	}},
	{title: "config", shade: func(statusRow) shade { return bad }, cell: func(s statusRow) string {
		if s.ConfigError == "" {
			return ""
		}
		return "the file on disk is not in force: " + s.ConfigError
	}},
	{title: "listening", cell: func(s statusRow) string { return plural(int(s.Subscribers), "subscriber") + " of backpressure" }},
	{title: "warning", shade: func(statusRow) shade { return warn }, cell: func(s statusRow) string { return strings.Join(s.Warnings, "; ") }},
}

func (s statusRow) shade() shade {
	if s.State == "ready" {
		return good
	}
	return bad
}

func (b *pressure) shade() shade {
	if b == nil {
		return plain
	}
	switch b.Level {
	case "NONE":
		return good
	case "MILD", "MODERATE":
		return warn
	}
	return bad
}

func shorten(hash string) string {
	if len(hash) > 12 {
		return hash[:12]
	}
	return hash
}

func (a *app) statusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "status", Short: "How a running server and its pool are", Args: noArgs,
		Example: "  tba status\n  tba status --server http://arbiter:7480 -o json\n  tba status --watch",
	}
	s := a.serverFlags(cmd)
	a.watching(cmd, false, func(ctx context.Context, frame *app, _ int) error {
		var v statusRow
		if err := s.get(ctx, "status", nil, &v); err != nil {
			return err
		}
		return printOne(frame, v, statusColumns)
	})
	return cmd
}
