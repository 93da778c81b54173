package provider

import (
	"net/url"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/token-budget-arbiter/tba/arbiter"
)

// gemini: generateContent. The model is in the path, the prompt count includes cached tokens, thoughts are NOT in the
// candidates' count, and a 429 has its wait in the body.
var gemini = Dialect{
	name:     Gemini,
	keySlot:  "X-Goog-Api-Key",
	chatPath: func(model string) string { return "/v1beta/models/" + url.PathEscape(model) + ":generateContent" },
	chatBody: func(r ChatRequest) any {
		type part struct {
			Text string `json:"text"`
		}
		type content struct {
			Role  string `json:"role"`
			Parts []part `json:"parts"`
		}
		type generation struct {
			MaxOutput int64 `json:"maxOutputTokens"`
		}
		body := struct {
			Contents   []content   `json:"contents"`
			Generation *generation `json:"generationConfig,omitempty"`
		}{Contents: []content{{"user", []part{{r.Text}}}}}
		if r.MaxOutput > 0 {
			body.Generation = &generation{r.MaxOutput}
		}
		return body
	},
	usage:  geminiUsage,
	image:  geminiImage,
	limits: func(reader) Limits { return Limits{} },
	rules: []Rule{
		{Name: "gemini_day", Status: []int{429}, When: factDayOnly | factNoRetryInfo, Class: Exhausted, Dim: arbiter.DimRPD, Until: UntilPacificDay},
		{Name: "gemini_plan", Status: []int{429}, When: factNoViolations | factNoRetryInfo, Text: []string{"plan and billing"},
			Class: Exhausted, Until: UntilPacificDay},
		{Name: "gemini_minute", Status: []int{429}, When: factMinute | factRetryWithinHour, Class: Throttle, Until: UntilHint, Default: time.Minute},
		{Name: "gemini_minute_bare", Status: []int{429}, When: factMinute | factNoRetryInfo, Class: Throttle, Until: UntilHint, Default: time.Minute},
		{Name: "gemini_day_with_wait", Status: []int{429}, When: factDay | factRetryWithinHour, Class: Throttle, Dim: arbiter.DimRPD,
			Until: UntilHint, Default: time.Minute, Repeats: Exhausted},
		{Name: "gemini_far", Status: []int{429}, When: factRetryBeyondHour, Class: Exhausted, Until: UntilHint, Default: time.Hour},
		{Name: "gemini_bare", Status: []int{429}, When: factJSON, Class: Throttle, Until: UntilHint, Default: time.Minute},
		{Name: "gemini_overloaded", Status: []int{503}, Class: Overload, Until: UntilBackoff},
		{Name: "gemini_error", Status: []int{500}, Class: Provider, Until: UntilBackoff},
		{Name: "gemini_timeout", Status: []int{504}, Class: Provider, Until: UntilBackoff, Ambiguous: true},
		{Name: "gemini_too_large", Status: []int{400}, Text: []string{"input token count"}, Class: Impossible, Dim: arbiter.DimInputTPM, Until: UntilNever},
		// A gateway like this one, whose budget is used up: a 403 because Google's SDKs would repeat a 429.
		{Name: "gemini_budget", Status: []int{403}, Codes: []string{"RESOURCE_EXHAUSTED"}, Class: Exhausted, Until: UntilHint},
		{Name: "gemini_key", Status: []int{400}, Text: []string{"api key not valid"}, Class: Auth, Until: UntilOperator},
		{Name: "gemini_precondition", Status: []int{400, 403}, Codes: []string{"FAILED_PRECONDITION", "PERMISSION_DENIED"}, Class: Auth, Until: UntilOperator},
	},
}

// geminiPath splits a path around its model: ".../models/", the model, ":verb". ok is false for a path without one.
func geminiPath(path string) (before, model, verb string, ok bool) {
	before, rest, ok := strings.Cut(path, "/models/")
	colon := strings.LastIndexByte(rest, ':') // the last one: tuned models have colons in their names
	if !ok || colon < 0 {
		return "", "", "", false
	}
	return before + "/models/", rest[:colon], rest[colon:], true
}

// firstOf returns the first path that exists: Google's servers take camelCase and snake_case alike.
func firstOf(doc gjson.Result, paths ...string) gjson.Result {
	for _, p := range paths {
		if r := doc.Get(p); r.Exists() {
			return r
		}
	}
	return gjson.Result{}
}

// geminiImage is 258 for up to 384 pixels a side, else 258 for each tile of 768.
func geminiImage(_ string, m *media) int64 {
	if m.width <= 384 && m.height <= 384 {
		return 258
	}
	return times(258, times(ceilDiv(m.width, 768), ceilDiv(m.height, 768)))
}

// geminiRoutes has every verb under both versions of the API.
var geminiRoutes = func() (list []route) {
	generate := &Endpoint{name: "generate", dialect: &gemini, answer: answerGenerate,
		fields: generateFields, caps: generateCaps}
	stream := *generate
	stream.streams = true
	count := &Endpoint{name: "count_tokens", dialect: &gemini,
		fields: generateFields, unbilled: true, silent: true}
	embed := &Endpoint{name: "embed", dialect: &gemini, answer: answerInput,
		fields: embedFields, silent: true}
	interactions := &Endpoint{name: "interactions", dialect: &gemini, answer: answerInteractions,
		fields: interactionsFields, caps: interactionsCaps}
	for _, version := range [...]string{"/v1beta", "/v1"} {
		list = append(list,
			route{post, version + "/models/*:generateContent", generate},
			route{post, version + "/models/*:streamGenerateContent", &stream},
			route{post, version + "/models/*:countTokens", count},
			route{post, version + "/models/*:embedContent", embed},
			route{post, version + "/models/*:batchEmbedContents", embed},
			route{post, version + "/interactions", interactions},
			route{get, version + "/interactions/*", stored(&gemini)},
			route{del, version + "/interactions/*", stored(&gemini)},
			route{post, version + "/interactions/*/cancel", stored(&gemini)},
			route{get, version + "/models", models(&gemini)},
			route{get, version + "/models/*", models(&gemini)},
		)
	}
	return list
}()
