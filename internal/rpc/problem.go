package rpc

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/token-budget-arbiter/tba/arbiter"
)

// problem is an error of the plain JSON API: RFC 9457 problem details. reason and retry_after_ms are our extensions.
type problem struct {
	Type         string `json:"type"`
	Title        string `json:"title"`
	Status       int    `json:"status"`
	Detail       string `json:"detail"`
	Instance     string `json:"instance,omitempty"`
	Reason       string `json:"reason"`
	RetryAfterMS int64  `json:"retry_after_ms,omitempty"`
}

// writeProblem answers with an error in the form of RFC 9457.
func writeProblem(w http.ResponseWriter, r *http.Request, err error) {
	e := asError(err)
	status := httpStatus(e.Code)
	body, fault := json.Marshal(problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: e.Text,
		Instance: cut(r.URL.Path), Reason: e.Reason, RetryAfterMS: ceilMillis(e.RetryAfter),
	})
	if fault != nil { // strings and numbers always encode
		body = []byte(`{"type":"about:blank","status":500}`)
	}
	h := w.Header()
	if e.RetryAfter > 0 {
		h.Set("Retry-After", retryAfterSeconds(e.RetryAfter))
	}
	h.Set("Content-Type", "application/problem+json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // a client that is gone cannot be told
}

// retryAfterSeconds is a wait in ns for the Retry-After header: whole seconds, rounded up.
func retryAfterSeconds(ns int64) string {
	return strconv.FormatInt((max(ns, 1)-1)/arbiter.Second+1, 10)
}
