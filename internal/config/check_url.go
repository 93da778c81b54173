package config

import (
	"net/netip"
	"net/url"
	"regexp"
	"strings"
)

// credentialNames are query parameters under which servers take a key.
var credentialNames = regexp.MustCompile(`(?i)(^|[?&])(key|api[-_]?key|token|access[-_]token|secret)=`)

var braces = regexp.MustCompile(`\{[^{}]*\}?|\}`)

// checkBaseURL wants an address as one would give it to the SDK of that provider, and one that the gateway will connect to.
func (d *decoder) checkBaseURL(path string, p Provider) {
	u, err := url.Parse(p.BaseURL)
	switch {
	case strings.Contains(p.BaseURL, "@") || credentialNames.MatchString(p.BaseURL):
		d.hidden[d.places[path].value.Line] = true
		d.fault(path, "secret", "%s holds a user, password or key: use api_key", path)
		return
	case err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https":
		d.fault(path, "url", "%s: %q is not a URL such as https://llm.example.com/v1", path, plain(p.BaseURL))
		return
	case strings.Contains(p.BaseURL, "#"):
		d.fault(path, "url", "%s: %q has a fragment (#), which no server gets to see", path, plain(p.BaseURL))
		return
	case strings.ContainsAny(u.Host, "{}") || strings.ContainsAny(u.RawQuery, "{}"):
		d.fault(path, "url", "%s: {model} may stand in the path alone", path)
		return
	case strings.Contains(u.Path+"/", "/../") || strings.Contains(u.Path+"/", "/./"):
		d.fault(path, "url", "%s: %q has dot segments: write the path itself", path, plain(p.BaseURL))
		return
	}
	for _, b := range braces.FindAllString(u.Path, -1) {
		if b != "{model}" {
			d.suggest(path, "url", "{model}", "%s: %q is not filled in", path, plain(b))
			return
		}
	}
	switch {
	case p.Private:
	case privateHost(u.Hostname()):
		d.fault(path, "url", "%s: %s is a private address, to which the gateway connects only with allow_private: true", path, u.Hostname())
	case u.Scheme == "http":
		d.fault(path, "url", "%s is plain http: the api key and the prompts would cross the network unprotected; use https, or allow_private: true on a network of your own", path)
	}
}

// privateHost reports whether a host is, by its name alone, one that the gateway takes for a private one.
func privateHost(host string) bool {
	if loopback(host) || strings.HasSuffix(host, ".localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && (ip.IsPrivate() || ip.IsLinkLocalUnicast() || ip.IsUnspecified())
}
