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
			for k := 0; left.Add(-1) >= 0; k++ {
				began := time.Now()
				r.Lease = engine.NewLeaseID(0, agent, "")
				o, err := until(e, engine.Op{Command: &r})
				if err != nil || o.Answer.Status != arbiter.Granted {
					b.Errorf("request: %v %v", err, o.Answer.Check)
					return
				}
				if k%16 == 0 {
					mine = append(mine, time.Since(began))
				}
				c.Lease = o.Answer.Lease.Lease
				if _, err = until(e, engine.Op{Command: &c, Token: o.Token}); err != nil {
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

// BenchmarkEngineFile64 is the engine on the file journal, 64 callers in process, a request and a commit in turn; beside it, as the
// baseline, what the journal gives to one writer: entries of the same size as 48 decisions make, one after the other.
func BenchmarkEngineFile64(b *testing.B) {
	open := func(b *testing.B) *filejournal.Store {
		store, err := filejournal.Open(b.TempDir(), filejournal.Options{})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { store.Close() })
		return store
	}
	b.Run("baseline", func(b *testing.B) {
		store := open(b)
		ctx := context.Background()
		if err := store.Init(ctx, pool); err != nil {
			b.Fatal(err)
		}
		j, err := store.Open(ctx, pool)
		if err != nil {
			b.Fatal(err)
		}
		h, err := j.Head(ctx)
		if err != nil {
			b.Fatal(err)
		}
		pos, enc, payload := h.Pos, journal.Encoder{}, make([]byte, 90)
		b.ResetTimer()
		for range b.N {
			enc.Reset()
			for range 48 {
				enc.AddFact(1, true, payload)
			}
			hd := journal.Header{Pool: pool, Epoch: 1, Seq: pos.Seq + 1, ID: journal.NewEntryID(), PrevID: pos.ID, Now: journal.FirstNow}
			res, err := j.Append(ctx, journal.AppendRequest{After: pos, Entry: enc.Finish(hd)})
			if err != nil {
				b.Fatal(err)
			}
			pos = res.Pos
		}
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "appends/s")
		b.ReportMetric(48*float64(b.N)/b.Elapsed().Seconds(), "facts/s")
	})
	b.Run("engine", func(b *testing.B) {
		e := start(b, open(b), engine.Options{}, benchPolicy())
		b.ReportAllocs()
		b.ResetTimer()
		began := time.Now()
		lat := cycles(b, e, 64, int64(b.N))
		report(b, time.Since(began), 2*int64(b.N), lat)
		s := e.Stats()[0]
		b.ReportMetric(float64(s.Decisions)/float64(max(s.Entries, 1)), "decisions/entry")
		b.ReportMetric(s.AppendSeconds*1e6/float64(max(s.Entries, 1)), "append-µs")
		if err := e.Close(); err != nil {
			b.Fatal(err)
		}
	})
}

// BenchmarkSnapshotPause measures the longest time that a decision took while snapshots of 100,000 live leases were made, beside the
// longest without. Target: at most 10 ms more.
func BenchmarkSnapshotPause(b *testing.B) {
	for _, every := range []int64{1 << 40, 1} {
		name := "without"
		if every == 1 {
			name = "snapshots"
		}
		b.Run(name, func(b *testing.B) {
			var encode atomic.Int64
			e := start(b, journal.NewMemory(journal.MemoryOptions{}), engine.Options{SnapshotEvery: every, Hooks: engine.Hooks{
				Saved: func(_ string, took, _ time.Duration, _ int64) { encode.Store(max(encode.Load(), int64(took))) },
			}}, benchPolicy())
			p := e.NewPipe(1024)
			defer p.Close()
			var buf []engine.Reply
			for i, open := 0, 0; i < 100_000 || open > 0; {
				for i < 100_000 && open < 1024 {
					if err := p.Submit(uint64(i), ask(10)); err != nil {
						b.Fatal(err)
					}
					i, open = i+1, open+1
				}
				var err error
				if buf, err = p.Next(context.Background(), buf); err != nil {
					b.Fatal(err)
				}
				open -= len(buf)
			}
			b.ResetTimer()
			took := make([]time.Duration, 0, b.N)
			for range b.N {
				began := time.Now()
				must(b, e, commit(granted(b, e, ask(10)), 5))
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)-1].Microseconds())/1000, "worst-ms")
			b.ReportMetric(float64(took[len(took)*999/1000].Microseconds())/1000, "p99.9-ms")
			b.ReportMetric(float64(encode.Load())/1e6, "encode-ms")
			b.ReportMetric(float64(e.Stats()[0].Snapshots), "snapshots")
		})
	}
}

