package gateway

import (
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/token-budget-arbiter/tba/internal/provider"
)

// refusedKeys remembers for which models of a provider its credential, as this gateway has it, does not work: the provider refused it there,
// or it cannot be read. It is this gateway's matter alone: another one, or an agent that calls by itself, may have a key that works, so the
// arbiter is not told. And it is a matter of one model, because a key may be good for some models and not for others. The zero value is a
// key of which nothing bad is known. Safe for concurrent use.
type refusedKeys struct {
	some atomic.Bool // whether by has any

	mu sync.Mutex
	by map[string]badKey // by model
}

// badKey is a key that was refused: its sum, unread for one that could not be read, and until when it is not sent again.
type badKey struct {
	sum   uint64
	until time.Time
}

var keySeed = maphash.MakeSeed()

const unread = 0

func sumOf(key string) uint64 { return maphash.String(keySeed, key) | 1 }

// keySum is the sum of the key as it is now.
func (up *upstream) keySum() uint64 {
	if up.Key == nil {
		return sumOf("")
	}
	key, err := up.Key()
	if err != nil {
		return unread
	}
	return sumOf(key)
}

// shut keeps calls of a model away from a provider that refused the key of that sum, until the key is another one or somebody may have
// mended it at the provider.
func (up *upstream) shut(model string, sum uint64, now time.Time) {
	up.refused.mu.Lock()
	defer up.refused.mu.Unlock()
	if up.refused.by == nil {
		up.refused.by = map[string]badKey{}
	}
	up.refused.by[model] = badKey{sum, now.Add(provider.KeyHold)}
	up.refused.some.Store(true)
}

// exceptShut adds the rungs to except that calls are kept away from. A key that was replaced opens them at once.
func (up *upstream) exceptShut(except []string, now time.Time) []string {
	if !up.refused.some.Load() {
		return except
	}
	up.refused.mu.Lock()
	defer up.refused.mu.Unlock()
	sum := up.keySum()
	for model, r := range up.refused.by {
		rung := rungName(up.Name, model)
		switch {
		case r.sum != sum || !now.Before(r.until):
			delete(up.refused.by, model)
		case !slices.Contains(except, rung) && !slices.Contains(except, up.Name):
			except = append(except, rung)
		}
	}
	up.refused.some.Store(len(up.refused.by) > 0)
	return except
}
