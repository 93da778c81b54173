package ops

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestGatewayMetrics(t *testing.T) {
	t.Parallel()
	s := New("v", nil)
	defer s.Close()
	g := s.Gateway()
	g.Know(map[string]map[string]bool{"openai": {"gpt-5.4": true}, "search": {}})
	g.Called("chat", "ok")
	for status, n := range map[int]int{200: 3, 204: 1, 429: 2, 404: 1, 529: 1, 0: 1, 999: 1} {
		for range n {
			g.Answered("openai", "gpt-5.4", status)
		}
	}
	g.Answered("search", "", 200)
	g.Answered("openai", "no-such-model", 200)
	g.Answered("no-such-provider", "gpt-5.4", 200)
	g.Throttled("openai", "rpm")
	g.Throttled("elsewhere", "")
	g.FailedOver("openai")
	g.Overhead(300 * time.Microsecond)
	g.FirstByte(2 * time.Second)
	g.Estimated("openai", 100, 120)
	g.Estimated("openai", 0, 5)
	g.Draining(1)
	_, page := get(t, s, "/metrics")
	if sample(t, page, "tba_gateway_drains") != 1 {
		t.Error("a drain that runs is not told")
	}
	g.Draining(0)
	_, page = get(t, s, "/metrics")
	for series, want := range map[string]float64{
		`tba_gateway_calls_total{endpoint="chat",outcome="ok"}`:                       1,
		`tba_upstream_responses_total{code="2xx",model="gpt-5.4",provider="openai"}`:  4,
		`tba_upstream_responses_total{code="429",model="gpt-5.4",provider="openai"}`:  2,
		`tba_upstream_responses_total{code="4xx",model="gpt-5.4",provider="openai"}`:  1,
		`tba_upstream_responses_total{code="5xx",model="gpt-5.4",provider="openai"}`:  1,
		`tba_upstream_responses_total{code="none",model="gpt-5.4",provider="openai"}`: 2,
		`tba_upstream_responses_total{code="2xx",model="",provider="search"}`:         1,
		`tba_upstream_responses_total{code="2xx",model="_other",provider="openai"}`:   1,
		`tba_upstream_responses_total{code="2xx",model="_other",provider="_other"}`:   1,
		`tba_upstream_throttled_total{dimension="rpm",provider="openai"}`:             1,
		`tba_upstream_throttled_total{dimension="",provider="_other"}`:                1,
		`tba_failovers_total{provider="openai"}`:                                      1,
		`tba_gateway_overhead_seconds_bucket{le="0.00025"}`:                           0,
		`tba_gateway_overhead_seconds_bucket{le="0.0005"}`:                            1,
		`tba_gateway_first_byte_seconds_bucket{le="2.5"}`:                             1,
		`tba_estimate_ratio_count{provider="openai"}`:                                 1,
		`tba_estimate_ratio_sum{provider="openai"}`:                                   1.2,
		`tba_gateway_drains`: 0,
	} {
		if got := sample(t, page, series); got != want {
			t.Errorf("%s: %v, want %v", series, got, want)
		}
	}
}

// TestGatewaySeriesStayFew: what callers write into their requests makes no series.
func TestGatewaySeriesStayFew(t *testing.T) {
	t.Parallel()
	s := New("v", nil)
	defer s.Close()
	g := s.Gateway()
	g.Know(map[string]map[string]bool{"openai": {"gpt-5.4": true}})
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 200 {
				g.Answered("openai", fmt.Sprint("model-", i, "-", j), 200)
				g.Answered(fmt.Sprint("provider-", i, "-", j), "gpt-5.4", 200)
				g.FailedOver(fmt.Sprint("provider-", i, "-", j))
			}
		})
	}
	all.Wait()
	_, page := get(t, s, "/metrics")
	if n := strings.Count(page, "\ntba_upstream_responses_total{"); n != 2 {
		t.Errorf("%d series", n)
	}
	if sample(t, page, `tba_upstream_responses_total{code="2xx",model="_other",provider="openai"}`) != 1600 {
		t.Error("calls are lost")
	}
}
