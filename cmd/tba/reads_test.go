package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/token-budget-arbiter/tba/internal/config"
)

// TestBudgetsOverPages: the server answers 1,000 rows at a time; what is asked for is shown whole.
func TestBudgetsOverPages(t *testing.T) {
	t.Parallel()
	const agents = 600
	c, err := config.LoadBytes("tba.yaml", []byte(`
budget: {global_tokens: 1_000_000, providers: {openai: {max_concurrency: 10_000}}}
listen: {http: 127.0.0.1:0, grpc: 127.0.0.1:0, ops: 127.0.0.1:0}
journal: memory
drain_timeout: 0s
`))
	if err != nil {
		t.Fatal(err)
	}
	s := started(t, c)
	ask := &api{a: &app{}, server: s.ports.addresses().HTTP}
	for i := range agents {
		var lease leaseAnswer
		if err := ask.call(t.Context(), "RequestLease", map[string]any{"agent_id": fmt.Sprint("a", i), "estimated_tokens": 5}, &lease); err != nil || lease.Status != "GRANTED" {
			t.Fatalf("%+v, %v", lease, err)
		}
	}
	for args, want := range map[string]struct {
		rows int
		more bool
	}{
		"--limit 0 --kind agent":  {2 * agents, false}, // in tokens and in USD
		"--kind agent":            {1000, true},
		"--kind global":           {2, false},
		"--kind agent --limit 7":  {7, true},
		"--limit 2 --kind global": {2, false},
	} {
		var out, notes bytes.Buffer
		a := &app{out: &out, err: &notes}
		if code := a.run(append(strings.Fields("budgets -o json --server "+s.ports.addresses().HTTP), strings.Fields(args)...)); code != exitOK {
			t.Fatalf("%s: exit code %d: %s", args, code, notes.String())
		}
		var rows []budgetRow
		if err := json.Unmarshal(out.Bytes(), &rows); err != nil {
			t.Fatal(err)
		}
		if len(rows) != want.rows || strings.Contains(notes.String(), "there are more") != want.more {
			t.Errorf("%s: %d rows, want %d; %q", args, len(rows), want.rows, notes.String())
		}
	}
}
