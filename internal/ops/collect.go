package ops

import (
	"context"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/engine"
)

// metric is a description with its type.
type metric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

func counter(name, help string, labels ...string) metric {
	return metric{prometheus.NewDesc("tba_"+name, help, labels, nil), prometheus.CounterValue}
}

func gauge(name, help string, labels ...string) metric {
	return metric{prometheus.NewDesc("tba_"+name, help, labels, nil), prometheus.GaugeValue}
}

// The metrics. Labels come from closed sets: pools, providers, models and classes of the file, and words of the program. Agents, tasks and
// workflows are never labels: the API lists them.
var (
	buildInfo = gauge("build_info", "Always 1; the version is the label.", "version")

	requests       = counter("lease_requests_total", "Decided requests by outcome (granted, deferred, denied) and the reason of the refusal. In shadow mode a grant carries the reason that would have refused.", "pool", "outcome", "reason")
	decisions      = counter("decisions_total", "Answered commands.", "pool")
	decisionErrors = counter("decision_errors_total", "Answered commands that ended in an error.", "pool")
	leases         = gauge("leases", "Leases by phase, ended ones as long as they are remembered.", "pool", "phase")
	active         = gauge("leases_active", "Running leases.", "pool")
	expired        = counter("leases_expired_total", "Leases whose holder fell silent.", "pool")
	events         = counter("events_total", "Events by type.", "pool", "type")
	eventsMissed   = counter("events_missed_total", "Events that left the ring before they were counted here.", "pool")
	unattributed   = counter("unattributed_tokens_total", "Tokens committed after commit_by, in no budget.", "pool")

	tokens = gauge("budget_tokens", "Tokens of a budget in the open period, by state (limit, spent, held, assumed). No limit: no such row.", "pool", "kind", "provider", "model", "class", "state")
	cost   = gauge("budget_usd", "Money of a budget in the open period in US dollars, by state (limit, spent, held, assumed).", "pool", "kind", "provider", "model", "class", "state")
	calls  = gauge("budget_leases", "Leases granted from a budget in the open period.", "pool", "kind", "provider", "model", "class")

	headroom  = gauge("headroom_ratio", "Free part of the tightest limit of a model, 0 while it is held or open.", "pool", "provider", "model")
	rate      = gauge("rate_limit", "A ceiling by state (ceiling, used, held): requests or tokens a minute, requests a day, running calls.", "pool", "provider", "model", "dimension", "state")
	breaker   = gauge("breaker_state", "1 for the state that the breaker of a model is in.", "pool", "provider", "model", "state")
	throttled = counter("provider_throttled_total", "429 answers of providers.", "pool", "provider", "model", "dimension")
	latency   = gauge("provider_latency_seconds", "Learned call time by quantile.", "pool", "provider", "model", "quantile")

	level       = gauge("backpressure_level", "0 NONE, 1 MILD, 2 MODERATE, 3 SEVERE, 4 CRITICAL.", "pool")
	delay       = gauge("backpressure_delay_seconds", "Recommended delay before a call.", "pool")
	subscribers = gauge("backpressure_subscribers", "Open subscriptions.", "pool")

	queue  = gauge("queue_waiting", "Requests that wait for room.", "pool", "class", "priority")
	oldest = gauge("queue_oldest_wait_seconds", "Longest wait of those that wait now.", "pool", "class", "priority")
	inbox  = gauge("inbox_commands", "Commands that no batch has taken yet.", "pool")

	batches    = counter("batches_total", "Rounds of the writer that decided something.", "pool")
	entries    = counter("journal_entries_total", "Appended entries.", "pool")
	conflicts  = counter("journal_conflicts_total", "Appends that another writer was faster than.", "pool")
	resends    = counter("journal_resends_total", "Appends that had to be sent again.", "pool")
	voided     = counter("grants_voided_total", "Grants that reached nobody and were given back.", "pool")
	position   = gauge("journal_sequence", "Sequence of the last applied entry.", "pool")
	silent     = gauge("journal_silent", "1 while the journal does not answer.", "pool")
	full       = gauge("journal_full", "1 while the journal has no room for grants.", "pool")
	broken     = gauge("invariant_broken", "1 when a broken invariant stops grants until an operator looks.", "pool")
	snapshots  = counter("snapshots_total", "Saved snapshots.", "pool")
	snapshotSz = gauge("snapshot_bytes", "Size of the last snapshot.", "pool")

	reloaded     = counter("config_reloads_total", "Loads of the configuration file after the start, by result (ok, failed).", "result")
	reloadBroken = gauge("config_reload_failed", "1 when the last load failed and the configuration before it is in force.")
	reloadLast   = gauge("config_last_reload_timestamp_seconds", "When the configuration was last loaded after the start; 0 never.")

	appendSeconds = prometheus.NewDesc("tba_journal_append_seconds", "Time until the outcome of an append was known.", nil, nil)
)

