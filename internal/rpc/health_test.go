package rpc

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/token-budget-arbiter/tba/internal/engine"
)

// sick is an engine that says it cannot grant while it is told so.
type sick struct {
	*engine.Engine
	ill atomic.Bool
}

func (s *sick) Ready() error {
	if s.ill.Load() {
		return errors.New("full: the journal has no room")
	}
	return s.Engine.Ready()
}

// TestHealthFollowsThePools: a server whose pools cannot grant gets no new work until they can, and one that goes down gets none whatever they say.
func TestHealthFollowsThePools(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{})
		pools := &sick{Engine: w.engine}
		s := New(Options{Engine: w.engine, Reader: pools, Feed: w.engine})
		defer s.Close()
		is := func(when string, want healthpb.HealthCheckResponse_ServingStatus) {
			t.Helper()
			for _, name := range []string{"", bareName, "tba.v1.Admin"} {
				if m, err := s.health.Check(context.Background(), &healthpb.HealthCheckRequest{Service: name}); err != nil || m.GetStatus() != want {
					t.Errorf("%s, health of %q: %v, %v", when, name, m, err)
				}
			}
		}
		is("before it serves", healthpb.HealthCheckResponse_NOT_SERVING)
		s.SetServing(true)
		is("serving", healthpb.HealthCheckResponse_SERVING)
		pools.ill.Store(true)
		time.Sleep(2 * healthEvery)
		is("journal full", healthpb.HealthCheckResponse_NOT_SERVING)
		pools.ill.Store(false)
		time.Sleep(2 * healthEvery)
		is("room again", healthpb.HealthCheckResponse_SERVING)
		s.Drain(time.Second)
		is("draining", healthpb.HealthCheckResponse_NOT_SERVING)
		time.Sleep(2 * healthEvery)
		is("draining still", healthpb.HealthCheckResponse_NOT_SERVING)
	})
}
