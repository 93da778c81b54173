// Package identity says who asks: keys, roles, what a credential may ask for; per-address limits.
package identity

import (
	"hash/fnv"
	"slices"

	"github.com/token-budget-arbiter/tba/arbiter"
)

// DefaultPool is the pool of a request and of a credential that name none.
const DefaultPool = "default"

// Role is what a credential may do. Roles do not include one another, except that an operator may do everything.
type Role uint8

// Roles. The zero value is RoleAgent.
const (
	RoleAgent    Role = iota // leases and backpressure
	RoleReader               // reads and backpressure
	RoleOperator             // everything, operator actions included
)

func (r Role) String() string { return [...]string{"agent", "reader", "operator"}[min(r, 2)] }

// ParseRole reads the word of the configuration; the empty word is agent.
func ParseRole(word string) (Role, bool) {
	switch word {
	case "", "agent":
		return RoleAgent, true
	case "reader":
		return RoleReader, true
	case "operator":
		return RoleOperator, true
	}
	return RoleAgent, false
}

// Action is a group of calls that one role opens.
type Action uint8

// Actions.
const (
	ActionLease  Action = iota // request, commit, release, extend, signal
	ActionListen               // backpressure
	ActionRead                 // budgets, providers, leases, classes, events, status, reports
	ActionAct                  // operator actions
)

func (a Action) String() string {
	return [...]string{"leases", "backpressure", "reads", "operator actions"}[min(a, 3)]
}

// Caller is who asks, as far as the arbiter cares. It is immutable and safe for concurrent use. The zero value is a caller without
// name, role agent, any pool, any class and no priority above the class's default.
type Caller struct {
	// Name is the credential's name, for audit; empty without credentials.
	Name string
	// Principal is the 64-bit hash of Name that leases are bound to; 0 without credentials.
	Principal uint64
	// Pool is the only pool the caller may use; empty allows any, "default" being the one when the request names none.
	Pool string
	// Classes are the agent classes the caller may use; empty allows all.
	Classes []string
	// HasCeiling says that MaxPriority is the highest priority the caller may ask for, whatever the class. Without it the class's default is.
	HasCeiling  bool
	MaxPriority arbiter.Priority
	Role        Role
}

// Local is the caller of a server without keys, which listens on loopback only: it may do everything and holds no credential,
// so it never exceeds a class's default priority.
var Local = &Caller{Role: RoleOperator}

// Principal hashes a credential's name (FNV-1a, 64 bits), never to 0: that is the caller without credentials.
func Principal(name string) uint64 {
	if name == "" {
		return 0
	}
	h := fnv.New64a()
	h.Write([]byte(name))
	if sum := h.Sum64(); sum != 0 {
		return sum
	}
	return 1
}

// Allow is nil when the caller's role opens a. Error: CodePermission "role".
func (c *Caller) Allow(a Action) *arbiter.Error {
	ok := c.Role == RoleOperator
	switch a {
	case ActionLease:
		ok = ok || c.Role == RoleAgent
	case ActionListen:
		ok = true
	case ActionRead:
		ok = ok || c.Role == RoleReader
	}
	if ok {
		return nil
	}
	return arbiter.Errorf(arbiter.CodePermission, "role", "key %q has role %s, which does not cover %s: use a key with the role that does (auth.keys)", c.Name, c.Role, a)
}

// PoolFor returns the pool of a request that named one, or none. Error: CodePermission "pool_not_allowed".
func (c *Caller) PoolFor(requested string) (string, *arbiter.Error) {
	switch {
	case c.Pool == "" && requested == "":
		return DefaultPool, nil
	case c.Pool == "":
		return requested, nil
	case requested == "" || requested == c.Pool:
		return c.Pool, nil
	}
	return "", arbiter.Errorf(arbiter.CodePermission, "pool_not_allowed", "pool %q: key %q belongs to pool %q: leave pool empty or use another key", requested, c.Name, c.Pool)
}

// ClassFor returns the class of a request that named one, or none: then it is "default", or the caller's class when it has exactly one.
// Error: CodePermission "class_not_allowed". Whether the class exists is not asked here.
func (c *Caller) ClassFor(requested string) (string, *arbiter.Error) {
	class := requested
	if class == "" {
		if len(c.Classes) == 1 {
			return c.Classes[0], nil
		}
		class = arbiter.DefaultClass
	}
	if len(c.Classes) == 0 || slices.Contains(c.Classes, class) {
		return class, nil
	}
	return "", arbiter.Errorf(arbiter.CodePermission, "class_not_allowed", "agent_class %q: key %q may use %q: name one of them or use another key", class, c.Name, c.Classes)
}

// PriorityFor bounds a request's priority. asked is arbiter.ClassPriority when the request said nothing or LOW, which published clients cannot
// tell apart. byClass is the class's default. The credential's ceiling holds for the default too. Nothing is refused: the request only gets less.
//
// Worked example: class default MEDIUM, no credential: HIGH gives MEDIUM. With max_priority critical: HIGH. With max_priority low: LOW.
func (c *Caller) PriorityFor(asked, byClass arbiter.Priority) arbiter.Priority {
	ceiling := byClass
	if c.HasCeiling {
		ceiling = c.MaxPriority
	}
	if asked == arbiter.ClassPriority {
		asked = byClass
	}
	return min(asked, ceiling)
}
