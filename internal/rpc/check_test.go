package rpc

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/engine"
	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
	"github.com/token-budget-arbiter/tba/internal/identity"
)

// violation is the field that an INVALID_ARGUMENT names, or the code when it is something else.
func violation(err error) string {
	st := status.Convert(err)
	if st.Code() != codes.InvalidArgument {
		return st.Code().String()
	}
	for _, d := range st.Details() {
		if b, ok := d.(*errdetails.BadRequest); ok && len(b.GetFieldViolations()) == 1 {
			return b.GetFieldViolations()[0].GetField()
		}
	}
	return "no field: " + st.Message()
}

func TestRequestsThatAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	long := strings.Repeat("x", 129)
	for want, change := range map[string]func(*tbav1.LeaseRequest){
		"agent_id":                  func(m *tbav1.LeaseRequest) { m.AgentId = "" },
		"agent_id ":                 func(m *tbav1.LeaseRequest) { m.AgentId = "a\x00b" },
		"agent_id  ":                func(m *tbav1.LeaseRequest) { m.AgentId = long },
		"agent_class":               func(m *tbav1.LeaseRequest) { m.AgentClass = "nobody" },
		"agent_class ":              func(m *tbav1.LeaseRequest) { m.AgentClass = "a\nb" },
		"task_id":                   func(m *tbav1.LeaseRequest) { m.TaskId = "a b" },
		"workflow_id":               func(m *tbav1.LeaseRequest) { m.WorkflowId = "ü" },
		"request_id":                func(m *tbav1.LeaseRequest) { m.RequestId = long },
		"pool":                      func(m *tbav1.LeaseRequest) { m.Pool = "nowhere" },
		"preferred_provider":        func(m *tbav1.LeaseRequest) { m.PreferredProvider = "nobody" },
		"model":                     func(m *tbav1.LeaseRequest) { m.Model = "a\tb" },
		"ladder":                    func(m *tbav1.LeaseRequest) { m.Ladder = "cheap" },
		"ladder ":                   func(m *tbav1.LeaseRequest) { m.Ladder, m.Model = "cheap", "gpt-5.4" },
		"except":                    func(m *tbav1.LeaseRequest) { m.Except = []string{"openai", "/gpt-5.4"} },
		"except ":                   func(m *tbav1.LeaseRequest) { m.Except = make([]string, 65) },
		"except  ":                  func(m *tbav1.LeaseRequest) { m.Except = []string{"open ai"} },
		"priority":                  func(m *tbav1.LeaseRequest) { m.Priority = tbav1.Priority(7).Enum() },
		"priority ":                 func(m *tbav1.LeaseRequest) { m.Priority = tbav1.Priority(-1).Enum() },
		"estimated_tokens":          func(m *tbav1.LeaseRequest) { m.EstimatedTokens = -1 },
		"estimated_output_tokens":   func(m *tbav1.LeaseRequest) { m.EstimatedOutputTokens = proto.Int64(-1) },
		"estimated_output_tokens ":  func(m *tbav1.LeaseRequest) { m.EstimatedOutputTokens = proto.Int64(1001) },
		"estimated_output_tokens  ": func(m *tbav1.LeaseRequest) { m.EstimatedOutputTokens = proto.Int64(math.MaxInt64) },
		"min_tokens":                func(m *tbav1.LeaseRequest) { m.MinTokens = 1001 },
		"min_tokens ":               func(m *tbav1.LeaseRequest) { m.MinTokens = -5 },
		"max_wait_ms":               func(m *tbav1.LeaseRequest) { m.MaxWaitMs = -1 },
		"max_wait_ms ":              func(m *tbav1.LeaseRequest) { m.MaxWaitMs = 3_600_001 },
		"deadline_ms":               func(m *tbav1.LeaseRequest) { m.DeadlineMs = math.MaxInt64 },
		"parent_lease_id":           func(m *tbav1.LeaseRequest) { m.ParentLeaseId = "x" },
		"ticket":                    func(m *tbav1.LeaseRequest) { m.Ticket = make([]byte, 5000) },
		"settle":                    func(m *tbav1.LeaseRequest) { m.Settle = make([]*tbav1.LeaseCommit, 65) },
	} {
		m := &tbav1.LeaseRequest{AgentId: "a", EstimatedTokens: 1000}
		change(m)
		_, err := w.lease.RequestLease(t.Context(), m)
		if got := violation(err); got != strings.TrimSpace(want) {
			t.Errorf("%v: %s (%v), want a fault of %s", m, got, err, want)
		}
	}
	_, err := w.lease.RequestLease(t.Context(), &tbav1.LeaseRequest{AgentId: "a", EstimatedTokens: 1, Ticket: []byte("forged")})
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("forged ticket: %v", err)
	}
	if rows, err := w.admin.ListLeases(t.Context(), &tbav1.ListLeasesRequest{}); err != nil || rows.GetTotal() != 0 {
		t.Errorf("after refusals: %v, %v", rows, err)
	}
	w.grant(t, &tbav1.LeaseRequest{AgentId: "a"}) // 0 tokens count as 1
}

func TestCommitsThatAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	lease := w.grant(t, &tbav1.LeaseRequest{AgentId: "a", EstimatedTokens: 1000})
	for want, change := range map[string]func(*tbav1.LeaseCommit){
		"lease_id":        func(m *tbav1.LeaseCommit) { m.LeaseId = "" },
		"lease_id ":       func(m *tbav1.LeaseCommit) { m.LeaseId = strings.Repeat("Z", 26) },
		"actual_tokens":   func(m *tbav1.LeaseCommit) { m.ActualTokens = proto.Int64(-1) },
		"actual_tokens ":  func(m *tbav1.LeaseCommit) { m.ActualTokens = proto.Int64(1 << 53) },
		"usage.input":     func(m *tbav1.LeaseCommit) { m.HasUsage, m.Usage = true, &tbav1.Usage{Input: math.MinInt64} },
		"usage.output":    func(m *tbav1.LeaseCommit) { m.HasUsage, m.Usage = true, &tbav1.Usage{Output: math.MaxInt64} },
		"usage.reasoning": func(m *tbav1.LeaseCommit) { m.HasUsage, m.Usage = true, &tbav1.Usage{Reasoning: 1} },
		"usage": func(m *tbav1.LeaseCommit) {
			m.HasUsage, m.Usage = true, &tbav1.Usage{Input: 1<<53 - 1, Output: 1<<53 - 1}
		},
		"latency_ms":                     func(m *tbav1.LeaseCommit) { m.LatencyMs = -1 },
		"first_byte_ms":                  func(m *tbav1.LeaseCommit) { m.FirstByteMs = math.MaxInt64 },
		"lease_token":                    func(m *tbav1.LeaseCommit) { m.LeaseToken = make([]byte, 10_000) },
		"outcome":                        func(m *tbav1.LeaseCommit) { m.Outcome = 99 },
		"pool":                           func(m *tbav1.LeaseCommit) { m.Pool = "nowhere" },
		"provider_signal.dimension":      func(m *tbav1.LeaseCommit) { m.ProviderSignal = &tbav1.ProviderSignal{Dimension: "speed"} },
		"provider_signal.status":         func(m *tbav1.LeaseCommit) { m.ProviderSignal = &tbav1.ProviderSignal{Status: -3} },
		"provider_signal.retry_after_ms": func(m *tbav1.LeaseCommit) { m.ProviderSignal = &tbav1.ProviderSignal{RetryAfterMs: -3} },
		"provider_signal.code":           func(m *tbav1.LeaseCommit) { m.ProviderSignal = &tbav1.ProviderSignal{Code: strings.Repeat("x", 300)} },
	} {
		m := &tbav1.LeaseCommit{LeaseId: lease.GetLeaseId(), ActualTokens: proto.Int64(1)}
		change(m)
		_, err := w.lease.CommitLease(t.Context(), m)
		if got := violation(err); got != strings.TrimSpace(want) {
			t.Errorf("%v: %s (%v), want a fault of %s", m, got, err, want)
		}
	}
	ctx := t.Context()
	_, err := w.lease.SignalLease(ctx, &tbav1.SignalLeaseRequest{LeaseId: lease.GetLeaseId()})
	check(t, "signal without kind", violation(err), "kind")
	_, err = w.lease.SignalLease(ctx, &tbav1.SignalLeaseRequest{LeaseId: lease.GetLeaseId(), Kind: tbav1.SignalLeaseRequest_PROVIDER})
	check(t, "signal of nothing", violation(err), "provider_signal")
	_, err = w.lease.ReleaseLease(ctx, &tbav1.LeaseRelease{LeaseId: lease.GetLeaseId(), Reason: strings.Repeat("x", 257)})
	check(t, "long reason", violation(err), "reason")
	_, err = w.lease.ExtendLease(ctx, &tbav1.ExtendLeaseRequest{LeaseId: lease.GetLeaseId(), TtlMs: -1})
	check(t, "negative extension", violation(err), "ttl_ms")
	_, err = w.lease.ExtendLease(ctx, &tbav1.ExtendLeaseRequest{LeaseId: lease.GetLeaseId(), TtlMs: 1000})
	check(t, "wanted extension", violation(err), "ttl_ms")
	// None of it has touched the lease.
	out, err := w.lease.CommitLease(ctx, &tbav1.LeaseCommit{LeaseId: lease.GetLeaseId(), ActualTokens: proto.Int64(1<<53 - 1)})
	if err != nil || out.GetResult() != tbav1.CommitResponse_RECORDED || out.GetRecordedTokens() != 1<<53-1 {
		t.Errorf("the largest amount: %v, %v", out, err)
	}
}

