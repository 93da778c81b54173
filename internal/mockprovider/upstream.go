package mockprovider

import (
	"net/http"
	"sync"
	"time"

	"github.com/token-budget-arbiter/tba/internal/provider"
)

// upstream is one provider at work. mu guards what follows it.
type upstream struct {
	Upstream
	dialect *provider.Dialect
	speaks  speaker
	began   time.Time
	keep    int

	mu      sync.Mutex
	gate    gate
	watch   watch
	report  Report
	calls   []Call
	dropped int64 // calls that are no longer kept: the number of a call minus this is its place in calls
}

// arrival is a call that has been counted.
type arrival struct {
	number  int64
	at      time.Duration
	refused refusal
	outage  *Outage
	storm   *Storm
	limits  snapshot
}

// snapshot is the state of the limits that the headers of one answer tell.
type snapshot struct {
	requests, tokens, input stand
	cost                    int64
	now                     time.Time
}

// stand is one limit at one moment; a ceiling of 0 is no limit and no header.
type stand struct {
	ceiling, remaining int64
	full               time.Duration
}

// arrive counts a call, by the upstream's own clock, and decides about it.
func (u *upstream) arrive(model string, c charge) arrival {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Since(u.began)
	a := arrival{number: u.dropped + int64(len(u.calls)), at: now}
	broken := u.watch.arrive(now, c)
	u.report.Calls++
	u.report.WindowViolations += broken
	if u.MaxConcurrency > 0 && u.gate.inFlight >= u.MaxConcurrency {
		u.report.SlotViolations++
	}
	call := Call{
		Upstream: u.Name, Model: model, Arrival: now, BrokenCeilings: broken,
		Prompt: c.prompt, Cap: c.cap,
	}
	switch a.outage, a.storm = u.scripted(now); {
	case a.outage != nil:
		u.report.Failed++
		call.Status, call.End, call.Scripted = a.outage.Status, now, true
	case a.storm != nil:
		u.report.Stormed++
		call.Status, call.End, call.Scripted = http.StatusTooManyRequests, now, true
	default:
		if a.refused = u.gate.enter(now, c); a.refused.axis != noAxis {
			u.report.Throttled++
			call.Status, call.End = http.StatusTooManyRequests, now
		}
		u.report.PeakInFlight = max(u.report.PeakInFlight, u.gate.inFlight)
	}
	a.limits = u.snapshot(now, c)
	if len(u.calls) >= 2*u.keep {
		u.dropped += int64(len(u.calls) - u.keep)
		u.calls = u.calls[:copy(u.calls, u.calls[len(u.calls)-u.keep:])]
	}
	u.calls = append(u.calls, call)
	return a
}

// leave books the end of a call that was let in. It frees the slot before the answer is written: who has read the
// answer may send the next call at once.
func (u *upstream) leave(a arrival, status int, input, output int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.gate.leave()
	if status == statusClientGone {
		u.report.Cancelled++
	} else {
		u.report.OK++
	}
	u.report.Input += input
	u.report.Output += output
	if i := a.number - u.dropped; i >= 0 {
		c := &u.calls[i]
		c.End, c.Status = time.Since(u.began), status
		c.Input, c.Output = input, output
	}
}

func (u *upstream) malformed() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.report.Malformed++
}

func (u *upstream) snapshot(now time.Duration, c charge) snapshot {
	of := func(w *window) stand {
		if w.ceiling == 0 {
			return stand{}
		}
		return stand{w.ceiling, w.remaining(now), w.full(now)}
	}
	return snapshot{
		requests: of(&u.gate.requests), tokens: of(&u.gate.tokens), input: of(&u.gate.input),
		cost: c.tokens(), now: u.began.Add(now),
	}
}
