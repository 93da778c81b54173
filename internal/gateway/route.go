package gateway

import (
	"net/http"
	"strings"

	"github.com/token-budget-arbiter/tba/internal/provider"
)

// route is what a path means.
type route struct {
	dialect  *provider.Dialect
	endpoint *provider.Endpoint // nil: a path that cannot be metered
	// path is the one below the dialect's root, model the one in it.
	path, model string
	// pinned is the provider that the path names, "" for any that speaks the dialect.
	pinned string
	// ladder is the one that a tool's path names.
	ladder string
	// models asks for the list of models, or for the one in the path.
	models bool
}

// find reads a path of the gateway. ok is false when it is under none of the roots.
func (s *Settings) find(method, path string) (rt route, ok bool) {
	first, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	rt.path = "/" + rest
	kind := ""
	switch first {
	case "v1":
		kind, rt.path = provider.OpenAI, path
	case provider.Anthropic, provider.Gemini:
		kind = first
	case "tools":
		kind = provider.HTTP
		name, below, found := strings.Cut(rest, "/")
		if rt.ladder, rt.path = name, "/"; found {
			rt.path += below
		}
	default:
		if up := s.upstream(first); up != nil {
			kind, rt.pinned = up.Dialect.Name(), first
		}
	}
	if rt.dialect, ok = provider.Lookup(kind); !ok {
		rt.dialect, _ = provider.Lookup(provider.OpenAI)
		return rt, false
	}
	for _, list := range [...]string{"/v1/models", "/v1beta/models"} {
		if rest, ok := strings.CutPrefix(rt.path, list); ok && method == http.MethodGet && kind != provider.HTTP && (rest == "" || rest[0] == '/') {
			rt.models, rt.model = true, strings.TrimPrefix(rest, "/")
			return rt, true
		}
	}
	rt.endpoint, rt.model, _ = rt.dialect.Endpoint(method, rt.path)
	return rt, true
}