// TestModelNames: a request is decided under the policy's name of its model, and a refusal names the nearest of the operator's list.
func TestModelNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{opts: Options{Models: func(pool, provider, model string) (string, error) {
		switch model {
		case "gpt-5.4-2026-03-01":
			return "gpt-5.4", nil
		case "claude-sonnet-5":
			return model, nil
		}
		return "", fmt.Errorf("unpriced model %q of pool %s; did you mean %q?", model, pool, "house-model")
	}}})
	m := &tbav1.LeaseRequest{AgentId: "a", EstimatedTokens: 10, Model: "gpt-5.4-2026-03-01", PreferredProvider: "openai", RequestId: "r"}
	lease := w.grant(t, m)
	if lease.GetAssignedModel() != "gpt-5.4" {
		t.Errorf("dated: %v", lease)
	}
	if again := w.grant(t, m); again.GetLeaseId() != lease.GetLeaseId() || !again.GetReplayed() {
		t.Errorf("again: %v", again)
	}
	out, err := w.lease.RequestLease(t.Context(), &tbav1.LeaseRequest{AgentId: "a", EstimatedTokens: 10, Model: "hause-model"})
	if err != nil || out.GetStatus() != tbav1.LeaseStatus_DENIED || out.GetReason() != "unpriced_model" {
		t.Fatalf("%v, %v", out, err)
	}
	if !strings.Contains(out.GetMessage(), `unpriced model "hause-model" of pool default; did you mean "house-model"?`) {
		t.Errorf("message: %s", out.GetMessage())
	}
}

// TestStatusAlone: what a provider's status says where the holder gives no outcome.
func TestStatusAlone(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		status  int32
		outcome arbiter.Outcome
		hold    time.Duration
		teaches bool
	}{
		{200, arbiter.OutcomeOK, 0, true},
		{400, arbiter.OutcomeOK, 0, false},
		{401, arbiter.OutcomeExhausted, 5 * time.Minute, false},
		{403, arbiter.OutcomeExhausted, 5 * time.Minute, false},
		{402, arbiter.OutcomeExhausted, 0, false},
		{404, arbiter.OutcomeOK, 0, false},
		{429, arbiter.OutcomeThrottled, 0, false},
		{500, arbiter.OutcomeError, 0, false},
	} {
		var c arbiter.Commit
		err := toCommit(&tbav1.LeaseCommit{LeaseId: engine.FormatLeaseID(arbiter.LeaseID{1}), LatencyMs: 20, ProviderSignal: &tbav1.ProviderSignal{Status: tt.status}}, identity.Local, &c)
		if err != nil || c.Outcome != tt.outcome || c.Signal.RetryAfter != int64(tt.hold) || (c.Latency > 0) != tt.teaches {
			t.Errorf("%d: outcome %d, hold %v, latency %v, %v", tt.status, c.Outcome, time.Duration(c.Signal.RetryAfter), time.Duration(c.Latency), err)
		}
	}
}

