package journal

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"iter"
)

// Format is the entry format that this version writes and the newest it reads
// in full.
const Format = 1

// Layout of an entry, little endian:
//
//	  0 u16 format        2 u16 min_reader     4 u32 flags
//	  8 u64 epoch        16 u64 seq           24 id[16]      40 prev_id[16]
//	 56 i64 now          64 i64 wall          72 u64 proven  80 u64 policy
//	 88 u32 header bytes 92 u32 facts bytes   96 u32 facts  100 u32 strings bytes
//	104 u32 strings     108 (bytes of a newer header)
//	facts, strings, u8 length + pool, u8 length + writer, u32 CRC-32C of all before
//
// A fact is u16 kind, u24 with the critical bit on top of a 23-bit length, and
// the payload. A string is a minimal uvarint length and the bytes. Facts come
// before the strings they refer to, so that an encoder can append both without
// knowing the other's size.
const (
	headerBytes    = 108
	factHeadBytes  = 5
	criticalBit    = 1 << 23
	maxFactPayload = criticalBit - 1
	crcBytes       = 4
	// trailerBytes is the most that pool, writer and checksum can take.
	trailerBytes = 2*(1+MaxNameBytes) + crcBytes
)

// castagnoli is the CRC-32C polynomial, computed in hardware on common CPUs.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Flags of an entry. Unknown flags are kept.
type Flags uint32

// The flags of format 1.
const (
	FlagEssential Flags = 1 << iota // only commits and releases
	FlagRecovery                    // accepted in ModeRecovering
)

// Header is what a store and a follower must know of an entry.
type Header struct {
	Format    uint16 // 0 is written as Format
	MinReader uint16 // oldest Format whose reader understands it; 0 is written as 1
	Flags     Flags
	Pool      string // at most MaxNameBytes
	Epoch     uint64
	Seq       uint64 // 1 for the first entry of a log
	ID        EntryID
	PrevID    EntryID // of entry Seq-1, or the random id of the new log
	Now       int64   // logical time of the decisions, nanoseconds
	Wall      int64   // Unix nanoseconds, for periods and display only
	Writer    string  // cut to MaxNameBytes
	Proven    uint64  // highest seq the writer knew to be proven
	Policy    uint64  // version of the policy in force after the entry
	Extra     []byte  // header bytes of a newer format; nil in format 1
}

// Pos returns the position of the entry.
func (h *Header) Pos() Position { return Position{Epoch: h.Epoch, Seq: h.Seq, ID: h.ID} }

// Fact is one fact of an entry. The meaning of kinds and payloads is not
// known here.
type Fact struct {
	Kind     uint16
	Critical bool   // a reader that does not know Kind must stop granting
	Payload  []byte // part of the entry's bytes: read-only
}

// Entry is a decoded entry. Its slices are parts of the decoded bytes.
type Entry struct {
	Header
	// Strings is the string table; index 0 is the empty string.
	Strings []string
	facts   []byte
	raw     []byte
}

// Raw returns the encoded entry, read-only.
func (e *Entry) Raw() []byte { return e.raw }

// Facts yields the facts in order. It does not allocate.
func (e *Entry) Facts() iter.Seq[Fact] {
	return func(yield func(Fact) bool) {
		for b := e.facts; len(b) > 0; {
			kind, critical, n := factHead(b)
			b = b[factHeadBytes:]
			if !yield(Fact{Kind: kind, Critical: critical, Payload: b[:n:n]}) {
				return
			}
			b = b[n:]
		}
	}
}

