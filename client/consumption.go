package client

import (
	"sync/atomic"
	"time"
)

// Consumption is what an agent has used so far, as far as it knows.
type Consumption struct {
	// Calls begun, and of the requests made for them: how many were granted,
	// deferred, denied.
	Calls, Granted, Deferred, Denied int64
	// Local counts grants of the fallback, part of Granted: nothing has checked
	// their budget or recorded their usage.
	Local int64
	// Shed counts calls that were held or dropped because of backpressure.
	Shed int64
	// Succeeded, Failed, Throttled and NotSent count how calls ended; a throttled
	// call that asks again may end several times.
	Succeeded, Failed, Throttled, NotSent int64
	// Tokens recorded by the arbiter, or reported, where its word is still out.
	Tokens int64
	// CostNanos recorded by the arbiter, in nano-USD.
	CostNanos int64
	// Waited is the time spent on delays and deferrals, over all calls.
	Waited time.Duration
}

// Spend is what one call has used.
type Spend struct {
	// Agent, Provider and Model say whose and where.
	Agent, Provider, Model string
	// Report is what the call said.
	Report Report
	// Receipt is what the arbiter recorded. Pending: it does not know yet.
	Receipt Receipt
	// Err is why the commit did not count. nil: it did.
	Err error
}

type sums struct {
	calls, granted, deferred, denied atomic.Int64
	local, shed                      atomic.Int64
	ok, failed, throttled, notSent   atomic.Int64
	tokens, cost, wait               atomic.Int64
}

func (s *sums) waited(d time.Duration) { s.wait.Add(int64(d)) }

func (s *sums) outcome(o Outcome) {
	switch o {
	case OutcomeOK, OutcomeUnspecified:
		s.ok.Add(1)
	case OutcomeThrottled:
		s.throttled.Add(1)
	case OutcomeNotSent:
		s.notSent.Add(1)
	default:
		s.failed.Add(1)
	}
}

// Consumption returns the agent's counters. They are read one by one, so that
// sums may be off by the calls of that moment.
func (a *Agent) Consumption() Consumption {
	s := &a.sums
	return Consumption{
		Calls: s.calls.Load(), Granted: s.granted.Load(), Deferred: s.deferred.Load(), Denied: s.denied.Load(),
		Local: s.local.Load(), Shed: s.shed.Load(),
		Succeeded: s.ok.Load(), Failed: s.failed.Load(), Throttled: s.throttled.Load(), NotSent: s.notSent.Load(),
		Tokens: s.tokens.Load(), CostNanos: s.cost.Load(), Waited: time.Duration(s.wait.Load()),
	}
}

func (a *Agent) spent(l *Lease, r Report, got Receipt, err error) {
	switch {
	case err != nil:
	case got.Pending:
		a.sums.tokens.Add(r.Usage.Tokens())
	default:
		a.sums.tokens.Add(got.Tokens)
		a.sums.cost.Add(got.CostNanos)
		if !got.Local {
			a.observe(got.Level, got.Delay)
		}
	}
	if a.opts.OnConsumption != nil {
		a.opts.OnConsumption(Spend{Agent: a.opts.ID, Provider: l.provider, Model: l.model, Report: r, Receipt: got, Err: err})
	}
}
