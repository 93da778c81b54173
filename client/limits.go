package client

import (
	"time"

	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
)

// LimitState is how far a budget or a ceiling was used.
type LimitState struct {
	// Name of a budget: "global", "class/batch", ...; of a ceiling its dimension:
	// "rpm", "tpm", "input_tpm", "output_tpm" or "rpd".
	Name string
	// Unit of the figures: "tokens", "nano_usd" or "requests".
	Unit string
	// Limit, Used (spent and assumed, or in the window) and Held by running
	// leases.
	Limit, Used, Held int64
	// ResetsAt is when a budget resets. Zero: never, or it is a ceiling.
	ResetsAt time.Time
	// Reset is the time until a ceiling is whole again without further calls,
	// with HasReset; else it is not known, or a budget.
	Reset    time.Duration
	HasReset bool
}

func limitState(m *tbav1.LimitState) LimitState {
	s := LimitState{
		Name: m.GetName(), Unit: m.GetUnit(), Limit: m.GetLimit(), Used: m.GetUsed(), Held: m.GetHeld(),
		Reset: duration(m.GetResetMs()), HasReset: m.ResetMs != nil,
	}
	if m.GetResetsAt() != nil {
		s.ResetsAt = m.GetResetsAt().AsTime()
	}
	return s
}
