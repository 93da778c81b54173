package gateway

import (
	"encoding/json"
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
	// models asks for the list of models.
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
	if rt.models = method == http.MethodGet && (rt.path == "/v1/models" || rt.path == "/v1beta/models"); rt.models {
		return rt, true
	}
	rt.endpoint, rt.model, _ = rt.dialect.Endpoint(method, rt.path)
	return rt, true
}

// listModels answers GET models in the dialect: the ladders first, then every model of the file and the catalogue. No call goes up.
func listModels(w http.ResponseWriter, d *provider.Dialect, names []string) {
	var body any
	switch d.Name() {
	case provider.Gemini:
		type model struct {
			Name    string   `json:"name"`
			Display string   `json:"displayName"`
			Methods []string `json:"supportedGenerationMethods"`
		}
		list := []model{}
		for _, n := range names {
			list = append(list, model{"models/" + n, n, []string{"generateContent", "streamGenerateContent", "countTokens"}})
		}
		body = map[string]any{"models": list}
	case provider.Anthropic:
		type model struct {
			Type    string `json:"type"`
			ID      string `json:"id"`
			Display string `json:"display_name"`
			Created string `json:"created_at"`
		}
		list := []model{}
		for _, n := range names {
			list = append(list, model{"model", n, n, "1970-01-01T00:00:00Z"})
		}
		page := map[string]any{"data": list, "has_more": false, "first_id": nil, "last_id": nil}
		if len(names) > 0 {
			page["first_id"], page["last_id"] = names[0], names[len(names)-1]
		}
		body = page
	default:
		type model struct {
			ID      string `json:"id"`
			Object  string `json:"object"`
			Created int64  `json:"created"`
			Owner   string `json:"owned_by"`
		}
		list := []model{}
		for _, n := range names {
			list = append(list, model{n, "model", 0, "tba"})
		}
		body = map[string]any{"object": "list", "data": list}
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set(headerOrigin, originArbiter)
	_ = json.NewEncoder(w).Encode(body) // whoever does not read it has gone
}
