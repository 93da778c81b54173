package client_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/token-budget-arbiter/tba/client"
	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
)

func TestSessionCarriesManyAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c := f.client(t)
		var work sync.WaitGroup
		for range 300 {
			work.Go(func() {
				l, err := c.Acquire(t.Context(), ask)
				if err != nil {
					t.Error(err)
					return
				}
				if r, err := l.Commit(t.Context(), client.Usage{Output: 3}); err != nil || r.LeaseID != l.ID() {
					t.Errorf("receipt %+v, %v", r, err)
				}
			})
		}
		work.Wait()
		rpcs, sessions, _ := f.counts()
		_, commits, _ := f.seen()
		if rpcs != 0 || sessions != 1 || len(commits) != 300 {
			t.Errorf("%d RPCs, %d sessions, %d commits", rpcs, sessions, len(commits))
		}
	})
}

// The stream breaks after the arbiter has granted, before it has answered.
func TestWhatABreakLeavesOpenIsAskedAgainUnderTheSameID(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c := f.client(t)
		if l, err := c.Acquire(t.Context(), ask); err != nil {
			t.Fatal(err)
		} else if err := l.Release(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		var once sync.Once
		f.onRequest = func(_ context.Context, m *tbav1.LeaseRequest) (*tbav1.LeaseResponse, error) {
			r := f.grant(m)
			var err error
			once.Do(func() { err = errLost; f.cut() })
			return r, err
		}
		l, err := c.Acquire(t.Context(), ask)
		if err != nil {
			t.Fatal(err)
		}
		requests, _, _ := f.seen()
		if len(requests) != 3 || requests[1].GetRequestId() != requests[2].GetRequestId() {
			t.Errorf("%d requests", len(requests))
		}
		if l.ID() != "lease-2" || !l.Replayed() {
			t.Errorf("got %s, replayed %v: want the lease that was granted before the break", l.ID(), l.Replayed())
		}
		if rpcs, sessions, _ := f.counts(); rpcs != 0 || sessions != 2 {
			t.Errorf("%d RPCs, %d sessions", rpcs, sessions)
		}
	})
}

func TestServerWithoutSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.noSession = true
		c := f.client(t)
		for range 3 {
			l, err := c.Acquire(t.Context(), ask)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := l.Commit(t.Context(), client.Usage{Output: 3}); err != nil {
				t.Error(err)
			}
		}
		if rpcs, _, _ := f.counts(); rpcs != 6 {
			t.Errorf("%d RPCs, want all 6 calls", rpcs)
		}
		f.noSession = false
		<-time.After(11 * time.Minute)
		if _, err := c.Acquire(t.Context(), ask); err != nil {
			t.Fatal(err)
		}
		if rpcs, sessions, _ := f.counts(); sessions != 1 || rpcs < 6 {
			t.Errorf("%d sessions after the server has learned it", sessions)
		}
	})
}

// Something on the way swallows streams: the session breaks before its first
// answer, an RPC gets through.
func TestStreamThatBreaksBeforeItsFirstAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.deafAfter = 1
		first := true
		f.onRequest = func(_ context.Context, m *tbav1.LeaseRequest) (*tbav1.LeaseResponse, error) {
			if first {
				first = false
				f.cut()
				return nil, errLost
			}
			return f.grant(m), nil
		}
		c := f.client(t)
		for range 2 {
			if _, err := c.Acquire(t.Context(), ask); err != nil {
				t.Fatal(err)
			}
		}
		requests, _, _ := f.seen()
		if rpcs, sessions, _ := f.counts(); rpcs != 2 || sessions != 1 {
			t.Errorf("%d RPCs, %d sessions", rpcs, sessions)
		}
		if requests[0].GetRequestId() != requests[1].GetRequestId() {
			t.Error("the RPC asked under another id")
		}
	})
}

func TestGrantThatComesTooLateIsGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c := f.client(t)
		f.onRequest = func(ctx context.Context, m *tbav1.LeaseRequest) (*tbav1.LeaseResponse, error) {
			<-ctx.Done() // granted at the moment the caller gives up
			return f.grant(m), nil
		}
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("enough"))
		defer cancel()
		if _, err := c.Acquire(ctx, ask); err == nil || errors.Unwrap(err).Error() != "enough" || client.Decided(err) {
			t.Errorf("got %v", err)
		}
		synctest.Wait()
		requests, _, releases := f.seen()
		if len(requests) != 1 || requests[0].GetDeadlineMs() != 1000 {
			t.Errorf("requests %v", requests)
		}
		if len(releases) != 1 || releases[0].GetLeaseId() != "lease-1" || releases[0].GetOutcome() != tbav1.LeaseCommit_NOT_SENT {
			t.Errorf("releases %v", releases)
		}
	})
}

