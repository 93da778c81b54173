package identity

import (
	"net"
	"net/netip"
	"strings"

	"github.com/token-budget-arbiter/tba/arbiter"
)

// MaxID bounds an id of agents, classes, tasks, workflows and pools, bytes.
const MaxID = 128

// ValidID reports whether s may be such an id: at most MaxID bytes of A-Z a-z 0-9 . _ : - and possibly empty.
func ValidID(s string) bool {
	if len(s) > MaxID {
		return false
	}
	for i := 0; i < len(s); i++ {
		if !idByte(s[i]) {
			return false
		}
	}
	return true
}

func idByte(c byte) bool {
	switch {
	case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '_', c == ':', c == '-':
		return true
	}
	return false
}

// PriorityIn bounds what a request of this class may have under policy: PriorityFor with the class's default. It is
// arbiter.ClassPriority where there is nothing to bound (nothing was asked, and the credential has no ceiling), for a class that the policy
// does not know, which the decision itself refuses, and with a nil policy.
func (c *Caller) PriorityIn(policy *arbiter.Policy, class string, asked arbiter.Priority) arbiter.Priority {
	if policy != nil && (asked != arbiter.ClassPriority || c.HasCeiling) {
		for i := range policy.Classes {
			if policy.Classes[i].Name == class {
				return c.PriorityFor(asked, policy.Classes[i].Priority)
			}
		}
	}
	return arbiter.ClassPriority
}

// Secret finds the caller of a bare key, as the SDKs of providers send it in slots of their own. Without keys everybody is Local, whatever was
// sent. Errors as in Bearer.
func (k *Keyring) Secret(secret string) (*Caller, *arbiter.Error) {
	if k.Empty() {
		return Local, nil
	}
	if secret = strings.TrimSpace(secret); secret == "" {
		return nil, arbiter.Errorf(arbiter.CodeUnauthenticated, "no_credential", "no API key: give your client a key of auth.keys where it expects the provider's key")
	}
	if c, ok := k.find(secret); ok {
		return c, nil
	}
	return nil, arbiter.Errorf(arbiter.CodeUnauthenticated, "bad_credential", "the API key is not one of auth.keys: give your client such a key, not the provider's own, and check that the server has loaded the file that holds it")
}

// LoopbackHost reports whether a Host header names this machine in a way no foreign name server can. A server without keys answers no
// other: the page of an attacker could reach it through the browser.
func LoopbackHost(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.EqualFold(host, "localhost") || strings.HasSuffix(strings.ToLower(host), ".localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}
