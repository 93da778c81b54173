package client

import (
	"context"
	"errors"
	"sync"
	"time"

	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
)

const (
	// outboxSize bounds the commits in the background; beyond, the oldest is
	// given up with an error.
	outboxSize = 1 << 16
	// outboxHorizon is how long a commit is repeated: the arbiter records a later
	// one as unattributed only.
	outboxHorizon = time.Hour
	maxSettle     = 64 // commits that ride on one request: as many as a server takes
	maxSenders    = 16 // commits sent at the same time, each on its own
)

var errGivenUp = errors.New("commit given up after an hour, or because too many wait")

// outbox holds commits that go in the background. One goroutine empties it,
// while there is something in it.
type outbox struct {
	c *Client

	mu      sync.Mutex
	items   []*parcel
	out     int  // taken and not yet settled
	running bool // the goroutine
	wake    chan struct{}
	senders chan struct{}   // one element per commit under way on its own
	empty   []chan struct{} // closed when nothing is left
}

type parcel struct {
	m     *tbav1.LeaseCommit
	done  func(Receipt, error)
	until time.Time // the horizon
	due   time.Time // not alone before this
	tries int
}

func newOutbox(c *Client) *outbox {
	return &outbox{c: c, wake: make(chan struct{}, 1), senders: make(chan struct{}, maxSenders)}
}

// settles reports whether requests carry commits.
func (o *outbox) settles() bool { return o.c.opts.linger > 0 && !o.c.sessionInUse() }

func (o *outbox) add(m *tbav1.LeaseCommit, done func(Receipt, error)) {
	now := time.Now()
	p := &parcel{m: m, done: done, until: now.Add(outboxHorizon), due: now}
	if o.settles() {
		p.due = now.Add(o.c.opts.linger)
	}
	o.enqueue(p)
}

func (o *outbox) enqueue(p *parcel) {
	o.mu.Lock()
	var lost *parcel
	if len(o.items) >= outboxSize {
		lost, o.items = o.items[0], o.items[1:]
	}
	o.items = append(o.items, p)
	start := !o.running
	if start {
		o.running = o.c.spawn(o.run)
	}
	alive := o.running
	o.mu.Unlock()
	if lost != nil {
		o.tell(lost, Receipt{LeaseID: lost.m.GetLeaseId()}, errGivenUp)
	}
	if !alive {
		o.drop(ErrClosed)
		return
	}
	o.nudge()
}

func (o *outbox) nudge() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// rescue keeps a commit that could not be delivered.
func (o *outbox) rescue(m *tbav1.LeaseCommit, err error) error {
	var away *UnavailableError
	switch {
	case errors.As(err, &away):
		kept := *away
		kept.Queued, err = true, &kept
	case errors.Is(err, context.DeadlineExceeded):
		err = &UnavailableError{Reason: "network", Queued: true, cause: err}
	default:
		return err
	}
	o.add(m, nil)
	return err
}

// board puts waiting commits of the same pool on a request.
func (o *outbox) board(m *tbav1.LeaseRequest) []*parcel {
	if !o.settles() || m.GetDryRun() {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	var riding []*parcel
	rest := o.items[:0]
	for _, p := range o.items {
		if len(riding) < maxSettle && p.m.GetPool() == m.GetPool() {
			riding = append(riding, p)
			m.Settle = append(m.Settle, p.m)
			continue
		}
		rest = append(rest, p)
	}
	clear(o.items[len(rest):])
	o.items = rest
	o.out += len(riding)
	return riding
}

// land settles what rode on a request, in the order of its answer.
func (o *outbox) land(riding []*parcel, m *tbav1.LeaseResponse, err error) {
	for i, p := range riding {
		switch {
		case err != nil || i >= len(m.GetSettled()):
			o.again(p) // the request failed, not the commit: send it alone
		case m.GetSettled()[i].GetError() != nil:
			o.settle(p, nil, fromFrame(m.GetSettled()[i].GetError()))
		default:
			o.settle(p, m.GetSettled()[i].GetCommit(), nil)
		}
	}
}

// settle ends a commit, or repeats it.
func (o *outbox) settle(p *parcel, m *tbav1.CommitResponse, err error) {
	var away *UnavailableError
	pending := err == nil && m.GetResult() == tbav1.CommitResponse_ACCEPTED_PENDING
	if pending || errors.As(err, &away) {
		o.again(p)
		return
	}
	r := Receipt{LeaseID: p.m.GetLeaseId()}
	if err == nil {
		r, err = receipt(p.m.GetLeaseId(), m)
	}
	o.tell(p, r, err)
	o.finished()
}

func (o *outbox) again(p *parcel) {
	if time.Now().After(p.until) {
		o.tell(p, Receipt{LeaseID: p.m.GetLeaseId()}, errGivenUp)
		o.finished()
		return
	}
	p.due = time.Now().Add(fullJitter(p.tries))
	p.tries++
	o.enqueue(p)
	o.finished()
}

func (o *outbox) finished() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.out--
	o.announce()
}

