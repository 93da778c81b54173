package gateway

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/token-budget-arbiter/tba/internal/config"
	"github.com/token-budget-arbiter/tba/internal/provider"
)

// modelsFor are the names that calls of a dialect may use: the ladders first, then the models of the providers that serve it.
func (p *poolSettings) modelsFor(d *provider.Dialect, pinned string) []string {
	chat, _, ok := d.Endpoint(http.MethodPost, d.ChatPath("m"))
	if !ok {
		return nil
	}
	except := p.except(chat, pinned)
	var ladders, models []string
	for i := range p.Ladders {
		if slices.ContainsFunc(p.Ladders[i].Rungs(), func(r config.Rung) bool { return !slices.Contains(except, r.Provider) }) {
			ladders = append(ladders, p.Ladders[i].Name)
		}
	}
	for name := range p.upstreams {
		if !slices.Contains(except, name) {
			models = append(models, p.models[name]...)
		}
	}
	slices.Sort(models)
	return append(ladders, slices.Compact(models)...)
}

// listModels answers GET models in the dialect. No call goes up.
func (x *exchange) listModels(w http.ResponseWriter) {
	names := x.pool.modelsFor(x.dialect, x.pinned)
	one := x.model != ""
	if at, id, ok := strings.Cut(x.model, "/"); ok && x.pool.upstreams[at] != nil && (x.pinned == "" || x.pinned == at) { // as a rung is written
		names, x.model = x.pool.modelsFor(x.dialect, at), id
	}
	if one {
		if !slices.Contains(names, x.model) {
			x.status, x.refused = http.StatusNotFound, true
			refuseNotFound("unknown_model", "there is no model and no ladder %q on this path", x.model).write(w, x.dialect)
			return
		}
		names = []string{x.model}
	}
	list := make([]any, len(names))
	for i, n := range names {
		list[i] = modelObject(x.dialect, n)
	}
	var body any
	switch {
	case one:
		body = list[0]
	case x.dialect.Name() == provider.Gemini:
		body = map[string]any{"models": list}
	case x.dialect.Name() == provider.Anthropic:
		page := map[string]any{"data": list, "has_more": false, "first_id": nil, "last_id": nil}
		if len(names) > 0 {
			page["first_id"], page["last_id"] = names[0], names[len(names)-1]
		}
		body = page
	default:
		body = map[string]any{"object": "list", "data": list}
	}
	x.status = http.StatusOK
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set(headerOrigin, originArbiter)
	_ = json.NewEncoder(w).Encode(body) // whoever does not read it has gone
}

// modelObject is one model as the dialect's own list has it. When it was made is not known here.
func modelObject(d *provider.Dialect, name string) any {
	switch d.Name() {
	case provider.Gemini:
		return struct {
			Name    string   `json:"name"`
			Display string   `json:"displayName"`
			Methods []string `json:"supportedGenerationMethods"`
		}{"models/" + name, name, []string{"generateContent", "streamGenerateContent", "countTokens"}}
	case provider.Anthropic:
		return struct {
			Type    string `json:"type"`
			ID      string `json:"id"`
			Display string `json:"display_name"`
			Created string `json:"created_at"`
		}{"model", name, name, "1970-01-01T00:00:00Z"}
	}
	return struct {
		ID      string `json:"id"`
		Object  string `json:"object"`
		Created int64  `json:"created"`
		Owner   string `json:"owned_by"`
	}{name, "model", 0, "tba"}
}
