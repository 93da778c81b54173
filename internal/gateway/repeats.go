package gateway

import (
	"sync"
	"time"

	"github.com/token-budget-arbiter/tba/internal/provider"
)

// repeats remembers the last verdict on each model of a provider: some mean something else when they come again. The zero value
// remembers nothing. Safe for concurrent use.
type repeats struct {
	mu   sync.Mutex
	last map[string]repeat // by model
}

type repeat struct {
	rule  string
	times int
	until time.Time // when the wait that the verdict named is over
}

// repeatWithin is how soon after the end of its wait a verdict must come again to be a repeat, and growMost the longest wait that grows.
const (
	repeatWithin = 10 * time.Minute
	growMost     = 10 * time.Minute
)

// judge turns a verdict into what it means here: a wait that grows doubles with each repeat, and a quota that is out again after the
// wait that its provider named is gone for the day. Verdicts that come while the wait of the last one runs are of calls that went up
// before it: they repeat nothing.
func (r *repeats) judge(model string, v *provider.Verdict, now time.Time) {
	if v.Repeats == provider.NoError && !v.Grows {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	was := r.last[model]
	if was.rule != v.Rule || now.After(was.until.Add(repeatWithin)) {
		was = repeat{rule: v.Rule}
	} else if !now.Before(was.until) {
		was.times++
	}
	if was.times > 0 && v.Repeats != provider.NoError {
		v.Class, v.Wait, v.Until = v.Repeats, 0, provider.UntilPacificDay
	}
	if v.Grows && !v.Hinted {
		v.Wait = min(v.Wait<<min(was.times, 10), growMost)
	}
	if was.until = now.Add(v.Wait); r.last == nil {
		r.last = map[string]repeat{}
	}
	r.last[model] = was
}
