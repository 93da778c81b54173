package gateway

import (
	"fmt"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/token-budget-arbiter/tba/internal/config"
	"github.com/token-budget-arbiter/tba/internal/provider"
)

// Settings are what the gateway takes from the file: upstreams, ladders, limits. Immutable; a reload swaps them whole.
type Settings struct {
	config.Gateway
	estimation config.Estimation
	identity   config.Identity
	who        identifier
	pools      map[string]*poolSettings
	only       *poolSettings // of a call that names no pool; nil when there are several and none is named default
}

// poolSettings are where the calls of one pool may go.
type poolSettings struct {
	*config.Pool
	upstreams map[string]*upstream
	outputs   map[string]int64    // rungName → the model's own output cap
	contexts  map[string]int64    // rungName → the longest prompt and answer together; none where the prompt's is unknown
	models    map[string][]string // by provider
	excluded  sync.Map            // exclusion → []string
}

// upstream is a provider with the way to it.
type upstream struct {
	Upstream
	sends *transport
	// refusesUsage says that it has refused stream_options before: it is not asked again.
	refusesUsage atomic.Bool
	refused      refusedKeys
	repeats      repeats
}

// exclusion is a reason not to go to some providers: they cannot serve the endpoint, or are not the one that the path is pinned to.
type exclusion struct {
	endpoint *provider.Endpoint
	pinned   string
}

// NewSettings reads what the gateway needs from a configuration. The error says which provider cannot be reached as it is written.
func NewSettings(c *config.Config) (*Settings, error) {
	s := &Settings{Gateway: c.Gateway, estimation: c.Estimation, identity: c.Identity, pools: map[string]*poolSettings{}}
	for i := range c.Pools {
		p, err := newPoolSettings(&c.Pools[i], &s.Gateway)
		if err != nil {
			return nil, fmt.Errorf("pool %s: %w", c.Pools[i].Name, err)
		}
		s.pools[p.Name] = p
	}
	if p, ok := c.Pool(""); ok {
		s.only = s.pools[p.Name]
	}
	return s, nil
}

func newPoolSettings(pool *config.Pool, g *config.Gateway) (*poolSettings, error) {
	p := &poolSettings{Pool: pool, upstreams: map[string]*upstream{}, outputs: map[string]int64{}, contexts: map[string]int64{}, models: map[string][]string{}}
	for i := range pool.Upstreams {
		from := &pool.Upstreams[i]
		d, ok := provider.Lookup(from.Kind)
		if !ok {
			return nil, fmt.Errorf("provider %s: kind %q has no dialect", from.Name, from.Kind)
		}
		up := &upstream{Upstream: Upstream{
			Name: from.Name, Dialect: d, AllowPrivate: from.AllowPrivate, Key: from.APIKey.Reader(), HeaderTimeout: g.HeaderTimeout,
		}}
		if from.BaseURL != "" {
			base, err := url.Parse(from.BaseURL)
			if err != nil {
				return nil, fmt.Errorf("provider %s: base_url: %w", from.Name, err)
			}
			up.BaseURL = base
		}
		up.sends = up.transport()
		p.upstreams[up.Name] = up
		for _, m := range pool.Policy.Providers[i].Models {
			p.outputs[rungName(up.Name, m.Name)] = int64(m.MaxOutput)
			if m.MaxInput > 0 {
				p.contexts[rungName(up.Name, m.Name)] = int64(m.MaxInput + m.MaxOutput)
			}
			if m.Name != "" {
				p.models[up.Name] = append(p.models[up.Name], m.Name)
			}
		}
	}
	return p, nil
}

// rungName is how a rung is written in an Ask's Except.
func rungName(provider, model string) string {
	if model == "" {
		return provider
	}
	return provider + "/" + model
}

// pool returns the settings of a pool, nil when the file has none of that name.
func (s *Settings) pool(name string) *poolSettings {
	if name == "" {
		return s.only
	}
	return s.pools[name]
}

// upstream finds a provider by name in any pool.
func (s *Settings) upstream(name string) *upstream {
	for _, p := range s.pools {
		if up := p.upstreams[name]; up != nil {
			return up
		}
	}
	return nil
}

// except are the providers that cannot serve an endpoint, or are not the one that the path is pinned to.
func (p *poolSettings) except(e *provider.Endpoint, pinned string) []string {
	key := exclusion{e, pinned}
	if v, ok := p.excluded.Load(key); ok {
		return v.([]string)
	}
	var out []string
	for name, up := range p.upstreams {
		if _, ok := up.Dialect.Target(e, ""); !ok || pinned != "" && name != pinned {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	v, _ := p.excluded.LoadOrStore(key, out)
	return v.([]string)
}

// close lets go of the connections that nobody uses. Calls that run keep theirs.
func (s *Settings) close() {
	for _, p := range s.pools {
		for _, up := range p.upstreams {
			up.sends.CloseIdleConnections()
		}
	}
}
