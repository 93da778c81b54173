package rpc

import (
	"context"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/engine"
	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
)

// answers are the messages of the two frequent answers, reused: once added to a frame they are bytes.
type answers struct {
	lease  tbav1.LeaseResponse
	commit tbav1.CommitResponse
}

// answer adds the frame that answers a call to out.
func (x *session) answer(out *framesOut, scratch *answers, c *sessionCall, r *engine.Reply) error {
	if c.group != nil {
		if !x.settled(c, r) {
			return nil
		}
		return out.add(c.group.answer(x.Server))
	}
	if r.Err != nil {
		return out.add(c.frame, fieldError, errorAnswer(x.refused(r.Err)))
	}
	switch c.kind {
	case fieldRequest:
		scratch.lease.Reset()
		return out.add(c.frame, fieldRequest, x.leaseResponse(&scratch.lease, &r.Outcome, c.pool, c.model, c.route))
	case fieldCommit:
		scratch.commit.Reset()
		return out.add(c.frame, fieldCommit, commitResponse(&scratch.commit, &r.Outcome))
	case fieldRelease:
		return out.add(c.frame, fieldRelease, releaseResponse(&r.Outcome))
	case fieldExtend:
		return out.add(c.frame, fieldExtend, extendResponse(&r.Outcome))
	default:
		return out.add(c.frame, fieldSignal, signalResponse(&r.Outcome))
	}
}

// track remembers the leases that the session holds, to tell when one is revoked or has expired. mu is held.
func (x *session) track(c *sessionCall, r *engine.Reply) {
	if r.Err != nil {
		return
	}
	switch c.kind {
	case fieldRequest:
		if r.Answer.Status == arbiter.Granted && r.Token != nil {
			x.hold(r.Answer.Lease.Lease, c.pool)
		}
	case fieldCommit, fieldRelease:
		delete(x.held, c.lease)
	}
}

// followed is a pool whose events a session follows.
type followed struct{ pool string }

// hold remembers one lease and follows the events of its pool from then on. mu is held.
func (x *session) hold(id arbiter.LeaseID, pool string) {
	if f := x.pools[pool]; f != nil {
		x.held[id] = f
		return
	}
	f := &followed{pool}
	x.pools[pool], x.held[id] = f, f
	page, err := x.feed.Events(pool, 0, 1)
	if err != nil {
		return // the pool was closed meanwhile: its sessions end soon
	}
	go x.followPool(f, max(page.Last, 1))
}

// followPool tells of ended leases until the session ends.
func (x *session) followPool(f *followed, since uint64) {
	missed := true // what ended between the first grant and the first look at the events
	for {
		news, err := x.feed.Follow(f.pool)
		if err != nil {
			return
		}
		for {
			page, err := x.feed.Events(f.pool, since, 1000, arbiter.EventLeaseRevoked, arbiter.EventLeaseExpired)
			if err != nil {
				return
			}
			// One pass of time may end more leases than the ring keeps events: then the state tells what became of those held here.
			if page.Oldest > since+1 || missed {
				missed = false
				x.tellMissed(f)
			}
			for i := range page.Events {
				x.tellEnd(f, page.Events[i].Lease, page.Events[i].Kind == arbiter.EventLeaseRevoked)
			}
			if len(page.Events) == 0 {
				since = max(page.Last, since)
				break
			}
			since = page.Events[len(page.Events)-1].Sequence
		}
		select {
		case <-news:
		case <-x.ctx.Done():
			return
		}
	}
}