var all = []metric{
	buildInfo, requests, decisions, decisionErrors, leases, active, expired, events, eventsMissed, unattributed, tokens, cost, calls, headroom, rate,
	breaker, throttled, latency, level, delay, subscribers, queue, oldest, inbox, batches, entries, conflicts, resends, voided, position, silent, full,
	broken, snapshots, snapshotSz, reloaded, reloadBroken, reloadLast,
}

// collector makes the metrics at each scrape.
type collector struct {
	server  *Server
	version string
}

// Describe lists the metrics.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, m := range all {
		out <- m.desc
	}
	out <- appendSeconds
}

// viewPatience bounds how long a scrape waits for a pool's state: its counters need none.
const viewPatience = 2 * time.Second

// Collect reads counters and state.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	g := gather{out}
	s := c.server
	g.put(buildInfo, 1, c.version)
	count, sum, buckets := s.appends.read()
	out <- prometheus.MustNewConstHistogram(appendSeconds, count, sum, buckets)
	g.put(reloaded, float64(s.reloads.ok.Load()), "ok")
	g.put(reloaded, float64(s.reloads.failed.Load()), "failed")
	g.put(reloadBroken, truth(s.reloads.broken.Load()))
	g.put(reloadLast, float64(s.reloads.last.Load())/1e9)
	source := s.source.Load()
	if source == nil {
		return
	}
	for _, p := range source.Stats() {
		g.stats(&p)
		for _, w := range source.Waiting(p.Pool) {
			g.put(queue, float64(w.Count), p.Pool, w.Class, w.Priority.String())
			g.put(oldest, w.Oldest.Seconds(), p.Pool, w.Class, w.Priority.String())
		}
		ctx, cancel := context.WithTimeout(s.ctx, viewPatience)
		if err := source.View(ctx, p.Pool, func(st *arbiter.State) error {
			g.state(p.Pool, st)
			return nil
		}); err != nil {
			s.log.Warn("metrics without the state of a pool", "pool", p.Pool, "error", err)
		}
		cancel()
		g.events(p.Pool, &s.counted)
	}
}

type gather struct{ out chan<- prometheus.Metric }

