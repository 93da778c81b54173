package gateway

import (
	"context"
	"sync"
)

// inflight counts the calls that run, and shuts the door when the gateway goes down. The zero value is open.
type inflight struct {
	mu    sync.Mutex
	n     int
	shut  bool
	empty chan struct{} // closed when shut and n is 0
}

// enter takes a call in; false when the door is shut.
func (f *inflight) enter() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.shut {
		return false
	}
	f.n++
	return true
}

// stay takes one more in for a call that is in already: it is never turned away.
func (f *inflight) stay() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n++
}

func (f *inflight) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.n--; f.n == 0 && f.shut {
		close(f.empty)
	}
}

// drain shuts the door and waits until nobody is in, or ctx is over.
func (f *inflight) drain(ctx context.Context) error {
	f.mu.Lock()
	if !f.shut {
		f.shut, f.empty = true, make(chan struct{})
		if f.n == 0 {
			close(f.empty)
		}
	}
	f.mu.Unlock()
	select {
	case <-f.empty:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
