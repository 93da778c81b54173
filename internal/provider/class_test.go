package provider

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
)

func TestClassify(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 29, 18, 0, 0, 0, time.UTC) // 10:00 in Los Angeles
	retry := func(v string) http.Header { return http.Header{"Retry-After": {v}} }
	quota := func(parts ...string) string {
		return `{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"You exceeded your current quota, please check your plan and billing details.","details":[` + strings.Join(parts, ",") + `]}}`
	}
	violations := func(ids ...string) string {
		return `{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaId":"` + strings.Join(ids, `"},{"quotaId":"`) + `"}]}`
	}
	retryInfo := func(d string) string {
		return `{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"` + d + `"}`
	}
	const perDay, perMinute = "GenerateRequestsPerDayPerProjectPerModel-FreeTier", "GenerateRequestsPerMinutePerProjectPerModel"
	const tokensPerMinute = "GenerateContentInputTokensPerModelPerMinute"

	for _, c := range []struct {
		name, dialect string
		status        int
		h             http.Header
		body          string
		class         Class
		dim           arbiter.Dim
		wait          time.Duration
	}{
		{"no money left", OpenAI, 429, nil, `{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`, Exhausted, 0, 0},
		{"no money left by type", OpenAI, 429, nil, `{"error":{"type":"insufficient_quota","code":null}}`, Exhausted, 0, 0},
		{"project spend limit", OpenAI, 429, nil, `{"error":{"code":"project_spend_limit_exceeded"}}`, Exhausted, 0, 0},
		{"a sentence is not a code", OpenAI, 429, nil, `{"error":"INSUFFICIENT QUOTA","message":"exceeded your current limit of concurrent requests"}`, Throttle, 0, 0},
		{"larger than the limit", OpenAI, 429, nil, `{"error":{"message":"Request too large for gpt-4 on tokens per min (TPM): Limit 30000, Requested 342389","type":"tokens","code":"rate_limit_exceeded"}}`, Impossible, arbiter.DimTPM, 0},
		{"fits the limit later", OpenAI, 429, nil, `{"error":{"message":"Rate limit reached (TPM): Limit 30000, Used 29000, Requested 3000. Please try again in 4s.","type":"tokens","code":"rate_limit_exceeded"}}`, Throttle, arbiter.DimTPM, 4 * time.Second},
		{"header before sentence", OpenAI, 429, retry("7"), `{"error":{"message":"Please try again in 4s.","type":"requests","code":"rate_limit_exceeded"}}`, Throttle, arbiter.DimRPM, 7 * time.Second},
		{"too fast a growth", OpenAI, 429, nil, `{"error":{"message":"slow","code":"slow_down"}}`, Throttle, 0, 15 * time.Second},
		{"flex without room", OpenAI, 429, nil, `{"error":{"message":"Resource Unavailable","code":"resource_unavailable"}}`, Overload, 0, 0},
		{"overloaded", OpenAI, 503, retry("3"), `{"error":{"type":"service_unavailable_error","code":"server_is_overloaded"}}`, Overload, 0, 3 * time.Second},
		{"older overload", OpenAI, 503, nil, `{"error":{"code":"slow_down"}}`, Overload, 0, 0},
		{"plain 503", OpenAI, 503, nil, `{}`, Provider, 0, 0},
		{"content", OpenAI, 400, nil, `{"error":{"code":"content_filter"}}`, Policy, 0, 0},
		{"reset of the exhausted bucket", OpenAI, 429, http.Header{
			"X-Ratelimit-Limit-Requests": {"60"}, "X-Ratelimit-Remaining-Requests": {"59"}, "X-Ratelimit-Reset-Requests": {"1s"},
			"X-Ratelimit-Limit-Tokens": {"1000"}, "X-Ratelimit-Remaining-Tokens": {"0"}, "X-Ratelimit-Reset-Tokens": {"4m12s"},
		}, `{"error":{"code":"rate_limit_exceeded"}}`, Throttle, arbiter.DimTPM, 252 * time.Second},

		{"spend limit", Anthropic, 429, nil, `{"type":"error","error":{"type":"rate_limit_error","message":"x","details":{"error_code":"enforced_spend_limit_reached"}}}`, Exhausted, 0, 30 * time.Hour},
		{"self-set limit", Anthropic, 400, nil, `{"type":"error","error":{"type":"invalid_request_error","message":"You have reached your specified API usage limits. You will regain access on 2026-12-01 at 00:00 UTC."}}`, Exhausted, 0, 30 * time.Hour},
		{"billing", Anthropic, 402, nil, `{"type":"error","error":{"type":"billing_error","message":"x"}}`, Exhausted, 0, 0},
		{"credit", Anthropic, 400, nil, `{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the API"}}`, Exhausted, 0, 0},
		{"ramp", Anthropic, 429, retry("9"), `{"type":"error","error":{"type":"rate_limit_error","details":{"error_code":"ramp_limit_exceeded"}}}`, Throttle, 0, 9 * time.Second},
		{"axis from the header at 0", Anthropic, 429, http.Header{
			"Retry-After": {"12"}, "Anthropic-Ratelimit-Requests-Limit": {"50"}, "Anthropic-Ratelimit-Requests-Remaining": {"40"},
			"Anthropic-Ratelimit-Output-Tokens-Limit": {"8000"}, "Anthropic-Ratelimit-Output-Tokens-Remaining": {"0"},
		}, `{"type":"error","error":{"type":"rate_limit_error","message":"x"}}`, Throttle, arbiter.DimOutputTPM, 12 * time.Second},
		{"overloaded", Anthropic, 529, nil, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, Overload, 0, 0},
		{"broken", Anthropic, 500, nil, `{"type":"error","error":{"type":"api_error"}}`, Provider, 0, 0},
		{"timeout", Anthropic, 504, nil, `{"type":"error","error":{"type":"timeout_error"}}`, Provider, 0, 0},
		{"too many bytes, as HTML", Anthropic, 413, nil, `<html>413</html>`, Caller, 0, 0},
		{"conflict", Anthropic, 409, nil, `{"type":"error","error":{"type":"conflict_error"}}`, Caller, 0, 0},
		{"on hold", Anthropic, 403, nil, `{"type":"error","error":{"type":"permission_error","details":{"error_code":"organization_on_hold"}}}`, Auth, 0, 0},

		{"a day's quota", Gemini, 429, nil, quota(violations(perDay)), Exhausted, arbiter.DimRPD, 14 * time.Hour},
		{"plan and billing, no quota named", Gemini, 429, nil, quota(), Exhausted, 0, 14 * time.Hour},
		{"a minute's quota under the same sentence", Gemini, 429, nil, quota(violations(perMinute)), Throttle, arbiter.DimRPM, time.Minute},
		{"a minute's quota with its wait", Gemini, 429, nil, quota(violations(tokensPerMinute), retryInfo("45.837906927s")), Throttle, arbiter.DimInputTPM, 45837906927},
		{"day and minute mixed", Gemini, 429, nil, quota(violations(perDay, perMinute), retryInfo("36s")), Throttle, arbiter.DimRPM, 36 * time.Second},
		{"a day's quota with a short wait", Gemini, 429, nil, quota(violations(perDay), retryInfo("36s")), Throttle, arbiter.DimRPD, 36 * time.Second},
		{"a wait of hours", Gemini, 429, nil, quota(violations(perMinute), retryInfo("7200s")), Exhausted, 0, 2 * time.Hour},
		{"bare", Gemini, 429, nil, `{"error":{"code":429,"message":"Resource has been exhausted (e.g. check quota).","status":"RESOURCE_EXHAUSTED"}}`, Throttle, 0, time.Minute},
		{"in an array", Gemini, 429, nil, `[{"error":{"code":429,"message":"Please retry in 5s.","status":"RESOURCE_EXHAUSTED"}}]`, Throttle, 0, 5 * time.Second},
		{"error inside the message", Gemini, 429, nil, `{"error":{"code":429,"message":"{\"error\":{\"code\":429,\"message\":\"Please retry in 8s.\"}}"}}`, Throttle, 0, 8 * time.Second},
		{"overloaded", Gemini, 503, nil, `{"error":{"code":503,"status":"UNAVAILABLE"}}`, Overload, 0, 0},
		{"too large", Gemini, 400, nil, `{"error":{"code":400,"message":"The input token count (1200000) exceeds the maximum","status":"INVALID_ARGUMENT"}}`, Impossible, arbiter.DimInputTPM, 0},
		{"bad key is a 400", Gemini, 400, nil, `{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT"}}`, Auth, 0, 0},
		{"location", Gemini, 400, nil, `{"error":{"code":400,"status":"FAILED_PRECONDITION","message":"User location is not supported"}}`, Auth, 0, 0},
		{"bad argument", Gemini, 400, nil, `{"error":{"code":400,"status":"INVALID_ARGUMENT","message":"x"}}`, Caller, 0, 0},

		{"throttle", Mistral, 429, nil, `{"object":"error","message":"Rate limit exceeded","type":"rate_limited","param":null,"code":"1300","raw_status_code":429}`, Throttle, 0, time.Second},
		{"older throttle", Mistral, 429, retry("4"), `{"message":"Requests rate limit exceeded"}`, Throttle, arbiter.DimRPM, 4 * time.Second},
		{"capacity as 429", Mistral, 429, nil, `{"object":"error","message":"Service tier capacity exceeded for this model.","type":"invalid_request_error","param":null,"code":null}`, Overload, 0, 0},
		{"capacity as 503", Mistral, 503, nil, `{"object":"error","message":"Service tier capacity exceeded for this model.","code":"3505"}`, Overload, 0, 0},
		{"month used up", Mistral, 403, nil, `{"message":"You have reached your monthly limit"}`, Exhausted, 0, 0},
		{"validation", Mistral, 422, nil, `{"detail":[{"loc":["body","x"],"msg":"extra"}]}`, Caller, 0, 0},

		{"no answer", OpenAI, 0, nil, ``, Provider, 0, 0},
		{"payment", Mistral, 402, nil, ``, Exhausted, 0, 0},
		{"credential", OpenAI, 401, nil, `{}`, Auth, 0, 0},
		{"request timeout", OpenAI, 408, nil, ``, Provider, 0, 0},
		{"edge proxy", Gemini, 429, nil, `<html>error code: 1015</html>`, Throttle, 0, 30 * time.Second},
		{"edge proxy with a wait", Anthropic, 429, retry("20"), ``, Throttle, 0, 20 * time.Second},
		{"cloudflare", OpenAI, 522, nil, `error`, Provider, 0, 0},
		{"another client error", OpenAI, 418, nil, ``, Caller, 0, 0},
		{"azure under demand", OpenAI, 429, retry("10"), `{"error":{"code":"429","message":"We are experiencing high demand for this model."}}`, Overload, 0, 10 * time.Second},
		{"azure for a day", OpenAI, 429, nil, `{"error":{"code":"429","message":"Requests have exceeded the call rate limit. Please retry after 86400 seconds."}}`, Exhausted, 0, 24 * time.Hour},
		{"azure for a while", OpenAI, 429, http.Header{"Retry-After-Ms": {"37000"}}, `{"error":{"code":"RateLimitReached","message":"Rate limit of 50000 per 60s exceeded for UserByModelByMinuteUncachedInputTokens."}}`, Throttle, 0, 37 * time.Second},
		{"azure's filter", OpenAI, 400, nil, `{"error":{"code":"content_filter","message":"filtered","status":400}}`, Policy, 0, 0},
		{"bedrock", Anthropic, 429, http.Header{"X-Amzn-Errortype": {"ThrottlingException:http://internal.amazon.com/coral/"}}, `{"message":"Too many requests, please wait before trying again."}`, Throttle, 0, 0},
		{"bedrock for the day", Anthropic, 429, nil, `{"__type":"com.amazon.coral.availability#ThrottlingException","message":"Too many tokens per day, please wait before trying again."}`, Exhausted, 0, 6 * time.Hour},
		{"bedrock's quota", OpenAI, 400, http.Header{"X-Amzn-Errortype": {"ServiceQuotaExceededException"}}, `{}`, Exhausted, 0, 0},
		{"bedrock warms up", OpenAI, 429, http.Header{"X-Amzn-Errortype": {"ModelNotReadyException"}}, `{}`, Overload, 0, 0},
		{"bedrock unavailable", OpenAI, 503, http.Header{"X-Amzn-Errortype": {"ServiceUnavailableException"}}, `{}`, Overload, 0, 0},
		{"bedrock's model timed out", OpenAI, 408, http.Header{"X-Amzn-Errortype": {"ModelTimeoutException"}}, `{}`, Provider, 0, 0},
		{"bedrock's model failed", OpenAI, 424, http.Header{"X-Amzn-Errortype": {"ModelErrorException"}}, `{}`, Provider, 0, 0},
		{"openrouter has too much in flight", OpenAI, 402, retry("3"), `{"error":{"code":402,"message":"x","metadata":{"limit_source":"openrouter_in_flight_budget"}}}`, Throttle, 0, 3 * time.Second},
		{"the same without a wait", OpenAI, 402, nil, `{"error":{"code":402,"message":"x","metadata":{"limit_source":"openrouter_in_flight_budget"}}}`, Throttle, 0, 0},
		{"openrouter without credits", OpenAI, 402, nil, `{"error":{"code":402,"message":"Insufficient credits","metadata":{"limit_source":"openrouter_credits"}}}`, Exhausted, 0, 0},
		{"groq's flex", OpenAI, 498, nil, `{"error":{"message":"capacity exceeded"}}`, Overload, 0, 0},
		{"deepseek overloaded", OpenAI, 503, nil, `{"error":{"message":"Server overloaded, please retry your request","type":"server_error"}}`, Overload, 0, 0},
		{"deepseek without balance", OpenAI, 402, nil, `{"error":{"message":"Insufficient Balance","type":"unknown_error","code":"invalid_request_error"}}`, Exhausted, 0, 0},
		{"anthropic's compatible endpoint", Anthropic, 429, retry("5"), `{"error":{"code":"rate_limit_error","message":"x","type":"invalid_request_error","param":null}}`, Throttle, 0, 5 * time.Second},
		{"behind a proxy's prefix", OpenAI, 429, nil, `{"error":{"message":"litellm.RateLimitError: OpenAIException - {\"error\":{\"code\":\"insufficient_quota\",\"message\":\"gone\"}}","type":"None","code":"429"}}`, Exhausted, 0, 0},
		{"interactions", Gemini, 429, nil, `{"error":{"code":"rate_limit_exceeded","message":"slow down"}}`, Throttle, 0, time.Minute},
		{"no capacity for the model", Gemini, 503, nil, `{"error":{"code":503,"status":"UNAVAILABLE","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"MODEL_CAPACITY_EXHAUSTED"}]}}`, Overload, 0, 0},
		{"conflict", OpenAI, 409, nil, `{}`, Caller, 0, 0},
		{"no error", OpenAI, 200, nil, `{}`, NoError, 0, 0},
	} {
		t.Run(c.dialect+"/"+c.name, func(t *testing.T) {
			t.Parallel()
			v := dialect(t, c.dialect).Classify(c.status, c.h, []byte(c.body), now)
			if v.Class != c.class || v.Dim != c.dim || v.Wait != c.wait {
				t.Errorf("%s on %s for %v by %q; want %s on %s for %v", v.Class, v.Dim, v.Wait, v.Rule, c.class, c.dim, c.wait)
			}
		})
	}
}

