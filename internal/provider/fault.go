package provider

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/tidwall/gjson"
)

// Fault is an error inside an answer with status 200.
type Fault struct {
	Status int    // what the status should have been, so that Dialect.Classify judges the fault like any other error
	Body   []byte // a JSON error body in the endpoint's dialect, at most 64 KiB
	First  bool   // nothing has been passed on yet: another rung may still answer
}

// faultIn finds an error in an event or a whole answer: a member "error", an error object of its own, or one that the
// answer's shape keeps somewhere else. named says that the event's name is "error".
func (m *Meter) faultIn(doc gjson.Result, named bool) {
	if m.fault != nil {
		return
	}
	said := claimsOf(doc)
	if isError(said.err) {
		if m.e.dialect.name == Anthropic {
			m.fail([]byte(doc.Raw)) // has the request's id beside it
			return
		}
		m.fail(wrapped(said.err.Raw))
		return
	}
	switch {
	case said.object == "error" && m.e.dialect.name == Mistral:
		m.fail([]byte(doc.Raw))
	case named, said.object == "error", said.kind == "error", said.kind == "conversation.response.error":
		m.fail(wrapped(doc.Raw))
	case said.kind == "response.failed":
		if err := doc.Get("response.error"); isError(err) {
			m.fail(wrapped(err.Raw))
		} else {
			m.fail(wrapped(`{"type":"server_error","message":"the response failed","param":null,"code":"server_error"}`))
		}
	case isError(said.groq.Get("error")):
		m.fail(wrapped(said.groq.Get("error").Raw))
	case m.e.answer == answerChat:
		said.choices.ForEach(func(_, c gjson.Result) bool {
			if err := c.Get("error"); isError(err) {
				m.fail(wrapped(err.Raw))
			} else if c.Get("finish_reason").Str == "error" {
				m.fail(wrapped(`{"message":"the answer ended with finish_reason error","code":502}`))
			}
			return m.fault == nil
		})
	}
}

// claims are the members by which an answer or an event says that it is an error.
type claims struct {
	err, groq, choices gjson.Result
	kind, object       string
}

func claimsOf(doc gjson.Result) (c claims) {
	var kind, object gjson.Result
	pick(doc, sought{"error", &c.err}, sought{"x_groq", &c.groq}, sought{"choices", &c.choices}, sought{"type", &kind}, sought{"object", &object})
	c.kind, c.object = kind.Str, object.Str
	return c
}

// mayFail says whether a whole answer may be one that faultIn calls an error: all of those have one of these words in them,
// perhaps with letters that are escaped.
func mayFail(body []byte) bool {
	return bytes.Contains(body, []byte("error")) || bytes.Contains(body, []byte("failed")) || bytes.Contains(body, []byte(`\u00`))
}

// isError tells an error from the null, the empty text and the empty object that good answers carry.
func isError(err gjson.Result) bool {
	switch {
	case err.Type == gjson.String:
		return err.Str != ""
	case err.IsObject():
		found := false
		err.ForEach(func(_, _ gjson.Result) bool {
			found = true
			return false
		})
		return found
	}
	return false
}

func wrapped(raw string) []byte { return append(append([]byte(`{"error":`), raw...), '}') }

// quotedError is the body of an error event whose data is no JSON.
func quotedError(data []byte) []byte {
	text, _ := json.Marshal(excerpt(string(data[:min(len(data), maxErrorBody)]))) // a string always encodes
	return wrapped(`{"message":` + string(text) + `}`)
}

func (m *Meter) fail(body []byte) {
	if len(body) > maxErrorBody {
		body = quotedError(body)
	}
	e := decodeError(body)
	m.fault = &Fault{Status: e.likelyStatus(), Body: body, First: !m.started}
	m.refused = !m.started
}

// likelyStatus is the status that goes with an error that came without one.
func (e *errorBody) likelyStatus() int {
	words := [...]string{e.detail, e.code, e.kind, e.status}
	for _, w := range words {
		if n, err := strconv.Atoi(w); err == nil && n >= 400 && n <= 599 {
			return n
		}
	}
	for _, w := range words {
		if n := statusOf[w]; n != 0 {
			return n
		}
	}
	return http.StatusBadGateway
}

// statusOf has the status that the providers send with each of their words. Those that every dialect's table judges by
// the word alone are not repeated.
var statusOf = map[string]int{
	// OpenAI
	"insufficient_quota": 429, "credit_balance_exhausted": 429, "organization_spend_limit_exceeded": 429,
	"project_spend_limit_exceeded": 429, "organization_usage_limit_exceeded": 429, "billing_not_active": 429,
	"rate_limit_exceeded": 429, "slow_down": 429, "requests": 429, "tokens": 429,
	"server_is_overloaded": 503, "service_unavailable_error": 503, "service_unavailable": 503,
	"server_error": 500, "internal_server_error": 500, "internal_error": 500,
	"invalid_prompt": 400, "content_filter": 400, "content_policy_violation": 400, "context_length_exceeded": 400,
	"invalid_request_error": 400, "invalid_api_key": 401, "model_not_found": 404,
	// Anthropic
	"enforced_spend_limit_reached": 429, "contract_spend_limit_reached": 429, "linked_organization_spend_limit_reached": 429,
	"ramp_limit_exceeded": 429, "rate_limit_error": 429, "billing_error": 402, "authentication_error": 401,
	"permission_error": 403, "not_found_error": 404, "request_too_large": 413, "conflict_error": 409,
	"api_error": 500, "timeout_error": 504, "overloaded_error": 529,
	// Google
	"RESOURCE_EXHAUSTED": 429, "UNAVAILABLE": 503, "INTERNAL": 500, "UNKNOWN": 500, "DEADLINE_EXCEEDED": 504,
	"INVALID_ARGUMENT": 400, "FAILED_PRECONDITION": 400, "OUT_OF_RANGE": 400, "UNAUTHENTICATED": 401,
	"PERMISSION_DENIED": 403, "NOT_FOUND": 404, "ABORTED": 409, "CANCELLED": 499, "UNIMPLEMENTED": 501,
	// Mistral
	"rate_limited": 429, "1300": 429, "3505": 503,
	// Bedrock
	"ThrottlingException": 429, "throttlingException": 429, "ModelNotReadyException": 429, "ServiceQuotaExceededException": 400,
	"ValidationException": 400, "validationException": 400, "AccessDeniedException": 403, "ServiceUnavailableException": 503,
	"serviceUnavailableException": 503, "InternalServerException": 500, "internalServerException": 500,
	"ModelTimeoutException": 408, "modelTimeoutException": 408, "ModelErrorException": 424, "modelStreamErrorException": 424,
}
