package provider

import (
	"strings"
	"testing"
)

func TestEndpoints(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		dialect, call, want string // want: name, "!" when unbilled, model; "" when it cannot be metered
	}{
		{OpenAI, "POST /v1/chat/completions", "chat"},
		{OpenAI, "POST /v1/completions", "completions"},
		{OpenAI, "POST /v1/responses", "responses"},
		{OpenAI, "POST /v1/responses/compact", "responses"},
		{OpenAI, "POST /v1/responses/input_tokens", "count_tokens!"},
		{OpenAI, "GET /v1/responses/resp_1", "stored!"},
		{OpenAI, "DELETE /v1/responses/resp_1", "stored!"},
		{OpenAI, "POST /v1/responses/resp_1/cancel", "stored!"},
		{OpenAI, "GET /v1/responses/resp_1/input_items", "stored!"},
		{OpenAI, "POST /v1/embeddings", "embeddings"},
		{OpenAI, "POST /v1/images/generations", "images"},
		{OpenAI, "POST /v1/images/edits", "image_edits"},
		{OpenAI, "POST /v1/audio/speech", "audio_speech"},
		{OpenAI, "POST /v1/audio/transcriptions", "audio_transcriptions"},
		{OpenAI, "POST /v1/audio/translations", "audio_translations"},
		{OpenAI, "POST /v1/moderations", "moderations!"},
		{OpenAI, "GET /v1/models", "models!"},
		{OpenAI, "GET /v1/models/gpt-5", "models!"},
		{OpenAI, "POST /v1/batches", ""},
		{OpenAI, "GET /v1/realtime", ""},
		{OpenAI, "GET /v1/chat/completions", ""},
		{OpenAI, "post /v1/chat/completions", ""},
		{OpenAI, "POST /v1/chat/completions/", ""},
		{OpenAI, "POST //v1/chat/completions", ""},
		{OpenAI, "POST /chat/completions", ""},
		{OpenAI, "GET /v1/responses/../files", ""},
		{OpenAI, "GET /v1/responses/..", ""},
		{OpenAI, "POST /v1/responses/a/b/cancel", ""},
		{OpenAI, "POST /v1/files", ""},

		{Anthropic, "POST /v1/messages", "messages"},
		{Anthropic, "POST /v1/messages/count_tokens", "count_tokens!"},
		{Anthropic, "POST /v1/messages/batches", ""},
		{Anthropic, "POST /v1/complete", ""},
		{Anthropic, "GET /v1/models", "models!"},

		{Gemini, "POST /v1beta/models/gemini-4-neon:generateContent", "generate gemini-4-neon"},
		{Gemini, "POST /v1/models/gemini-4-neon:generateContent", "generate gemini-4-neon"},
		{Gemini, "POST /v1beta/models/g:streamGenerateContent", "generate g"},
		{Gemini, "POST /v1beta/models/g:countTokens", "count_tokens! g"},
		{Gemini, "POST /v1beta/models/g:embedContent", "embed g"},
		{Gemini, "POST /v1beta/models/g:batchEmbedContents", "embed g"},
		{Gemini, "POST /v1beta/interactions", "interactions"},
		{Gemini, "GET /v1beta/interactions/i1", "stored!"},
		{Gemini, "DELETE /v1beta/interactions/i1", "stored!"},
		{Gemini, "POST /v1beta/interactions/i1/cancel", "stored!"},
		{Gemini, "GET /v1beta/models", "models!"},
		{Gemini, "POST /v1beta/models/g:batchGenerateContent", ""},
		{Gemini, "POST /v1beta/models/:generateContent", ""},
		{Gemini, "POST /v1beta/models/a/b:generateContent", ""},
		{Gemini, "POST /v1beta/models/a%2Fb:generateContent", ""},
		{Gemini, "POST /v1beta/models/g?:generateContent", ""},
		{Gemini, "POST /v1alpha/models/g:generateContent", ""},

		{Mistral, "POST /v1/chat/completions", "chat"},
		{Mistral, "POST /v1/fim/completions", "fim"},
		{Mistral, "POST /v1/agents/completions", "agents"},
		{Mistral, "POST /v1/conversations", "conversations"},
		{Mistral, "POST /v1/conversations/c1", "conversations"},
		{Mistral, "POST /v1/conversations/c1/restart", "conversations"},
		{Mistral, "GET /v1/conversations/c1", "stored!"},
		{Mistral, "POST /v1/embeddings", "embeddings"},
		{Mistral, "POST /v1/moderations", "moderations!"},
		{Mistral, "POST /v1/chat/moderations", "moderations!"},
		{Mistral, "POST /v1/classifications", "moderations!"},
		{Mistral, "POST /v1/ocr", "ocr"},
		{Mistral, "POST /v1/audio/transcriptions", "audio_transcriptions"},
		{Mistral, "POST /v1/audio/speech", "audio_speech"},
		{Mistral, "POST /v1/batch/jobs", ""},

		{HTTP, "PUT /any/thing at all", "tool!"},
		{HTTP, "GET ", "tool!"},
	} {
		method, path, _ := strings.Cut(c.call, " ")
		e, model, ok := dialect(t, c.dialect).Endpoint(method, path)
		got := ""
		if ok {
			got = e.Name()
			if e.Unbilled() {
				got += "!"
			}
			if model != "" {
				got += " " + model
			}
			if e.dialect.name != c.dialect {
				t.Errorf("%s %s: dialect %s", c.dialect, c.call, e.dialect.name)
			}
		}
		if got != c.want {
			t.Errorf("%s %s: %q; want %q", c.dialect, c.call, got, c.want)
		}
	}
}