// tellMissed tells what became of the leases of a pool that are held here, as its state has it. A revocation may be told twice.
func (x *session) tellMissed(f *followed) {
	x.mu.Lock()
	ids := make([]arbiter.LeaseID, 0, len(x.held))
	for id, of := range x.held {
		if of == f {
			ids = append(ids, id)
		}
	}
	x.mu.Unlock()
	var expired, revoked, over []arbiter.LeaseID
	if err := x.view(x.ctx, f.pool, func(s *arbiter.State) error {
		for _, id := range ids {
			l, ok := s.Lease(id)
			switch {
			case !ok, l.Phase == arbiter.Committed, l.Phase == arbiter.ReleasedPhase:
				over = append(over, id) // by another connection
			case l.Phase == arbiter.RevokedPhase:
				revoked = append(revoked, id)
			case l.Phase == arbiter.Held, !l.Phase.Live():
				expired = append(expired, id)
			}
		}
		return nil
	}); err != nil {
		return // the session ends, or the pool cannot be seen: the next gap looks again
	}
	x.mu.Lock()
	for _, id := range over {
		delete(x.held, id)
	}
	x.mu.Unlock()
	for _, id := range revoked {
		x.tellEnd(f, id, true)
	}
	for _, id := range expired {
		x.tellEnd(f, id, false)
	}
}

// tellEnd notifies the client of the end, or of the revocation, of a lease of this session.
func (x *session) tellEnd(f *followed, id arbiter.LeaseID, revoked bool) {
	x.mu.Lock()
	_, mine := x.held[id]
	if mine && !revoked {
		delete(x.held, id)
	}
	x.mu.Unlock()
	if !mine {
		return
	}
	m := &tbav1.Revocation{LeaseId: engine.FormatLeaseID(id), Reason: "expired"}
	if revoked {
		m.Reason = "revoked"
		m.EndsInMs = x.endsIn(f.pool, id)
	}
	x.notice(notice{field: fieldRevocation, message: m})
}

func (x *session) endsIn(pool string, id arbiter.LeaseID) (ms int64) {
	_ = x.view(x.ctx, pool, func(s *arbiter.State) error { // a pool that cannot be seen leaves it at 0: the lease has ended
		if l, ok := s.Lease(id); ok && l.Phase.Live() {
			ms = floorMillis(l.Deadline - s.Now())
		}
		return nil
	})
	return ms
}

// subscribeFrame begins a subscription under a frame id. Its goroutine keeps nothing for a client that reads slowly.
func (x *session) subscribeFrame(id uint64, m *tbav1.BackpressureSubscription) *arbiter.Error {
	watch, pool, err := x.subscribe(m, x.caller)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(x.ctx)
	x.mu.Lock()
	_, taken := x.watches[id]
	full := len(x.watches) >= sessionWatches
	if !taken && !full {
		x.watches[id] = stop
	}
	x.mu.Unlock()
	if taken || full {
		stop()
		watch.Close()
		return invalid("frames.id", "frame_id_in_use", "%d: at most %d subscriptions with ids of their own run on one session", id, sessionWatches)
	}
	go func() {
		defer watch.Close()
		_ = x.follow(ctx, watch, time.Duration(m.GetMinIntervalMs())*time.Millisecond, func(p *engine.Pressure) error {
			select {
			case x.notices <- notice{id: id, field: fieldBackpressure, message: x.signal(pool, p).message}:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}) // it ends by cancel or with the session
		x.mu.Lock()
		delete(x.watches, id)
		x.open++ // its end is answered like that of any frame
		x.mu.Unlock()
		x.notice(errorNotice(id, context.Canceled, true))
		stop()
	}()
	return nil
}

// sendNotices sends what nobody asked for and what never reached the engine, as much of it at once as there is.
func (x *session) sendNotices() {
	var out framesOut
	draining := x.draining
	for {
		answered := 0
		take := func(n notice) error {
			if n.answers {
				answered++
			}
			return out.add(n.id, n.field, n.message)
		}
		var err error
		select {
		case n := <-x.notices:
			err = take(n)
		case <-draining:
			draining = nil
			err = take(notice{field: fieldDrain, message: &tbav1.DrainNotice{
				Reason: "the server goes down: open the next session elsewhere or in a while", ClosesInMs: x.closesIn.Load(), RetryAfterMs: 1000,
			}})
		case <-x.closed:
			x.cancel(errClosing())
			return
		case <-x.ctx.Done():
			return
		}
		for more := true; more && err == nil && !out.full() && out.count < noticeBatch; {
			select {
			case n := <-x.notices:
				err = take(n)
			default:
				more = false
			}
		}
		if err == nil {
			err = x.send(&out)
		}
		if err != nil {
			x.cancel(err)
			return
		}
		x.sent(answered)
	}
}
