package rpc

import (
	"net/http"
	"strings"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
	"github.com/token-budget-arbiter/tba/internal/identity"
	"github.com/token-budget-arbiter/tba/internal/provider"
)

// checkRequest judges everything that can be judged without knowing the pool.
func checkRequest(m *tbav1.LeaseRequest) *arbiter.Error {
	if err := firstError(
		checkID("agent_id", m.GetAgentId()),
		checkID("agent_class", m.GetAgentClass()),
		checkID("preferred_provider", m.GetPreferredProvider()),
		checkID("task_id", m.GetTaskId()),
		checkID("workflow_id", m.GetWorkflowId()),
		checkID("request_id", m.GetRequestId()),
		checkID("pool", m.GetPool()),
		checkModel("model", m.GetModel()),
		checkID("ladder", m.GetLadder()),
		checkID("service_tier", m.GetServiceTier()),
		checkDuration("max_wait_ms", m.GetMaxWaitMs(), maxWaitMS),
		checkDuration("deadline_ms", m.GetDeadlineMs(), maxHoldMS),
		checkBytes("ticket", len(m.GetTicket()), maxToken),
		checkAmount("min_tokens", m.GetMinTokens()),
		checkExcept(m.GetExcept()),
	); err != nil {
		return err
	}
	estimate := max(int64(m.GetEstimatedTokens()), 1)
	switch {
	case m.GetAgentId() == "":
		return invalid("agent_id", "missing", "empty: say who calls")
	case m.GetEstimatedTokens() < 0:
		return invalid("estimated_tokens", "bad_amount", "%d is outside 0..%d: send input plus output tokens of the call", m.GetEstimatedTokens(), 1<<31-1)
	case m.EstimatedOutputTokens != nil && (m.GetEstimatedOutputTokens() < 0 || m.GetEstimatedOutputTokens() > estimate):
		return invalid("estimated_output_tokens", "bad_amount", "%d is outside 0..%d: it is the output part of estimated_tokens", m.GetEstimatedOutputTokens(), estimate)
	case m.GetMinTokens() > estimate:
		return invalid("min_tokens", "bad_amount", "%d is above estimated_tokens %d: lower it, or leave it 0 to take all or nothing", m.GetMinTokens(), estimate)
	case m.GetPriority() < 0 || m.GetPriority() > tbav1.Priority_CRITICAL:
		return invalid("priority", "unknown_priority", "%d is none of LOW 0, MEDIUM 1, HIGH 2, CRITICAL 3", m.GetPriority())
	case m.GetNoStartDelay() && m.GetDeferredStart():
		return invalid("no_start_delay", "two_starts", "it and deferred_start exclude each other: a call begins at once or later")
	case m.GetModel() != "" && m.GetLadder() != "":
		return invalid("ladder", "ladder_and_model", "%q and model %q exclude each other: send one", m.GetLadder(), m.GetModel())
	case len(m.GetSettle()) > maxSettle:
		return invalid("settle", "too_long", "%d commits, at most %d ride on one request: send the rest with the next one", len(m.GetSettle()), maxSettle)
	}
	return nil
}

// toRequest translates a checked request into r. policy is the pool's, or nil before there is one. The lease id is the engine's to give.
func toRequest(m *tbav1.LeaseRequest, c *identity.Caller, policy *arbiter.Policy, r *arbiter.Request) *arbiter.Error {
	class, err := c.ClassFor(m.GetAgentClass())
	if err != nil {
		return err
	}
	*r = arbiter.Request{
		Principal: c.Principal,
		Agent:     m.GetAgentId(), Class: class, Task: m.GetTaskId(), Workflow: m.GetWorkflowId(),
		Provider: m.GetPreferredProvider(), Model: m.GetModel(), Ladder: m.GetLadder(), Except: m.GetExcept(),
		Tier:     m.GetServiceTier(),
		Priority: arbiter.Priority(m.GetPriority()),
		Min:      arbiter.Tokens(m.GetMinTokens()),
		Deferred: m.GetDeferredStart(), NoStartDelay: m.GetNoStartDelay(),
		MaxWait: m.GetMaxWaitMs() * nanosPerMilli,
	}
	estimate := arbiter.Tokens(max(m.GetEstimatedTokens(), 1))
	r.Output, r.Undivided = estimate, true
	if m.EstimatedOutputTokens != nil {
		r.Undivided = false
		r.Output = arbiter.Tokens(m.GetEstimatedOutputTokens())
	}
	r.Input = estimate - r.Output
	if m.GetParentLeaseId() != "" {
		if r.Parent, err = parseLease("parent_lease_id", m.GetParentLeaseId()); err != nil {
			return err
		}
	}
	// The fingerprint is of what was asked, so that a changed class default does not make a repeat another request.
	r.Fingerprint = r.Sum()
	r.Priority = priorityFor(m, class, c, policy)
	return nil
}

