package gateway_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/token-budget-arbiter/tba/internal/identity"
)

// The price is that of the model and the service tier which the answer names, to the nano-dollar; tokens and money count on the lease's rung.
func TestThePriceIsThatOfWhatServed(t *testing.T) {
	t.Parallel()
	const ask = `{"model":"gpt-5.4","messages":[{"role":"user","content":"Say hello."}],"max_completion_tokens":50}`
	const gemini = `{"contents":[{"role":"user","parts":[{"text":"Say hello."}]}],"generationConfig":{"maxOutputTokens":50}}`
	const claude = `{"model":"claude-opus-5-5","max_tokens":50,"messages":[{"role":"user","content":"Say hello."}]}`
	usage := func(model, tier, usage string) string {
		return fmt.Sprintf(`{"model":%q,"service_tier":%q,"choices":[],"usage":%s}`, model, tier, usage)
	}
	const plain = `{"prompt_tokens":1000,"completion_tokens":100}`
	for name, c := range map[string]struct {
		path, ask, answer string
		nanos             int64
	}{
		"as asked":             {"/v1/chat/completions", ask, usage("gpt-5.4", "default", plain), 2_500_000 + 1_500_000},
		"with a date":          {"/v1/chat/completions", ask, usage("gpt-5.4-2026-03-05", "default", plain), 4_000_000},
		"a smaller model":      {"/v1/chat/completions", ask, usage("gpt-5.4-mini-2026-03-17", "default", plain), 750_000 + 450_000},
		"an unknown model":     {"/v1/chat/completions", ask, usage("gpt-9-secret", "default", plain), 4_000_000},
		"flex":                 {"/v1/chat/completions", ask, usage("gpt-5.4", "flex", plain), 2_000_000},
		"priority":             {"/v1/chat/completions", ask, usage("gpt-5.4", "priority", plain), 8_000_000},
		"a smaller one, flex":  {"/v1/chat/completions", ask, usage("gpt-5.4-mini", "flex", plain), 600_000},
		"cached, flex":         {"/v1/chat/completions", ask, usage("gpt-5.4", "flex", `{"prompt_tokens":1000,"completion_tokens":100,"prompt_tokens_details":{"cached_tokens":600}}`), (1_000_000 + 150_000 + 1_500_000) / 2},
		"above the cliff":      {"/v1/chat/completions", ask, usage("gpt-5.4", "default", `{"prompt_tokens":272001,"completion_tokens":100}`), 1_360_005_000 + 2_250_000},
		"Gemini":               {"/gemini/v1beta/models/gemini-3.5-flash:generateContent", gemini, `{"modelVersion":"gemini-3.5-flash","usageMetadata":{"promptTokenCount":1000,"candidatesTokenCount":100},"candidates":[{"finishReason":"STOP"}]}`, 1_500_000 + 900_000},
		"Gemini, priority":     {"/gemini/v1beta/models/gemini-3.5-flash:generateContent", gemini, `{"modelVersion":"models/gemini-3.5-flash","usageMetadata":{"promptTokenCount":1000,"candidatesTokenCount":100,"trafficType":"ON_DEMAND_PRIORITY"},"candidates":[{"finishReason":"STOP"}]}`, 4_320_000},
		"Gemini, lite, flex":   {"/gemini/v1beta/models/gemini-3.5-flash:generateContent", gemini, `{"modelVersion":"gemini-3.5-flash-lite","usageMetadata":{"promptTokenCount":1000,"candidatesTokenCount":100,"trafficType":"ON_DEMAND_FLEX"},"candidates":[{"finishReason":"STOP"}]}`, (300_000 + 250_000) / 2},
		"Anthropic":            {"/anthropic/v1/messages", claude, `{"type":"message","model":"claude-opus-5-5","content":[],"usage":{"input_tokens":1000,"output_tokens":100,"service_tier":"standard"}}`, 4_000_000 + 2_000_000},
		"Anthropic, batch":     {"/anthropic/v1/messages", claude, `{"type":"message","model":"claude-opus-5-5","content":[],"usage":{"input_tokens":1000,"output_tokens":100,"service_tier":"batch"}}`, 3_000_000},
		"Anthropic, fast":      {"/anthropic/v1/messages", claude, `{"type":"message","model":"claude-opus-5-5","content":[],"usage":{"input_tokens":1000,"output_tokens":100,"speed":"fast"}}`, 8_000_000 + 4_000_000},
		"Anthropic falls back": {"/anthropic/v1/messages", claude, `{"type":"message","model":"claude-haiku-5-5-20261007","content":[],"usage":{"input_tokens":1000,"output_tokens":100}}`, 100_000 + 50_000},
		"two steps of Anthropic's, each below the cliff": {"/anthropic/v1/messages", claude, `{"type":"message","model":"claude-haiku-5-5","content":[],"usage":{"input_tokens":0,"output_tokens":0,
			"iterations":[{"type":"message","input_tokens":60000,"output_tokens":100},{"type":"message","input_tokens":60000,"output_tokens":100}]}}`, 12_000_000 + 100_000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			up := upstream(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, c.answer)
			})
			w := newWorld(t, setup{file: strings.ReplaceAll(`
budget:
  global_tokens: 1_000_000
  global_usd: 100
  providers:
    openai: {base_url: UP/v1, allow_private: true, models: {gpt-5.4: {}, gpt-5.4-mini: {}}}
    gemini: {base_url: UP, allow_private: true, models: {gemini-3.5-flash: {}, gemini-3.5-flash-lite: {}}}
    anthropic: {base_url: UP, allow_private: true, models: {claude-opus-5-5: {}, claude-haiku-5-5: {}}}
`, "UP", up)})
			if got := w.post(c.path, c.ask); got.status != http.StatusOK {
				t.Fatalf("%d %s", got.status, got.body)
			}
			if b := w.settled(); int64(b.nanos) != c.nanos {
				t.Errorf("%d nano-USD, want %d", b.nanos, c.nanos)
			}
		})
	}
}

