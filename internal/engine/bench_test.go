package engine_test

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/engine"
	"github.com/token-budget-arbiter/tba/internal/filejournal"
	"github.com/token-budget-arbiter/tba/internal/journal"
)

// benchPolicy binds nothing but counts everything: four limited budgets, two windows, slots.
func benchPolicy() *arbiter.Policy {
	huge := arbiter.Limit{Tokens: arbiter.MaxAmount, Nanos: arbiter.MaxAmount}
	return policy(func(p *arbiter.Policy) {
		p.Global, p.Tasks, p.Providers[0].Limit = huge, huge, huge
		p.Classes[1].Limit = huge
	}, ceilings(arbiter.Ceilings{RPM: 1 << 40, TPM: 1 << 50, MaxConcurrent: 1 << 40}))
}

// cycles runs request + commit from so many callers until n cycles are done, and returns every latency of a decision it sampled.
func cycles(b *testing.B, e *engine.Engine, callers int, n int64) []time.Duration {
	var left atomic.Int64
	left.Store(n)
	var mu sync.Mutex
	var all []time.Duration
	var wg sync.WaitGroup
	for i := range callers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			var mine []time.Duration
			agent := "agent-" + strconv.Itoa(i)
			r := arbiter.Request{Agent: agent, Class: "worker", Task: "task-" + strconv.Itoa(i), Input: 1000, Output: 500, Priority: arbiter.ClassPriority, NoStartDelay: true}
			c := arbiter.Commit{HasUsage: true, Usage: arbiter.Usage{Input: 1000, Output: 300}, Outcome: arbiter.OutcomeOK, Latency: 2 * arbiter.Second}
			ctx := context.Background()
			for k := 0; left.Add(-1) >= 0; k++ {
				began := time.Now()
				r.Lease = engine.NewLeaseID(0, agent, "")
				o, err := e.Do(ctx, engine.Op{Command: &r})
				if err != nil || o.Answer.Status != arbiter.Granted {
					b.Errorf("request: %v %v", err, o.Answer.Check)
					return
				}
				if k%16 == 0 {
					mine = append(mine, time.Since(began))
				}
				c.Lease = o.Answer.Lease.Lease
				if _, err = e.Do(ctx, engine.Op{Command: &c, Token: o.Token}); err != nil {
					b.Errorf("commit: %v", err)
					return
				}
			}
			mu.Lock()
			all = append(all, mine...)
			mu.Unlock()
		}()
	}
	wg.Wait()
	slices.Sort(all)
	return all
}

func report(b *testing.B, took time.Duration, decisions int64, lat []time.Duration) {
	b.ReportMetric(float64(decisions)/took.Seconds(), "decisions/s")
	if len(lat) > 0 {
		b.ReportMetric(float64(lat[len(lat)/2].Microseconds()), "p50-µs")
		b.ReportMetric(float64(lat[len(lat)*99/100].Microseconds()), "p99-µs")
	}
}

// BenchmarkEngineMemory64 is BenchmarkEngineFile64 without a disk.
func BenchmarkEngineMemory64(b *testing.B) {
	e := start(b, journal.NewMemory(journal.MemoryOptions{}), engine.Options{}, benchPolicy())
	b.ReportAllocs()
	b.ResetTimer()
	began := time.Now()
	lat := cycles(b, e, 64, int64(b.N))
	report(b, time.Since(began), 2*int64(b.N), lat)
	s := e.Stats()[0]
	b.ReportMetric(float64(s.Decisions)/float64(max(s.Entries, 1)), "decisions/entry")
}

// BenchmarkEngineFile64 is the engine on the file journal, 64 callers in process, a request and a commit in turn; beside it the
// append that each entry costs.
func BenchmarkEngineFile64(b *testing.B) {
	store, err := filejournal.Open(b.TempDir(), filejournal.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	e := start(b, store, engine.Options{}, benchPolicy())
	b.ReportAllocs()
	b.ResetTimer()
	began := time.Now()
	lat := cycles(b, e, 64, int64(b.N))
	report(b, time.Since(began), 2*int64(b.N), lat)
	s := e.Stats()[0]
	b.ReportMetric(float64(s.Decisions)/float64(max(s.Entries, 1)), "decisions/entry")
	b.ReportMetric(s.AppendSeconds*1e6/float64(max(s.Entries, 1)), "append-µs")
	if err := e.Drain(context.Background()); err != nil {
		b.Fatal(err)
	}
}
