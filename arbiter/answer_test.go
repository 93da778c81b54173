package arbiter

import "testing"

// TestLimitNames asserts what limits are called, in answers of every kind.
func TestLimitNames(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		check      Check
		name, unit string
	}{
		{Check{}, "", ""},
		{Check{Reason: ReasonNoRung}, "", ""},
		{Check{Reason: ReasonBudget, Unit: UnitTokens}, "global", "tokens"},
		{Check{Reason: ReasonBudget, ScopeKind: KindClass, Scope: "batch", Unit: UnitNanos}, "class/batch", "nano_usd"},
		{Check{Reason: ReasonRPM, ScopeKind: KindProvider, Scope: "openai", Unit: UnitRequests}, "provider/openai", "requests"},
		{Check{Reason: ReasonSlots, ScopeKind: KindModel, Provider: "openai", Scope: "gpt-5.4", Unit: UnitRequests}, "model/openai/gpt-5.4", "slots"},
		{Check{Reason: ReasonTooLarge, Of: ReasonSlots, ScopeKind: KindModel, Provider: "search", Scope: "search", Unit: UnitRequests}, "model/search", "slots"},
		{Check{ScopeKind: KindModel, Provider: "search", Unit: UnitTokens}, "model/search", "tokens"},
		{Check{Reason: ReasonUnpricedModel, ScopeKind: KindModel, Scope: "gpt-9"}, "model/gpt-9", ""},
		{Check{Reason: ReasonPrincipal, ScopeKind: KindCredential, Unit: UnitTokens}, "credential", "tokens"},
	} {
		if name, unit := c.check.LimitName(), c.check.UnitName(); name != c.name || unit != c.unit {
			t.Errorf("%+v: %q %q, want %q %q", c.check, name, unit, c.name, c.unit)
		}
	}
}
