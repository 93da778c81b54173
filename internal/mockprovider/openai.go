package mockprovider

import (
	"fmt"
	"net/http"
	"strconv"
)

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

const openAIOverload = "The server is currently overloaded. Please try again later."

func openAIOverloaded() any {
	return openAIErrorBody(openAIOverload, "service_unavailable_error", "server_is_overloaded")
}

func openAIFailed() any {
	return openAIErrorBody("The server had an error while processing your request.", "server_error", "")
}

var openai = speaker{
	idHeader: "X-Request-Id",
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
			return f.status, openAIOverloaded()
		case f.status >= 500:
			return f.status, openAIFailed()
		}
		return f.status, openAIErrorBody(f.message, "invalid_request_error", "")
	},
	refuse: func(_, model, kind string) (int, any) {
		switch kind {
		case FaultRamp:
			return 429, openAIErrorBody("Your request rate is growing too fast. Please slow down.", "rate_limit_error", "slow_down")
		case FaultExhausted:
			return 429, openAIErrorBody("You exceeded your current quota, please check your plan and billing details.", "insufficient_quota", "insufficient_quota")
		case FaultTooLarge:
			return 429, openAIErrorBody("Request too large for "+model+" on tokens per min (TPM): Limit 30000, Requested 342389.", "tokens", "rate_limit_exceeded")
		}
		return 503, openAIOverloaded()
	},
	streamError: func(t *turn) {
		t.event("", openAIFailed())
	},
}
