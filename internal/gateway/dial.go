package gateway

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// errAddress is the cause when an upstream's address may not be connected to. Nothing was sent. It is a matter of the
// configuration: the message says which address and which key of the file would allow it, and is for the operator's log.
var errAddress = errors.New("address not allowed")

// reach says who may be behind an address.
type reach uint8

const (
	reachPublic  reach = iota // anybody's
	reachPrivate              // this host or a network of ours: only with allow_private
	reachNever                // hands out credentials to whoever asks, or is no single host: not even with allow_private
)

// addressRule judges every address inside prefix.
type addressRule struct {
	prefix netip.Prefix
	reach  reach
	what   string
}

func rule(prefix string, r reach, what string) addressRule {
	return addressRule{netip.MustParsePrefix(prefix), r, what}
}

// addressRules in order, first match wins. Sources: the special-purpose registries of RFC 6890 and what the clouds document
// as the address of their instance metadata. A metadata service answers anything on the host without a credential, with the
// host's own credentials in the answer; no model is served there, so no key of the file opens it.
var addressRules = []addressRule{
	rule("169.254.169.254/32", reachNever, "instance metadata"),     // AWS, Google, Azure, Oracle, DigitalOcean and others
	rule("169.254.169.253/32", reachNever, "the cloud's resolver"),  // AWS
	rule("169.254.170.2/32", reachNever, "container credentials"),   // AWS ECS
	rule("169.254.170.23/32", reachNever, "container credentials"),  // AWS EKS
	rule("169.254.0.23/32", reachNever, "instance metadata"),        // Tencent
	rule("100.100.100.200/32", reachNever, "instance metadata"),     // Alibaba
	rule("168.63.129.16/32", reachNever, "the cloud's host agent"),  // Azure; a public range, only reachable from inside
	rule("192.0.0.192/32", reachNever, "instance metadata"),         // Oracle, first generation
	rule("fd00:ec2::254/128", reachNever, "instance metadata"),      // AWS
	rule("fd00:ec2::253/128", reachNever, "the cloud's resolver"),   // AWS
	rule("fd00:ec2::23/128", reachNever, "container credentials"),   // AWS EKS
	rule("fd20:ce::254/128", reachNever, "instance metadata"),       // Google
	rule("fd00:42::42/128", reachNever, "instance metadata"),        // Scaleway
	rule("fd00:c1::a9fe:a9fe/128", reachNever, "instance metadata"), // Oracle
	rule("224.0.0.0/4", reachNever, "multicast"),
	rule("ff00::/8", reachNever, "multicast"),
	rule("255.255.255.255/32", reachNever, "broadcast"),
	rule("0.0.0.0/8", reachPrivate, "unspecified"), // Linux connects 0.0.0.0 to itself
	rule("::/128", reachPrivate, "unspecified"),
	rule("127.0.0.0/8", reachPrivate, "loopback"),
	rule("::1/128", reachPrivate, "loopback"),
	rule("10.0.0.0/8", reachPrivate, "private"), // RFC 1918
	rule("172.16.0.0/12", reachPrivate, "private"),
	rule("192.168.0.0/16", reachPrivate, "private"),
	rule("100.64.0.0/10", reachPrivate, "shared with the carrier"), // RFC 6598
	rule("169.254.0.0/16", reachPrivate, "link-local"),
	rule("192.0.0.0/24", reachPrivate, "reserved"),
	rule("192.0.2.0/24", reachPrivate, "reserved for documents"),
	rule("192.88.99.0/24", reachPrivate, "reserved"), // the relays of 6to4
	rule("198.18.0.0/15", reachPrivate, "reserved for benchmarks"),
	rule("198.51.100.0/24", reachPrivate, "reserved for documents"),
	rule("203.0.113.0/24", reachPrivate, "reserved for documents"),
	rule("240.0.0.0/4", reachPrivate, "reserved"),
	rule("fc00::/7", reachPrivate, "private"),
	rule("fe80::/10", reachPrivate, "link-local"),
	rule("fec0::/10", reachPrivate, "site-local"),                     // deprecated, still routed by some
	rule("64:ff9b:1::/48", reachPrivate, "translated by our network"), // RFC 8215
	rule("100::/64", reachPrivate, "discarded"),
	rule("2001::/32", reachPrivate, "a Teredo tunnel"),
	rule("2001:db8::/32", reachPrivate, "reserved for documents"),
	rule("3fff::/20", reachPrivate, "reserved for documents"),
	rule("5f00::/16", reachPrivate, "reserved"), // segment routing
}

// embedded are the IPv6 ranges whose addresses are IPv4 addresses in other clothes, and the byte at which those begin.
var embedded = []struct {
	prefix netip.Prefix
	at     int
}{
	{netip.MustParsePrefix("64:ff9b::/96"), 12},    // NAT64, RFC 6052
	{netip.MustParsePrefix("64:ff9b:1::/48"), 12},  // NAT64 of the local network, in the usual /96 form
	{netip.MustParsePrefix("::ffff:0:0:0/96"), 12}, // SIIT, RFC 7915
	{netip.MustParsePrefix("::/96"), 12},           // IPv4-compatible, deprecated
	{netip.MustParsePrefix("2002::/16"), 2},        // 6to4
}

// judge says how far addr reaches, and the word for it. Of an IPv6 address with an IPv4 one inside, the stricter of both counts.
func judge(addr netip.Addr) (reach, string) {
	addr = addr.Unmap().WithZone("")
	if !addr.IsValid() {
		return reachNever, "no address"
	}
	r, what := reachPublic, "public"
	for _, rule := range addressRules {
		if rule.prefix.Contains(addr) {
			r, what = rule.reach, rule.what
			break
		}
	}
	if !addr.Is6() {
		return r, what
	}
	b := addr.As16()
	for _, e := range embedded {
		if e.prefix.Contains(addr) {
			if inner, word := judge(netip.AddrFrom4([4]byte(b[e.at : e.at+4]))); inner > r {
				r, what = inner, word
			}
		}
	}
	return r, what
}

// checkAddress is nil when a connection to addr may be made.
func checkAddress(addr netip.Addr, allowPrivate bool) error {
	switch r, what := judge(addr); {
	case r == reachPublic, r == reachPrivate && allowPrivate:
		return nil
	case r == reachPrivate:
		return fmt.Errorf("%w: %s is %s; set allow_private of the provider if it is meant", errAddress, addr, what)
	default:
		return fmt.Errorf("%w: %s is %s; a provider cannot be there", errAddress, addr, what)
	}
}

// newDialer makes the dialer of one upstream. The check sits between the resolver and the socket, for each address that is
// tried: whatever a name meant when somebody looked at it before, the connection goes to an address that passed.
func newDialer(allowPrivate bool, timeout time.Duration) *net.Dialer {
	return &net.Dialer{
		Timeout: timeout,
		Control: func(network, address string, _ syscall.RawConn) error {
			at, err := netip.ParseAddrPort(address)
			if err != nil {
				return fmt.Errorf("%w: %s %q", errAddress, network, address)
			}
			return checkAddress(at.Addr(), allowPrivate)
		},
	}
}
