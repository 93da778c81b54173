package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/config"
	"github.com/token-budget-arbiter/tba/internal/engine"
)

var levels = map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}

// logger writes text on a terminal and JSON elsewhere, unless the settings say which.
func logger(w io.Writer, l config.Log) *slog.Logger {
	o := &slog.HandlerOptions{Level: levels[l.Level]}
	if l.Format == "text" || l.Format != "json" && isTerminal(w) {
		return slog.New(slog.NewTextHandler(w, o))
	}
	return slog.New(slog.NewJSONHandler(w, o))
}

// logDecisions writes one line for each answered command, at debug: by id, with the verdict and its figures.
func logDecisions(log *slog.Logger, then func(string, arbiter.Command, *engine.Outcome, error)) func(string, arbiter.Command, *engine.Outcome, error) {
	if !log.Enabled(context.Background(), slog.LevelDebug) {
		return then
	}
	return func(pool string, cmd arbiter.Command, out *engine.Outcome, err error) {
		if then != nil {
			then(pool, cmd, out, err)
		}
		what := strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", cmd), "*arbiter."))
		if err != nil {
			log.Debug("decision", "pool", pool, "command", what, "error", err.Error())
			return
		}
		a := &out.Answer
		line := []any{"pool", pool, "command", what, "id", out.Decision.String(), "lease", engine.FormatLeaseID(a.Lease.Lease)}
		if r, ok := cmd.(*arbiter.Request); ok {
			line = append(line, "agent", r.Agent, "class", a.Lease.Class, "status", a.Status.String(), "provider", a.Lease.Provider, "model", a.Lease.Model,
				"tokens", int64(a.Lease.Tokens()), "waited_ms", out.Waited.Milliseconds())
			if c := &a.Check; c.Reason != arbiter.ReasonNone {
				line = append(line, "reason", c.Reason.String(), "scope", c.Scope, "limit", c.Limit, "used", c.Used, "held", c.Held, "asked", c.Asked)
			}
		} else {
			line = append(line, "result", results[min(int(a.Result), len(results)-1)], "tokens", int64(a.Tokens))
		}
		log.Debug("decision", line...)
	}
}

// results are the words of arbiter.Result, in its order.
var results = [...]string{
	"recorded", "already_recorded", "conflict", "accepted_pending", "too_old", "unknown_lease", "released", "already_released",
	"already_committed", "extended", "signalled", "lease_expired", "lease_resolved",
}
