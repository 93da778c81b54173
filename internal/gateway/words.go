package gateway

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/provider"
)

func detailOf(g *Grant, now time.Time) *detail {
	c := &g.Check
	x := &detail{Reason: c.Reason.String(), Budget: c.LimitName(), DecisionID: g.Decision}
	if x.Budget != "" {
		x.Scope = c.ScopeKind.String()
	}
	if c.Unit != arbiter.UnitNone {
		x.figures = &figures{Unit: c.UnitName(), Limit: c.Limit, Used: c.Used, Held: c.Held, Asked: c.Asked}
	}
	if t, ok := resets(g, now); ok {
		x.ResetsAt = t.Format(time.RFC3339)
	}
	return x
}

// resets is when there is room again: of a deferral its slot, of a denial the new period.
func resets(g *Grant, now time.Time) (time.Time, bool) {
	switch {
	case g.Status == arbiter.Deferred && g.RetryAfter > 0:
		// Up to the second, so that the time as it is printed is never early.
		return now.Add(g.RetryAfter + time.Second - 1).UTC().Truncate(time.Second), true
	case g.Check.ResetsAt > 0 && g.Check.Reason != arbiter.ReasonTooLarge:
		return time.Unix(0, g.Check.ResetsAt).UTC(), true
	}
	return time.Time{}, false
}

// limitsOf are the ceilings of a refusal by a provider's window, as limit headers state them.
func limitsOf(g *Grant) []provider.Limit {
	c := &g.Check
	if c.Reason < arbiter.ReasonRPM || c.Reason > arbiter.ReasonRPD || c.Limit <= 0 {
		return nil
	}
	l := provider.Limit{Dim: arbiter.Dim(c.Reason), Per: time.Minute, Limit: c.Limit, Remaining: max(c.Limit-c.Used-c.Held, 0), Reset: g.RetryAfter, HasReset: g.RetryAfter > 0}
	if l.Dim == arbiter.DimRPD {
		l.Per = 24 * time.Hour
	}
	return []provider.Limit{l}
}

// sentence is a refusal for a person: what, how much, until when, what to do.
func sentence(g *Grant, f *refusal, now time.Time, o refuseOptions) string {
	c := &g.Check
	var b strings.Builder
	where := place(c)
	switch c.Reason {
	case arbiter.ReasonRPM:
		fmt.Fprintf(&b, "The limit of requests per minute of %s is reached", where)
	case arbiter.ReasonTPM:
		fmt.Fprintf(&b, "The limit of tokens per minute of %s is reached", where)
	case arbiter.ReasonInputTPM:
		fmt.Fprintf(&b, "The limit of input tokens per minute of %s is reached", where)
	case arbiter.ReasonOutputTPM:
		fmt.Fprintf(&b, "The limit of output tokens per minute of %s is reached", where)
	case arbiter.ReasonRPD:
		fmt.Fprintf(&b, "The limit of requests per day of %s is reached", where)
	case arbiter.ReasonSlots:
		fmt.Fprintf(&b, "All concurrent calls that %s allows are running", where)
	case arbiter.ReasonBudget:
		if g.Status == arbiter.Deferred && c.Held > 0 && f.kind == provider.RateLimited {
			fmt.Fprintf(&b, "The budget of %s is held by running calls", where)
		} else {
			fmt.Fprintf(&b, "The budget of %s is used up", where)
		}
	case arbiter.ReasonClass:
		fmt.Fprintf(&b, "The budget share of %s is used up for now", where)
	case arbiter.ReasonHold:
		fmt.Fprintf(&b, "Calls to %s are held back because the provider asked to wait", where)
	case arbiter.ReasonBreaker:
		fmt.Fprintf(&b, "Calls to %s are stopped because it keeps failing, and no other can take this one", where)
	case arbiter.ReasonQueue:
		b.WriteString("Older or more urgent calls wait for the same room")
	case arbiter.ReasonTooLarge:
		fmt.Fprintf(&b, "The call is larger than %s ever allows", where)
	case arbiter.ReasonUnpricedModel:
		b.WriteString("The model")
		if name := o.model; name != "" {
			b.WriteString(" " + strconv.Quote(name))
		} else if c.Scope != "" {
			b.WriteString(" " + strconv.Quote(c.Scope))
		}
		b.WriteString(" has no price here, so its cost cannot be bounded")
	case arbiter.ReasonPrincipal:
		if c.Unit == arbiter.UnitRequests {
			b.WriteString("This API key has as many calls open as it may")
		} else {
			b.WriteString("This API key holds as many tokens in open calls as it may")
		}
	case arbiter.ReasonNoRung:
		if o.tried {
			b.WriteString("Every provider that could take the call has been tried")
		} else {
			b.WriteString("No provider that could take the call understands the API of this path")
		}
	case arbiter.ReasonExhausted:
		fmt.Fprintf(&b, "Calls to %s are shut off by its provider: the account is used up, or the wait it named is a long one", where)
	default:
		b.WriteString("The arbiter refused the call")
	}
	if c.Unit != arbiter.UnitNone {
		fmt.Fprintf(&b, ": %s", amounts(c))
	}
	b.WriteString(". ")
	b.WriteString(advice(g, f, now, o))
	return b.String()
}

