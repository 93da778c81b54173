package engine_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/engine"
	"github.com/token-budget-arbiter/tba/internal/journal"
)

// TestStart: a commit is on its way when Start returns, is decided whether or not somebody waits, and the hook hears of each once.
func TestStart(t *testing.T) {
	t.Parallel()
	world(t, func(t *testing.T, store *journal.Memory) {
		var commits atomic.Int64
		e := start(t, store, engine.Options{Hooks: engine.Hooks{Answered: func(_ string, cmd arbiter.Command, out *engine.Outcome, err error) {
			if c, ok := cmd.(*arbiter.Commit); ok && err == nil && out.Answer.Tokens == c.Actual {
				commits.Add(1)
			}
		}}}, policy(globalTokens(1000)))
		first, second := granted(t, e, ask(100)), granted(t, e, ask(100))
		awaited, err := e.Start(commit(first, 60))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Start(commit(second, 70)); err != nil { // nobody waits for it
			t.Fatal(err)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := awaited.Wait(gone); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("a caller who left: %v", err)
		}
		for range 2 { // as often as one likes
			if o, err := awaited.Wait(t.Context()); err != nil || o.Answer.Result != arbiter.Recorded || o.Answer.Tokens != 60 {
				t.Errorf("%+v, %v", o.Answer, err)
			}
		}
		synctest.Wait()
		if spent, held := totals(t, e); spent != 130 || held != 0 || commits.Load() != 2 {
			t.Errorf("spent %d, held %d, the hook heard of %d commits", spent, held, commits.Load())
		}
	})
}

// TestStartRefuses: what cannot be accepted is said at once; the hook hears of that too.
func TestStartRefuses(t *testing.T) {
	t.Parallel()
	world(t, func(t *testing.T, store *journal.Memory) {
		var failed atomic.Int64
		e := start(t, store, engine.Options{Hooks: engine.Hooks{Answered: func(_ string, _ arbiter.Command, _ *engine.Outcome, err error) {
			if err != nil {
				failed.Add(1)
			}
		}}}, policy())
		o := granted(t, e, ask(100))
		if _, err := e.Start(ask(1)); code(err) != "command" {
			t.Errorf("a request: %v", err)
		}
		op := commit(o, 1)
		op.Pool, op.Token = "nowhere", nil
		if _, err := e.Start(op); err == nil {
			t.Error("an unknown pool is accepted")
		}
		e.Close()
		if _, err := e.Start(commit(o, 1)); err == nil {
			t.Error("a closed engine accepts")
		}
		if failed.Load() != 3 {
			t.Errorf("the hook heard of %d failures, want 3", failed.Load())
		}
	})
}

// TestStartUnanswered: a journal that does not answer is told to whoever waits; the commit lands when it does.
func TestStartUnanswered(t *testing.T) {
	t.Parallel()
	world(t, func(t *testing.T, store *journal.Memory) {
		e := start(t, store, engine.Options{}, policy(globalTokens(1000)))
		o := granted(t, e, ask(100))
		p, err := e.Start(commit(o, 60))
		if err != nil {
			t.Fatal(err)
		}
		e.Close() // it drains what is in hand
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if out, err := p.Wait(ctx); err == nil && out.Answer.Result != arbiter.Recorded || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%+v, %v: want an answer of any kind", out.Answer, err)
		}
	})
}
