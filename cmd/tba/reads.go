package main

import (
	"context"
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// readCommands are the questions to a running server.
func (a *app) readCommands() []*cobra.Command {
	return []*cobra.Command{
		a.statusCommand(), a.budgetsCommand(), a.providersCommand(), a.leasesCommand(), a.classesCommand(), a.eventsCommand(), a.leaseCommand(),
	}
}

func (a *app) budgetsCommand() *cobra.Command {
	var period, kind string
	var limit int
	cmd := &cobra.Command{
		Use: "budgets", Aliases: []string{"budget"}, Short: "The budget tree: limit, spent, held, available", Args: noArgs,
		Example: "  tba budgets\n  tba budgets -o json\n  tba budgets --period 3 --kind provider",
	}
	s := a.serverFlags(cmd)
	cmd.Flags().StringVar(&period, "period", "", "a closed period by its number, as the line under the table tells it (default: the current one)")
	cmd.Flags().StringVar(&kind, "kind", "", "only this kind: global, provider, model, class, agent, workflow, task")
	cmd.Flags().IntVar(&limit, "limit", 1000, "at most so many rows, parents first; 0 is all")
	complete(cmd, "period", s, "budgets", func(b []byte) []string {
		var v budgetPage
		_ = json.Unmarshal(b, &v) // no completion is the worst that happens
		return v.Closed
	})
	a.watching(cmd, false, func(ctx context.Context, frame *app, _ int) error {
		query := url.Values{}
		if period != "" {
			if _, err := strconv.ParseUint(period, 10, 32); err != nil {
				return fail(exitUsage, "tba budgets, which tells the number of the current one", "--period %q is no number: periods count up from 1", period)
			}
			query.Set("period_id", period)
		}
		if limit < 0 {
			return fail(exitUsage, "", "--limit %d: 0 or more", limit)
		}
		v, err := s.budgets(ctx, query, kind, limit)
		if err != nil {
			return err
		}
		rows := v.Budgets
		if len(rows) == 0 && frame.format == "table" {
			a.note("no budgets here: add limits to the configuration (tba config explain budget)")
			return nil
		}
		if frame.format == "table" {
			rows = perBudget(rows)
		}
		if err := printRows(frame, rows, budgetColumns); err != nil {
			return err
		}
		if v.Next != "" {
			frame.note("there are more: --limit 0 shows all, --kind some")
		}
		if frame.format != "table" {
			return nil
		}
		frame.period(rows)
		if len(v.Closed) > 0 && period == "" {
			frame.note("closed: %s; --period N shows one", strings.Join(v.Closed, ", "))
		}
		return nil
	})
	return cmd
}

// budgetPage is an answer of the API.
type budgetPage struct {
	Budgets []budgetRow `json:"budgets"`
	Closed  []string    `json:"closed_periods"`
	Next    string      `json:"next_page_token"`
}

// budgets reads pages until there are limit rows of the kind; "" is every kind, 0 all rows. Next tells that there are more.
func (s *api) budgets(ctx context.Context, query url.Values, kind string, limit int) (all budgetPage, err error) {
	for {
		var v budgetPage
		if err := s.get(ctx, "budgets", query, &v); err != nil {
			return all, err
		}
		all.Closed, all.Next = v.Closed, v.Next
		for _, b := range v.Budgets {
			if kind != "" && b.Kind != kind {
				continue
			}
			if limit > 0 && len(all.Budgets) == limit {
				all.Next = b.Name
				return all, nil
			}
			all.Budgets = append(all.Budgets, b)
		}
		if v.Next == "" {
			return all, nil
		}
		query.Set("page_token", v.Next)
	}
}

// period tells under a table which period it shows.
func (a *app) period(rows []budgetRow) {
	for _, b := range rows {
		if b.PeriodEnd == nil || b.PeriodStart == nil {
			continue
		}
		if b.Final {
			a.note("period %s, closed: %s to %s", b.PeriodID, when(b.PeriodStart), when(b.PeriodEnd))
		} else {
			a.note("period %s: %s to %s, %s left", b.PeriodID, when(b.PeriodStart), when(b.PeriodEnd), span(integer(time.Until(*b.PeriodEnd).Milliseconds())))
		}
		return
	}
}

func (a *app) providersCommand() *cobra.Command {
	var provider string
	var models bool
	cmd := &cobra.Command{
		Use: "providers", Aliases: []string{"provider"}, Short: "Limits, use, health and price of each provider and model", Args: noArgs,
		Long: `Limits, use, health and price. The table has a line for each provider, and for each model that is in use or not well; --models
shows all of them. The other forms always have every row: one without model for the provider as a whole, one for each model.`,
	}
	s := a.serverFlags(cmd)
	cmd.Flags().StringVar(&provider, "provider", "", "only this one")
	cmd.Flags().BoolVar(&models, "models", false, "every model in the table, idle ones too")
	completeProviders(cmd, s)
	a.watching(cmd, false, func(ctx context.Context, frame *app, _ int) error {
		query := url.Values{}
		if provider != "" {
			query.Set("provider", provider)
		}
		var v struct {
			Providers []providerRow `json:"providers"`
		}
		if err := s.get(ctx, "providers", query, &v); err != nil {
			return err
		}
		if len(v.Providers) == 0 && provider != "" {
			return fail(exitNotFound, "tba providers", "no provider %q in this pool", provider)
		}
		shown := v.Providers
		if frame.format == "table" && !models {
			shown = slices.DeleteFunc(slices.Clone(shown), providerRow.idle)
		}
		if err := printRows(frame, shown, providerColumns); err != nil || frame.format != "table" {
			return err
		}
		for _, line := range otherDimensions(shown) {
			frame.note("%s", line)
		}
		if hidden := len(v.Providers) - len(shown); hidden > 0 {
			frame.note("%s more, idle: --models", plural(hidden, "model"))
		}
		return nil
	})
	return cmd
}

func completeProviders(cmd *cobra.Command, s *api) {
	complete(cmd, "provider", s, "providers", func(b []byte) []string {
		var v struct {
			Providers []struct{ Name, Model string }
		}
		_ = json.Unmarshal(b, &v) // no completion is the worst that happens
		var names []string
		for _, p := range v.Providers {
			if p.Model == "" {
				names = append(names, p.Name)
			}
		}
		return names
	})
}

func completeClasses(cmd *cobra.Command, s *api) {
	complete(cmd, "class", s, "classes", func(b []byte) []string {
		var v struct{ Classes []struct{ Name string } }
		_ = json.Unmarshal(b, &v) // no completion is the worst that happens
		var names []string
		for _, c := range v.Classes {
			names = append(names, c.Name)
		}
		return names
	})
}

func (a *app) leasesCommand() *cobra.Command {
	filter := map[string]*string{}
	var ended bool
	var limit int
	cmd := &cobra.Command{
		Use: "leases", Short: "Running leases, oldest first", Args: noArgs,
		Example: "  tba leases --agent crawler-7\n  tba leases --ended -o csv > leases.csv",
	}
	s := a.serverFlags(cmd)
	for _, f := range []struct{ flag, field, doc string }{
		{"agent", "agent_id", "only of this agent"}, {"class", "agent_class", "only of this class"}, {"task", "task_id", "only of this task"},
		{"provider", "provider", "only at this provider"}, {"lease", "lease_id", "only this one"},
	} {
		filter[f.field] = cmd.Flags().String(f.flag, "", f.doc)
	}
	completeClasses(cmd, s)
	completeProviders(cmd, s)
	cmd.Flags().BoolVar(&ended, "ended", false, "ended ones that are still remembered too")
	cmd.Flags().IntVar(&limit, "limit", 100, "at most so many rows; 0 is all")
	a.watching(cmd, false, func(ctx context.Context, frame *app, _ int) error {
		if limit < 0 {
			return fail(exitUsage, "", "--limit %d: 0 or more", limit)
		}
		query := url.Values{"include_ended": {strconv.FormatBool(ended)}}
		for field, value := range filter {
			if *value != "" {
				query.Set(field, *value)
			}
		}
		rows, total, err := s.leases(ctx, query, limit)
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			if id := *filter["lease_id"]; id != "" {
				return fail(exitNotFound, "tba leases --ended", "no lease %q is running", id)
			}
			if frame.format == "table" {
				a.note("no lease is running: an agent takes one for each call; tba lease try takes one now")
				return nil
			}
		}
		if err := printRows(frame, rows, leaseColumns); err != nil {
			return err
		}
		if total > integer(len(rows)) {
			frame.note("%s of %s leases; --limit 0 shows all", count(integer(len(rows))), count(total))
		}
		return nil
	})
	return cmd
}

