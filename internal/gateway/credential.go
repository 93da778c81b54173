package gateway

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/token-budget-arbiter/tba/internal/provider"
)

// refusedKey remembers that a provider's credential, as this gateway has it, does not work: refused by the provider, or not readable. It is
// this gateway's matter alone: another one, or an agent that calls by itself, may have a key that works, so the arbiter is not told. The
// zero value is a key of which nothing bad is known. Safe for concurrent use.
type refusedKey struct {
	until atomic.Int64 // Unix ns; 0: it works as far as is known

	mu  sync.Mutex
	sum uint64 // of the key that was refused, 0 for one that could not be read
}

var keySeed = maphash.MakeSeed()

// readKey is a sum of the key as it is now, 0 when it cannot be read.
func (up *upstream) readKey() uint64 {
	if up.Key == nil {
		return 1
	}
	key, err := up.Key()
	if err != nil {
		return 0
	}
	return maphash.String(keySeed, key) | 1
}

// shut keeps calls away from a provider that refused our key, until the key is another one or somebody may have mended it at the provider.
func (up *upstream) shut(now time.Time) {
	up.refused.mu.Lock()
	defer up.refused.mu.Unlock()
	up.refused.sum = up.readKey()
	up.refused.until.Store(now.Add(provider.KeyHold).UnixNano())
}

// isShut reports whether calls are kept away. A key that was replaced opens the provider at once.
func (up *upstream) isShut(now time.Time) bool {
	until := up.refused.until.Load()
	if until == 0 {
		return false
	}
	up.refused.mu.Lock()
	defer up.refused.mu.Unlock()
	if now.UnixNano() < until && up.readKey() == up.refused.sum {
		return true
	}
	up.refused.until.Store(0)
	return false
}