// The deadline of the context is the one that the arbiter is told, so answers
// come right at it: each grant is either handed over or given back.
func TestGrantAtTheVeryDeadlineIsNotLost(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, opts ...client.Option) {
		f := newFake()
		c := f.client(t, opts...)
		var voids sync.Map // as an arbiter voids what it grants to one who has left
		f.onRequest = func(ctx context.Context, m *tbav1.LeaseRequest) (*tbav1.LeaseResponse, error) {
			if !m.GetDryRun() {
				<-time.After(time.Duration(m.GetDeadlineMs()) * time.Millisecond)
			}
			r := f.grant(m)
			if !m.GetDryRun() && ctx.Err() != nil {
				voids.Store(r.GetLeaseId(), true)
			}
			return r, nil
		}
		var handed atomic.Int64
		var work sync.WaitGroup
		for range 200 {
			work.Go(func() {
				ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errEnough)
				defer cancel()
				l, err := c.Acquire(ctx, ask)
				switch {
				case err == nil:
					handed.Add(1)
					if err := l.Release(ctx, ""); err != nil {
						t.Error(err)
					}
				case !errors.Is(err, errEnough):
					t.Error(err)
				}
			})
		}
		work.Wait()
		<-time.After(15 * time.Second)
		_, _, releases := f.seen()
		ended := map[string]bool{}
		for _, r := range releases {
			ended[r.GetLeaseId()] = true
		}
		voids.Range(func(id, _ any) bool { ended[id.(string)] = true; return true })
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(f.leases) != 200 || len(ended) != 200 {
			t.Errorf("%d granted, %d handed over, %d ended", len(f.leases), handed.Load(), len(ended))
		}
	})
}

var errEnough = errors.New("enough")

// An answer that says "out of time" may be faster than the timer of the caller.
func TestEndOfTheCallerIsNoFaultOfTheArbiter(t *testing.T) {
	t.Parallel()
	for name, said := range map[string]error{
		"a proxy":    status.Error(codes.DeadlineExceeded, "deadline"),
		"an arbiter": refusal(codes.Unavailable, "cancelled", 0),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				c := f.client(t, client.WithUnary(), client.WithFallback(client.FallbackSafeCapacity{
					Agents: 1, Rungs: []client.SafeRung{{Provider: "mistral", RequestsPerMinute: 6_000_000}},
				}))
				f.onRequest = func(context.Context, *tbav1.LeaseRequest) (*tbav1.LeaseResponse, error) {
					<-time.After(999 * time.Millisecond)
					return nil, said
				}
				agent, err := client.NewAgent(c, client.AgentOptions{ID: "a1", Patience: time.Second})
				if err != nil {
					t.Fatal(err)
				}
				defer agent.Close()
				start := time.Now()
				err = agent.Call(t.Context(), client.CallSpec{Tokens: 1}, func(context.Context, *client.Lease) (client.Usage, error) {
					t.Error("the fallback took over for an arbiter that is not away")
					return client.Usage{}, nil
				})
				if err == nil || errors.As(err, new(*client.UnavailableError)) || !strings.Contains(err.Error(), "patience is over") {
					t.Errorf("got %v", err)
				}
				if d := time.Since(start); d != time.Second {
					t.Errorf("took %v", d)
				}
			})
		})
	}
}

// An RPC that was cancelled may have been granted all the same. The client
// never hears the lease id, so it asks for it.
func TestGrantThatCrossedTheEndOfAnRPCIsGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c := f.client(t, client.WithUnary())
		f.onRequest = func(ctx context.Context, m *tbav1.LeaseRequest) (*tbav1.LeaseResponse, error) {
			r := f.grant(m)
			if !m.GetDryRun() {
				<-ctx.Done()
			}
			return r, nil
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(errEnough) })
		if _, err := c.Acquire(ctx, ask); !errors.Is(err, errEnough) {
			t.Errorf("got %v", err)
		}
		synctest.Wait()
		requests, _, releases := f.seen()
		if len(requests) != 2 || !requests[1].GetDryRun() || requests[1].GetRequestId() != requests[0].GetRequestId() {
			t.Errorf("requests %v", requests)
		}
		if len(releases) != 1 || releases[0].GetLeaseId() != "lease-1" || releases[0].GetOutcome() != tbav1.LeaseCommit_NOT_SENT {
			t.Errorf("releases %v", releases)
		}
	})
}

