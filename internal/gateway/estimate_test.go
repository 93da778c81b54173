package gateway

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/catalog"
	"github.com/token-budget-arbiter/tba/internal/provider"
)

// billed is a settled call: estimated at some input, billed at another, with an output.
func billed(e *estimator, class, model string, estimated, input, output int64) {
	x := &exchange{asked: model, estimated: estimated, ask: &Ask{Class: class}}
	e.observe(x, &provider.Usage{Usage: arbiter.Usage{Input: arbiter.Tokens(input), Output: arbiter.Tokens(output)}})
}

// ratioOf is what was learned, seen through an estimate.
func ratioOf(e *estimator, model string) float64 {
	return float64(e.input(model, 1_000_000)) / 1_000_000
}

// Whatever is billed: the ratio keeps its bounds, and no single call moves it by more than a twentieth of the way to the farther one.
func TestRatioKeepsItsBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		e := newEstimator()
		model := rapid.SampledFrom([]string{"gpt-5.4", "claude-opus-5-5"}).Draw(t, "model")
		for range rapid.IntRange(1, 50).Draw(t, "calls") {
			before := ratioOf(e, model)
			estimated := rapid.OneOf(rapid.Int64Range(0, 10), rapid.Int64Range(0, 2_000_000)).Draw(t, "estimated")
			input := rapid.OneOf(rapid.Int64Range(0, 10), rapid.Int64Range(0, 2_000_000), rapid.Just(int64(arbiter.MaxAmount))).Draw(t, "billed")
			billed(e, "", model, estimated, input, 0)
			after := ratioOf(e, model)
			const rounding = 2e-6
			if after < minRatio-rounding || after > maxRatio+rounding {
				t.Fatalf("ratio %v", after)
			}
			if after > before+ratioWeight*(maxRatio-before)+rounding || after < before-ratioWeight*(before-minRatio)-rounding {
				t.Fatalf("one call of %d for %d moved it from %v to %v", input, estimated, before, after)
			}
			if (estimated == 0 || input == 0) && math.Abs(after-before) > rounding {
				t.Fatalf("a call of %d for %d says nothing, but moved it from %v to %v", input, estimated, before, after)
			}
		}
	})
}

func TestRatioConverges(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		e := newEstimator()
		percent := rapid.Int64Range(1, 1000).Draw(t, "billed of estimated, percent")
		want := min(max(float64(percent)/100, minRatio), maxRatio)
		for range 200 {
			billed(e, "", "gpt-5.4", 10_000, 100*percent, 0)
		}
		if got := ratioOf(e, "gpt-5.4"); math.Abs(got-want) > 0.01*want {
			t.Fatalf("after 200 calls %v, want %v", got, want)
		}
		if got := ratioOf(e, "gpt-5.4-mini"); got != 1 {
			t.Fatalf("another model learned with it: %v", got)
		}
	})
}

// What a call continues is on its bill and not in its body: such a bill says nothing about the estimate. Its answer is like any other.
func TestCallsThatContinueTeachNoRatio(t *testing.T) {
	t.Parallel()
	e := newEstimator()
	x := &exchange{asked: "gpt-5.4", estimated: 10, ask: &Ask{}, call: provider.Call{Continues: true}}
	for range 100 {
		e.observe(x, &provider.Usage{Usage: arbiter.Usage{Input: 100_000, Output: 10}})
	}
	if got := ratioOf(e, "gpt-5.4"); got != 1 {
		t.Errorf("ratio %v", got)
	}
	if got := e.output("", "gpt-5.4", 4096, 50, 0); got > 20 {
		t.Errorf("output %d", got)
	}
}

// Names come from callers: there are never more of them than maxLearned, and those that are known go on learning.
func TestLearnedNamesAreBounded(t *testing.T) {
	t.Parallel()
	e := newEstimator()
	for n := range 2 * maxLearned {
		billed(e, "class", "model-"+strconv.Itoa(n), 100, 200, 10)
	}
	if len(e.ratios) != maxLearned || len(e.outputs) != maxLearned {
		t.Errorf("%d ratios, %d outputs", len(e.ratios), len(e.outputs))
	}
	last := "model-" + strconv.Itoa(2*maxLearned-1)
	if got := ratioOf(e, last); got != 1 {
		t.Errorf("a model beyond the bound has the ratio %v", got)
	}
	for range 100 {
		billed(e, "class", "model-0", 1000, 2000, 10)
	}
	if got := ratioOf(e, "model-0"); math.Abs(got-2) > 0.02 {
		t.Errorf("a known model stopped to learn: %v", got)
	}
}

