package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"

	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
)

// SignalKind says what happened to a running call.
type SignalKind int

// Kinds of signals. The zero value is refused.
const (
	// SignalActivate: a lease of DeferredStart begins now.
	SignalActivate SignalKind = iota + 1
	// SignalFirstByte: the first byte of the answer has arrived.
	SignalFirstByte
	// SignalProvider: the provider said something about its limits.
	SignalProvider
)

// Signal reports an event of a running call.
type Signal struct {
	// Kind says what happened. Required.
	Kind SignalKind
	// FirstByte is from call start to the first byte, with SignalFirstByte.
	FirstByte time.Duration
	// Provider is what the provider said, with SignalProvider.
	Provider *ProviderSignal
	// Outcome is how the holder judges that. Zero: the arbiter judges.
	Outcome Outcome
}

// Signal reports an event of the running call. Errors: *RefusedError when the
// lease is gone or has ended, *UnavailableError.
func (l *Lease) Signal(ctx context.Context, s Signal) error {
	if l.local {
		return nil
	}
	_, err := l.c.exchange(ctx, signalCall(&tbav1.SignalLeaseRequest{
		LeaseId: l.id, LeaseToken: l.token, Pool: l.pool,
		Kind: tbav1.SignalLeaseRequest_Kind(s.Kind), FirstByteMs: ms(s.FirstByte),
		ProviderSignal: s.Provider.wire(), Outcome: tbav1.LeaseCommit_Outcome(s.Outcome),
	}))
	if err != nil {
		l.judge(err)
		return fmt.Errorf("signal lease %s: %w", l.id, err)
	}
	return nil
}

// Activate begins the call of a lease that was asked for with DeferredStart.
func (l *Lease) Activate(ctx context.Context) error {
	return l.Signal(ctx, Signal{Kind: SignalActivate})
}

// keep extends the lease at each third of its life, until it has ended.
func (l *Lease) keep() {
	if l.ttl <= 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over {
		l.timer = time.AfterFunc(l.ttl/3, l.tick)
	}
}

// tick runs on a timer's goroutine, which Close must know of.
func (l *Lease) tick() { l.c.spawn(l.extend) }

func (l *Lease) extend() {
	l.mu.Lock()
	over, end := l.over, l.expires
	l.mu.Unlock()
	if over {
		return
	}
	if !time.Now().Before(end) {
		l.lose(&LostError{LeaseID: l.id, Reason: "not_extended"})
		return
	}
	ctx, cancel := context.WithDeadline(l.ctx, end)
	defer cancel()
	sent := time.Now()
	a, err := l.c.exchange(ctx, extendCall(&tbav1.ExtendLeaseRequest{LeaseId: l.id, LeaseToken: l.token, Pool: l.pool}))
	if err != nil {
		if !l.judge(err) {
			l.again(l.ttl / 6)
		}
		return
	}
	m := a.GetExtend()
	ttl := duration(m.GetTtlMs())
	if ttl == 0 {
		ttl = time.Duration(max(m.GetTtlSeconds(), 0)) * time.Second
	}
	if ttl == 0 {
		// The lease has no life left: extended up to its most, or answered after its
		// end. The arbiter holds nothing for it any more.
		l.lose(&LostError{LeaseID: l.id, Reason: "expired", server: true})
		return
	}
	l.mu.Lock()
	// From the sending, not the answer: the arbiter cannot have counted earlier.
	l.expires = sent.Add(ttl)
	l.mu.Unlock()
	l.again(ttl / 3)
}

// again sets the timer, at the latest for the end of the lease.
func (l *Lease) again(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over {
		l.timer.Reset(max(min(d, time.Until(l.expires)), 0))
	}
}

// judge ends the lease when the arbiter says that it is no longer running.
func (l *Lease) judge(err error) bool {
	var r *RefusedError
	if !errors.As(err, &r) {
		return false
	}
	if r.Code != codes.NotFound && r.Code != codes.FailedPrecondition {
		return false
	}
	if r.Reason == "revoked" {
		return l.lose(&RevokedError{LeaseID: l.id, Reason: r.Message})
	}
	reason := r.Reason
	if reason == "" {
		reason = r.Message
	}
	return l.lose(&LostError{LeaseID: l.id, Reason: reason, server: r.server})
}

// lose ends the context of a lease that its holder has yet to commit.
func (l *Lease) lose(cause error) bool {
	l.end(cause)
	return true
}

// stop ends the extensions; the context goes on until the commit is through.
func (l *Lease) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	if l.timer != nil {
		l.timer.Stop()
	}
}

func (l *Lease) end(cause error) {
	l.stop()
	l.c.forget(l)
	l.cancel(cause)
}
