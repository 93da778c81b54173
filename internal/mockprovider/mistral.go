package mockprovider

import (
	"net/http"
	"slices"
	"strconv"

	"github.com/tidwall/gjson"
)

// mistralFields are all that a request may have, by endpoint: the published schema forbids any other.
var mistralFields = map[string][]string{
	"chat": {"model", "messages", "max_tokens", "stream", "temperature", "top_p", "stop", "random_seed", "response_format", "tools",
		"tool_choice", "parallel_tool_calls", "presence_penalty", "frequency_penalty", "n", "prediction", "prompt_mode",
		"safe_prompt", "metadata", "reasoning_effort", "service_tier", "prompt_cache_key", "guardrails"},
	"fim": {"model", "prompt", "suffix", "max_tokens", "min_tokens", "stream", "temperature", "top_p", "stop", "random_seed", "metadata"},
	"agents": {"agent_id", "messages", "max_tokens", "stream", "stop", "random_seed", "metadata", "response_format", "tools",
		"tool_choice", "presence_penalty", "frequency_penalty", "n", "prediction", "parallel_tool_calls", "prompt_mode",
		"reasoning_effort", "prompt_cache_key", "guardrails"},
	"embeddings": {"model", "input", "metadata", "output_dimension", "output_dtype", "encoding_format"},
}

// mistralKnows refuses a field that is not in the schema.
func mistralKnows(endpoint string, doc gjson.Result) (bad *fault) {
	doc.ForEach(func(key, _ gjson.Result) bool {
		if !slices.Contains(mistralFields[endpoint], key.Str) {
			bad = &fault{http.StatusUnprocessableEntity, key.Str}
		}
		return bad == nil
	})
	return bad
}

type mistralError struct {
	Object  string  `json:"object"`
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
	Status  int     `json:"raw_status_code,omitempty"`
}

func mistralErrorBody(status int, message, kind, code string) any {
	e := mistralError{Object: "error", Message: message, Type: kind, Status: status}
	if code != "" {
		e.Code = &code
	}
	return e
}

func mistralOverloaded() any {
	return mistralErrorBody(http.StatusServiceUnavailable, "Service tier capacity exceeded for this model.", "invalid_request_error", "3505")
}

type mistralDetail struct {
	Loc     []string `json:"loc"`
	Message string   `json:"msg"`
	Type    string   `json:"type"`
}

var mistral = speaker{
	limits: func(h http.Header, s snapshot) {
		for _, x := range [...]struct {
			name string
			stand
		}{{"Req", s.requests}, {"Tokens", s.tokens}} {
			if x.ceiling == 0 {
				continue
			}
			h.Set("X-Ratelimit-Limit-"+x.name+"-Minute", strconv.FormatInt(x.ceiling, 10))
			h.Set("X-Ratelimit-Remaining-"+x.name+"-Minute", strconv.FormatInt(x.remaining, 10))
		}
		if s.tokens.ceiling > 0 {
			h.Set("X-Ratelimit-Tokens-Query-Cost", strconv.FormatInt(s.cost, 10))
		}
	},
	throttled: func(h http.Header, _, _ string, r refusal) any {
		if r.wait > 0 {
			h.Set("Retry-After", seconds(r.wait))
		}
		if r.axis == requestAxis {
			return struct {
				Message string `json:"message"`
			}{"Requests rate limit exceeded"}
		}
		return mistralErrorBody(http.StatusTooManyRequests, "Rate limit exceeded", "rate_limited", "1300")
	},
	fault: func(_ string, f fault) (int, any) {
		switch {
		case f.status == http.StatusUnprocessableEntity:
			return f.status, map[string][]mistralDetail{"detail": {{[]string{"body", f.message}, "Extra inputs are not permitted", "extra_forbidden"}}}
		case f.status == http.StatusUnauthorized:
			return f.status, struct {
				Message string `json:"message"`
			}{"Unauthorized"}
		case f.status == http.StatusServiceUnavailable:
			return f.status, mistralOverloaded()
		case f.status >= 500:
			return f.status, mistralErrorBody(f.status, "Internal server error", "internal_server_error", "1000")
		}
		return f.status, mistralErrorBody(f.status, f.message, "invalid_request_error", "")
	},
	refuse: func(_, _, kind string) (int, any) {
		switch kind {
		case FaultRamp:
			return 429, object{{"message", "Requests rate limit exceeded"}}
		case FaultExhausted:
			return 402, object{{"message", "You have reached your monthly limit."}}
		case FaultTooLarge:
			return 400, mistralErrorBody(400, "Prompt contains 2000000 tokens, which is more than the model's maximum context length of 262144.", "invalid_request_prompt", "3051")
		}
		return 503, mistralOverloaded()
	},
	streamError: func(t *turn) {
		t.event("", mistralOverloaded())
	},
}
