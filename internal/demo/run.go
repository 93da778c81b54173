package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/token-budget-arbiter/tba/client"
	"github.com/token-budget-arbiter/tba/internal/mockprovider"
)

// Options say where the fleet runs and for how long.
type Options struct {
	// Arbiter is the gRPC address. Required.
	Arbiter string
	// Gateway is the base URL of the gateway, without a path: every second pair of agents calls it instead of leasing with the
	// SDK, and two providers fail for a while. "" leaves both out.
	Gateway string
	// Mocks are the providers, started with Scale.MockOptions. Required.
	Mocks *mockprovider.Server
	// Scale is the budget in force at the arbiter (Scale.PolicyYAML). Required.
	Scale Scale
	// For is how long calls are begun; 0 is until ctx ends. Calls under way are finished after it.
	For time.Duration
	// CallsPerSecond is the mean rate at which the trace is replayed in busy times; 0 is 60.
	CallsPerSecond float64
	// Seed decides which agent gets which call.
	Seed uint64
	// Live gets a line a second; nil is silent.
	Live io.Writer
	// OpenLeases asks the arbiter how many leases are open; nil counts those that the fleet has not ended.
	OpenLeases func(context.Context) (int64, error)
	// Dial are further options of the SDK.
	Dial []client.Option
}

const (
	defaultRate = 60
	// backlog bounds the calls that an agent puts off; the trace has bursts of hundreds of calls a second.
	backlog = 64
)

// Run lets the fleet work and returns what came of it. The error says that the fleet could not run, that ctx ended
// before For did, or what Summary.Check finds; the summary is filled in as far as the run came. A run without end
// (For 0) ends with ctx, without an error and without Check.
func Run(ctx context.Context, o Options) (Summary, error) {
	if o.Mocks == nil || o.Arbiter == "" || len(o.Scale.Ceilings) == 0 || o.For < 0 || o.CallsPerSecond < 0 {
		return Summary{}, errors.New("run demo: options need Arbiter, Mocks and Scale, and no negative time or rate")
	}
	rows, err := readTrace(sample)
	if err != nil {
		return Summary{}, fmt.Errorf("run demo: %w", err)
	}
	if o.CallsPerSecond == 0 {
		o.CallsPerSecond = defaultRate
	}
	if o.Live == nil {
		o.Live = io.Discard
	}
	r := &run{Options: o, tally: newTally(), caller: newCaller(o.Mocks.URL)}
	defer r.caller.close()
	if o.Gateway != "" {
		r.door = newDoor(o.Gateway, r.tally)
		defer r.door.close()
	}
	dial := append([]client.Option{client.WithGRPC(tap{r.tally}.options()...)}, o.Dial...)
	r.client, err = client.Dial(o.Arbiter, dial...)
	if err != nil {
		return Summary{}, fmt.Errorf("run demo: %w", err)
	}
	defer r.client.Close()
	return r.run(ctx, rows)
}

type run struct {
	Options
	tally   *tally
	caller  *caller
	door    *door // nil without a gateway
	client  *client.Client
	workers []*worker
	began   time.Time
}

func (r *run) run(ctx context.Context, rows []row) (Summary, error) {
	members := fleet()
	for i, m := range members {
		agent, err := client.NewAgent(r.client, client.AgentOptions{ID: m.id, Class: m.class, OnConsumption: r.spent})
		if err != nil {
			return Summary{}, fmt.Errorf("run demo: %w", err)
		}
		defer agent.Close()
		w := &worker{member: m, agent: agent, queue: make(chan job, backlog), waits: i%2 == 0}
		if r.door != nil && i%4 < 2 {
			if err := w.through(r.door, i%4 == 1); err != nil {
				return Summary{}, fmt.Errorf("run demo: %w", err)
			}
		}
		r.workers = append(r.workers, w)
	}
	fmt.Fprintf(r.Live, "%d agents of %d classes, %d providers. %s\n", len(members), len(plans), len(r.Scale.Ceilings), Attribution)
	r.began = time.Now()
	var end time.Time
	issuing, stop := context.WithCancel(ctx)
	defer stop()
	if r.For > 0 {
		end = r.began.Add(r.For)
		var cancel context.CancelFunc
		issuing, cancel = context.WithDeadline(issuing, end)
		defer cancel()
	}
	var group sync.WaitGroup
	for _, w := range r.workers {
		group.Go(func() { w.work(ctx, r.began, end, r.caller, r.tally) })
	}
	group.Go(func() { r.live(issuing) })
	if r.door != nil {
		group.Go(func() { r.disturb(issuing) })
	}
	r.dispatch(issuing, newSchedule(rows, members, r.Seed, r.CallsPerSecond))
	group.Wait()
	return r.summarise(ctx)
}

