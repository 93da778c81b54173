package mockprovider

import "time"

// axis is what a limit counts. The zero value is no limit at all.
type axis uint8

const (
	noAxis axis = iota
	requestAxis
	tokenAxis // prompt and cap together
	inputAxis
	slotAxis
)

// charge is what one call counts against the limits.
type charge struct{ prompt, cap int64 }

func (c charge) tokens() int64 { return c.prompt + c.cap }

// refusal says why a call was not let in. The zero value is "let in".
type refusal struct {
	axis               axis
	wait               time.Duration // until it would fit; 0 for slots, where nobody can know
	never              bool          // larger than the whole limit
	limit, used, asked int64
}

// gate decides which calls an upstream takes, from its own books alone.
type gate struct {
	requests, tokens, input    window // what was let in
	requestBucket, tokenBucket bucket
	slots, inFlight            int64
	countRejected              bool
}

func newGate(u *Upstream, length time.Duration) gate {
	return gate{
		requests:      window{length: length, ceiling: u.RPM},
		tokens:        window{length: length, ceiling: u.TPM},
		input:         window{length: length, ceiling: u.InputTPM},
		requestBucket: bucket{size: u.BurstRequests, each: length, per: u.RPM},
		tokenBucket:   bucket{size: u.BurstTokens, each: length, per: u.TPM},
		slots:         u.MaxConcurrency,
		countRejected: u.CountRejected,
	}
}

// enter lets a call in and charges it, or refuses it for the limit that stays shut longest. A call that was let in must
// leave.
func (g *gate) enter(now time.Duration, c charge) refusal {
	var worst refusal
	for _, l := range [...]struct {
		axis axis
		n    int64
		w    *window
		b    *bucket
	}{
		{requestAxis, 1, &g.requests, &g.requestBucket},
		{tokenAxis, c.tokens(), &g.tokens, &g.tokenBucket},
		{inputAxis, c.prompt, &g.input, &bucket{}},
	} {
		if l.w.ceiling == 0 {
			continue
		}
		r := refusal{axis: l.axis, limit: l.w.ceiling, used: l.w.sum, asked: l.n}
		if l.n > l.w.ceiling {
			r.never = true
			return r
		}
		if r.wait = max(l.w.wait(now, l.n), l.b.wait(now, l.n)); r.wait > worst.wait {
			r.used = l.w.sum
			worst = r
		}
	}
	if worst.axis == noAxis && g.slots > 0 && g.inFlight >= g.slots {
		worst = refusal{axis: slotAxis, limit: g.slots, used: g.inFlight, asked: 1}
	}
	if worst.axis == noAxis || g.countRejected {
		g.count(now, c)
	}
	if worst.axis == noAxis {
		g.inFlight++
	}
	return worst
}

func (g *gate) count(now time.Duration, c charge) {
	g.requests.add(now, 1)
	g.tokens.add(now, c.tokens())
	g.input.add(now, c.prompt)
	g.requestBucket.take(now, 1)
	g.tokenBucket.take(now, c.tokens())
}

func (g *gate) leave() { g.inFlight-- }

// watch finds windows in which more arrived than the declared ceilings allow. It sees every call, refused or not: a
// window of any position is over its ceiling exactly if the one that ends with some arrival is.
type watch struct{ requests, tokens, input window }

func newWatch(u *Upstream, length time.Duration) watch {
	return watch{
		requests: window{length: length, ceiling: u.RPM},
		tokens:   window{length: length, ceiling: u.TPM},
		input:    window{length: length, ceiling: u.InputTPM},
	}
}

// arrive counts a call and says how many ceilings it broke.
func (w *watch) arrive(now time.Duration, c charge) (broken int64) {
	for _, x := range [...]struct {
		w *window
		n int64
	}{{&w.requests, 1}, {&w.tokens, c.tokens()}, {&w.input, c.prompt}} {
		if x.w.ceiling == 0 {
			continue
		}
		if x.w.add(now, x.n); x.w.sum > x.w.ceiling {
			broken++
		}
	}
	return broken
}
