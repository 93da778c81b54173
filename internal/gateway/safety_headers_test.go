package gateway

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/token-budget-arbiter/tba/internal/provider"
)

const (
	agentKey    = "tba_canary_agent_5f3c9a"
	providerKey = "sk-canary-provider-77d1"
)

func TestHeadersUp(t *testing.T) {
	t.Parallel()
	u := newUpstreamLog(t, nil)
	s := serveThrough(t, u.upstream(t, provider.Anthropic, providerKey), 0)
	kept := http.Header{
		"Content-Type":                {"application/json"},
		"Anthropic-Version":           {"2026-10-21"},
		"Anthropic-Beta":              {"a-2026-01-01,b", "c-of-tomorrow"},
		"X-Stainless-Retry-Count":     {"1"},
		"X-Stainless-Timeout":         {"600"},
		"X-Server-Timeout":            {"30"},
		"X-Goog-Api-Client":           {"genai/1"},
		"Traceparent":                 {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
		"Tracestate":                  {"a=b"},
		"User-Agent":                  {"Anthropic/Go 2.15.0"},
		"Accept":                      {"text/event-stream"},
		"X-Unknown-Header-Of-An-Sdk":  {"1"},
		"Anthropic-Dangerous-Whatnot": {"true"},
	}
	gone := http.Header{
		"Authorization": {"Bearer " + agentKey}, "X-Goog-Api-Key": {agentKey}, "Api-Key": {agentKey}, "Proxy-Authorization": {"Basic " + agentKey},
		"X-Copy-Of-It": {"key=" + agentKey}, "Openai-Organization": {"org"}, "Openai-Project": {"proj"}, "X-Goog-User-Project": {"p"},
		"X-Tba-Agent": {"a"}, "X-Tba-Future": {"a"}, "X-Forwarded-For": {"10.0.0.1"}, "X-Forwarded-Anything": {"a"}, "Forwarded": {"for=10.0.0.1"},
		"Via": {"1.1 a"}, "X-Real-Ip": {"10.0.0.1"}, "Cf-Connecting-Ip": {"10.0.0.1"}, "Cookie": {"a=b"}, "Origin": {"https://a"}, "Referer": {"https://a/b"},
		"Sec-Fetch-Site": {"cross-site"}, "Baggage": {"tba.task=a"}, "X-Http-Method-Override": {"DELETE"}, "X-Goog-Fieldmask": {"candidates"},
		"Range": {"bytes=0-1"}, "If-None-Match": {"a"}, "Idempotency-Key": {"a"}, "X-Idempotency-Key": {"a"}, "Content-Md5": {"a"},
		"Te": {"trailers"}, "Trailer": {"X-A"}, "Keep-Alive": {"timeout=5"}, "Upgrade": {"websocket"}, "Connection": {"X-Of-This-Hop, keep-alive"},
		"X-Of-This-Hop": {"a"}, "Expect": {"100-continue"}, "X-Portkey-Api-Key": {"pk"}, "Helicone-Auth": {"Bearer h"}, "X-Litellm-Tags": {"a"},
	}
	header := kept.Clone()
	for k, v := range gone {
		header[k] = v
	}
	header.Set("Accept-Encoding", "gzip, br, zstd")
	resp, body := post(t, s.URL+"/v1/messages?beta=true&key="+agentKey+"&access_token=x", header, []byte(`{"model":"m"}`))
	calls := u.take()
	if resp.StatusCode != http.StatusOK || len(calls) != 1 {
		t.Fatalf("status %d, %d calls: %s", resp.StatusCode, len(calls), body)
	}
	got := calls[0]
	for k, v := range kept {
		if !slices.Equal(got.header[k], v) {
			t.Errorf("%s: %q, want %q", k, got.header[k], v)
		}
	}
	for k := range gone {
		if k != "Connection" && got.header[k] != nil {
			t.Errorf("%s went up: %q", k, got.header[k])
		}
	}
	if got.header.Get("X-Api-Key") != providerKey || got.header.Get("Accept-Encoding") != "identity" || got.header.Get("Content-Length") != "13" || got.chunked {
		t.Errorf("key, coding or length is wrong: %v", got.header)
	}
	if got.method != http.MethodPost || got.uri != "/v1/messages?beta=true" || got.body != `{"model":"m"}` {
		t.Errorf("%s %s %s", got.method, got.uri, got.body)
	}
}

// Every slot is emptied whichever one is used, and a provider without a key is sent none.
func TestCredentialSlots(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{provider.OpenAI, provider.Anthropic, provider.Mistral} {
		for _, key := range []string{providerKey, ""} {
			u := newUpstreamLog(t, nil)
			path := "/v1/chat/completions"
			if kind == provider.Anthropic {
				path = "/v1/messages"
			}
			s := serveThrough(t, u.upstream(t, kind, key), 0)
			for _, slot := range []string{"Authorization", "X-Api-Key", "X-Goog-Api-Key", "Api-Key", "?key="} {
				header, query := http.Header{}, ""
				switch slot {
				case "Authorization":
					header.Set(slot, "bearer  "+agentKey)
				case "?key=":
					query = "?ke%79=" + agentKey
				default:
					header[slot] = []string{agentKey, "another-" + agentKey}
				}
				resp, body := post(t, s.URL+path+query, header, []byte(`{}`))
				calls := u.take()
				if resp.StatusCode != http.StatusOK || len(calls) != 1 {
					t.Fatalf("%s %s: status %d, %d calls: %s", kind, slot, resp.StatusCode, len(calls), body)
				}
				got, found := calls[0], 0
				for name, values := range got.header {
					for _, v := range values {
						if strings.Contains(v, agentKey) {
							t.Errorf("%s %s: the agent's key went up in %s", kind, slot, name)
						}
						if strings.Contains(v, providerKey) {
							found++
						}
					}
				}
				if strings.Contains(got.uri, agentKey) {
					t.Errorf("%s %s: the agent's key went up in %s", kind, slot, got.uri)
				}
				if want := min(len(key), 1); found != want {
					t.Errorf("%s %s: the provider's key stands in %d places, want %d", kind, slot, found, want)
				}
				if key == "" && (got.header.Get("Authorization") != "" || got.header.Get("X-Api-Key") != "") {
					t.Errorf("%s %s: a slot is filled without a key: %v", kind, slot, got.header)
				}
			}
		}
	}
}

// A slot is emptied whatever stands in it: an agent may still send a key of its own beside ours, and a short one is not looked for elsewhere.
func TestSlotsHoldNoOtherSecrets(t *testing.T) {
	t.Parallel()
	for _, slot := range []string{"Authorization", "X-Api-Key", "X-Goog-Api-Key", "Api-Key", "X-Auth-Token", "Proxy-Authorization", "Cookie"} {
		for _, credential := range []string{agentKey, "short", ""} {
			out := upHeaders(http.Header{slot: {"sk-of-another-account"}, strings.ToLower(slot): {"short"}, "X-Kept": {"a"}}, credential)
			if out[slot] != nil || out[strings.ToLower(slot)] != nil || out.Get("X-Kept") != "a" {
				t.Errorf("%s beside %q: %v", slot, credential, out)
			}
		}
	}
}

func TestQueryUp(t *testing.T) {
	t.Parallel()
	gemini, _ := provider.Lookup(provider.Gemini)
	tool, _ := provider.Lookup(provider.HTTP)
	for _, c := range []struct {
		d        *provider.Dialect
		in, want string
	}{
		{gemini, "", ""},
		{gemini, "alt=sse&key=a", "alt=sse"},
		{gemini, "KEY=a&%6bey=b&alt=json", "alt=json"},
		{gemini, "alt=proto&alt=media", ""},
		{gemini, "fields=candidates&%24fields=a&$httpMethod=DELETE&$httpHeaders=Authorization:a&callback=f&x=1", "x=1"},
		{gemini, "access_token=a&oauth_token=b&a=b", "a=b"},
		{gemini, "a=%zz&b=1;c=2&%zz=1&d", "d"},
		{gemini, "&&a=1&&", "a=1"},
		{tool, "q=a+b%20c&fields=x&key=k", "q=a+b%20c&fields=x"},
		{tool, "q=" + agentKey + "&p=1", "p=1"},
	} {
		if got := upQuery(c.d, c.in, agentKey); got != c.want {
			t.Errorf("%q: %q, want %q", c.in, got, c.want)
		}
	}
}

func TestHeadersDown(t *testing.T) {
	t.Parallel()
	kept := http.Header{
		"Content-Type": {"application/json"}, "X-Request-Id": {"req_1"}, "Request-Id": {"req_2"}, "Retry-After": {"3"}, "Retry-After-Ms": {"2500"},
		"X-Ratelimit-Remaining-Tokens": {"10"}, "Anthropic-Ratelimit-Tokens-Remaining": {"9"}, "Openai-Processing-Ms": {"12"}, "Cf-Ray": {"a"},
		"X-Should-Retry": {"true"}, "X-Accel-Buffering": {"no"}, "Cache-Control": {"no-store"},
	}
	gone := http.Header{
		"Set-Cookie": {"a=b", "c=d"}, "Alt-Svc": {`h3=":443"`}, "Strict-Transport-Security": {"max-age=1"}, "X-Tba-Origin": {"arbiter"}, "X-Tba-Lease": {"l"},
		"Access-Control-Allow-Origin": {"*"}, "X-Accel-Redirect": {"/secret"}, "X-Sendfile": {"/etc/passwd"}, "Location": {"https://evil"},
		"Refresh": {"0; url=https://evil"}, "Clear-Site-Data": {"*"}, "Keep-Alive": {"timeout=5"}, "Connection": {"X-Of-This-Hop"}, "X-Of-This-Hop": {"a"},
		"Proxy-Authenticate": {"Basic"}, "Www-Authenticate": {"Basic"}, "Nel": {"{}"}, "Report-To": {"{}"}, "Upgrade": {"h2c"},
	}
	u := newUpstreamLog(t, func(w http.ResponseWriter, r *http.Request) {
		for _, h := range []http.Header{kept, gone} {
			for k, v := range h {
				w.Header()[k] = v
			}
		}
		_, _ = io.WriteString(w, "{}")
	})
	s := serveThrough(t, u.upstream(t, provider.OpenAI, providerKey), 0)
	resp, _ := post(t, s.URL+"/v1/chat/completions", nil, []byte(`{}`))
	for k, v := range kept {
		if !slices.Equal(resp.Header[k], v) {
			t.Errorf("%s: %q, want %q", k, resp.Header[k], v)
		}
	}
	for k := range gone {
		if k != "Connection" && resp.Header[k] != nil {
			t.Errorf("%s came down: %q", k, resp.Header[k])
		}
	}
	odd := http.Header{}
	for _, name := range []string{"x-tba-lease", "set-cookie", "X-TBA-Origin"} {
		odd[name] = []string{"a"}
	}
	if incoming(odd); len(odd) != 0 {
		t.Errorf("names that are not canonical came down: %v", odd)
	}
}

// Interim answers and trailers are headers too, and would pass beside the rules.
func TestNoHeadersBesideTheHeaders(t *testing.T) {
	t.Parallel()
	u := newUpstreamLog(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Tba-Lease", "forged")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("X-Tba-Lease")
		w.Header().Set("Trailer", "X-Tba-Trailer")
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: 1\n\n")
		w.Header().Set("X-Tba-Trailer", "forged")
		w.Header().Set(http.TrailerPrefix+"X-Tba-Unannounced", "forged")
	})
	s := serveThrough(t, u.upstream(t, provider.OpenAI, providerKey), 0)
	interim := 0
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(int, textproto.MIMEHeader) error {
		interim++
		return nil
	}})
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/v1/chat/completions", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := agent.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || string(body) != "data: 1\n\n" || resp.StatusCode != http.StatusOK {
		t.Errorf("%d %q %v", resp.StatusCode, body, err)
	}
	if interim != 0 || len(resp.Trailer) != 0 || resp.Header.Get("X-Tba-Lease") != "" {
		t.Errorf("%d interim answers, trailers %v, headers %v", interim, resp.Trailer, resp.Header)
	}
}