func TestASecondDailyQuotaIsFinal(t *testing.T) {
	t.Parallel()
	body := `{"error":{"code":429,"details":[{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaId":"GenerateRequestsPerDay"}]},{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"36s"}]}}`
	v := dialect(t, Gemini).Classify(429, nil, []byte(body), noon)
	if v.Class != Throttle || v.Repeats != Exhausted {
		t.Errorf("%+v", v)
	}
}

func TestVerdictKeepsAShortCleanMessage(t *testing.T) {
	t.Parallel()
	body := `{"error":{"message":"line\nbreak \u0000 ` + strings.Repeat("é", 400) + `","code":7}}`
	v := dialect(t, OpenAI).Classify(400, nil, []byte(body), noon)
	if len(v.Message) > maxMessage || strings.ContainsAny(v.Message, "\n\x00") || !strings.HasPrefix(v.Message, "line break") || v.Code != "7" {
		t.Errorf("%q, code %q", v.Message, v.Code)
	}
	if v := dialect(t, OpenAI).Classify(429, nil, []byte(`{"error":{"code":"insufficient_quota","message":"`+strings.Repeat("x", maxErrorBody)+`"}}`), noon); v.Rule != "edge_throttle" {
		t.Errorf("a body above the bound was read: %+v", v)
	}
}