// asksPriority reports whether a request names a priority. LOW alone counts as unset: a published client cannot tell them apart.
func asksPriority(m *tbav1.LeaseRequest) bool {
	return m.GetPriority() > tbav1.Priority_LOW || m.Priority != nil && m.GetPriorityIsSet()
}

// priorityFor bounds the asked priority by class and credential.
func priorityFor(m *tbav1.LeaseRequest, class string, c *identity.Caller, policy *arbiter.Policy) arbiter.Priority {
	want := arbiter.ClassPriority
	if asksPriority(m) {
		want = arbiter.Priority(m.GetPriority())
	}
	return c.PriorityIn(policy, class, want)
}

// toCommit translates and checks a commit; its token is the caller's to verify. What served is not checked: it is only looked up, and a bill
// must not be lost for an odd name.
func toCommit(m *tbav1.LeaseCommit, c *identity.Caller, cmd *arbiter.Commit) *arbiter.Error {
	id, err := parseLease("lease_id", m.GetLeaseId())
	if err != nil {
		return err
	}
	if err := firstError(
		checkAmount("actual_tokens", m.GetActualTokens()),
		checkAmount("longest_prompt", m.GetLongestPrompt()),
		checkDuration("latency_ms", m.GetLatencyMs(), maxDayMS),
		checkDuration("first_byte_ms", m.GetFirstByteMs(), maxDayMS),
		checkBytes("lease_token", len(m.GetLeaseToken()), maxToken),
		checkID("pool", m.GetPool()),
	); err != nil {
		return err
	}
	*cmd = arbiter.Commit{
		Lease: id, Principal: c.Principal,
		HasUsage: m.GetHasUsage(), HasActual: m.ActualTokens != nil,
		Actual: arbiter.Tokens(m.GetActualTokens()), Estimated: m.GetEstimated(),
		Model: m.GetServedModel(), Tier: m.GetServiceTier(), Longest: arbiter.Tokens(m.GetLongestPrompt()),
		Latency: m.GetLatencyMs() * nanosPerMilli, FirstByte: m.GetFirstByteMs() * nanosPerMilli,
	}
	if m.GetHasUsage() {
		if cmd.Usage, err = toUsage(m.GetUsage()); err != nil {
			return err
		}
		// A total above its parts is counted in full, at the dearest kind: providers count tokens that they do not itemise.
		if missing := cmd.Actual - cmd.Usage.Total(); cmd.HasActual && missing > 0 {
			cmd.Usage.Output += missing
		}
	}
	cmd.Outcome, cmd.Signal, err = toOutcome(m.GetOutcome(), m.GetProviderSignal())
	if cmd.Signal.Status >= http.StatusBadRequest { // how fast a provider refuses says nothing of how long its calls take
		cmd.Latency, cmd.FirstByte = 0, 0
	}
	return err
}

