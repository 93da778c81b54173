package engine

import "github.com/token-budget-arbiter/tba/arbiter"

// recent remembers lease ids in two generations of at most generation each.
// The zero value is empty.
type recent struct {
	young, old map[arbiter.LeaseID]struct{}
	from       int64 // logical time of the first in young
	since      int64 // ids added from here on are all remembered
}

const generation = 1 << 16

func (r *recent) add(id arbiter.LeaseID, now int64) {
	if len(r.young) >= generation {
		r.old, r.young = r.young, nil
		r.since = r.from
	}
	if r.young == nil {
		r.young, r.from = map[arbiter.LeaseID]struct{}{}, now
	}
	r.young[id] = struct{}{}
}

func (r *recent) has(id arbiter.LeaseID) bool {
	_, young := r.young[id]
	_, old := r.old[id]
	return young || old
}

// giveBack releases a grant in the next batch: nobody holds it.
func (p *pool) giveBack(c *call) {
	p.work[laneVoid] = append(p.work[laneVoid], voidOf(c))
}

// voidOf is the command that gives the grant of c back. Nobody waits for it.
func voidOf(c *call) *call {
	v := &call{pool: c.pool, lane: laneVoid, decided: c.decided}
	v.state.Store(callGone)
	v.release = arbiter.Release{Lease: c.answer.Lease.Lease, Principal: c.request.Principal, Outcome: arbiter.OutcomeNotSent, Void: true}
	v.cmd = &v.release
	return v
}

// dropHeld leaves those voids out whose lease somebody else holds by now: the
// request was repeated, over another link, before it was known that its first
// answer reached nobody, and the repeat was given the same lease. A call may
// run under it. Where it is no longer known whether there was a repeat, the
// lease is left to end by itself.
func (p *pool) dropHeld() {
	list := p.work[laneVoid]
	kept := list[:0]
	for _, v := range list {
		if id := v.release.Lease; !p.handed.has(id) && v.decided >= p.handed.since {
			kept = append(kept, v)
		}
	}
	clear(list[len(kept):])
	p.work[laneVoid] = kept
}