func TestRuleNamesAreUniqueAndEveryStatusHasAClass(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	tables := [][]Rule{anyRules}
	for _, name := range Names() {
		tables = append(tables, dialect(t, name).rules)
	}
	for _, table := range tables {
		for _, r := range table {
			if r.Name == "" || seen[r.Name] {
				t.Errorf("rule name %q is empty or taken", r.Name)
			}
			seen[r.Name] = true
			for _, text := range r.Text {
				if text != strings.ToLower(text) {
					t.Errorf("%s: text %q is not lower case and would never match", r.Name, text)
				}
			}
		}
	}
	for _, name := range Names() {
		for status := 400; status <= 999; status++ {
			if v := dialect(t, name).Classify(status, nil, nil, noon); v.Class == NoError {
				t.Errorf("%s %d has no class", name, status)
			}
		}
	}
}

func TestUntilPacificDayAcrossDaylightSaving(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		now  time.Time
		want time.Duration
	}{
		{time.Date(2026, 7, 25, 12, 0, 0, 0, time.UTC), 19 * time.Hour},
		{time.Date(2026, 11, 29, 18, 0, 0, 0, time.UTC), 14 * time.Hour},
		{time.Date(2026, 11, 1, 7, 30, 0, 0, time.UTC), 24*time.Hour + 30*time.Minute}, // the day of 25 hours
	} {
		if got := untilPacificDay(c.now); got != c.want {
			t.Errorf("%v: %v, want %v", c.now, got, c.want)
		}
	}
}

