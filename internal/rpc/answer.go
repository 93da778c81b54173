package rpc

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/engine"
	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
)

// parseLease reads a lease id. A text that no lease can have is refused as malformed, so that a mix-up of ids is seen at once.
func parseLease(field, s string) (arbiter.LeaseID, *arbiter.Error) {
	if s == "" {
		return arbiter.LeaseID{}, invalid(field, "missing", "empty: send the lease_id of the grant")
	}
	id, err := engine.ParseLeaseID(s)
	if err != nil {
		return id, invalid(field, "bad_lease_id", "%q is no lease id (%d characters of 0-9 A-Z): send the lease_id of the grant as it came", cut(s), engine.LeaseIDLength)
	}
	return id, nil
}

// pressure is the part of a pool's backpressure that rides on every answer.
type pressure struct {
	level tbav1.BackpressureSignal_Level
	delay int32
}

// toResponse writes a decision into an empty m as the wire carries it. now is the logical time of the decision: a
// repeated lease was granted before it.
func toResponse(m *tbav1.LeaseResponse, a *arbiter.Answer, now int64, p pressure) {
	m.Status = tbav1.LeaseStatus(a.Status)
	m.Backpressure, m.RecommendedDelayMs = p.level, p.delay
	m.Replayed = a.Flags&arbiter.FlagRepeat != 0
	if a.Status == arbiter.Granted {
		l := &a.Lease
		if a.Flags&arbiter.FlagRepeat == 0 {
			now = l.Granted // a dry run has no other
		}
		m.LeaseId = engine.FormatLeaseID(l.Lease)
		m.AssignedProvider, m.AssignedModel = l.Provider, l.Model
		m.GrantedTokens = int32(min(l.Tokens(), 1<<31-1))
		m.EstimatedCostNanos = int64(l.Nanos)
		m.TtlMs = floorMillis(l.Deadline - now)
		m.TtlSeconds = int32(min(m.TtlMs/1000, 1<<31-1))
		m.StartByMs = floorMillis(l.StartBy - now)
		m.Phase = tbav1.Lease_Phase(l.Phase)
		m.ShadowDenied = a.Check.Reason.String()
		return
	}
	c := &a.Check
	m.Reason = c.Reason.String()
	m.Limit, m.Used, m.Held, m.Asked = c.Limit, c.Used, c.Held, c.Asked
	m.LimitName, m.LimitUnit = c.LimitName(), c.UnitName()
	if c.ResetsAt > 0 {
		m.ResetsAt = timestamppb.New(time.Unix(0, c.ResetsAt))
	}
	if a.Status == arbiter.Deferred {
		m.RetryAfterMs = ceilMillis(a.RetryAfter)
		m.TtlSeconds = int32(min((m.RetryAfterMs+999)/1000, 1<<31-1))
	}
	m.Message = explain(a, m)
}

// explain is the refusal in words: what, where, the figures, what to do.
func explain(a *arbiter.Answer, m *tbav1.LeaseResponse) string {
	c := &a.Check
	var b strings.Builder
	switch c.Reason {
	case arbiter.ReasonTooLarge:
		fmt.Fprintf(&b, "the request is larger than %s allows at any time", orThis(m.LimitName))
	case arbiter.ReasonBreaker:
		fmt.Fprintf(&b, "%s is failing and waits for its next probe", orThis(m.LimitName))
	case arbiter.ReasonHold:
		fmt.Fprintf(&b, "%s asked to wait", orThis(m.LimitName))
	case arbiter.ReasonExhausted:
		fmt.Fprintf(&b, "the account at %s is used up, its key is refused, or the wait it named is a long one", orThis(m.LimitName))
	case arbiter.ReasonQueue:
		b.WriteString("older or higher requests wait for the same room")
	case arbiter.ReasonNoRung:
		b.WriteString("the request excepts every rung that could serve it, or only tools are left, which have to be named: leave one out of except, or give the call up")
	case arbiter.ReasonClass:
		fmt.Fprintf(&b, "%s is above its share of the period budget", orThis(m.LimitName))
	default:
		fmt.Fprintf(&b, "no room under %s of %s", m.Reason, orThis(m.LimitName))
	}
	if m.LimitUnit != "" {
		fmt.Fprintf(&b, ": limit %d, used %d, held %d, asked %d %s", m.Limit, m.Used, m.Held, m.Asked, m.LimitUnit)
	}
	switch {
	case a.Status == arbiter.Deferred:
		b.WriteString("; ask again in ")
		b.WriteString(strconv.FormatInt(m.RetryAfterMs, 10))
		b.WriteString(" ms with the ticket")
	case m.ResetsAt != nil:
		b.WriteString("; resets at ")
		b.WriteString(m.ResetsAt.AsTime().Format(time.RFC3339))
	case c.Reason == arbiter.ReasonTooLarge:
		b.WriteString("; ask for less")
	}
	return b.String()
}