// advice is what to do about a refusal, with the time where one is known.
func advice(g *Grant, f *refusal, now time.Time, o refuseOptions) string {
	c := &g.Check
	until, known := resets(g, now)
	switch {
	case f.kind == provider.TooLarge:
		return "Send a shorter prompt or ask for less output (max_tokens); waiting does not help."
	case c.Reason == arbiter.ReasonUnpricedModel:
		return "Name a model of the catalogue, or ask the operator to give it a price."
	case c.Reason == arbiter.ReasonNoRung && !o.tried:
		return "Call the path of a provider that serves it, or ask the operator for a rung that does."
	case f.retryAfter > 0:
		return fmt.Sprintf("Try again in %d s.", wholeSeconds(f.retryAfter))
	case c.Reason == arbiter.ReasonExhausted && known:
		return fmt.Sprintf("It is tried again at %s, or when the operator has looked after the account; do not retry before.", until.Format(time.RFC3339))
	case c.Reason == arbiter.ReasonExhausted:
		return "It opens again by itself or when the operator has looked after the account; do not retry."
	case known && f.kind == provider.QuotaExhausted:
		return fmt.Sprintf("It is renewed at %s; do not retry before, or ask the operator for a larger budget.", until.Format(time.RFC3339))
	case known:
		return fmt.Sprintf("There is room again at %s; do not retry before.", until.Format(time.RFC3339))
	case f.kind == provider.QuotaExhausted:
		return "It is not renewed by itself; ask the operator for a larger budget, or end the task."
	}
	return "Do not retry; ask the operator."
}

// place names what a limit belongs to, in a sentence.
func place(c *arbiter.Check) string {
	switch {
	case c.Scope != "":
		return c.ScopeKind.String() + " " + c.ScopeName()
	case c.ScopeKind == arbiter.KindGlobal && c.Unit == arbiter.UnitNone:
		return "every provider"
	case c.ScopeKind == arbiter.KindGlobal:
		return "the whole pool"
	case c.ScopeKind == arbiter.KindCredential:
		return "this API key"
	}
	return "the " + c.ScopeKind.String()
}

// amounts are the figures of a check: "limit 60, used 57, held 3, asked 1 requests".
func amounts(c *arbiter.Check) string {
	if c.Unit == arbiter.UnitNanos {
		return fmt.Sprintf("limit %s, used %s, held %s, asked %s", usd(c.Limit), usd(c.Used), usd(c.Held), usd(c.Asked))
	}
	return fmt.Sprintf("limit %d, used %d, held %d, asked %d %s", c.Limit, c.Used, c.Held, c.Asked, c.UnitName())
}

// usd prints nano-dollars exactly, with cents at least: "$0.25", "$0.0017207".
func usd(nanos int64) string {
	sign := ""
	if nanos < 0 {
		sign, nanos = "-", -nanos
	}
	part := strings.TrimRight(fmt.Sprintf("%09d", nanos%1_000_000_000), "0")
	for len(part) < 2 {
		part += "0"
	}
	return fmt.Sprintf("%s$%d.%s", sign, nanos/1_000_000_000, part)
}