func FuzzClassify(f *testing.F) {
	for _, s := range []string{
		`{"error":{"code":"insufficient_quota","type":"x","message":"Limit 30000, Requested 342389"}}`,
		`[{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"1e99s"}]}}]`,
		`{"error":{"message":"{\"error\":{\"message\":\"regain access on 9999-99-99 at 99:99\"}}"}}`,
		`{"error":"INSUFFICIENT QUOTA"}`, `{"detail":[1]}`, "<html>", "", "\xff\xfe",
	} {
		f.Add(429, []byte(s))
		f.Add(400, []byte(s))
	}
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		for _, name := range Names() {
			v := dialect(t, name).Classify(status, http.Header{"Retry-After": {string(body)}}, body, noon)
			if (v.Class == NoError) != (status != 0 && status < 400) || v.Wait < 0 || v.Wait > maxWait || len(v.Message) > maxMessage {
				t.Fatalf("%s %d: %+v", name, status, v)
			}
			for _, r := range v.Message {
				if r < ' ' {
					t.Fatalf("%s: control character in %q", name, v.Message)
				}
			}
		}
	})
}

// T06: an error answer before any byte gives the hold back, unless the call may have been carried out all the same.
func TestAmbiguous(t *testing.T) {
	t.Parallel()
	for _, name := range append(Names(), HTTP) {
		for status := 400; status < 600; status++ {
			want := status == 408 || status == 504 || status == 520 || status == 524
			if v := dialect(t, name).Classify(status, nil, nil, noon); v.Ambiguous != want {
				t.Errorf("%s %d: ambiguous %v by %s", name, status, v.Ambiguous, v.Rule)
			}
		}
		if v := dialect(t, name).Classify(0, nil, nil, noon); !v.Ambiguous {
			t.Errorf("%s: a call without an answer may have been carried out", name)
		}
	}
}

