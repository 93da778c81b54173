package provider

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/token-budget-arbiter/tba/arbiter"
)

// fact is something that was found in an error body beyond its code and its words.
type fact uint16

const (
	factJSON fact = 1 << iota
	factNotJSON
	factTooLarge     // asks for more than the whole limit
	factNoViolations // names no quota at all
	factDay          // names a quota per day
	factDayOnly      // and no quota per minute
	factMinute       // names a quota per minute
	factNoRetryInfo
	factRetryWithinHour // RetryInfo of at most an hour
	factRetryBeyondHour
	factRetryAfter // a header names a wait
)

// errorBody is an error answer, however it was wrapped.
type errorBody struct {
	code, kind, status, detail string // code, type, status word, details.error_code or metadata.limit_source
	exception                  string // Bedrock's, from x-amzn-errortype or __type
	message, lower             string
	plain                      string // beginning of a body that is no JSON
	dim                        arbiter.Dim
	retryInfo                  time.Duration
	hasRetryInfo               bool
	facts                      fact
}

// named says whether the body uses word as its code in any of the places where providers put codes.
func (e *errorBody) named(word string) bool {
	return word == e.code || word == e.kind || word == e.status || word == e.detail || word == e.exception
}

// readHeader adds what the headers say beside the body: Bedrock's exception and whether there is a wait.
func (e *errorBody) readHeader(h http.Header) {
	if name, _, _ := strings.Cut(h.Get("X-Amzn-Errortype"), ":"); name != "" {
		e.exception = name
	}
	if h.Get("Retry-After") != "" || h.Get("Retry-After-Ms") != "" {
		e.facts |= factRetryAfter
	}
}

var (
	htmlTitle = regexp.MustCompile(`(?is)<title[^>]*>(.*?)</title>`)
	htmlTag   = regexp.MustCompile(`(?s)<(?:script|style)\b.*?</(?:script|style)>|<[^>]*>`)
)

// sentence is what the answer says: the message of its JSON, else the title or the text of a page, without its tags.
func (e *errorBody) sentence() string {
	if e.plain == "" {
		return e.message
	}
	text := e.plain
	if title := htmlTitle.FindStringSubmatch(text); title != nil {
		text = title[1]
	}
	return strings.Join(strings.Fields(htmlTag.ReplaceAllString(text, " ")), " ")
}

// decodeError reads the shapes that are seen: {"error":{...}}, {"error":"text"}, [{"error":{...}}], Mistral's and
// FastAPI's top-level fields, Bedrock's exceptions, and an error that is itself JSON inside error.message. Codes may be
// numbers.
func decodeError(body []byte) (e errorBody) {
	e.facts = factNotJSON | factNoRetryInfo | factNoViolations
	if len(body) > maxErrorBody {
		return e
	}
	doc, ok := object(body)
	if !ok {
		e.plain = string(body[:min(len(body), 4*maxMessage)])
		return e
	}
	e.facts = e.facts&^factNotJSON | factJSON
	err := doc.Get("error")
	switch {
	case err.IsObject():
	case err.Type == gjson.String:
		e.kind = err.Str
		err = doc
	default:
		err = doc
	}
	// Proxies put the provider's own error into the sentence of theirs, often after a prefix.
	if inner := err.Get("message").Str; strings.Contains(inner, "{") {
		if nested, ok := object([]byte(inner[strings.IndexByte(inner, '{'):])); ok && nested.Get("error").IsObject() {
			err = nested.Get("error")
		}
	}
	e.code = err.Get("code").String()
	if t := err.Get("type").String(); t != "" {
		e.kind = t
	}
	e.status = err.Get("status").String()
	e.detail = firstOf(err, "details.error_code", "metadata.limit_source").String()
	if _, name, ok := strings.Cut(doc.Get("__type").Str, "#"); ok {
		e.exception = name
	} else {
		e.exception = doc.Get("__type").Str
	}
	e.message = err.Get("message").String()
	if e.message == "" {
		e.message = firstOf(err, "detail.0.msg", "detail", "Message").String()
	}
	e.lower = strings.ToLower(e.message)
	e.readDetails(err.Get("details"))
	if tooLarge(e.message, e.lower) {
		e.facts |= factTooLarge
	}
	return e
}

// object parses body when it is one JSON object, perhaps after blank keep-alive lines, or an array whose first element
// is one (Vertex wraps its errors so).
func object(body []byte) (gjson.Result, bool) {
	if !ValidJSON(body) {
		return gjson.Result{}, false
	}
	doc := gjson.ParseBytes(body)
	if doc.IsArray() {
		doc = doc.Get("0")
	}
	return doc, doc.IsObject()
}

// readDetails looks through Google's list of typed details for violated quotas and the wait.
func (e *errorBody) readDetails(details gjson.Result) {
	if !details.IsArray() {
		return
	}
	details.ForEach(func(_, d gjson.Result) bool {
		switch kind := d.Get("@type").Str; {
		case strings.HasSuffix(kind, "google.rpc.RetryInfo"):
			if w, err := time.ParseDuration(d.Get("retryDelay").Str); err == nil {
				if w, ok := believed(w); ok {
					e.retryInfo, e.hasRetryInfo = w, true
				}
			}
		case strings.HasSuffix(kind, "google.rpc.QuotaFailure"):
			d.Get("violations").ForEach(func(_, v gjson.Result) bool {
				e.violated(v.Get("quotaId").Str)
				return true
			})
		}
		return true
	})
	if e.hasRetryInfo {
		e.facts &^= factNoRetryInfo
		if e.retryInfo <= time.Hour {
			e.facts |= factRetryWithinHour
		} else {
			e.facts |= factRetryBeyondHour
		}
	}
	if e.facts&(factDay|factMinute) == factDay {
		e.facts |= factDayOnly
	}
}

// violated decides by the quota's id, never by the sentence: the sentence of a quota per minute speaks of plan and
// billing too.
func (e *errorBody) violated(id string) {
	e.facts &^= factNoViolations
	switch {
	case strings.Contains(id, "PerDay"):
		e.facts |= factDay
		return
	case strings.Contains(id, "PerMinute"):
		e.facts |= factMinute
	}
	switch {
	case strings.Contains(id, "InputTokens"):
		e.dim = arbiter.DimInputTPM
	case strings.Contains(id, "Requests"):
		e.dim = arbiter.DimRPM
	}
}

var (
	limitInText = regexp.MustCompile(`Limit:? (\d+)`)
	askedInText = regexp.MustCompile(`Requested:? (\d+)`)
)

// tooLarge tells a request above the whole limit from one that only has to wait. The two numbers decide when both can
// be read; Azure's "Rate limit of 50000 per 60s exceeded" has neither and is a throttle.
func tooLarge(message, lower string) bool {
	limit, asked := limitInText.FindStringSubmatch(message), askedInText.FindStringSubmatch(message)
	if limit != nil && asked != nil {
		l, errL := strconv.ParseInt(limit[1], 10, 64)
		a, errA := strconv.ParseInt(asked[1], 10, 64)
		if errL == nil && errA == nil {
			return a > l
		}
	}
	return strings.Contains(lower, "request too large")
}
