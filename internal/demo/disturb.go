package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/token-budget-arbiter/tba/internal/mockprovider"
	"github.com/token-budget-arbiter/tba/internal/provider"
)

// disturbance is a span in which a provider fails.
type disturbance struct {
	from, until time.Duration // since the start of a wave
	provider    string
	fault       mockprovider.Fault
	begins      string
}

// disturbances happen in each busy part: the one breaks down just before a burst of the trace, the other throttles everybody
// later, although no limit of its is reached. Both are over before the calm, so that the fleet is seen to come back.
var disturbances = []disturbance{
	{2800 * time.Millisecond, 6 * time.Second, provider.OpenAI, mockprovider.Fault{Kind: mockprovider.FaultOverloaded}, "is down: every call gets 503"},
	{14 * time.Second, 16 * time.Second, provider.Gemini, mockprovider.Fault{Kind: mockprovider.FaultThrottle, Wait: 2 * time.Second}, "throttles everybody: every call gets 429"},
}

// disturb plays the disturbances until ctx ends. A run shorter than a busy part gets them in proportion.
func (r *run) disturb(ctx context.Context) {
	scale := 1.0
	if r.For > 0 {
		scale = min(r.For.Seconds()/busy.Seconds(), 1)
	}
	at := func(wave int, d time.Duration) bool {
		moment := r.began.Add(time.Duration(wave)*(busy+calm) + time.Duration(scale*float64(d)))
		timer := time.NewTimer(time.Until(moment))
		defer timer.Stop()
		select {
		case <-timer.C:
			return true
		case <-ctx.Done():
			return false
		}
	}
	for wave := 0; wave == 0 || r.For == 0 || time.Duration(wave)*(busy+calm) < r.For; wave++ {
		for _, d := range disturbances {
			if !at(wave, d.from) {
				return
			}
			r.set(d.provider, d.begins, d.fault)
			more := at(wave, d.until)
			r.set(d.provider, "is well again")
			if !more {
				return
			}
		}
	}
}

func (r *run) set(provider, what string, faults ...mockprovider.Fault) {
	if err := r.Mocks.SetFaults(provider, faults...); err != nil {
		what = err.Error() // a provider that the mocks do not have: Options.Mocks is not of Scale.MockOptions
	}
	fmt.Fprintf(r.Live, "%4.0fs  %s %s\n", time.Since(r.began).Seconds(), provider, what)
}
