package mockprovider

import (
	"net/http"
	"sync"
	"time"
)

// upstream is one provider at work. mu guards what follows it.
type upstream struct {
	Upstream
	api     *api
	began   time.Time
	keep    int
	instant *instant // nil: calls are worked on

	mu      sync.Mutex
	gate    gate
	watch   watch
	faults  []scriptedFault
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
	faulted bool // by a fault that bills nothing: fails will close it
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

// arrive counts a call, by the upstream's own clock, and decides about it. call says who asks for what.
func (u *upstream) arrive(call Call, c charge, f *Fault) arrival {
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
	call.Upstream, call.Arrival, call.BrokenCeilings, call.Prompt, call.Cap = u.Name, now, broken, c.prompt, c.cap
	if f != nil {
		call.Fault = f.Kind
	}
	switch a.outage, a.storm = u.scripted(now); {
	case a.outage != nil:
		u.report.Failed++
		call.Status, call.End, call.Scripted = a.outage.Status, now, true
	case a.storm != nil:
		u.report.Stormed++
		call.Status, call.End, call.Scripted = http.StatusTooManyRequests, now, true
	case !f.billed():
		a.faulted = true
		call.Scripted = true
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

// fails books the status with which a fault that bills nothing answered.
func (u *upstream) fails(a arrival, status int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if status == http.StatusTooManyRequests {
		u.report.Stormed++
	} else {
		u.report.Failed++
	}
	if i := a.number - u.dropped; i >= 0 {
		u.calls[i].End, u.calls[i].Status = time.Since(u.began), status
	}
}

// leave books the end of a call that was let in. It frees the slot before the answer is written: who has read the
// answer may send the next call at once. broken says that a fault ended it.
func (u *upstream) leave(a arrival, status int, b Bill, broken bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.gate.leave()
	switch {
	case broken:
		u.report.Broken++
	case status == statusClientGone:
		u.report.Cancelled++
	default:
		u.report.OK++
	}
	u.report.add(b)
	if i := a.number - u.dropped; i >= 0 {
		c := &u.calls[i]
		c.End, c.Status, c.Bill, c.Broken = time.Since(u.began), status, b, broken
	}
}

func (u *upstream) free() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.report.Free++
}

// instantly books a call that was answered at once. It leaves no line in the log.
func (u *upstream) instantly(b Bill) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.report.Calls++
	u.report.OK++
	u.report.add(b)
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
