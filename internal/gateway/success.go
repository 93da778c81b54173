package gateway

import (
	"net/http"
	"strconv"
	"strings"
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

// succeed adds to a provider's answer what the arbiter did for it, and lowers the limit headers of dialect d to limits and to the rung's own
// ceilings where those are tighter. now is Unix time.
func succeed(h http.Header, g *Grant, d *provider.Dialect, limits []provider.Limit, now time.Time) {
	h.Set(headerOrigin, originUpstream)
	put := func(name, value string) {
		if value != "" {
			h.Set(name, value)
		}
	}
	put(headerDecision, g.Decision)
	put(headerLease, g.ID)
	put(headerProvider, g.Provider)
	put(headerModel, g.Model)
	h.Set(headerWait, strconv.FormatInt(max(g.Waited, 0).Milliseconds(), 10))
	h.Set(headerBackpressure, backpressure(g.Level, g.DelayMS))
	if g.Figures != nil {
		tightest, ours := g.Figures()
		put(headerBudget, budgetLine(tightest, now))
		if len(ours) > 0 {
			d.SetLimits(h, ours, now)
		}
	}
	if len(limits) > 0 {
		d.SetLimits(h, limits, now)
	}
}

// backpressure is the pool's level as a header: "none", "moderate;delay-ms=800".
func backpressure(level arbiter.Level, delayMS int32) string {
	word := strings.ToLower(level.String())
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
	var b strings.Builder
	b.WriteString(limitName(c))
	b.WriteString(";remaining=")
	b.WriteString(strconv.FormatInt(max(c.Limit-c.Used-c.Held, 0), 10))
	b.WriteString(";unit=")
	b.WriteString(unitName(c))
	if c.ResetsAt > now.UnixNano() {
		b.WriteString(";resets=")
		b.WriteString(time.Unix(0, c.ResetsAt).UTC().Format(time.RFC3339))
	}
	return b.String()
}
