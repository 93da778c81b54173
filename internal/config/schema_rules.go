package config

// Window sets the sliding windows.
type Window struct {
	Guard Duration `yaml:"guard" default:"250ms" doc:"How late a call may reach the provider after the moment its lease dates from; windows are this much longer than 60 s. It covers clock difference (20 ms), the way of the answer (100 ms) and the way to the provider. 120ms to 10s."`
}

// Lease sets the times of leases. The defaults are those of lease life in docs/concepts.md.
type Lease struct {
	TTL          *Duration `yaml:"ttl" doc:"How long a lease lives without an extension. Left out: learned for each provider, 2 × p99 of its calls, 30s to 15m, 120s until 50 calls are seen." example:"120s"`
	StartBy      Duration  `yaml:"start_by" default:"2s" doc:"How long after the grant a call may still start. 0 to 10s. Rate windows lose a little of their capacity to it."`
	Grace        Duration  `yaml:"grace" default:"10m" doc:"With on_expiry assume: how long a lease whose holder fell silent is still held."`
	CommitBy     Duration  `yaml:"commit_by" default:"1h" doc:"How long after the end of its lease a commit is still taken. Later ones are recorded as unattributed spend."`
	OnExpiry     string    `yaml:"on_expiry" default:"return" enum:"return|assume" doc:"What becomes of a lease whose holder fell silent: return gives its unused tokens back at the TTL; assume counts them as spent after the grace, for budgets that must not be passed even when an agent dies after its call reached the provider."`
	Max          *Duration `yaml:"max" doc:"The longest life of a lease with all its extensions. Left out: as long as its holder lives." example:"2h"`
	MaxHoldShare Share     `yaml:"max_hold_share" default:"1" doc:"The largest part of any one budget a single lease may hold."`
	MaxOpen      *Count    `yaml:"max_open" doc:"Open leases one principal may have. Left out: no bound." example:"1_000"`
	MaxHeld      *Count    `yaml:"max_held_tokens" doc:"Tokens one principal may hold in open leases. Left out: no bound." example:"10_000_000"`
}

// Breaker sets the circuit breakers.
type Breaker struct {
	Failures Count    `yaml:"failures" default:"5" doc:"Consecutive failures (time-outs, 5xx, refused connections; never a 429) that open it."`
	Ratio    Share    `yaml:"ratio" default:"0.5" later:"it opens on consecutive failures only" doc:"The part of failed calls in the window that opens it."`
	MinCalls Count    `yaml:"min_calls" default:"20" later:"it opens on consecutive failures only" doc:"Calls the window must hold before the ratio counts."`
	Window   Duration `yaml:"window" default:"30s" later:"it opens on consecutive failures only" doc:"The span of the ratio."`
	Recovery Duration `yaml:"recovery" default:"5s" doc:"How long it stays open before one probe; doubled up to 10s after each failed probe. 60s for the classic form. 100ms to 1h."`
	Ramp     Duration `yaml:"ramp" default:"10s" doc:"How long full use takes to return after a good probe: from a tenth of each ceiling to the whole of it. 0 uses it in full at once. 0 to 10m."`
}

// Backpressure sets the level that callers see.
type Backpressure struct {
	Mode     string `yaml:"mode" default:"table" enum:"table|adaptive" doc:"table: the level follows from the thresholds below alone. adaptive is not there yet."`
	Mild     Level  `yaml:"mild" doc:"MILD: prefer cheap providers. Defaults: consumed 0.50, headroom 0.30, delay 200ms."`
	Moderate Level  `yaml:"moderate" doc:"MODERATE: add the delay. Defaults: consumed 0.70, headroom 0.20, delay 800ms."`
	Severe   Level  `yaml:"severe" doc:"SEVERE: drop low-priority work. Defaults: consumed 0.85, headroom 0.10, delay 3s."`
	Critical Level  `yaml:"critical" doc:"CRITICAL: halt all but critical agents. Defaults: consumed 0.95, headroom 0, delay 10s."`
}

