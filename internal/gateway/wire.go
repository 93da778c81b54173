package gateway

import (
	"strings"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/client"
)

// The words of the wire back into the arbiter's own numbers.

// reasons are the arbiter's reasons by their wire words.
var reasons = func() map[string]arbiter.Reason {
	m := map[string]arbiter.Reason{}
	for r := arbiter.ReasonNone; ; r++ {
		if _, seen := m[r.String()]; seen { // beyond the last one, the word is the last one's
			return m
		}
		m[r.String()] = r
	}
}()

// kinds are the kinds of limits by the first part of a limit's name.
var kinds = func() map[string]arbiter.NodeKind {
	m := map[string]arbiter.NodeKind{}
	for k := arbiter.KindGlobal; k <= arbiter.KindCredential; k++ {
		m[k.String()] = k
	}
	return m
}()

// toCheck is a refusal's figures as the wire carries them.
func toCheck(reason, name, unit string, limit, used, held, asked int64, resets time.Time) arbiter.Check {
	c := arbiter.Check{Reason: reasons[reason], Limit: limit, Used: used, Held: held, Asked: asked}
	kind, scope, _ := strings.Cut(name, "/")
	c.ScopeKind, c.Scope = kinds[kind], scope
	if provider, model, ok := strings.Cut(scope, "/"); ok && c.ScopeKind == arbiter.KindModel {
		c.Provider, c.Scope = provider, model
	}
	switch unit {
	case "tokens":
		c.Unit = arbiter.UnitTokens
	case "nano_usd":
		c.Unit = arbiter.UnitNanos
	case "requests":
		c.Unit = arbiter.UnitRequests
	case "slots":
		c.Unit = arbiter.UnitRequests
		if c.Reason != arbiter.ReasonSlots {
			c.Of = arbiter.ReasonSlots
		}
	}
	if !resets.IsZero() {
		c.ResetsAt = resets.UnixNano()
	}
	return c
}

// toPriority is a bounded priority for a request. LOW reaches the arbiter as the class's default: the published wire cannot tell them apart.
func toPriority(p arbiter.Priority) client.Priority {
	if p == arbiter.ClassPriority {
		return client.PriorityDefault
	}
	return client.PriorityLow + client.Priority(p)
}

func toMillis(d time.Duration) int32 { return int32(min(max(d.Milliseconds(), 0), 1<<31-1)) }

// toReport is a report for the client. Without usage and estimate the lease settles at what it held.
func toReport(r Report) client.Report {
	out := client.Report{Outcome: client.Outcome(r.Outcome), Latency: r.Latency, FirstByte: r.FirstByte}
	if u := r.Usage; r.HasUsage {
		out.Usage = client.Usage{
			Input: int64(u.Input), CacheRead: int64(u.CacheRead), CacheWrite: int64(u.CacheWrite), CacheWriteLong: int64(u.CacheWriteLong),
			Output: int64(u.Output), Reasoning: int64(u.Reasoning), Measured: true, Estimated: r.Estimated,
		}
	} else {
		out.Usage = client.Usage{Total: int64(r.Actual), Estimated: r.Estimated}
	}
	if s := r.Signal; s != (arbiter.ProviderSignal{}) {
		out.Provider = &client.ProviderSignal{Status: int(s.Status), RetryAfter: time.Duration(s.RetryAfter), Dimension: s.Dim.String()}
	}
	return out
}
