package arbiter

import (
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
)

// Policy is one pool's limits, classes and rules, compiled from the file and immutable. It enters the journal as a fact
// (Adopt), so every replica decides by the same policy whatever its own file says. Slices keep the order of the file.
type Policy struct {
	// Version orders policies: a higher one replaces a lower one. 0 is allowed only for the first.
	Version uint64 `json:"version"`
	// Shadow decides and records everything but refuses and delays nothing.
	Shadow bool `json:"shadow,omitempty"`
	// Guard is how late a call may reach the provider after the moment its lease dates from, ns. Windows are this much longer than 60 s.
	Guard  int64      `json:"guard"`
	Period PeriodSpec `json:"period"`
	// Global bounds the whole pool in one period.
	Global    Limit      `json:"global"`
	Providers []Provider `json:"providers"`
	// Classes has every class of the file and always one named "default" (share 0, priority LOW unless the file says more).
	Classes []Class `json:"classes"`
	// Agents and Workflows have own limits; Tasks is the limit of each task.
	Agents    []NamedLimit `json:"agents,omitempty"`
	Workflows []NamedLimit `json:"workflows,omitempty"`
	Tasks     Limit        `json:"tasks"`
	// Reserves keeps a fraction of each ceiling in force for a priority level and those above it; indexed by Priority.
	Reserves [4]Reserve `json:"reserves"`
	Lease    LeaseRules `json:"lease"`
	Breaker  Breaker    `json:"breaker"`
	// Weights of the placement score; indexed by Priority.
	Weights      [4]Weights         `json:"weights"`
	Backpressure BackpressureLevels `json:"backpressure"`
	// Ladders are the ordered lists of rungs that a request may name. Names are unique.
	Ladders []Ladder `json:"ladders,omitempty"`
	// FallbackPrice prices a model that neither the file nor the catalogue knows. nil refuses it as unpriced.
	FallbackPrice *Rates `json:"fallback_price,omitempty"`
}

// PeriodSpec names the budget period. The engine computes its ends from it; arbiter only carries it.
type PeriodSpec struct {
	// Kind is hourly, daily, weekly, monthly, quarterly or every.
	Kind string `json:"kind"`
	// TimeZone is an IANA name; empty is UTC.
	TimeZone string `json:"time_zone,omitempty"`
	// Every is the length, ns, and Anchor a start, Unix ns, for Kind "every". For the calendar kinds Anchor is the day of the month (1-31, monthly and quarterly) or of the week (0 = Sunday); 0 is the first, for weekly Monday is the default of the configuration.
	Every  int64 `json:"every,omitempty"`
	Anchor int64 `json:"anchor,omitempty"`
}

// Limit bounds tokens and money of one budget; Unlimited bounds nothing, 0 allows nothing.
type Limit struct {
	Tokens Tokens `json:"tokens"`
	Nanos  Nanos  `json:"nanos"`
	// Shadow counts what would be refused and lets it pass.
	Shadow bool `json:"shadow,omitempty"`
}

// NoLimit bounds nothing.
var NoLimit = Limit{Tokens: Unlimited, Nanos: Unlimited}

// NamedLimit is the limit of one agent or workflow.
type NamedLimit struct {
	Name string `json:"name"`
	Limit
}

// Ceilings are the rate and concurrency limits of a provider, a model or a group of models. 0 means no such ceiling.
type Ceilings struct {
	RPM           Requests `json:"rpm,omitempty"`
	TPM           Tokens   `json:"tpm,omitempty"`
	InputTPM      Tokens   `json:"input_tpm,omitempty"`
	OutputTPM     Tokens   `json:"output_tpm,omitempty"`
	RPD           Requests `json:"rpd,omitempty"`
	MaxConcurrent Requests `json:"max_concurrency,omitempty"`
	// Burst is the pacing burst as a fraction of the ceiling, rounded down, at least 1; 0 is a tenth. Whole lets a full window go at once.
	Burst PPM `json:"burst,omitempty"`
	// Generated charges token windows with what was used, at commit, and holds the estimate until then. Otherwise the estimate is charged at grant and stays.
	Generated bool `json:"generated,omitempty"`
	// UncachedOnly leaves tokens read from a cache out of the token windows, as providers do that do not count them: a grant is charged by
	// the learned part of the prompt that is not cached, and the commit corrects the window.
	UncachedOnly bool `json:"uncached_only,omitempty"`
	// ShadowRates counts what these ceilings would refuse and lets it pass.
	ShadowRates bool `json:"shadow_rates,omitempty"`
}

