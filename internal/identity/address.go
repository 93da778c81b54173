package identity

import (
	"math"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Default limits of one address on the HTTP port: requests per second, and how many may come at once.
const (
	DefaultRate  = 100
	DefaultBurst = 200
)

// maxAddresses bounds each of the two generations of an Addresses.
const maxAddresses = 1 << 16

// Addresses limits how often one network address may do something, by a token bucket each. IPv6 addresses share a bucket per /64, which one
// host usually owns. It is safe for concurrent use. A nil one limits nobody.
//
// Memory is bounded: buckets live in two generations. A generation ends when every bucket that rested through it must be full again (dropping
// it then changes nothing) or when it holds 65,536 buckets; what was used since moves along, the rest is dropped.
type Addresses struct {
	rate     rate.Limit
	burst    int
	loopback bool

	mu       sync.Mutex
	now, old map[netip.Addr]*rate.Limiter
	turned   time.Time
}

// NewAddresses makes a limiter of perSecond events and burst at once. Loopback addresses are limited only if loopback is set: the
// limit was configured, it is not the built-in one.
// perSecond ≤ 0 returns nil: no limit. burst below 1 is 1.
func NewAddresses(perSecond float64, burst int, loopback bool) *Addresses {
	if !(perSecond > 0) || math.IsInf(perSecond, 1) {
		return nil
	}
	return &Addresses{rate: rate.Limit(perSecond), burst: max(burst, 1), loopback: loopback, now: map[netip.Addr]*rate.Limiter{}}
}

// Configured is a, or nil when a is the built-in limit. That one is for the HTTP port and for new connections: an agent fleet behind
// one address sends thousands of calls a second over native gRPC, and each has its lease to pass.
func (a *Addresses) Configured() *Addresses {
	if a == nil || !a.loopback {
		return nil
	}
	return a
}

// Take counts one event of remote. ok says that it may happen; otherwise wait is how long until the next one may.
// An address that cannot be read shares one bucket with all others like it.
func (a *Addresses) Take(remote net.Addr) (wait time.Duration, ok bool) {
	if a == nil {
		return 0, true
	}
	return a.take(addrOf(remote))
}

// TakeHost is Take for an address in text form, "host:port" or "host".
func (a *Addresses) TakeHost(remote string) (wait time.Duration, ok bool) {
	if a == nil {
		return 0, true
	}
	return a.take(parseHost(remote))
}

// Limits reports whether remote is limited at all, for callers that count often.
func (a *Addresses) Limits(remote net.Addr) bool {
	return a != nil && (a.loopback || !addrOf(remote).IsLoopback())
}

// Spent reports whether remote has no event left, without counting one.
func (a *Addresses) Spent(remote net.Addr) (wait time.Duration, spent bool) {
	if a == nil {
		return 0, false
	}
	addr := addrOf(remote)
	if addr.IsLoopback() && !a.loopback {
		return 0, false
	}
	now := time.Now()
	if left := a.limiter(addr, now).TokensAt(now); left < 1 {
		return a.refill(1 - left), true
	}
	return 0, false
}

func (a *Addresses) take(addr netip.Addr) (time.Duration, bool) {
	if addr.IsLoopback() && !a.loopback {
		return 0, true
	}
	now := time.Now()
	l := a.limiter(addr, now)
	if l.AllowN(now, 1) {
		return 0, true
	}
	return a.refill(1 - l.TokensAt(now)), false
}

func (a *Addresses) refill(tokens float64) time.Duration {
	return time.Duration(min(max(tokens, 0)/float64(a.rate), 3600) * float64(time.Second))
}

func (a *Addresses) limiter(addr netip.Addr, now time.Time) *rate.Limiter {
	addr = group(addr)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.turned.IsZero() {
		a.turned = now
	}
	if len(a.now) >= maxAddresses || now.Sub(a.turned) > a.refill(float64(a.burst))+time.Second {
		a.old, a.now, a.turned = a.now, map[netip.Addr]*rate.Limiter{}, now
	}
	if l, ok := a.now[addr]; ok {
		return l
	}
	l, ok := a.old[addr]
	if !ok {
		l = rate.NewLimiter(a.rate, a.burst)
	}
	a.now[addr] = l
	return l
}

func group(addr netip.Addr) netip.Addr {
	if addr.Is6() {
		if p, err := addr.WithZone("").Prefix(64); err == nil {
			return p.Addr()
		}
	}
	return addr
}

func addrOf(remote net.Addr) netip.Addr {
	if t, ok := remote.(*net.TCPAddr); ok {
		return t.AddrPort().Addr().Unmap()
	}
	if remote == nil {
		return netip.Addr{}
	}
	return parseHost(remote.String())
}

func parseHost(remote string) netip.Addr {
	if ap, err := netip.ParseAddrPort(remote); err == nil {
		return ap.Addr().Unmap()
	}
	if addr, err := netip.ParseAddr(remote); err == nil {
		return addr.Unmap()
	}
	return netip.Addr{}
}

// IsLoopback reports whether a bound or remote address is reachable from this machine only.
func IsLoopback(addr net.Addr) bool {
	switch addr.(type) {
	case *net.UnixAddr:
		return true
	}
	return addrOf(addr).IsLoopback()
}
