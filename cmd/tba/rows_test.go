package main

import "testing"

// TestBudgetNotes: a count that the server does not send is not told as a 0.
func TestBudgetNotes(t *testing.T) {
	t.Parallel()
	note := budgetColumns[len(budgetColumns)-1]
	for want, b := range map[string]budgetRow{
		"":                                 {},
		"shadow":                           {Shadow: true},
		"shadow, would have refused 1,200": {Shadow: true, ShadowRefused: 1200},
		"over by 7; shadow; declared 9":    {OverBy: 7, Shadow: true, DeclaredLimit: 9},
		"over by $1.50":                    {OverBy: 1_500_000_000, Unit: "nano_usd"},
	} {
		if got := note.cell(b); got != want {
			t.Errorf("%+v: %q, want %q", b, got, want)
		}
	}
}
