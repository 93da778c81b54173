package filejournal

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/token-budget-arbiter/tba/internal/journal"
)

// A frame is the unit of every file of the store. Little endian:
//
//	 0 u32 magic    4 u32 payload bytes   8 u32 CRC-32C   12 u32 owner
//	16 u64 serial  24 u32 index          28 u32 kind and last bit
//	32 payload, zeros up to a multiple of 8
//
// The checksum covers the store's id, the header without the checksum, and the
// payload; the zeros are compared. So no byte of a frame can change unseen, and
// a frame of another store is never taken for one of this.
const (
	frameMagic     = 0x6a616274 // "tbaj"
	frameHeadBytes = 32
	lastBit        = 1 << 31
)

// frameKind says what a frame carries.
type frameKind uint32

const (
	kindMeta    frameKind = iota + 1 // the store's description
	kindSegment                      // first frame of a segment
	kindEntry                        // one entry; serial is the batch, index its place, owner the pool
	kindMark                         // one acknowledgement
	kindSnapshot
	kindChunk
	kindRow
)

// seed is the checksum of the store's id, the start of every frame's checksum.
type seed uint32

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func newSeed(store journal.EntryID) seed { return seed(crc32.Checksum(store[:], castagnoli)) }

type frame struct {
	kind    frameKind
	owner   uint32
	serial  uint64
	index   uint32
	last    bool
	payload []byte
}

// frameBytes is the size of a frame with n bytes of payload.
func frameBytes(n int) int { return (frameHeadBytes + n + 7) &^ 7 }

// appendFrame appends f to b.
func (s seed) appendFrame(b []byte, f frame) []byte {
	start := len(b)
	le := binary.LittleEndian
	b = le.AppendUint32(b, frameMagic)
	b = le.AppendUint32(b, uint32(len(f.payload)))
	b = le.AppendUint32(b, 0)
	b = le.AppendUint32(b, f.owner)
	b = le.AppendUint64(b, f.serial)
	b = le.AppendUint32(b, f.index)
	kind := uint32(f.kind)
	if f.last {
		kind |= lastBit
	}
	b = le.AppendUint32(b, kind)
	b = append(b, f.payload...)
	le.PutUint32(b[start+8:], s.checksum(b[start:]))
	var zeros [7]byte
	return append(b, zeros[:frameBytes(len(f.payload))-(len(b)-start)]...)
}

func (s seed) checksum(b []byte) uint32 {
	sum := crc32.Update(uint32(s), castagnoli, b[:8])
	return crc32.Update(sum, castagnoli, b[12:])
}

// parseFrame reads the frame at the start of b. Its payload is part of b. The
// error says what is wrong, without the place.
func (s seed) parseFrame(b []byte) (frame, int, error) {
	le := binary.LittleEndian
	if len(b) < frameHeadBytes {
		return frame{}, 0, fmt.Errorf("a frame header is cut after %d bytes", len(b))
	}
	if got := le.Uint32(b); got != frameMagic {
		return frame{}, 0, fmt.Errorf("no frame begins here (%08x)", got)
	}
	n := int64(le.Uint32(b[4:]))
	if n > int64(len(b)-frameHeadBytes) {
		return frame{}, 0, fmt.Errorf("a frame of %d bytes is cut", n)
	}
	end := frameHeadBytes + int(n)
	if got, want := s.checksum(b[:end]), le.Uint32(b[8:]); got != want {
		return frame{}, 0, fmt.Errorf("checksum is %08x, expected %08x", got, want)
	}
	size := frameBytes(int(n))
	if size > len(b) {
		return frame{}, 0, fmt.Errorf("the padding of a frame is cut")
	}
	if !isZero(b[end:size]) {
		return frame{}, 0, fmt.Errorf("the padding of a frame is not zero")
	}
	kind := le.Uint32(b[28:])
	return frame{
		kind: frameKind(kind &^ lastBit), last: kind&lastBit != 0,
		owner: le.Uint32(b[12:]), serial: le.Uint64(b[16:]), index: le.Uint32(b[24:]),
		payload: b[frameHeadBytes:end:end],
	}, size, nil
}

// laterBatch returns the offset in b of a sound entry frame of a batch after
// serial, or -1. Frames lie at multiples of 8.
func (s seed) laterBatch(b []byte, serial uint64) int {
	magic := binary.LittleEndian.AppendUint32(nil, frameMagic)
	for from := 0; ; {
		i := bytes.Index(b[from:], magic)
		if i < 0 {
			return -1
		}
		i += from
		if i%8 == 0 {
			if f, _, err := s.parseFrame(b[i:]); err == nil && f.kind == kindEntry && f.serial > serial {
				return i
			}
		}
		from = i + 1
	}
}

// zeroBlock is compared against, a page at a time.
var zeroBlock [4096]byte

func isZero(b []byte) bool {
	for len(b) > 0 {
		n := min(len(b), len(zeroBlock))
		if !bytes.Equal(b[:n], zeroBlock[:n]) {
			return false
		}
		b = b[n:]
	}
	return true
}

// usedBytes returns the length of b without the zeros at its end.
func usedBytes(b []byte) int {
	for len(b) >= len(zeroBlock) && bytes.Equal(b[len(b)-len(zeroBlock):], zeroBlock[:]) {
		b = b[:len(b)-len(zeroBlock)]
	}
	for len(b) > 0 && b[len(b)-1] == 0 {
		b = b[:len(b)-1]
	}
	return len(b)
}