func toUsage(u *tbav1.Usage) (arbiter.Usage, *arbiter.Error) {
	if err := firstError(
		checkAmount("usage.input", u.GetInput()),
		checkAmount("usage.cache_read", u.GetCacheRead()),
		checkAmount("usage.cache_write", u.GetCacheWrite()),
		checkAmount("usage.cache_write_long", u.GetCacheWriteLong()),
		checkAmount("usage.output", u.GetOutput()),
		checkAmount("usage.reasoning", u.GetReasoning()),
	); err != nil {
		return arbiter.Usage{}, err
	}
	usage := arbiter.Usage{
		Input: arbiter.Tokens(u.GetInput()), CacheRead: arbiter.Tokens(u.GetCacheRead()), CacheWrite: arbiter.Tokens(u.GetCacheWrite()),
		CacheWriteLong: arbiter.Tokens(u.GetCacheWriteLong()), Output: arbiter.Tokens(u.GetOutput()), Reasoning: arbiter.Tokens(u.GetReasoning()),
	}
	if usage.Reasoning > usage.Output {
		return usage, invalid("usage.reasoning", "bad_amount", "%d is above usage.output %d: output includes reasoning", usage.Reasoning, usage.Output)
	}
	if usage.Valid() != nil {
		return usage, invalid("usage", "bad_amount", "the parts sum to more than %d: send the parts of one call", int64(arbiter.MaxAmount))
	}
	return usage, nil
}

func toRelease(m *tbav1.LeaseRelease, c *identity.Caller, cmd *arbiter.Release) *arbiter.Error {
	id, err := parseLease("lease_id", m.GetLeaseId())
	if err != nil {
		return err
	}
	if err := firstError(
		checkBytes("reason", len(m.GetReason()), maxText),
		checkBytes("lease_token", len(m.GetLeaseToken()), maxToken),
		checkID("pool", m.GetPool()),
	); err != nil {
		return err
	}
	*cmd = arbiter.Release{Lease: id, Principal: c.Principal}
	cmd.Outcome, cmd.Signal, err = toOutcome(m.GetOutcome(), m.GetProviderSignal())
	return err
}

func toExtend(m *tbav1.ExtendLeaseRequest, c *identity.Caller) (arbiter.Extend, *arbiter.Error) {
	id, err := parseLease("lease_id", m.GetLeaseId())
	if err != nil {
		return arbiter.Extend{}, err
	}
	if m.GetTtlMs() != 0 {
		return arbiter.Extend{}, invalid("ttl_ms", "bad_duration", "%d: this server sets the lifetime itself, by lease.ttl of the file or by what it has learned: leave it 0, the answer tells", m.GetTtlMs())
	}
	return arbiter.Extend{Lease: id, Principal: c.Principal}, firstError(
		checkBytes("lease_token", len(m.GetLeaseToken()), maxToken),
		checkID("pool", m.GetPool()),
	)
}

func toSignal(m *tbav1.SignalLeaseRequest, c *identity.Caller) (arbiter.Signal, *arbiter.Error) {
	id, err := parseLease("lease_id", m.GetLeaseId())
	if err != nil {
		return arbiter.Signal{}, err
	}
	if err := firstError(
		checkDuration("first_byte_ms", m.GetFirstByteMs(), maxDayMS),
		checkBytes("lease_token", len(m.GetLeaseToken()), maxToken),
		checkID("pool", m.GetPool()),
	); err != nil {
		return arbiter.Signal{}, err
	}
	cmd := arbiter.Signal{Lease: id, Principal: c.Principal}
	switch m.GetKind() {
	case tbav1.SignalLeaseRequest_ACTIVATE:
		cmd.Activate = true
	case tbav1.SignalLeaseRequest_FIRST_BYTE:
		cmd.FirstByte = true
	case tbav1.SignalLeaseRequest_PROVIDER:
		if m.GetProviderSignal() == nil {
			return cmd, invalid("provider_signal", "missing", "empty with kind PROVIDER: say what the provider answered")
		}
		cmd.Outcome, cmd.Signal, err = toOutcome(m.GetOutcome(), m.GetProviderSignal())
	default:
		return cmd, invalid("kind", "unknown_kind", "%d is none of ACTIVATE 1, FIRST_BYTE 2, PROVIDER 3", m.GetKind())
	}
	return cmd, err
}

