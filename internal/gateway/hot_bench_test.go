package gateway

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"testing"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/identity"
	"github.com/token-budget-arbiter/tba/internal/provider"
)

// hotRequest is an agent's call as the Python SDK of OpenAI sends it.
func hotRequest() *http.Request {
	r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1/v1/chat/completions", nil)
	for name, value := range map[string]string{
		"Accept": "application/json", "Accept-Encoding": "gzip, deflate", "Authorization": "Bearer sk-agent-0123456789", "Connection": "keep-alive",
		"Content-Length": "1024", "Content-Type": "application/json", "User-Agent": "OpenAI/Python 2.8.0", "X-Stainless-Arch": "x64",
		"X-Stainless-Async": "false", "X-Stainless-Lang": "python", "X-Stainless-Os": "Linux", "X-Stainless-Package-Version": "2.8.0",
		"X-Stainless-Retry-Count": "0", "X-Stainless-Read-Timeout": "600", "X-Stainless-Runtime": "CPython", "X-Stainless-Runtime-Version": "3.13.1",
		"X-Tba-Agent": "crawler-7", "X-Tba-Task": "t-1",
	} {
		r.Header.Set(name, value)
	}
	return r
}

// BenchmarkOutgoing makes the request that goes up.
func BenchmarkOutgoing(b *testing.B) {
	d, _ := provider.Lookup(provider.OpenAI)
	e, _, _ := d.Endpoint(http.MethodPost, "/v1/chat/completions")
	target, _ := d.Target(e, "/v1/chat/completions")
	base, _ := url.Parse("http://127.0.0.1:8080/v1")
	in, body, ctx := hotRequest(), make([]byte, 1024), context.Background()
	for name, at := range map[string]*url.URL{"base_url": base, "own": nil} {
		b.Run(name, func(b *testing.B) {
			up := &Upstream{Name: "openai", Dialect: d, BaseURL: at, Key: func() (string, error) { return "sk-provider-0123456789", nil }}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := outgoing(ctx, in, up, e, target, "gpt-5.4", body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkIdentify reads who calls, with and without headers of ours, and authenticates.
func BenchmarkIdentify(b *testing.B) {
	i := &identifier{policy: func(string) *arbiter.Policy { return nil }, maxWait: 30 * time.Second}
	bare := httptest.NewRequest(http.MethodPost, "http://127.0.0.1/v1/chat/completions", nil)
	bare.Header.Set("Authorization", "Bearer sk-agent")
	bare.Header.Set("Content-Type", "application/json")
	for name, r := range map[string]*http.Request{"bare": bare, "sdk": hotRequest()} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c, key, f := i.caller(r)
				if f != nil {
					b.Fatal(f.message)
				}
				if _, f := i.identify(r, c, key, nil); f != nil {
					b.Fatal(f.message)
				}
				patienceOf(r.Header)
			}
		})
	}
}

// BenchmarkSucceed cleans the headers of an answer and says in them what the arbiter did, with a budget and two ceilings on the way.
func BenchmarkSucceed(b *testing.B) {
	f := newFar(b, RemoteOptions{})
	a := &Ask{Caller: identity.Local, Pool: "default", Agent: "a", Task: "t", Model: "slow-1", Priority: arbiter.ClassPriority, Input: 1_000, Output: 2_000, Deadline: time.Minute}
	g, err := f.local.Acquire(b.Context(), a)
	if err != nil || g.Status != arbiter.Granted {
		b.Fatalf("%+v, %v", g, err)
	}
	for f.engine.Outlook("default") == nil {
		runtime.Gosched()
	}
	d, _ := provider.Lookup(provider.OpenAI)
	now := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		h := http.Header{"Content-Type": {"application/json"}, "Date": {"Sat, 25 Jul 2026 11:59:50 GMT"}, "Content-Length": {"400"}}
		incoming(h)
		succeed(h, &g, d, now)
	}
}
