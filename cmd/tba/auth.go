package main

import (
	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/config"
	"github.com/token-budget-arbiter/tba/internal/identity"
)

// keyring reads the secrets of auth.keys. nil without keys.
func keyring(keys []config.Key) (*identity.Keyring, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	list := make([]identity.Key, 0, len(keys))
	for i, k := range keys {
		secret, err := k.Key.Value()
		if err != nil {
			return nil, fail(exitConfig, "set it, or take the key out of the configuration", "auth.keys[%d] %s: %w", i, k.Name, err)
		}
		role, ok := identity.ParseRole(k.Role)
		if !ok {
			return nil, fail(exitConfig, "tba config explain auth.keys.role", "auth.keys[%d] %s: role %q", i, k.Name, k.Role)
		}
		key := identity.Key{Name: k.Name, Secret: secret, Pool: k.Pool, Classes: k.Classes, Role: role}
		if k.MaxPriority != "" {
			key.HasCeiling = true
			if key.MaxPriority, ok = priorityWords[k.MaxPriority]; !ok {
				return nil, fail(exitConfig, "tba config explain auth.keys.max_priority", "auth.keys[%d] %s: max_priority %q", i, k.Name, k.MaxPriority)
			}
		}
		list = append(list, key)
	}
	ring, err := identity.NewKeyring(list)
	if err != nil {
		return nil, fail(exitConfig, "tba config explain auth.keys", "%w", err)
	}
	return ring, nil
}

var priorityWords = map[string]arbiter.Priority{
	"low": arbiter.Low, "medium": arbiter.Medium, "high": arbiter.High, "critical": arbiter.Critical,
}

// failedAuth is how often one address may present a wrong credential: 20 at once, then one a second.
func failedAuth() *identity.Addresses { return identity.NewAddresses(1, 20, false) }

// perAddress is the limit of one client address; the loopback has none unless the file sets it.
func perAddress(c *config.Config) *identity.Addresses {
	return identity.NewAddresses(float64(c.PerAddress.Rate), int(c.PerAddress.Burst), c.PerAddressSet)
}
