package demo

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// Verdicts as numbered on the wire.
const (
	granted  = 0
	deferred = 1
	denied   = 2
)

// tally counts what the fleet was told. Safe for concurrent use.
type tally struct {
	mu                        sync.Mutex
	granted, deferred, denied int64
	refusedBy                 map[string]int64
	atOnce                    []int64 // µs from question to grant, of requests that would not wait for room
	calls, gaveUp, failed     int64
	finished, agentRetries    int64
	committed                 int64
	lastFailure               string
}

func newTally() *tally { return &tally{refusedBy: map[string]int64{}} }

// answer counts one answer to a lease request.
func (t *tally) answer(status int, reason string, mayWait bool, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch status {
	case granted:
		t.granted++
		if !mayWait {
			t.atOnce = append(t.atOnce, took.Microseconds())
		}
		return
	case deferred:
		t.deferred++
	case denied:
		t.denied++
	}
	t.refusedBy[reason]++
}

func (t *tally) add(counter *int64, n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	*counter += n
}

// fail counts a call that came to nothing for a reason that nobody planned.
func (t *tally) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failed++
	t.lastFailure = err.Error()
}

// counts is a copy of a tally at one moment.
type counts struct {
	granted, deferred, denied, calls, gaveUp, failed, committed int64
	finished, agentRetries                                      int64
	refusedBy                                                   map[string]int64
	p50, p99                                                    int64
	lastFailure                                                 string
}

func (t *tally) counts() counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	sorted := slices.Sorted(slices.Values(t.atOnce))
	return counts{
		granted: t.granted, deferred: t.deferred, denied: t.denied, calls: t.calls, gaveUp: t.gaveUp, failed: t.failed,
		finished: t.finished, agentRetries: t.agentRetries,
		committed: t.committed, lastFailure: t.lastFailure, refusedBy: maps.Clone(t.refusedBy),
		p50: quantile(sorted, 50), p99: quantile(sorted, 99),
	}
}

// quantile is the smallest value that at least that many percent are not above (nearest rank); 0 of nothing.
func quantile(sorted []int64, percent int) int64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[(len(sorted)*percent+99)/100-1]
}
