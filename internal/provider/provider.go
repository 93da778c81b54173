// Package provider: one file per dialect: openai, anthropic, gemini, mistral, http tool. Estimate, usage, error class, limit headers. No sockets.
//
// Bytes and headers go in, values come out. Nothing here dials, sleeps, logs or reads a clock; where a provider
// answers with an instant, the caller passes now. What the dialects have in common (numbers, waits, the order
// in which error rules are tried) is written once, what differs sits in the dialect's file.
//
// The way of a call: [Dialect.Endpoint] finds what a path asks for, [Endpoint.Parse] reads what it may cost,
// [Dialect.Target] and [Endpoint.Rewrite] make the call for one provider, changing no byte but those they must,
// [Endpoint.NewMeter] reads the bill from the answer while it passes, [Dialect.Classify] says what an error means,
// and [Dialect.ErrorBody] words a refusal of ours.
package provider

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/tidwall/gjson"
)

// Dialect is the wire format of one provider. The values come from Lookup, are never changed and may be used by any
// number of goroutines.
type Dialect struct {
	name     string
	keySlot  string // header that carries the credential
	keyWord  string // what stands before it: "Bearer "
	chatPath func(model string) string
	chatBody func(ChatRequest) any
	usage    func(body gjson.Result) (Usage, bool)
	image    func(model string, m *media) int64 // input tokens of a picture whose size is known; nil: no rule is published
	limits   func(h reader) Limits
	rules    []Rule
}

// The names of the dialects, as a configuration spells them in `kind`.
const (
	OpenAI    = "openai"
	Anthropic = "anthropic"
	Gemini    = "gemini"
	Mistral   = "mistral"
)

// Names lists the dialects of models in a fixed order; HTTP is not among them.
func Names() []string { return []string{OpenAI, Anthropic, Gemini, Mistral} }

// Lookup returns the dialect of that name, HTTP included; "google" is an alias of "gemini". ok is false for any other name.
func Lookup(name string) (d *Dialect, ok bool) {
	switch name {
	case OpenAI:
		return &openai, true
	case Anthropic:
		return &anthropic, true
	case Gemini, "google":
		return &gemini, true
	case Mistral:
		return &mistral, true
	case HTTP:
		return &tool, true
	}
	return nil, false
}

// Name is the dialect's own name, never an alias.
func (d *Dialect) Name() string { return d.name }

// ChatPath is the path of one plain chat call, from the root of the provider's host. Only Gemini puts the model in it.
func (d *Dialect) ChatPath(model string) string { return d.chatPath(model) }

// Authorize puts key into the header slot that the provider's own SDK uses, and the version header where the provider
// demands one. An empty key leaves the slot alone.
func (d *Dialect) Authorize(h http.Header, key string) {
	if d.name == Anthropic && h.Get(anthropicVersionHeader) == "" {
		h.Set(anthropicVersionHeader, anthropicVersion)
	}
	if key != "" {
		h.Set(d.keySlot, d.keyWord+key)
	}
}

// Credential finds the caller's key in whichever slot its SDK uses: bearer token, x-api-key, x-goog-api-key, api-key or
// the query parameter key. It returns "" when no slot is filled.
func Credential(h http.Header, rawQuery string) string {
	if word, key, ok := strings.Cut(first(h, "Authorization"), " "); ok && strings.EqualFold(word, "bearer") {
		if key = strings.TrimSpace(key); key != "" {
			return key
		}
	}
	for _, slot := range [...]string{"X-Api-Key", "X-Goog-Api-Key", "Api-Key"} {
		if key := first(h, slot); key != "" {
			return key
		}
	}
	if rawQuery == "" {
		return ""
	}
	// Values with a bad escape are dropped by ParseQuery; the good ones are still returned.
	q, _ := url.ParseQuery(rawQuery)
	return q.Get("key")
}
