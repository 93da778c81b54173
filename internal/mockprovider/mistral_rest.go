package mockprovider

import "github.com/tidwall/gjson"

var mistralAPI = api{
	speaks: &mistral,
	paths: map[string]*endpoint{
		"/v1/chat/completions":   mistralChat("chat"),
		"/v1/fim/completions":    mistralChat("fim"),
		"/v1/agents/completions": mistralChat("agents"),
		"/v1/embeddings":         embeddingsOf(&mistral, true),
		"/v1/models":             &mistralModels,
	},
	route: func(path string) (*endpoint, string) { return openAIModel(&mistral, path) },
}

// mistralChat is an endpoint that answers as chat does: fill-in-the-middle and agents too.
func mistralChat(name string) *endpoint {
	e := mistralStyle.endpoint(&mistral)
	e.name = name
	e.read = func(doc gjson.Result, q *query) *fault {
		if bad := mistralKnows(name, doc); bad != nil {
			return bad
		}
		return readChat(doc, q)
	}
	return e
}

var mistralModels = endpoint{name: "models", speaks: &mistral, get: true, free: true, plain: func(t *turn) any {
	var data list
	for _, name := range t.u.Models {
		data = append(data, append(openAIModelRow(t, name),
			member{"capabilities", object{{"completion_chat", true}, {"completion_fim", true}, {"function_calling", true}, {"fine_tuning", false}, {"vision", false}}},
			member{"name", name}, member{"max_context_length", 262144}, member{"aliases", list{}}, member{"type", "base"}))
	}
	return object{{"object", "list"}, {"data", data}}
}}
