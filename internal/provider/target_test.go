package provider

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

func TestJoin(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		served, path, by, base, model, query, want string // want "": cannot be served
	}{
		{OpenAI, "/v1/chat/completions", OpenAI, "", "m", "", "https://api.openai.com/v1/chat/completions"},
		{OpenAI, "/v1/chat/completions", OpenAI, "https://api.groq.com/openai/v1", "m", "", "https://api.groq.com/openai/v1/chat/completions"},
		{OpenAI, "/v1/chat/completions", OpenAI, "https://api.groq.com/openai/v1/", "m", "", "https://api.groq.com/openai/v1/chat/completions"},
		{OpenAI, "/v1/responses", OpenAI, "http://localhost:11434/v1", "m", "", "http://localhost:11434/v1/responses"},
		{OpenAI, "/v1/embeddings", OpenAI, "http://127.0.0.1:8000", "m", "", "http://127.0.0.1:8000/v1/embeddings"},
		{OpenAI, "/v1/embeddings", OpenAI, "http://127.0.0.1:8000/", "m", "", "http://127.0.0.1:8000/v1/embeddings"},
		{OpenAI, "/v1/chat/completions", OpenAI, "https://generativelanguage.googleapis.com/v1beta/openai", "m", "", "https://generativelanguage.googleapis.com/v1beta/openai/chat/completions"},
		{OpenAI, "/v1/chat/completions", OpenAI, "https://r.openai.azure.com/openai/deployments/{model}?api-version=2026-10-21", "gpt 6", "api-version=1999&x=%41",
			"https://r.openai.azure.com/openai/deployments/gpt%206/chat/completions?api-version=2026-10-21&x=%41"},
		{OpenAI, "/v1/chat/completions", OpenAI, "https://h/{model}/v1", "a/b", "", "https://h/a%2Fb/v1/chat/completions"},
		{OpenAI, "/v1/chat/completions", OpenAI, "https://user:secret@h/v1#f", "m", "key=agents&b=2", "https://h/v1/chat/completions?b=2"},
		{OpenAI, "/v1/chat/completions", OpenAI, "https://h/v1?key=operators", "m", "%6bey=agents", "https://h/v1/chat/completions?key=operators"},

		{Anthropic, "/v1/messages", Anthropic, "", "m", "beta=true", "https://api.anthropic.com/v1/messages?beta=true"},
		{Anthropic, "/v1/messages", Anthropic, "https://proxy/anthropic/v1/", "m", "", "https://proxy/anthropic/v1/messages"},
		{Gemini, "/v1beta/models/g:streamGenerateContent", Gemini, "", "gemini-4-neon", "alt=sse&key=k", "https://generativelanguage.googleapis.com/v1beta/models/gemini-4-neon:streamGenerateContent?alt=sse"},
		{Gemini, "/v1beta/models/g:generateContent", Gemini, "https://h/v1beta", "a/b", "", "https://h/v1beta/models/a%2Fb:generateContent"},
		{Mistral, "/v1/ocr", Mistral, "https://api.eu.mistral.ai", "m", "", "https://api.eu.mistral.ai/v1/ocr"},

		{OpenAI, "/v1/chat/completions", Mistral, "", "m", "", "https://api.mistral.ai/v1/chat/completions"},
		{OpenAI, "/v1/embeddings", Mistral, "https://api.mistral.ai/v1", "m", "", "https://api.mistral.ai/v1/embeddings"},
		{OpenAI, "/v1/chat/completions", Anthropic, "", "m", "", "https://api.anthropic.com/v1/chat/completions"},
		{OpenAI, "/v1/chat/completions", Gemini, "", "m", "", "https://generativelanguage.googleapis.com/v1beta/openai/chat/completions"},
		{OpenAI, "/v1/embeddings", Gemini, "https://h/v1beta/", "m", "", "https://h/v1beta/openai/embeddings"},
		{OpenAI, "/v1/images/generations", Gemini, "", "m", "", "https://generativelanguage.googleapis.com/v1beta/openai/images/generations"},
		{OpenAI, "/v1/responses", Mistral, "", "m", "", ""},
		{OpenAI, "/v1/embeddings", Anthropic, "", "m", "", ""},
		{Mistral, "/v1/chat/completions", OpenAI, "", "m", "", ""},
		{Anthropic, "/v1/messages", OpenAI, "", "m", "", ""},
		{OpenAI, "/v1/chat/completions", HTTP, "", "m", "", ""},

		{HTTP, "/search", HTTP, "https://api.search.example/v2", "", "q=tea+pot&key=k", "https://api.search.example/v2/search?q=tea+pot"},
		{HTTP, "", HTTP, "https://api.search.example/v2/", "", "", "https://api.search.example/v2"},
		{HTTP, "/a b%", HTTP, "https://h", "", "", "https://h/a%20b%25"},
	} {
		method := "POST"
		e, _, ok := dialect(t, c.served).Endpoint(method, c.path)
		if !ok {
			t.Fatalf("%s has no %s", c.served, c.path)
		}
		d := dialect(t, c.by)
		if c.base == "" {
			c.base = d.BaseURL()
		}
		base, err := url.Parse(c.base)
		if err != nil {
			t.Fatal(err)
		}
		target, ok := d.Target(e, c.path)
		if !ok {
			if c.want != "" {
				t.Errorf("%s at %s: cannot be served", c.path, c.by)
			}
			continue
		}
		if got := d.Join(base, target, c.model, c.query).String(); got != c.want {
			t.Errorf("%s %s by %s at %s:\n got %s\nwant %s", c.served, c.path, c.by, c.base, got, c.want)
		}
	}
}

