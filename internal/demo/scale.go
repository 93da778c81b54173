package demo

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/token-budget-arbiter/tba/internal/mockprovider"
	"github.com/token-budget-arbiter/tba/internal/provider"
)

// The example budget, scaled so that each ceiling binds the fleet within half a minute: requests a minute to a twentieth,
// tokens a minute to a half. Period budgets follow from the length of the run (see ScaleFor). Slots are the demo's own:
// the example has none. What the trace offers in 25 s is more than the whole windows of openai (requests) and anthropic
// (tokens) allow in 60 s, so that a fleet without leases would break them.
const (
	requestScale = 20
	tokenScale   = 2
	exampleTotal = 500_000_000
	burstPercent = 30 // of a ceiling may go at once, so that half a minute comes near to the ceiling itself
)

// share is one provider of the scaled example.
type share struct {
	name                   string
	allocated              int64 // of exampleTotal
	exampleRPM, exampleTPM int64
	slots                  int64
}

var shares = []share{
	{provider.OpenAI, 200_000_000, 10_000, 2_000_000, 48},
	{provider.Anthropic, 150_000_000, 5_000, 1_000_000, 24},
	{provider.Gemini, 100_000_000, 8_000, 1_500_000, 4},
	{provider.Mistral, 50_000_000, 3_000, 500_000, 16},
}

// Ceiling is what one provider of the demo allows.
type Ceiling struct {
	Provider                   string
	Allocated                  int64 // tokens of the period
	RPM, TPM                   int64
	Slots                      int64
	firstToken                 time.Duration
	speed                      int64
	burstRequests, burstTokens int64
}

// Scale is the demo's budget: the example's proportions at the size of the fleet.
type Scale struct {
	GlobalTokens int64
	Ceilings     []Ceiling
	// Every is the length of the budget period, one of which begins at Anchor.
	Every  time.Duration
	Anchor time.Time
}

// endlessPeriod is the budget period of a run without end: two waves, then the budget starts anew.
const endlessPeriod = 2 * (busy + calm)

// ScaleFor scales the example budget to a run of that length. Its period begins at start, because class shares grow with
// the period and the day of the month must not decide what the demo shows, and ends after the run; a run without end (0)
// has a short one, so that its budget comes back. A journal with an earlier run keeps that run's period and spend.
//
// In d, the pace of a ceiling C lets the burst of 3/10 C go at once and C/60 s after that, so at most C·(3/10 + d/60 s);
// longer runs come in waves (see schedule), of which each busy part lets through as much again.
// The smallest slice is 17/20 of what its provider's TPM lets through, so that it runs out before the end; all other
// slices and the global budget keep the example's proportions to it. Worked example: d = 25 s, C = 250,000: 179,166
// tokens can pass, the slice is 152,291, the global budget ten times that.
func ScaleFor(d time.Duration, start time.Time) Scale {
	s := Scale{Every: d + 24*time.Hour, Anchor: start.UTC().Truncate(time.Second)}
	if d <= 0 {
		d, s.Every = endlessPeriod, endlessPeriod
	}
	least := shares[len(shares)-1]
	ceiling := least.exampleTPM / tokenScale
	passed := func(d time.Duration) int64 {
		return ceiling*burstPercent/100 + int64(float64(ceiling)*min(d, busy).Seconds()/60)
	}
	passes := int64(d/(busy+calm)) * passed(busy)
	if rest := d % (busy + calm); rest > 0 {
		passes += passed(rest)
	}
	slice := passes * 17 / 20
	s.GlobalTokens = slice * (exampleTotal / least.allocated)
	for _, x := range shares {
		c := Ceiling{
			Provider: x.name, Allocated: slice * (x.allocated / least.allocated),
			RPM: x.exampleRPM / requestScale, TPM: x.exampleTPM / tokenScale, Slots: x.slots,
			firstToken: 250 * time.Millisecond, speed: 160,
		}
		if x.name == provider.Gemini {
			c.firstToken = 600 * time.Millisecond
		}
		// Beside the window the mocks have a bucket of twice the burst that the arbiter paces by, as real providers do.
		c.burstRequests, c.burstTokens = c.RPM*2*burstPercent/100, c.TPM*2*burstPercent/100
		s.Ceilings = append(s.Ceilings, c)
	}
	return s
}

