package mockprovider

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/tidwall/gjson"
)

// geminiAPI has the model in the path.
var geminiAPI = api{
	speaks: &gemini,
	paths: map[string]*endpoint{
		"/v1beta/openai/chat/completions": geminiStyle.endpoint(&geminiCompatible),
		"/v1beta/openai/embeddings":       embeddingsOf(&geminiCompatible, false),
		"/v1beta/openai/models":           openAIModels(&geminiCompatible),
		"/v1beta/models":                  &geminiModels,
		"/v1/models":                      &geminiModels,
		"/v1/interactions":                &interactions,
		"/v1beta/interactions":            &interactions,
	},
	route: func(path string) (*endpoint, string) {
		rest, ok := strings.CutPrefix(path, "/v1beta/models/")
		if !ok { // newer SDKs ask for v1
			rest, ok = strings.CutPrefix(path, "/v1/models/")
		}
		if !ok || rest == "" {
			return nil, ""
		}
		// The last colon parts model and verb: tuned models have colons in their names.
		model, verb := rest, ""
		if i := strings.LastIndexByte(rest, ':'); i >= 0 {
			model, verb = rest[:i], rest[i+1:]
		}
		if plain, err := url.PathUnescape(model); err == nil {
			model = plain
		}
		e := geminiVerbs[verb]
		if verb == "" {
			e = &geminiModel
		}
		if e == nil || model == "" {
			return nil, ""
		}
		return e, model
	},
}

var geminiVerbs = map[string]*endpoint{
	"generateContent":       {name: "generate", speaks: &gemini, newline: "\r\n", read: readGenerate, plain: geminiWhole},
	"streamGenerateContent": {name: "generate", speaks: &gemini, newline: "\r\n", read: readGenerateStream, plain: geminiWhole, stream: streamGenerate},
	"countTokens": {name: "count_tokens", speaks: &gemini, free: true, read: func(gjson.Result, *query) *fault { return nil },
		plain: func(t *turn) any {
			return object{{"totalTokens", t.q.prompt}, {"promptTokensDetails", byModality(t.q.prompt)}}
		}},
	"embedContent":       {name: "embed", speaks: &gemini, read: readEmbed, plain: func(t *turn) any { return embedded(t, "embedding") }},
	"batchEmbedContents": {name: "embed", speaks: &gemini, read: readEmbed, plain: func(t *turn) any { return embedded(t, "embeddings") }},
}

// geminiCompatible speaks at the endpoints that are compatible with OpenAI: Google's errors, in a list.
var geminiCompatible = speaker{
	limits: gemini.limits,
	throttled: func(h http.Header, id, model string, r refusal) any {
		return list{gemini.throttled(h, id, model, r)}
	},
	fault: func(id string, f fault) (int, any) {
		status, body := gemini.fault(id, f)
		return status, list{body}
	},
	refuse: func(id, model, kind string) (int, any) {
		status, body := gemini.refuse(id, model, kind)
		return status, list{body}
	},
	streamError: func(t *turn) {
		t.event("", list{geminiErrorBody(503, "UNAVAILABLE", "The model is overloaded. Please try again later.")})
	},
}

func readGenerate(doc gjson.Result, q *query) *fault {
	q.cap = count(firstOf(doc, "generationConfig.maxOutputTokens", "generation_config.max_output_tokens"))
	q.choices = max(count(firstOf(doc, "generationConfig.candidateCount", "generation_config.candidate_count")), 1)
	q.stream = false
	answered := false
	last(doc.Get("contents")).Get("parts").ForEach(func(_, part gjson.Result) bool {
		answered = answered || firstOf(part, "functionResponse", "function_response").Exists()
		return !answered
	})
	if answered || firstOf(doc, "toolConfig.functionCallingConfig.mode", "tool_config.function_calling_config.mode").Str == "NONE" {
		return nil
	}
	doc.Get("tools").ForEach(func(_, tool gjson.Result) bool {
		if f := firstOf(tool, "functionDeclarations.0", "function_declarations.0"); f.Exists() {
			q.tool = callOf(f.Get("name").Str, firstOf(f, "parameters", "parametersJsonSchema", "parameters_json_schema"))
		}
		return q.tool == nil
	})
	return nil
}

func readGenerateStream(doc gjson.Result, q *query) *fault {
	bad := readGenerate(doc, q)
	q.stream = true
	return bad
}

