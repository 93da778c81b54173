package mockprovider

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

type geminiPart struct {
	Text string `json:"text"`
}

type geminiContent struct {
	Parts []geminiPart `json:"parts"`
	Role  string       `json:"role"`
}

type geminiCandidate struct {
	Content geminiContent `json:"content"`
	Finish  string        `json:"finishReason"`
	Index   int           `json:"index"`
}

type geminiAnswer struct {
	Candidates []geminiCandidate `json:"candidates"`
	Usage      struct {
		Prompt     int64 `json:"promptTokenCount"`
		Candidates int64 `json:"candidatesTokenCount,omitempty"` // left out when nothing was produced
		Total      int64 `json:"totalTokenCount"`
	} `json:"usageMetadata"`
	Model string `json:"modelVersion"`
	ID    string `json:"responseId"`
}

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
	check: func(http.Header, []byte) *fault { return nil },
	answer: func(id, model, text string, c charge, output int64) any {
		a := geminiAnswer{Model: model, ID: id, Candidates: []geminiCandidate{{
			Content: geminiContent{[]geminiPart{{text}}, "model"}, Finish: finish(output, c, "STOP", "MAX_TOKENS"),
		}}}
		a.Usage.Prompt, a.Usage.Candidates, a.Usage.Total = c.prompt, output, c.prompt+output
		return a
	},
	limits: func(http.Header, snapshot) {},
	throttled: func(_ http.Header, _, model string, r refusal) any {
		const message = "You exceeded your current quota, please check your plan and billing details."
		metric, id := "generate_content_paid_tier_requests", "GenerateRequestsPerMinutePerProjectPerModel"
		switch r.axis {
		case noAxis, slotAxis:
			if r.wait == 0 {
				return geminiErrorBody(429, "RESOURCE_EXHAUSTED", "Resource has been exhausted (e.g. check quota).")
			}
		case tokenAxis, inputAxis:
			metric, id = "generate_content_paid_tier_input_token_count", "GenerateContentInputTokensPerModelPerMinute"
		}
		violation := geminiViolation{"generativelanguage.googleapis.com/" + metric, id, map[string]string{"location": "global", "model": model}, strconv.FormatInt(r.limit, 10)}
		details := []any{struct {
			Type       string            `json:"@type"`
			Violations []geminiViolation `json:"violations"`
		}{googleType + "QuotaFailure", []geminiViolation{violation}}}
		if r.wait == 0 {
			return geminiErrorBody(429, "RESOURCE_EXHAUSTED", message, details...)
		}
		delay := decimalSeconds(r.wait)
		details = append(details, struct {
			Type  string `json:"@type"`
			Delay string `json:"retryDelay"`
		}{googleType + "RetryInfo", delay})
		return geminiErrorBody(429, "RESOURCE_EXHAUSTED", fmt.Sprintf("%s Please retry in %s.", message, delay), details...)
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
}

// decimalSeconds writes a protobuf duration: seconds with up to nine decimals, no trailing zeros.
func decimalSeconds(d time.Duration) string {
	s := fmt.Sprintf("%d.%09d", d/time.Second, d%time.Second)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".") + "s"
}
