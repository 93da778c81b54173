package engine

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
)

// Pressure is the backpressure of a pool at one moment. It is shared: read
// only. Sequence grows with each one that is worth sending.
type Pressure struct {
	Sequence uint64
	arbiter.Pressure
}

const (
	// evaluateEvery is how often backpressure is computed without entries.
	evaluateEvery = time.Second
	// evaluateGap is the least time between two computations.
	evaluateGap = 10 * time.Millisecond
	// watchShards spreads subscribers; shardGap is the pause between two shards
	// of a large crowd, so that waking ten thousand leaves room for grants.
	watchShards = 32
	shardGap    = 4 * time.Millisecond
	crowd       = 256
)

// pressure computes the backpressure of a pool and tells it to any number of
// subscribers: one pointer is replaced and a few channels are closed. Nobody
// is waited for.
type pressure struct {
	latest atomic.Pointer[Pressure]
	work   chan struct{} // one token when entries were applied
	count  atomic.Int64  // subscribers
	turn   atomic.Uint32
	shards [watchShards]struct {
		mu      sync.Mutex
		changed chan struct{}
		seen    *Pressure // what changed was made for
	}
}

func (p *pressure) init() {
	p.work = make(chan struct{}, 1)
	p.latest.Store(&Pressure{})
	for i := range p.shards {
		p.shards[i].changed = make(chan struct{})
	}
}

// level is what answers carry.
func (p *pressure) level() (arbiter.Level, int32) {
	v := p.latest.Load()
	return v.Level, v.DelayMS
}

// nudge says that entries were applied.
func (p *pressure) nudge() {
	select {
	case p.work <- struct{}{}:
	default:
	}
}

// publish computes the pressure of now. It reports whether it is worth sending:
// level, delay or the shed flag changed.
func (f *follower) publish() (changed bool) {
	var next Pressure
	f.mu.Lock()
	if f.err == nil {
		if err := protect(func() {
			_ = f.at(f.p.clock.now(), func(s *arbiter.State) error {
				next.Pressure = s.Pressure()
				return nil
			})
		}); err != nil {
			f.fail(err)
		}
	}
	broken := f.err != nil
	f.mu.Unlock()
	if broken {
		return false
	}
	last := f.p.pressure.latest.Load()
	changed = next.Level != last.Level || next.DelayMS != last.DelayMS || next.ShedLow != last.ShedLow || last.Sequence == 0
	next.Sequence = last.Sequence
	if changed {
		next.Sequence++
	}
	f.p.pressure.latest.Store(&next)
	return changed
}

// run evaluates after entries and each second, until the follower ends.
func (p *pressure) run(f *follower) {
	tick := time.NewTicker(evaluateEvery)
	defer tick.Stop()
	rest := time.NewTimer(evaluateGap)
	defer rest.Stop()
	for {
		select {
		case <-p.work:
		case <-tick.C:
		case <-f.done:
			p.broadcast()
			return
		}
		if f.publish() {
			p.broadcast()
		}
		rest.Reset(evaluateGap)
		select {
		case <-rest.C:
		case <-f.done:
		}
	}
}

// broadcast wakes the subscribers, a large crowd in portions.
func (p *pressure) broadcast() {
	large := p.count.Load() > crowd
	for i := range p.shards {
		s := &p.shards[i]
		s.mu.Lock()
		close(s.changed)
		s.changed = make(chan struct{})
		s.mu.Unlock()
		if large && i < watchShards-1 {
			pause := time.NewTimer(shardGap)
			<-pause.C
		}
	}
}

// Watch is a subscription to the backpressure of a pool. It may be used by one
// goroutine at a time; it keeps nothing for a slow one.
type Watch struct {
	p     *pressure
	shard int
	once  sync.Once
}

// WatchBackpressure subscribes to a pool's backpressure. Close the Watch.
func (e *Engine) WatchBackpressure(pool string) (*Watch, error) {
	p, err := e.find(pool)
	if err != nil {
		return nil, err
	}
	p.pressure.count.Add(1)
	return &Watch{p: &p.pressure, shard: int(p.pressure.turn.Add(1) % watchShards)}, nil
}

// Latest returns the value of now and a channel that is closed when another
// one is worth sending: level, delay or the shed flag changed. Headrooms are
// refreshed at least each second without that. It must not be modified.
func (w *Watch) Latest() (*Pressure, <-chan struct{}) {
	s := &w.p.shards[w.shard]
	s.mu.Lock()
	changed := s.changed
	s.mu.Unlock()
	return w.p.latest.Load(), changed
}

// Close ends the subscription. A second Close does nothing.
func (w *Watch) Close() { w.once.Do(func() { w.p.count.Add(-1) }) }

// Level is the backpressure level of a pool and the recommended delay before a
// call, in milliseconds; the calm level for a pool that is not open.
func (e *Engine) Level(pool string) (arbiter.Level, int32) {
	p, err := e.find(pool)
	if err != nil {
		return arbiter.LevelNone, 0
	}
	return p.pressure.level()
}
