package gateway

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestCleanPath(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ target, want string }{
		{"/v1/chat/completions", "/v1/chat/completions"},
		{"/v1/chat/completions?a=%2f", "/v1/chat/completions"},
		{"/gemini/v1beta/models/gemini-2.5-pro:generateContent", "/gemini/v1beta/models/gemini-2.5-pro:generateContent"},
		{"/gemini/v1beta/models/gemini-2.5-pro%3AgenerateContent", "/gemini/v1beta/models/gemini-2.5-pro:generateContent"},
		{"/tools/search/a%20b/%C3%A9", "/tools/search/a b/é"},
		{"/", "/"},
		{"/v1/models/", "/v1/models/"},
		{"/a..b/.c/d.", "/a..b/.c/d."},
		// refused
		{"/v1%2fchat/completions", ""},
		{"/v1%2Fchat/completions", ""},
		{`/v1%2fchat"`, ""},
		{"/v1/models/a%2f..%2fb", ""},
		{"/v1/%2e%2e/admin", ""},
		{"/v1/%2e/chat", ""},
		{"/v1/..", ""},
		{"/v1/../admin", ""},
		{"/./v1", ""},
		{"/v1/.", ""},
		{"//v1/chat", ""},
		{"/v1//chat", ""},
		{"/v1/chat//", ""},
		{`/v1\chat`, ""},
		{"/v1%5cchat", ""},
		{"/v1/chat%00", ""},
		{"/v1/chat%0a", ""},
		{"/v1/chat%0d%0aX:1", ""},
		{"/v1/chat%7f", ""},
		{"/v1/chat;a=b", ""},
		{"/v1/chat%3ba=b", ""},
		{"/v1/chat%3fa", ""},
		{"/v1/chat%23a", ""},
		{"/v1%252fchat", ""},
		{"/v1/%ff%fe", ""},
		{"/v1/%c0%af", ""},  // an overlong slash
		{"/v1/%c2%85x", ""}, // a C1 control
		{"/" + strings.Repeat("a", maxPath), ""},
		{"http://evil.example/v1/chat/completions", ""},
		{"*", ""},
	} {
		u, err := url.ParseRequestURI(c.target)
		if err != nil {
			t.Errorf("%q is no request target: %v", c.target, err)
			continue
		}
		path, f := cleanPath(&http.Request{Method: http.MethodPost, URL: u, RequestURI: c.target})
		if (f == nil) != (c.want != "") || path != c.want {
			t.Errorf("%q: %q, want %q", c.target, path, c.want)
		}
		if f != nil && (f.status != http.StatusBadRequest || f.retry == nil || *f.retry || f.message == "") {
			t.Errorf("%q: refused by %+v", c.target, f)
		}
	}
	connect := httptest.NewRequest(http.MethodConnect, "/v1/chat/completions", nil)
	if _, f := cleanPath(connect); f == nil {
		t.Error("CONNECT passed")
	}
	changed := httptest.NewRequest(http.MethodPost, "/v1/a", nil)
	changed.URL.RawPath = "/v1/b"
	if _, f := cleanPath(changed); f == nil {
		t.Error("a path that is two paths passed")
	}
}

// A path that passes means the same to whoever reads it, decodes it again, resolves it, or gets it written anew.
func FuzzCleanPath(f *testing.F) {
	for _, s := range []string{"/v1/chat/completions", "/a%2fb", "/a/../b", "/a%252e", "/%C3%A9:x", "/a;b", "//", "/a%5c", "/tools/x/a%20b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, target string) {
		u, err := url.ParseRequestURI(target)
		if err != nil {
			return
		}
		path, refused := cleanPath(&http.Request{Method: http.MethodPost, URL: u})
		if refused != nil {
			if path != "" {
				t.Errorf("%q: refused, and a path is given", target)
			}
			return
		}
		if !strings.HasPrefix(path, "/") || strings.ContainsAny(path, "\\;%?#\x00\r\n") || strings.Contains(path, "//") || !utf8.ValidString(path) {
			t.Errorf("%q passed as %q", target, path)
		}
		if again, err := url.PathUnescape(path); err != nil || again != path {
			t.Errorf("%q decodes twice: %q", target, again)
		}
		if resolved := (&url.URL{Path: "/"}).ResolveReference(&url.URL{Path: path}).Path; resolved != path {
			t.Errorf("%q resolves to %q", path, resolved)
		}
		written, err := url.ParseRequestURI((&url.URL{Path: path}).EscapedPath())
		if err != nil || written.Path != path {
			t.Errorf("%q is written as another path: %v", path, err)
		}
	})
}
