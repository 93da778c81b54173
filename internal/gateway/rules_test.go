package gateway

import (
	"testing"

	"github.com/token-budget-arbiter/tba/internal/provider"
)

// TestRules asserts that the names with a verdict of their own have the one that the lists give.
func TestRules(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rules    map[string]bool
		drop     map[string]struct{}
		prefixes []string
	}{{goesUp, notUp, notUpPrefixes}, {comesDown, notDown, notDownPrefixes}} {
		for name, ok := range c.rules {
			if drop := listed(name, hopByHop, nil) || listed(name, c.drop, c.prefixes); ok == drop {
				t.Errorf("%s passes: %v, by the lists %v", name, ok, !drop)
			}
		}
		for _, name := range []string{"x-tba-agent", "X-TBA-Lease", "connection", "cOOkie", "X-New-Beta", "content-type"} {
			canonical, ok := passes(name, c.rules, c.prefixes)
			if drop := listed(canonical, hopByHop, nil) || listed(canonical, c.drop, c.prefixes); ok == drop {
				t.Errorf("%s (%s) passes: %v, by the lists %v", name, canonical, ok, !drop)
			}
		}
	}
}

// TestDestination asserts that a remembered destination is that of the call that asks.
func TestDestination(t *testing.T) {
	t.Parallel()
	d, _ := provider.Lookup(provider.Gemini)
	e, _, _ := d.Endpoint("POST", "/v1beta/models/a:generateContent")
	up := &Upstream{Name: "g", Dialect: d}
	for _, c := range [][3]string{
		{"/v1beta/models/a:generateContent", "a", "https://generativelanguage.googleapis.com/v1beta/models/a:generateContent"},
		{"/v1beta/models/a:generateContent", "a", "https://generativelanguage.googleapis.com/v1beta/models/a:generateContent"},
		{"/v1beta/models/a:generateContent", "b", "https://generativelanguage.googleapis.com/v1beta/models/b:generateContent"},
		{"/v1/models/a:generateContent", "b", "https://generativelanguage.googleapis.com/v1/models/b:generateContent"},
	} {
		target, _ := d.Target(e, c[0])
		in := request()
		out, err := outgoing(t.Context(), in, up, e, target, c[1], []byte("{}"))
		if err != nil || out.URL.String() != c[2] {
			t.Errorf("%v: %v, %v", c, out.URL, err)
		}
		out.URL.Path, out.URL.RawPath = "/elsewhere", "" // nothing of it is shared
		in.URL.RawQuery = "a=b"
		if out, err = outgoing(t.Context(), in, up, e, target, c[1], nil); err != nil || out.URL.String() != c[2]+"?a=b" || out.ContentLength != 0 {
			t.Errorf("%v with a query: %v, %v", c, out.URL, err)
		}
	}
}
