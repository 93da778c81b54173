package engine

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"hash"
	"sync"
)

// KeyBytes is the length of a signing secret.
const KeyBytes = 32

// Key signs lease tokens and tickets.
type Key struct {
	// ID tells the two live keys apart; rotation counts it up and may wrap.
	ID uint8
	// Secret is random.
	Secret [KeyBytes]byte
}

// NewKey returns a key with a random secret.
func NewKey(id uint8) Key {
	k := Key{ID: id}
	rand.Read(k.Secret[:])
	return k
}

// String hides the secret.
func (k Key) String() string { return "***" }

// GoString hides the secret.
func (k Key) GoString() string { return "***" }

// TokenKeys are the two live keys: Current signs, both verify. To rotate, the
// current key becomes Previous and a new one with another ID Current; what was
// signed by the key that falls out is then refused.
type TokenKeys struct {
	Current  Key
	Previous Key
}

// NewTokenKeys returns two random keys, for pools whose journal is memory too.
func NewTokenKeys() TokenKeys { return TokenKeys{Current: NewKey(1), Previous: NewKey(0)} }

// macBytes is the length of a signature: HMAC-SHA256 cut to 128 bits, which
// nobody can guess in the life of a lease and which halves the token.
const macBytes = 16

// signer makes and checks signatures. Safe for concurrent use.
type signer struct {
	keys [2]signingKey // current, previous
}

type signingKey struct {
	id   uint8
	macs *sync.Pool // of *mac: keying one costs two blocks of SHA-256
}

// mac is a keyed hash with room for its sum.
type mac struct {
	hash.Hash
	sum [sha256.Size]byte
}

func newSigner(keys TokenKeys) *signer {
	s := &signer{}
	for i, k := range [2]Key{keys.Current, keys.Previous} {
		secret := k.Secret
		s.keys[i] = signingKey{id: k.ID, macs: &sync.Pool{New: func() any { return &mac{Hash: hmac.New(sha256.New, secret[:])} }}}
	}
	return s
}

// sign appends to b the signature of b[from:] by the current key, whose id
// that part must carry.
func (s *signer) sign(b []byte, from int) []byte {
	sum := s.keys[0].sum(b[from:])
	return append(b, sum[:macBytes]...)
}

// verify returns what was signed, or false.
func (s *signer) verify(keyID uint8, signed []byte) (body []byte, ok bool) {
	if len(signed) < macBytes {
		return nil, false
	}
	body, mac := signed[:len(signed)-macBytes], signed[len(signed)-macBytes:]
	for i := range s.keys {
		if s.keys[i].id != keyID {
			continue
		}
		sum := s.keys[i].sum(body)
		if subtle.ConstantTimeCompare(sum[:macBytes], mac) == 1 {
			return body, true
		}
	}
	return nil, false
}

func (k *signingKey) sum(b []byte) [sha256.Size]byte {
	h := k.macs.Get().(*mac)
	h.Reset()
	h.Write(b)
	h.Sum(h.sum[:0])
	sum := h.sum
	k.macs.Put(h)
	return sum
}
