// Package journal is the Store and Journal contract, the entry codec and the memory store.
//
// A pool has one journal: a log of entries in which every entry names its
// predecessor by a random id. The journal is the only memory of a pool and the
// only owner of its clock; whoever holds the last position may append, by
// compare-and-append, and nobody else. The contract suite for every store is
// package journaltest.
package journal

import (
	"context"
	"io"
	"time"
)

// Bounds of the contract, in bytes unless named otherwise.
const (
	// MaxEntryBytes bounds one encoded entry, header and checksum included.
	MaxEntryBytes = 128 << 10
	// MaxReplyBytes bounds the entries of one Read or one conflict. A single
	// entry is always returned, so a reader makes progress with any maxBytes.
	MaxReplyBytes = 256 << 10
	// ChunkBytes is the size of one snapshot chunk.
	ChunkBytes = 256 << 10
	// MaxNameBytes bounds pool names, writer names and archive keys.
	MaxNameBytes = 128
	// MaxClockLead is how far the now of an entry may lie above store time.
	MaxClockLead = 20 * time.Millisecond
	// TrimHorizon is the logical time whose entries Trim never removes.
	TrimHorizon = 60 * time.Second
	// FirstNow is the logical time of a new store, in nanoseconds. It is not
	// zero so that an instant that was never set stays distinguishable.
	FirstNow = int64(time.Second)
)

// Store holds the journals of one process or one server. All methods may be
// called concurrently.
type Store interface {
	// Init creates the empty log of pool, durable when it returns. It is never
	// implicit: an absent log is a loss until somebody says otherwise.
	// ErrExists when the pool has a log; nothing is changed then.
	Init(ctx context.Context, pool string) error
	// Open returns the journal of pool. ErrUninitialised when it is absent,
	// ErrCorrupt when its acknowledged data fails a check.
	Open(ctx context.Context, pool string) (Journal, error)
	// Pools returns the names of all initialised pools, sorted. None is an
	// empty list, not an error.
	Pools(ctx context.Context) ([]string, error)
	// Now returns the store's clock. Logical time never runs backwards, also
	// not across a restart.
	Now(ctx context.Context) (Time, error)
	// Close ends blocked calls with ErrClosed and gives everything back. A
	// second Close does nothing.
	Close() error
}

// Journal is the log of one pool. All methods may be called concurrently; the
// engine has at most one append of a pool in flight.
type Journal interface {
	// Head returns the end of the log. Only durable entries count.
	Head(ctx context.Context) (Head, error)
	// Append adds one entry after req.After.
	//
	// Definite refusals, after which the entry is not in the log and never
	// will be by this call: ErrConflict, ErrEpoch, ErrRecovering, ErrBusy,
	// ErrClock, ErrFull, ErrUninitialised, ErrInvalid, ErrTooLarge, ErrClosed.
	// ErrUnknown, also by the end of ctx: the entry may or may not be there or
	// land later; send the identical bytes again until the answer is definite.
	// ErrUnproven: it is there, a failover may still lose it; call Prove.
	// ErrFailed: the outcome is unknown and the store must be reopened.
	Append(ctx context.Context, req AppendRequest) (Result, error)
	// Prove waits until everything up to pos survives the faults of the
	// store's mode: nil, ErrUnproven, ErrUnknown, or ErrForked when pos is not
	// in the log. Stores whose append is the proof return at once.
	Prove(ctx context.Context, pos Position) error
	// Read returns entries after the position, oldest first, at least one and
	// then up to maxBytes of them (0 or more than MaxReplyBytes means
	// MaxReplyBytes). It blocks for news until ctx ends and then returns the
	// error of ctx. The zero Position reads from the beginning. ErrForked when
	// the log does not contain the position, ErrTrimmed when the entries after
	// it are gone; entries are never skipped. The entries are read-only and
	// stay valid.
	Read(ctx context.Context, after Position, maxBytes int) ([]Entry, error)
	// OpenEpoch starts epoch from+1. ErrEpoch when from is not the current
	// epoch, so that one of several callers wins.
	OpenEpoch(ctx context.Context, from uint64) error
	// Snapshots returns the snapshots of this pool, never nil.
	Snapshots() Snapshots
}

