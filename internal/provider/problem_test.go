package provider

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"
)

func TestErrorBody(t *testing.T) {
	t.Parallel()
	detail := []byte(`{"reason":"tpm","unit":"tokens","limit":1000}`)
	for _, c := range []struct {
		dialect string
		p       Problem
		want    string
	}{
		{OpenAI, Problem{Status: 429, Kind: RateLimited, Message: "later", Detail: detail},
			`{"error":{"code":"rate_limit_exceeded","message":"later","type":"tokens","param":null,"tba":{"reason":"tpm","unit":"tokens","limit":1000}}}`},
		{OpenAI, Problem{Status: 429, Kind: RateLimited, Message: "later"},
			`{"error":{"code":"rate_limit_exceeded","message":"later","type":"requests","param":null}}`},
		{OpenAI, Problem{Status: 429, Kind: QuotaExhausted, Message: "gone"},
			`{"error":{"code":"insufficient_quota","message":"gone","type":"insufficient_quota","param":null}}`},
		{OpenAI, Problem{Status: 400, Kind: BadRequest, Message: "no \"model\"\n"},
			`{"error":{"code":null,"message":"no \"model\"\n","type":"invalid_request_error","param":null}}`},
		{Anthropic, Problem{Status: 429, Kind: RateLimited, Message: "later", RequestID: "req_1", Detail: detail},
			`{"type":"error","error":{"message":"later","type":"rate_limit_error","tba":{"reason":"tpm","unit":"tokens","limit":1000}},"request_id":"req_1"}`},
		{Anthropic, Problem{Status: 429, Kind: QuotaExhausted, Message: "gone"},
			`{"type":"error","error":{"message":"gone","type":"rate_limit_error","details":{"error_code":"enforced_spend_limit_reached"}}}`},
		{Anthropic, Problem{Status: 402, Kind: QuotaExhausted, Message: "gone"}, `{"type":"error","error":{"message":"gone","type":"billing_error"}}`},
		{Gemini, Problem{Status: 429, Kind: RateLimited, Message: "later", RetryAfter: 36500 * time.Millisecond, RequestID: "r", Detail: detail},
			`{"error":{"code":429,"message":"later","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","domain":"tba","reason":"RATE_LIMIT_EXCEEDED"},{"@type":"type.googleapis.com/google.rpc.RequestInfo","requestId":"r"},{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"36.5s"}],"tba":{"reason":"tpm","unit":"tokens","limit":1000}}}`},
		{Mistral, Problem{Status: 402, Kind: QuotaExhausted, Message: "gone", Detail: detail},
			`{"object":"error","code":"insufficient_quota","message":"gone","type":"insufficient_quota","param":null,"raw_status_code":402,"tba":{"reason":"tpm","unit":"tokens","limit":1000}}`},
		{HTTP, Problem{Status: 429, Kind: RateLimited, Message: "later", Detail: detail},
			`{"type":"about:blank","title":"Too Many Requests","status":429,"detail":"later","tba":{"reason":"tpm","unit":"tokens","limit":1000}}`},
		{OpenAI, Problem{Status: 429, Kind: QuotaExhausted, Message: "gone", Detail: []byte(`{"half`)},
			`{"error":{"code":"insufficient_quota","message":"gone","type":"insufficient_quota","param":null}}`},
		{OpenAI, Problem{Status: 400, Kind: 99, Message: "x", Detail: []byte(`[{}]`)}, `{"error":{"code":null,"message":"x","type":"invalid_request_error","param":null}}`},
	} {
		if got := string(dialect(t, c.dialect).ErrorBody(c.p)); got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.dialect, got, c.want)
		}
	}
}

