package engine

import (
	"errors"
	"fmt"
)

// PoolStatus is the state of a pool for people.
type PoolStatus struct {
	// State is "ready", "draining", "stopped" (a broken invariant),
	// "unavailable" (the journal), "full" or "no_policy"; Message says why it is
	// not ready and what to do.
	State, Message string
	Writer         string
	Epoch, Seq     uint64
	Waiting        int
	Subscribers    int64
	// PolicyVersion and PolicyHash are those in force.
	PolicyVersion uint64
	PolicyHash    [32]byte
}

// PoolStatus returns the state of an open pool.
func (e *Engine) PoolStatus(pool string) (PoolStatus, error) {
	p, err := e.find(pool)
	if err != nil {
		return PoolStatus{}, err
	}
	s := PoolStatus{State: "ready", Writer: e.opts.Writer, Waiting: int(p.stats.waiters.Load()), Subscribers: p.pressure.count.Load()}
	p.follow.mu.Lock()
	s.Epoch, s.Seq = p.follow.state.Position()
	s.PolicyHash = p.follow.state.PolicyHash()
	if pol := p.follow.state.Policy(); pol != nil {
		s.PolicyVersion = pol.Version
	}
	p.follow.mu.Unlock()
	s.State, s.Message = p.condition(s.PolicyVersion != 0 || s.PolicyHash != [32]byte{})
	return s, nil
}

func (p *pool) condition(policy bool) (state, message string) {
	stopped, broken := p.health.faults()
	switch {
	case broken != nil:
		return "unavailable", errBroken(p.name, broken).Text
	case stopped != "":
		return "stopped", errStopped(p.name, stopped).Text
	case p.e.isDraining():
		return "draining", errDraining(p.name).Text
	case p.health.silent.Load():
		return "unavailable", errJournalSilent(p.name).Text
	case p.health.full.Load():
		return "full", errJournalFull(p.name).Text
	case !policy:
		return "no_policy", fmt.Sprintf("pool %s has no policy yet: adopt one (tba serve -c FILE)", p.name)
	}
	return "ready", ""
}

func (e *Engine) isDraining() bool {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.draining
}

// Ready returns nil when every pool can grant, else all reasons joined.
func (e *Engine) Ready() error {
	names := e.Pools()
	if len(names) == 0 {
		return errors.New("no pool is open")
	}
	var faults []error
	for _, name := range names {
		s, err := e.PoolStatus(name)
		if err != nil {
			continue // closed meanwhile
		}
		if s.State != "ready" {
			faults = append(faults, fmt.Errorf("%s: %s", s.State, s.Message))
		}
	}
	return errors.Join(faults...)
}
