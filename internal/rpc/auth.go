package rpc

import (
	"context"
	"net"
	"sync/atomic"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/identity"
)

// gate finds out who asks. The keys may be replaced while calls run.
type gate struct {
	keys atomic.Pointer[identity.Keyring]
	// failed counts failed authentications by address. A right key is never refused for the wrong ones of its neighbours.
	failed *identity.Addresses
}

type callerKey struct{}

// withCaller marks a context whose caller is known, on the HTTP port.
func withCaller(ctx context.Context, c *identity.Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// caller is who makes the call of ctx, when the caller may do a.
func (g *gate) caller(ctx context.Context, a identity.Action) (*identity.Caller, *arbiter.Error) {
	if c, ok := ctx.Value(callerKey{}).(*identity.Caller); ok {
		return c, c.Allow(a)
	}
	keys := g.keys.Load()
	if keys.Empty() { // the common case of a local server pays for no metadata look-up
		return identity.Local, identity.Local.Allow(a)
	}
	var authorization string
	if values := metadata.ValueFromIncomingContext(ctx, "authorization"); len(values) > 0 {
		authorization = values[0]
	}
	var remote net.Addr
	if p, ok := peer.FromContext(ctx); ok {
		remote = p.Addr
	}
	c, err := g.authenticate(authorization, remote)
	if err != nil {
		return nil, err
	}
	return c, c.Allow(a)
}

// authenticate reads an Authorization value that came from remote.
func (g *gate) authenticate(authorization string, remote net.Addr) (*identity.Caller, *arbiter.Error) {
	c, err := g.keys.Load().Bearer(authorization)
	if err == nil {
		return c, nil
	}
	if wait, ok := g.failed.Take(remote); !ok {
		e := arbiter.Errorf(arbiter.CodeResource, "failed_authentications", "authorization: too many failed authentications from your address: send a key of auth.keys, in %v at the earliest", wait.Round(1e6))
		e.RetryAfter = int64(wait)
		return nil, e
	}
	return nil, err
}
