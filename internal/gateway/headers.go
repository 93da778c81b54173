package gateway

import (
	"net/http"
	"net/textproto"
	"net/url"
	"strings"

	"github.com/token-budget-arbiter/tba/internal/provider"
)

// What passes and what does not. A header nobody listed passes: new beta headers and new SDKs work without a new release.

// hopByHop concern one connection, in either direction. Headers that Connection names are added to them.
var hopByHop = set(
	"Connection", "Proxy-Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
	"Proxy-Authenticate", "Proxy-Authorization", "Proxy-Authentication-Info", "Http2-Settings",
)

// notUp are request headers that a provider never sees.
var notUp = set(
	// The credential slots, and selectors that only mean something together with the agent's own credential: with ours they
	// would choose which of our organisations or projects pays.
	"Authorization", "X-Api-Key", "X-Goog-Api-Key", "Api-Key", "X-Auth-Token", "X-Amz-Security-Token",
	"X-Goog-Iam-Authorization-Token", "X-Goog-Iam-Authority-Selector", "X-Goog-User-Project",
	"Openai-Organization", "Openai-Project",
	// Who the agent is and where it came from is ours to know. Baggage carries names of tasks and users across; traceparent
	// and tracestate carry numbers, and pass.
	"Cookie", "Cookie2", "Origin", "Referer", "From", "Baggage", "Forwarded", "Via", "X-Real-Ip", "X-Client-Ip",
	"X-Cluster-Client-Ip", "X-Original-Forwarded-For", "True-Client-Ip", "Client-Ip", "X-Proxyuser-Ip",
	"Host", "X-Host", "X-Original-Host", "X-Original-Url", "X-Rewrite-Url", "X-Original-Method",
	// What turns the call into another call than the one that was leased, or hides its usage. Google's servers obey the first four.
	"X-Http-Method-Override", "X-Http-Method", "X-Method-Override", "X-Goog-Fieldmask",
	"Range", "If-Range", "If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since",
	// One provider key serves many agents: at a provider that remembers these, one agent's key could fetch another's answer. And
	// net/http takes them as leave to send a POST again on its own.
	"Idempotency-Key", "X-Idempotency-Key",
	// Written anew for the body that we send.
	"Content-Length", "Content-Encoding", "Content-Md5", "Digest", "Content-Digest", "Repr-Digest", "Signature", "Signature-Input",
	"Accept-Encoding", "Expect", "Max-Forwards", "Early-Data",
)

// notUpPrefixes are the families among them. The last three are other gateways' headers, read for identity.compat; some
// carry keys.
var notUpPrefixes = []string{
	"X-Tba-", "X-Forwarded-", "Sec-", "Access-Control-Request-", "Cf-", "Fastly-", "X-Goog-Authenticated-User-",
	"Helicone-", "X-Portkey-", "X-Litellm-",
}

// notDown are answer headers that an agent never sees: they would set state in it, send it elsewhere, or steer a proxy
// in front of us. Cross-origin leave is not the provider's to give: with it a web page could read what it made a
// browser ask of a gateway on this machine.
var notDown = set(
	"Set-Cookie", "Set-Cookie2", "Clear-Site-Data", "Alt-Svc", "Alt-Used", "Strict-Transport-Security", "Public-Key-Pins",
	"Public-Key-Pins-Report-Only", "Expect-Ct", "Nel", "Report-To", "Reporting-Endpoints", "Server-Timing",
	"Content-Security-Policy", "Content-Security-Policy-Report-Only", "Service-Worker-Allowed", "Sourcemap", "X-Sourcemap",
	"Location", "Content-Location", "Refresh", "Link", "Www-Authenticate", "Authentication-Info",
	"X-Accel-Redirect", "X-Accel-Expires", "X-Accel-Limit-Rate", "X-Accel-Charset", "X-Sendfile", "X-Lighttpd-Send-File",
)

var notDownPrefixes = []string{"X-Tba-", "Access-Control-"}

// goesUp and comesDown are all these rules in one, and the names of which most calls consist: a name that is there needs no look at the lists of
// prefixes and is canonical. The value says whether it passes.
var (
	goesUp = verdicts(notUp, "Accept", "Content-Type", "User-Agent", "Anthropic-Version", "Anthropic-Beta", "X-App", "X-Request-Id",
		"X-Goog-Api-Client", "Traceparent", "Tracestate", "X-Stainless-Lang", "X-Stainless-Package-Version", "X-Stainless-Os",
		"X-Stainless-Arch", "X-Stainless-Runtime", "X-Stainless-Runtime-Version", "X-Stainless-Retry-Count", "X-Stainless-Timeout",
		"X-Stainless-Read-Timeout", "X-Stainless-Async", "X-Stainless-Helper-Method", "X-Stainless-Raw-Response")
	comesDown = verdicts(notDown, "Content-Type", "Content-Length", "Date", "Server", "Vary", "Cache-Control", "X-Request-Id", "Request-Id", "Cf-Ray",
		"Cf-Cache-Status", "X-Content-Type-Options", "Openai-Organization", "Openai-Processing-Ms", "Openai-Version", "Openai-Project",
		"X-Ratelimit-Limit-Requests", "X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests",
		"X-Ratelimit-Limit-Tokens", "X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Tokens")
)