// TestEndpointTables: no row of a table contradicts itself: every cap is read, no unbilled call holds output, Mistral gets no option that it refuses.
func TestEndpointTables(t *testing.T) {
	t.Parallel()
	for _, name := range Names() {
		for _, r := range dialect(t, name).routes() {
			e := r.e
			if e.usageOpt && name == Mistral {
				t.Errorf("%s: Mistral refuses stream_options", r.path)
			}
			if e.unbilled && !e.silent {
				t.Errorf("%s %s: unbilled, yet output is held for it", name, r.path)
			}
			for _, c := range e.caps {
				fields := e.fields
				if c.parent != "" {
					if fields[c.parent] != roleConfig {
						t.Errorf("%s %s: the cap's object %s is not read", name, r.path, c.parent)
					}
					fields = configFields
					if name == Mistral {
						fields = completionArgFields
					}
				}
				if fields[c.name] != roleCap {
					t.Errorf("%s %s: the cap %s is not read", name, r.path, c.name)
				}
			}
		}
	}
}

func TestEndpointPath(t *testing.T) {
	t.Parallel()
	generate, _, _ := gemini.Endpoint("POST", "/v1beta/models/g:generateContent")
	chat, _, _ := openai.Endpoint("POST", "/v1/chat/completions")
	for _, c := range []struct {
		e                 *Endpoint
		path, model, want string
	}{
		{generate, "/v1beta/models/g:generateContent", "gemini-4-neon", "/v1beta/models/gemini-4-neon:generateContent"},
		{generate, "/v1/models/a:b:streamGenerateContent", "c", "/v1/models/c:streamGenerateContent"},
		{generate, "/v1beta/models/g:generateContent", "models/x", "/v1beta/models/x:generateContent"},
		{generate, "/v1beta/models/g:generateContent", "a/../b?c", "/v1beta/models/a%2F..%2Fb%3Fc:generateContent"},
		{generate, "/v1beta/models/g:generateContent", "", "/v1beta/models/g:generateContent"},
		{generate, "/v1beta/interactions", "m", "/v1beta/interactions"},
		{chat, "/v1/chat/completions", "m", "/v1/chat/completions"},
	} {
		if got := c.e.Path(c.path, c.model); got != c.want {
			t.Errorf("%s with %q: %s; want %s", c.path, c.model, got, c.want)
		}
	}
}
