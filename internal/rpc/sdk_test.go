package rpc

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/client"
	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
)

// sdkWays runs a test of the SDK against the real server on each way that it may take.
func sdkWays(t *testing.T, policy func() *arbiter.Policy, test func(t *testing.T, w *world, c *client.Client)) {
	t.Helper()
	for name, way := range map[string]struct {
		conn func(*grpc.ClientConn) grpc.ClientConnInterface
		opts []client.Option
	}{
		"session":        {conn: func(c *grpc.ClientConn) grpc.ClientConnInterface { return c }},
		"unary":          {conn: func(c *grpc.ClientConn) grpc.ClientConnInterface { return c }, opts: []client.Option{client.WithUnary()}},
		"unary fallback": {conn: func(c *grpc.ClientConn) grpc.ClientConnInterface { return withoutSession{c} }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, setup{policy: policy()})
				c, err := client.New(way.conn(w.conn), way.opts...)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				test(t, w, c)
			})
		})
	}
}

// withoutSession is a way on which something does not let the Session RPC through.
type withoutSession struct{ *grpc.ClientConn }

func (c withoutSession) NewStream(ctx context.Context, d *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if strings.HasSuffix(method, "/Session") {
		return nil, status.Error(codes.Unimplemented, "no such method")
	}
	return c.ClientConn.NewStream(ctx, d, method, opts...)
}

