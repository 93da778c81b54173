package identity

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
)

func ring(t *testing.T, keys ...Key) *Keyring {
	t.Helper()
	k, err := NewKeyring(keys)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestBearer(t *testing.T) {
	t.Parallel()
	k := ring(t,
		Key{Name: "fleet", Secret: "0123456789abcdef", Pool: "p", Classes: []string{"batch"}},
		Key{Name: "ops", Secret: "fedcba9876543210", Role: RoleOperator, HasCeiling: true, MaxPriority: arbiter.Critical})
	for _, test := range []struct{ header, name, reason string }{
		{"Bearer 0123456789abcdef", "fleet", ""},
		{"bearer  fedcba9876543210 ", "ops", ""},
		{"", "", "no_credential"},
		{"Basic 0123456789abcdef", "", "no_credential"},
		{"0123456789abcdef", "", "no_credential"},
		{"Bearer 0123456789abcdeg", "", "bad_credential"},
		{"Bearer " + strings.Repeat("x", 1<<20), "", "bad_credential"},
	} {
		c, err := k.Bearer(test.header)
		switch {
		case test.reason != "":
			if err == nil || err.Code != arbiter.CodeUnauthenticated || err.Reason != test.reason {
				t.Errorf("%.40q: %v, want %s", test.header, err, test.reason)
			}
		case err != nil || c.Name != test.name || c.Principal != Principal(test.name):
			t.Errorf("%q: %+v, %v", test.header, c, err)
		}
	}
	var none *Keyring
	if c, err := none.Bearer("Bearer whatever"); c != Local || err != nil {
		t.Errorf("without keys: %v, %v", c, err)
	}
}

func TestKeyringFaults(t *testing.T) {
	t.Parallel()
	const secret = "0123456789abcdef"
	for want, keys := range map[string][]Key{
		"auth.keys[0]: no name":                 {{Secret: secret}},
		`auth.keys[1]: name "a" is used twice`:  {{Name: "a", Secret: secret}, {Name: "a", Secret: secret + "2"}},
		`key "a" has 3 bytes, at least 16`:      {{Name: "a", Secret: "abc"}},
		`key "a" has white space around it`:     {{Name: "a", Secret: secret + "\n"}},
		`key "b" has the secret of another key`: {{Name: "a", Secret: secret}, {Name: "b", Secret: secret}},
	} {
		_, err := NewKeyring(keys)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		} else if strings.Contains(err.Error(), secret) {
			t.Errorf("%v prints a secret", err)
		}
	}
}

