package gateway

import (
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/token-budget-arbiter/tba/internal/provider"
)

// maxPath is the longest path that is looked at, bytes as sent. A path holds an endpoint and at most a model or two ids.
const maxPath = 2048

// cleanPath is the decoded path of r as dialects and routes read it, or a refusal: 400, before anything else is looked at. It has to run
// before an http.ServeMux, which would answer some of these paths with a redirect.
func cleanPath(r *http.Request) (path string, f *refusal) {
	path, fault := readPath(r)
	if fault != "" {
		return "", refuseRequest(http.StatusBadRequest, provider.BadRequest, "path", fault)
	}
	return path, nil
}

// readPath returns the decoded path of a request, or what is wrong with it. The path decides what a call may do and costs, so one
// that two servers may read differently is refused rather than cleaned: we would judge one path and the provider serve another.
func readPath(r *http.Request) (path, fault string) {
	u := r.URL
	switch {
	case r.Method == http.MethodConnect || u == nil || u.Opaque != "" || u.Host != "" || u.Scheme != "":
		return "", "the request line holds an address; only a path is served here, this is no forward proxy"
	case u.User != nil:
		return "", "the path holds a user name"
	}
	// RawPath is what was sent when that is not the standard form of Path. EscapedPath would repair it.
	raw := u.RawPath
	if raw == "" {
		raw = u.EscapedPath()
	}
	switch {
	case len(raw) > maxPath:
		return "", "the path is too long"
	case !strings.HasPrefix(raw, "/"):
		return "", "the path does not begin with a slash"
	}
	if path, fault = cleanSegments(raw); fault == "" && path != u.Path {
		return "", "the path was changed on its way"
	}
	return path, fault
}

// cleanSegments decodes a path once and refuses what could be read as another path by a server that decodes twice, resolves dots,
// joins slashes, or takes a backslash, a semicolon or a NUL for something of its own.
func cleanSegments(raw string) (path, fault string) {
	path, err := url.PathUnescape(raw)
	if err != nil {
		return "", "the path holds a bad escape"
	}
	if !utf8.ValidString(path) {
		return "", "the path is not UTF-8"
	}
	// An escape may only stand for a byte that cannot be mistaken for structure. Counting finds slashes and dots that were written
	// as escapes: decoding made them out of nothing.
	for _, c := range [...]string{"/", "."} {
		if strings.Count(path, c) != strings.Count(raw, c) {
			return "", "the path holds an encoded slash or dot"
		}
	}
	for _, c := range path {
		switch {
		case c < 0x20 || c >= 0x7f && c <= 0x9f:
			return "", "the path holds a control character"
		case c == '\\' || c == ';' || c == '%' || c == '?' || c == '#':
			return "", "the path holds a character that servers read differently"
		}
	}
	for segment := range strings.SplitSeq(path[1:], "/") {
		switch segment {
		case ".", "..":
			return "", "the path holds a dot segment"
		}
	}
	if strings.Contains(path, "//") {
		return "", "the path holds an empty segment"
	}
	return path, ""
}