func (w *world) open(t *testing.T) int64 {
	t.Helper()
	s, err := w.admin.GetStatus(t.Context(), &tbav1.GetStatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if s.GetWaiting() != 0 {
		t.Errorf("%d requests wait", s.GetWaiting())
	}
	return s.GetLeasesOpen()
}

var sdkAsk = client.Request{AgentID: "a", InputTokens: 300, OutputTokens: 700}

// The SDK keeps a lease alive far beyond its TTL, up to the most that it may last, and learns of that end.
func TestSDKExtends(t *testing.T) {
	t.Parallel()
	const most = 5 * time.Minute
	policy := func() *arbiter.Policy {
		return testPolicy(func(p *arbiter.Policy) { p.Lease.TTL, p.Lease.Max = int64(time.Minute), int64(most) })
	}
	sdkWays(t, policy, func(t *testing.T, w *world, c *client.Client) {
		start := time.Now()
		ends := make([]*client.Lease, 2)
		for i := range ends {
			l, err := c.Acquire(t.Context(), sdkAsk)
			if err != nil {
				t.Fatal(err)
			}
			ends[i] = l
		}
		<-time.After(4*time.Minute - time.Second)
		if n := w.open(t); n != 2 || ends[0].Context().Err() != nil {
			t.Fatalf("%d leases open after almost 4 TTLs: %v", n, context.Cause(ends[0].Context()))
		}
		r, err := ends[0].Commit(t.Context(), client.Usage{Input: 200, CacheRead: 100, Output: 50})
		if err != nil || r.Tokens != 350 || r.Late || r.Estimated {
			t.Errorf("commit %+v, %v", r, err)
		}
		<-ends[1].Context().Done()
		if d := time.Since(start); d > most || d < most-time.Second {
			t.Errorf("lost after %v, want at %v", d, most)
		}
		if cause := context.Cause(ends[1].Context()); !errors.As(cause, new(*client.LostError)) {
			t.Errorf("cause %v", cause)
		}
		if r, err := ends[1].Commit(t.Context(), client.Usage{Output: 50}); err != nil || r.Tokens != 50 {
			t.Errorf("commit after the end: %+v, %v", r, err)
		}
	})
}

// A revocation ends the call: at once on a session, with the next extension elsewhere.
func TestSDKRevocation(t *testing.T) {
	t.Parallel()
	sdkWays(t, oneSlot, func(t *testing.T, w *world, c *client.Client) {
		agent, err := client.NewAgent(c, client.AgentOptions{ID: "a"})
		if err != nil {
			t.Fatal(err)
		}
		defer agent.Close()
		start := time.Now()
		err = agent.Call(t.Context(), client.CallSpec{Tokens: 100}, func(ctx context.Context, l *client.Lease) (client.Usage, error) {
			if _, err := w.admin.RevokeLease(ctx, &tbav1.RevokeLeaseRequest{LeaseId: l.ID(), Reason: "runaway"}); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			return client.Usage{Output: 12}, context.Cause(ctx)
		})
		if !errors.As(err, new(*client.RevokedError)) || !client.Decided(err) {
			t.Errorf("got %v", err)
		}
		if d := time.Since(start); d > 21*time.Second {
			t.Errorf("heard of it after %v", d)
		}
		if s := agent.Consumption(); s.Tokens != 12 {
			t.Errorf("consumption %+v", s)
		}
	})
}

// An agent that may not wait at the server waits by itself, and gets its lease.
func TestSDKAgentWaitsOutDeferrals(t *testing.T) {
	t.Parallel()
	sdkWays(t, oneSlot, func(t *testing.T, w *world, c *client.Client) {
		first, err := c.Acquire(t.Context(), sdkAsk)
		if err != nil {
			t.Fatal(err)
		}
		agent, err := client.NewAgent(c, client.AgentOptions{ID: "b"})
		if err != nil {
			t.Fatal(err)
		}
		defer agent.Close()
		start := time.Now()
		time.AfterFunc(10*time.Second, func() {
			if _, err := first.Commit(context.Background(), client.Usage{Output: 1}); err != nil {
				t.Error(err)
			}
		})
		err = agent.Call(t.Context(), client.CallSpec{Tokens: 100, MaxWait: client.NoWait}, func(context.Context, *client.Lease) (client.Usage, error) {
			return client.Usage{Output: 40}, nil
		})
		s := agent.Consumption()
		if err != nil || s.Deferred == 0 || s.Granted != 1 || s.Tokens != 40 {
			t.Errorf("%v, %+v", err, s)
		}
		if d := time.Since(start); d < 10*time.Second || d > 2*time.Minute {
			t.Errorf("took %v", d)
		}
		if n := w.open(t); n != 0 {
			t.Errorf("%d leases open", n)
		}
	})
}

// A slot becomes free at the very moment at which the caller who waits for it leaves: it gets the lease, or nobody holds it.
func TestSDKLeavesNoLeaseAtItsDeadline(t *testing.T) {
	t.Parallel()
	sdkWays(t, oneSlot, func(t *testing.T, w *world, c *client.Client) {
		for range 30 {
			first, err := c.Acquire(t.Context(), sdkAsk)
			if err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(time.Second, func() {
				if err := first.Release(context.Background(), ""); err != nil {
					t.Error(err)
				}
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			l, err := c.Acquire(ctx, sdkAsk)
			var later *client.DeferredError
			switch {
			case err == nil:
				if err := l.Release(ctx, ""); err != nil {
					t.Error(err)
				}
			case !errors.Is(err, context.DeadlineExceeded) && !errors.As(err, &later):
				t.Errorf("got %v", err)
			}
			cancel()
			<-time.After(5 * time.Second)
			if n := w.open(t); n != 0 {
				t.Fatalf("%d leases open", n)
			}
		}
	})
}

// lostAnswer grants, and the caller leaves before it hears of it.
type lostAnswer struct {
	*grpc.ClientConn
	leave context.CancelFunc
}

func (c lostAnswer) Invoke(ctx context.Context, method string, in, out any, opts ...grpc.CallOption) error {
	if m, ok := in.(*tbav1.LeaseRequest); !ok || m.GetDryRun() {
		return c.ClientConn.Invoke(ctx, method, in, out, opts...)
	}
	if err := c.ClientConn.Invoke(context.WithoutCancel(ctx), method, in, out, opts...); err != nil {
		return err
	}
	c.leave()
	return status.FromContextError(ctx.Err()).Err()
}

// The server has done its part when the answer leaves it, so the client asks whether there is a lease, and gives it back.
func TestSDKGivesBackWhatItNeverHeardOf(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{policy: oneSlot()})
		ctx, cancel := context.WithCancel(t.Context())
		c, err := client.New(lostAnswer{w.conn, cancel}, client.WithUnary())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if l, err := c.Acquire(ctx, sdkAsk); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, %v", l, err)
		}
		synctest.Wait()
		if n := w.open(t); n != 0 {
			t.Errorf("%d leases open", n)
		}
	})
}