// leases reads pages until limit; 0 is all.
func (s *api) leases(ctx context.Context, query url.Values, limit int) (rows []leaseRow, total integer, err error) {
	const page = 1000
	for {
		n := page
		if limit > 0 {
			n = min(page, limit-len(rows))
		}
		query.Set("limit", strconv.Itoa(n))
		var v struct {
			Leases []leaseRow `json:"leases"`
			Next   string     `json:"next_page_token"`
			Total  integer    `json:"total"`
		}
		if err := s.get(ctx, "leases", query, &v); err != nil {
			return nil, 0, err
		}
		rows, total = append(rows, v.Leases...), v.Total
		if v.Next == "" || limit > 0 && len(rows) >= limit {
			return rows, total, nil
		}
		query.Set("page_token", v.Next)
	}
}

func (a *app) classesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "classes", Aliases: []string{"class"}, Short: "Agent classes: share, guarantee, use, who waits", Args: noArgs,
	}
	s := a.serverFlags(cmd)
	a.watching(cmd, false, func(ctx context.Context, frame *app, _ int) error {
		var v struct {
			Classes []classRow `json:"classes"`
		}
		if err := s.get(ctx, "classes", nil, &v); err != nil {
			return err
		}
		return printRows(frame, v.Classes, classColumns)
	})
	return cmd
}
