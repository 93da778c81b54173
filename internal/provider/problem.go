package provider

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"
)

// Kind is why a call is refused by us, not by its provider. The dialect has its own word for each.
type Kind uint8

// The kinds. RateLimited is the zero value.
const (
	RateLimited     Kind = iota // waiting helps
	QuotaExhausted              // a budget is used up until it is reset
	TooLarge                    // larger than any limit allows: the request must shrink
	Denied                      // this credential may not
	Unauthenticated             // no credential, or one that is not known
	Unavailable                 // nobody can serve it now
	NotFound                    // no such path, or one that cannot be metered
	BadRequest                  // the request is wrong
	Unsupported                 // an encoding or media type that is not read: 415
	TooLong                     // too many bytes: 413
	kinds
)

var kindNames = [kinds]string{"rate_limited", "quota_exhausted", "too_large", "denied", "unauthenticated", "unavailable",
	"not_found", "bad_request", "unsupported", "too_long"}

func (k Kind) String() string {
	if k < kinds {
		return kindNames[k]
	}
	return "unknown"
}

// Problem is our own refusal. ErrorBody and StreamError put it into the words of a dialect.
type Problem struct {
	Status     int // HTTP status it goes out with
	Kind       Kind
	Message    string        // one sentence for the agent's developer
	RequestID  string        // "" when there is none
	RetryAfter time.Duration // 0: no hint. Goes into the body where the dialect keeps it there (Gemini)
	Detail     []byte        // JSON object for the member "tba"; anything else: no such member
}

// words are a dialect's names for one kind.
type words struct{ kind, code string }

// The words of OpenAI and Mistral. Their SDKs choose the class of an error by status; code is what programs look at.
// An OpenAI throttle has its dimension as type.
var (
	openAIWords = [kinds]words{
		RateLimited:     {"requests", "rate_limit_exceeded"},
		QuotaExhausted:  {"insufficient_quota", "insufficient_quota"},
		TooLarge:        {"invalid_request_error", "request_too_large"},
		Denied:          {"permission_error", "permission_denied"},
		Unauthenticated: {"invalid_request_error", "invalid_api_key"},
		Unavailable:     {"service_unavailable_error", "service_unavailable"},
		NotFound:        {"invalid_request_error", "not_found"},
		BadRequest:      {"invalid_request_error", ""},
		Unsupported:     {"invalid_request_error", "unsupported_media_type"},
		TooLong:         {"invalid_request_error", "payload_too_large"},
	}
	mistralWords = [kinds]words{
		RateLimited:     {"rate_limited", "1300"},
		QuotaExhausted:  {"insufficient_quota", "insufficient_quota"},
		TooLarge:        {"invalid_request_error", "request_too_large"},
		Denied:          {"permission_denied", "permission_denied"},
		Unauthenticated: {"unauthorized", "invalid_api_key"},
		Unavailable:     {"service_unavailable", "service_unavailable"},
		NotFound:        {"not_found", "not_found"},
		BadRequest:      {"invalid_request_error", ""},
		Unsupported:     {"invalid_request_error", "unsupported_media_type"},
		TooLong:         {"invalid_request_error", "payload_too_large"},
	}
	// anthropicWords has in code what Anthropic keeps in details.error_code.
	anthropicWords = [kinds]words{
		RateLimited:     {"rate_limit_error", ""},
		QuotaExhausted:  {"rate_limit_error", "enforced_spend_limit_reached"},
		TooLarge:        {"invalid_request_error", ""},
		Denied:          {"permission_error", ""},
		Unauthenticated: {"authentication_error", ""},
		Unavailable:     {"overloaded_error", ""},
		NotFound:        {"not_found_error", ""},
		BadRequest:      {"invalid_request_error", ""},
		Unsupported:     {"invalid_request_error", ""},
		TooLong:         {"request_too_large", ""},
	}
	// geminiWords are Google's canonical status words, and in code the reason of the ErrorInfo.
	geminiWords = [kinds]words{
		RateLimited:     {"RESOURCE_EXHAUSTED", "RATE_LIMIT_EXCEEDED"},
		QuotaExhausted:  {"RESOURCE_EXHAUSTED", "QUOTA_EXCEEDED"},
		TooLarge:        {"INVALID_ARGUMENT", "REQUEST_TOO_LARGE"},
		Denied:          {"PERMISSION_DENIED", "ACCESS_DENIED"},
		Unauthenticated: {"UNAUTHENTICATED", "API_KEY_INVALID"},
		Unavailable:     {"UNAVAILABLE", "SERVICE_UNAVAILABLE"},
		NotFound:        {"NOT_FOUND", "NOT_FOUND"},
		BadRequest:      {"INVALID_ARGUMENT", "BAD_REQUEST"},
		Unsupported:     {"INVALID_ARGUMENT", "UNSUPPORTED_MEDIA_TYPE"},
		TooLong:         {"INVALID_ARGUMENT", "PAYLOAD_TOO_LARGE"},
	}
)

