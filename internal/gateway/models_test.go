package gateway_test

import (
	"net/http"
	"strings"
	"testing"
)

// What a path lists can be called on it: the ladders and models of the providers that serve its dialect, the catalogue's too.
func TestModels(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{file: fourProviders("http://127.0.0.1:1", "ladders: {chat: {rungs: [mistral/mistral-small-2603, openai/gpt-5.4]}}")})
	all := []string{`"chat"`, `"claude-sonnet-5"`, `"gemini-3.5-flash"`, `"gpt-5.4"`, `"mistral-small-2603"`}
	for _, c := range []struct {
		path string
		has  []string
	}{
		{"/v1/models", all},
		{"/openai/v1/models", []string{`"chat"`, `"gpt-5.4"`}},
		{"/anthropic/v1/models", []string{`"claude-sonnet-5"`}},
		{"/gemini/v1beta/models", []string{`"gemini-3.5-flash"`}},
		{"/mistral/v1/models", []string{`"chat"`, `"mistral-small-2603"`}},
		{"/v1/models/gpt-5.4", []string{`"gpt-5.4"`}},
		{"/v1/models/chat", []string{`"chat"`}},
		{"/v1/models/openai/gpt-5.4", []string{`"gpt-5.4"`}},
		{"/gemini/v1beta/models/gemini-3.5-flash", []string{`"gemini-3.5-flash"`}},
	} {
		got := w.send(t.Context(), http.MethodGet, c.path, "")
		if got.status != http.StatusOK {
			t.Errorf("%s: %d %s", c.path, got.status, got.body)
		}
		wanted := strings.Join(c.has, " ")
		for _, name := range all {
			if strings.Contains(got.body, name) != strings.Contains(wanted, name) {
				t.Errorf("%s: lists %s: %v", c.path, name, !strings.Contains(wanted, name))
			}
		}
	}
	for _, path := range []string{"/v1/models/nobody", "/anthropic/v1/models/gpt-5.4"} {
		if got := w.send(t.Context(), http.MethodGet, path, ""); got.status != http.StatusNotFound {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	if b := w.settled(); b.calls != 0 {
		t.Errorf("a list took a lease: %+v", b)
	}
}
