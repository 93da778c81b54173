package engine

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"sync"

	"github.com/token-budget-arbiter/tba/arbiter"
)

// LeaseIDLength is the length of a lease id in its text form.
const LeaseIDLength = 26

// crockford is the alphabet of Crockford's base32: digits and letters without I, L, O and U.
const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

var crockfordValue = func() (t [256]byte) {
	for i := range t {
		t[i] = 0xff
	}
	for i := range len(crockford) {
		c := crockford[i]
		t[c] = byte(i)
		if c >= 'A' {
			t[c+'a'-'A'] = byte(i)
		}
	}
	return t
}()

// hashes recycles SHA-256 states.
var hashes = sync.Pool{New: func() any { return sha256.New() }}

// NewLeaseID returns the lease id of a request. With a request id it is a hash
// of the three arguments, so that a repeat of the request names the same
// lease; with an empty one it is random. The strings may have any length; they
// enter the hash with it, so that no two triples collide by concatenation.
func NewLeaseID(principal uint64, agent, requestID string) arbiter.LeaseID {
	var id arbiter.LeaseID
	if requestID == "" {
		rand.Read(id[:]) // never fails: the runtime stops the program instead
		return id
	}
	b := make([]byte, 0, 192)
	b = append(b, "tba lease 1\n"...)
	b = binary.LittleEndian.AppendUint64(b, principal)
	b = binary.AppendUvarint(b, uint64(len(agent)))
	b = append(b, agent...)
	b = append(b, requestID...)
	return hashID(b)
}

// again returns the id under which a request is decided anew after the lease
// with this id was granted, but reached nobody and was given back. It is a
// hash, so that every replica and every repeat walks the same chain.
func again(id arbiter.LeaseID) arbiter.LeaseID {
	b := make([]byte, 0, 32)
	b = append(b, "tba again 1\n"...)
	return hashID(append(b, id[:]...))
}

func hashID(b []byte) (id arbiter.LeaseID) {
	h := hashes.Get().(hash.Hash)
	h.Reset()
	h.Write(b)
	var sum [sha256.Size]byte
	copy(id[:], h.Sum(sum[:0]))
	hashes.Put(h)
	return id
}

// FormatLeaseID returns the text form: 26 characters of Crockford's base32,
// upper case. The zero id is the empty string.
func FormatLeaseID(id arbiter.LeaseID) string {
	if id == (arbiter.LeaseID{}) {
		return ""
	}
	hi, lo := binary.BigEndian.Uint64(id[:8]), binary.BigEndian.Uint64(id[8:])
	var b [LeaseIDLength]byte
	for i := LeaseIDLength - 1; i >= 0; i-- {
		b[i] = crockford[lo&31]
		lo = lo>>5 | hi<<59
		hi >>= 5
	}
	return string(b[:])
}

// ParseLeaseID reads the text form, upper or lower case. Anything else,
// the empty string included, is CodeInvalid.
func ParseLeaseID(s string) (arbiter.LeaseID, error) {
	var id arbiter.LeaseID
	bad := func() (arbiter.LeaseID, error) {
		return arbiter.LeaseID{}, arbiter.Errorf(arbiter.CodeInvalid, "lease_id",
			"lease_id %.40q: want the %d characters (0-9, A-Z without I, L, O, U) that came with the grant", s, LeaseIDLength)
	}
	if len(s) != LeaseIDLength || crockfordValue[s[0]] > 7 {
		return bad()
	}
	var hi, lo uint64
	for i := range len(s) {
		v := crockfordValue[s[i]]
		if v > 31 {
			return bad()
		}
		hi = hi<<5 | lo>>59
		lo = lo<<5 | uint64(v)
	}
	binary.BigEndian.PutUint64(id[:8], hi)
	binary.BigEndian.PutUint64(id[8:], lo)
	if id == (arbiter.LeaseID{}) {
		return bad()
	}
	return id, nil
}
