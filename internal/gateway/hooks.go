package gateway

import (
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/provider"
)

// Hooks watch the gateway, for metrics. A nil one is skipped. They are called on the path of a call: they must not wait.
type Hooks struct {
	// Call is told of each call at its end.
	Call func(Ended)
	// Upstream is told of each answer of a provider, of each that did not come, and of each error in the middle of one that had begun well.
	Upstream func(Answered)
	// Failover is told when a call leaves a rung that failed it.
	Failover func(provider, model string)
	// Settled is told of each commit.
	Settled func(Bill)
	// Draining is told how many answers are read on although their agents have left.
	Draining func(n int64)
}

// Ended is a call that is over.
type Ended struct {
	// Endpoint is the provider.Endpoint's name, "" for a path that is none.
	Endpoint string
	// Status is what the agent got, 0 when it left before; Refused says that it was our own word.
	Status  int
	Refused bool
	// Tries is how often the call went up.
	Tries int
	// Overhead is what the gateway added before the call went up for the first time, without the waiting for room; 0 when it did not.
	Overhead time.Duration
}

// Answered is an answer of a provider.
type Answered struct {
	Provider, Model string
	// Status is 0 when no answer came.
	Status int
	// Class is provider.NoError for a good answer. For a Throttle Dim is the dimension and Wait what the provider asked for.
	Class provider.Class
	Dim   arbiter.Dim
	Wait  time.Duration
	// FirstByte is the time to the head of the answer; 0 for an error in the middle of one.
	FirstByte time.Duration
}

// Bill is what a call was settled at.
type Bill struct {
	Provider, Model, Class string
	Usage                  arbiter.Usage
	Estimated              bool
	// Expected is the input that was estimated before the call; 0 when there was nothing to estimate.
	Expected int64
}

func (h *Hooks) ended(x *exchange) {
	if h.Call == nil {
		return
	}
	e := Ended{Status: x.status, Refused: x.refused, Tries: x.tried, Overhead: x.overhead}
	if x.endpoint != nil {
		e.Endpoint = x.endpoint.Name()
	}
	h.Call(e)
}

func (h *Hooks) upstream(t *try, status int, v provider.Verdict) {
	if h.Upstream == nil {
		return
	}
	a := Answered{Provider: t.grant.Provider, Model: t.grant.Model, Status: status, Class: v.Class, Dim: v.Dim, Wait: v.Wait, FirstByte: t.firstByte}
	if v.Class != provider.NoError && t.metering.Load() {
		a.FirstByte = 0 // told when the answer began
	}
	h.Upstream(a)
}

func (h *Hooks) failover(t *try) {
	if h.Failover != nil {
		h.Failover(t.grant.Provider, t.grant.Model)
	}
}

func (h *Hooks) settled(t *try, r *Report) {
	if h.Settled != nil {
		h.Settled(Bill{Provider: t.grant.Provider, Model: t.grant.Model, Class: t.x.ask.Class, Usage: r.Usage, Estimated: r.Estimated, Expected: t.x.estimated})
	}
}

func (h *Hooks) draining(n int64) {
	if h.Draining != nil {
		h.Draining(n)
	}
}
