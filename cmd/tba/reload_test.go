package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/config"
)

func twoPools(t *testing.T, tokens int) *config.Config {
	t.Helper()
	text := fmt.Sprintf(`
pools:
  - {pool: a, global_tokens: %d, providers: {openai: {rpm_ceiling: 100}}}
  - {pool: b, global_tokens: %d, providers: {anthropic: {rpm_ceiling: 100}}}
listen: {http: 127.0.0.1:0, grpc: 127.0.0.1:0, ops: 127.0.0.1:0}
journal: memory
drain_timeout: 0s
`, tokens, tokens)
	c, err := config.LoadBytes("tba.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestAllPoolsOrNone: a policy that the second pool cannot use leaves the first as it is.
func TestAllPoolsOrNone(t *testing.T) {
	t.Parallel()
	s := started(t, twoPools(t, 1000))
	version := func(pool string) (v uint64) {
		t.Helper()
		err := s.pools.View(t.Context(), pool, func(st *arbiter.State) error { v = st.Policy().Version; return nil })
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for name, spoil := range map[string]func(*arbiter.Policy){
		"zone":   func(p *arbiter.Policy) { p.Providers[0].Zone = "Nowhere/Town" },
		"period": func(p *arbiter.Policy) { p.Period.TimeZone = "Nowhere/Town" },
		"guard":  func(p *arbiter.Policy) { p.Guard = -1 },
	} {
		c := twoPools(t, 2000)
		spoil(c.Pools[1].Policy)
		if err := s.takeOver(t.Context(), c); err == nil || !strings.Contains(err.Error(), "pool b") || notForNow(err) {
			t.Errorf("%s: %v", name, err)
		}
		if version("a") != 1 || version("b") != 1 {
			t.Errorf("%s: versions %d and %d, want the first of both", name, version("a"), version("b"))
		}
	}
	if err := s.takeOver(t.Context(), twoPools(t, 2000)); err != nil || version("a") != 2 || version("b") != 2 {
		t.Errorf("%v: versions %d and %d", err, version("a"), version("b"))
	}
}

func TestNotForNow(t *testing.T) {
	t.Parallel()
	full := arbiter.Errorf(arbiter.CodeUnavailable, "journal_full", "full")
	if !notForNow(fmt.Errorf("pool a: %w", full)) || notForNow(arbiter.Errorf(arbiter.CodeInvalid, "policy", "wrong")) || notForNow(nil) {
		t.Error("only UNAVAILABLE passes by itself")
	}
}
