package mockprovider

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

type geminiError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Status  string `json:"status"`
	Details []any  `json:"details,omitempty"`
}

type geminiViolation struct {
	Metric     string            `json:"quotaMetric"`
	ID         string            `json:"quotaId"`
	Dimensions map[string]string `json:"quotaDimensions"`
	Value      string            `json:"quotaValue"`
}

func geminiErrorBody(code int, status, message string, details ...any) any {
	return map[string]geminiError{"error": {code, message, status, details}}
}

// geminiStatus is the status word that goes with a code.
var geminiStatus = map[int]string{
	400: "INVALID_ARGUMENT", 404: "NOT_FOUND", 405: "UNIMPLEMENTED", 413: "INVALID_ARGUMENT",
	500: "INTERNAL", 503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED",
}

const googleType = "type.googleapis.com/google.rpc."

// gemini sends no limit header and no Retry-After, ever: all of it is in the body.
var gemini = speaker{
	limits: func(http.Header, snapshot) {},
	throttled: func(_ http.Header, _, model string, r refusal) any {
		metric, id := "generate_content_paid_tier_requests", "GenerateRequestsPerMinutePerProjectPerModel"
		switch r.axis {
		case noAxis, slotAxis:
			if r.wait == 0 {
				return geminiBare()
			}
		case tokenAxis, inputAxis:
			metric, id = "generate_content_paid_tier_input_token_count", "GenerateContentInputTokensPerModelPerMinute"
		}
		details := []any{geminiViolated(metric, id, model, r.limit)}
		if r.wait == 0 {
			return geminiErrorBody(429, "RESOURCE_EXHAUSTED", geminiQuota, details...)
		}
		delay := decimalSeconds(r.wait)
		details = append(details, struct {
			Type  string `json:"@type"`
			Delay string `json:"retryDelay"`
		}{googleType + "RetryInfo", delay})
		return geminiErrorBody(429, "RESOURCE_EXHAUSTED", fmt.Sprintf("%s Please retry in %s.", geminiQuota, delay), details...)
	},
	fault: func(_ string, f fault) (int, any) {
		if f.status == http.StatusUnauthorized {
			// Google calls a bad key a bad argument.
			return http.StatusBadRequest, geminiErrorBody(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.", struct {
				Type   string `json:"@type"`
				Reason string `json:"reason"`
				Domain string `json:"domain"`
			}{googleType + "ErrorInfo", "API_KEY_INVALID", "googleapis.com"})
		}
		word := geminiStatus[f.status]
		if word == "" {
			word = "UNKNOWN"
		}
		return f.status, geminiErrorBody(f.status, word, f.message)
	},
	refuse: func(_, model, kind string) (int, any) {
		switch kind {
		case FaultRamp:
			return 429, geminiBare()
		case FaultExhausted:
			return 429, geminiErrorBody(429, "RESOURCE_EXHAUSTED", geminiQuota, geminiViolated("generate_content_paid_tier_requests",
				"GenerateRequestsPerDayPerProjectPerModel", model, 10000))
		case FaultTooLarge:
			return 400, geminiErrorBody(400, "INVALID_ARGUMENT", "The input token count (2000000) exceeds the maximum number of tokens allowed (1048576).")
		}
		return 503, geminiOverloaded()
	},
	// The error comes as bare JSON, without "data:".
	streamError: func(t *turn) {
		t.raw(string(appendJSON(nil, geminiOverloaded())) + "\r\n")
	},
}

func geminiOverloaded() any {
	return geminiErrorBody(503, "UNAVAILABLE", "The model is overloaded. Please try again later.")
}

// geminiBare is a 429 that names neither a quota nor a wait.
func geminiBare() any {
	return geminiErrorBody(429, "RESOURCE_EXHAUSTED", "Resource has been exhausted (e.g. check quota).")
}

const geminiQuota = "You exceeded your current quota, please check your plan and billing details."

// geminiViolated is the detail that names a quota; its id decides what the quota is, not the sentence.
func geminiViolated(metric, id, model string, limit int64) any {
	violation := geminiViolation{"generativelanguage.googleapis.com/" + metric, id, map[string]string{"location": "global", "model": model}, strconv.FormatInt(limit, 10)}
	return struct {
		Type       string            `json:"@type"`
		Violations []geminiViolation `json:"violations"`
	}{googleType + "QuotaFailure", []geminiViolation{violation}}
}

// decimalSeconds writes a protobuf duration: seconds with up to nine decimals, no trailing zeros.
func decimalSeconds(d time.Duration) string {
	s := fmt.Sprintf("%d.%09d", d/time.Second, d%time.Second)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".") + "s"
}