// Provider is one upstream of the pool.
type Provider struct {
	Name string `json:"name"`
	Limit
	Ceilings
	// Zone is the IANA zone of the provider's calendar day (RPD); empty is UTC.
	Zone string `json:"zone,omitempty"`
	// Tool marks a provider that is no language model (a search API): only a request that names it, by ladder, model or preferred provider,
	// is placed there.
	Tool bool `json:"tool,omitempty"`
	// ServiceTiers are what the provider's service tiers cost beside the standard one, by the words of its answers. Names are unique. Empty:
	// all of them cost the same.
	ServiceTiers []ServiceTier `json:"service_tiers,omitempty"`
	// Models has the default model first: it serves requests that name none. At least one.
	Models []Model `json:"models"`
}

// ServiceTier is a service tier (flex, priority, batch, ...) by the word with which an answer names it.
type ServiceTier struct {
	Name string `json:"name"`
	// Factor multiplies the cost of a call, 0 to MaxFactor; Whole is the standard price.
	Factor PPM `json:"factor"`
}

// ServiceRates are the rates of one model in a service tier for which its provider has no factor. They hold for any length of prompt.
type ServiceRates struct {
	Name string `json:"name"`
	Rates
}

// Model is a rung: one model at one provider.
type Model struct {
	// Name is the model's id at the provider; empty for the default model of a provider whose file names none.
	Name string `json:"name,omitempty"`
	Limit
	Ceilings
	// LimitGroup names models of one provider that share the ceilings above; empty is a group of its own.
	LimitGroup string  `json:"limit_group,omitempty"`
	Prices     []Price `json:"prices"`
	// ServiceRates replace prices and factor in service tiers that have rates of their own. Names are unique.
	ServiceRates []ServiceRates `json:"service_rates,omitempty"`
	// MaxOutput is the model's output cap, tokens; 0 is unknown. A larger estimate is clamped to it.
	MaxOutput Tokens `json:"max_output,omitempty"`
	// MaxInput is the longest prompt, tokens; 0 is unknown. A longer one can never fit.
	MaxInput Tokens `json:"max_input,omitempty"`
}

// Ladder is an ordered list of rungs, cheapest first: a request that names it runs down the tiers and takes a rung of the first that has
// room. Inside a tier rungs are alike and tasks are spread over them by hash.
type Ladder struct {
	// Name is what a request names; not empty.
	Name string `json:"name"`
	// Tiers are in the order in which they are tried; none is empty, and no rung is in the ladder twice.
	Tiers [][]Rung `json:"tiers"`
}

// Rung names one model at one provider of the policy. An empty Model is the provider's default, the first of its models.
type Rung struct {
	Provider string `json:"provider"`
	Model    string `json:"model,omitempty"`
}

// String is the rung as Request.Except takes it: "provider/model", or the provider alone without a model.
func (r Rung) String() string {
	if r.Model == "" {
		return r.Provider
	}
	return r.Provider + "/" + r.Model
}

// Class is a kind of agent.
type Class struct {
	Name string `json:"name"`
	// Share is the class's guaranteed part of ceilings and period budget; all shares sum to at most Whole.
	Share    PPM      `json:"share"`
	Priority Priority `json:"priority"`
	// Limit is the class's own hard limit; a share is not one.
	Limit
}

// Reserve keeps part of the capacity for a priority level.
type Reserve struct {
	// Rate applies to windows and slots, Budget to the period budget. Fractions of the ceiling in force, rounded down.
	Rate   PPM `json:"rate,omitempty"`
	Budget PPM `json:"budget,omitempty"`
}

