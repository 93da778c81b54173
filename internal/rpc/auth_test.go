package rpc

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/token-budget-arbiter/tba/arbiter"
	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
	"github.com/token-budget-arbiter/tba/internal/identity"
)

const (
	agentKey    = "agent-0123456789abcdef"
	otherKey    = "other-0123456789abcdef"
	readerKey   = "reader-0123456789abcdef"
	operatorKey = "operator-0123456789abcdef"
)

func testKeys(t *testing.T) *identity.Keyring {
	t.Helper()
	keys, err := identity.NewKeyring([]identity.Key{
		{Name: "fleet", Secret: agentKey, Pool: "default", Classes: []string{"batch"}, HasCeiling: true, MaxPriority: arbiter.High},
		{Name: "other", Secret: otherKey},
		{Name: "eyes", Secret: readerKey, Role: identity.RoleReader},
		{Name: "ops", Secret: operatorKey, Role: identity.RoleOperator},
	})
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func with(key string) context.Context {
	return metadata.AppendToOutgoingContext(context.Background(), "authorization", "Bearer "+key)
}

// TestAuthMatrix: every role against every group of calls, on both ports.
func TestAuthMatrix(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{opts: Options{Keys: testKeys(t)}})
	calls := []struct {
		name, path, body string
		call             func(ctx context.Context) error
		roles            map[string]bool
	}{
		{"RequestLease", "/TokenBudgetArbiter/RequestLease", `{"agent_id": "a"}`, func(ctx context.Context) error {
			_, err := w.lease.RequestLease(ctx, &tbav1.LeaseRequest{AgentId: "a"})
			return err
		}, map[string]bool{agentKey: true, otherKey: true, operatorKey: true}},
		{"ListBudgets", "/tba.v1.Admin/ListBudgets", `{}`, func(ctx context.Context) error {
			_, err := w.admin.ListBudgets(ctx, &tbav1.ListBudgetsRequest{})
			return err
		}, map[string]bool{readerKey: true, operatorKey: true}},
		{"RevokeLease", "/tba.v1.Admin/RevokeLease", `{"lease_id": "01ARZ3NDEKTSV4RRFFQ69G5FAV", "reason": "x"}`, func(ctx context.Context) error {
			_, err := w.admin.RevokeLease(ctx, &tbav1.RevokeLeaseRequest{LeaseId: "01ARZ3NDEKTSV4RRFFQ69G5FAV", Reason: "x"})
			return err
		}, map[string]bool{operatorKey: true}},
	}
	for _, c := range calls {
		for _, key := range []string{agentKey, otherKey, readerKey, operatorKey, "wrong-0123456789abcdef", ""} {
			ctx := context.Background()
			if key != "" {
				ctx = with(key)
			}
			want := codes.Unauthenticated
			switch {
			case c.roles[key] && c.name == "RevokeLease":
				want = codes.NotFound // allowed, and there is no such lease
			case c.roles[key]:
				want = codes.OK
			case strings.Contains(agentKey+otherKey+readerKey+operatorKey, key) && key != "":
				want = codes.PermissionDenied
			}
			if got := status.Code(c.call(ctx)); got != want {
				t.Errorf("gRPC %s with %q: %v, want %v", c.name, key, got, want)
			}
			req, err := http.NewRequest(http.MethodPost, "http://localhost"+c.path, stringReader(c.body))
			if err != nil {
				t.Fatal(err)
			}
			req.Host = "arbiter.example" // with keys any name will do
			req.Header.Set("Content-Type", "application/json")
			if key != "" {
				req.Header.Set("Authorization", "bearer "+key)
			}
			resp, body := w.send(t, req)
			wantHTTP := map[codes.Code]int{codes.OK: 200, codes.NotFound: 404, codes.PermissionDenied: 403, codes.Unauthenticated: 401}[want]
			if resp.StatusCode != wantHTTP {
				t.Errorf("HTTP %s with %q: %d %s, want %d", c.name, key, resp.StatusCode, body, wantHTTP)
			}
			if (resp.Header.Get("WWW-Authenticate") != "") != (wantHTTP == 401) {
				t.Errorf("HTTP %s with %q: WWW-Authenticate %q", c.name, key, resp.Header.Get("WWW-Authenticate"))
			}
		}
	}
	for key, want := range map[string]int{agentKey: 403, readerKey: 200, "": 401} {
		req, err := http.NewRequest(http.MethodGet, "http://arbiter.example/api/v1/status", nil)
		if err != nil {
			t.Fatal(err)
		}
		if key != "" {
			req.Header.Set("Authorization", "Bearer "+key)
		}
		if resp, body := w.send(t, req); resp.StatusCode != want || want != 200 && resp.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("GET with %q: %d %s", key, resp.StatusCode, body)
		}
	}
}