func verdicts(drop map[string]struct{}, pass ...string) map[string]bool {
	m := make(map[string]bool, len(hopByHop)+len(drop)+len(pass))
	for name := range set(pass...) {
		m[name] = true
	}
	for _, names := range [...]map[string]struct{}{hopByHop, drop} {
		for name := range names {
			m[name] = false
		}
	}
	return m
}

// passes judges one name by the rules. canonical is the name as the rules have it.
func passes(name string, rules map[string]bool, prefixes []string) (canonical string, ok bool) {
	if ok, known := rules[name]; known {
		return name, ok
	}
	canonical = textproto.CanonicalMIMEHeaderKey(name)
	if ok, known := rules[canonical]; known {
		return canonical, ok
	}
	return canonical, !listed(canonical, nil, prefixes)
}

func listed(name string, names map[string]struct{}, prefixes []string) bool {
	if _, ok := names[name]; ok {
		return true
	}
	for _, p := range prefixes {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}

func set(names ...string) map[string]struct{} {
	m := make(map[string]struct{}, len(names))
	for _, n := range names {
		m[textproto.CanonicalMIMEHeaderKey(n)] = struct{}{}
	}
	return m
}

// named are the headers that Connection declares to be of this connection only. It is nil when there are none besides the listed.
func named(h http.Header) map[string]struct{} {
	var names map[string]struct{}
	for _, v := range h["Connection"] {
		for name := range strings.SplitSeq(v, ",") {
			name = textproto.CanonicalMIMEHeaderKey(textproto.TrimString(name))
			if _, ok := hopByHop[name]; ok || name == "" || name == "Close" {
				continue
			}
			if names == nil {
				names = map[string]struct{}{}
			}
			names[name] = struct{}{}
		}
	}
	return names
}

// minEcho is the length from which a credential is recognised wherever it stands. Shorter ones ("test", "none") would take
// ordinary values with them; they are secret to nobody.
const minEcho = 8

// Values that all calls share: not to be written to.
var (
	identityCoding = []string{"identity"}
	noAgent        = []string{""}
)

// upHeaders are the headers of the call for the provider. The value slices are those of in: not to be appended to. Besides what
// the tables name, any header is dropped that repeats the agent's credential: some SDKs and proxies send it twice.
func upHeaders(in http.Header, credential string) http.Header {
	conn := named(in)
	out := make(http.Header, len(in)+4)
next:
	for name, values := range in {
		name, ok := passes(name, goesUp, notUpPrefixes)
		if _, here := conn[name]; here || !ok {
			continue
		}
		if len(credential) >= minEcho {
			for _, v := range values {
				if strings.Contains(v, credential) {
					continue next
				}
			}
		}
		out[name] = values[:len(values):len(values)]
	}
	// Without the header any coding would do; and the meter reads plain bytes.
	out["Accept-Encoding"] = identityCoding
	if _, ok := out["User-Agent"]; !ok {
		out["User-Agent"] = noAgent // else net/http names itself, and the provider would count us as one more SDK
	}
	return out
}

// upQuery is the query that goes to the provider: without credentials and without what would change the call or hide its usage.
// Google's servers read method, headers, credential and the selection of answer fields from the query; a parameter with $ is
// theirs. Anything else passes as it was written.
func upQuery(d *provider.Dialect, rawQuery, credential string) string {
	if rawQuery == "" {
		return ""
	}
	// A compatible endpoint of Google's may be configured as OpenAI's, and no model's API needs these; a tool may.
	strict := d == nil || d.Name() != provider.HTTP
	kept := make([]string, 0, 4)
	for pair := range strings.SplitSeq(rawQuery, "&") {
		name, value, _ := strings.Cut(pair, "=")
		key, err := url.QueryUnescape(name)
		if err != nil || pair == "" || strings.ContainsAny(pair, ";") {
			continue // what two readers may read differently goes to none
		}
		plain, err := url.QueryUnescape(value)
		if err != nil {
			continue
		}
		switch key = strings.ToLower(key); key {
		case "key", "api_key", "api-key", "apikey", "access_token", "oauth_token", "bearer_token":
			continue
		}
		if len(credential) >= minEcho && strings.Contains(plain, credential) {
			continue
		}
		if strict {
			switch {
			case key == "alt" && plain == "sse", key == "alt" && plain == "json":
			case key == "alt", key == "fields", key == "callback", key == "quotauser", key == "userip", key == "upload_protocol", key == "uploadtype",
				strings.HasPrefix(key, "$"):
				continue
			}
		}
		kept = append(kept, pair)
	}
	return strings.Join(kept, "&")
}

// incoming cleans the headers of an upstream's answer for the agent, in place. Request ids, retry-after and the provider's
// own limit headers stay. Its x-tba-* go: those words are ours alone.
func incoming(h http.Header) {
	conn := named(h)
	for name := range h {
		canonical, ok := passes(name, comesDown, notDownPrefixes)
		if _, here := conn[canonical]; here || !ok {
			delete(h, name)
		}
	}
}