// dispatch hands the calls of the trace to the agents when their time has come, and closes the queues at the end.
func (r *run) dispatch(ctx context.Context, s *schedule) {
	defer func() {
		for _, w := range r.workers {
			close(w.queue)
		}
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		j := s.take()
		timer.Reset(time.Until(r.began.Add(j.at)))
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		select {
		case r.workers[j.agent].queue <- j:
		default: // an agent that is this far behind drops the call
			r.tally.add(&r.tally.gaveUp, 1)
		}
	}
}

func (r *run) spent(s client.Spend) {
	if s.Err == nil {
		r.tally.add(&r.tally.committed, s.Receipt.Tokens)
	}
}

// live prints a line a second.
func (r *run) live(ctx context.Context) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	var before counts
	base, period := int64(0), int64(1) // what was used before the current budget period, and its number
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := r.tally.counts()
		var answered429, running, used int64
		for _, p := range r.Mocks.Report() {
			answered429 += p.Answered429()
			used += p.Used()
			running += p.Running()
		}
		if n := r.Scale.periods(r.began, time.Now()); n != period {
			base, period = used, n
		}
		fmt.Fprintf(r.Live, "%4.0fs  granted %d (+%d)  running %d  deferred %d  denied %d  [%s]  level %s  budget %.0f%%%s  429s %d\n",
			time.Since(r.began).Seconds(), now.granted, now.granted-before.granted, running, now.deferred, now.denied,
			reasons(now.refusedBy), r.level(), 100*float64(used-base)/float64(r.Scale.GlobalTokens),
			r.Scale.renewal(time.Now()), answered429)
		before = now
	}
}

// open counts the open leases when all are settled. The SDK says when its commits are done; the gateway's are on their way when
// an answer ends, and are waited for.
func (r *run) open(ctx context.Context) (n int64, err error) {
	const every, atMost = 20 * time.Millisecond, 100
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for range atMost {
		if n, err = r.OpenLeases(ctx); n == 0 || err != nil || r.door == nil {
			return n, err
		}
		<-ticker.C
	}
	return n, nil
}

// level is what an agent with the SDK is told of the pool.
func (r *run) level() client.Level {
	for _, w := range r.workers {
		if w.door == nil {
			return w.agent.Level()
		}
	}
	return r.workers[0].agent.Level()
}

func (r *run) summarise(ctx context.Context) (Summary, error) {
	// The fleet is done; what is left must not depend on a context that may have ended.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	flushed := r.client.Flush(last)
	c := r.tally.counts()
	s := Summary{
		Seconds: time.Since(r.began).Seconds(), Agents: len(r.workers), Calls: c.calls, GaveUp: c.gaveUp, Failed: c.failed,
		Granted: c.granted, Deferred: c.deferred, Denied: c.denied, RefusedBy: c.refusedBy, CommittedTokens: c.committed, LastFailure: c.lastFailure,
		Finished: c.finished, AgentRetries: c.agentRetries, Gateway: r.door != nil,
		GrantP50: c.p50, GrantP99: c.p99, Trace: Attribution,
	}
	s.audit(r.Scale, r.Mocks.Report(), r.Scale.periods(r.began, time.Now()))
	s.books(r.Mocks, r.Scale)
	if r.OpenLeases != nil {
		var err error
		if s.LeasesOpen, err = r.open(last); err != nil {
			return s, fmt.Errorf("run demo: count open leases: %w", err)
		}
	} else {
		for _, w := range r.workers {
			u := w.agent.Consumption()
			s.LeasesOpen += u.Granted - u.Succeeded - u.Failed - u.Throttled - u.NotSent
		}
	}
	switch {
	case flushed != nil:
		return s, fmt.Errorf("run demo: %w", flushed)
	case r.For == 0:
		return s, nil
	case ctx.Err() != nil:
		return s, fmt.Errorf("run demo: %w", context.Cause(ctx))
	}
	if err := s.Check(); err != nil {
		return s, fmt.Errorf("run demo: %w", err)
	}
	return s, nil
}
