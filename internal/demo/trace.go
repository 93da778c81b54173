// Package demo: the scripted fleet of `tba dev --demo`.
//
// It replays a real production trace, faster than it happened, through a fleet of agents. Half of them lease each call with the
// SDK and make it over HTTP at mock providers; the other half know nothing of leases and call the gateway. What it proves is
// counted at the mock providers, from their own books: the arbiter is not asked whether it kept its promises.
package demo

import (
	_ "embed"
	"encoding/csv"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// Attribution names the source of the replayed trace, as its licence asks.
const Attribution = "Trace: Azure Public Dataset, Azure LLM inference trace 2023 (code), Patel et al., Splitwise, ISCA 2024, CC-BY 4.0."

//go:embed trace/azure-llm-2023-code-sample.csv
var sample string

// row is one call of the trace.
type row struct {
	at             time.Duration // since the first call of the sample
	prompt, output int64
}

// readTrace parses the columns TIMESTAMP, ContextTokens, GeneratedTokens.
func readTrace(text string) ([]row, error) {
	records, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("read trace: %w", err)
	}
	if len(records) < 2 {
		return nil, fmt.Errorf("read trace: %d lines, want a header and at least one call", len(records))
	}
	rows := make([]row, 0, len(records)-1)
	var first time.Time
	for i, r := range records[1:] {
		at, err := time.Parse("2006-01-02 15:04:05.9999999", r[0])
		if err != nil {
			return nil, fmt.Errorf("read trace, line %d: %w", i+2, err)
		}
		if i == 0 {
			first = at
		}
		prompt, errPrompt := strconv.ParseInt(r[1], 10, 64)
		output, errOutput := strconv.ParseInt(r[2], 10, 64)
		if errPrompt != nil || errOutput != nil || prompt < 0 || output < 0 {
			return nil, fmt.Errorf("read trace, line %d: %q and %q are not token counts", i+2, r[1], r[2])
		}
		rows = append(rows, row{at.Sub(first), prompt, output})
	}
	return rows, nil
}

// job is one call that an agent has to make.
type job struct {
	number         int64
	at             time.Duration // since the start of the run
	agent          int
	prompt, output int64
	cap            int64
}

// Demand comes in waves, as it does: busy for 25 s, in which the trace runs with its own bursts and gaps, then calm for
// 50 s, in which its calls go on one by one at a twentieth of the rate. Without the calm a fleet that wants twice what
// there is would sit at a full window for ever.
const (
	busy = 25 * time.Second
	calm = 50 * time.Second
	slow = 20
)

// schedule hands out the calls of the trace in time order, over and over, compressed to a mean rate in busy times. The
// same seed gives the same calls to the same agents.
type schedule struct {
	rows   []row
	agents map[string][]int // by class
	random *rand.Rand
	speed  float64       // how much faster than it happened
	pass   time.Duration // length of one pass, compressed
	gap    time.Duration // between calls in calm times
	next   int

	wave   int           // number of the wave
	origin time.Duration // compressed time of the trace at the start of the wave
	calmed int           // calls of this wave's calm so far; 0 while it is busy
}

func newSchedule(rows []row, fleet []member, seed uint64, perSecond float64) *schedule {
	s := &schedule{rows: rows, agents: map[string][]int{}, random: rand.New(rand.NewPCG(seed, 0x74726163))}
	for i, m := range fleet {
		s.agents[m.class] = append(s.agents[m.class], i)
	}
	s.pass = time.Duration(float64(len(rows)) / perSecond * float64(time.Second))
	s.gap = time.Duration(slow / perSecond * float64(time.Second))
	// The sample spans one gap less than it has calls.
	span := float64(rows[len(rows)-1].at) * float64(len(rows)) / float64(max(len(rows)-1, 1))
	s.speed = span / float64(s.pass)
	return s
}

func (s *schedule) take() job {
	r := s.rows[s.next%len(s.rows)]
	at := s.place(time.Duration(s.next/len(s.rows))*s.pass + time.Duration(float64(r.at)/s.speed))
	number := int64(s.next)
	s.next++
	candidates := s.agents[classOf(r, s.random.Float64())]
	return job{number: number, at: at, agent: candidates[s.random.IntN(len(candidates))], prompt: r.prompt, output: r.output, cap: outputCap(r.output)}
}

// place puts the next call, which the compressed trace has at t, into the waves.
func (s *schedule) place(t time.Duration) time.Duration {
	start := time.Duration(s.wave) * (busy + calm)
	if s.calmed == 0 && t-s.origin < busy {
		return start + t - s.origin
	}
	s.calmed++
	if at := time.Duration(s.calmed) * s.gap; at < calm {
		return start + busy + at
	}
	s.wave, s.origin, s.calmed = s.wave+1, t, 0
	return start + busy + calm
}

// outputCap is the cap that an agent puts on a call: the next power of two above twice what will come, because real
// callers leave room.
func outputCap(output int64) int64 {
	limit := int64(64)
	for limit < 2*output {
		limit *= 2
	}
	return limit
}