func (g gather) put(m metric, value float64, labels ...string) {
	g.out <- prometheus.MustNewConstMetric(m.desc, m.kind, value, labels...)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func (g gather) stats(p *engine.PoolStats) {
	for status := range p.Requests {
		for reason, n := range p.Requests[status] {
			if n > 0 || reason == 0 && arbiter.Status(status) == arbiter.Granted {
				g.put(requests, float64(n), p.Pool, strings.ToLower(arbiter.Status(status).String()), arbiter.Reason(reason).String())
			}
		}
	}
	for m, n := range map[*metric]int64{
		&decisions: p.Decisions, &decisionErrors: p.Failed, &active: p.Running, &subscribers: p.Subscribers, &inbox: int64(p.Inbox),
		&batches: p.Batches, &entries: p.Entries, &conflicts: p.Conflicts, &resends: p.Resends, &voided: p.Voided,
		&snapshots: p.Snapshots, &snapshotSz: p.SnapshotBytes,
	} {
		g.put(*m, float64(n), p.Pool)
	}
	g.put(position, float64(p.Seq), p.Pool)
	g.put(silent, truth(p.JournalSilent), p.Pool)
	g.put(full, truth(p.Full), p.Pool)
	g.put(broken, truth(p.InvariantBroken), p.Pool)
}

func (g gather) state(pool string, st *arbiter.State) {
	pressure := st.Pressure()
	g.put(level, float64(pressure.Level), pool)
	g.put(delay, float64(pressure.DelayMS)/1000, pool)
	counts := st.Counts()
	for phase, n := range counts.Phases {
		if phase != int(arbiter.PhaseNone) {
			g.put(leases, float64(n), pool, strings.ToLower(arbiter.Phase(phase).String()))
		}
	}
	g.put(unattributed, float64(counts.UnattributedTokens), pool)
	rungs := st.RungRows()
	for i := range rungs {
		g.rung(pool, &rungs[i])
	}
	st.EachBudget(0, func(b *arbiter.BudgetRow) { g.budget(pool, b) }, arbiter.KindGlobal, arbiter.KindProvider, arbiter.KindModel, arbiter.KindClass)
}

func (g gather) rung(pool string, r *arbiter.RungRow) {
	g.put(headroom, part(r.Headroom), pool, r.Provider, r.Model)
	for _, state := range []arbiter.BreakerState{arbiter.BreakerClosed, arbiter.BreakerOpen, arbiter.BreakerProbing} {
		g.put(breaker, truth(r.Breaker == state), pool, r.Provider, r.Model, state.String())
	}
	if r.Calls > 0 {
		g.put(latency, float64(r.P50)/float64(arbiter.Second), pool, r.Provider, r.Model, "0.5")
		g.put(latency, float64(r.P99)/float64(arbiter.Second), pool, r.Provider, r.Model, "0.99")
	}
	seen := map[string]bool{} // a provider's and a model's ceiling of one dimension: the tighter one stands for both
	for i := range r.Gauges {
		d := r.Gauges[i].Dim.String()
		if seen[d] {
			continue
		}
		seen[d] = true
		tight := &r.Gauges[i]
		for j := i + 1; j < len(r.Gauges); j++ {
			if r.Gauges[j].Dim == tight.Dim && r.Gauges[j].Headroom < tight.Headroom {
				tight = &r.Gauges[j]
			}
		}
		g.put(rate, float64(tight.Ceiling), pool, r.Provider, r.Model, d, "ceiling")
		g.put(rate, float64(tight.Used), pool, r.Provider, r.Model, d, "used")
		g.put(rate, float64(tight.Held), pool, r.Provider, r.Model, d, "held")
	}
}

func part(f arbiter.PPM) float64 { return float64(f) / float64(arbiter.Whole) }

// budget tells a row of a closed set; agents, workflows, tasks and credentials are not.
func (g gather) budget(pool string, b *arbiter.BudgetRow) {
	labels := []string{pool, b.Kind.String(), "", "", ""}
	switch b.Kind {
	case arbiter.KindGlobal:
	case arbiter.KindProvider:
		labels[2] = b.Name
	case arbiter.KindModel:
		labels[2], labels[3] = b.Parent, b.Name
	case arbiter.KindClass:
		labels[4] = b.Name
	default:
		return
	}
	m, scale := tokens, 1.0
	if b.Unit == arbiter.UnitNanos {
		m, scale = cost, 1e9
	} else {
		g.put(calls, float64(b.Calls), labels...)
	}
	if b.Limit != arbiter.Unlimited {
		g.put(m, float64(b.Limit)/scale, append(labels, "limit")...)
	}
	g.put(m, float64(b.Spent)/scale, append(labels, "spent")...)
	g.put(m, float64(b.Held)/scale, append(labels, "held")...)
	g.put(m, float64(b.Assumed)/scale, append(labels, "assumed")...)
}

func (g gather) events(pool string, c *counted) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, n := range c.events {
		if k.pool == pool {
			g.put(events, float64(n), pool, k.kind.String())
		}
	}
	for k, n := range c.throttled {
		if k.pool == pool {
			g.put(throttled, float64(n), pool, k.provider, k.model, k.dim.String())
		}
	}
	g.put(expired, float64(c.events[eventKey{pool, arbiter.EventLeaseExpired}]), pool)
	g.put(eventsMissed, float64(c.missed[pool]), pool)
}
