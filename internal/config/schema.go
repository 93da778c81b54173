package config

// The structs of this file, of schema_rules.go and of schema_gateway.go are the file: names, defaults and descriptions of all keys are their tags
// (see [field]). "later" marks a key that is accepted by the schema and refused at start.

// File is the whole configuration file.
type File struct {
	Budget       *Budget         `yaml:"budget" doc:"The budget tree of one pool. Either this or pools is required."`
	Pools        []Budget        `yaml:"pools" doc:"Several pools, each a budget with a pool name of its own."`
	Mode         string          `yaml:"mode" default:"enforce" enum:"enforce|shadow" doc:"shadow decides and records everything but refuses and delays nothing; what would have been refused is in the answers and counters."`
	Window       Window          `yaml:"window" doc:"The sliding 60 s windows of rate ceilings."`
	Lease        Lease           `yaml:"lease" doc:"Times and clamps of leases."`
	Breaker      Breaker         `yaml:"breaker" doc:"The circuit breaker of each provider and model."`
	Backpressure Backpressure    `yaml:"backpressure" doc:"How congested the pool is said to be, and what callers are told to do."`
	Routing      Routing         `yaml:"routing" doc:"How a provider is chosen for a request that names none."`
	Estimation   estimationKeys  `yaml:"estimation" doc:"How the size of a call is guessed before it is made."`
	Ladders      Map[ladderKeys] `yaml:"ladders" doc:"Ordered lists of rungs by name. A request that names a ladder in the place of a model is served by the first rung that can, and runs down the others when one fails. With several pools, a ladder belongs to each pool that has all its providers."`
	Alerts       Alerts          `yaml:"alerts" later:"alerts are sent by Prometheus rules over /metrics for now" doc:"Thresholds and sinks of alerts."`
	Limits       Limits          `yaml:"limits" doc:"Limits of the server itself, not of a pool."`
	Auth         Auth            `yaml:"auth" doc:"Who may ask. Without keys only the loopback is served."`
	Identity     identityKeys    `yaml:"identity" doc:"Where else the caller's identity is taken from."`
	Gateway      gatewayKeys     `yaml:"gateway" doc:"The reverse proxy in front of the providers."`
	Catalog      Catalog         `yaml:"catalog" doc:"Prices and sizes of models."`
	Settings
}

// Budget is one pool: its budget tree and what hangs on it.
type Budget struct {
	Pool         string          `yaml:"pool" default:"default" doc:"The pool's name. One pool is one budget root: one organisation or product."`
	Period       Period          `yaml:"period" default:"monthly" doc:"How often the budget starts anew: hourly, daily, weekly (Monday), monthly, quarterly, or {every, anchor}."`
	TimeZone     string          `yaml:"time_zone" default:"UTC" doc:"The IANA zone in which periods begin." example:"Europe/Berlin"`
	GlobalTokens *Count          `yaml:"global_tokens" doc:"Tokens (input and output) the pool may spend in one period. Left out: no limit." example:"500_000_000"`
	GlobalUSD    *USD            `yaml:"global_usd" doc:"USD the pool may spend in one period, at most 9,007,199.25. Left out: no limit." example:"25000.00"`
	Shadow       bool            `yaml:"shadow" default:"false" doc:"Only count what the global limit would refuse."`
	OnExpiry     string          `yaml:"on_expiry" enum:"return|assume" doc:"lease.on_expiry for this pool alone." example:"assume"`
	Providers    Map[Provider]   `yaml:"providers" doc:"The upstreams of the pool by name. At least one. A name other than openai, anthropic, gemini, google or mistral needs a kind." example:"openai: {rpm_ceiling: 10_000}"`
	AgentClasses Map[AgentClass] `yaml:"agent_classes" doc:"Kinds of agents by name. The class default is always there: share 0, priority low unless set here." example:"planner: {share: 0.20, priority: high}"`
	Agents       Map[NamedLimit] `yaml:"agents" doc:"Limits of single agents, by agent id, for one period." example:"crawler-7: {limit_tokens: 1_000_000}"`
	Workflows    Map[NamedLimit] `yaml:"workflows" doc:"Limits of single workflows, by workflow id, for as long as the workflow lasts." example:"nightly-report: {limit_usd: 20}"`
	Tasks        Tasks           `yaml:"tasks" doc:"The limit of each task, for as long as the task lasts."`
	Priorities   Priorities      `yaml:"priorities" doc:"What is kept free for a priority level and those above it."`
	Pacing       *Pacing         `yaml:"pacing" later:"the budget is not spread over the period yet, only its hard stop is there" doc:"Spreads the budget over the period."`
}

