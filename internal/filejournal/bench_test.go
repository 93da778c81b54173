package filejournal

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/token-budget-arbiter/tba/internal/journal"
	"github.com/token-budget-arbiter/tba/internal/journal/journaltest"
)

// BenchmarkAppend64 is 64 pools with one append each in flight, so that up to
// 64 entries share a sync. Entries are of about 300 bytes, one decision.
func BenchmarkAppend64(b *testing.B) { benchmarkAppend(b, 64) }

// BenchmarkAppend1 is one caller who waits for each sync.
func BenchmarkAppend1(b *testing.B) { benchmarkAppend(b, 1) }

func benchmarkAppend(b *testing.B, appenders int) {
	s := mustOpen(b, filepath.Join(b.TempDir(), "j"), Options{SegmentBytes: 32 << 20})
	logs := make([]*journaltest.Log, appenders)
	for i := range logs {
		logs[i] = journaltest.NewLog(b, s, fmt.Sprint("p", i))
	}
	payload := make([]byte, 120)
	b.ResetTimer()
	var wg sync.WaitGroup
	for i, l := range logs {
		n := b.N / appenders
		if i < b.N%appenders {
			n++
		}
		wg.Go(func() {
			for range n {
				res, err := l.Journal.Append(b.Context(), l.Build(journal.Header{Now: journal.FirstNow}, payload))
				if err != nil {
					b.Error(err)
					return
				}
				l.Pos = res.Pos
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "appends/s")
	s.mu.Lock()
	defer s.mu.Unlock()
	b.ReportMetric(float64(b.N)/float64(s.serial), "appends/sync")
}

// BenchmarkBaseline is what the disk gives: one write of as many bytes as 1 or
// 64 such entries, and fdatasync, in a zeroed file.
func BenchmarkBaseline(b *testing.B) {
	for _, entries := range []int{1, 64} {
		b.Run(fmt.Sprint("entries=", entries), func(b *testing.B) {
			f, err := os.Create(filepath.Join(b.TempDir(), "f"))
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			const size = 32 << 20
			if err := (systemDisk{}).Allocate(f, size); err != nil {
				b.Fatal(err)
			}
			block := make([]byte, entries*frameBytes(300))
			off := int64(0)
			for i := 0; b.Loop(); i++ {
				block[0] = byte(i)
				if _, err := f.WriteAt(block, off); err != nil {
					b.Fatal(err)
				}
				if err := (systemDisk{}).Sync(f); err != nil {
					b.Fatal(err)
				}
				if off += int64(len(block)); off+int64(len(block)) > size {
					off = 0
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "syncs/s")
		})
	}
}