// ExpiryRule says what becomes of a begun lease whose holder fell silent.
type ExpiryRule uint8

const (
	// ExpiryReturn gives unused tokens back at the TTL; a late commit still counts in full.
	ExpiryReturn ExpiryRule = iota
	// ExpiryAssume holds them for the grace and then counts them as spent without proof.
	ExpiryAssume
)

// LeaseRules are the times and clamps of leases, ns and tokens. Start from DefaultLeaseRules: a policy whose Grace, CommitBy or Forget is
// 0 is refused.
type LeaseRules struct {
	// TTL is explicit; 0 learns it per provider: 2 × p99 of its calls, 30 s to 15 min, 120 s until 50 calls are seen.
	TTL int64 `json:"ttl,omitempty"`
	// StartBy is how long after the grant the call may start, 0 to 10 s; 0 is at once. A deferred start cannot be at once: with 0 it
	// has the default's 2 s.
	StartBy  int64 `json:"start_by"`
	Grace    int64 `json:"grace"`
	CommitBy int64 `json:"commit_by"`
	// Forget is the idempotency horizon of a committed lease.
	Forget   int64      `json:"forget"`
	OnExpiry ExpiryRule `json:"on_expiry,omitempty"`
	// Max bounds the whole life of an active lease by extension; 0 is no bound.
	Max int64 `json:"max,omitempty"`
	// MaxHoldShare is the largest part of any one limited budget that a single lease may hold; 0 is Whole.
	MaxHoldShare PPM `json:"max_hold_share,omitempty"`
	// MaxOpen and MaxHeld bound the open leases and held tokens of one principal; 0 is no bound.
	MaxOpen Requests `json:"max_open,omitempty"`
	MaxHeld Tokens   `json:"max_held,omitempty"`
}

// DefaultLeaseRules are the documented times: start_by 2 s, grace 10 min, commit_by 1 h, forget 10 min.
var DefaultLeaseRules = LeaseRules{StartBy: 2 * Second, Grace: 10 * Minute, CommitBy: Hour, Forget: 10 * Minute}

// deferredStart is how long after its grant, or an extension, a deferred call may start.
func (l *LeaseRules) deferredStart() int64 {
	if l.StartBy == 0 {
		return DefaultLeaseRules.StartBy
	}
	return l.StartBy
}

// Breaker shuts a rung after Failures consecutive failures and lets one probe through after Recovery (doubled up to 10 s, or Recovery when that is longer).
// Ratio, MinCalls, Window and Ramp are carried for the ratio and ramp rules.
type Breaker struct {
	Failures int64 `json:"failures"`
	Ratio    PPM   `json:"ratio"`
	MinCalls int64 `json:"min_calls"`
	Window   int64 `json:"window"`
	Recovery int64 `json:"recovery"`
	Ramp     int64 `json:"ramp"`
}

// DefaultBreaker is 5 failures, ratio 0.5 of at least 20 calls in 30 s, recovery 5 s, ramp 10 s.
var DefaultBreaker = Breaker{Failures: 5, Ratio: Whole / 2, MinCalls: 20, Window: 30 * Second, Recovery: 5 * Second, Ramp: 10 * Second}

// Weights are the parts of the placement score, in PPM.
type Weights struct {
	Headroom  PPM `json:"headroom"`
	Cost      PPM `json:"cost"`
	Preferred PPM `json:"preferred"`
	Latency   PPM `json:"latency"`
}

// DefaultWeights are the published ones: headroom and cost 0.30/0.70 for LOW, 0.50/0.50 MEDIUM, 0.70/0.30 HIGH and CRITICAL; 0.15 for the preferred provider; 0.15 for latency, taken evenly from the two once every candidate has 50 samples.
var DefaultWeights = [4]Weights{
	Low:      {300_000, 700_000, 150_000, 150_000},
	Medium:   {500_000, 500_000, 150_000, 150_000},
	High:     {700_000, 300_000, 150_000, 150_000},
	Critical: {700_000, 300_000, 150_000, 150_000},
}

