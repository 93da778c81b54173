package config

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// watching starts a watcher on a file and returns what it hands over.
type watching struct {
	t    *testing.T
	file string
	now  chan struct{}
	news chan outcome
	// refuse is how many configurations are answered with "not for now".
	refuse atomic.Int64
}

type outcome struct {
	c   *Config
	err error
}

func watch(t *testing.T, text string, poll time.Duration, manual bool) *watching {
	t.Helper()
	w := &watching{t: t, file: filepath.Join(t.TempDir(), "tba.yaml"), now: make(chan struct{}), news: make(chan outcome, 16)}
	w.write(text)
	c, err := Sources{}.Load(w.file)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	watcher := &Watcher{Path: w.file, Poll: poll, Now: w.now, Manual: manual, Changed: func(c *Config, err error) error {
		w.news <- outcome{c, err}
		if w.refuse.Add(-1) >= 0 {
			return errors.New("not for now")
		}
		return nil
	}}
	go func() { defer close(done); watcher.Run(ctx, c) }()
	t.Cleanup(func() { cancel(); <-done })
	return w
}

// write replaces the file by a rename, as editors do.
func (w *watching) write(text string) {
	w.t.Helper()
	tmp := w.file + ".new"
	if err := os.WriteFile(tmp, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	if err := os.Rename(tmp, w.file); err != nil {
		w.t.Fatal(err)
	}
}

// rpm of the next configuration handed over; an error is handed to want.
func (w *watching) next(wantRPM int64, wantErr string) {
	w.t.Helper()
	select {
	case o := <-w.news:
		switch {
		case wantErr != "":
			if o.err == nil || !strings.Contains(o.err.Error(), wantErr) || o.c != nil {
				w.t.Errorf("got %v, want the error %q", o.err, wantErr)
			}
		case o.err != nil:
			w.t.Errorf("unexpected: %v", o.err)
		case int64(o.c.Pools[0].Policy.Providers[0].RPM) != wantRPM:
			w.t.Errorf("rpm %d, want %d", o.c.Pools[0].Policy.Providers[0].RPM, wantRPM)
		}
	case <-w.t.Context().Done():
		w.t.Error("nothing came")
	case <-time.After(20 * time.Second):
		w.t.Error("nothing came in 20 s")
	}
}

func rpm(n string) string { return "budget: {providers: {openai: {rpm_ceiling: " + n + "}}}\n" }

func TestWatchTakesOverChanges(t *testing.T) {
	t.Parallel()
	for name, poll := range map[string]time.Duration{"by notification": time.Hour, "by poll": 20 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := watch(t, rpm("5"), poll, false)
			w.write(rpm("6"))
			w.next(6, "")
			w.write("nonsense: [")
			w.next(0, "[syntax]")
			w.write(rpm("0"))
			w.next(0, "rpm_ceiling is 0")
			w.write(rpm("7"))
			w.next(7, "")
			if err := os.Remove(w.file); err != nil {
				t.Fatal(err)
			}
			w.next(0, "no such file")
			w.write(rpm("8"))
			w.next(8, "")
		})
	}
}

func TestWatchOnDemand(t *testing.T) {
	t.Parallel()
	w := watch(t, rpm("5"), 10*time.Millisecond, true)
	w.now <- struct{}{} // answers although nothing changed
	w.next(5, "")
	w.write(rpm("6"))
	w.now <- struct{}{}
	w.next(6, "")
	w.write("x")
	w.now <- struct{}{}
	w.next(0, "[type]")
	if len(w.news) > 0 {
		t.Error("a manual watcher spoke unasked")
	}
}

func TestWatchSeesThePriceFile(t *testing.T) {
	t.Parallel()
	price := func(in string) string {
		return "models: [{id: house, provider: openai, prices: [{in: " + in + ", out: 1}]}]"
	}
	dir := t.TempDir()
	prices := filepath.Join(dir, "prices.yaml")
	if err := os.WriteFile(prices, []byte(price("1")), 0o600); err != nil {
		t.Fatal(err)
	}
	w := watch(t, "budget: {providers: {openai: {rpm_ceiling: 9, models: {house: {}}}}}\ncatalog: {file: "+prices+"}\n", 20*time.Millisecond, false)
	if err := os.WriteFile(prices+".new", []byte(price("2")), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(prices+".new", prices); err != nil {
		t.Fatal(err)
	}
	o := <-w.news
	if o.err != nil || o.c.Pools[0].Policy.Providers[0].Models[0].Prices[0].Input != 2_000_000 {
		t.Fatalf("%+v", o)
	}
	if err := os.WriteFile(prices+".new", []byte(price("-2")), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(prices+".new", prices); err != nil {
		t.Fatal(err)
	}
	w.next(0, "[catalog]")
}

// TestWatchTriesAgain: what could not be taken over for now comes again although the file stays as it is, also when
// only a signal reads it.
func TestWatchTriesAgain(t *testing.T) {
	t.Parallel()
	for name, manual := range map[string]bool{"watched": false, "manual": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := watch(t, rpm("5"), 20*time.Millisecond, manual)
			ask := func() {
				if manual {
					w.now <- struct{}{}
				}
			}
			w.refuse.Store(3)
			w.write(rpm("6"))
			ask()
			for range 4 {
				w.next(6, "")
			}
			// A file that is wrong stays wrong.
			w.refuse.Store(2)
			w.write(rpm("0"))
			ask()
			w.next(0, "rpm_ceiling is 0")
			// The next one replaces what waits.
			w.refuse.Store(1)
			w.write(rpm("7"))
			ask()
			w.next(7, "")
			w.next(7, "")
			if len(w.news) > 0 {
				t.Error("it comes again although it was taken over")
			}
		})
	}
}
