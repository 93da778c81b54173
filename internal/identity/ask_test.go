package identity

import (
	"strings"
	"testing"

	"github.com/token-budget-arbiter/tba/arbiter"
)

func TestValidID(t *testing.T) {
	t.Parallel()
	for id, ok := range map[string]bool{
		"": true, "crawler-7": true, "A.b_c:d-9": true, strings.Repeat("x", MaxID): true,
		strings.Repeat("x", MaxID+1): false, "a b": false, "a/b": false, "é": false, "a\x00": false, "a\n": false,
	} {
		if ValidID(id) != ok {
			t.Errorf("%q: %v, want %v", id, !ok, ok)
		}
	}
}

func TestPriorityIn(t *testing.T) {
	t.Parallel()
	policy := &arbiter.Policy{Classes: []arbiter.Class{{Name: "default"}, {Name: "chat", Priority: arbiter.Medium}}}
	free, high := &Caller{}, &Caller{HasCeiling: true, MaxPriority: arbiter.High}
	const unset = arbiter.ClassPriority
	for _, test := range []struct {
		caller      *Caller
		policy      *arbiter.Policy
		class       string
		asked, want arbiter.Priority
	}{
		{free, policy, "chat", unset, unset},
		{free, policy, "chat", arbiter.Critical, arbiter.Medium},
		{free, policy, "chat", arbiter.Low, arbiter.Low},
		{high, policy, "chat", arbiter.Critical, arbiter.High},
		{high, policy, "chat", unset, arbiter.Medium},
		{high, policy, "nobody", arbiter.Critical, unset},
		{free, nil, "chat", arbiter.High, unset},
	} {
		if got := test.caller.PriorityIn(test.policy, test.class, test.asked); got != test.want {
			t.Errorf("%+v asks %v in %s: %v, want %v", test.caller, test.asked, test.class, got, test.want)
		}
	}
}

func TestSecret(t *testing.T) {
	t.Parallel()
	k := ring(t, Key{Name: "fleet", Secret: "0123456789abcdef"})
	for secret, reason := range map[string]string{"0123456789abcdef": "", " 0123456789abcdef ": "", "": "no_credential", " ": "no_credential", "sk-other": "bad_credential"} {
		c, err := k.Secret(secret)
		switch {
		case reason == "" && (err != nil || c.Name != "fleet"):
			t.Errorf("%q: %v, %v", secret, c, err)
		case reason != "" && (err == nil || err.Reason != reason || err.Code != arbiter.CodeUnauthenticated):
			t.Errorf("%q: %v, want %s", secret, err, reason)
		case err != nil && secret != "" && strings.Contains(err.Text, "sk-other"):
			t.Errorf("%v prints the key", err)
		}
	}
	var none *Keyring
	if c, err := none.Secret(""); c != Local || err != nil {
		t.Errorf("without keys: %v, %v", c, err)
	}
}

func TestLoopbackHost(t *testing.T) {
	t.Parallel()
	for host, ok := range map[string]bool{
		"localhost": true, "LOCALHOST:80": true, "a.localhost": true, "127.0.0.1:7480": true, "[::1]:7480": true, "::1": true, "[::ffff:127.0.0.1]:1": true,
		"": false, "example.com": false, "127.0.0.1.example.com": false, "10.0.0.1": false, "localhost.example.com:80": false,
	} {
		if LoopbackHost(host) != ok {
			t.Errorf("%q: %v, want %v", host, !ok, ok)
		}
	}
}
