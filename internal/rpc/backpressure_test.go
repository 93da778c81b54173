package rpc

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/engine"
	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
)

// TestSignalIsMadeOnce: all subscribers of a pool share one encoding of a value, and it is the value's.
func TestSignalIsMadeOnce(t *testing.T) {
	t.Parallel()
	var s Server
	mild := &engine.Pressure{Sequence: 1, Pressure: arbiter.Pressure{Level: arbiter.LevelMild, DelayMS: 5}}
	first := s.signal("a", mild)
	if s.signal("b", &engine.Pressure{}) == first || s.signal("a", mild) != first {
		t.Error("not one signal for each pool and value")
	}
	calm := s.signal("a", &engine.Pressure{Sequence: 2})
	var m tbav1.BackpressureSignal
	if err := proto.Unmarshal(calm.wire, &m); err != nil || !proto.Equal(&m, calm.message) || m.GetSequence() != 2 {
		t.Errorf("%v, %v", &m, err)
	}
}