// The learned output is the 95th percentile, above by at most the width of a bucket, and never above the cap.
func TestLearnedOutputIsThePercentile(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		e, limit := newEstimator(), rapid.Int64Range(1, 200_000).Draw(t, "cap")
		all := rapid.SliceOfN(rapid.Int64Range(0, 128_000), 1, 300).Draw(t, "outputs")
		least := rapid.Int64Range(1, 300).Draw(t, "least calls")
		buffer := rapid.Float64Range(0, 1).Draw(t, "buffer")
		for i, n := range all {
			if int64(i) < least {
				if got := e.output("c", "m", limit, least, buffer); got != limit {
					t.Fatalf("after %d of %d calls: %d, want the cap %d", i, least, got, limit)
				}
			}
			billed(e, "c", "m", 100, 100, n)
		}
		got := e.output("c", "m", limit, least, buffer)
		if int64(len(all)) < least {
			if got != limit {
				t.Fatalf("%d, want the cap %d", got, limit)
			}
			return
		}
		slices.Sort(all)
		p95 := float64(max(all[int(math.Ceil(0.95*float64(len(all))))-1], 1)) * (1 + buffer)
		low, high := math.Min(p95, float64(limit)), math.Min(p95*math.Exp2(1.0/8)+2+buffer, float64(limit))
		if float64(got) < math.Floor(low) || float64(got) > math.Ceil(high) {
			t.Fatalf("%d, want %v to %v; cap %d, outputs %v", got, low, high, limit, all)
		}
		if other := e.output("another", "m", limit, least, buffer); other != limit {
			t.Fatalf("another class learned with it: %d", other)
		}
	})
}

// What was usual long ago is forgotten.
func TestLearnedOutputFollowsTheTimes(t *testing.T) {
	t.Parallel()
	e := newEstimator()
	for range 5 * halveAfter {
		billed(e, "", "m", 100, 100, 8000)
	}
	for n := 1; ; n++ {
		billed(e, "", "m", 100, 100, 100)
		if e.output("", "m", 1<<20, 50, 0) < 200 {
			t.Logf("after %d calls", n)
			break
		}
		if n > 6*halveAfter {
			t.Fatalf("%d after %d calls of 100", e.output("", "m", 1<<20, 50, 0), n)
		}
	}
}

var claudeVersion = regexp.MustCompile(`claude-(?:instant-|[a-z]+-)?(\d+)(?:[-.](\d{1,2})(?:\D|$))?`)

// The first ratio of each Claude: those of version 4.7 and later have the new tokenizer.
func TestFirstRatioOfClaude(t *testing.T) {
	t.Parallel()
	names := []string{
		"claude-2.1", "claude-instant-1.2", "claude-3-haiku-20240307", "claude-3-5-sonnet-20241022", "claude-3-7-sonnet-latest",
		"claude-sonnet-4-20250514", "claude-opus-4-0", "claude-opus-4-1-20250805", "claude-haiku-4-5-20251001", "claude-opus-4-7-20260401",
		"us.anthropic.claude-sonnet-4-5-20250929-v1:0", "anthropic/claude-sonnet-5", "claude-haiku-5-5-20261007",
	}
	for _, m := range catalog.Embedded().Models() {
		names = append(names, m.ID)
	}
	seen := 0
	for _, name := range names {
		want := 1.0
		if m := claudeVersion.FindStringSubmatch(name); m != nil {
			seen++
			major, _ := strconv.Atoi(m[1])
			minor, _ := strconv.Atoi(m[2])
			if major > 4 || major == 4 && minor >= 7 {
				want = 1.35
			}
		} else if strings.Contains(name, "claude") {
			t.Errorf("%s: no version in it", name)
		}
		if got := firstRatio(name); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if seen < 25 {
		t.Errorf("only %d of them", seen)
	}
	if got := newEstimator().input("claude-opus-5-5", 100); got != 135 {
		t.Errorf("an estimate of 100 is %d", got)
	}
}