// Ceilings are the limits of a provider, or of one of its models.
type Ceilings struct {
	RPM             *Count `yaml:"rpm_ceiling" doc:"Calls started in any 60 s. Left out: no ceiling." example:"10_000"`
	TPM             *Count `yaml:"tpm_ceiling" doc:"Tokens (input and output) of calls started in any 60 s." example:"2_000_000"`
	InputTPM        *Count `yaml:"input_tpm_ceiling" doc:"Input tokens of calls started in any 60 s." example:"1_500_000"`
	OutputTPM       *Count `yaml:"output_tpm_ceiling" doc:"Output tokens of calls started in any 60 s." example:"400_000"`
	RPD             *Count `yaml:"rpd_ceiling" doc:"Calls per calendar day in the provider's zone." example:"50_000"`
	MaxConcurrency  *Count `yaml:"max_concurrency" doc:"Calls that may run at once." example:"200"`
	Burst           *Share `yaml:"burst" doc:"How much of a minute's ceiling may go at once; the rest is paced. 0.10 when left out; 1 switches pacing off." example:"0.10"`
	TokenAccounting string `yaml:"token_accounting" default:"admission" enum:"admission|generated|headers" doc:"What the provider counts against its token ceilings: admission (prompt and output cap, up front) or generated (what was produced, at commit). headers (mirror the provider's own counters) is not there yet."`
	CountCached     bool   `yaml:"count_cached" default:"true" doc:"Whether tokens read from a prompt cache count against the token ceilings. With false a call is charged by the part of its prompt that is usually not cached, and corrected by its bill."`
	Shadow          bool   `yaml:"shadow" default:"false" doc:"Only count what these limits would refuse."`
}

// Provider is one upstream.
type Provider struct {
	Kind    string     `yaml:"kind" enum:"openai|anthropic|gemini|google|mistral|http" doc:"The dialect it speaks: openai for every server that is compatible with it; http for a tool such as a search. The provider's own name when that is one; google is gemini."`
	BaseURL string     `yaml:"base_url" doc:"Where it is, for servers other than the provider's own: what one would give to the provider's SDK, so with the version for OpenAI's dialect (https://api.groq.com/openai/v1) and without for the others. {model} in its path becomes the model's id; a query is kept. Plain http needs allow_private." example:"https://llm.example.com/v1"`
	Private bool       `yaml:"allow_private" default:"false" doc:"Whether its address may be a private or loopback one. The gateway checks each address it connects to; base_url alone is never enough."`
	APIKey  Secret     `yaml:"api_key" doc:"The provider's credential, never in the file itself. A file is read again when it changes. Left out: none is sent, as a server on one's own machine may like it." example:"{env: OPENAI_API_KEY}"`
	Split   *Share     `yaml:"split" doc:"The part of the provider's limits this pool may use, when several pools share one api_key. The parts sum to at most 1. Ceilings are multiplied by it." example:"0.5"`
	Tokens  *Count     `yaml:"allocated_tokens" doc:"The provider's slice of global_tokens (hard)." example:"200_000_000"`
	USD     *USD       `yaml:"allocated_usd" doc:"The provider's slice of global_usd (hard)." example:"10000"`
	RPDZone string     `yaml:"rpd_time_zone" doc:"The IANA zone of the provider's calendar day. America/Los_Angeles for gemini, else UTC." example:"America/Los_Angeles"`
	Price   *Price     `yaml:"price" doc:"What a call without a model costs, instead of the catalogue's default for the provider."`
	Models  Map[Model] `yaml:"models" doc:"Models with limits or prices of their own, by the provider's id. The first one serves requests that name no model. Models of the catalogue that are not listed can be asked for too, under the provider's ceilings; not at a server of one's own (base_url under another name than the provider's), which has the listed ones alone." example:"gpt-5.4-mini: {rpm_ceiling: 5_000}"`
	Ceilings
}

// Model is one model of a provider.
type Model struct {
	Tokens     *Count `yaml:"allocated_tokens" doc:"The model's slice of the provider's tokens (hard)." example:"50_000_000"`
	USD        *USD   `yaml:"allocated_usd" doc:"The model's slice of the provider's USD (hard)." example:"2500"`
	Price      *Price `yaml:"price" doc:"The model's price, instead of the catalogue's. 0 is allowed and means free."`
	LimitGroup string `yaml:"limit_group" doc:"Models of one provider with the same group share the ceilings; they must state the same ones." example:"gpt-5-family"`
	MaxOutput  *Count `yaml:"max_output" doc:"The model's output cap in tokens, instead of the catalogue's. Larger estimates are clamped to it." example:"16_384"`
	MaxInput   *Count `yaml:"max_input" doc:"The longest prompt in tokens, instead of the catalogue's." example:"200_000"`
	Ceilings
}

