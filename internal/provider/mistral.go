package provider

import (
	"strconv"
	"strings"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
)

// mistral: chat completions in OpenAI's shape, with unknown fields refused (422), caps under the older name, its own
// limit headers and its error at the top level of the body.
var mistral = Dialect{
	name:     Mistral,
	keySlot:  "Authorization",
	keyWord:  "Bearer ",
	chatPath: func(string) string { return "/v1/chat/completions" },
	chatBody: func(r ChatRequest) any {
		return struct {
			Model     string    `json:"model"`
			Messages  []message `json:"messages"`
			MaxOutput int64     `json:"max_tokens,omitempty"`
		}{r.Model, []message{{"user", r.Text}}, r.MaxOutput}
	},
	usage:  openAIUsage,
	limits: mistralLimits,
	rules: []Rule{
		{Name: "mistral_throttle", Status: []int{429}, Codes: []string{"rate_limited", "1300"}, Class: Throttle, Until: UntilHint, Default: time.Second, Grows: true},
		{Name: "mistral_requests", Status: []int{429}, Text: []string{"requests rate limit exceeded"}, Class: Throttle, Dim: arbiter.DimRPM,
			Until: UntilHint, Default: time.Second, Grows: true},
		// Backend capacity, whatever the status says: not our limit.
		{Name: "mistral_capacity", Status: []int{429, 503}, Text: []string{"service tier capacity exceeded"}, Class: Overload, Until: UntilBackoff},
		{Name: "mistral_capacity_code", Status: []int{429, 503}, Codes: []string{"3505"}, Class: Overload, Until: UntilBackoff},
		{Name: "mistral_unavailable", Status: []int{503}, Codes: []string{"service_unavailable"}, Class: Overload, Until: UntilBackoff},
		{Name: "mistral_month", Status: []int{401, 402, 403}, Text: []string{"monthly limit", "inactive subscription"}, Class: Exhausted, Until: UntilOperator},
	},
}

// mistralLimitRows are the three generations of names. Only the oldest states resets for sure, in whole seconds.
var mistralLimitRows = []limitRow{
	{Limit{Dim: arbiter.DimRPM, Per: time.Minute}, "X-Ratelimit-Limit-Req-Minute", "X-Ratelimit-Remaining-Req-Minute", "X-Ratelimit-Reset-Req-Minute"},
	{Limit{Dim: arbiter.DimTPM, Per: time.Minute}, "X-Ratelimit-Limit-Tokens-Minute", "X-Ratelimit-Remaining-Tokens-Minute", "X-Ratelimit-Reset-Tokens-Minute"},
	{Limit{Dim: arbiter.DimTPM, Per: month}, "X-Ratelimit-Limit-Tokens-Month", "X-Ratelimit-Remaining-Tokens-Month", "X-Ratelimit-Reset-Tokens-Month"},
	{Limit{Dim: arbiter.DimTPM, Per: time.Minute}, "X-Ratelimitbysize-Limit-Minute", "X-Ratelimitbysize-Remaining-Minute", ""},
	{Limit{Dim: arbiter.DimTPM, Per: month}, "X-Ratelimitbysize-Limit-Month", "X-Ratelimitbysize-Remaining-Month", ""},
	{Limit{Dim: arbiter.DimTPM, Per: time.Minute}, "Ratelimitbysize-Limit", "Ratelimitbysize-Remaining", "Ratelimitbysize-Reset"},
}

// month is the length of Mistral's window of a month, near enough to tell it from a minute.
const month = 30 * 24 * time.Hour

// mistralLimits adds what the call was charged.
func mistralLimits(r reader) Limits {
	l := readLimits(r, mistralLimitRows)
	for _, name := range [...]string{"X-Ratelimit-Tokens-Query-Cost", "Ratelimitbysize-Query-Cost"} {
		if n, err := strconv.ParseInt(strings.TrimSpace(r.h.Get(name)), 10, 64); err == nil && n > 0 {
			l.Cost = min(n, maxCount)
			break
		}
	}
	return l
}

// mistralRoutes has no endpoint that takes stream_options: usage comes unasked in the last chunk.
var mistralRoutes = func() []route {
	conversation := &Endpoint{name: "conversations", dialect: &mistral, answer: answerConversations,
		fields: conversationFields, caps: conversationCaps}
	appended := *conversation
	appended.continues, appended.fixed = true, true
	free := &Endpoint{name: "moderations", dialect: &mistral,
		fields: moderationFields, unbilled: true, silent: true}
	return []route{
		{post, "/v1/chat/completions", &Endpoint{name: "chat", dialect: &mistral, answer: answerChat,
			fields: mistralChatFields, caps: olderCaps}},
		{post, "/v1/fim/completions", &Endpoint{name: "fim", dialect: &mistral, answer: answerChat,
			fields: fimFields, caps: olderCaps}},
		{post, "/v1/agents/completions", &Endpoint{name: "agents", dialect: &mistral, answer: answerChat,
			fields: mistralChatFields, caps: olderCaps, fixed: true}},
		{post, "/v1/conversations", conversation},
		{post, "/v1/conversations/*", &appended},
		{post, "/v1/conversations/*/restart", &appended},
		{get, "/v1/conversations", stored(&mistral)},
		{get, "/v1/conversations/*", stored(&mistral)},
		{get, "/v1/conversations/*/history", stored(&mistral)},
		{get, "/v1/conversations/*/messages", stored(&mistral)},
		{del, "/v1/conversations/*", stored(&mistral)},
		{post, "/v1/embeddings", &Endpoint{name: "embeddings", dialect: &mistral, answer: answerInput,
			fields: embeddingFields, silent: true}},
		{post, "/v1/moderations", free},
		{post, "/v1/chat/moderations", free},
		{post, "/v1/classifications", free},
		{post, "/v1/chat/classifications", free},
		{post, "/v1/ocr", &Endpoint{name: "ocr", dialect: &mistral, answer: answerInput,
			fields: ocrFields, silent: true}},
		{post, "/v1/audio/transcriptions", &Endpoint{name: "audio_transcriptions", dialect: &mistral,
			answer: answerAudio, form: formMultipart, fields: audioFields, implied: transcriptOutput}},
		{post, "/v1/audio/speech", &Endpoint{name: "audio_speech", dialect: &mistral, answer: answerAudio,
			fields: speechFields, implied: speechOutput}},
		{get, "/v1/models", models(&mistral)},
		{get, "/v1/models/*", models(&mistral)},
	}
}()
