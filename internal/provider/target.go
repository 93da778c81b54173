package provider

import (
	"net/http"
	"net/url"
)

// Target is how a provider serves an endpoint: under which path, with which credential slot, and what its server
// refuses. The zero value serves nothing.
type Target struct {
	Path string // from the provider's root

	e       *Endpoint
	dialect *Dialect
	bearer  bool
	azure   bool
}

// Target is how a provider of dialect d serves endpoint e of any dialect, asked for under path. Beside d's own
// endpoints these are OpenAI's chat and embeddings at Mistral and at the compatible endpoints of Anthropic (chat) and
// Gemini. ok is false for everything else.
func (d *Dialect) Target(e *Endpoint, path string) (t Target, ok bool) {
	t = Target{Path: path, e: e, dialect: d}
	return t, e.dialect == d
}

// Authorize puts key into the header slot where this target reads it.
func (t Target) Authorize(h http.Header, key string) { t.dialect.Authorize(h, key) }

// BaseURL is the provider's own root, as its SDK takes it.
func (d *Dialect) BaseURL() string { return "" }

// Join is the URL of a call.
func (d *Dialect) Join(base *url.URL, t Target, model, rawQuery string) *url.URL {
	u := *base
	return &u
}
