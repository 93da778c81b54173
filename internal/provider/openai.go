package provider

import (
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
)

// openai: chat completions. The prompt count includes cached tokens, the completion includes reasoning.
var openai = Dialect{
	name:     OpenAI,
	keySlot:  "Authorization",
	keyWord:  "Bearer ",
	chatPath: func(string) string { return "/v1/chat/completions" },
	chatBody: func(r ChatRequest) any {
		return struct {
			Model     string    `json:"model"`
			Messages  []message `json:"messages"`
			MaxOutput int64     `json:"max_completion_tokens,omitempty"`
		}{r.Model, []message{{"user", r.Text}}, r.MaxOutput}
	},
	usage:  openAIUsage,
	limits: openAILimits,
	rules: []Rule{
		{Name: "openai_exhausted", Status: []int{429}, Codes: []string{"credit_balance_exhausted",
			"organization_spend_limit_exceeded", "project_spend_limit_exceeded", "organization_usage_limit_exceeded",
			"billing_not_active", "insufficient_quota"}, Class: Exhausted, Until: UntilOperator},
		{Name: "openai_too_large", Status: []int{429}, When: factTooLarge, Class: Impossible, Dim: arbiter.DimTPM, Until: UntilNever},
		{Name: "openai_ramp", Status: []int{429}, Codes: []string{"slow_down", "rate_limit_error"},
			Class: Throttle, Until: UntilHint, Default: 15 * time.Second, Grows: true},
		{Name: "openai_tokens", Status: []int{429}, Codes: []string{"rate_limit_exceeded"}, Types: []string{"tokens"},
			Class: Throttle, Dim: arbiter.DimTPM, Until: UntilHint},
		{Name: "openai_requests", Status: []int{429}, Codes: []string{"rate_limit_exceeded"}, Types: []string{"requests"},
			Class: Throttle, Dim: arbiter.DimRPM, Until: UntilHint},
		{Name: "azure_demand", Status: []int{429}, Text: []string{"high demand"}, Class: Overload, Until: UntilBackoff},
		{Name: "openrouter_wait", Status: []int{402}, When: factRetryAfter, Class: Throttle, Until: UntilHint},
		{Name: "openrouter_in_flight", Status: []int{402}, Codes: []string{"openrouter_in_flight_budget"}, Class: Throttle, Until: UntilHint},
		{Name: "groq_flex", Status: []int{498}, Class: Overload, Until: UntilBackoff},
		{Name: "openai_flex", Status: []int{429}, Text: []string{"resource unavailable"}, Class: Overload, Until: UntilBackoff},
		{Name: "openai_overloaded", Status: []int{503}, Codes: []string{"server_is_overloaded", "service_unavailable_error",
			"slow_down"}, Class: Overload, Until: UntilHint},
		{Name: "openai_overloaded_text", Status: []int{503}, Text: []string{"overloaded", "too busy"}, Class: Overload, Until: UntilHint},
		{Name: "openai_content", Status: []int{400}, Codes: []string{"content_filter", "content_policy_violation"},
			Class: Policy, Until: UntilNever},
	},
}

// openAILimitRows: the length of a window is not in the headers: requests are per minute at OpenAI and per day at Groq. The
// bare names are OpenRouter's and count requests. Other x-ratelimit-* names are informative only.
var openAILimitRows = []limitRow{
	{Limit{Dim: arbiter.DimRPM}, "X-Ratelimit-Limit-Requests", "X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests"},
	{Limit{Dim: arbiter.DimTPM}, "X-Ratelimit-Limit-Tokens", "X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Tokens"},
	{Limit{Dim: arbiter.DimTPM, Scope: "project"}, "X-Ratelimit-Limit-Project-Tokens", "X-Ratelimit-Remaining-Project-Tokens", "X-Ratelimit-Reset-Project-Tokens"},
	{Limit{Dim: arbiter.DimRPM, Scope: "bare"}, "X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"},
}

func openAILimits(r reader) Limits { return readLimits(r, openAILimitRows) }

// openAIRoutes is what OpenAI and the servers that speak like it are asked for. Batches and realtime sessions are not in
// it: one call of theirs cannot be metered.
var openAIRoutes = []route{
	{post, "/v1/chat/completions", &Endpoint{name: "chat", operation: "chat", dialect: &openai, answer: answerChat,
		fields: chatFields, caps: chatCaps, usageOpt: true}},
	{post, "/v1/responses", &Endpoint{name: "responses", operation: "chat", dialect: &openai, answer: answerResponses,
		fields: responsesFields, caps: responsesCaps}},
	{post, "/v1/embeddings", &Endpoint{name: "embeddings", operation: "embeddings", dialect: &openai, answer: answerInput,
		fields: embeddingFields, silent: true}},
	{post, "/v1/completions", &Endpoint{name: "completions", operation: "text_completion", dialect: &openai, answer: answerChat,
		fields: completionFields, caps: olderCaps, usageOpt: true}},
	// Compaction bills like an answer and has no cap.
	{post, "/v1/responses/compact", &Endpoint{name: "responses", operation: "chat", dialect: &openai, answer: answerResponses,
		fields: responsesFields}},
	{post, "/v1/responses/input_tokens", &Endpoint{name: "count_tokens", operation: "count_tokens", dialect: &openai,
		fields: responsesFields, unbilled: true, silent: true}},
	{post, "/v1/moderations", &Endpoint{name: "moderations", operation: "moderations", dialect: &openai,
		fields: moderationFields, unbilled: true, silent: true}},
	{post, "/v1/images/generations", &Endpoint{name: "images", operation: "generate_content", dialect: &openai, answer: answerImages,
		fields: imageFields}},
	{post, "/v1/images/edits", &Endpoint{name: "image_edits", operation: "generate_content", dialect: &openai, answer: answerImages,
		form: formMultipart, fields: imageFields}},
	{post, "/v1/audio/speech", &Endpoint{name: "audio_speech", operation: "generate_content", dialect: &openai, answer: answerAudio,
		fields: speechFields}},
	{post, "/v1/audio/transcriptions", &Endpoint{name: "audio_transcriptions", operation: "generate_content", dialect: &openai,
		answer: answerAudio, form: formMultipart, fields: audioFields}},
	{post, "/v1/audio/translations", &Endpoint{name: "audio_translations", operation: "generate_content", dialect: &openai,
		answer: answerAudio, form: formMultipart, fields: audioFields}},
	{get, "/v1/responses/*", stored(&openai)},
	{del, "/v1/responses/*", stored(&openai)},
	{post, "/v1/responses/*/cancel", stored(&openai)},
	{get, "/v1/responses/*/input_items", stored(&openai)},
	{get, "/v1/models", models(&openai)},
	{get, "/v1/models/*", models(&openai)},
}