// announce, with o.mu held, wakes those who wait for an empty outbox.
func (o *outbox) announce() {
	if o.out > 0 || len(o.items) > 0 {
		return
	}
	for _, ch := range o.empty {
		close(ch)
	}
	o.empty = nil
}

func (o *outbox) tell(p *parcel, r Receipt, err error) {
	if p.done != nil {
		p.done(r, err)
	}
	if o.c.opts.onCommit != nil {
		o.c.opts.onCommit(r, err)
	}
}

// run sends what is due, until nothing is left.
func (o *outbox) run() {
	for {
		for _, p := range o.due() {
			select {
			case o.senders <- struct{}{}:
				o.c.work.Go(func() { o.send(p) }) // run is counted, so the count is not at zero
			case <-o.c.ctx.Done():
				o.settle(p, nil, ErrClosed)
			}
		}
		wait, more := o.next()
		if !more {
			return
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-o.wake:
		case <-o.c.ctx.Done():
			t.Stop()
			o.drop(ErrClosed)
			return
		}
		t.Stop()
	}
}

func (o *outbox) send(p *parcel) {
	defer func() { <-o.senders }()
	ctx, cancel := context.WithTimeout(o.c.ctx, endPatience)
	defer cancel()
	a, err := o.c.exchange(ctx, commitCall(p.m))
	if errors.Is(err, context.DeadlineExceeded) {
		err = &UnavailableError{Reason: "network", cause: err}
	}
	o.settle(p, a.GetCommit(), err)
}

// due takes out what is to be sent alone now.
func (o *outbox) due() []*parcel {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	var due []*parcel
	rest := o.items[:0]
	for _, p := range o.items {
		if p.due.After(now) {
			rest = append(rest, p)
		} else {
			due = append(due, p)
		}
	}
	clear(o.items[len(rest):])
	o.items = rest
	o.out += len(due)
	return due
}

// next returns the wait for the next commit; without more, the goroutine ends.
func (o *outbox) next() (wait time.Duration, more bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.items) == 0 {
		o.running = false
		return 0, false
	}
	first := o.items[0].due
	for _, p := range o.items[1:] {
		if p.due.Before(first) {
			first = p.due
		}
	}
	return max(time.Until(first), 0), true
}

// drop gives up everything.
func (o *outbox) drop(err error) {
	o.mu.Lock()
	items := o.items
	o.items, o.running = nil, false
	o.announce()
	o.mu.Unlock()
	for _, p := range items {
		o.tell(p, Receipt{LeaseID: p.m.GetLeaseId()}, err)
	}
}

// flush waits until nothing is left, and hurries what lingers.
func (o *outbox) flush(ctx context.Context) error {
	o.mu.Lock()
	if o.out == 0 && len(o.items) == 0 {
		o.mu.Unlock()
		return nil
	}
	ch := make(chan struct{})
	o.empty = append(o.empty, ch)
	for _, p := range o.items {
		if p.tries == 0 {
			p.due = time.Time{}
		}
	}
	o.mu.Unlock()
	o.nudge()
	select {
	case <-ch:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
