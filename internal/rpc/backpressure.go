package rpc

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/engine"
	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
	"github.com/token-budget-arbiter/tba/internal/identity"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// signalEvery is the longest silence of a subscription.
const signalEvery = 5 * time.Second

// StreamBackpressure tells how full the pool is, on change and every 5 s.
func (s *arbiterService) StreamBackpressure(m *tbav1.BackpressureSubscription, stream grpc.ServerStreamingServer[tbav1.BackpressureSignal]) error {
	return s.stream(stream.Context(), m, func(x *signal) error { return stream.SendMsg(x) })
}

// stream sends signals until ctx ends, the server closes, or send fails. It holds one value only while it sends it: whatever happened
// meanwhile is told by the next, so a slow reader gets the latest and holds nobody.
func (s *Server) stream(ctx context.Context, m *tbav1.BackpressureSubscription, send func(*signal) error) error {
	c, err := s.gate.caller(ctx, identity.ActionListen)
	if err != nil {
		return toStatus(err)
	}
	watch, pool, err := s.subscribe(m, c)
	if err != nil {
		return toStatus(err)
	}
	defer watch.Close()
	return s.follow(ctx, watch, time.Duration(m.GetMinIntervalMs())*time.Millisecond, func(p *engine.Pressure) error {
		return send(s.signal(pool, p))
	})
}

// subscribe checks a subscription and begins it, to the pool that it returns.
func (s *Server) subscribe(m *tbav1.BackpressureSubscription, c *identity.Caller) (*engine.Watch, string, *arbiter.Error) {
	if err := firstError(
		checkID("agent_id", m.GetAgentId()),
		checkID("agent_class", m.GetAgentClass()),
		checkID("pool", m.GetPool()),
		checkDuration("min_interval_ms", m.GetMinIntervalMs(), maxWaitMS),
	); err != nil {
		return nil, "", err
	}
	if m.GetAgentId() == "" {
		return nil, "", invalid("agent_id", "missing", "empty: say who listens")
	}
	pool, err := c.PoolFor(m.GetPool())
	if err != nil {
		return nil, "", err
	}
	class, err := c.ClassFor(m.GetAgentClass())
	if err != nil && c.Role == identity.RoleAgent {
		return nil, "", err
	}
	if err := s.knownClass(pool, class); err != nil {
		return nil, "", err
	}
	watch, fault := s.feed.WatchBackpressure(pool)
	if fault != nil {
		return nil, "", asError(s.refused(fault))
	}
	return watch, pool, nil
}

// knownClass refuses a class that the policy does not have.
func (s *Server) knownClass(pool, class string) *arbiter.Error {
	policy, err := s.policy(pool)
	if err != nil || policy == nil || class == "" || class == arbiter.DefaultClass {
		return err
	}
	for i := range policy.Classes {
		if policy.Classes[i].Name == class {
			return nil
		}
	}
	return invalid("agent_class", "unknown_class", "%q is not in the policy of pool %s: add it under budget.agent_classes or leave it empty", class, pool)
}

// follow gives the latest pressure to tell at once, on each change, and every 5 s, never closer together than rest.
func (s *Server) follow(ctx context.Context, watch *engine.Watch, rest time.Duration, tell func(*engine.Pressure) error) error {
	timer := time.NewTimer(signalEvery)
	defer timer.Stop()
	for {
		latest, changed := watch.Latest()
		if err := tell(latest); err != nil {
			return err
		}
		if rest > 0 {
			timer.Reset(rest)
			select {
			case <-timer.C:
			case <-ctx.Done():
				return ctx.Err()
			case <-s.closed:
				return toStatus(errClosing())
			}
		}
		timer.Reset(max(signalEvery-rest, 0))
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		case <-s.closed:
			return toStatus(errClosing())
		}
	}
}

// signal is the pressure of a pool in the forms of all wires, made once for all its subscribers. It must not be modified.
type signal struct {
	of      *engine.Pressure
	message *tbav1.BackpressureSignal
	wire    []byte // as gRPC sends it
}

// signal returns the forms of p, the latest pressure of a pool.
func (s *Server) signal(pool string, p *engine.Pressure) *signal {
	slot, ok := s.signals.Load(pool)
	if !ok {
		slot, _ = s.signals.LoadOrStore(pool, new(atomic.Pointer[signal]))
	}
	latest, _ := slot.(*atomic.Pointer[signal]) // nothing else is stored
	if x := latest.Load(); x != nil && x.of == p {
		return x
	}
	x := &signal{of: p, message: toSignalMessage(p)}
	x.wire, _ = proto.Marshal(x.message) // names are checked texts: it always encodes
	latest.Store(x)
	return x
}

// toSignalMessage is the pressure of a pool as the wire carries it.
func toSignalMessage(p *engine.Pressure) *tbav1.BackpressureSignal {
	m := &tbav1.BackpressureSignal{
		Level:                   tbav1.BackpressureSignal_Level(p.Level),
		GlobalBudgetConsumedPct: fraction(p.Consumed),
		RecommendedDelayMs:      p.DelayMS,
		ShedLowPriority:         p.ShedLow,
		Message:                 p.Message,
		Sequence:                p.Sequence,
	}
	if len(p.Providers) > 0 {
		m.ProviderHeadrooms = make(map[string]float64, len(p.Providers))
		for _, h := range p.Providers {
			m.ProviderHeadrooms[h.Provider] = fraction(h.Headroom)
		}
	}
	return m
}

func fraction(f arbiter.PPM) float64 { return float64(f) / float64(arbiter.Whole) }
