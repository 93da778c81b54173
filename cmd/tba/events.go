package main

import (
	"context"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

type eventRow struct {
	Sequence   integer    `json:"sequence"`
	Time       *time.Time `json:"time"`
	Type       string     `json:"type"`
	LeaseID    string     `json:"lease_id"`
	AgentID    string     `json:"agent_id"`
	AgentClass string     `json:"agent_class"`
	Provider   string     `json:"provider"`
	Model      string     `json:"model"`
	Dimension  string     `json:"dimension"`
	RetryAfter integer    `json:"retry_after_ms"`
	Reason     string     `json:"reason"`
	Tokens     integer    `json:"tokens"`
	CostNanos  integer    `json:"cost_nanos"`
	Budget     string     `json:"budget"`
	From       string     `json:"from"`
	To         string     `json:"to"`
	PeriodID   string     `json:"period_id"`
	TaskID     string     `json:"task_id"`
	Actor      string     `json:"actor"`
	Message    string     `json:"message"`
	Pool       string     `json:"pool"`
}

var eventColumns = []column[eventRow]{
	{title: "TIME", cell: func(e eventRow) string { return clockTime(e.Time) }},
	{title: "EVENT", cell: func(e eventRow) string { return e.Type }, shade: eventRow.shade},
	{title: "WHERE", cell: func(e eventRow) string {
		where := strings.Trim(e.Provider+"/"+e.Model, "/")
		if e.Dimension != "" {
			where = strings.TrimSpace(where + " " + e.Dimension)
		}
		return where
	}},
	{title: "AGENT", cell: func(e eventRow) string { return e.AgentID }},
	{title: "WHAT", cell: func(e eventRow) string {
		if e.Message != "" {
			return e.Message
		}
		return strings.TrimSpace(e.Reason + " " + e.LeaseID)
	}},
}

func (e eventRow) shade() shade {
	switch e.Type {
	case "lease_expired", "throttled", "breaker":
		return warn
	}
	return plain
}

// eventsCommand lists recent events; with --watch it follows: each event once.
func (a *app) eventsCommand() *cobra.Command {
	var types []string
	var limit int
	var since uint64
	cmd := &cobra.Command{
		Use: "events", Short: "What happened lately: expiries, throttles, breakers, periods, policies", Args: noArgs,
		Example: "  tba events --type throttled,breaker\n  tba events --watch -o jsonl",
	}
	s := a.serverFlags(cmd)
	cmd.Flags().StringSliceVar(&types, "type", nil, "only these types")
	cmd.Flags().IntVar(&limit, "limit", 100, "at most so many, 1 to 1000")
	cmd.Flags().Uint64Var(&since, "since", 0, "only those after this sequence number")
	a.watching(cmd, true, func(ctx context.Context, frame *app, n int) error {
		query := url.Values{"limit": {strconv.Itoa(limit)}}
		for _, t := range types {
			query.Add("types", t)
		}
		if since > 0 {
			query.Set("since_sequence", strconv.FormatUint(since, 10))
		}
		var answer struct {
			Events []eventRow `json:"events"`
			Last   integer    `json:"last_sequence"`
		}
		if err := s.get(ctx, "events", query, &answer); err != nil {
			return err
		}
		if n != once {
			since = uint64(answer.Last)
		}
		if len(answer.Events) == 0 && frame.format == "table" && n <= 0 {
			a.note("no events: they come when a lease expires, a provider throttles, a breaker moves, a period closes or a policy changes")
		}
		if len(answer.Events) == 0 && n != once {
			return nil // a frame without news is no frame
		}
		return printRows(frame, answer.Events, eventColumns)
	})
	return cmd
}
