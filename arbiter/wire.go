package arbiter

import (
	"encoding/binary"
	"errors"
)

// writer and reader are the binary form shared by facts and states: unsigned and zig-zag varints, raw ids, length-prefixed strings.
type writer struct{ b []byte }

func (w *writer) uint(n uint64)  { w.b = binary.AppendUvarint(w.b, n) }
func (w *writer) int(n int64)    { w.b = binary.AppendVarint(w.b, n) }
func (w *writer) id(id LeaseID)  { w.b = append(w.b, id[:]...) }
func (w *writer) fixed(n uint64) { w.b = binary.LittleEndian.AppendUint64(w.b, n) }
func (w *writer) bytes(p []byte) {
	w.uint(uint64(len(p)))
	w.b = append(w.b, p...)
}
func (w *writer) string(s string) {
	w.uint(uint64(len(s)))
	w.b = append(w.b, s...)
}
func (w *writer) bool(v bool) {
	if v {
		w.uint(1)
	} else {
		w.uint(0)
	}
}

// ErrCorrupt says that bytes are not what Append wrote.
var ErrCorrupt = errors.New("corrupt encoding")

type reader struct {
	b   []byte
	err error
}

func (r *reader) fail() {
	r.err = ErrCorrupt
	r.b = nil
}

func (r *reader) uint() uint64 {
	n, used := binary.Uvarint(r.b)
	if used <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[used:]
	return n
}

func (r *reader) int() int64 {
	n, used := binary.Varint(r.b)
	if used <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[used:]
	return n
}

// number reads a row, rung, slot or period number.
func (r *reader) number() uint32 {
	n := r.uint()
	if n > 1<<32-1 {
		r.fail()
	}
	return uint32(n)
}

func (r *reader) take(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.fail()
		return nil
	}
	p := r.b[:n]
	r.b = r.b[n:]
	return p
}

func (r *reader) id() (id LeaseID) {
	copy(id[:], r.take(16))
	return id
}

func (r *reader) fixed() uint64 {
	if p := r.take(8); p != nil {
		return binary.LittleEndian.Uint64(p)
	}
	return 0
}

func (r *reader) bytes() []byte  { return r.take(r.uint()) }
func (r *reader) string() string { return string(r.bytes()) }

func (r *reader) bool() bool {
	switch r.uint() {
	case 0:
		return false
	case 1:
		return true
	}
	r.fail()
	return false
}

// count reads how many records follow, each of at least size bytes.
func (r *reader) count(size uint64) uint64 {
	n := r.uint()
	if n > uint64(len(r.b))/size {
		r.fail()
		return 0
	}
	return n
}

// done reports ErrCorrupt unless everything was read.
func (r *reader) done() error {
	if r.err == nil && len(r.b) != 0 {
		return ErrCorrupt
	}
	return r.err
}
