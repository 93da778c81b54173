package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/config"
	"github.com/token-budget-arbiter/tba/internal/engine"
)

// followFile hands w.Changed each new configuration of w.Path until ctx ends: by SIGHUP, of which hup is told first, by notification, by
// comparing. from is the one in force, which says how often to compare.
func followFile(ctx context.Context, w config.Watcher, from *config.Config, hup func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGHUP)
	now := make(chan struct{}, 1)
	go func() {
		defer signal.Stop(signals)
		for {
			select {
			case <-ctx.Done():
				return
			case <-signals:
				hup()
				select {
				case now <- struct{}{}:
				default: // one is waiting: it reads the file after this signal too
				}
			}
		}
	}()
	w.Now, w.Poll, w.Manual = now, time.Duration(from.Settings.Reload.Poll), !from.Settings.Reload.Watch
	go w.Run(ctx, from)
}

// watchConfig takes over changes of the configuration file until ctx ends.
func (s *server) watchConfig(ctx context.Context, path string, sources config.Sources) {
	changed := func(c *config.Config, err error) error {
		if err == nil {
			err = s.takeOver(ctx, c)
		}
		s.reloaded(path, err)
		if notForNow(err) {
			return err
		}
		return nil
	}
	followFile(ctx, config.Watcher{Path: path, Sources: sources, Changed: changed}, s.inForce, s.reloadTokenKeys)
}

// notForNow reports whether a configuration may yet be taken over as it is: the journal is full or silent, say.
func notForNow(err error) bool {
	var unknown *arbiter.Error
	return errors.As(err, &unknown) && unknown.Code == arbiter.CodeUnavailable
}

// takeOver brings a configuration that was read and checked into force. Credentials are read, and the policies of all pools
// checked, before anything changes: what can still fail between two pools is the journal, and that is tried again.
func (s *server) takeOver(ctx context.Context, c *config.Config) error {
	keys, err := keyring(c.Keys)
	if err != nil {
		return err
	}
	calls, err := s.proxy.settings(c)
	if err != nil {
		return err
	}
	if len(c.Keys) == 0 && len(s.inForce.Keys) > 0 && !s.ports.local() {
		return errors.New("auth.keys is gone from the file, and others can reach this server: restart it on loopback addresses, or keep the keys")
	}
	open := s.pools.Pools()
	for _, p := range c.Pools {
		if !oneOf(p.Name, open...) {
			return fmt.Errorf("pool %s is new: stop the server, run tba journal init, and start it again", p.Name)
		}
	}
	for _, p := range c.Pools {
		if err := adoptable(p.Policy); err != nil {
			return fmt.Errorf("pool %s: %w", p.Name, err)
		}
	}
	for i, p := range c.Pools {
		if err := s.pools.Adopt(ctx, p.Name, p.Policy); err != nil {
			if i > 0 {
				return fmt.Errorf("pool %s has the old limits still, %s the new ones: %w", p.Name, names(c.Pools[:i]), err)
			}
			return fmt.Errorf("pool %s: %w", p.Name, err)
		}
	}
	addresses := perAddress(c)
	s.api.SetKeys(keys)
	s.api.SetAddresses(addresses)
	s.names.Store(c)
	s.proxy.adopt(c, calls, keys, addresses)
	unreadKeys(s.log, c, s.proxy.place)
	for _, w := range c.Warnings {
		s.log.Warn("configuration", "warning", w.String())
	}
	if c.Settings != s.inForce.Settings {
		s.log.Warn("process settings have changed in the file: they count from the next start")
	}
	for _, name := range open {
		if _, ok := c.Pool(name); !ok {
			s.log.Warn("pool is gone from the file: it is served until the next start", "pool", name)
		}
	}
	s.inForce = c
	return nil
}

// adoptable is what an engine asks of a policy, without its journal.
func adoptable(p *arbiter.Policy) error {
	if _, _, err := p.Encode(); err != nil {
		return err
	}
	if err := p.Validate(); err != nil {
		return err
	}
	for i := range p.Providers {
		if _, err := time.LoadLocation(p.Providers[i].Zone); err != nil {
			return fmt.Errorf("provider %s: %w", p.Providers[i].Name, err)
		}
	}
	_, err := engine.Bounds(p.Period, time.Now().UnixNano())
	return err
}

func names(pools []config.Pool) string {
	var out []string
	for _, p := range pools {
		out = append(out, p.Name)
	}
	return strings.Join(out, ", ")
}

// reloaded tells the outcome of a reload wherever somebody may look: log, metrics, status.
func (s *server) reloaded(path string, err error) {
	if errors.Is(err, context.Canceled) {
		return // the server goes down
	}
	s.ops.Reloaded(err)
	if err == nil {
		s.configError.Store(nil)
		s.log.Info("configuration taken over", "file", path)
		return
	}
	text := oneLine(err)
	s.configError.Store(&text)
	s.log.Error("configuration not taken over: the one before stays in force", "file", path, "error", text)
}

// oneLine is an error without the source lines that faults carry.
func oneLine(err error) string {
	var faults config.Faults
	if !errors.As(err, &faults) || len(faults) == 0 {
		return strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	text := faults[0].String()
	if n := len(faults) - 1; n > 0 {
		text += fmt.Sprintf(", and %d more: tba config validate", n)
	}
	return text
}
