package provider

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// Target is how a provider serves an endpoint: under which path, with which credential slot, and what its server
// refuses. The values come from Dialect.Target; the zero value serves nothing.
type Target struct {
	Path string // from the provider's root; the model in it is replaced by Join

	e       *Endpoint
	dialect *Dialect
	compat  bool // an OpenAI-compatible endpoint of a provider with a dialect of its own
	azure   bool
}

// Target is how a provider of dialect d serves endpoint e of any dialect, asked for under path. Beside d's own
// endpoints these are OpenAI's: chat and embeddings at Mistral, chat at Anthropic's compatible endpoint, chat, embeddings
// and images at Gemini's. ok is false for everything else.
func (d *Dialect) Target(e *Endpoint, path string) (t Target, ok bool) {
	t = Target{Path: path, e: e, dialect: d}
	if e.dialect == d {
		return t, true
	}
	if e.dialect.name != OpenAI {
		return Target{}, false
	}
	t.compat = true
	switch {
	case d.name == Mistral && (e.name == "chat" || e.name == "embeddings"):
	case d.name == Anthropic && e.name == "chat":
	case d.name == Gemini && (e.name == "chat" || e.name == "embeddings" || e.name == "images"):
		t.Path = "/v1beta/openai" + strings.TrimPrefix(path, "/v1")
	default:
		return Target{}, false
	}
	return t, true
}

// At is the target at one base URL: Azure's hosts take their keys in a slot of their own. A nil base changes nothing.
func (t Target) At(base *url.URL) Target {
	if base != nil && t.dialect.name == OpenAI {
		host := base.Hostname()
		t.azure = strings.HasSuffix(host, ".openai.azure.com") || strings.HasSuffix(host, ".cognitiveservices.azure.com") ||
			strings.HasSuffix(host, ".services.ai.azure.com")
	}
	return t
}

// Authorize puts key into the header slot where this target reads it, and the version header where one is demanded. An
// empty key leaves the slot alone.
func (t Target) Authorize(h http.Header, key string) {
	switch {
	case !t.compat && !t.azure:
		t.dialect.Authorize(h, key)
	case key == "":
	case t.azure:
		h.Set("Api-Key", key)
	default:
		h.Set("Authorization", "Bearer "+key)
	}
}

// TakesUsageOption says whether a stream must be asked here for its usage, and may be.
func (t Target) TakesUsageOption() bool {
	return t.e != nil && t.e.usageOpt && t.dialect.name != Mistral
}

// Adapt is edit with what this target's server needs: Mistral refuses fields that it does not know, so that OpenAI's
// newer cap goes by the older name there and stream_options are dropped.
func (t Target) Adapt(edit Edit) Edit {
	if t.compat && t.dialect.name == Mistral {
		edit.OlderCap, edit.DropStreamOptions, edit.IncludeUsage = true, true, false
	}
	return edit
}

// BaseURL is the provider's own root, as its SDK takes it: with the version at OpenAI, without it elsewhere. Tools have
// none.
func (d *Dialect) BaseURL() string {
	switch d.name {
	case OpenAI:
		return "https://api.openai.com/v1"
	case Anthropic:
		return "https://api.anthropic.com"
	case Gemini:
		return "https://generativelanguage.googleapis.com"
	case Mistral:
		return "https://api.mistral.ai"
	}
	return ""
}

// Join is the URL of a call of t at base, which is written as for the provider's own SDK (see BaseURL).
//
//   - OpenAI: base's path takes the place of "/v1"; an empty one means "/v1".
//   - Anthropic, Gemini, Mistral: the path is appended; a version at the end of base is dropped.
//   - Tools: the path is appended.
//
// A {model} in base's path becomes model (Azure's deployments), as does the model in Gemini's path. Queries are merged;
// base's keys win, and the caller's credential in the parameter key is left out. User and fragment of base are dropped.
func (d *Dialect) Join(base *url.URL, t Target, model, rawQuery string) *url.URL {
	u := &url.URL{Scheme: base.Scheme, Host: base.Host, RawQuery: joinQuery(base.RawQuery, rawQuery)}
	root := strings.TrimRight(base.EscapedPath(), "/")
	segment := url.PathEscape(model)
	if model == "." || model == ".." {
		segment = "-" // no model is called so, and as a segment it would climb
	}
	for _, hole := range [...]string{"{model}", "%7Bmodel%7D", "%7bmodel%7d"} {
		root = strings.ReplaceAll(root, hole, segment)
	}
	path := (&url.URL{Path: t.Path}).EscapedPath()
	if t.e != nil {
		path = t.e.Path(path, model)
	}
	switch d.name {
	case OpenAI:
		if root == "" {
			root = "/v1"
		}
		path = strings.TrimPrefix(path, "/v1")
	case HTTP:
	default:
		for _, version := range [...]string{"/v1", "/v1beta"} {
			if cut, ok := strings.CutSuffix(root, version); ok {
				root = cut
				break
			}
		}
	}
	if path != "" && path[0] != '/' {
		path = "/" + path
	}
	raw := root + path
	plain, err := url.PathUnescape(raw)
	if err != nil {
		plain = raw
	}
	u.Path, u.RawPath = plain, raw
	return u
}

// joinQuery keeps the order and the spelling of both queries.
func joinQuery(base, callers string) string {
	own, _ := url.ParseQuery(base)
	parts := make([]string, 0, 4)
	if base != "" {
		parts = append(parts, base)
	}
	for part := range strings.SplitSeq(callers, "&") {
		name, _, _ := strings.Cut(part, "=")
		if plain, err := url.QueryUnescape(name); err != nil || plain == "" || plain == "key" || own.Has(plain) {
			continue
		}
		parts = append(parts, printable(part))
	}
	return strings.Join(parts, "&")
}

// printable escapes what no query may hold as it is.
func printable(s string) string {
	odd := func(c byte) bool { return c <= ' ' || c >= 0x7f || c == '#' }
	var b []byte
	for i := range len(s) {
		if c := s[i]; odd(c) {
			b = fmt.Appendf(b, "%%%02X", c)
		} else {
			b = append(b, c)
		}
	}
	return string(b)
}
