package gateway

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

func TestAddressesThatMayBeDialled(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		addr string
		want reach
	}{
		{"1.1.1.1", reachPublic},
		{"104.18.6.192", reachPublic},
		{"100.63.255.255", reachPublic},
		{"100.128.0.1", reachPublic},
		{"172.15.255.255", reachPublic},
		{"172.32.0.1", reachPublic},
		{"2606:4700::6812:6c0", reachPublic},
		{"::ffff:1.1.1.1", reachPublic},
		{"64:ff9b::101:101", reachPublic},
		{"2002:101:101::1", reachPublic},

		{"127.0.0.1", reachPrivate},
		{"127.255.255.254", reachPrivate},
		{"::1", reachPrivate},
		{"0.0.0.0", reachPrivate},
		{"0.1.2.3", reachPrivate},
		{"::", reachPrivate},
		{"10.1.2.3", reachPrivate},
		{"172.16.0.1", reachPrivate},
		{"172.31.255.255", reachPrivate},
		{"192.168.1.1", reachPrivate},
		{"100.64.0.1", reachPrivate},
		{"100.127.255.255", reachPrivate},
		{"169.254.1.1", reachPrivate},
		{"198.19.0.1", reachPrivate},
		{"240.0.0.1", reachPrivate},
		{"fd12:3456::1", reachPrivate},
		{"fc00::1", reachPrivate},
		{"fe80::1", reachPrivate},
		{"fe80::1%eth0", reachPrivate},
		{"fec0::1", reachPrivate},
		{"2001:0:4136:e378:8000:63bf:3fff:fdd2", reachPrivate},
		{"2001:db8::1", reachPrivate},
		// IPv4 in other clothes
		{"::ffff:127.0.0.1", reachPrivate},
		{"::ffff:10.0.0.1", reachPrivate},
		{"::127.0.0.1", reachPrivate},
		{"::ffff:0:127.0.0.1", reachPrivate},
		{"64:ff9b::7f00:1", reachPrivate},
		{"64:ff9b::a00:1", reachPrivate},
		{"64:ff9b:1::808:808", reachPrivate},
		{"2002:7f00:1::", reachPrivate},
		{"2002:c0a8:101::1", reachPrivate},

		{"169.254.169.254", reachNever},
		{"::ffff:169.254.169.254", reachNever},
		{"::169.254.169.254", reachNever},
		{"64:ff9b::a9fe:a9fe", reachNever},
		{"64:ff9b:1::a9fe:a9fe", reachNever},
		{"2002:a9fe:a9fe::1", reachNever},
		{"169.254.170.2", reachNever},
		{"100.100.100.200", reachNever},
		{"168.63.129.16", reachNever},
		{"fd00:ec2::254", reachNever},
		{"fd20:ce::254", reachNever},
		{"224.0.0.1", reachNever},
		{"239.255.255.250", reachNever},
		{"ff02::1", reachNever},
		{"255.255.255.255", reachNever},
	} {
		addr := netip.MustParseAddr(c.addr)
		if got, what := judge(addr); got != c.want {
			t.Errorf("%s: reach %d (%s), want %d", c.addr, got, what, c.want)
		}
		for _, allow := range []bool{false, true} {
			err := checkAddress(addr, allow)
			ok := c.want == reachPublic || c.want == reachPrivate && allow
			if (err == nil) != ok || err != nil && !errors.Is(err, errAddress) {
				t.Errorf("%s, allow_private %v: %v", c.addr, allow, err)
			}
		}
	}
	if got, _ := judge(netip.Addr{}); got != reachNever {
		t.Error("no address is an address")
	}
}

// An address that is private by the standard library's words must be private by ours.
func FuzzJudge(f *testing.F) {
	f.Add([]byte{127, 0, 0, 1})
	f.Add([]byte{0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		addr, ok := netip.AddrFromSlice(b)
		if !ok {
			return
		}
		inside := addr.Unmap()
		wild := inside.IsLoopback() || inside.IsPrivate() || inside.IsLinkLocalUnicast() || inside.IsUnspecified() || inside.IsMulticast() || !inside.IsValid()
		if wild && checkAddress(addr, false) == nil {
			t.Errorf("%s may be dialled", addr)
		}
		if inside.IsMulticast() && checkAddress(addr, true) == nil {
			t.Errorf("%s may be dialled with allow_private", addr)
		}
	})
}

// names is a DNS server in memory. Each question for an A record takes the next answer; the last one stays.
type names struct {
	mu      sync.Mutex
	answers [][]netip.Addr
	asked   int
}

func (n *names) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go n.serve(server)
		return client, nil
	}}
}

func (n *names) next() []netip.Addr {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked++
	return n.answers[min(n.asked, len(n.answers))-1]
}