// A tool is free, and so the best score of all: a call that names no model never lands on it. Where a provider is named its own default
// serves; else there is nothing to price.
func TestAToolIsNeverChosen(t *testing.T) {
	t.Parallel()
	up := upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, chatReply(11, 7))
	})
	tool := upstream(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("%s came to the tool", r.URL.Path) })
	w := newWorld(t, setup{file: oneProvider(up, fmt.Sprintf(`    search: {kind: http, base_url: %s/api, allow_private: true, price: {input: 0, output: 0}}`, tool))})
	nameless := strings.Replace(hello, `"model":"gpt-5.4",`, "", 1)
	for range 10 {
		if got := w.post("/v1/chat/completions", nameless); got.status != http.StatusBadRequest || !strings.Contains(got.body, "no_model") {
			t.Fatalf("%d %s", got.status, got.body)
		}
		if got := w.post("/openai/v1/chat/completions", nameless); got.status != http.StatusOK || got.header.Get("X-Tba-Provider") != "openai" {
			t.Fatalf("%d %v %s", got.status, got.header, got.body)
		}
	}
}

// A sidecar's answers tell the tightest budget and lower the limit headers, as those of a gateway beside its arbiter do.
func TestSidecarTellsWhatIsLeft(t *testing.T) {
	t.Parallel()
	up := upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Ratelimit-Limit-Requests", "10000")
		w.Header().Set("X-Ratelimit-Remaining-Requests", "9999")
		_, _ = io.WriteString(w, chatReply(11, 7))
	})
	const secret = "an-agent-of-the-fleet-01"
	w := newSidecar(t, strings.Replace(oneProvider(up), "allow_private: true", "allow_private: true\n      rpm_ceiling: 5000", 1), identity.Key{Name: "fleet", Secret: secret})
	deadline, tick := time.After(10*time.Second), time.NewTicker(20*time.Millisecond)
	defer tick.Stop()
	for {
		got := w.post("/v1/chat/completions", hello, "Authorization", "Bearer "+secret)
		if got.status != http.StatusOK {
			t.Fatalf("%d %s", got.status, got.body)
		}
		if budget := got.header.Get("X-Tba-Budget"); budget != "" {
			if !strings.HasPrefix(budget, "global;remaining=") || !strings.Contains(budget, ";resets=") || got.header.Get("X-Ratelimit-Limit-Requests") != "5000" {
				t.Errorf("%q, %v", budget, got.header)
			}
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("no budget: %v", got.header)
		}
	}
}
