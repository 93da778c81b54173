package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/catalog"
)

const example = "../../examples/budget-example.yaml"

// must loads text that is right, without warnings.
func must(t *testing.T, text string) *Config {
	t.Helper()
	c, err := LoadBytes("t.yaml", []byte(text))
	if err != nil {
		t.Fatalf("%v", err)
	}
	if len(c.Warnings) > 0 {
		t.Fatalf("warnings: %v", c.Warnings)
	}
	return c
}

func TestExampleBudget(t *testing.T) {
	t.Parallel()
	c, err := Load(example)
	if err != nil {
		t.Fatal(err)
	}
	p := c.Pools[0].Policy
	if c.Pools[0].Name != "default" || p.Global.Tokens != 500_000_000 || p.Global.Nanos != arbiter.Unlimited || p.Period.Kind != "monthly" {
		t.Errorf("pool %s: %+v %+v", c.Pools[0].Name, p.Global, p.Period)
	}
	var got []string
	for _, v := range p.Providers {
		price := v.Models[0].Prices[0]
		got = append(got, fmt.Sprintf("%s %d %d %d %s/%s", v.Name, v.Tokens, v.RPM, v.TPM, catalog.Format(price.Input), catalog.Format(price.Output)))
		if v.Models[0].Name != "" {
			t.Errorf("%s: the first model is %q, not the nameless default", v.Name, v.Models[0].Name)
		}
	}
	want := []string{
		"openai 200000000 10000 2000000 2.5/10", "anthropic 150000000 5000 1000000 3/15",
		"gemini 100000000 8000 1500000 1.25/5", "mistral 50000000 3000 500000 0.7/2.8",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("providers\n got %q\nwant %q", got, want)
	}
	got = nil
	for _, v := range p.Classes {
		got = append(got, fmt.Sprintf("%s %d %v %d", v.Name, v.Share, v.Priority, v.Limit.Tokens))
	}
	want = []string{
		"planner 200000 HIGH -1", "code_generator 400000 HIGH -1", "retrieval 200000 MEDIUM -1",
		"summarizer 100000 LOW -1", "validator 100000 MEDIUM -1", "default 0 LOW -1",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("classes\n got %q\nwant %q", got, want)
	}
	if p.Lease != (arbiter.LeaseRules{StartBy: 2 * arbiter.Second, Grace: 10 * arbiter.Minute, CommitBy: arbiter.Hour, Forget: 10 * arbiter.Minute, MaxHoldShare: arbiter.Whole}) {
		t.Errorf("lease rules %+v", p.Lease)
	}
	if p.Breaker != arbiter.DefaultBreaker || p.Weights != arbiter.DefaultWeights || p.Backpressure != arbiter.DefaultBackpressure {
		t.Error("the defaults of the file are not those of the arbiter")
	}
	if p.Guard != 250*arbiter.Millisecond || p.Tasks != arbiter.NoLimit || p.FallbackPrice != nil {
		t.Errorf("guard %d, tasks %+v, fallback %v", p.Guard, p.Tasks, p.FallbackPrice)
	}
	if zone := p.Providers[2].Zone; zone != "America/Los_Angeles" {
		t.Errorf("gemini's day is in %q", zone)
	}
}

func TestLoadIsDeterministic(t *testing.T) {
	t.Parallel()
	var first [32]byte
	for i := range 5 {
		c, err := Load("../../examples/full.yaml")
		if err != nil {
			t.Fatal(err)
		}
		_, hash, err := c.Pools[0].Policy.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = hash
		} else if hash != first {
			t.Fatal("the same file gave two policies")
		}
	}
}