// TestCredentialBounds: the credential fixes pool, class and priority; the request can only ask for less.
func TestCredentialBounds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{opts: Options{Keys: testKeys(t)}})
	lease, err := w.lease.RequestLease(with(agentKey), &tbav1.LeaseRequest{AgentId: "a", EstimatedTokens: 10, Priority: tbav1.Priority_CRITICAL.Enum()})
	if err != nil {
		t.Fatal(err)
	}
	rows, err := w.admin.ListLeases(with(readerKey), &tbav1.ListLeasesRequest{LeaseId: lease.GetLeaseId()})
	if err != nil || len(rows.GetLeases()) != 1 || rows.GetLeases()[0].GetAgentClass() != "batch" || rows.GetLeases()[0].GetPriority() != tbav1.Priority_HIGH {
		t.Errorf("bounded: %v, %v", rows, err)
	}
	for reason, m := range map[string]*tbav1.LeaseRequest{
		"class_not_allowed": {AgentId: "a", AgentClass: "chat"}, "pool_not_allowed": {AgentId: "a", Pool: "elsewhere"},
	} {
		if _, err := w.lease.RequestLease(with(agentKey), m); status.Code(err) != codes.PermissionDenied || reasonOf(err) != reason {
			t.Errorf("%v: %v", m, err)
		}
	}
	// Another principal's lease looks like none, with its token or without.
	for _, token := range [][]byte{nil, lease.GetLeaseToken()} {
		out, err := w.lease.CommitLease(with(otherKey), &tbav1.LeaseCommit{LeaseId: lease.GetLeaseId(), LeaseToken: token, ActualTokens: proto.Int64(1)})
		if err != nil || out.GetResult() != tbav1.CommitResponse_UNKNOWN_LEASE {
			t.Errorf("foreign commit: %v, %v", out, err)
		}
		_, err = w.lease.ExtendLease(with(otherKey), &tbav1.ExtendLeaseRequest{LeaseId: lease.GetLeaseId(), LeaseToken: token})
		check(t, "foreign extension", failed(err), "NotFound unknown_lease")
	}
	// The same request id of two principals are two requests.
	a, errA := w.lease.RequestLease(with(otherKey), &tbav1.LeaseRequest{AgentId: "a", RequestId: "same", EstimatedTokens: 5})
	b, errB := w.lease.RequestLease(with(operatorKey), &tbav1.LeaseRequest{AgentId: "a", RequestId: "same", EstimatedTokens: 9})
	if errA != nil || errB != nil || a.GetLeaseId() == b.GetLeaseId() {
		t.Errorf("%v %v %v %v", a, errA, b, errB)
	}
}

func TestKeysAreReplacedWhileRunning(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	if _, err := w.admin.GetStatus(t.Context(), &tbav1.GetStatusRequest{}); err != nil {
		t.Fatal(err)
	}
	w.server.SetKeys(testKeys(t))
	_, err := w.admin.GetStatus(t.Context(), &tbav1.GetStatusRequest{})
	check(t, "without a key", failed(err), "Unauthenticated no_credential")
	if _, err := w.admin.GetStatus(with(readerKey), &tbav1.GetStatusRequest{}); err != nil {
		t.Error(err)
	}
}

func TestFailedAuthenticationsAreLimited(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{tcp: true, opts: Options{Keys: testKeys(t), FailedAuth: identity.NewAddresses(0.001, 3, true)}})
	for i := range 5 {
		_, err := w.lease.RequestLease(with("wrong-0123456789abcdef"), &tbav1.LeaseRequest{AgentId: "a"})
		want := "Unauthenticated bad_credential"
		if i >= 3 {
			want = "ResourceExhausted failed_authentications"
		}
		check(t, fmt.Sprint("attempt ", i), failed(err), want)
	}
	if _, err := w.lease.RequestLease(with(otherKey), &tbav1.LeaseRequest{AgentId: "a"}); err != nil {
		t.Errorf("a right key from the same address: %v", err)
	}
}

// TestRateLimitOfGRPC: calls and the frames of a session count alike, and a change of the limits counts at once.
func TestRateLimitOfGRPC(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{opts: Options{Addresses: identity.NewAddresses(0.001, 3, true)}})
	x := openSession(t, w.lease) // one
	frames := x.reader()
	x.push(requestFrame(1, &tbav1.LeaseRequest{AgentId: "a"})) // two
	if f := <-frames; f.GetLease() == nil {
		t.Fatalf("%v", f)
	}
	w.grant(t, &tbav1.LeaseRequest{AgentId: "a"}) // three
	_, err := w.lease.RequestLease(t.Context(), &tbav1.LeaseRequest{AgentId: "a"})
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("unary: %v", err)
	}
	x.push(requestFrame(2, &tbav1.LeaseRequest{AgentId: "a"}))
	if f := <-frames; f.GetId() != 2 || f.GetError().GetReason() != "rate_limited" || f.GetError().GetRetryAfterMs() <= 0 {
		t.Errorf("frame: %v", f)
	}
	w.server.SetAddresses(nil)
	w.grant(t, &tbav1.LeaseRequest{AgentId: "a"})
	x.push(requestFrame(3, &tbav1.LeaseRequest{AgentId: "a"}))
	if f := <-frames; f.GetLease() == nil {
		t.Errorf("after the change: %v", f)
	}
}
