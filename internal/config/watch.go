package config

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// settle is how long a file must be quiet before it is read: editors write in several steps.
const settle = 50 * time.Millisecond

// Watcher looks at a configuration file and hands over each new one.
type Watcher struct {
	// Path is the file; Sources are those of the first load.
	Path    string
	Sources Sources
	// Poll is how often the file is compared, as the guarantee behind the notifications; 0 is 5 s.
	Poll time.Duration
	// Now asks for a read at once, and for an answer even when nothing changed: SIGHUP. May be nil.
	Now <-chan struct{}
	// Changed gets each new configuration, or the error of a file that is wrong; the old one then stays in force.
	// The same wrong bytes are reported once. A configuration that it answers with an error could not be taken over for
	// now: it is handed over again every Poll, at most 5 s apart, until the answer is nil or the file has changed again.
	// It is called from one goroutine.
	Changed func(*Config, error) error
	// Manual takes over on Now alone: reload.watch is false.
	Manual bool
}

// Run watches until ctx ends, starting from the configuration in force. A file that is wrong, absent or changed while it is
// read does not end it.
func (w *Watcher) Run(ctx context.Context, from *Config) {
	poll := w.Poll
	if poll <= 0 {
		poll = retryEvery
	}
	tick := time.NewTicker(poll)
	defer tick.Stop()
	events, stop := w.notify()
	defer stop()
	quiet := time.NewTimer(settle)
	quiet.Stop()
	defer quiet.Stop()

	again := time.NewTicker(min(poll, retryEvery))
	defer again.Stop()

	last := seen{sum: from.Sum, priceFile: from.PriceFile}
	periodic := tick.C
	if w.Manual {
		periodic, events = nil, nil
	} else {
		// A change between the first load and the watch has announced itself to nobody.
		last = w.read(last, false)
	}
	for {
		select {
		case <-ctx.Done():
			return
		case _, ok := <-events:
			if !ok {
				events = nil // the poll goes on
				continue
			}
			quiet.Reset(settle)
		case <-quiet.C:
			last = w.read(last, false)
		case <-periodic:
			last = w.read(last, false)
		case <-w.Now:
			last = w.read(last, true)
		case <-again.C:
			if last.pending != nil {
				last.pending = w.handOver(last.pending, nil)
			}
		}
	}
}

// retryEvery is how often a configuration that could not be taken over is tried again, at least.
const retryEvery = 5 * time.Second

// seen is what was last reported: the bytes of the file, or the error that it could not be read.
type seen struct {
	sum       [32]byte
	priceFile string
	failure   string
	pending   *Config // read and right, and not in force yet
}

// handOver returns what has to be handed over again, nil for nothing.
func (w *Watcher) handOver(c *Config, err error) *Config {
	if w.Changed(c, err) != nil {
		return c // nil when the file was wrong: the same bytes stay wrong
	}
	return nil
}

func (w *Watcher) read(last seen, always bool) seen {
	next := last
	text, err := readFile(w.Path)
	if err != nil {
		if next.failure = err.Error(); next != last || always {
			next.pending = w.handOver(nil, err)
		}
		return next
	}
	next.failure = ""
	if next.sum = sumOf(text, last.priceFile); next == last && !always {
		return last
	}
	c, err := w.Sources.LoadBytes(w.Path, text)
	if err == nil {
		next.priceFile, next.sum = c.PriceFile, c.Sum
	}
	next.pending = w.handOver(c, err)
	return next
}

// notify watches the folder, not the file: editors and Kubernetes replace a file by renaming another over it, and a mounted
// ConfigMap changes by a link beside it. A file system without notifications leaves the poll.
func (w *Watcher) notify() (<-chan struct{}, func()) {
	fs, err := fsnotify.NewWatcher()
	if err == nil {
		if err = fs.Add(filepath.Dir(w.Path)); err != nil {
			err = errors.Join(err, fs.Close())
		}
	}
	if err != nil {
		slog.Warn("configuration file is polled only", "error", fmt.Errorf("watch folder: %w", err))
		return nil, func() {}
	}
	out := make(chan struct{}, 1)
	go func() {
		defer close(out)
		for {
			select {
			case _, ok := <-fs.Events:
				if !ok {
					return
				}
			case _, ok := <-fs.Errors:
				if !ok {
					return
				}
				// An overflow of the kernel's queue: something changed.
			}
			select {
			case out <- struct{}{}:
			default:
			}
		}
	}()
	return out, func() { _ = fs.Close() }
}
