package main

import (
	"io"
	"log/slog"

	"github.com/token-budget-arbiter/tba/internal/config"
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
