package config

// estimationKeys set how calls are guessed.
type estimationKeys struct {
	Buffer        Share  `yaml:"buffer" default:"0.20" doc:"Added to input estimates that the gateway or the SDK made, never to a number the caller gave."`
	Output        string `yaml:"output" default:"cap" enum:"cap|learned" doc:"cap holds the request's output cap, which is exact. learned holds what 95 of 100 calls of the class and model needed, plus the buffer, never more than the cap: budgets are then soft, and what a call needs above its hold is spent all the same."`
	DefaultOutput Count  `yaml:"default_output" default:"4096" doc:"The output cap in tokens of a call that names none; the model's own cap where that is smaller. It is put into the call."`
	LearnedMin    Count  `yaml:"learned_min_calls" default:"50" doc:"Calls of a class and model that must be seen before a learned estimate replaces the cap."`
}

// ladderKeys are an ordered list of rungs.
type ladderKeys struct {
	Rungs []string      `yaml:"rungs" doc:"Rungs, cheapest first: provider/model, or the provider alone for its first model or for a tool. Those whose cost differs by at most 25 % form a tier; see tiers. Either this or tiers is required." example:"[mistral/mistral-small-2603, openai/gpt-5.4-mini, openai/gpt-5.4]"`
	Tiers [][]string    `yaml:"tiers" doc:"Rungs in tiers of one's own, instead of rungs: those of a tier count as equal, and tasks are spread over them. The order is taken as it is." example:"[[mistral/mistral-small-2603], [openai/gpt-5.4, anthropic/claude-sonnet-5]]"`
	Zero  *zeroHitsKeys `yaml:"zero_hits" doc:"How an empty answer of a tool looks. A free rung that finds nothing passes the call on to the next one. Left out: every answer is a result."`
	Paid  []string      `yaml:"paid" doc:"Rungs of tools on which an empty answer is a result: it has been paid for. They come after the free ones." example:"[search-pro]"`
}

// zeroHitsKeys are how an empty answer looks.
type zeroHitsKeys struct {
	Status   []Count `yaml:"status" doc:"HTTP statuses that mean that nothing was found." example:"[204, 404]"`
	JSONPath string  `yaml:"json_path" doc:"Where the results are in a JSON answer, with dots between keys. Missing or null there is an empty answer." example:"results"`
	Empty    bool    `yaml:"empty" default:"true" doc:"Whether an empty list at json_path is an empty answer too."`
}

// identityKeys are where identity comes from beside keys.
type identityKeys struct {
	Compat []string `yaml:"compat" doc:"Headers and fields of other products that name the agent or the workflow of a call, where x-tba-agent and x-tba-workflow do not: x-portkey-metadata, helicone-user-id, x-litellm-tags, and user (of OpenAI's dialect, metadata.user_id of Anthropic's)." example:"[helicone-user-id, user]"`
	JWT    *jwtKeys `yaml:"jwt" later:"bearer tokens of an identity provider are not read yet, use auth.keys" doc:"Bearer tokens of an identity provider."`
}

// jwtKeys are an identity provider.
type jwtKeys struct {
	Issuer   string `yaml:"issuer" doc:"The URL it names itself by." example:"https://id.example.com"`
	Audience string `yaml:"audience" doc:"The audience tokens must have." example:"tba"`
}

// gatewayKeys are the reverse proxy.
type gatewayKeys struct {
	BudgetStatus  *Count   `yaml:"budget_status" doc:"HTTP status of a refusal by an exhausted budget, for clients that treat the dialect's own badly: 402, 403 or 429. Left out: 429 for OpenAI and Anthropic, 402 for Mistral, 403 for Gemini." example:"402"`
	Passthrough   []string `yaml:"passthrough" doc:"Paths that are forwarded although they cannot be metered, each with all below it. Such a call is leased as one request without tokens." example:"[/openai/v1/files]"`
	MaxWait       Duration `yaml:"max_wait" default:"30s" doc:"How long a call waits for its lease before it is refused. A request may ask for less by x-tba-max-wait-ms. At most 10m."`
	MaxBody       Count    `yaml:"max_body" default:"8_388_608" doc:"Bytes of a request body. 1_024 to 268_435_456."`
	MaxAttempts   Count    `yaml:"max_attempts" default:"2" doc:"Tries of one call that may reach a provider, each with a lease of its own. A try that was throttled is none. 1 to 10."`
	Drain         bool     `yaml:"drain" default:"false" doc:"Whether an answer is read on to its usage when the client has left, for providers that bill it anyway. Otherwise the call is cancelled and settled by an estimate of what was delivered."`
	MaxDrains     Count    `yaml:"max_drains" default:"64" doc:"Answers that are read on at once; further ones are cancelled. 1 to 10_000."`
	DrainFor      Duration `yaml:"drain_for" default:"30s" doc:"How long one answer is read on. 1s to 10m."`
	HeaderTimeout Duration `yaml:"header_timeout" default:"10m" doc:"How long a provider may take to begin its answer: one that does not stream begins when it is done. 1s to 2h."`
	IdleTimeout   Duration `yaml:"idle_timeout" default:"5m" doc:"How long an answer may be silent once it has begun. 1s to 2h."`
}
