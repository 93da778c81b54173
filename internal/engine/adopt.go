package engine

import (
	"context"

	"github.com/token-budget-arbiter/tba/arbiter"
)

// Adopt brings a policy into force in an open pool. What is held and spent
// stays; a lowered limit cancels nothing. Version 0 takes the next version. A
// policy that differs from the one in force only in its version is adopted
// already: nothing is done. An older version with another content is
// CodeConflict "policy_version", a policy that cannot be used CodeInvalid.
func (e *Engine) Adopt(ctx context.Context, pool string, policy *arbiter.Policy) error {
	p, err := e.find(pool)
	if err != nil {
		return err
	}
	return p.adopt(ctx, policy, false)
}

// adopt is Adopt; with opening an older version gives way to the journal's.
func (p *pool) adopt(ctx context.Context, policy *arbiter.Policy, opening bool) error {
	if policy == nil {
		return arbiter.Errorf(arbiter.CodeInvalid, "policy", "pool %s: no policy to adopt", p.name)
	}
	if err := p.follow.wait(ctx, p.follow.handed()); err != nil {
		return err
	}
	p.follow.mu.Lock()
	force := p.follow.state.Policy()
	p.follow.mu.Unlock()
	next := *policy
	if force != nil {
		same := next
		same.Version = force.Version
		_, hash, err := same.Encode()
		if err != nil {
			return arbiter.Errorf(arbiter.CodeInvalid, "policy", "pool %s: %v", p.name, err)
		}
		if _, have, err := force.Encode(); err == nil && have == hash {
			return nil
		}
		switch {
		case next.Version == 0:
			next.Version = force.Version + 1
		case next.Version > force.Version:
		case opening:
			p.log.Warn("the journal has a newer policy: the one given at start is not adopted", "given", next.Version, "in_force", force.Version)
			return nil
		default:
			return arbiter.Errorf(arbiter.CodeConflict, "policy_version", "pool %s: version %d is not above %d, which is in force with another content", p.name, next.Version, force.Version)
		}
	} else if next.Version == 0 {
		next.Version = 1
	}
	packed, hash, err := next.Encode()
	if err != nil {
		return arbiter.Errorf(arbiter.CodeInvalid, "policy", "pool %s: %v", p.name, err)
	}
	if err := next.Validate(); err != nil {
		return arbiter.Errorf(arbiter.CodeInvalid, "policy", "pool %s: %v", p.name, err)
	}
	for i := range next.Providers {
		if _, err := zone(next.Providers[i].Zone); err != nil {
			return err
		}
	}
	period, err := Bounds(next.Period, p.clock.unix(p.clock.now()))
	if err != nil {
		return err
	}
	op := Op{Command: &arbiter.Adopt{Version: next.Version, Hash: hash, Policy: packed, Period: period}}
	c, aerr := newCall(p, &op, nil, ticket{})
	if aerr != nil {
		return aerr
	}
	if _, err = c.do(ctx, p.e.keys()); err != nil {
		return err
	}
	p.log.Info("policy adopted", "version", next.Version)
	return nil
}
