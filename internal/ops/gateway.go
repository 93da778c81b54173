package ops

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// OtherName stands in a label for a name that the configuration does not know: callers and providers choose those.
const OtherName = "_other"

// Gateway counts what passes the gateway. Its methods are called for each call and may be called by any number of goroutines. Names of
// providers and models that are not known (see Know) are counted as [OtherName]; the other labels are words of the program.
type Gateway struct {
	known atomic.Pointer[map[string]map[string]bool]

	calls, responses, throttled, failovers *prometheus.CounterVec
	overhead, firstByte                    prometheus.Histogram
	estimate                               *prometheus.HistogramVec
	drains                                 prometheus.Gauge
}

// Gateway registers the gateway's metrics and returns their counters. Call it once.
func (s *Server) Gateway() *Gateway {
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "tba_" + name, Help: help}, labels)
	}
	seconds := func(name, help string, bounds []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: "tba_" + name, Help: help, Buckets: bounds})
	}
	g := &Gateway{
		calls:     vec("gateway_calls_total", "Calls of agents by endpoint and outcome.", "endpoint", "outcome"),
		responses: vec("upstream_responses_total", "Answers of providers to single tries, by code class; 429 is a class of its own, none is no answer at all.", "provider", "model", "code"),
		throttled: vec("upstream_throttled_total", "429 answers of providers, by the limit that they name.", "provider", "dimension"),
		failovers: vec("failovers_total", "Tries that went to another rung after one had failed, by the provider that had.", "provider"),
		overhead:  seconds("gateway_overhead_seconds", "What the gateway adds to a call: its time without the provider's and without the wait for room.", []float64{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5}),
		firstByte: seconds("gateway_first_byte_seconds", "Time from the start of a try to the first byte of its answer.", []float64{0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300}),
		estimate: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tba_estimate_ratio", Help: "Billed input tokens of a call divided by their estimate.", Buckets: []float64{0.25, 0.5, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2, 4},
		}, []string{"provider"}),
		drains: prometheus.NewGauge(prometheus.GaugeOpts{Name: "tba_gateway_drains", Help: "Answers that are read on although their client has left."}),
	}
	g.Know(nil)
	s.registry.MustRegister(g.calls, g.responses, g.throttled, g.failovers, g.overhead, g.firstByte, g.estimate, g.drains)
	return g
}

// Know replaces the providers and models that may stand in labels.
func (g *Gateway) Know(models map[string]map[string]bool) { g.known.Store(&models) }

// names are the labels of a rung. The empty model, a provider's default, is a name too.
func (g *Gateway) names(provider, model string) (string, string) {
	models, ok := (*g.known.Load())[provider]
	if !ok {
		return OtherName, OtherName
	}
	if model != "" && !models[model] {
		model = OtherName
	}
	return provider, model
}

// Called counts a call of an agent that has ended.
func (g *Gateway) Called(endpoint, outcome string) { g.calls.WithLabelValues(endpoint, outcome).Inc() }

// Answered counts a provider's answer to one try; status 0 is none.
func (g *Gateway) Answered(provider, model string, status int) {
	provider, model = g.names(provider, model)
	g.responses.WithLabelValues(provider, model, codeClass(status)).Inc()
}

// codeClass is 2xx to 5xx, 429 or none.
func codeClass(status int) string {
	switch {
	case status == 429:
		return "429"
	case status < 100 || status > 599:
		return "none"
	}
	return strconv.Itoa(status/100) + "xx"
}

// Throttled counts a 429 answer; dimension is the limit it names, "" for none.
func (g *Gateway) Throttled(provider, dimension string) {
	provider, _ = g.names(provider, "")
	g.throttled.WithLabelValues(provider, dimension).Inc()
}

// FailedOver counts a try at another rung after the one at this provider had failed.
func (g *Gateway) FailedOver(provider string) {
	provider, _ = g.names(provider, "")
	g.failovers.WithLabelValues(provider).Inc()
}

// Overhead observes what the gateway itself added to a call.
func (g *Gateway) Overhead(d time.Duration) { g.overhead.Observe(d.Seconds()) }

// FirstByte observes the time until an answer began.
func (g *Gateway) FirstByte(d time.Duration) { g.firstByte.Observe(d.Seconds()) }

// Estimated observes a bill beside its estimate, both tokens of input. Nothing is observed when there was nothing to estimate.
func (g *Gateway) Estimated(provider string, estimate, billed int64) {
	if estimate <= 0 || billed < 0 {
		return
	}
	provider, _ = g.names(provider, "")
	g.estimate.WithLabelValues(provider).Observe(float64(billed) / float64(estimate))
}

// Draining tells how many answers are read on now.
func (g *Gateway) Draining(n int64) { g.drains.Set(float64(n)) }
