package engine

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
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

// signingKey is a secret with its two pads of RFC 2104. Hashing pad and text
// in one go costs two blocks more than a keyed hash that is reset, and is five
// times as fast: a reset restores its state through a marshalled copy.
type signingKey struct {
	id         uint8
	ipad, opad [sha256.BlockSize]byte
}

func newSigner(keys TokenKeys) *signer {
	s := &signer{}
	for i, k := range [2]Key{keys.Current, keys.Previous} {
		s.keys[i].id = k.ID
		for j := range sha256.BlockSize {
			var b byte
			if j < KeyBytes {
				b = k.Secret[j]
			}
			s.keys[i].ipad[j], s.keys[i].opad[j] = b^0x36, b^0x5c
		}
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

// sum is HMAC-SHA256 of b.
func (k *signingKey) sum(b []byte) [sha256.Size]byte {
	var room [sha256.BlockSize + 448]byte // most tokens fit
	inner := sha256.Sum256(append(append(room[:0], k.ipad[:]...), b...))
	return sha256.Sum256(append(append(room[:0], k.opad[:]...), inner[:]...))
}
