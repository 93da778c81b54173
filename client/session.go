package client

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"

	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
)

// session keeps one stream to the arbiter, opened at the first call and again
// after a break when a call needs it.
type session struct {
	c    *Client
	stub tbav1.TokenBudgetArbiterClient

	restUntil atomic.Int64 // unix ns; until then RPCs are used. 0: never rested

	mu       sync.Mutex
	cur      *link
	opening  *opening
	ever     bool      // an answer has come on some stream
	failures int       // streams in a row that ended without an answer
	gate     time.Time // no new stream before
	last     error     // why the last stream ended
}

// opening is an attempt to get a stream, shared by all calls that need one.
type opening struct {
	done chan struct{} // closed when link or err is set
	link *link
	err  error
}

func newSession(c *Client, stub tbav1.TokenBudgetArbiterClient) *session {
	return &session{c: c, stub: stub}
}

func (s *session) rest(d time.Duration) { s.restUntil.Store(time.Now().Add(d).UnixNano()) }

func (s *session) resting() bool {
	until := s.restUntil.Load()
	return until != 0 && time.Now().UnixNano() < until
}

// do puts a call on the stream and waits for its answer.
func (s *session) do(ctx context.Context, m *call, try int, patience time.Duration) (*answer, error) {
	l, err := s.link(ctx, try)
	if err != nil {
		return nil, err
	}
	id, answers := l.put(m, nil)
	grants := m.GetRequest() != nil && !m.GetRequest().GetDryRun()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case a := <-answers:
		return opened(a)
	case <-l.done:
		select {
		case a := <-answers: // came just before the break
			return opened(a)
		default:
			return nil, l.failure()
		}
	case <-ctx.Done():
		if !l.abandon(id, grants) {
			// An arbiter answers right at the deadline, so this is no rare race.
			a := <-answers
			if !grants || a.GetLease().GetStatus() != tbav1.LeaseStatus_GRANTED {
				return opened(a) // says more than the end of ctx
			}
			l.giveBack(a.GetLease())
		}
		return nil, context.Cause(ctx)
	case <-timer.C:
		// The next try repeats the request and gets the same grant: only the last
		// may give one back.
		if !l.abandon(id, grants && try+1 == maxTries) {
			return opened(<-answers)
		}
		l.killIfSilent(answerPatience)
		return nil, &UnavailableError{Reason: "network", cause: errors.New("no answer in time")}
	}
}

// watch delivers signals until ctx ends or the stream breaks; it never returns
// nil.
func (s *session) watch(parent context.Context, sub *tbav1.BackpressureSubscription, deliver func(*tbav1.BackpressureSignal)) error {
	l, err := s.link(parent, 1)
	if err != nil {
		return err
	}
	ctx, silent := watchdog(parent)
	defer silent.stop()
	id, answers := l.put(&call{Call: &tbav1.SessionRequest_Frame_Subscribe{Subscribe: sub}}, func(m *tbav1.BackpressureSignal) {
		silent.feed()
		deliver(m)
	})
	select {
	case a := <-answers:
		_, err := opened(a)
		return err
	case <-l.done:
		return l.failure()
	case <-ctx.Done():
		l.abandon(id, true)
		if parent.Err() != nil {
			return context.Cause(parent)
		}
		l.killIfSilent(signalPatience)
		return &UnavailableError{Reason: "network", cause: errSilent}
	}
}

func opened(a *answer) (*answer, error) {
	if e := a.GetError(); e != nil {
		return nil, fromFrame(e)
	}
	return a, nil
}

// link returns the stream, or opens it. A first try does not wait for an
// arbiter that is known to be away; a second one waits until it may be asked.
func (s *session) link(ctx context.Context, try int) (*link, error) {
	s.mu.Lock()
	if l := s.cur; l != nil {
		s.mu.Unlock()
		return l, nil
	}
	wait := time.Until(s.gate)
	if wait > 0 && try == 0 && s.failures > 0 {
		err := &UnavailableError{Reason: "network", RetryAfter: wait, known: true, cause: s.last}
		s.mu.Unlock()
		return nil, err
	}
	o := s.opening
	if o == nil {
		o = &opening{done: make(chan struct{})}
		if !s.c.spawn(func() { s.open(o, wait) }) {
			s.mu.Unlock()
			return nil, ErrClosed
		}
		s.opening = o
	}
	s.mu.Unlock()
	select {
	case <-o.done:
		return o.link, o.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (s *session) open(o *opening, wait time.Duration) {
	l, err := s.connect(wait)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opening = nil
	switch {
	case err == nil:
		s.cur, o.link = l, l
		if !s.c.spawn(l.run) {
			l.cancel()
			s.cur, o.link, o.err = nil, nil, ErrClosed
		}
	case s.c.ctx.Err() != nil:
		o.err = ErrClosed
	default:
		s.broke(false, err)
		o.err = s.explain(false, err)
	}
	close(o.done)
}

func (s *session) connect(wait time.Duration) (*link, error) {
	if err := sleep(s.c.ctx, wait); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(s.c.ctx)
	stream, err := s.stub.Session(s.c.unary.outgoing(ctx))
	if err != nil {
		cancel()
		return nil, fromRPC(s.c.ctx, err)
	}
	return newLink(s, stream, cancel), nil
}

// broke records the end of a stream, with s.mu held. The wait before the next
// one is drawn here, once, so that a process with many calls comes back at one
// random moment and not at the earliest of many.
func (s *session) broke(answered bool, err error) {
	if answered {
		s.failures = 0
	} else {
		s.failures++
	}
	s.gate = time.Now().Add(fullJitter(s.failures))
	s.last = err
}

// explain, with s.mu held, says what the end of a stream means for its calls.
func (s *session) explain(answered bool, err error) error {
	if code(err) == codes.Unimplemented || (!answered && !s.ever) {
		return &noSessionError{cause: err}
	}
	return err
}

// ended is told by a link that it is over.
func (s *session) ended(l *link, answered bool, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cur == l {
		s.cur = nil
		s.broke(answered, err)
	}
	return s.explain(answered, err)
}

// heard is told by a link about its first answer.
func (s *session) heard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ever, s.failures = true, 0
}