func TestCallerBounds(t *testing.T) {
	t.Parallel()
	free, bound := &Caller{Name: "free"}, &Caller{Name: "bound", Pool: "p", Classes: []string{"batch"}}
	two := &Caller{Name: "two", Classes: []string{"batch", "chat"}}
	for _, test := range []struct {
		caller     *Caller
		asked, got string
	}{{free, "", "default"}, {free, "q", "q"}, {bound, "", "p"}, {bound, "p", "p"}, {bound, "q", ""}} {
		got, err := test.caller.PoolFor(test.asked)
		if got != test.got || (err == nil) == (test.got == "") {
			t.Errorf("%s pool %q: %q, %v", test.caller.Name, test.asked, got, err)
		}
	}
	for _, test := range []struct {
		caller     *Caller
		asked, got string
	}{{free, "", "default"}, {free, "chat", "chat"}, {bound, "", "batch"}, {bound, "chat", ""}, {two, "", ""}, {two, "chat", "chat"}} {
		got, err := test.caller.ClassFor(test.asked)
		if got != test.got || (err == nil) == (test.got == "") {
			t.Errorf("%s class %q: %q, %v", test.caller.Name, test.asked, got, err)
		}
	}
	low := &Caller{HasCeiling: true, MaxPriority: arbiter.Low}
	critical := &Caller{HasCeiling: true, MaxPriority: arbiter.Critical}
	const unset = arbiter.ClassPriority
	for _, test := range []struct {
		caller              *Caller
		asked, byClass, got arbiter.Priority
	}{
		{free, unset, arbiter.Medium, arbiter.Medium}, {free, arbiter.High, arbiter.Medium, arbiter.Medium},
		{free, arbiter.Medium, arbiter.High, arbiter.Medium}, {critical, arbiter.High, arbiter.Low, arbiter.High},
		{critical, unset, arbiter.Low, arbiter.Low}, {low, unset, arbiter.High, arbiter.Low}, {low, arbiter.Critical, arbiter.High, arbiter.Low},
	} {
		if got := test.caller.PriorityFor(test.asked, test.byClass); got != test.got {
			t.Errorf("%+v asks %v in a class of %v: %v, want %v", test.caller, test.asked, test.byClass, got, test.got)
		}
	}
	for role, allowed := range map[Role][4]bool{RoleAgent: {true, true}, RoleReader: {false, true, true}, RoleOperator: {true, true, true, true}} {
		for a := ActionLease; a <= ActionAct; a++ {
			if err := (&Caller{Role: role}).Allow(a); (err == nil) != allowed[a] {
				t.Errorf("%v %v: %v", role, a, err)
			}
		}
		if back, ok := ParseRole(role.String()); back != role || !ok {
			t.Errorf("role %v does not read back", role)
		}
	}
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := NewAddresses(10, 3, false)
		for i := range 3 {
			if _, ok := a.TakeHost("192.0.2.1:5"); !ok {
				t.Fatalf("event %d of the burst was refused", i)
			}
		}
		wait, ok := a.TakeHost("192.0.2.1:6")
		if ok || wait != 100*time.Millisecond {
			t.Errorf("beyond the burst: %v, %v", wait, ok)
		}
		if _, ok := a.TakeHost("192.0.2.2:6"); !ok {
			t.Error("another address was refused")
		}
		time.Sleep(wait)
		if _, ok := a.Take(&net.TCPAddr{IP: net.ParseIP("192.0.2.1"), Port: 1}); !ok {
			t.Error("refused although the wait is over")
		}
		for range 100 {
			if _, ok := a.TakeHost("127.0.0.1:1"); !ok {
				t.Fatal("loopback was limited")
			}
		}
		for i := range 5 {
			_, ok := a.TakeHost(fmt.Sprintf("[2001:db8::%x]:1", i+1))
			if ok != (i < 3) {
				t.Errorf("address %d of one /64: %v", i, ok)
			}
		}
	})
}

func remembered(a *Addresses) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.now) + len(a.old)
}

func TestAddressesAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := NewAddresses(1000, 1, true)
		for i := range 3 * maxAddresses {
			a.take(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}))
		}
		if n := remembered(a); n > 2*maxAddresses {
			t.Errorf("%d buckets remembered, at most %d", n, 2*maxAddresses)
		}
		for range 2 {
			time.Sleep(time.Minute)
			a.TakeHost("10.0.0.1")
		}
		if n := remembered(a); n > 2 {
			t.Errorf("%d idle buckets remembered", n)
		}
	})
}

func TestCheckBind(t *testing.T) {
	t.Parallel()
	open := &net.TCPAddr{IP: net.IPv4zero, Port: 7481}
	keys := ring(t, Key{Name: "a", Secret: "0123456789abcdef"})
	if err := CheckBind(open, nil, "--listen-grpc"); err == nil || !strings.Contains(err.Error(), "auth.keys") || !strings.Contains(err.Error(), "--listen-grpc") {
		t.Errorf("open address without keys: %v", err)
	}
	if err := CheckBind(open, keys, ""); err != nil {
		t.Error(err)
	}
	if err := CheckBind(&net.TCPAddr{IP: net.IPv6loopback}, nil, ""); err != nil {
		t.Error(err)
	}
}

func TestListenerLimitsConnections(t *testing.T) {
	t.Parallel()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	limit := NewAddresses(1e-6, 1, true)
	l := Listener(inner, func() *Addresses { return limit })
	defer l.Close()
	accepted := make(chan net.Conn, 2)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				close(accepted)
				return
			}
			accepted <- c
		}
	}()
	first, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	defer (<-accepted).Close()
	second, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if n, err := second.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("the second connection got %d bytes, %v", n, err)
	}
	l.Close()
	if _, more := <-accepted; more {
		t.Error("the second connection was accepted")
	}
}