// A status that would make the agent's client switch, wait or follow, or the server panic, becomes an error answer.
func TestStatusThatEndsNoCall(t *testing.T) {
	t.Parallel()
	for _, head := range []string{
		"HTTP/1.1 301 Moved\r\nLocation: http://169.254.169.254/latest/meta-data/\r\n",
		"HTTP/1.1 302 Found\r\nLocation: /v1/chat/completions\r\n",
		"HTTP/1.1 307 Temporary\r\nLocation: https://evil.example/v1\r\n",
		"HTTP/1.1 308 Permanent\r\nLocation: https://evil.example/v1\r\nRefresh: 0;url=https://evil.example\r\n",
		"HTTP/1.1 304 Not Modified\r\n",
		"HTTP/1.1 300 Choices\r\n",
		"HTTP/1.1 399 What\r\n",
		"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n",
		"HTTP/1.1 099 What\r\n",
		"HTTP/1.1 000 What\r\n",
	} {
		t.Run(head[9:12], func(t *testing.T) {
			t.Parallel()
			address := rawServer(t, head+"Content-Length: 2\r\nSet-Cookie: a=b\r\n\r\n{}")
			d, _ := provider.Lookup(provider.OpenAI)
			base, _ := url.Parse("http://" + address)
			s := serveThrough(t, &Upstream{Name: "a", Dialect: d, BaseURL: base, AllowPrivate: true}, 0)
			resp, body := post(t, s.URL+"/v1/chat/completions", nil, []byte("{}"))
			if resp.StatusCode != http.StatusBadGateway || resp.Header.Get("Content-Type") != "application/json" {
				t.Errorf("%d %v", resp.StatusCode, resp.Header)
			}
			for _, name := range []string{"Location", "Refresh", "Set-Cookie", "Upgrade"} {
				if resp.Header.Get(name) != "" {
					t.Errorf("%s came down", name)
				}
			}
			if strings.Contains(body, "evil") || strings.Contains(body, "169.254") || !strings.Contains(body, `"error"`) {
				t.Errorf("body %s", body)
			}
		})
	}
}

