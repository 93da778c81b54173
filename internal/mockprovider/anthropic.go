package mockprovider

import (
	"net/http"
	"strconv"
	"time"

	"github.com/tidwall/gjson"
)

type anthropicText struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type anthropicAnswer struct {
	ID      string          `json:"id"`
	Type    string          `json:"type"`
	Role    string          `json:"role"`
	Model   string          `json:"model"`
	Content []anthropicText `json:"content"`
	Stop    string          `json:"stop_reason"`
	Usage   struct {
		Input  int64  `json:"input_tokens"`
		Write  int64  `json:"cache_creation_input_tokens"`
		Read   int64  `json:"cache_read_input_tokens"`
		Output int64  `json:"output_tokens"`
		Tier   string `json:"service_tier"`
	} `json:"usage"`
}

type anthropicError struct {
	Type  string `json:"type"`
	Error struct {
		Type    string `json:"type"`
		Message string `json:"message"`
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
		if gjson.GetBytes(body, "max_tokens").Int() < 1 {
			return &fault{http.StatusBadRequest, "max_tokens: Field required"}
		}
		return nil
	},
	answer: func(id, model, text string, c charge, output int64) any {
		a := anthropicAnswer{
			ID: "msg_" + id, Type: "message", Role: "assistant", Model: model,
			Content: []anthropicText{{"text", text}}, Stop: finish(output, c, "end_turn", "max_tokens"),
		}
		a.Usage.Input, a.Usage.Output, a.Usage.Tier = c.prompt, output, "standard"
		return a
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
}
