package journal

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
)

// EntryID is the random 128-bit name of an entry. The zero value names none.
type EntryID [16]byte

// NewEntryID returns a fresh random id.
func NewEntryID() EntryID {
	var id EntryID
	rand.Read(id[:]) // never fails: the runtime stops the program instead
	return id
}

// String returns the id in hexadecimal.
func (id EntryID) String() string { return hex.EncodeToString(id[:]) }

// IsZero reports whether the id names no entry.
func (id EntryID) IsZero() bool { return id == EntryID{} }

// Position names an entry and with it a whole history: after a failover
// another history can reach the same seq, so a seq alone names nothing.
// Positions are compared with ==. The zero value lies before every log.
type Position struct {
	Epoch uint64 // of the entry
	Seq   uint64 // 1 for the first entry
	ID    EntryID
}

// String returns epoch/seq/id for messages.
func (p Position) String() string { return fmt.Sprintf("%d/%d/%s", p.Epoch, p.Seq, p.ID) }

// IsZero reports whether p lies before every log.
func (p Position) IsZero() bool { return p == Position{} }

// Time is one reading of a store's clock.
type Time struct {
	// Now is logical time in nanoseconds, monotone for the life of the log. It
	// has no calendar: it starts at FirstNow.
	Now int64
	// Wall is Unix time in nanoseconds. It may jump; it is for periods and for
	// display only.
	Wall int64
}

// ValidName reports whether s can name a pool, a writer or an archive row: 1
// to MaxNameBytes of A-Z a-z 0-9 . _ : -
func ValidName(s string) bool {
	if len(s) == 0 || len(s) > MaxNameBytes {
		return false
	}
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case c == '.', c == '_', c == ':', c == '-':
		default:
			return false
		}
	}
	return true
}
