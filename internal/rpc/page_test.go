package rpc

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/token-budget-arbiter/tba/arbiter"
	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
)

// TestPageOf: whatever the order in which rows come, the page is the first of them in order, and memory stays small.
func TestPageOf(t *testing.T) {
	t.Parallel()
	for n := range 40 {
		rows := rand.Perm(n)
		p := pageOf[int]{size: 7, compare: func(a, b *int) int { return cmp.Compare(*a, *b) }}
		for i := range rows {
			p.offer(&rows[i])
			if len(p.rows) > 2*p.size {
				t.Fatalf("%d rows are kept for a page of %d", len(p.rows), p.size)
			}
		}
		got, more := p.done()
		slices.Sort(rows)
		if !slices.Equal(got, rows[:min(n, 7)]) || more != (n > 7) {
			t.Errorf("of %d: %v, %v", n, got, more)
		}
	}
}

// TestBudgetsInPages: all rows come, each once, parents first, and none that only counts a credential.
func TestBudgetsInPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{
		policy: testPolicy(func(p *arbiter.Policy) { p.Lease.MaxOpen = 1000 }),
		opts:   Options{Keys: testKeys(t)}, token: operatorKey,
	})
	for i := range 60 {
		w.grant(t, &tbav1.LeaseRequest{AgentId: fmt.Sprintf("agent-%02d", i), TaskId: fmt.Sprintf("task-%02d", i%9), EstimatedTokens: 10})
	}
	whole, err := w.admin.ListBudgets(t.Context(), &tbav1.ListBudgetsRequest{})
	if err != nil || whole.GetNextPageToken() != "" {
		t.Fatal(err, whole.GetNextPageToken())
	}
	var want, got []string
	for _, b := range whole.GetBudgets() {
		want = append(want, b.GetName()+" "+b.GetUnit())
		if b.GetKind() == "credential" {
			t.Errorf("listed: %v", b)
		}
	}
	if len(want) < 2*(60+9+1) || want[0] != "global tokens" || !strings.HasPrefix(want[len(want)-1], "task/") {
		t.Errorf("%d rows, from %s to %s", len(want), want[0], want[len(want)-1])
	}
	token := ""
	for {
		page, err := w.admin.ListBudgets(t.Context(), &tbav1.ListBudgetsRequest{Limit: 7, PageToken: token})
		if err != nil || len(page.GetBudgets()) > 7 {
			t.Fatal(err, len(page.GetBudgets()))
		}
		for _, b := range page.GetBudgets() {
			got = append(got, b.GetName()+" "+b.GetUnit())
		}
		if token = page.GetNextPageToken(); token == "" {
			break
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%d rows in pages, %d at once", len(got), len(want))
	}
	for _, m := range []*tbav1.ListBudgetsRequest{{Limit: 1001}, {Limit: -1}, {PageToken: "?"}} {
		if _, err := w.admin.ListBudgets(t.Context(), m); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v: %v", m, err)
		}
	}
}
