package mockprovider

import (
	"fmt"
	"net/http"
	"strconv"
	"time"
)

type openAIMessage struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

type openAIChoice struct {
	Index   int           `json:"index"`
	Message openAIMessage `json:"message"`
	Finish  string        `json:"finish_reason"`
}

type openAIUsage struct {
	Prompt     int64 `json:"prompt_tokens"`
	Completion int64 `json:"completion_tokens"`
	Total      int64 `json:"total_tokens"`
}

type openAIAnswer struct {
	ID      string         `json:"id"`
	Object  string         `json:"object"`
	Created int64          `json:"created"`
	Model   string         `json:"model"`
	Tier    string         `json:"service_tier,omitempty"`
	Choices []openAIChoice `json:"choices"`
	Usage   openAIUsage    `json:"usage"`
}

func completion(id, model, text string, c charge, output int64) openAIAnswer {
	return openAIAnswer{
		ID: id, Object: "chat.completion", Created: time.Now().Unix(), Model: model,
		Choices: []openAIChoice{{0, openAIMessage{"assistant", text}, finish(output, c, "stop", "length")}},
		Usage:   openAIUsage{c.prompt, output, c.prompt + output},
	}
}

type openAIError struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

func openAIErrorBody(message, kind, code string) any {
	e := openAIError{Message: message, Type: kind}
	if code != "" {
		e.Code = &code
	}
	return map[string]openAIError{"error": e}
}

var openai = speaker{
	idHeader: "X-Request-Id",
	check:    func(http.Header, []byte) *fault { return nil },
	answer: func(id, model, text string, c charge, output int64) any {
		a := completion("chatcmpl-"+id, model, text, c, output)
		a.Tier = "default"
		return a
	},
	limits: func(h http.Header, s snapshot) {
		h.Set("Openai-Version", "2020-10-01")
		for _, x := range [...]struct {
			name string
			stand
		}{{"Requests", s.requests}, {"Tokens", s.tokens}} {
			if x.ceiling == 0 {
				continue
			}
			h.Set("X-Ratelimit-Limit-"+x.name, strconv.FormatInt(x.ceiling, 10))
			h.Set("X-Ratelimit-Remaining-"+x.name, strconv.FormatInt(x.remaining, 10))
			h.Set("X-Ratelimit-Reset-"+x.name, wholeMillis(x.full).String())
		}
	},
	throttled: func(h http.Header, _, model string, r refusal) any {
		kind, unit := "requests", "requests per min (RPM)"
		if r.axis == tokenAxis || r.axis == inputAxis {
			kind, unit = "tokens", "tokens per min (TPM)"
		}
		if r.never {
			return openAIErrorBody(fmt.Sprintf("Request too large for %s on %s: Limit %d, Requested %d. The input or output tokens must be reduced in order to run successfully.",
				model, unit, r.limit, r.asked), kind, "rate_limit_exceeded")
		}
		message := fmt.Sprintf("Rate limit reached for %s on %s: Limit %d, Used %d, Requested %d.", model, unit, r.limit, r.used, r.asked)
		if r.axis == noAxis {
			message = fmt.Sprintf("Rate limit reached for %s on %s.", model, unit)
		}
		if r.wait > 0 {
			h.Set("Retry-After", seconds(r.wait))
			h.Set("Retry-After-Ms", strconv.FormatInt(wholeMillis(r.wait).Milliseconds(), 10))
			message += fmt.Sprintf(" Please try again in %v.", wholeMillis(r.wait))
		}
		return openAIErrorBody(message, kind, "rate_limit_exceeded")
	},
	fault: func(_ string, f fault) (int, any) {
		switch {
		case f.status == http.StatusUnauthorized:
			return f.status, openAIErrorBody("Incorrect API key provided.", "invalid_request_error", "invalid_api_key")
		case f.status == http.StatusServiceUnavailable:
			return f.status, openAIErrorBody("The server is currently overloaded. Please try again later.", "service_unavailable_error", "server_is_overloaded")
		case f.status >= 500:
			return f.status, openAIErrorBody("The server had an error while processing your request.", "server_error", "")
		}
		return f.status, openAIErrorBody(f.message, "invalid_request_error", "")
	},
}