// What we refuse is judged, by a gateway behind ours, as what it is.
func TestErrorBodyIsClassifiedAsMeant(t *testing.T) {
	t.Parallel()
	status := map[string]int{OpenAI: 429, Anthropic: 429, Gemini: 403, Mistral: 402}
	for _, name := range Names() {
		d := dialect(t, name)
		for _, c := range []struct {
			kind   Kind
			status int
			want   Class
		}{
			{RateLimited, 429, Throttle}, {QuotaExhausted, status[name], Exhausted}, {TooLarge, 400, Caller}, {Denied, 403, Auth}, {Unauthenticated, 401, Auth},
			{Unavailable, 503, Overload}, {NotFound, 404, Caller}, {BadRequest, 400, Caller}, {Unsupported, 415, Caller}, {TooLong, 413, Caller},
		} {
			p := Problem{Status: c.status, Kind: c.kind, Message: "m", RetryAfter: 7 * time.Second}
			v := d.Classify(c.status, nil, d.ErrorBody(p), noon)
			if v.Class != c.want {
				t.Errorf("%s: %s is judged %s by %s", name, c.kind, v.Class, v.Rule)
			}
			if v.Message != "m" {
				t.Errorf("%s: %s lost its message: %q", name, c.kind, v.Message)
			}
			if name == Gemini && c.kind == RateLimited && v.Wait != 7*time.Second {
				t.Errorf("the wait is %v", v.Wait)
			}
		}
	}
}

// An error that ends a stream is seen as one by our own meter and by what the SDKs look for.
func TestStreamError(t *testing.T) {
	t.Parallel()
	p := Problem{Status: 503, Kind: Unavailable, Message: "the lease was\nrevoked", RequestID: "req_1", Detail: []byte(`{"reason":"revoked"}`)}
	for _, r := range recordedStreams() {
		if r.json || r.want.Fault != nil {
			continue
		}
		b := r.bytes(t)
		half := b[:len(b)/2]
		if i := strings.LastIndex(string(half), "\n\n"); i >= 0 {
			half = half[:i+2]
		} else if i := strings.LastIndex(string(half), "\r\n\r\n"); i >= 0 {
			half = half[:i+4]
		} else {
			continue
		}
		m := r.meter(t, false)
		end := dialect(t, r.dialect).StreamError(p)
		feed(m, append(half[:len(half):len(half)], end...))
		f := m.Result().Fault
		if f == nil || f.First || m.Result().Complete {
			t.Errorf("%s: %s gave %+v", r.file, end, f)
			continue
		}
		if v := dialect(t, r.dialect).Classify(f.Status, http.Header{}, f.Body, noon); v.Class != Overload || v.Message != "the lease was revoked" {
			t.Errorf("%s: %d %s is judged %+v", r.file, f.Status, f.Body, v)
		}
	}
	for name, want := range map[string]string{OpenAI: "data: {\"error\":{", Anthropic: "event: error\ndata: {\"type\":\"error\",\"error\":{", Gemini: "{\"error\":{", Mistral: "data: {\"object\":\"error\","} {
		got := string(dialect(t, name).StreamError(p))
		if !strings.HasPrefix(got, want) || !strings.HasSuffix(got, "}\n\n") || strings.Count(got, "\n") > 3 {
			t.Errorf("%s: %q", name, got)
		}
	}
	if b := dialect(t, HTTP).StreamError(p); b != nil {
		t.Errorf("a tool's stream ends with %q", b)
	}
}

func TestErrorBodyAlwaysParses(t *testing.T) {
	t.Parallel()
	for _, name := range append(Names(), HTTP) {
		for k := Kind(0); k <= kinds; k++ {
			for _, message := range []string{"", "<b>&\x00\xff\u2028", strings.Repeat("é", 5000)} {
				b := dialect(t, name).ErrorBody(Problem{Status: 500, Kind: k, Message: message, RetryAfter: time.Nanosecond, Detail: []byte(` {"a":[1]} `)})
				if !json.Valid(b) || !gjson.GetBytes(b, "error.tba.a").Exists() && !gjson.GetBytes(b, "tba.a").Exists() {
					t.Errorf("%s %s: %s", name, k, b)
				}
			}
		}
	}
}
