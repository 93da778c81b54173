package config

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
)

// documented are the examples of docs/configuration.md that are whole files.
func documented(t *testing.T) (out []string) {
	t.Helper()
	text, err := os.ReadFile(docsFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		out = append(out, m[1])
	}
	return out
}

func TestDocumentedExamplesLoad(t *testing.T) {
	t.Parallel()
	all := documented(t)
	if len(all) != 2 {
		t.Fatalf("%d examples in %s", len(all), docsFile)
	}
	for _, text := range all {
		must(t, text)
	}
}

// TestUpstreams: what the network needs of each server of the documentation, and which models it has.
func TestUpstreams(t *testing.T) {
	t.Parallel()
	c := must(t, documented(t)[0])
	var got []string
	for i, u := range c.Pools[0].Upstreams {
		p := c.Pools[0].Policy.Providers[i]
		var models []string
		for _, m := range p.Models {
			models = append(models, m.Name)
		}
		got = append(got, fmt.Sprint(u.Name, " ", u.Kind, " ", u.BaseURL, " ", u.AllowPrivate, " ", u.APIKey.Where(), " ", models))
	}
	want := []string{
		"vllm openai http://10.0.0.7:8000/v1 true nowhere [meta-llama/Llama-4-Scout]",
		"ollama openai http://localhost:11434/v1 true nowhere [qwen3:8b]",
		"deepseek openai https://api.deepseek.com/v1 false environment variable DEEPSEEK_API_KEY [deepseek-v4-flash deepseek-v4-pro]",
		"groq openai https://api.groq.com/openai/v1 false environment variable GROQ_API_KEY [openai/gpt-oss-120b]",
		"openrouter openai https://openrouter.ai/api/v1 false environment variable OPENROUTER_API_KEY [anthropic/claude-sonnet-5]",
		"azure openai https://example.openai.azure.com/openai/v1 false file /etc/tba/azure.key [gpt-5.4-mini team-search]",
		"azure-deployments openai https://example.openai.azure.com/openai/deployments/{model}?api-version=2024-10-21 false environment variable AZURE_OPENAI_API_KEY [chat]",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("upstreams\n got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

const laddersBase = `
budget:
  providers:
    a: {kind: openai, base_url: "https://a.example.com/v1", models: {%s}}
    t0: {kind: http, base_url: "https://t0.example.com"}
    t1: {kind: http, base_url: "https://t1.example.com"}
    t2: {kind: http, base_url: "https://t2.example.com"}
ladders:
  l: %s
`

func TestLadders(t *testing.T) {
	t.Parallel()
	const models = `m100: {price: {input: 1, output: 1}}, m120: {price: {input: 1.2, output: 1.2}}, m125: {price: {input: 1.25, output: 1.25}}, ` +
		`m126: {price: {input: 1.26, output: 1.26}}, m200: {price: {input: 2, output: 2}}, free: {price: {input: 0, output: 0}}, ` +
		`out: {price: {input: 0.5, output: 4}}`
	for ladder, want := range map[string]string{
		"{rungs: [a/m100, a/m120, a/m125, a/m126, a/m200]}": "[[{a m100 false} {a m120 false} {a m125 false}] [{a m126 false}] [{a m200 false}]]",
		"{rungs: [a/m120, a/m100, a/m200]}":                 "[[{a m120 false} {a m100 false}] [{a m200 false}]]", // equal: in either order
		"{rungs: [a/free, a/m100]}":                         "[[{a free false}] [{a m100 false}]]",
		"{rungs: [a/m100, a/out, a/m200]}":                  "[[{a m100 false}] [{a out false}] [{a m200 false}]]", // (3·0.5 + 4)/4 = 1.375
		"{rungs: [a]}":                                      "[[{a m100 false}]]",                                  // its first model
		"{tiers: [[a/m200, a/free], [a/m100]]}":             "[[{a m200 false} {a free false}] [{a m100 false}]]",
		"{rungs: [t0, t1, t2], paid: [t2]}":                 "[[{t0  false} {t1  false}] [{t2  true}]]",
		"{tiers: [[t1], [t0]], paid: [t1]}":                 "[[{t1  true}] [{t0  false}]]",
	} {
		c := must(t, fmt.Sprintf(laddersBase, models, ladder))
		p := &c.Pools[0]
		l, ok := p.Ladder("l")
		if !ok || fmt.Sprint(l.Tiers) != want {
			t.Errorf("%s:\n got %v\nwant %s", ladder, p.Ladders, want)
			continue
		}
		if len(p.Policy.Ladders) != 1 || len(p.Policy.Ladders[0].Tiers) != len(l.Tiers) || p.Policy.Ladders[0].Name != "l" {
			t.Errorf("%s: the policy has %v", ladder, p.Policy.Ladders)
		}
		first := l.Rungs()[0]
		if r, ok := l.Rung(first.Provider, first.Model); !ok || r != first {
			t.Errorf("%s: %v is not found", ladder, first)
		}
		if _, ok := l.Rung("a", "other"); ok || p.Policy.Ladders[0].Tiers[0][0] != (arbiter.Rung{Provider: first.Provider, Model: first.Model}) {
			t.Errorf("%s: %v", ladder, p.Policy.Ladders)
		}
	}
	c := must(t, fmt.Sprintf(laddersBase, models, "{rungs: [t0], zero_hits: {status: [204, 404], json_path: a.b, empty: false}}"))
	if z := c.Pools[0].Ladders[0].Zero; z == nil || fmt.Sprint(*z) != "{[204 404] a.b false}" {
		t.Errorf("zero hits: %+v", z)
	}
	if _, ok := c.Pools[0].Ladder("m"); ok {
		t.Error("a ladder that is not there was found")
	}
}

// TestLadderOrderByDate: a price list that changes by its date makes no file wrong over night.
func TestLadderOrderByDate(t *testing.T) {
	t.Parallel()
	at := func(date string) time.Time {
		d, err := time.Parse(time.DateOnly, date)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	changes := at("2026-12-01").UnixNano()
	rate := func(usd int64) arbiter.Rates {
		return arbiter.Rates{Input: arbiter.Pico(usd), Output: arbiter.Pico(usd)}
	}
	rungs := []placedRung{
		{Rung: Rung{Provider: "gemini"}, prices: []arbiter.Price{{To: changes, Rates: rate(100)}, {From: changes, Rates: rate(400)}}},
		{Rung: Rung{Provider: "openai"}, prices: []arbiter.Price{{Rates: rate(200)}}},
	}
	for date, want := range map[string]Severity{"2026-11-30": "", "2026-12-01": Warning} {
		d := newDecoder("f.yaml", nil)
		c := compiler{d: d, now: at(date)}
		sizes := c.order(rungs)
		if len(sizes) != 2 || (want == "") != (len(d.faults) == 0) || want != "" && d.faults[0].Severity != want {
			t.Errorf("%s: %v %v", date, sizes, d.faults)
		}
	}
	d := newDecoder("f.yaml", nil)
	c := compiler{d: d, now: at("2026-12-01")}
	rungs[0].prices = []arbiter.Price{{Rates: rate(400)}}
	if c.order(rungs); !d.faults.errors() {
		t.Error("an order that never holds was accepted")
	}
}

func TestLaddersBelongToPools(t *testing.T) {
	t.Parallel()
	c := must(t, `
pools:
  - {pool: one, providers: {openai: {}}}
  - {pool: two, providers: {openai: {}, mistral: {}}}
ladders:
  both: {rungs: [openai/gpt-5.4-mini]}
  second: {rungs: [mistral/mistral-small-2603, openai/gpt-5.4]}
`)
	for pool, want := range map[string]int{"one": 1, "two": 2} {
		if p, _ := c.Pool(pool); len(p.Ladders) != want || len(p.Policy.Ladders) != want {
			t.Errorf("pool %s has %d ladders, want %d", pool, len(p.Ladders), want)
		}
	}
}

func TestGatewayKeysAndDefaults(t *testing.T) {
	t.Parallel()
	c := must(t, small)
	if got, want := fmt.Sprint(c.Gateway), "{0 [] 30s 8388608 2 false 64 30s 10m0s 5m0s}"; got != want {
		t.Errorf("defaults %s, want %s", got, want)
	}
	if got := fmt.Sprint(c.Estimation, c.Identity, c.Pools[0].MaxAttempts); got != "{200000 cap 4096 50} {[]} 2" {
		t.Errorf("defaults %s", got)
	}
	c = must(t, "budget: {providers: {openai: {count_cached: false}}, tasks: {max_attempts: 3}}\n"+
		"gateway: {budget_status: 402, passthrough: [/openai/v1/files, /openai/v1/images/], max_wait: 0, max_body: 1_048_576, drain: true, max_attempts: 1}\n"+
		"identity: {compat: [Helicone-User-Id, user]}\nestimation: {output: learned, buffer: 0.1, learned_min_calls: 5, default_output: 100}\n")
	if got, want := fmt.Sprint(c.Gateway), "{402 [/openai/v1/files /openai/v1/images/] 0s 1048576 1 true 64 30s 10m0s 5m0s}"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := fmt.Sprint(c.Estimation, c.Identity, c.Pools[0].MaxAttempts, c.Pools[0].Policy.Providers[0].UncachedOnly); got != "{100000 learned 100 5} {[helicone-user-id user]} 3 true" {
		t.Errorf("%s", got)
	}
	for path, want := range map[string]bool{
		"/openai/v1/files": true, "/openai/v1/files/f-1": true, "/openai/v1/files/": true, "/openai/v1/filesystem": false, "/openai/v1": false,
		"/openai/v1/images": false, "/openai/v1/images/x": true, "": false,
	} {
		if c.Gateway.Passes(path) != want {
			t.Errorf("passes %q: %v", path, !want)
		}
	}
}

func TestSecretReader(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "key")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first\n")
	synctest.Test(t, func(t *testing.T) {
		read := Secret{file: file}.Reader()
		want := func(text string) {
			t.Helper()
			if v, err := read(); v != text || err != nil {
				t.Errorf("%q, %v, want %q", v, err, text)
			}
		}
		want("first")
		write("second key")
		want("first") // looked at less than a second ago
		time.Sleep(lookEvery)
		want("second key")
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		time.Sleep(lookEvery)
		want("second key") // a rotation is under way
		write("third")
		time.Sleep(lookEvery)
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() { want("third") })
		}
		all.Wait()
	})
	if v, err := (Secret{}).Reader()(); v != "" || err != nil {
		t.Errorf("no secret: %q, %v", v, err)
	}
	if _, err := (Secret{file: file + "x"}).Reader()(); err == nil {
		t.Error("a file that was never there was read")
	}
	if _, err := (Secret{env: "TBA_TEST_NO_SUCH_VARIABLE"}).Reader()(); err == nil {
		t.Error("a variable that is not there was read")
	}
}