// errorObject is the error of OpenAI, Anthropic and Gemini, and the whole body of Mistral; which fields there are is up to
// the dialect. Their order is that of the real ones.
type errorObject struct {
	Object  string          `json:"object,omitempty"`
	Code    any             `json:"code,omitempty"`
	Message string          `json:"message"`
	Type    string          `json:"type,omitempty"`
	Status  any             `json:"status,omitempty"`
	Param   json.RawMessage `json:"param,omitempty"`
	Details any             `json:"details,omitempty"`
	Raw     int             `json:"raw_status_code,omitempty"`
	TBA     json.RawMessage `json:"tba,omitempty"`
}

var null = json.RawMessage("null")

// ErrorBody is the whole body of a refusal, JSON in the dialect's own shape. The member "tba" stands
// inside the error object: error.tba; Mistral's error is the body itself, and so is that of tools, an RFC 9457 problem.
func (d *Dialect) ErrorBody(p Problem) []byte {
	if p.Kind >= kinds {
		p.Kind = BadRequest
	}
	e := errorObject{Message: p.Message}
	if detail := bytes.TrimSpace(p.Detail); len(detail) > 0 && detail[0] == '{' && ValidJSON(detail) {
		e.TBA = detail
	}
	var body any
	switch d.name {
	case Anthropic:
		body = e.anthropic(p)
	case Gemini:
		body = struct {
			Error *errorObject `json:"error"`
		}{e.gemini(p)}
	case Mistral:
		w := mistralWords[p.Kind]
		e.Object, e.Type, e.Param, e.Code, e.Raw = "error", w.kind, null, orNull(w.code), p.Status
		body = &e
	case HTTP:
		body = struct {
			Type   string          `json:"type"`
			Title  string          `json:"title"`
			Status int             `json:"status"`
			Detail string          `json:"detail"`
			TBA    json.RawMessage `json:"tba,omitempty"`
		}{"about:blank", http.StatusText(p.Status), p.Status, p.Message, e.TBA}
	default:
		w := openAIWords[p.Kind]
		if p.Kind == RateLimited && strings.Contains(gjson.GetBytes(e.TBA, "unit").Str, "token") {
			w.kind = "tokens"
		}
		e.Type, e.Param, e.Code = w.kind, null, orNull(w.code)
		body = struct {
			Error *errorObject `json:"error"`
		}{&e}
	}
	b, err := json.Marshal(body)
	if err != nil { // only a detail that is no JSON could do that, and it has been checked
		p.Detail = nil
		return d.ErrorBody(p)
	}
	return b
}

// orNull is a code, or the null that stands for none.
func orNull(code string) any {
	if code == "" {
		return null
	}
	return code
}

func (e *errorObject) anthropic(p Problem) any {
	w := anthropicWords[p.Kind]
	if p.Kind == QuotaExhausted && p.Status == http.StatusPaymentRequired {
		w = words{"billing_error", ""}
	}
	e.Type = w.kind
	if w.code != "" {
		e.Details = map[string]string{"error_code": w.code}
	}
	return struct {
		Type      string       `json:"type"`
		Error     *errorObject `json:"error"`
		RequestID string       `json:"request_id,omitempty"`
	}{"error", e, p.RequestID}
}

// gemini keeps the wait in the body: Google sends no Retry-After.
func (e *errorObject) gemini(p Problem) *errorObject {
	w := geminiWords[p.Kind]
	e.Code, e.Status = p.Status, w.kind
	details := []map[string]any{{
		"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": w.code, "domain": "tba",
	}}
	if p.RequestID != "" {
		details = append(details, map[string]any{"@type": "type.googleapis.com/google.rpc.RequestInfo", "requestId": p.RequestID})
	}
	if p.RetryAfter > 0 {
		delay := strconv.FormatFloat(max(p.RetryAfter, time.Millisecond).Round(time.Millisecond).Seconds(), 'f', -1, 64) + "s"
		details = append(details, map[string]any{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay})
	}
	e.Details = details
	return e
}

// StreamError is how a stream that has begun ends with an error in this dialect. OpenAI's and Mistral's SDKs look for an
// error in any data, Anthropic's for an event of that name; Google's Go SDK sees an error only in a bare JSON line. Tools
// have no streams: nil. No proper end (data: [DONE]) may follow.
func (d *Dialect) StreamError(p Problem) []byte {
	body := d.ErrorBody(p)
	var b []byte
	switch d.name {
	case HTTP:
		return nil
	case Gemini:
		return append(body, "\n\n"...)
	case Anthropic:
		b = append(b, "event: error\n"...)
	}
	b = append(append(b, "data: "...), body...)
	return append(b, "\n\n"...)
}