// Level is one row of the backpressure table.
type Level struct {
	Consumed *Share    `yaml:"consumed" doc:"The level holds from this part of the global budget on." example:"0.70"`
	Headroom *Share    `yaml:"headroom" doc:"The level holds at or below this smallest rate headroom of the providers that answer." example:"0.20"`
	Delay    *Duration `yaml:"delay" doc:"The delay recommended before each call. At most 10m." example:"800ms"`
}

// Routing sets the choice of a provider.
type Routing struct {
	Weights        PriorityWeights `yaml:"weights" doc:"The parts of the score, for each priority."`
	ValueOfWaiting *Map[USD]       `yaml:"value_of_waiting" later:"a request takes the first tier of its ladder that has room, whatever its class" doc:"What an hour of waiting costs a class, in USD." example:"{planner: 40}"`
}

// PriorityWeights are the weights of each priority.
type PriorityWeights struct {
	Low      Weights `yaml:"low" doc:"Defaults: headroom 0.30, cost 0.70, preferred 0.15, latency 0.15."`
	Medium   Weights `yaml:"medium" doc:"Defaults: headroom 0.50, cost 0.50, preferred 0.15, latency 0.15."`
	High     Weights `yaml:"high" doc:"Defaults: headroom 0.70, cost 0.30, preferred 0.15, latency 0.15."`
	Critical Weights `yaml:"critical" doc:"Defaults: headroom 0.70, cost 0.30, preferred 0.15, latency 0.15."`
}

// Weights are the parts of a score.
type Weights struct {
	Headroom  *Share `yaml:"headroom" doc:"Weight of free capacity." example:"0.70"`
	Cost      *Share `yaml:"cost" doc:"Weight of a low price." example:"0.30"`
	Preferred *Share `yaml:"preferred" doc:"Added for the provider the request prefers." example:"0.15"`
	Latency   *Share `yaml:"latency" doc:"Weight of a short answer time, taken evenly from headroom and cost once every candidate has 50 samples." example:"0.15"`
}

// Limits are those of the server.
type Limits struct {
	PerAddress PerAddress `yaml:"per_address" doc:"What one client address may ask over HTTP, and how many gRPC connections it may open. Set here, it holds on the loopback and for each gRPC call too."`
}

// PerAddress is a token bucket for each client address.
type PerAddress struct {
	Rate  Count `yaml:"rate" default:"100" doc:"Requests per second."`
	Burst Count `yaml:"burst" default:"200" doc:"Requests at once."`
}

// Auth is who may ask.
type Auth struct {
	Keys []Key `yaml:"keys" doc:"Bearer keys, each with what its holder may do."`
}

// Key is one bearer key.
type Key struct {
	Name        string   `yaml:"name" doc:"The principal's name, in logs and in the ownership of leases. Required, once only." example:"team-search"`
	Key         Secret   `yaml:"key" doc:"The key itself, never in the file. Required." example:"{env: TBA_KEY_SEARCH}"`
	Pool        string   `yaml:"pool" doc:"The only pool it may use. Required when there are several." example:"default"`
	Classes     []string `yaml:"classes" doc:"Classes it may ask for. Left out: all." example:"[planner, retrieval]"`
	MaxPriority string   `yaml:"max_priority" enum:"low|medium|high|critical" doc:"The highest priority it may ask for. Left out: the default priority of the class." example:"high"`
	Role        string   `yaml:"role" default:"agent" enum:"agent|reader|operator" doc:"agent leases; reader reads; operator reads, leases and acts."`
}

// Catalog is where prices come from.
type Catalog struct {
	File     string `yaml:"file" doc:"A price file in the format of the built-in catalogue; its rows replace those with the same provider and id. Relative to this file." example:"prices.yaml"`
	Fallback *Price `yaml:"fallback_price" doc:"What a model costs that neither this file nor the catalogue knows. Left out: such a model is refused, never free." example:"{input: 10, output: 50}"`
}

// Alerts are thresholds and sinks.
type Alerts struct {
	Thresholds []Share `yaml:"thresholds" doc:"Parts of a budget at which an alert fires, once a period." example:"[0.5, 0.8, 1]"`
	Webhook    string  `yaml:"webhook" doc:"Where alerts are posted." example:"https://hooks.example.com/tba"`
	Secret     Secret  `yaml:"secret" doc:"What they are signed with." example:"{env: TBA_WEBHOOK_SECRET}"`
}
