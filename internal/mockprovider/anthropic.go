package mockprovider

import (
	"net/http"
	"strconv"
	"time"

	"github.com/tidwall/gjson"
)

type anthropicError struct {
	Type  string `json:"type"`
	Error struct {
		Type    string            `json:"type"`
		Message string            `json:"message"`
		Details map[string]string `json:"details,omitempty"`
	} `json:"error"`
	ID string `json:"request_id"`
}

func anthropicErrorBody(id, kind, message string) any {
	e := anthropicError{Type: "error", ID: id}
	e.Error.Type, e.Error.Message = kind, message
	return e
}

// anthropicKinds are the error types that go with a status.
var anthropicKinds = map[int]string{
	400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error", 413: "request_too_large",
	500: "api_error", 504: "timeout_error", 529: "overloaded_error",
}

var anthropic = speaker{
	idHeader: "Request-Id",
	check: func(h http.Header, body []byte) *fault {
		if h.Get("Anthropic-Version") == "" {
			return &fault{http.StatusBadRequest, "anthropic-version: header is required"}
		}
		if h.Get("Anthropic-Version") == "2026-10-21" {
			for _, gone := range [...]string{"temperature", "top_p", "top_k"} {
				if gjson.GetBytes(body, gone).Exists() {
					return &fault{http.StatusBadRequest, gone + ": Extra inputs are not permitted"}
				}
			}
		}
		return nil
	},
	limits: func(h http.Header, s snapshot) {
		for _, x := range [...]struct {
			name    string
			rounded int64
			stand
		}{{"Requests", 1, s.requests}, {"Tokens", 1000, s.tokens}, {"Input-Tokens", 1000, s.input}} {
			if x.ceiling == 0 {
				continue
			}
			p := "Anthropic-Ratelimit-" + x.name
			h.Set(p+"-Limit", strconv.FormatInt(x.ceiling, 10))
			// Remaining tokens are told to the nearest thousand only.
			h.Set(p+"-Remaining", strconv.FormatInt((x.remaining+x.rounded/2)/x.rounded*x.rounded, 10))
			h.Set(p+"-Reset", s.now.Add(x.full+time.Second-1).UTC().Format(time.RFC3339))
		}
	},
	throttled: func(h http.Header, id, _ string, r refusal) any {
		if r.wait > 0 {
			h.Set("Retry-After", seconds(r.wait))
		}
		return anthropicErrorBody(id, "rate_limit_error", "This request would exceed your account's rate limit. Please try again later.")
	},
	fault: func(id string, f fault) (int, any) {
		kind := anthropicKinds[f.status]
		switch {
		case kind != "":
		case f.status >= 500:
			kind = "api_error"
		default:
			kind = "invalid_request_error"
		}
		return f.status, anthropicErrorBody(id, kind, f.message)
	},
	refuse: func(id, _, kind string) (int, any) {
		coded := func(code, message string) any {
			e := anthropicErrorBody(id, "rate_limit_error", message).(anthropicError)
			e.Error.Details = map[string]string{"error_code": code}
			return e
		}
		switch kind {
		case FaultRamp:
			return 429, coded("ramp_limit_exceeded", "Your usage is growing faster than is allowed.")
		case FaultExhausted:
			return 429, coded("enforced_spend_limit_reached", "Your organization has reached its monthly spend limit.")
		case FaultTooLarge:
			return 413, anthropicErrorBody(id, "request_too_large", "Request exceeds the maximum size")
		}
		return 529, anthropicErrorBody(id, "overloaded_error", "Overloaded")
	},
	streamError: func(t *turn) {
		t.event("error", anthropicErrorBody(t.reply.id("req_"), "overloaded_error", "Overloaded"))
	},
}