func factHead(b []byte) (kind uint16, critical bool, n int) {
	word := uint32(b[2]) | uint32(b[3])<<8 | uint32(b[4])<<16
	return binary.LittleEndian.Uint16(b), word&criticalBit != 0, int(word & maxFactPayload)
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("decode entry: %w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}

// DecodeHeader reads and checks the header and the checksum, without the
// string table. ErrInvalid, ErrFormat or ErrTooLarge.
func DecodeHeader(b []byte) (Header, error) {
	var e Entry
	_, err := e.decodeHeader(b)
	return e.Header, err
}

// Decode reads one entry, which must fill b. It never panics. Facts and Raw
// refer to b, which must not change afterwards. ErrInvalid when a check fails,
// ErrFormat when the entry demands a newer reader, ErrTooLarge above
// MaxEntryBytes.
func Decode(b []byte) (Entry, error) {
	var e Entry
	table, err := e.decodeHeader(b)
	if err != nil {
		return Entry{}, err
	}
	count := int(binary.LittleEndian.Uint32(b[104:]))
	if count > len(table) {
		return Entry{}, invalid("%d strings in %d bytes", count, len(table))
	}
	// One copy for the whole table keeps the strings independent of b.
	text := string(table)
	e.Strings = make([]string, 1, count+1)
	for range count {
		n, w := binary.Uvarint(table)
		if w <= 0 || n > uint64(len(table)-w) || w != uvarintBytes(n) {
			return Entry{}, invalid("string table is damaged")
		}
		e.Strings = append(e.Strings, text[w:w+int(n)])
		table, text = table[w+int(n):], text[w+int(n):]
	}
	if len(table) != 0 {
		return Entry{}, invalid("%d bytes after the string table", len(table))
	}
	facts := int(binary.LittleEndian.Uint32(b[96:]))
	for rest := e.facts; len(rest) > 0; facts-- {
		if len(rest) < factHeadBytes {
			return Entry{}, invalid("facts are cut")
		}
		_, _, n := factHead(rest)
		if n > len(rest)-factHeadBytes {
			return Entry{}, invalid("a fact of %d bytes is cut", n)
		}
		rest = rest[factHeadBytes+n:]
	}
	if facts != 0 {
		return Entry{}, invalid("the number of facts is off by %d", facts)
	}
	return e, nil
}

// decodeHeader fills everything but Strings and returns the string table.
func (e *Entry) decodeHeader(b []byte) (table []byte, err error) {
	le := binary.LittleEndian
	if len(b) > MaxEntryBytes {
		return nil, fmt.Errorf("decode entry: %w: %d bytes, at most %d", ErrTooLarge, len(b), MaxEntryBytes)
	}
	if len(b) < headerBytes+2+crcBytes {
		return nil, invalid("%d bytes are too short", len(b))
	}
	body := b[:len(b)-crcBytes]
	if got, want := crc32.Checksum(body, castagnoli), le.Uint32(b[len(body):]); got != want {
		return nil, invalid("checksum is %08x, expected %08x", got, want)
	}
	e.Format, e.MinReader = le.Uint16(b), le.Uint16(b[2:])
	if e.Format == 0 || e.MinReader == 0 || e.MinReader > e.Format {
		return nil, invalid("format %d, min_reader %d", e.Format, e.MinReader)
	}
	if e.MinReader > Format {
		return nil, fmt.Errorf("decode entry: %w: it needs format %d, this version reads %d", ErrFormat, e.MinReader, Format)
	}
	e.Flags = Flags(le.Uint32(b[4:]))
	e.Epoch, e.Seq = le.Uint64(b[8:]), le.Uint64(b[16:])
	copy(e.ID[:], b[24:])
	copy(e.PrevID[:], b[40:])
	e.Now, e.Wall = int64(le.Uint64(b[56:])), int64(le.Uint64(b[64:]))
	e.Proven, e.Policy = le.Uint64(b[72:]), le.Uint64(b[80:])

	head, facts, strings := uint64(le.Uint32(b[88:])), uint64(le.Uint32(b[92:])), uint64(le.Uint32(b[100:]))
	if head < headerBytes || (e.Format == 1 && head != headerBytes) || head+facts+strings+2 > uint64(len(body)) {
		return nil, invalid("sections of %d, %d and %d bytes in %d", head, facts, strings, len(body))
	}
	if head > headerBytes {
		e.Extra = body[headerBytes:head:head]
	}
	e.facts = body[head : head+facts : head+facts]
	table = body[head+facts : head+facts+strings]
	rest := body[head+facts+strings:]
	var ok bool
	if e.Pool, rest, ok = cutName(rest); !ok {
		return nil, invalid("pool name is damaged")
	}
	if e.Writer, rest, ok = cutName(rest); !ok || len(rest) != 0 {
		return nil, invalid("writer name is damaged")
	}
	e.raw = b
	return table, nil
}

func cutName(b []byte) (name string, rest []byte, ok bool) {
	if len(b) == 0 || b[0] > MaxNameBytes || int(b[0]) > len(b)-1 {
		return "", nil, false
	}
	n := 1 + int(b[0])
	return string(b[1:n]), b[n:], true
}

func uvarintBytes(n uint64) int {
	w := 1
	for ; n >= 0x80; n >>= 7 {
		w++
	}
	return w
}
