package client

import (
	"time"

	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
)

// Usage is what a call used, in tokens, as the provider reported it. The parts
// do not overlap, except that Reasoning is contained in Output.
//
// The zero value means "not measured": the lease is settled at what it held and
// flagged as estimated, so that a lost figure never counts as nothing. A call
// that really used nothing sets Measured.
type Usage struct {
	// Input is input at full price, without its cached parts.
	Input int64
	// CacheRead is input read from a prompt cache.
	CacheRead int64
	// CacheWrite is input written to a prompt cache of short life.
	CacheWrite int64
	// CacheWriteLong is input written to a prompt cache of long life.
	CacheWriteLong int64
	// Output is output, reasoning included.
	Output int64
	// Reasoning is the part of Output spent on reasoning; it is not added again.
	Reasoning int64
	// Total is the whole, for callers that do not know the parts. 0: the sum of
	// the parts.
	Total int64
	// Measured marks the figures as measured even when all are zero.
	Measured bool
	// Estimated marks the figures as a guess of the caller: counted and flagged.
	Estimated bool

	// Model is the model that the answer names, ServiceTier its service tier, in
	// the provider's words: the price is theirs. Empty, or unknown at the lease's
	// provider: the lease's model, the standard tier.
	Model, ServiceTier string
	// LongestPrompt is the longest prompt of one step, in tokens, where the
	// provider made several of one call: prices of long prompts are judged by it.
	// 0: the whole prompt.
	LongestPrompt int64
}

// Tokens returns the total: Total, or the sum of the parts when Total is 0.
func (u Usage) Tokens() int64 {
	if u.Total != 0 {
		return u.Total
	}
	return u.Input + u.CacheRead + u.CacheWrite + u.CacheWriteLong + u.Output
}

func (u Usage) parts() bool {
	return u.Input != 0 || u.CacheRead != 0 || u.CacheWrite != 0 || u.CacheWriteLong != 0 || u.Output != 0 || u.Reasoning != 0
}

// ProviderSignal is what a provider answered, as far as it concerns limits.
type ProviderSignal struct {
	// Status is the HTTP status. 0: no answer.
	Status int
	// RetryAfter is the provider's instruction to wait. 0: none.
	RetryAfter time.Duration
	// Headers are the limit headers, names in lower case, at most 64.
	Headers map[string]string
	// Code is the error code of the body, e.g. "insufficient_quota".
	Code string
	// Dimension is what was throttled, if known: "rpm", "tpm", "rpd", "slots",
	// "input_tpm" or "output_tpm".
	Dimension string
	// ModelOnly says that only the model that was called is meant. Without it
	// OutcomeExhausted shuts every model of the provider.
	ModelOnly bool
}

func (s *ProviderSignal) wire() *tbav1.ProviderSignal {
	if s == nil {
		return nil
	}
	return &tbav1.ProviderSignal{
		Status: int32(s.Status), RetryAfterMs: ms(s.RetryAfter), Headers: s.Headers, Code: s.Code, Dimension: s.Dimension,
		ModelOnly: s.ModelOnly,
	}
}

// Report is a commit with all that can be said about a call.
type Report struct {
	// Usage is what the call used; the zero value settles at the hold.
	Usage Usage
	// Outcome says how the call ended. Zero: OutcomeOK.
	Outcome Outcome
	// Latency is from call start to its end. 0: not measured.
	Latency time.Duration
	// FirstByte is from call start to the first byte. 0: not measured.
	FirstByte time.Duration
	// Provider is what the provider said about its limits. nil: nothing.
	Provider *ProviderSignal
}

func (r Report) wire(leaseID, pool string, token []byte) *tbav1.LeaseCommit {
	u := r.Usage
	m := &tbav1.LeaseCommit{
		LeaseId: leaseID, LeaseToken: token, Pool: pool,
		Outcome:   tbav1.LeaseCommit_Outcome(r.Outcome),
		LatencyMs: ms(r.Latency), FirstByteMs: ms(r.FirstByte),
		ProviderSignal: r.Provider.wire(),
		Estimated:      u.Estimated,
		ServedModel:    u.Model, ServiceTier: u.ServiceTier, LongestPrompt: u.LongestPrompt,
	}
	if u.parts() || (u.Measured && u.Total == 0) {
		m.HasUsage = true
		m.Usage = &tbav1.Usage{
			Input: u.Input, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite, CacheWriteLong: u.CacheWriteLong,
			Output: u.Output, Reasoning: u.Reasoning,
		}
	}
	if m.HasUsage || u.Total != 0 {
		total := u.Tokens()
		m.ActualTokens = &total
	}
	return m
}

// Receipt says what became of a commit.
type Receipt struct {
	// LeaseID names the lease.
	LeaseID string
	// Tokens is what the arbiter recorded.
	Tokens int64
	// CostNanos is what it recorded in nano-USD (10^-9 USD).
	CostNanos int64
	// Repeated: the same amount had been recorded before.
	Repeated bool
	// Pending: taken, but not yet stored safely. The client repeats the commit in
	// the background until it is.
	Pending bool
	// Late: recorded after the lease had expired or was revoked.
	Late bool
	// AfterRelease: recorded although the lease had been released.
	AfterRelease bool
	// Recreated: the lease was rebuilt from its token after a failover.
	Recreated bool
	// Estimated: recorded without measured usage.
	Estimated bool
	// Overrun: more than was granted; the excess was charged.
	Overrun bool
	// Level is the pool's backpressure afterwards, Delay the one recommended
	// before the next call.
	Level Level
	Delay time.Duration
	// Local: the lease came from the local fallback; nothing was recorded.
	Local bool
}

func receipt(leaseID string, m *tbav1.CommitResponse) (Receipt, error) {
	r := Receipt{
		LeaseID: leaseID, Tokens: m.GetRecordedTokens(), CostNanos: m.GetCostNanos(),
		Level: Level(m.GetBackpressure()), Delay: delay(m.GetRecommendedDelayMs()),
	}
	for _, f := range m.GetFlags() {
		switch f {
		case tbav1.CommitResponse_LATE:
			r.Late = true
		case tbav1.CommitResponse_AFTER_RELEASE:
			r.AfterRelease = true
		case tbav1.CommitResponse_RECREATED:
			r.Recreated = true
		case tbav1.CommitResponse_ESTIMATED:
			r.Estimated = true
		case tbav1.CommitResponse_OVERRUN:
			r.Overrun = true
		}
	}
	switch m.GetResult() {
	case tbav1.CommitResponse_RECORDED:
		return r, nil
	case tbav1.CommitResponse_ALREADY_RECORDED:
		r.Repeated = true
		return r, nil
	case tbav1.CommitResponse_ACCEPTED_PENDING:
		r.Pending = true
		return r, nil
	case tbav1.CommitResponse_CONFLICT:
		return r, &CommitError{Receipt: r, Reason: "conflict"}
	case tbav1.CommitResponse_TOO_OLD:
		return r, &CommitError{Receipt: r, Reason: "too_old"}
	default:
		return r, &CommitError{Receipt: r, Reason: "unknown_lease"}
	}
}

// ms rounds up: a wait that is too short by a fraction is a wait in vain.
func ms(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

func duration(ms int64) time.Duration {
	const most = int64(1<<63-1) / int64(time.Millisecond)
	return time.Duration(min(max(ms, 0), most)) * time.Millisecond
}
