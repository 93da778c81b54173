package journal

import (
	"errors"
	"fmt"
)

// Errors of the contract, compared with errors.Is. Journal.Append says which
// of them are definite.
var (
	// ErrConflict: the log does not end at After. See ConflictError.
	ErrConflict = errors.New("another entry was appended after this position")
	// ErrUnknown: no definite answer; resend the identical entry.
	ErrUnknown = errors.New("outcome unknown")
	// ErrUnproven: appended, not yet safe from a failover.
	ErrUnproven = errors.New("appended but not yet proven")
	// ErrEpoch: the epoch of the entry is not the current one.
	ErrEpoch = errors.New("epoch has changed")
	// ErrForked: the position is not in this log's history.
	ErrForked = errors.New("position is not in this log: its history is another one")
	// ErrTrimmed: the entries after the position were removed; load a snapshot.
	ErrTrimmed = errors.New("entries after this position were trimmed")
	// ErrUninitialised: there is no log. Never read it as an empty one.
	ErrUninitialised = errors.New("journal is not initialised")
	// ErrRecovering: only recovery entries are accepted for the moment.
	ErrRecovering = errors.New("journal is recovering after a failover")
	// ErrBusy: another writer holds the pool. See BusyError.
	ErrBusy = errors.New("another writer holds the pool")
	// ErrClock: the entry's now is more than MaxClockLead above store time, or
	// below the now of its predecessor.
	ErrClock = errors.New("entry time is out of the store's range")
	// ErrFull: no room for this entry; essential ones may still pass.
	ErrFull = errors.New("journal is full")
	// ErrCorrupt: stored data fails its check. See CorruptError.
	ErrCorrupt = errors.New("journal is corrupt")
	// ErrFailed: a write or sync failed in a way that leaves the medium's
	// content uncertain. The store refuses everything until it is reopened.
	ErrFailed = errors.New("store has failed and must be reopened")
	// ErrLocked: another process has the store open.
	ErrLocked = errors.New("journal is in use by another process")
	// ErrExists: what should be created is there already.
	ErrExists = errors.New("already exists")
	// ErrNotFound: no such archive row.
	ErrNotFound = errors.New("not found")
	// ErrNoSnapshot: nothing was saved yet and the log is complete.
	ErrNoSnapshot = errors.New("no snapshot")
	// ErrStale: the current snapshot is as new or newer.
	ErrStale = errors.New("a snapshot as new exists")
	// ErrTooLarge: above MaxEntryBytes.
	ErrTooLarge = errors.New("entry is too large")
	// ErrInvalid: the bytes are no entry, or do not fit the request or pool.
	ErrInvalid = errors.New("entry is invalid")
	// ErrFormat: written for a newer reader than this one.
	ErrFormat = errors.New("entry needs a newer version of this program")
	// ErrClosed: the store was closed.
	ErrClosed = errors.New("store is closed")
)

// ConflictError is an ErrConflict that carries what was appended meanwhile.
type ConflictError struct {
	// Entries follow the position of the request, oldest first, up to
	// MaxReplyBytes. If the first has the id of the request's entry, the
	// append had succeeded earlier.
	Entries []Entry
	// Cause is ErrForked or ErrTrimmed when the position is not in the log and
	// Entries is therefore empty; else nil.
	Cause error
}

// Error implements error.
func (e *ConflictError) Error() string {
	if e.Cause != nil {
		return fmt.Sprintf("%v: %v", ErrConflict, e.Cause)
	}
	return fmt.Sprintf("%v (%d returned)", ErrConflict, len(e.Entries))
}

// Is makes errors.Is(err, ErrConflict) true.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// Unwrap returns the cause.
func (e *ConflictError) Unwrap() error { return e.Cause }

// BusyError is an ErrBusy that names the writer to forward to.
type BusyError struct {
	Writer string
}

// Error implements error.
func (e *BusyError) Error() string { return fmt.Sprintf("%v: %s", ErrBusy, e.Writer) }

// Is makes errors.Is(err, ErrBusy) true.
func (e *BusyError) Is(target error) bool { return target == ErrBusy }

// CorruptError is an ErrCorrupt that says where.
type CorruptError struct {
	File   string // path, or the key of a remote store
	Offset int64  // of the damaged record, in bytes from the start of File
	Reason string // what the check found
}

// Error implements error.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("%v: %s at offset %d: %s", ErrCorrupt, e.File, e.Offset, e.Reason)
}

// Is makes errors.Is(err, ErrCorrupt) true.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }
