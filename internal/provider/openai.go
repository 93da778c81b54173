package provider

import (
	"strings"
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
	image:  openAIImage,
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

// openAIImage: tiles of 512 pixels for gpt-4o, gpt-4.1 and gpt-5, patches of 32 pixels for the small models of their
// time. Which of the two a newer model uses is not published in one place: the larger counts.
func openAIImage(model string, m *media) int64 {
	tw, th := fit(m.width, m.height, 2048, 768)
	n := ceilDiv(tw, 512) * ceilDiv(th, 512)
	patches := min(ceilDiv(m.width, 32)*ceilDiv(m.height, 32), 1536)
	tiles := func(base, tile int64) int64 {
		if m.low {
			return base
		}
		return base + tile*n
	}
	switch {
	case strings.HasPrefix(model, "gpt-4o-mini"):
		return tiles(2833, 5667)
	case strings.HasPrefix(model, "gpt-4.1-mini"), strings.HasPrefix(model, "gpt-5-mini"):
		return patches * 162 / 100
	case strings.HasPrefix(model, "gpt-4.1-nano"), strings.HasPrefix(model, "gpt-5-nano"):
		return patches * 246 / 100
	case strings.HasPrefix(model, "o4-mini"):
		return patches * 172 / 100
	case strings.HasPrefix(model, "gpt-4o"), strings.HasPrefix(model, "gpt-4.1"):
		return tiles(85, 170)
	case model == "gpt-5" || strings.HasPrefix(model, "gpt-5-"):
		return tiles(70, 140)
	}
	return max(tiles(85, 170), patches)
}

// imageOutput is what one made image costs at the most, by OpenAI's table for its image models. What the request leaves
// open is taken at its dearest.
func imageOutput(w *walk) int64 {
	row := [...]int64{408, 1584, 6240}
	switch w.size {
	case "1024x1024":
		row = [...]int64{272, 1056, 4160}
	case "1536x1024":
		row = [...]int64{400, 1568, 6208}
	}
	switch w.quality {
	case "low":
		return row[0]
	case "medium":
		return row[1]
	}
	return row[2]
}

// speechOutput: a minute of speech is about 800 letters and 1,250 tokens of sound.
func speechOutput(w *walk) int64 { return 2 * w.c.TextBytes }

// transcriptOutput: a second of speech is 32 tokens of sound at most and 2 to 4 of text.
func transcriptOutput(w *walk) int64 { return w.c.MediaTokens/8 + 64 }

// openAIRoutes is what OpenAI and the servers that speak like it are asked for. Batches and realtime sessions are not in
// it: one call of theirs cannot be metered.
var openAIRoutes = []route{
	{post, "/v1/chat/completions", &Endpoint{name: "chat", dialect: &openai, answer: answerChat,
		fields: chatFields, caps: chatCaps, usageOpt: true}},
	{post, "/v1/responses", &Endpoint{name: "responses", dialect: &openai, answer: answerResponses,
		fields: responsesFields, caps: responsesCaps}},
	{post, "/v1/embeddings", &Endpoint{name: "embeddings", dialect: &openai, answer: answerInput,
		fields: embeddingFields, silent: true}},
	{post, "/v1/completions", &Endpoint{name: "completions", dialect: &openai, answer: answerChat,
		fields: completionFields, caps: olderCaps, usageOpt: true}},
	// Compaction bills like an answer and has no cap.
	{post, "/v1/responses/compact", &Endpoint{name: "responses", dialect: &openai, answer: answerResponses,
		fields: responsesFields}},
	{post, "/v1/responses/input_tokens", &Endpoint{name: "count_tokens", dialect: &openai,
		fields: responsesFields, unbilled: true, silent: true}},
	{post, "/v1/moderations", &Endpoint{name: "moderations", dialect: &openai,
		fields: moderationFields, unbilled: true, silent: true}},
	{post, "/v1/images/generations", &Endpoint{name: "images", dialect: &openai, answer: answerImages,
		fields: imageFields, implied: imageOutput}},
	{post, "/v1/images/edits", &Endpoint{name: "image_edits", dialect: &openai, answer: answerImages,
		form: formMultipart, fields: imageFields, implied: imageOutput}},
	{post, "/v1/audio/speech", &Endpoint{name: "audio_speech", dialect: &openai, answer: answerAudio,
		fields: speechFields, implied: speechOutput}},
	{post, "/v1/audio/transcriptions", &Endpoint{name: "audio_transcriptions", dialect: &openai,
		answer: answerAudio, form: formMultipart, fields: audioFields, implied: transcriptOutput}},
	{post, "/v1/audio/translations", &Endpoint{name: "audio_translations", dialect: &openai,
		answer: answerAudio, form: formMultipart, fields: audioFields, implied: transcriptOutput}},
	{get, "/v1/responses/*", stored(&openai)},
	{del, "/v1/responses/*", stored(&openai)},
	{post, "/v1/responses/*/cancel", stored(&openai)},
	{get, "/v1/responses/*/input_items", stored(&openai)},
	{get, "/v1/models", models(&openai)},
	{get, "/v1/models/*", models(&openai)},
}