// BenchmarkSubscribers10000 is BenchmarkEngineMemory64 beside 10,000 backpressure subscribers while the level changes all the time.
// Target: at least 0.8 of the rate without subscribers.
func BenchmarkSubscribers10000(b *testing.B) {
	for _, subscribers := range []int{0, 10_000} {
		b.Run(strconv.Itoa(subscribers), func(b *testing.B) {
			e := start(b, journal.NewMemory(journal.MemoryOptions{}), engine.Options{}, benchPolicy())
			var heard atomic.Int64
			stop := make(chan struct{})
			var wg sync.WaitGroup
			for range subscribers {
				w, err := e.WatchBackpressure(pool)
				if err != nil {
					b.Fatal(err)
				}
				wg.Go(func() {
					defer w.Close()
					for {
						_, changed := w.Latest()
						select {
						case <-changed:
							heard.Add(1)
						case <-stop:
							return
						}
					}
				})
			}
			done := make(chan struct{})
			wg.Go(func() { // another level twice a second
				for i := uint64(0); ; i++ {
					select {
					case <-time.After(500 * time.Millisecond):
					case <-done:
						return
					}
					pol := benchPolicy()
					pol.Version = i + 2
					if i%2 == 0 {
						pol.Backpressure.Headroom = [4]arbiter.PPM{arbiter.Whole, arbiter.Whole, arbiter.Whole, arbiter.Whole}
					}
					if err := e.Adopt(context.Background(), pool, pol); err != nil {
						b.Error(err)
					}
				}
			})
			b.ResetTimer()
			began := time.Now()
			lat := cycles(b, e, 64, int64(b.N))
			report(b, time.Since(began), 2*int64(b.N), lat)
			close(done)
			close(stop)
			wg.Wait()
			b.ReportMetric(float64(heard.Load())/max(float64(subscribers), 1), "changes-heard")
		})
	}
}

// BenchmarkWaiters10000 is BenchmarkEngineMemory64 beside 10,000 requests that wait for a slot of another provider.
func BenchmarkWaiters10000(b *testing.B) {
	for _, waiters := range []int{0, 10_000} {
		b.Run(strconv.Itoa(waiters), func(b *testing.B) {
			pol := benchPolicy()
			narrow := pol.Providers[0]
			narrow.Name, narrow.MaxConcurrent = "narrow", 1
			narrow.Models = []arbiter.Model{{Name: "small", Limit: arbiter.NoLimit, Prices: narrow.Models[0].Prices}}
			pol.Providers = append(pol.Providers, narrow)
			e := start(b, journal.NewMemory(journal.MemoryOptions{}), engine.Options{}, pol)
			model := func(o *engine.Op) { o.Command.(*arbiter.Request).Model = "small" }
			granted(b, e, ask(1, model))
			p := e.NewPipe(waiters + 1)
			defer p.Close()
			for i := range waiters {
				if err := p.Submit(uint64(i), ask(1, model, waits(time.Hour))); err != nil {
					b.Fatal(err)
				}
			}
			for waiters > 0 && len(e.Waiting(pool)) == 0 {
				<-time.After(time.Millisecond)
			}
			b.ResetTimer()
			began := time.Now()
			lat := cycles(b, e, 64, int64(b.N))
			report(b, time.Since(began), 2*int64(b.N), lat)
		})
	}
}
