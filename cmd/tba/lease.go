package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// leaseAnswer is a LeaseResponse, without the token: it is a credential, and is shown only when the lease is kept.
type leaseAnswer struct {
	Status       string     `json:"status"`
	LeaseID      string     `json:"lease_id"`
	Provider     string     `json:"assigned_provider"`
	Model        string     `json:"assigned_model"`
	Granted      integer    `json:"granted_tokens"`
	CostNanos    integer    `json:"estimated_cost_nanos"`
	TTLMS        integer    `json:"ttl_ms"`
	StartByMS    integer    `json:"start_by_ms"`
	Reason       string     `json:"reason"`
	Message      string     `json:"message"`
	LimitName    string     `json:"limit_name"`
	Limit        integer    `json:"limit"`
	Used         integer    `json:"used"`
	Held         integer    `json:"held"`
	Asked        integer    `json:"asked"`
	LimitUnit    string     `json:"limit_unit"`
	ResetsAt     *time.Time `json:"resets_at"`
	RetryAfterMS integer    `json:"retry_after_ms"`
	Backpressure string     `json:"backpressure"`
	DelayMS      integer    `json:"recommended_delay_ms"`
	ShadowDenied string     `json:"shadow_denied"`
	DecisionID   string     `json:"decision_id"`
	Token        string     `json:"lease_token,omitempty"`
}

var leaseAnswerColumns = []column[leaseAnswer]{
	{title: "decision", shade: leaseAnswer.shade, cell: func(l leaseAnswer) string {
		text := lower(l.Status)
		if l.Reason != "" {
			text += " by " + l.Reason
		}
		if l.ShadowDenied != "" {
			text += " (in shadow mode; else refused by " + l.ShadowDenied + ")"
		}
		return text
	}},
	{title: "why", cell: func(l leaseAnswer) string { return l.Message }},
	{title: "limit", cell: func(l leaseAnswer) string {
		if l.LimitName == "" {
			return ""
		}
		return fmt.Sprintf("%s: %s of %s used, %s held, %s asked", l.LimitName, amount(l.Used, l.LimitUnit), amount(l.Limit, l.LimitUnit),
			amount(l.Held, l.LimitUnit), amount(l.Asked, l.LimitUnit))
	}},
	{title: "resets", cell: func(l leaseAnswer) string { return when(l.ResetsAt) }},
	{title: "retry after", cell: func(l leaseAnswer) string { return span(l.RetryAfterMS) }},
	{title: "lease", cell: func(l leaseAnswer) string { return l.LeaseID }},
	{title: "call", cell: func(l leaseAnswer) string { return strings.Trim(l.Provider+"/"+l.Model, "/") }},
	{title: "tokens", cell: func(l leaseAnswer) string {
		if l.Granted == 0 {
			return ""
		}
		return count(l.Granted) + ", " + dollars(l.CostNanos) + " at most"
	}},
	{title: "lives", cell: func(l leaseAnswer) string {
		if l.TTLMS == 0 {
			return ""
		}
		return span(l.TTLMS) + ", the call starts within " + span(l.StartByMS)
	}},
	{title: "backpressure", cell: func(l leaseAnswer) string {
		if l.DelayMS > 0 {
			return lower(l.Backpressure) + ", delay " + span(l.DelayMS)
		}
		return lower(l.Backpressure)
	}},
	{title: "token", cell: func(l leaseAnswer) string { return l.Token }},
}

func (l leaseAnswer) shade() shade {
	if l.Status == "GRANTED" {
		return good
	}
	return bad
}

// leaseRequest is a LeaseRequest as the JSON API reads it.
type leaseRequest struct {
	AgentID    string  `json:"agent_id"`
	AgentClass string  `json:"agent_class,omitempty"`
	Tokens     int64   `json:"estimated_tokens"`
	Output     *int64  `json:"estimated_output_tokens,omitempty"`
	Minimum    int64   `json:"min_tokens,omitempty"`
	Provider   string  `json:"preferred_provider,omitempty"`
	Model      string  `json:"model,omitempty"`
	Priority   string  `json:"priority,omitempty"`
	TaskID     string  `json:"task_id,omitempty"`
	WorkflowID string  `json:"workflow_id,omitempty"`
	Pool       string  `json:"pool,omitempty"`
	MaxWaitMS  integer `json:"max_wait_ms,omitempty"`
	DryRun     bool    `json:"dry_run,omitempty"`
}

// leaseCommand holds what asks for leases from the command line.
func (a *app) leaseCommand() *cobra.Command {
	return group("lease", "Ask for a lease from the command line", a.leaseTryCommand())
}