// TestRefusedKeyShutsTheModel: other calls do not run into the same refusal, and the events tell the operator.
func TestRefusedKeyShutsTheModel(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{policy: testPolicy(func(p *arbiter.Policy) { p.Providers = p.Providers[:1] })})
	lease := w.grant(t, &tbav1.LeaseRequest{AgentId: "a", EstimatedTokens: 10})
	if _, err := w.lease.CommitLease(t.Context(), &tbav1.LeaseCommit{
		LeaseId: lease.GetLeaseId(), ActualTokens: proto.Int64(0), ProviderSignal: &tbav1.ProviderSignal{Status: http.StatusUnauthorized},
	}); err != nil {
		t.Fatal(err)
	}
	out, err := w.lease.RequestLease(t.Context(), &tbav1.LeaseRequest{AgentId: "a", EstimatedTokens: 10})
	if err != nil || out.GetReason() != "exhausted" || !strings.Contains(out.GetMessage(), "its key is refused") {
		t.Errorf("next: %v, %v", out, err)
	}
	events, err := w.admin.ListEvents(t.Context(), &tbav1.ListEventsRequest{Types: []string{"throttled"}})
	if err != nil || len(events.GetEvents()) != 1 || events.GetEvents()[0].GetProvider() != "openai" {
		t.Errorf("events: %v, %v", events, err)
	}
}

func TestThrottleHoldsTheProviderAndKeepsSeniority(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{policy: testPolicy(func(p *arbiter.Policy) { p.Providers = p.Providers[:1] })})
	lease := w.grant(t, &tbav1.LeaseRequest{AgentId: "a", EstimatedTokens: 10})
	out, err := w.lease.ReleaseLease(t.Context(), &tbav1.LeaseRelease{LeaseId: lease.GetLeaseId(), Outcome: tbav1.LeaseCommit_THROTTLED,
		ProviderSignal: &tbav1.ProviderSignal{Status: 429, Headers: map[string]string{"retry-after": "30"}}})
	if err != nil || out.GetResult() != tbav1.ReleaseResponse_RELEASED || len(out.GetTicket()) == 0 || out.GetRetryAfterMs() < 29_000 {
		t.Fatalf("release: %v, %v", out, err)
	}
	next, err := w.lease.RequestLease(t.Context(), &tbav1.LeaseRequest{AgentId: "a", EstimatedTokens: 10, Ticket: out.GetTicket()})
	if err != nil || next.GetStatus() != tbav1.LeaseStatus_DEFERRED || next.GetReason() != "hold" || next.GetRetryAfterMs() > 30_000 {
		t.Errorf("request in the hold: %v, %v", next, err)
	}
	events, err := w.admin.ListEvents(t.Context(), &tbav1.ListEventsRequest{Types: []string{"throttled"}})
	if err != nil || len(events.GetEvents()) != 1 || events.GetEvents()[0].GetProvider() != "openai" || events.GetEvents()[0].GetRetryAfterMs() < 29_000 {
		t.Errorf("events: %v, %v", events, err)
	}
}

// TestPriorityIsBounded: without credentials a request never exceeds its class's default, LOW means unset.
func TestPriorityIsBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	for _, test := range []struct {
		class string
		asked *tbav1.Priority
		want  tbav1.Priority
	}{
		{"chat", nil, tbav1.Priority_MEDIUM},
		{"chat", tbav1.Priority_LOW.Enum(), tbav1.Priority_MEDIUM},
		{"chat", tbav1.Priority_CRITICAL.Enum(), tbav1.Priority_MEDIUM},
		{"batch", tbav1.Priority_HIGH.Enum(), tbav1.Priority_LOW},
		{"", tbav1.Priority_MEDIUM.Enum(), tbav1.Priority_LOW},
	} {
		lease := w.grant(t, &tbav1.LeaseRequest{AgentId: "a", AgentClass: test.class, Priority: test.asked})
		rows, err := w.admin.ListLeases(context.Background(), &tbav1.ListLeasesRequest{LeaseId: lease.GetLeaseId()})
		if err != nil || len(rows.GetLeases()) != 1 || rows.GetLeases()[0].GetPriority() != test.want {
			t.Errorf("class %q asks %v: %v, %v", test.class, test.asked, rows, err)
		}
	}
}

func TestDecisionIDIsTheEngines(t *testing.T) {
	t.Parallel()
	for _, d := range []engine.DecisionID{{}, {Epoch: 1}, {Epoch: 3, Seq: math.MaxUint64, Number: 17}} {
		check(t, "decision id", formatDecision(d), d.String())
	}
}
