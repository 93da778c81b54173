package client

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	jitterBase = time.Second
	jitterCap  = 30 * time.Second
	// maxTries bounds how often one call is put to an arbiter that does not answer.
	maxTries = 2
)

// fullJitter is the wait before a retry that nobody has scheduled: uniform in
// [0, min(30 s, 1 s · 2^attempt)], attempt from 0. Spreading over the whole
// interval, not around its end, is what keeps a fleet from returning together.
func fullJitter(attempt int) time.Duration {
	most := jitterCap
	if attempt < 5 { // 1 s · 2^5 is above the cap
		most = jitterBase << max(attempt, 0)
	}
	return rand.N(most + 1)
}

// sleep waits for d or the end of ctx, whose cause it returns.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