func TestCompiledRules(t *testing.T) {
	t.Parallel()
	c, err := Load("../../examples/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	p := c.Pools[0].Policy
	openai, anthropic, house := p.Providers[0], p.Providers[1], p.Providers[2]
	for _, check := range []struct {
		what string
		ok   bool
	}{
		{"the first listed model is the default", openai.Models[0].Name == "gpt-5.4-mini"},
		{"the price file's row is in force", openai.Models[0].Prices[0].Input == 600_000},
		{"own output cap", openai.Models[0].MaxOutput == 16_384},
		{"catalogue caps", openai.Models[1].MaxOutput == 128_000 && openai.Models[1].MaxInput == 922_000},
		{"money in nano-USD", openai.Nanos == 2_000_000_000_000 && p.Tasks.Nanos == 5_000_000_000},
		{"split halves the ceilings", anthropic.RPM == 2_500 && anthropic.OutputTPM == 100_000},
		{"generated accounting", anthropic.Generated && !openai.Generated},
		{"a nameless default beside the models, where a price is given", house.Models[0].Name == "" && house.Models[0].Prices[0].Output == 0},
		{"per million", house.Models[1].Prices[0].Rates == arbiter.Rates{Input: 100_000, CacheRead: 10_000, CacheWrite: 100_000, CacheWriteLong: 200_000, Output: 400_000}},
		{"per token", house.Models[2].Prices[0].Input == 20_000},
		{"shadow of a provider covers its budgets and rates", house.Shadow && house.ShadowRates},
		{"explicit ttl", p.Lease.TTL == 120*arbiter.Second && p.Lease.Max == 2*arbiter.Hour},
		{"clamps", p.Lease.MaxHoldShare == arbiter.Whole/2 && p.Lease.MaxOpen == 1000 && p.Lease.MaxHeld == 10_000_000},
		{"reserves", p.Reserves[arbiter.High] == arbiter.Reserve{Rate: 50_000, Budget: 20_000}},
		{"fallback", p.FallbackPrice != nil && p.FallbackPrice.CacheWriteLong == 10_000_000},
		{"keys", len(c.Keys) == 2 && c.Keys[0].MaxPriority == "high" && c.Keys[1].Role == "operator"},
	} {
		if !check.ok {
			t.Errorf("not so: %s", check.what)
		}
	}
	if u, ok := c.Pools[0].Upstream("house"); !ok || u.Kind != "openai" || !u.AllowPrivate || !u.APIKey.IsZero() {
		t.Errorf("upstream %+v", u)
	}
}

func TestModelsOfTheCatalogueCanBeAskedFor(t *testing.T) {
	t.Parallel()
	c := must(t, "budget: {providers: {openai: {rpm_ceiling: 5, models: {gpt-5.4: {}}}, google: {}, anthropic: {models: {claude-mythos-5: {rpm_ceiling: 1}}}}}")
	p := &c.Pools[0]
	for _, tt := range []struct{ provider, id, want, nearest string }{
		{"openai", "gpt-5.4", "gpt-5.4", ""},
		{"openai", "gpt-5.4-2026-03-01", "gpt-5.4", ""},
		{"openai", "gpt-4o-mini", "gpt-4o-mini", ""},
		{"google", "gemini-2.5-pro", "gemini-2.5-pro", ""},
		{"", "gemini-2.5-pro", "gemini-2.5-pro", ""},
		{"", "claude-fable-5", "claude-mythos-5", ""}, // one model, one entry: no way round its ceiling
		{"anthropic", "claude-fable-5-20260901", "claude-mythos-5", ""},
		{"", "claude-opus-4.1", "", "claude-opus-4-5"},
		{"openai", "", "", ""},
		{"openai", "gpt-5,4", "", "gpt-5.4"},
		{"google", "gemini-2-5-pro", "", "gemini-2.5-pro"},
	} {
		got, err := p.ModelID(tt.provider, tt.id)
		var unpriced *catalog.UnpricedError
		if got != tt.want || errors.As(err, &unpriced) != (tt.want == "") || unpriced != nil && unpriced.Nearest != tt.nearest {
			t.Errorf("ModelID(%s, %s) = %q, %v", tt.provider, tt.id, got, err)
		}
	}
	if _, err := p.ModelID("nobody", "gpt-5.4"); err == nil {
		t.Error("a provider that is not there has models")
	}
	if k := p.Upstreams[1].Kind; k != "gemini" {
		t.Errorf("google is of kind %q", k)
	}
}

func TestPeriods(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]arbiter.PeriodSpec{
		"hourly":                          {Kind: "hourly", TimeZone: "Asia/Tokyo"},
		"weekly":                          {Kind: "weekly", TimeZone: "Asia/Tokyo", Anchor: 1},
		"quarterly":                       {Kind: "quarterly", TimeZone: "Asia/Tokyo"},
		"{every: weekly, anchor: sunday}": {Kind: "weekly", TimeZone: "Asia/Tokyo", Anchor: 0},
		"{every: monthly, anchor: 31}":    {Kind: "monthly", TimeZone: "Asia/Tokyo", Anchor: 31},
		"{every: daily}":                  {Kind: "daily", TimeZone: "Asia/Tokyo"},
		"{every: 336h, anchor: 2026-08-01}": {Kind: "every", TimeZone: "Asia/Tokyo", Every: 14 * 24 * arbiter.Hour,
			Anchor: time.Date(2026, 7, 31, 15, 0, 0, 0, time.UTC).UnixNano()},
		"{every: 90m, anchor: 2026-08-01T00:00:00Z}": {Kind: "every", TimeZone: "Asia/Tokyo", Every: 90 * arbiter.Minute,
			Anchor: time.Date(2026, 8, 1, 0, 0, 0, 0, time.UTC).UnixNano()},
	} {
		// The zone may stand after the period it belongs to.
		c := must(t, "budget: {period: "+text+", time_zone: Asia/Tokyo, providers: {openai: {}}}")
		if got := c.Pools[0].Policy.Period; got != want {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
	}
}

func TestPoolsShareAKeyBySplits(t *testing.T) {
	t.Parallel()
	c := must(t, `
pools:
  - {pool: a, providers: {openai: {api_key: {env: K}, split: 0.3, rpm_ceiling: 100}}}
  - {pool: b, on_expiry: assume, providers: {openai: {api_key: {env: K}, split: 0.7, rpm_ceiling: 99}}}
lease: {on_expiry: return}
mode: shadow
`)
	a, _ := c.Pool("a")
	b, _ := c.Pool("b")
	if a.Policy.Providers[0].RPM != 30 || b.Policy.Providers[0].RPM != 69 {
		t.Errorf("ceilings %d and %d", a.Policy.Providers[0].RPM, b.Policy.Providers[0].RPM)
	}
	if a.Policy.Lease.OnExpiry != arbiter.ExpiryReturn || b.Policy.Lease.OnExpiry != arbiter.ExpiryAssume || !a.Policy.Shadow {
		t.Error("rules of the pools")
	}
	if _, ok := c.Pool(""); ok {
		t.Error("with several pools the nameless one is none of them")
	}
}

func TestWarningsDoNotRefuse(t *testing.T) {
	t.Parallel()
	c, err := LoadBytes("w.yaml", []byte(`
budget:
  providers:
    openai: {allocated_tokens: 0, rpm_ceiling: 5, tpm_ceiling: 10, input_tpm_ceiling: 11, models: {gpt-5.4: {rpm_ceiling: 6}}}
`))
	if err != nil {
		t.Fatal(err)
	}
	var rules []string
	for _, f := range c.Warnings {
		rules = append(rules, f.Rule)
	}
	if got := strings.Join(rules, " "); got != "zero-limit never-binds never-binds" {
		t.Errorf("warnings %s\n%v", got, c.Warnings)
	}
}

func TestFilesThatCannotBeRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	big := filepath.Join(dir, "big.yaml")
	if err := os.WriteFile(big, bytes.Repeat([]byte("# a comment of forty characters, no more\n"), 10<<20/41), 0o600); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(dir, "empty.yaml")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "binary.yaml")
	if err := os.WriteFile(binary, []byte("budget:\x00\x01"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		dir:                             "is a directory",
		big:                             "above 4194304 bytes",
		empty:                           "is empty: tba init",
		binary:                          "zero bytes",
		filepath.Join(dir, "nowhere.y"): "tba init writes",
		os.DevNull:                      "not a regular file",
	} {
		if _, err := Load(path); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	if _, err := Load(filepath.Join(dir, "nowhere.y")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("not the cause: %v", err)
	}
	if os.Getuid() != 0 { // root reads everything
		closed := filepath.Join(dir, "closed.yaml")
		if err := os.WriteFile(closed, []byte("budget: {}"), 0o000); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(closed); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("unreadable: %v", err)
		}
	}
}

