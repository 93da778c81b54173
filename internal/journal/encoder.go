package journal

import (
	"encoding/binary"
	"hash/crc32"
)

// Encoder builds entries. It reuses its buffers: in steady state nothing is
// allocated. The zero value is ready after Reset. Not for concurrent use; a
// writer that gathers the next batch while one is in flight needs two.
//
//	enc.Reset()
//	for each command {
//		mark := enc.Mark()
//		enc.AddFact(kind, true, payload)
//		if enc.Len() > MaxEntryBytes { enc.Rollback(mark); break }
//	}
//	entry := enc.Finish(header)
type Encoder struct {
	buf     []byte // header, facts, and after Finish the rest
	strings []string
	index   map[string]uint32
	table   int // encoded size of strings
	facts   uint32
	begin   int // of the fact in work
}

// Mark is a state of an Encoder to roll back to. It is valid until the next
// Reset or Finish, and until a Rollback to an older one.
type Mark struct {
	buf, strings, table int
	facts               uint32
}

// Reset begins a new entry. Slices returned by Finish become invalid.
func (e *Encoder) Reset() {
	if e.index == nil {
		e.index = make(map[string]uint32)
		e.buf = make([]byte, 0, 4096)
	}
	clear(e.index)
	clear(e.strings) // let the strings of the last entry go
	e.strings = e.strings[:0]
	e.buf = append(e.buf[:0], make([]byte, headerBytes)...)
	e.table, e.facts = 0, 0
}

// Intern returns the index of s in the entry's string table and adds it there
// if it is new. The empty string is 0. The encoder keeps s until Reset.
func (e *Encoder) Intern(s string) uint32 {
	if s == "" {
		return 0
	}
	if i, ok := e.index[s]; ok {
		return i
	}
	return e.addString(s)
}

// addString appends s to the table even if it is there already.
func (e *Encoder) addString(s string) uint32 {
	e.strings = append(e.strings, s)
	e.table += uvarintBytes(uint64(len(s))) + len(s)
	i := uint32(len(e.strings))
	e.index[s] = i
	return i
}

// AddFact adds a fact; payload is copied. Longer than 8 MiB cannot be encoded,
// and far less fits into MaxEntryBytes.
func (e *Encoder) AddFact(kind uint16, critical bool, payload []byte) {
	e.BeginFact(kind, critical)
	e.buf = append(e.buf, payload...)
	e.EndFact()
}

// BeginFact begins a fact whose payload the caller appends to *Buf(). EndFact
// must follow before any other call except Buf and Intern.
func (e *Encoder) BeginFact(kind uint16, critical bool) {
	e.begin = len(e.buf)
	var top byte
	if critical {
		top = criticalBit >> 16
	}
	e.buf = append(e.buf, byte(kind), byte(kind>>8), 0, 0, top)
}

// Buf is the buffer that the payload of a begun fact is appended to. Only
// append to it.
func (e *Encoder) Buf() *[]byte { return &e.buf }

// EndFact ends the fact begun last.
func (e *Encoder) EndFact() {
	n := len(e.buf) - e.begin - factHeadBytes
	head := e.buf[e.begin:]
	head[2], head[3] = byte(n), byte(n>>8)
	head[4] |= byte(n>>16) & 0x7f
	e.facts++
}

// Facts returns the number of facts so far.
func (e *Encoder) Facts() int { return int(e.facts) }

// Len returns an upper bound of the size of the entry as it stands. It is at
// most 258 bytes too high (pool and writer names are not known before Finish).
func (e *Encoder) Len() int { return len(e.buf) + e.table + trailerBytes }

// Mark remembers the current state.
func (e *Encoder) Mark() Mark {
	return Mark{buf: len(e.buf), strings: len(e.strings), table: e.table, facts: e.facts}
}

// Rollback drops the facts and strings added since m.
func (e *Encoder) Rollback(m Mark) {
	for _, s := range e.strings[m.strings:] {
		delete(e.index, s)
	}
	clear(e.strings[m.strings:])
	e.strings = e.strings[:m.strings]
	e.buf = e.buf[:m.buf]
	e.table, e.facts = m.table, m.facts
}

// Finish completes the entry and returns it, valid until the next Reset. Pool
// and writer are cut to MaxNameBytes. Reset must follow.
func (e *Encoder) Finish(h Header) []byte {
	if h.Format == 0 {
		h.Format = Format
	}
	if h.MinReader == 0 {
		h.MinReader = 1
	}
	le := binary.LittleEndian
	factsBytes := len(e.buf) - headerBytes
	if len(h.Extra) > 0 { // only when an entry of a newer version is copied
		facts := append([]byte(nil), e.buf[headerBytes:]...)
		e.buf = append(append(e.buf[:headerBytes], h.Extra...), facts...)
	}
	b := e.buf
	le.PutUint16(b, h.Format)
	le.PutUint16(b[2:], h.MinReader)
	le.PutUint32(b[4:], uint32(h.Flags))
	le.PutUint64(b[8:], h.Epoch)
	le.PutUint64(b[16:], h.Seq)
	copy(b[24:40], h.ID[:])
	copy(b[40:56], h.PrevID[:])
	le.PutUint64(b[56:], uint64(h.Now))
	le.PutUint64(b[64:], uint64(h.Wall))
	le.PutUint64(b[72:], h.Proven)
	le.PutUint64(b[80:], h.Policy)
	le.PutUint32(b[88:], uint32(headerBytes+len(h.Extra)))
	le.PutUint32(b[92:], uint32(factsBytes))
	le.PutUint32(b[96:], e.facts)
	le.PutUint32(b[100:], uint32(e.table))
	le.PutUint32(b[104:], uint32(len(e.strings)))
	for _, s := range e.strings {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	b = appendName(b, h.Pool)
	b = appendName(b, h.Writer)
	b = le.AppendUint32(b, crc32.Checksum(b, castagnoli))
	e.buf = b
	return b
}

func appendName(b []byte, s string) []byte {
	s = s[:min(len(s), MaxNameBytes)]
	return append(append(b, byte(len(s))), s...)
}