// T42: the reset of the bucket that is empty decides, not the one of requests.
func TestT42TheEmptyBucketDecides(t *testing.T) {
	t.Parallel()
	h := http.Header{}
	for k, v := range map[string]string{"limit-requests": "60", "remaining-requests": "59", "reset-requests": "1s", "limit-tokens": "150000", "remaining-tokens": "0", "reset-tokens": "4m12s"} {
		h.Set("x-ratelimit-"+k, v)
	}
	for _, body := range []string{`{"error":{"code":"rate_limit_exceeded","type":"tokens"}}`, `{"error":{"code":"rate_limit_exceeded"}}`, `{}`} {
		if v := dialect(t, OpenAI).Classify(429, h, []byte(body), noon); v.Wait != 252*time.Second || v.Dim != arbiter.DimTPM {
			t.Errorf("%s: %+v", body, v)
		}
	}
}

// T45: what is gone for good against what only has to wait, whatever the words.
func TestT45TerminalAndTransient(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, dialect string
		status        int
		body          string
		want          Class
	}{
		{"a", OpenAI, 429, `{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}`, Exhausted},
		{"b", OpenAI, 429, `{"error":"INSUFFICIENT QUOTA","message":"exceeded your current limit of concurrent requests"}`, Throttle},
		{"b", Mistral, 429, `{"error":"INSUFFICIENT QUOTA","message":"exceeded your current limit of concurrent requests"}`, Throttle},
		{"b", Anthropic, 429, `{"error":"INSUFFICIENT QUOTA","message":"exceeded your current limit of concurrent requests"}`, Throttle},
		{"b", Gemini, 429, `{"error":"INSUFFICIENT QUOTA","message":"exceeded your current limit of concurrent requests"}`, Throttle},
		{"c", OpenAI, 402, ``, Exhausted}, {"c", Anthropic, 402, `{}`, Exhausted}, {"c", Gemini, 402, ``, Exhausted}, {"c", Mistral, 402, `<html>`, Exhausted},
		{"d", Anthropic, 400, `{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the Anthropic API."}}`, Exhausted},
	} {
		if v := dialect(t, c.dialect).Classify(c.status, nil, []byte(c.body), noon); v.Class != c.want {
			t.Errorf("(%s) %s: %s by %s", c.name, c.dialect, v.Class, v.Rule)
		}
	}
}
