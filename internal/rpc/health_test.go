package rpc

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/token-budget-arbiter/tba/arbiter"
	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
	"github.com/token-budget-arbiter/tba/internal/journal"
)

// TestHealthFollowsThePools: a server whose journal is full gets no new work, and one that goes down neither, whatever its pools say.
func TestHealthFollowsThePools(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{store: journal.NewMemory(journal.MemoryOptions{MaxBytes: 64 << 10})})
		watch, err := healthpb.NewHealthClient(w.conn).Watch(t.Context(), &healthpb.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		next := func(want healthpb.HealthCheckResponse_ServingStatus) {
			t.Helper()
			if m, err := watch.Recv(); err != nil || m.GetStatus() != want {
				t.Fatalf("%v, %v, want %v", m, err, want)
			}
		}
		next(healthpb.HealthCheckResponse_SERVING)
		for i := 0; ; i++ {
			_, err := w.lease.RequestLease(t.Context(), &tbav1.LeaseRequest{AgentId: "a" + strconv.Itoa(i), EstimatedTokens: 10})
			if err != nil {
				break
			}
			if i > 10_000 {
				t.Fatal("the journal is never full")
			}
		}
		next(healthpb.HealthCheckResponse_NOT_SERVING)
	})
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{policy: testPolicy(func(p *arbiter.Policy) { p.Lease.TTL = int64(time.Minute) })})
		w.server.Drain(time.Second)
		time.Sleep(5 * healthEvery)
		m, err := healthpb.NewHealthClient(w.conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
		if err != nil || m.GetStatus() != healthpb.HealthCheckResponse_NOT_SERVING {
			t.Errorf("draining: %v, %v", m, err)
		}
	})
}
