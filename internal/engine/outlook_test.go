package engine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/engine"
	"github.com/token-budget-arbiter/tba/internal/journal"
)

// TestOutlook: what is left is looked at in the background, at most once a second; nobody waits for it.
func TestOutlook(t *testing.T) {
	t.Parallel()
	world(t, func(t *testing.T, store *journal.Memory) {
		e := start(t, store, engine.Options{}, policy(globalTokens(1000)))
		held := func() arbiter.Tokens {
			o := e.Outlook(engine.DefaultPool)
			synctest.Wait()
			if o == nil {
				return -1
			}
			return arbiter.Tokens(o.Tightest(&arbiter.Route{}).Held)
		}
		granted(t, e, ask(100))
		if got := held(); got != -1 {
			t.Errorf("before the first look: %d", got)
		}
		granted(t, e, ask(50))
		if got := held(); got != 100 {
			t.Errorf("after it: %d held, want 100", got)
		}
		<-time.After(time.Second)
		if got := held(); got != 100 {
			t.Errorf("the look of a second ago: %d held, want 100", got)
		}
		if got := held(); got != 150 {
			t.Errorf("the next one: %d held, want 150", got)
		}
		if o := e.Outlook("nowhere"); o != nil {
			t.Errorf("of a pool that is not open: %+v", o)
		}
	})
}