// serve answers over a stream, as DNS does over TCP: two bytes of length before each message.
func (n *names) serve(conn net.Conn) {
	defer conn.Close()
	for {
		var size [2]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return
		}
		raw := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(conn, raw); err != nil {
			return
		}
		var m dnsmessage.Message
		if err := m.Unpack(raw); err != nil || len(m.Questions) != 1 {
			return
		}
		m.Response, m.Additionals = true, nil
		if q := m.Questions[0]; q.Type == dnsmessage.TypeA {
			for _, a := range n.next() {
				m.Answers = append(m.Answers, dnsmessage.Resource{
					Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 0},
					Body:   &dnsmessage.AResource{A: a.As4()},
				})
			}
		}
		out, err := m.Pack()
		if err != nil {
			return
		}
		if _, err := conn.Write(binary.BigEndian.AppendUint16(nil, uint16(len(out)))); err != nil {
			return
		}
		if _, err := conn.Write(out); err != nil {
			return
		}
	}
}

// counted is a server that counts what reaches it.
func counted(t *testing.T) (port string, requests *atomic.Int64) {
	t.Helper()
	requests = new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	return u.Port(), requests
}

func send(t *testing.T, rt http.RoundTripper, target string) error {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, target, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := rt.RoundTrip(r)
	if err == nil {
		resp.Body.Close()
	}
	return err
}

// What a name meant at the first call says nothing about the second. The check is of the address that is dialled.
func TestRebinding(t *testing.T) {
	t.Parallel()
	port, requests := counted(t)
	loopback := []netip.Addr{netip.MustParseAddr("127.0.0.1")}
	metadata := []netip.Addr{netip.MustParseAddr("169.254.169.254")}

	dns := &names{answers: [][]netip.Addr{loopback, metadata, loopback}}
	rt := newTransport(transportOptions{AllowPrivate: true, Plain: true, Resolver: dns.resolver()})
	rt.http.DisableKeepAlives = true // each call dials
	target := "http://model.example.com:" + port + "/"
	if err := send(t, rt, target); err != nil {
		t.Fatalf("with allow_private: %v", err)
	}
	if err := send(t, rt, target); !errors.Is(err, errAddress) {
		t.Fatalf("the name was bound to the metadata address: %v", err)
	}
	if err := send(t, rt, target); err != nil {
		t.Fatalf("bound back: %v", err)
	}
	if n := requests.Load(); n != 2 {
		t.Fatalf("%d requests arrived, want 2", n)
	}

	dns = &names{answers: [][]netip.Addr{loopback}}
	rt = newTransport(transportOptions{Plain: true, Resolver: dns.resolver()})
	if err := send(t, rt, target); !errors.Is(err, errAddress) {
		t.Fatalf("a public name of a loopback address: %v", err)
	}
	// Of several addresses only those that pass are tried.
	dns = &names{answers: [][]netip.Addr{{metadata[0], loopback[0]}}}
	rt = newTransport(transportOptions{AllowPrivate: true, Plain: true, Resolver: dns.resolver()})
	if err := send(t, rt, target); err != nil {
		t.Fatalf("the second address passes: %v", err)
	}
	if n := requests.Load(); n != 3 {
		t.Fatalf("%d requests arrived, want 3", n)
	}
}

// Every way to write an address that the resolver understands ends at the same check.
func TestLiteralAddresses(t *testing.T) {
	t.Parallel()
	port, requests := counted(t)
	strict, lax := newTransport(transportOptions{Plain: true}), newTransport(transportOptions{AllowPrivate: true, Plain: true})
	for _, host := range []string{"127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "[::]", "[64:ff9b::7f00:1]"} {
		if err := send(t, strict, "http://"+host+":"+port+"/"); !errors.Is(err, errAddress) {
			t.Errorf("%s: %v", host, err)
		}
	}
	for _, host := range []string{"169.254.169.254", "[::ffff:a9fe:a9fe]", "[fd00:ec2::254]"} {
		if err := send(t, lax, "http://"+host+"/latest/meta-data/"); !errors.Is(err, errAddress) {
			t.Errorf("%s with allow_private: %v", host, err)
		}
	}
	if n := requests.Load(); n != 0 {
		t.Fatalf("%d requests arrived", n)
	}
}

// Not parallel: it sets the environment.
func TestNoProxyFromTheEnvironment(t *testing.T) {
	port, requests := counted(t)
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"} {
		t.Setenv(name, "http://127.0.0.1:"+port)
	}
	dns := &names{answers: [][]netip.Addr{{netip.MustParseAddr("169.254.169.254")}}}
	rt := newTransport(transportOptions{AllowPrivate: true, Plain: true, Resolver: dns.resolver()})
	if rt.http.Proxy != nil {
		t.Error("the transport asks for a proxy")
	}
	if err := send(t, rt, "http://model.example.com/"); !errors.Is(err, errAddress) {
		t.Errorf("got %v", err)
	}
	if n := requests.Load(); n != 0 {
		t.Errorf("the proxy saw %d requests", n)
	}
}
