package client

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
)

func TestFullJitterStaysInItsInterval(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		attempt int
		most    time.Duration
	}{
		{-1, time.Second}, {0, time.Second}, {1, 2 * time.Second}, {4, 16 * time.Second}, {5, 30 * time.Second}, {64, 30 * time.Second}, {math.MaxInt, 30 * time.Second},
	} {
		var low, high time.Duration = math.MaxInt64, 0
		for range 2000 {
			d := fullJitter(tt.attempt)
			low, high = min(low, d), max(high, d)
		}
		if low < 0 || high > tt.most || low > tt.most/20 || high < tt.most-tt.most/20 {
			t.Errorf("attempt %d: %v to %v, want all of 0 to %v", tt.attempt, low, high, tt.most)
		}
	}
}

func TestSafeCapacityCost(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		x       uint64
		agents  uint64
		ceiling int64
		want    time.Duration
	}{
		{1, 1, 60, time.Second},
		{1, 10, 60, 10 * time.Second},
		{1, 1, 7, 8_571_428_572}, // 60 s / 7, rounded up
		{1000, 100, 1_000_000, 6 * time.Second},
		{math.MaxInt32, 1_000_000, 1, math.MaxInt64}, // saturates
		{math.MaxUint64, 2, math.MaxInt64, math.MaxInt64},
	} {
		if got := (&safeCapacity{agents: tt.agents}).cost(tt.x, tt.ceiling); got != tt.want {
			t.Errorf("cost of %d at %d agents and %d a minute: %v, want %v", tt.x, tt.agents, tt.ceiling, got, tt.want)
		}
	}
}

// A fleet of agents, each with its own part, stays under the ceiling together.
func TestSafeCapacityHoldsForTheFleet(t *testing.T) {
	t.Parallel()
	const agents, ceiling = 50, 300
	start := time.Unix(0, 0)
	var calls []time.Duration
	for i := range agents {
		s, err := FallbackSafeCapacity{Agents: agents, Rungs: []SafeRung{{Provider: "openai", RequestsPerMinute: ceiling}}}.local()
		if err != nil {
			t.Fatal(err)
		}
		for now := start; now.Before(start.Add(5 * time.Minute)); {
			_, wait, ok := s.reserve(now, &Request{AgentID: fmt.Sprint("agent-", i), Tokens: 10}, time.Hour)
			if !ok {
				t.Fatal("refused")
			}
			now = now.Add(wait)
			calls = append(calls, now.Sub(start))
		}
	}
	for from := time.Duration(0); from < 4*time.Minute; from += 500 * time.Millisecond {
		n := 0
		for _, at := range calls {
			if at >= from && at < from+time.Minute {
				n++
			}
		}
		if n > ceiling {
			t.Fatalf("%d calls in the minute from %v, ceiling %d", n, from, ceiling)
		}
		if from > 15*time.Second && n < ceiling*9/10 {
			t.Fatalf("%d calls in the minute from %v: most of the ceiling of %d is wasted", n, from, ceiling)
		}
	}
}

func TestSafeCapacitySpreadsOverRungs(t *testing.T) {
	t.Parallel()
	rungs := []SafeRung{{Provider: "a", RequestsPerMinute: 60}, {Provider: "b", RequestsPerMinute: 60}, {Provider: "c", Model: "m", RequestsPerMinute: 60}}
	first := map[string]int{}
	for i := range 300 {
		s, err := FallbackSafeCapacity{Agents: 1, Rungs: rungs}.local()
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range s.rungs {
			r.begun = true // all free at once
		}
		at, _, ok := s.reserve(time.Unix(0, 0), &Request{Task: fmt.Sprint("task-", i)}, 0)
		if !ok {
			t.Fatal("refused")
		}
		first[at.Provider]++
	}
	for _, r := range rungs {
		if n := first[r.Provider]; n < 60 {
			t.Errorf("rung %s is first for %d of 300 tasks", r.Provider, n)
		}
	}
	s, _ := FallbackSafeCapacity{Agents: 1, Rungs: rungs[2:]}.local()
	if at, _, ok := s.reserve(time.Unix(0, 0), &Request{Model: "other"}, time.Hour); at != nil || ok {
		t.Errorf("rung %v for a model it does not serve", at)
	}
}

func TestTokensPaceTheFallbackToo(t *testing.T) {
	t.Parallel()
	s, err := FallbackSafeCapacity{Agents: 2, Rungs: []SafeRung{{Provider: "a", RequestsPerMinute: 6000, TokensPerMinute: 10_000}}}.local()
	if err != nil {
		t.Fatal(err)
	}
	s.rungs[0].begun = true
	now := time.Unix(0, 0)
	for i, want := range []time.Duration{0, 12 * time.Second, 24 * time.Second} { // 1,000 of 5,000 a minute
		if _, wait, ok := s.reserve(now, &Request{InputTokens: 400, OutputTokens: 600}, time.Hour); !ok || wait != want {
			t.Errorf("call %d waits %v, want %v", i, wait, want)
		}
	}
	if _, wait, ok := s.reserve(now, &Request{}, 30*time.Second); ok || wait != 36*time.Second {
		t.Errorf("beyond the patience: %v, %v", wait, ok)
	}
}

func TestFallbackThatMakesNoSense(t *testing.T) {
	t.Parallel()
	for want, f := range map[string]Fallback{
		"Agents is 0": FallbackSafeCapacity{Rungs: []SafeRung{{Provider: "a", RequestsPerMinute: 1}}},
		"no rung":     FallbackSafeCapacity{Agents: 1},
		"rung 0":      FallbackSafeCapacity{Agents: 1, Rungs: []SafeRung{{Provider: "a"}}},
		"is nil":      nil,
	} {
		if _, err := Dial("localhost:1", WithFallback(f)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestFramesAreCutIntoMessages(t *testing.T) {
	t.Parallel()
	small := &call{Id: 1, Call: &tbav1.SessionRequest_Frame_Request{Request: &tbav1.LeaseRequest{AgentId: "a"}}}
	large := &call{Id: 1, Call: &tbav1.SessionRequest_Frame_Request{Request: &tbav1.LeaseRequest{Ticket: make([]byte, 40<<10)}}}
	huge := &call{Id: 1, Call: &tbav1.SessionRequest_Frame_Request{Request: &tbav1.LeaseRequest{Ticket: make([]byte, 100<<10)}}}
	repeat := func(n int, c *call) (all []*call) {
		for range n {
			all = append(all, c)
		}
		return all
	}
	for i, tt := range []struct {
		frames []*call
		want   int
	}{{repeat(1, small), 1}, {repeat(128, small), 128}, {repeat(300, small), 128}, {repeat(3, large), 1}, {append(repeat(5, small), large, large), 6}, {repeat(2, huge), 1}} {
		n := chunk(tt.frames)
		if n != tt.want {
			t.Errorf("case %d: %d frames, want %d", i, n, tt.want)
		}
		if size := proto.Size(&tbav1.SessionRequest{Frames: tt.frames[:n]}); n > 1 && size > maxFrameBytes {
			t.Errorf("case %d: a message of %d bytes", i, size)
		}
	}
}