// leaseTryCommand asks for one lease, prints the decision and gives the lease back.
func (a *app) leaseTryCommand() *cobra.Command {
	r := leaseRequest{}
	var output int64
	var wait time.Duration
	var hold bool
	cmd := &cobra.Command{
		Use: "try", Short: "Ask for one lease, show the decision, give it back", Args: noArgs,
		Long: `Asks for one lease as an agent would, prints the decision and gives the lease back as a call that was never sent.
--hold keeps it: it then lives until it is committed or expires. --dry-run decides and charges nothing.

Exit codes: 0 granted, 7 denied, 8 deferred (no room within --wait).`,
		Example: "  tba lease try --class planner --tokens 1200\n  tba lease try --model gpt-5.4-mini --tokens 4000 --wait 30s\n  tba lease try --hold -o json",
	}
	s := a.serverFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&r.AgentID, "agent", "tba-lease-try", "agent id")
	f.StringVar(&r.AgentClass, "class", "", "agent class (default: default)")
	f.Int64Var(&r.Tokens, "tokens", 1000, "input and output tokens, at most")
	f.Int64Var(&output, "output-tokens", 0, "the output part of them (default: all)")
	f.Int64Var(&r.Minimum, "min-tokens", 0, "the smallest grant that is of use (default: no partial grant)")
	f.StringVar(&r.Provider, "provider", "", "preferred provider")
	f.StringVar(&r.Model, "model", "", "model the call needs (default: any)")
	f.StringVar(&r.Priority, "priority", "", "low, medium, high or critical (default: that of the class)")
	f.StringVar(&r.TaskID, "task", "", "task id")
	f.StringVar(&r.WorkflowID, "workflow", "", "workflow id")
	f.DurationVar(&wait, "wait", 0, "how long to wait for room")
	f.BoolVar(&r.DryRun, "dry-run", false, "decide only, charge nothing")
	f.BoolVar(&hold, "hold", false, "keep the lease and print its token")
	completeClasses(cmd, s)
	completeProviders(cmd, s)
	_ = cmd.RegisterFlagCompletionFunc("priority", cobra.FixedCompletions(priorities, cobra.ShellCompDirectiveNoFileComp)) // the flag is defined above
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case wait < 0 || wait > time.Hour:
			return fail(exitUsage, "", "--wait %v: 0 to 1h", wait)
		case r.Tokens < 0 || r.Tokens > math.MaxInt32:
			return fail(exitUsage, "", "--tokens %d: 0 to %d", r.Tokens, math.MaxInt32)
		case r.Priority != "" && !oneOf(strings.ToLower(r.Priority), priorities...):
			return fail(exitUsage, "", "--priority %s: low, medium, high or critical", r.Priority)
		}
		if cmd.Flags().Changed("output-tokens") {
			r.Output = &output
		}
		r.Priority, r.Pool, r.MaxWaitMS = strings.ToUpper(r.Priority), s.pool, integer(wait.Milliseconds())
		ctx, stop := interrupt(cmd.Context())
		defer stop()
		return a.tryLease(ctx, s, r, hold)
	}
	return cmd
}

var priorities = []string{"low", "medium", "high", "critical"}

func (a *app) tryLease(ctx context.Context, s *api, r leaseRequest, hold bool) error {
	asking, stop := context.WithTimeout(ctx, time.Duration(r.MaxWaitMS)*time.Millisecond+answerTimeout)
	defer stop()
	var answer leaseAnswer
	if err := s.call(asking, "RequestLease", r, &answer); err != nil {
		return err
	}
	token := answer.Token
	if !hold {
		answer.Token = ""
	}
	if r.DryRun {
		answer.LeaseID = "" // there is no such lease
	}
	printed := printOne(a, answer, leaseAnswerColumns)
	switch answer.Status {
	case "DENIED":
		return errors.Join(printed, silent(exitDenied))
	case "DEFERRED":
		return errors.Join(printed, silent(exitTimeout))
	}
	switch {
	case r.DryRun:
		a.note("dry run: nothing was charged")
	case hold:
		a.note("the lease is held for %s: commit it with CommitLease, or let it expire", span(answer.TTLMS))
	default:
		// Given back even when the person has lost patience: an interrupt must not leave a hold behind.
		returning, stop := context.WithTimeout(context.WithoutCancel(ctx), answerTimeout)
		defer stop()
		var v struct {
			Result string `json:"result"`
		}
		err := s.call(returning, "ReleaseLease", map[string]any{
			"lease_id": answer.LeaseID, "lease_token": token, "outcome": "NOT_SENT", "reason": "tba lease try", "pool": r.Pool,
		}, &v)
		if err != nil {
			return errors.Join(printed, fmt.Errorf("give back lease %s: %w", answer.LeaseID, err))
		}
		a.note("given back (%s)", lower(v.Result))
	}
	return printed
}