// toOutcome reads how a call ended. Where the holder does not say, the provider's status does.
func toOutcome(o tbav1.LeaseCommit_Outcome, s *tbav1.ProviderSignal) (arbiter.Outcome, arbiter.ProviderSignal, *arbiter.Error) {
	var signal arbiter.ProviderSignal
	if o < 0 || o > tbav1.LeaseCommit_NOT_SENT {
		return 0, signal, invalid("outcome", "unknown_outcome", "%d is outside 0..%d: send one of LeaseCommit.Outcome", o, tbav1.LeaseCommit_NOT_SENT)
	}
	outcome := arbiter.Outcome(o)
	if s == nil {
		return outcome, signal, nil
	}
	dim, known := dims[s.GetDimension()]
	switch {
	case !known:
		return 0, signal, invalid("provider_signal.dimension", "unknown_dimension", "%q is none of rpm, tpm, rpd, slots, input_tpm, output_tpm: leave it empty when it is not known", cut(s.GetDimension()))
	case s.GetStatus() != 0 && (s.GetStatus() < 100 || s.GetStatus() > 999):
		return 0, signal, invalid("provider_signal.status", "bad_status", "%d is no HTTP status: send 0 when there was no answer", s.GetStatus())
	case len(s.GetHeaders()) > maxHeaders:
		return 0, signal, invalid("provider_signal.headers", "too_long", "%d entries, at most %d: send the limit headers only", len(s.GetHeaders()), maxHeaders)
	}
	if err := firstError(
		checkDuration("provider_signal.retry_after_ms", s.GetRetryAfterMs(), maxHoldMS),
		checkBytes("provider_signal.code", len(s.GetCode()), maxText),
	); err != nil {
		return 0, signal, err
	}
	signal = arbiter.ProviderSignal{Status: s.GetStatus(), Dim: dim, RetryAfter: s.GetRetryAfterMs() * nanosPerMilli, ModelOnly: s.GetModelOnly()}
	if signal.RetryAfter == 0 && len(s.GetHeaders()) > 0 {
		signal.RetryAfter = int64(waitInHeaders(s.GetHeaders()))
	}
	if outcome == arbiter.OutcomeUnset {
		outcome = outcomeOfStatus(s.GetStatus())
		if refusesKey(s.GetStatus()) && signal.RetryAfter == 0 {
			signal.RetryAfter = int64(provider.KeyHold)
		}
	}
	return outcome, signal, nil
}

var dims = map[string]arbiter.Dim{
	"": arbiter.DimNone, "rpm": arbiter.DimRPM, "tpm": arbiter.DimTPM, "input_tpm": arbiter.DimInputTPM,
	"output_tpm": arbiter.DimOutputTPM, "rpd": arbiter.DimRPD, "slots": arbiter.DimSlots,
}

// waitInHeaders reads the wait that a provider's headers tell, 0 when they tell none.
func waitInHeaders(headers map[string]string) time.Duration {
	h := make(http.Header, len(headers))
	for name, value := range headers {
		h.Set(strings.TrimSpace(name), value)
	}
	wait, _ := provider.RetryAfter(h, time.Now())
	return max(wait, 0)
}

// refusesKey reports whether a status says that our credential is bad: every call until it is replaced would fail alike.
func refusesKey(status int32) bool {
	return status == http.StatusUnauthorized || status == http.StatusForbidden
}

// outcomeOfStatus is the coarse reading of an HTTP status. 529 is how Anthropic says overloaded; a body's finer word comes as an outcome.
func outcomeOfStatus(status int32) arbiter.Outcome {
	switch {
	case status == 0:
		return arbiter.OutcomeUnset
	case status == http.StatusTooManyRequests:
		return arbiter.OutcomeThrottled
	case status == http.StatusPaymentRequired, refusesKey(status):
		return arbiter.OutcomeExhausted
	case status == http.StatusServiceUnavailable || status == 529:
		return arbiter.OutcomeOverloaded
	case status == http.StatusGatewayTimeout || status == http.StatusRequestTimeout:
		return arbiter.OutcomeTimeout
	case status >= 500:
		return arbiter.OutcomeError
	}
	return arbiter.OutcomeOK // another 4xx is the caller's fault: the provider is healthy
}

// cut shortens a value for an error text.
func cut(s string) string {
	if len(s) > 64 {
		s = s[:64] + "..."
	}
	return cleanText(s)
}
