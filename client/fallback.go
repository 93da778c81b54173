package client

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/bits"
	"math/rand/v2"
	"sync"
	"time"
)

// Fallback says what Acquire does while no arbiter answers. It is
// FallbackClosed or FallbackSafeCapacity.
type Fallback interface {
	local() (*safeCapacity, error)
}

// FallbackClosed refuses: Acquire returns *UnavailableError. It is the default,
// and the only one that can never pass a budget.
type FallbackClosed struct{}

func (FallbackClosed) local() (*safeCapacity, error) { return nil, nil }

// FallbackSafeCapacity lets each agent use its equal part of the ceilings, paced
// locally. Budgets are not checked and usage is not recorded, so it is for
// pools where a stop costs more than that.
type FallbackSafeCapacity struct {
	// Agents is how many share the ceilings, at least 1. This client counts as
	// one of them: give the number of processes, and too many rather than too few.
	Agents int
	// Rungs are the places to call, at least one. Work is spread over them by a
	// hash of task or agent id, so that a fleet does not move as a herd.
	Rungs []SafeRung
}

// SafeRung is one provider and model with its ceilings for the whole fleet.
type SafeRung struct {
	// Provider is required. Model may be empty: any.
	Provider, Model string
	// RequestsPerMinute is required, at least 1.
	RequestsPerMinute int64
	// TokensPerMinute limits estimates. 0: no limit.
	TokensPerMinute int64
}

func (f FallbackSafeCapacity) local() (*safeCapacity, error) {
	if f.Agents < 1 {
		return nil, fmt.Errorf("safe capacity: Agents is %d: at least 1", f.Agents)
	}
	if len(f.Rungs) == 0 {
		return nil, errors.New("safe capacity: no rung: name at least one provider")
	}
	s := &safeCapacity{agents: uint64(f.Agents)}
	for i, r := range f.Rungs {
		if r.Provider == "" || r.RequestsPerMinute < 1 || r.TokensPerMinute < 0 {
			return nil, fmt.Errorf("safe capacity: rung %d: needs Provider, RequestsPerMinute of at least 1, TokensPerMinute of at least 0", i)
		}
		s.rungs = append(s.rungs, &localRung{SafeRung: r})
	}
	return s, nil
}

// safeCapacity paces calls by the generic cell rate algorithm without burst:
// a cost of x is served at max(now, tat), and tat moves on by x minutes over
// the agent's part of the ceiling.
type safeCapacity struct {
	agents uint64
	mu     sync.Mutex
	rungs  []*localRung
}

type localRung struct {
	SafeRung
	begun        bool
	calls, spent time.Time // theoretical arrival times of requests and tokens
}

// reserve finds the rung that is free first, in hashed order, and takes its
// next slot if that is at most patience away.
func (s *safeCapacity) reserve(now time.Time, r *Request, patience time.Duration) (at *localRung, wait time.Duration, ok bool) {
	tokens := uint64(max(r.Tokens, r.InputTokens+r.OutputTokens, 1))
	key := r.Task
	if key == "" {
		key = r.AgentID
	}
	h := fnv.New64a()
	h.Write([]byte(key)) // never fails
	first := h.Sum64() % uint64(len(s.rungs))

	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.rungs {
		rung := s.rungs[(first+uint64(i))%uint64(len(s.rungs))]
		if r.Model != "" && rung.Model != "" && rung.Model != r.Model || r.excepts(rung.Provider, rung.Model) {
			continue
		}
		if !rung.begun {
			// A fleet loses its arbiter at one instant: the first slots are spread
			// over a whole interval.
			rung.begun = true
			rung.calls = now.Add(rand.N(min(jitterCap, s.cost(1, rung.RequestsPerMinute)) + 1))
		}
		if w := max(rung.calls.Sub(now), rung.spent.Sub(now), 0); at == nil || w < wait {
			at, wait = rung, w
		}
	}
	if at == nil || wait > patience {
		return at, wait, false
	}
	slot := now.Add(wait)
	at.calls = slot.Add(s.cost(1, at.RequestsPerMinute))
	if at.TokensPerMinute > 0 {
		at.spent = slot.Add(s.cost(tokens, at.TokensPerMinute))
	}
	return at, wait, true
}

// cost is ceil(x · agents · 60 s / ceiling), with a 128-bit product.
func (s *safeCapacity) cost(x uint64, ceiling int64) time.Duration {
	const most = time.Duration(1<<63 - 1)
	over, weight := bits.Mul64(x, s.agents)
	if over != 0 {
		return most
	}
	hi, lo := bits.Mul64(weight, uint64(time.Minute))
	lo, carry := bits.Add64(lo, uint64(ceiling)-1, 0)
	hi += carry
	if hi >= uint64(ceiling) {
		return most
	}
	d, _ := bits.Div64(hi, lo, uint64(ceiling))
	return time.Duration(min(d, uint64(most)))
}

func (c *Client) fallback(pool string) *safeCapacity {
	if f, ok := c.fallbacks[pool]; ok {
		return f
	}
	return c.fallbacks[""]
}

// acquireLocally grants from the agent's part of the ceilings.
func (c *Client) acquireLocally(ctx context.Context, f *safeCapacity, r *Request) (*Lease, error) {
	rung, wait, ok := f.reserve(time.Now(), r, max(r.MaxWait, 0))
	if rung == nil {
		return nil, fmt.Errorf("acquire lease: %w", &UnavailableError{
			Reason: "network", cause: fmt.Errorf("no fallback rung serves model %q", r.Model),
		})
	}
	if !ok {
		return nil, &DeferredError{RetryAfter: wait, Reason: "safe_capacity", LimitName: rung.Provider, Unit: "requests", Local: true}
	}
	if err := c.pause(ctx, wait); err != nil {
		return nil, fmt.Errorf("acquire lease: %w", err)
	}
	l := &Lease{
		c: c, requestID: r.ID, pool: r.Pool, provider: rung.Provider, model: rung.Model, local: true,
		tokens: max(r.Tokens, r.InputTokens+r.OutputTokens), phase: PhaseActive,
	}
	if l.model == "" {
		l.model = r.Model
	}
	l.outputTokens = l.tokens - r.InputTokens
	l.bear(ctx)
	return l, nil
}