// A caller that repeats a lease it holds, and leaves, does not lose it.
func TestLeaseInUseIsNotGivenBack(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, opts ...client.Option) {
		f := newFake()
		c := f.client(t, opts...)
		r := ask
		r.ID = "once"
		if _, err := c.Acquire(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		f.onRequest = func(ctx context.Context, m *tbav1.LeaseRequest) (*tbav1.LeaseResponse, error) {
			if !m.GetDryRun() {
				<-ctx.Done()
			}
			return f.grant(m), nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if l, err := c.Acquire(ctx, r); err == nil {
			t.Errorf("got %s", l.ID())
		}
		<-time.After(time.Second)
		if _, _, releases := f.seen(); len(releases) != 0 {
			t.Errorf("releases %v", releases)
		}
	})
}

func TestSilentSessionIsReplaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c := f.client(t)
		if _, err := c.Acquire(t.Context(), ask); err != nil {
			t.Fatal(err)
		}
		f.mu.Lock()
		f.deafAfter = 1
		f.mu.Unlock()
		r := ask
		r.MaxWait = client.NoWait
		<-time.After(time.Second)
		start := time.Now()
		_, err := c.Acquire(t.Context(), r)
		if d := time.Since(start); err != nil || d < 10*time.Second || d > 13*time.Second {
			t.Errorf("%v after %v, want a lease from a fresh session", err, d)
		}
		if _, sessions, _ := f.counts(); sessions != 2 {
			t.Errorf("%d sessions", sessions)
		}
	})
}

func TestArbiterThatIsKnownToBeAwayIsNotAskedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c := f.client(t)
		if _, err := c.Acquire(t.Context(), ask); err != nil {
			t.Fatal(err)
		}
		f.stop()
		for c.Flush(t.Context()); ; {
			start := time.Now()
			_, err := c.Acquire(t.Context(), ask)
			var away *client.UnavailableError
			if !errors.As(err, &away) || client.Decided(err) {
				t.Fatalf("got %v", err)
			}
			if time.Since(start) == 0 { // at once, with a hint when to come back
				if away.RetryAfter <= 0 || away.RetryAfter > 30*time.Second {
					t.Errorf("hint %v", away.RetryAfter)
				}
				return
			}
			if time.Since(start) > 3*time.Second {
				t.Fatalf("took %v", time.Since(start))
			}
		}
	})
}

func TestCloseEndsEverything(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, opts ...client.Option) {
		f := newFake()
		c := f.client(t, opts...)
		l, err := c.Acquire(t.Context(), ask)
		if err != nil {
			t.Fatal(err)
		}
		f.onRequest = func(ctx context.Context, _ *tbav1.LeaseRequest) (*tbav1.LeaseResponse, error) {
			<-ctx.Done()
			return nil, refusal(codes.Canceled, "gone", 0)
		}
		failed := make(chan error)
		go func() {
			_, err := c.Acquire(context.Background(), ask)
			failed <- err
		}()
		synctest.Wait()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := <-failed; !errors.Is(err, client.ErrClosed) {
			t.Errorf("call under way: %v", err)
		}
		if cause := context.Cause(l.Context()); !errors.Is(cause, client.ErrClosed) {
			t.Errorf("lease: %v", cause)
		}
		if _, err := c.Acquire(t.Context(), ask); !errors.Is(err, client.ErrClosed) {
			t.Errorf("call after: %v", err)
		}
		if _, err := l.Commit(t.Context(), client.Usage{}); !errors.Is(err, client.ErrClosed) {
			t.Errorf("commit after: %v", err)
		}
		if _, err := client.NewAgent(c, client.AgentOptions{ID: "a"}); !errors.Is(err, client.ErrClosed) {
			t.Errorf("agent after: %v", err)
		}
		if err := c.Close(); err != nil {
			t.Errorf("second close: %v", err)
		}
	})
}
