package main

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/token-budget-arbiter/tba/internal/config"
	"github.com/token-budget-arbiter/tba/internal/gateway"
	"github.com/token-budget-arbiter/tba/internal/identity"
	"github.com/token-budget-arbiter/tba/internal/ops"
	"github.com/token-budget-arbiter/tba/internal/provider"
	"github.com/token-budget-arbiter/tba/internal/rpc"
)

// proxy is the gateway with what this program adds: its metrics, and where its providers are.
type proxy struct {
	*gateway.Gateway
	counts *ops.Gateway
	place  *placement
}

// placement is where the providers are instead of where the file says: dev's mocks. nil leaves them where they are.
type placement struct {
	at  func(name, kind string) (baseURL string, ok bool)
	key config.Secret
}

// newProxy makes the gateway of a configuration. o needs its Leaser and what limits callers.
func newProxy(c *config.Config, place *placement, counts *ops.Gateway, o gateway.Options) (*proxy, error) {
	p := &proxy{counts: counts, place: place}
	var err error
	if o.Settings, err = p.settings(c); err != nil {
		return nil, err
	}
	o.Hooks = p.hooks()
	p.Gateway = gateway.New(o)
	p.known(c)
	return p, nil
}

// settings are what the gateway takes from a configuration.
func (p *proxy) settings(c *config.Config) (*gateway.Settings, error) {
	s, err := gateway.NewSettings(p.place.apply(c))
	if err != nil {
		return nil, fail(exitConfig, "tba config explain budget.providers", "gateway: %w", err)
	}
	return s, nil
}

// adopt brings a configuration into force for calls that begin from now on.
func (p *proxy) adopt(c *config.Config, s *gateway.Settings, keys *identity.Keyring, addresses *identity.Addresses) {
	p.SetKeys(keys)
	p.SetAddresses(addresses)
	p.SetSettings(s)
	p.known(c)
}

// apply moves the providers of a configuration.
func (place *placement) apply(c *config.Config) *config.Config {
	if place == nil {
		return c
	}
	moved := *c
	moved.Pools = slices.Clone(c.Pools)
	for i := range moved.Pools {
		ups := slices.Clone(moved.Pools[i].Upstreams)
		for j := range ups {
			if url, ok := place.at(ups[j].Name, ups[j].Kind); ok {
				ups[j].BaseURL, ups[j].AllowPrivate, ups[j].APIKey = url, true, place.key
			}
		}
		moved.Pools[i].Upstreams = ups
	}
	return &moved
}

// known tells the metrics which names may stand in labels.
func (p *proxy) known(c *config.Config) {
	models := map[string]map[string]bool{}
	for i := range c.Pools {
		for _, x := range c.Pools[i].Policy.Providers {
			if models[x.Name] == nil {
				models[x.Name] = map[string]bool{}
			}
			for _, m := range x.Models {
				models[x.Name][m.Name] = true
			}
		}
	}
	p.counts.Know(models)
}

// hooks count what passes.
func (p *proxy) hooks() gateway.Hooks {
	counts := p.counts
	return gateway.Hooks{
		Call: func(e gateway.Ended) {
			counts.Called(e.Endpoint, outcomeOf(e))
			if e.Tries > 0 {
				counts.Overhead(e.Overhead)
			}
		},
		Upstream: func(a gateway.Answered) {
			counts.Answered(a.Provider, a.Model, a.Status)
			if a.Class == provider.Throttle {
				counts.Throttled(a.Provider, a.Dim.String())
			}
			if a.FirstByte > 0 {
				counts.FirstByte(a.FirstByte)
			}
		},
		Failover: func(name, _ string) { counts.FailedOver(name) },
		Settled: func(b gateway.Bill) {
			if !b.Estimated {
				counts.Estimated(b.Provider, b.Expected, int64(b.Usage.InputTotal()))
			}
		},
		Draining: counts.Draining,
	}
}

// outcomeOf is a call's end in one word: ok, refused (by us, the caller must change or wait), unavailable (by us, nobody could serve
// it), failed (the provider's own error), left (the agent hung up).
func outcomeOf(e gateway.Ended) string {
	switch {
	case e.Status == 0:
		return "left"
	case e.Refused && e.Status >= 500:
		return "unavailable"
	case e.Refused:
		return "refused"
	case e.Status >= 400:
		return "failed"
	}
	return "ok"
}

// Times of the gateway's calls. There is none for a whole call: a model may write for an hour. Each part has its own.
const (
	bodyWithin  = time.Minute      // for a request body, which may be megabytes
	writeWithin = 30 * time.Second // for one write: an agent that takes nothing for longer is cut off, and its call settled
)

// apiPath reports whether a path is the arbiter's own API. No provider is named so: config refuses it.
func apiPath(path string) bool {
	return strings.HasPrefix(path, "/tba.v1.") || strings.HasPrefix(path, "/api/")
}

// before serves the gateway's paths and leaves the others to next.
func (p *proxy) before(next http.Handler) http.Handler {
	// A page of another origin can make a browser post here without asking first; no SDK does.
	cross := http.NewCrossOriginProtection()
	calls := rpc.Deadlines(p, bodyWithin, writeWithin)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if apiPath(r.URL.Path) || !p.Serves(r.URL.Path) {
			next.ServeHTTP(w, r)
			return
		}
		if err := cross.Check(r); err != nil {
			refuseOrigin(w)
			return
		}
		calls.ServeHTTP(w, r)
	})
}

func refuseOrigin(w http.ResponseWriter) {
	d, _ := provider.Lookup(provider.OpenAI)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Tba-Origin", "arbiter")
	w.Header().Set("X-Should-Retry", "false")
	w.WriteHeader(http.StatusForbidden)
	_, _ = w.Write(d.ErrorBody(provider.Problem{ // a page that does not read it loses nothing
		Status: http.StatusForbidden, Kind: provider.Denied, Message: "calls from a page of another origin are refused",
	}))
}

// unreadKeys warns of provider keys that cannot be read: calls there will fail, and the operator should know before the agents do.
func unreadKeys(log *slog.Logger, c *config.Config, place *placement) {
	for i := range c.Pools {
		for _, u := range c.Pools[i].Upstreams {
			if place != nil || u.APIKey.IsZero() {
				continue
			}
			if _, err := u.APIKey.Value(); err != nil {
				log.Warn("provider key cannot be read: the gateway's calls there will be refused", "pool", c.Pools[i].Name, "provider", u.Name, "error", err)
			}
		}
	}
}

// drained ends the gateway's calls: new ones are refused, those that run get until ctx ends.
func (p *proxy) drained(ctx context.Context, log *slog.Logger) {
	if err := p.Drain(ctx); err != nil {
		log.Warn("calls of the gateway still run: they are cut, and settled by what was delivered")
	}
}