func TestPolicyTooLarge(t *testing.T) {
	t.Parallel()
	agents := func(n int, name func(int) string) string {
		var b strings.Builder
		b.WriteString("budget:\n  providers: {openai: {rpm_ceiling: 5}}\n  agents:\n")
		for i := range n {
			fmt.Fprintf(&b, "    %s: {limit_tokens: 5}\n", name(i))
		}
		return b.String()
	}
	r := rand.New(rand.NewPCG(1, 2))
	for what, text := range map[string]string{
		"the bound is 1048576": agents(30_000, func(i int) string { return fmt.Sprintf("agent-%d", i) }),
		"bytes compressed":     agents(9_000, func(int) string { return fmt.Sprintf("a%016x%016x", r.Uint64(), r.Uint64()) }),
	} {
		_, err := LoadBytes("large.yaml", []byte(text))
		if err == nil || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), "[policy-size]") || !strings.Contains(err.Error(), "large.yaml:1:1") {
			t.Errorf("%s: %.300v", what, err)
		}
	}
}

func TestAliasBomb(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := 1; i < 12; i++ {
		fmt.Fprintf(&b, "a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 10), ", "))
	}
	b.WriteString("auth: {keys: [{classes: *a11}]}\nbudget: {providers: {openai: {}}}\n")
	if _, err := LoadBytes("bomb.yaml", []byte(b.String())); err == nil {
		t.Fatal("accepted")
	}
	deep := strings.Repeat("[", 5000) + strings.Repeat("]", 5000)
	if _, err := LoadBytes("deep.yaml", []byte("auth: {keys: "+deep+"}")); err == nil {
		t.Fatal("accepted")
	}
}

func TestSecretsNeverPrint(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte("  canary-value\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := must(t, "budget: {providers: {openai: {api_key: {file: "+file+"}}}}")
	s := c.Pools[0].Upstreams[0].APIKey
	if v, err := s.Value(); err != nil || v != "canary-value" {
		t.Fatalf("%q, %v", v, err)
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "%v %+v %#v %s %q ", s, c.Pools[0].Upstreams, s, s, s)
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "secret", s, "upstream", c.Pools[0].Upstreams)
	if err := json.NewEncoder(&out).Encode(c.Pools[0].Upstreams); err != nil {
		t.Fatal(err)
	}
	for _, v := range c.Values() {
		fmt.Fprintln(&out, v)
	}
	if strings.Contains(out.String(), "canary") || strings.Contains(out.String(), file) || !strings.Contains(out.String(), "***") {
		t.Errorf("printed %s", out.String())
	}
	policy, err := json.Marshal(c.Pools[0].Policy)
	if err != nil || bytes.Contains(policy, []byte(file)) {
		t.Error("the policy knows where the secret is")
	}
	for _, s := range []Secret{{}, {env: "TBA_TEST_NOT_SET"}, {file: file + ".none"}, {file: filepath.Dir(file)}} {
		if v, err := s.Value(); err == nil || v != "" {
			t.Errorf("%s: %q, %v", s.Where(), v, err)
		}
	}
	if _, err := (Secret{env: "TBA_TEST_NOT_SET"}).Value(); !errors.Is(err, ErrNoSecret) || !strings.Contains(err.Error(), "TBA_TEST_NOT_SET") {
		t.Errorf("%v", err)
	}
}
