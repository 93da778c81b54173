package gateway

import (
	"net/http"
	"strconv"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/provider"
)

// Headers of an answer that came from a provider.
const (
	headerLease        = "X-Tba-Lease"
	headerProvider     = "X-Tba-Provider"
	headerModel        = "X-Tba-Model"
	headerWait         = "X-Tba-Wait-Ms"
	headerBackpressure = "X-Tba-Backpressure"
	headerBudget       = "X-Tba-Budget"
)

// succeed adds to a provider's answer what the arbiter did for it, and lowers the limit headers of dialect d to the rung's own ceilings where
// those are tighter. now is Unix time.
func succeed(h http.Header, g *Grant, d *provider.Dialect, now time.Time) {
	values := make([]string, 0, 8) // of all that follow: there are many in every answer
	put := func(name, value string) {
		if value != "" {
			n := len(values)
			values = append(values, value)
			h[name] = values[n : n+1 : n+1] // the names are canonical
		}
	}
	put(headerOrigin, originUpstream)
	put(headerDecision, g.Decision)
	put(headerLease, g.ID)
	put(headerProvider, g.Provider)
	put(headerModel, g.Model)
	put(headerWait, strconv.FormatInt(max(g.Waited, 0).Milliseconds(), 10))
	put(headerBackpressure, backpressure(g.Level, g.DelayMS))
	if g.Figures != nil {
		tightest, ceilings := g.Figures()
		put(headerBudget, budgetLine(tightest, now))
		if len(ceilings) > 0 {
			d.SetLimits(h, ceilings, now)
		}
	}
}

// levelWords are the levels of backpressure as a header has them.
var levelWords = [...]string{"none", "mild", "moderate", "severe", "critical"}

// backpressure is the pool's level as a header: "none", "moderate;delay-ms=800".
func backpressure(level arbiter.Level, delayMS int32) string {
	word := levelWords[min(int(level), len(levelWords)-1)]
	if delayMS <= 0 {
		return word
	}
	return word + ";delay-ms=" + strconv.Itoa(int(delayMS))
}

// budgetLine is the tightest budget of a grant as a header: "class/batch;remaining=41200;unit=tokens;resets=2026-12-01T00:00:00Z".
// "" when the arbiter named none. What the lease holds is not counted as remaining.
func budgetLine(c *arbiter.Check, now time.Time) string {
	if c == nil || c.Unit == arbiter.UnitNone {
		return ""
	}
	var room [128]byte
	b := append(room[:0], c.LimitName()...)
	b = append(b, ";remaining="...)
	b = strconv.AppendInt(b, max(c.Limit-c.Used-c.Held, 0), 10)
	b = append(b, ";unit="...)
	b = append(b, c.UnitName()...)
	if c.ResetsAt > now.UnixNano() {
		b = append(b, ";resets="...)
		b = time.Unix(0, c.ResetsAt).UTC().AppendFormat(b, time.RFC3339)
	}
	return string(b)
}
