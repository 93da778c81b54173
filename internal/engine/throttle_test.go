package engine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/engine"
	"github.com/token-budget-arbiter/tba/internal/journal"
)

// ladder adds a second provider like the first, and a ladder of both, the first one cheaper.
func ladder(p *arbiter.Policy) {
	second := p.Providers[0]
	second.Name = "mistral"
	p.Providers = append(p.Providers, second)
	p.Ladders = []arbiter.Ladder{{Name: "main", Tiers: [][]arbiter.Rung{{{Provider: "openai"}}, {{Provider: "mistral"}}}}}
}

func onLadder(o *engine.Op) { o.Command.(*arbiter.Request).Ladder = "main" }

func throttled(o engine.Outcome, retryAfter time.Duration, outcome arbiter.Outcome) engine.Op {
	op := release(o, outcome)
	op.Command.(*arbiter.Release).Signal = arbiter.ProviderSignal{Status: 429, Dim: arbiter.DimRPM, RetryAfter: int64(retryAfter)}
	return op
}

func ticketed(o engine.Outcome) func(*engine.Op) {
	return func(op *engine.Op) { op.Ticket = o.Ticket }
}

// TestThrottledTryKeepsItsPlace: the call whose try met a 429 asks again under another id and stands where its first request stood, before
// those who came while that one waited; it spends nothing and waits for the hold.
func TestThrottledTryKeepsItsPlace(t *testing.T) {
	t.Parallel()
	world(t, func(t *testing.T, store *journal.Memory) {
		e := start(t, store, engine.Options{}, policy(ceilings(arbiter.Ceilings{RPM: 1000, MaxConcurrent: 1, Burst: arbiter.Whole}), globalTokens(1000)))
		busy := granted(t, e, ask(10))
		old, young := make(chan engine.Outcome, 1), make(chan engine.Outcome, 1)
		go func() { old <- must(t, e, ask(20, waits(time.Minute))) }()
		<-time.After(time.Second)
		go func() { young <- must(t, e, ask(30, waits(time.Minute))) }()
		<-time.After(time.Second)
		must(t, e, commit(busy, 10))
		first := <-old
		if first.Answer.Status != arbiter.Granted || first.Waited < 2*time.Second {
			t.Fatalf("the older waiter: %+v after %s", first.Answer, first.Waited)
		}
		<-time.After(time.Second)
		back := must(t, e, throttled(first, 5*time.Second, arbiter.OutcomeThrottled))
		if back.Answer.RetryAfter != 5*arbiter.Second || back.Ticket == nil {
			t.Fatalf("%+v, ticket %v", back.Answer, back.Ticket)
		}
		if spent, held := totals(t, e); spent != 10 || held != 0 {
			t.Errorf("the try cost something: spent %d, held %d", spent, held)
		}
		go func() { old <- must(t, e, ask(20, waits(time.Minute), ticketed(back))) }()
		<-time.After(5*time.Second + 100*time.Millisecond)
		synctest.Wait()
		select {
		case o := <-old:
			if o.Answer.Status != arbiter.Granted || o.Waited < 5*time.Second-time.Millisecond {
				t.Fatalf("the second try: %+v after %s", o.Answer, o.Waited)
			}
			must(t, e, commit(o, 20))
		case o := <-young:
			t.Fatalf("who came later is served before: %+v", o.Answer)
		}
		must(t, e, commit(<-young, 30))
	})
}

// TestThrottledRungIsSkipped: while the provider asked to wait, the next rung with room is taken at once; a 429 never opens the breaker.
func TestThrottledRungIsSkipped(t *testing.T) {
	t.Parallel()
	world(t, func(t *testing.T, store *journal.Memory) {
		e := start(t, store, engine.Options{}, policy(ceilings(arbiter.Ceilings{RPM: 1000, Burst: arbiter.Whole}), ladder))
		for range 20 {
			first := granted(t, e, ask(10, onLadder))
			if first.Answer.Lease.Provider != "openai" {
				t.Fatalf("placed on %s", first.Answer.Lease.Provider)
			}
			back := must(t, e, throttled(first, 5*time.Second, arbiter.OutcomeThrottled))
			again := granted(t, e, ask(10, onLadder, ticketed(back)))
			if again.Answer.Lease.Provider != "mistral" || again.Waited > time.Millisecond {
				t.Fatalf("the second try is on %s after %s", again.Answer.Lease.Provider, again.Waited)
			}
			must(t, e, commit(again, 10))
			<-time.After(5*time.Second + time.Millisecond)
		}
		page, err := e.Events(pool, 0, 1000)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, ev := range page.Events {
			switch ev.Kind {
			case arbiter.EventBreaker:
				t.Errorf("the breaker moved: %+v", ev)
			case arbiter.EventThrottled:
				if n++; ev.Provider != "openai" || ev.Dim != arbiter.DimRPM || ev.Until-ev.At != 5*arbiter.Second || ev.Agent != "a" || ev.Class != "worker" || ev.Exhausted {
					t.Errorf("event %+v", ev)
				}
			}
		}
		if n != 20 {
			t.Errorf("%d throttles, want 20", n)
		}
	})
}

// TestT45ExhaustedAccount: an account without money shuts every model of its provider until the known time; the call goes on elsewhere.
func TestT45ExhaustedAccount(t *testing.T) {
	t.Parallel()
	world(t, func(t *testing.T, store *journal.Memory) {
		e := start(t, store, engine.Options{}, policy(func(p *arbiter.Policy) {
			m := p.Providers[0].Models[0]
			small := m
			m.Name, small.Name = "large", "small"
			p.Providers[0].Models = []arbiter.Model{m, small}
			ladder(p)
			p.Ladders[0].Tiers[0] = []arbiter.Rung{{Provider: "openai", Model: "small"}}
			p.Ladders[0].Tiers = append([][]arbiter.Rung{{{Provider: "openai", Model: "large"}}}, p.Ladders[0].Tiers...)
		}))
		first := granted(t, e, ask(10, onLadder))
		op := release(first, arbiter.OutcomeExhausted)
		op.Command.(*arbiter.Release).Signal = arbiter.ProviderSignal{Status: 402, RetryAfter: int64(10 * time.Minute)}
		back := must(t, e, op)
		if back.Ticket == nil || back.Answer.RetryAfter != 10*arbiter.Minute {
			t.Errorf("%+v", back.Answer)
		}
		if o := granted(t, e, ask(10, onLadder, ticketed(back))); o.Answer.Lease.Provider != "mistral" {
			t.Errorf("placed on %s/%s, whose account is empty", o.Answer.Lease.Provider, o.Answer.Lease.Model)
		}
		<-time.After(10*time.Minute + time.Second)
		if o := granted(t, e, ask(10, onLadder)); o.Answer.Lease.Provider != "openai" || o.Answer.Lease.Model != "large" {
			t.Errorf("after the known time: %s/%s", o.Answer.Lease.Provider, o.Answer.Lease.Model)
		}
		page, err := e.Events(pool, 0, 1000, arbiter.EventThrottled)
		if err != nil || len(page.Events) != 1 || !page.Events[0].Exhausted || page.Events[0].Model != "large" {
			t.Errorf("events %+v, %v", page.Events, err)
		}
	})
}
