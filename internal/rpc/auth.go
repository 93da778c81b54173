package rpc

import (
	"context"
	"net"
	"sync/atomic"
	"time"

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
	// addresses counts calls by address; nil limits nobody.
	addresses atomic.Pointer[identity.Addresses]
}

// rateLimited is the answer to an address that asks too much.
func rateLimited(wait time.Duration) *arbiter.Error {
	e := arbiter.Errorf(arbiter.CodeResource, "rate_limited", "too many requests from your address: ask again in %v, or raise limits.per_address in the file", wait.Round(time.Millisecond))
	e.RetryAfter = int64(wait)
	return e
}

// remoteOf is the address of a gRPC call.
func remoteOf(ctx context.Context) net.Addr {
	if p, ok := peer.FromContext(ctx); ok {
		return p.Addr
	}
	return nil
}

type callerKey struct{}

// withCaller marks a context whose caller is known, on the HTTP port.
func withCaller(ctx context.Context, c *identity.Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// caller is who makes the call of ctx, when the caller may do a. On the gRPC port it counts the call; the HTTP port has done so.
func (g *gate) caller(ctx context.Context, a identity.Action) (*identity.Caller, *arbiter.Error) {
	if c, ok := ctx.Value(callerKey{}).(*identity.Caller); ok {
		return c, c.Allow(a)
	}
	if limit := g.addresses.Load().Configured(); limit != nil {
		if wait, ok := limit.Take(remoteOf(ctx)); !ok {
			return nil, rateLimited(wait)
		}
	}
	keys := g.keys.Load()
	if keys.Empty() { // the common case of a local server pays for no metadata look-up
		return identity.Local, identity.Local.Allow(a)
	}
	var authorization string
	if values := metadata.ValueFromIncomingContext(ctx, "authorization"); len(values) > 0 {
		authorization = values[0]
	}
	c, err := g.authenticate(authorization, remoteOf(ctx))
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
