package gateway

import (
	"strings"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/client"
	"github.com/token-budget-arbiter/tba/internal/provider"
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

// dims are the dimensions of ceilings by their wire words.
var dims = func() map[string]arbiter.Dim {
	m := map[string]arbiter.Dim{}
	for _, d := range [...]arbiter.Dim{arbiter.DimRPM, arbiter.DimTPM, arbiter.DimInputTPM, arbiter.DimOutputTPM, arbiter.DimRPD} {
		m[d.String()] = d
	}
	return m
}()

// toFigures are the limits of a grant as [Grant.Figures] tells them.
func toFigures(list []client.LimitState) (tightest *arbiter.Check, limits []provider.Limit) {
	for i := range list {
		s := &list[i]
		dim, ceiling := dims[s.Name]
		if !ceiling {
			if tightest == nil {
				c := toCheck("", s.Name, s.Unit, s.Limit, s.Used, s.Held, 0, s.ResetsAt)
				tightest = &c
			}
			continue
		}
		l := provider.Limit{Dim: dim, Per: time.Minute, Limit: s.Limit, Remaining: max(s.Limit-s.Used-s.Held, 0), Reset: s.Reset, HasReset: s.HasReset}
		if dim == arbiter.DimRPD {
			l.Per = 24 * time.Hour
		}
		limits = append(limits, l)
	}
	return tightest, limits
}

// toPriority is a bounded priority for a request.
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
	out.Usage.Model, out.Usage.ServiceTier, out.Usage.LongestPrompt = r.Model, r.Tier, int64(r.Longest)
	if s := r.Signal; s != (arbiter.ProviderSignal{}) {
		out.Provider = &client.ProviderSignal{Status: int(s.Status), RetryAfter: time.Duration(s.RetryAfter), Dimension: s.Dim.String(), ModelOnly: s.ModelOnly}
	}
	return out
}
