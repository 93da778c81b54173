package journal_test

import (
	"testing"

	"github.com/token-budget-arbiter/tba/internal/journal"
	"github.com/token-budget-arbiter/tba/internal/journal/journaltest"
)

func TestMemoryContract(t *testing.T) {
	journaltest.Run(t, journaltest.Factory{Bubble: true, New: func(*testing.T) journaltest.Harness {
		m := journal.NewMemory(journal.MemoryOptions{ReserveBytes: 1 << 20})
		return journaltest.Harness{
			Store: m, Archive: m,
			Fill:      func() { m.SetMaxBytes(5000) },
			Free:      func() { m.SetMaxBytes(0) },
			LoseChunk: m.LoseChunk,
		}
	}})
}

func TestMemoryClockIsInjected(t *testing.T) {
	t.Parallel()
	now := int64(5)
	m := journal.NewMemory(journal.MemoryOptions{Clock: func() journal.Time { return journal.Time{Now: now, Wall: 7} }})
	got, err := m.Now(t.Context())
	if err != nil || got != (journal.Time{Now: 5, Wall: 7}) {
		t.Fatalf("%+v, %v", got, err)
	}
}