// Snapshots holds encoded states of one pool, so that its log can be trimmed.
// All methods may be called concurrently.
type Snapshots interface {
	// Load opens the current snapshot; the caller closes the reader. Chunks
	// are checked as they are read: an error other than io.EOF from the reader
	// (ErrCorrupt) means that everything read so far must be thrown away.
	// ErrNoSnapshot when there is none and the log is complete from its
	// beginning; ErrCorrupt when one should be there.
	Load(ctx context.Context) (Manifest, io.ReadCloser, error)
	// Save stores the bytes that write produces as the state at position at,
	// and makes it current in one step at the end. ErrStale when the current
	// snapshot is as new or newer, ErrForked when the log does not have at.
	// An error of write, or the end of ctx, leaves the current one in place.
	Save(ctx context.Context, at Position, write func(io.Writer) error) (Manifest, error)
	// Trim removes entries below the previous snapshot (below the current one
	// when nothing was appended since, so that an idle pool does not pin a
	// log), never those of the last TrimHorizon of logical time, and then all
	// snapshots older than the previous one. The entry or at least the
	// position it cuts at stays readable-after. With nothing to do it is nil.
	Trim(ctx context.Context) error
}

// Archive keeps rows for ever, outside the log: closed periods. Every store of
// this module implements it beside Store. All methods may be called
// concurrently.
type Archive interface {
	// PutOnce stores row under key, durable when it returns. The same row
	// again is nil; another row under the same key is ErrExists. Keys are
	// names (ValidName), rows at most MaxEntryBytes (ErrTooLarge).
	PutOnce(ctx context.Context, pool, key string, row []byte) error
	// Get returns the row under key, or ErrNotFound.
	Get(ctx context.Context, pool, key string) ([]byte, error)
	// List returns up to limit keys greater than after, sorted bytewise; a
	// limit of 0 or less means 1,000.
	List(ctx context.Context, pool, after string, limit int) ([]string, error)
}

// AppendRequest is one compare-and-append.
type AppendRequest struct {
	// After is the position the writer holds. Its seq and id must be those of
	// the last entry.
	After Position
	// Entry is the encoded entry (Encoder.Finish). Its header must agree with
	// After: seq After.Seq+1, prev id After.ID. The store does not keep the
	// slice after it returned, unless the outcome is unknown: then the bytes
	// must not change until a resend had a definite answer.
	Entry []byte
	// Essential marks commits and releases, which must still be recorded when
	// the store is full. It must agree with FlagEssential of the entry.
	Essential bool
	// Takeover ignores a fresh hint of another writer. Stores with a single
	// writer ignore it.
	Takeover bool
}

// Result is the answer to an append.
type Result struct {
	Pos       Position // of the entry
	StoreTime Time     // of the store, after the check of the entry's now
	Proven    bool     // survives the faults of the store's mode
	Already   bool     // the identical entry had been appended before
}

// Mode says what a journal accepts.
type Mode uint8

// The modes of a journal. The zero value is the usual one.
const (
	ModeOpen       Mode = iota // every entry
	ModeRecovering             // only entries with FlagRecovery, see ErrRecovering
)

// Head describes a log.
type Head struct {
	Pos    Position // of the last entry; of a new log: seq 0 and a random id
	Now    int64    // logical time of the last entry, 0 in a new log
	Epoch  uint64   // current, starts at 1; entries must carry it
	Mode   Mode
	Oldest Position // the oldest position that Read accepts
	Bytes  int64    // of the readable entries
	Writer string   // of the last entry, or the hint of a shared store
}

// Manifest describes a snapshot.
type Manifest struct {
	At     Position // the last entry whose facts the state contains
	Bytes  int64
	Chunks int
	Now    int64 // logical time of the entry at At
	Wall   int64 // Unix time of the save, nanoseconds, for display
}