func byModality(n int64) list { return list{object{{"modality", "TEXT"}, {"tokenCount", n}}} }

// geminiUsage keeps thoughts apart from the candidates' tokens; a count of nothing is left out.
func geminiUsage(b Bill) object {
	shown := b.Output - b.Reasoning
	return object{
		{"promptTokenCount", b.Input},
		{"candidatesTokenCount", present(shown > 0, shown)},
		{"totalTokenCount", b.Input + b.Output},
		{"cachedContentTokenCount", present(b.CacheRead > 0, b.CacheRead)},
		{"promptTokensDetails", byModality(b.Input)},
		{"thoughtsTokenCount", present(b.Reasoning > 0, b.Reasoning)},
	}
}

func geminiText(text string) list { return list{object{{"text", text}}} }

func geminiCall(t *turn) list {
	return list{object{{"functionCall", object{{"name", t.q.tool.name}, {"args", gjson.Parse(t.q.tool.arguments).Value()}}}}}
}

func geminiAnswer(t *turn, parts list, finish, usage any) object {
	candidate := object{{"content", object{{"parts", parts}, {"role", "model"}}}, {"finishReason", finish}, {"index", 0}}
	return object{{"candidates", list{candidate}}, {"usageMetadata", usage}, {"modelVersion", t.q.model}, {"responseId", t.id}}
}

func geminiFinish(t *turn) string {
	if t.capped() && t.q.tool == nil {
		return "MAX_TOKENS"
	}
	return "STOP"
}

func geminiWhole(t *turn) any {
	parts := geminiText(t.text())
	if t.q.tool != nil {
		parts = geminiCall(t)
	}
	return geminiAnswer(t, parts, geminiFinish(t), t.usage(geminiUsage(t.bill)))
}

// streamGenerate tells the usage so far in every piece. Without alt=sse the whole stream is one JSON array.
func streamGenerate(t *turn) {
	opened := false
	send := func(parts list, finish, usage any) {
		o := geminiAnswer(t, parts, finish, usage)
		if !t.q.array {
			t.event("", o)
			return
		}
		lead := ",\r\n"
		if !opened {
			lead = "["
		}
		opened = true
		t.raw(lead + string(appendJSON(nil, o)))
	}
	if t.q.array {
		t.tail = func() { t.raw("]") }
	}
	for piece := range t.pieces() {
		if t.q.tool == nil { // the call of a function comes whole
			send(geminiText(piece), absent{}, t.early(geminiUsage(t.soFar())))
		}
	}
	parts := geminiText("")
	if t.q.tool != nil {
		parts = geminiCall(t)
	}
	send(parts, geminiFinish(t), t.usage(geminiUsage(t.bill)))
	if t.q.array {
		t.raw("]")
	}
}

func readEmbed(doc gjson.Result, q *query) *fault {
	q.outputless, q.inputs, q.width = true, 1, 8
	requests := doc.Get("requests")
	if requests.IsArray() {
		q.inputs = int64(len(requests.Array()))
	}
	if n := count(firstOf(doc, "outputDimensionality", "requests.0.outputDimensionality")); n > 0 {
		q.width = n
	}
	return nil
}

func embedded(t *turn, name string) object {
	var all list
	for i := range t.q.inputs {
		all = append(all, object{{"values", vector(i, t.q)}})
	}
	value := any(all)
	if name == "embedding" {
		value = all[0]
	}
	return object{{name, value}, {"usageMetadata", t.usage(object{{"promptTokenCount", t.bill.Input}, {"promptTokenDetails", byModality(t.bill.Input)}})}}
}

func geminiModelRow(name string) object {
	return object{{"name", "models/" + name}, {"version", "001"}, {"displayName", name}, {"inputTokenLimit", 1048576}, {"outputTokenLimit", 65536},
		{"supportedGenerationMethods", list{"generateContent", "countTokens", "embedContent"}}}
}

var geminiModel = endpoint{name: "models", speaks: &gemini, get: true, free: true, plain: func(t *turn) any { return geminiModelRow(t.q.model) }}

var geminiModels = endpoint{name: "models", speaks: &gemini, get: true, free: true, plain: func(t *turn) any {
	var all list
	for _, name := range t.u.Models {
		all = append(all, geminiModelRow(name))
	}
	return object{{"models", all}}
}}
