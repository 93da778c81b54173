package identity

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"strings"

	"github.com/token-budget-arbiter/tba/arbiter"
)

// MinSecret is the shortest accepted bearer key, bytes. Shorter ones can be guessed over the network.
const MinSecret = 16

// Key is one entry of auth.keys with its secret read.
type Key struct {
	// Name is what audit and leases know the key by; unique, not empty.
	Name string
	// Secret is the bearer key itself; at least MinSecret bytes, unique. It is kept as a salted hash only.
	Secret string
	// Pool, Classes, HasCeiling, MaxPriority and Role are as in Caller.
	Pool        string
	Classes     []string
	HasCeiling  bool
	MaxPriority arbiter.Priority
	Role        Role
}

// Keyring knows the bearer keys. It is immutable and safe for concurrent use; a nil or empty one has no keys, and every caller is Local.
//
// A presented key is hashed with a salt drawn at start, then looked up by that hash. The time of the look-up depends on bits that nobody
// outside can predict, and the last comparison takes constant time, so timing tells nothing about a key that nearly matches.
type Keyring struct {
	salt [32]byte
	keys map[uint64][]entry
}

type entry struct {
	hash   [32]byte
	caller *Caller
}

// NewKeyring checks and hashes keys. Errors name the key that is at fault and never print a secret.
func NewKeyring(keys []Key) (*Keyring, error) {
	k := &Keyring{keys: make(map[uint64][]entry, len(keys))}
	if _, err := rand.Read(k.salt[:]); err != nil {
		return nil, fmt.Errorf("auth.keys: draw a salt: %w", err)
	}
	names := make(map[string]bool, len(keys))
	principals := make(map[uint64]string, len(keys))
	for i, key := range keys {
		switch {
		case key.Name == "":
			return nil, fmt.Errorf("auth.keys[%d]: no name: give each key a name, leases are bound to it", i)
		case names[key.Name]:
			return nil, fmt.Errorf("auth.keys[%d]: name %q is used twice: give each key a name of its own", i, key.Name)
		case len(key.Secret) < MinSecret:
			return nil, fmt.Errorf("auth.keys[%d]: key %q has %d bytes, at least %d are needed: make one with `openssl rand -hex 24`", i, key.Name, len(key.Secret), MinSecret)
		case strings.TrimSpace(key.Secret) != key.Secret:
			return nil, fmt.Errorf("auth.keys[%d]: key %q has white space around it: remove it from the variable or file", i, key.Name)
		}
		principal := Principal(key.Name)
		if other, ok := principals[principal]; ok {
			return nil, fmt.Errorf("auth.keys[%d]: names %q and %q have the same hash: rename one", i, other, key.Name)
		}
		names[key.Name], principals[principal] = true, key.Name
		if _, ok := k.find(key.Secret); ok {
			return nil, fmt.Errorf("auth.keys[%d]: key %q has the secret of another key: a secret names one key", i, key.Name)
		}
		hash := k.hash(key.Secret)
		k.keys[bucket(hash)] = append(k.keys[bucket(hash)], entry{hash, &Caller{
			Name: key.Name, Principal: principal, Pool: key.Pool, Classes: append([]string(nil), key.Classes...),
			HasCeiling: key.HasCeiling, MaxPriority: key.MaxPriority, Role: key.Role,
		}})
	}
	return k, nil
}

// Empty reports whether there are no keys. A nil keyring is empty.
func (k *Keyring) Empty() bool { return k == nil || len(k.keys) == 0 }

// Bearer finds the caller of an Authorization value, "Bearer KEY" (the scheme in any case). Without keys everybody is Local, whatever was sent.
// Errors: CodeUnauthenticated "no_credential" and "bad_credential"; neither says how close a key was.
func (k *Keyring) Bearer(authorization string) (*Caller, *arbiter.Error) {
	if k.Empty() {
		return Local, nil
	}
	scheme, secret, _ := strings.Cut(strings.TrimSpace(authorization), " ")
	if !strings.EqualFold(scheme, "bearer") || secret == "" {
		return nil, arbiter.Errorf(arbiter.CodeUnauthenticated, "no_credential", `authorization: no bearer key: send "authorization: Bearer KEY" with a key of auth.keys`)
	}
	if c, ok := k.find(strings.TrimSpace(secret)); ok {
		return c, nil
	}
	return nil, arbiter.Errorf(arbiter.CodeUnauthenticated, "bad_credential", "authorization: the bearer key is not one of auth.keys: check the key, and that the server has loaded the file that holds it")
}

// maxSecret bounds what is hashed for somebody who may have no key at all.
const maxSecret = 4096

func (k *Keyring) find(secret string) (*Caller, bool) {
	if len(secret) > maxSecret {
		return nil, false
	}
	hash := k.hash(secret)
	var found *Caller
	for _, e := range k.keys[bucket(hash)] {
		if subtle.ConstantTimeCompare(e.hash[:], hash[:]) == 1 {
			found = e.caller
		}
	}
	return found, found != nil
}

func (k *Keyring) hash(secret string) [32]byte {
	buf := make([]byte, 0, 128)
	buf = append(buf, k.salt[:]...)
	return sha256.Sum256(append(buf, secret...))
}

func bucket(hash [32]byte) uint64 {
	return uint64(hash[0])<<24 | uint64(hash[1])<<16 | uint64(hash[2])<<8 | uint64(hash[3])
}