func TestTargetAuthorize(t *testing.T) {
	t.Parallel()
	chat, _, _ := openai.Endpoint("POST", "/v1/chat/completions")
	messages, _, _ := anthropic.Endpoint("POST", "/v1/messages")
	for _, c := range []struct {
		by   string
		e    *Endpoint
		base string
		want string
	}{
		{OpenAI, chat, "https://api.openai.com/v1", "Authorization: Bearer K"},
		{OpenAI, chat, "https://r.openai.azure.com/openai/deployments/{model}", "Api-Key: K"},
		{OpenAI, chat, "https://openai.azure.com.evil.example/v1", "Authorization: Bearer K"},
		{Anthropic, chat, "https://api.anthropic.com", "Authorization: Bearer K"},
		{Gemini, chat, "https://generativelanguage.googleapis.com", "Authorization: Bearer K"},
		{Mistral, chat, "https://api.mistral.ai", "Authorization: Bearer K"},
		{Anthropic, messages, "https://api.anthropic.com", "Anthropic-Version: 2023-06-01, X-Api-Key: K"},
	} {
		base, _ := url.Parse(c.base)
		target, ok := dialect(t, c.by).Target(c.e, "/v1/chat/completions")
		if !ok {
			t.Fatalf("%s does not serve %s", c.by, c.e.Name())
		}
		h := http.Header{}
		target.At(base).Authorize(h, "K")
		var got []string
		for _, name := range []string{"Anthropic-Version", "Authorization", "Api-Key", "X-Api-Key", "X-Goog-Api-Key"} {
			if v := h.Get(name); v != "" {
				got = append(got, name+": "+v)
			}
		}
		if s := strings.Join(got, ", "); s != c.want {
			t.Errorf("%s at %s: %s; want %s", c.by, c.base, s, c.want)
		}
	}
	for _, name := range Names() {
		if target, ok := dialect(t, name).Target(chat, "/v1/chat/completions"); ok && target.TakesUsageOption() == (name == Mistral) {
			t.Errorf("%s: asks for usage: %v", name, target.TakesUsageOption())
		}
	}
}

// Mistral refuses fields that it does not know: of a chat call of OpenAI's dialect it gets neither stream_options nor the newer cap.
func TestOpenAICallsAtMistral(t *testing.T) {
	t.Parallel()
	const path = "/v1/chat/completions"
	chat, _, _ := openai.Endpoint("POST", path)
	for by, want := range map[string]string{
		Mistral: `{"model":"m","stream":true,"max_tokens":9}`,
		OpenAI:  `{"model":"m","stream":true,"stream_options":{"x":1,"include_usage":true},"max_completion_tokens":9}`,
	} {
		target, ok := dialect(t, by).Target(chat, path)
		if !ok {
			t.Fatalf("%s does not serve %s", by, path)
		}
		body := []byte(`{"model":"gpt","stream":true,"stream_options":{"x":1},"max_completion_tokens":50}`)
		call, err := chat.Parse(path, body)
		if err != nil {
			t.Fatal(err)
		}
		got, err := chat.Rewrite(body, &call, target.Adapt(Edit{Model: "m", MaxOutput: 9, IncludeUsage: true}))
		if err != nil || string(got) != want {
			t.Errorf("%s: %s %v, want %s", by, got, err, want)
		}
	}
}

// FuzzJoin: whatever path, model and query, a call stays at its upstream and carries no credential of the caller's.
func FuzzJoin(f *testing.F) {
	f.Add("https://api.openai.com/v1", "/v1/chat/completions", "m", "a=1&key=x")
	f.Add("https://h/openai/deployments/{model}?api-version=1", "/v1/embeddings", "../../admin", "api-version=2")
	f.Add("http://[::1]:80/x/", "/v1beta/models/a:generateContent", "b@evil/..", "%6bey=1&;&&=")
	f.Add("https://h", "//evil.example/x", "?", "#")
	f.Fuzz(func(t *testing.T, base, path, model, query string) {
		b, err := url.Parse(base)
		if err != nil || b.Host == "" {
			return
		}
		for _, name := range append(Names(), HTTP) {
			d := dialect(t, name)
			e, _, ok := d.Endpoint("POST", path)
			if !ok {
				e = d.Passthrough()
			}
			target, ok := d.Target(e, path)
			if !ok {
				t.Fatalf("%s does not serve its own %s", name, e.Name())
			}
			u := d.Join(b, target, model, query)
			if u.Host != b.Host || u.Scheme != b.Scheme || u.User != nil || u.Fragment != "" {
				t.Fatalf("%s: %s leaves %s", name, u, b)
			}
			if b.RawQuery == "" && u.Query().Has("key") {
				t.Fatalf("%s: the caller's credential is in %s", name, u)
			}
			again, err := url.Parse(u.String())
			if err != nil || again.Host != b.Host {
				t.Fatalf("%s: %s reads back as %v, %v", name, u, again, err)
			}
			if root := strings.TrimRight(b.EscapedPath(), "/"); ok && e.name == "chat" && !strings.Contains(root, "odel") && name == OpenAI && root != "" &&
				!strings.HasPrefix(u.EscapedPath(), root+"/") {
				t.Fatalf("%s: %s leaves the root %s", name, u, root)
			}
		}
	})
}