func orThis(name string) string {
	if name == "" {
		return "every provider"
	}
	return name
}

// commitFlags are the flags of an answer that a commit reports, in the order of the wire.
var commitFlags = [...]struct {
	bit  arbiter.Flags
	wire tbav1.CommitResponse_Flag
}{
	{arbiter.FlagLate, tbav1.CommitResponse_LATE},
	{arbiter.FlagAfterRelease, tbav1.CommitResponse_AFTER_RELEASE},
	{arbiter.FlagRecreated, tbav1.CommitResponse_RECREATED},
	{arbiter.FlagEstimated, tbav1.CommitResponse_ESTIMATED},
	{arbiter.FlagOverrun, tbav1.CommitResponse_OVERRUN},
}

// toCommitResponse writes what became of a commit into an empty m.
func toCommitResponse(m *tbav1.CommitResponse, a *arbiter.Answer, p pressure) {
	m.RecordedTokens, m.CostNanos = int64(a.Tokens), int64(a.Nanos)
	m.Backpressure, m.RecommendedDelayMs = p.level, p.delay
	if a.Result <= arbiter.UnknownLease {
		m.Result = tbav1.CommitResponse_Result(a.Result)
	} else {
		m.Result = tbav1.CommitResponse_UNKNOWN_LEASE
	}
	for _, f := range commitFlags {
		if a.Flags&f.bit != 0 {
			m.Flags = append(m.Flags, f.wire)
		}
	}
}

func toReleaseResponse(a *arbiter.Answer, p pressure) *tbav1.ReleaseResponse {
	m := &tbav1.ReleaseResponse{Backpressure: p.level, RecommendedDelayMs: p.delay, RetryAfterMs: ceilMillis(a.RetryAfter)}
	switch a.Result {
	case arbiter.Released:
		m.Result = tbav1.ReleaseResponse_RELEASED
	case arbiter.AlreadyReleased:
		m.Result = tbav1.ReleaseResponse_ALREADY_RELEASED
	case arbiter.AlreadyCommitted:
		m.Result = tbav1.ReleaseResponse_ALREADY_COMMITTED
	case arbiter.TooOld:
		m.Result = tbav1.ReleaseResponse_TOO_OLD
	default:
		m.Result = tbav1.ReleaseResponse_UNKNOWN_LEASE
	}
	return m
}

func toExtendResponse(a *arbiter.Answer, now int64, p pressure) *tbav1.ExtendLeaseResponse {
	ttl := floorMillis(a.Lease.Deadline - now)
	return &tbav1.ExtendLeaseResponse{
		TtlMs: ttl, TtlSeconds: int32(min(ttl/1000, 1<<31-1)), Phase: tbav1.Lease_Phase(a.Lease.Phase),
		Backpressure: p.level, RecommendedDelayMs: p.delay,
	}
}

func toSignalResponse(a *arbiter.Answer, p pressure) *tbav1.SignalLeaseResponse {
	return &tbav1.SignalLeaseResponse{Phase: tbav1.Lease_Phase(a.Lease.Phase), Backpressure: p.level, RecommendedDelayMs: p.delay}
}