// rawServer answers each connection's first request with answer, byte for byte, and closes it.
func rawServer(t testing.TB, answer string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				r, err := http.ReadRequest(bufio.NewReader(c))
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, r.Body)
				_, _ = io.WriteString(c, answer)
			}()
		}
	}()
	return l.Addr().String()
}

// Whatever an agent sends: no credential, no header of this hop and none of ours goes up, and what goes is valid.
func FuzzHeadersUp(f *testing.F) {
	f.Add("Authorization", "Bearer "+agentKey, "X-A", "b", "key="+agentKey)
	f.Add("x-api-key", agentKey, "connection", "x-b, X-Tba-Agent", "")
	f.Add("X-Tba-Agent", "a", "cookie", "a=b", "a=1;key="+agentKey)
	f.Add("X-B", "prefix"+agentKey, "Authorization", "bearer "+agentKey, "%6b%65y="+agentKey)
	f.Fuzz(func(t *testing.T, n1, v1, n2, v2, query string) {
		in := http.Header{}
		in.Add(n1, v1)
		in.Add(n2, v2)
		before := in.Clone()
		credential := provider.Credential(in, query)
		out := upHeaders(in, credential)
		for name, values := range out {
			if listed(name, hopByHop, nil) || name != "User-Agent" && name != "Accept-Encoding" && listed(name, notUp, notUpPrefixes) {
				t.Errorf("%s went up", name)
			}
			if name != textproto.CanonicalMIMEHeaderKey(name) {
				t.Errorf("%q is not canonical", name)
			}
			for _, v := range values {
				if len(credential) >= minEcho && strings.Contains(v, credential) {
					t.Errorf("the credential went up in %s", name)
				}
			}
		}
		for _, v := range strings.Split(strings.Join(in["Connection"], ","), ",") {
			if name := textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(v)); name != "" && name != "User-Agent" && name != "Accept-Encoding" && out[name] != nil {
				t.Errorf("%s is of this hop and went up", name)
			}
		}
		for name := range before {
			if !slices.Equal(before[name], in[name]) {
				t.Errorf("the agent's %s was changed", name)
			}
		}
		d, _ := provider.Lookup(provider.Gemini)
		up, err := url.ParseQuery(upQuery(d, query, credential))
		if err != nil {
			t.Errorf("query %q: %v", query, err)
		}
		for name, values := range up {
			holds := func(v string) bool { return len(credential) >= minEcho && strings.Contains(v, credential) }
			if strings.EqualFold(name, "key") || slices.ContainsFunc(values, holds) {
				t.Errorf("the credential went up in the query as %s", name)
			}
		}
	})
}