// BackpressureLevels is the table of thresholds and delays, indexed by Level − 1 (MILD first).
type BackpressureLevels struct {
	// Consumed: the level holds from this part of the global budget on.
	Consumed [4]PPM `json:"consumed"`
	// Headroom: the level holds at or below this rate headroom.
	Headroom [4]PPM `json:"headroom"`
	// DelayMS is the recommended delay before a call.
	DelayMS [4]int32 `json:"delay_ms"`
}

// DefaultBackpressure is the published table (docs/algorithms.md §9).
var DefaultBackpressure = BackpressureLevels{
	Consumed: [4]PPM{500_000, 700_000, 850_000, 950_000},
	Headroom: [4]PPM{300_000, 200_000, 100_000, 0},
	DelayMS:  [4]int32{200, 800, 3_000, 10_000},
}

// Priority orders requests; the numbers are the wire's.
type Priority uint8

// Priority levels, lowest first.
const (
	Low Priority = iota
	Medium
	High
	Critical
)

func (p Priority) String() string { return [...]string{"LOW", "MEDIUM", "HIGH", "CRITICAL"}[p&3] }

// Level is how congested the pool is; the numbers are the wire's.
type Level uint8

// Backpressure levels, calmest first.
const (
	LevelNone Level = iota
	LevelMild
	LevelModerate
	LevelSevere
	LevelCritical
)

func (l Level) String() string {
	return [...]string{"NONE", "MILD", "MODERATE", "SEVERE", "CRITICAL"}[min(l, 4)]
}

// DefaultClass is the class of a request that names none.
const DefaultClass = "default"

// MaxPolicyBytes and MaxPolicyPacked bound an encoded policy, so that it fits one journal entry.
const (
	MaxPolicyBytes  = 1 << 20
	MaxPolicyPacked = 120 << 10
)

// Encode returns the policy's journal form, compressed, and its hash. Equal policies have equal hashes.
// It fails when the policy is above MaxPolicyBytes, or MaxPolicyPacked compressed.
func (p *Policy) Encode() (packed []byte, hash [32]byte, err error) {
	plain, err := json.Marshal(p)
	if err != nil {
		return nil, hash, fmt.Errorf("encode policy: %w", err)
	}
	if len(plain) > MaxPolicyBytes {
		return nil, hash, fmt.Errorf("encode policy: %d bytes, the bound is %d: split the pool", len(plain), MaxPolicyBytes)
	}
	var buf bytes.Buffer
	w, err := flate.NewWriter(&buf, flate.BestCompression)
	if err != nil {
		return nil, hash, fmt.Errorf("encode policy: %w", err)
	}
	if _, err = w.Write(plain); err == nil {
		err = w.Close()
	}
	if err != nil {
		return nil, hash, fmt.Errorf("encode policy: %w", err)
	}
	if buf.Len() > MaxPolicyPacked {
		return nil, hash, fmt.Errorf("encode policy: %d bytes compressed, the bound is %d: split the pool", buf.Len(), MaxPolicyPacked)
	}
	return buf.Bytes(), sha256.Sum256(plain), nil
}

// DecodePolicy reads what Encode wrote.
func DecodePolicy(packed []byte) (*Policy, error) {
	p, _, err := decodePolicy(packed)
	return p, err
}

// decodePolicy is DecodePolicy with the hash that Encode gave.
func decodePolicy(packed []byte) (p *Policy, hash [32]byte, err error) {
	plain, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(packed)), MaxPolicyBytes+1))
	if err != nil {
		return nil, hash, fmt.Errorf("decode policy: %w", err)
	}
	if len(plain) > MaxPolicyBytes {
		return nil, hash, fmt.Errorf("decode policy: above %d bytes", MaxPolicyBytes)
	}
	p = new(Policy)
	if err := json.Unmarshal(plain, p); err != nil {
		return nil, hash, fmt.Errorf("decode policy: %w", err)
	}
	return p, sha256.Sum256(plain), nil
}