// MockOptions are the providers of the demo: their limits are those of the policy, enforced by themselves.
func (s Scale) MockOptions() mockprovider.Options {
	var o mockprovider.Options
	for _, c := range s.Ceilings {
		o.Upstreams = append(o.Upstreams, mockprovider.Upstream{
			Name: c.Provider, Dialect: c.Provider, RPM: c.RPM, TPM: c.TPM, MaxConcurrency: c.Slots,
			BurstRequests: c.burstRequests, BurstTokens: c.burstTokens, FirstToken: c.firstToken, Speed: c.speed,
		})
	}
	return o
}

// period is the budget period as the file writes it.
func (s Scale) period() string {
	return fmt.Sprintf("{every: %v, anchor: %q}", s.Every, s.Anchor.Format(time.RFC3339))
}

// periods is how many budget periods the time between two moments touches.
func (s Scale) periods(from, to time.Time) int64 {
	return int64(to.Sub(s.Anchor)/s.Every-from.Sub(s.Anchor)/s.Every) + 1
}

// renewal says when a short period ends, "" of a long one.
func (s Scale) renewal(now time.Time) string {
	if s.Every > endlessPeriod {
		return ""
	}
	return fmt.Sprintf(" (anew in %.0fs)", (s.Every - now.Sub(s.Anchor)%s.Every).Seconds())
}

// PolicyYAML is the configuration file of the demo. url gives the base URL of a provider's mock; nil leaves it out.
func (s Scale) PolicyYAML(url func(provider string) string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `# The example budget, scaled to the demo: requests a minute to 1/%d, tokens a minute to 1/%d, period
# budgets so that the smallest slice runs out before the end. Slots are the demo's own.
budget:
  period: %s
  global_tokens: %d
  providers:
`, requestScale, tokenScale, s.period(), s.GlobalTokens)
	for _, c := range s.Ceilings {
		fmt.Fprintf(&b, "    %s:\n      allocated_tokens: %d\n      rpm_ceiling: %d\n      tpm_ceiling: %d\n      max_concurrency: %d\n      burst: 0.%d\n",
			c.Provider, c.Allocated, c.RPM, c.TPM, c.Slots, burstPercent)
		if url != nil {
			version := "" // as the SDKs want it: OpenAI's alone has the version in its base URL
			if c.Provider == provider.OpenAI {
				version = "/v1"
			}
			fmt.Fprintf(&b, "      base_url: %s%s\n      allow_private: true\n", url(c.Provider), version)
		}
		fmt.Fprintf(&b, "      models:\n        %s: {}\n", upstreamModel[c.Provider])
	}
	b.WriteString(`  agent_classes:
    planner:
      share: 0.20
      priority: high
    code_generator:
      share: 0.40
      priority: high
    retrieval:
      share: 0.20
      priority: medium
    summarizer:
      share: 0.10
      priority: low
    validator:
      share: 0.10
      priority: medium
ladders:
`)
	for _, l := range ladders {
		fmt.Fprintf(&b, "  %s:\n    tiers:\n", l.name)
		for _, tier := range l.tiers {
			rungs := make([]string, len(tier))
			for i, p := range tier {
				rungs[i] = p + "/" + upstreamModel[p]
			}
			fmt.Fprintf(&b, "      - [%s]\n", strings.Join(rungs, ", "))
		}
	}
	b.WriteString(`# The published delays, a tenth of each: the trace runs faster than it happened.
backpressure:
  mild: {delay: 20ms}
  moderate: {delay: 80ms}
  severe: {delay: 300ms}
  critical: {delay: 1s}
`)
	return b.Bytes()
}
