package mockprovider

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"strings"

	"github.com/tidwall/gjson"
)

var openaiAPI = api{
	speaks: &openai,
	paths: map[string]*endpoint{
		"/v1/chat/completions":       openAIStyle.endpoint(&openai),
		"/v1/completions":            &completions,
		"/v1/responses":              &responses,
		"/v1/responses/input_tokens": &inputTokens,
		"/v1/embeddings":             embeddingsOf(&openai, false),
		"/v1/moderations":            &moderations,
		"/v1/images/generations":     &images,
		"/v1/models":                 openAIModels(&openai),
	},
	route: func(path string) (*endpoint, string) { return openAIModel(&openai, path) },
}

var inputTokens = endpoint{
	name: "input_tokens", speaks: &openai, free: true, read: readResponses,
	plain: func(t *turn) any {
		return object{{"object", "response.input_tokens"}, {"input_tokens", t.q.prompt}}
	},
}

// embeddingsOf are the embeddings of OpenAI and, bare of options, of Mistral.
func embeddingsOf(speaks *speaker, strict bool) *endpoint {
	return &endpoint{
		name: "embeddings", speaks: speaks,
		read: func(doc gjson.Result, q *query) *fault {
			q.outputless, q.inputs, q.width = true, 1, max(count(firstOf(doc, "dimensions", "output_dimension")), 1)
			if input := doc.Get("input"); input.IsArray() && input.Get("0").Type != gjson.Number {
				q.inputs = int64(len(input.Array()))
			}
			if !doc.Get("dimensions").Exists() && !doc.Get("output_dimension").Exists() {
				q.width = 8
			}
			q.base64 = doc.Get("encoding_format").Str == "base64"
			if strict {
				return mistralKnows("embeddings", doc)
			}
			return nil
		},
		plain: func(t *turn) any {
			var data list
			for i := range t.q.inputs {
				data = append(data, object{{"object", "embedding"}, {"index", i}, {"embedding", vector(i, t.q)}})
			}
			usage := object{{"prompt_tokens", t.bill.Input}, {"total_tokens", t.bill.Input}}
			o := object{{"object", "list"}, {"data", data}, {"model", t.q.model}, {"usage", t.usage(usage)}}
			if strict {
				o = append(object{{"id", t.id}}, o...)
			}
			return o
		},
	}
}

// vector is the embedding of the i-th input: numbers, or their bytes as the SDK for Python asks for them.
func vector(i int64, q *query) any {
	numbers := make(list, q.width)
	var raw []byte
	for k := range numbers {
		x := float32(int64(k)+i+1) / 1024
		numbers[k] = x
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
	}
	if q.base64 {
		return base64.StdEncoding.EncodeToString(raw)
	}
	return numbers
}

var moderations = endpoint{
	name: "moderations", speaks: &openai, free: true,
	read: func(_ gjson.Result, q *query) *fault {
		q.outputless = true
		return nil
	},
	plain: func(t *turn) any {
		no := object{{"flagged", false}, {"categories", object{{"violence", false}}}, {"category_scores", object{{"violence", 0.001}}},
			{"category_applied_input_types", object{{"violence", list{"text"}}}}}
		return object{{"id", "modr-" + t.id}, {"model", t.q.model}, {"results", list{no}}}
	},
}

// images bill tokens on both sides.
var images = endpoint{
	name: "images", speaks: &openai,
	read: func(doc gjson.Result, q *query) *fault {
		q.cap = 4096
		q.choices = max(count(doc.Get("n")), 1)
		return nil
	},
	plain: func(t *turn) any {
		usage := object{{"input_tokens", t.bill.Input}, {"input_tokens_details", object{{"text_tokens", t.bill.Input}, {"image_tokens", 0}}},
			{"output_tokens", t.bill.Output}, {"output_tokens_details", object{{"text_tokens", 0}, {"image_tokens", t.bill.Output}}},
			{"total_tokens", t.bill.Input + t.bill.Output}}
		return object{{"created", t.created}, {"data", list{object{{"b64_json", "iVBORw0KGgo="}}}}, {"usage", t.usage(usage)}}
	},
}

func openAIModelRow(t *turn, name string) object {
	return object{{"id", name}, {"object", "model"}, {"created", t.created}, {"owned_by", t.u.Name}}
}

func openAIModels(speaks *speaker) *endpoint {
	return &endpoint{name: "models", speaks: speaks, get: true, free: true, plain: func(t *turn) any {
		var data list
		for _, name := range t.u.Models {
			data = append(data, openAIModelRow(t, name))
		}
		return object{{"object", "list"}, {"data", data}}
	}}
}

// openAIModel is one model of the list.
func openAIModel(speaks *speaker, path string) (*endpoint, string) {
	name, ok := strings.CutPrefix(path, "/v1/models/")
	if !ok || name == "" {
		return nil, ""
	}
	return &endpoint{name: "models", speaks: speaks, get: true, free: true, plain: func(t *turn) any { return openAIModelRow(t, name) }}, name
}