// Price is what tokens cost: USD per million, or per token under per_token.
type Price struct {
	PriceRates
	PerToken *PriceRates `yaml:"per_token" doc:"The same keys in USD per token, for who has them so. Not together with the others." example:"{input: 0.0000025, output: 0.00001}"`
}

// PriceRates are the prices of the five kinds of token, as written.
type PriceRates struct {
	Input          *Decimal `yaml:"input" doc:"USD per million input tokens." example:"2.50"`
	Output         *Decimal `yaml:"output" doc:"USD per million output tokens." example:"10"`
	CacheRead      *Decimal `yaml:"cache_read" doc:"USD per million tokens read from a prompt cache. Left out: as input." example:"0.25"`
	CacheWrite     *Decimal `yaml:"cache_write" doc:"USD per million tokens written to a prompt cache. Left out: as input." example:"3.125"`
	CacheWriteLong *Decimal `yaml:"cache_write_long" doc:"USD per million tokens written to a long-lived prompt cache. Left out: as cache_write." example:"5"`
}

// AgentClass is a kind of agent.
type AgentClass struct {
	Share       Share  `yaml:"share" default:"0" doc:"The part of ceilings and budget the class is guaranteed, from 0 to 1; all shares sum to at most 1. Soft: what a class leaves idle others may use." example:"0.20"`
	Priority    string `yaml:"priority" default:"low" enum:"low|medium|high|critical" doc:"The priority of requests that name none, and the highest they may ask for without a credential that allows more."`
	LimitTokens *Count `yaml:"limit_tokens" doc:"A hard limit of tokens in one period. Left out: none." example:"20_000_000"`
	LimitUSD    *USD   `yaml:"limit_usd" doc:"A hard limit of USD in one period. Left out: none." example:"500"`
	Shadow      bool   `yaml:"shadow" default:"false" doc:"Only count what the class limit would refuse."`
}

// NamedLimit is the limit of one agent or workflow.
type NamedLimit struct {
	LimitTokens *Count `yaml:"limit_tokens" doc:"Tokens. Left out: no limit." example:"1_000_000"`
	LimitUSD    *USD   `yaml:"limit_usd" doc:"USD. Left out: no limit." example:"20"`
	Shadow      bool   `yaml:"shadow" default:"false" doc:"Only count what the limit would refuse."`
}

// Tasks is the limit of each task.
type Tasks struct {
	DefaultTokens *Count `yaml:"default_tokens" doc:"Tokens one task may spend. Left out: no limit." example:"2_000_000"`
	DefaultUSD    *USD   `yaml:"default_usd" doc:"USD one task may spend. Left out: no limit." example:"5"`
	Shadow        bool   `yaml:"shadow" default:"false" doc:"Only count what the task limit would refuse."`
	MaxAttempts   *Count `yaml:"max_attempts" doc:"Tries of one call that may reach a provider, in this pool. Left out: gateway.max_attempts. 1 to 10." example:"2"`
}

// Priorities hold the reserve of each level.
type Priorities struct {
	Low      Reserve `yaml:"low" doc:"Low priority: nothing is below it, so a reserve here keeps nothing free."`
	Medium   Reserve `yaml:"medium" doc:"Medium priority."`
	High     Reserve `yaml:"high" doc:"High priority: its reserve is out of reach for low and medium."`
	Critical Reserve `yaml:"critical" doc:"Critical priority: its reserve is out of reach for all others."`
}

// Reserve is what is kept free for a level.
type Reserve struct {
	Reserve       Share `yaml:"reserve" default:"0" doc:"The part of each ceiling in force (windows and slots) kept for this level and those above." example:"0.05"`
	BudgetReserve Share `yaml:"budget_reserve" default:"0" doc:"The same on the period budget." example:"0.02"`
	AutoSize      bool  `yaml:"auto_size" default:"false" later:"a reserve has the size the file gives it" doc:"Shrink the reserve to what the level used lately."`
}

// Pacing spreads a budget over its period.
type Pacing struct {
	Reserve Share    `yaml:"reserve" default:"0" doc:"The part of the period budget kept for high and critical priority." example:"0.05"`
	Exempt  []string `yaml:"exempt_classes" doc:"Classes that are not paced." example:"[planner]"`
}
