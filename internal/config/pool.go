package config

import (
	"fmt"
	"slices"

	"github.com/token-budget-arbiter/tba/internal/catalog"
)

// Upstream returns what the network needs of a provider.
func (p *Pool) Upstream(name string) (Upstream, bool) {
	for _, u := range p.Upstreams {
		if u.Name == name {
			return u, true
		}
	}
	return Upstream{}, false
}

// ModelID maps an id as a caller or a provider writes it (an alias, or with a date at its end) to the name that the policy
// knows at that provider, or at any of them when provider is "". Limits, prices and health hang on that name.
// With a fallback price an id that nobody knows comes back as it is. Errors: [*catalog.UnpricedError], which names the nearest
// known id; another error for a provider that the pool does not have.
func (p *Pool) ModelID(provider, id string) (string, error) {
	for i := range p.Policy.Providers { // most ids are written as the policy has them
		known := &p.Policy.Providers[i]
		if provider != "" && known.Name != provider {
			continue
		}
		if alias := p.Upstreams[i].aliases[id]; alias != "" {
			return alias, nil
		}
		for j := range known.Models {
			if known.Models[j].Name == id && id != "" {
				return id, nil
			}
		}
	}
	var names []string
	found := false
	for i := range p.Policy.Providers {
		known, up := &p.Policy.Providers[i], &p.Upstreams[i]
		if provider != "" && known.Name != provider {
			continue
		}
		found = true
		for j := range known.Models {
			names = append(names, known.Models[j].Name)
		}
		for _, try := range ids(id) {
			if alias := up.aliases[try]; alias != "" {
				return alias, nil
			}
			if slices.ContainsFunc(names[len(names)-len(known.Models):], func(n string) bool { return n == try && n != "" }) {
				return try, nil
			}
		}
	}
	switch {
	case !found:
		return "", fmt.Errorf("pool %s has no provider %q", p.Name, plain(provider))
	case p.Policy.FallbackPrice != nil:
		return id, nil
	}
	slices.Sort(names)
	return "", &catalog.UnpricedError{Provider: provider, Model: id, Nearest: catalog.Nearest(id, names)}
}

// ids are the spellings of one id, the whole one first.
func ids(id string) []string {
	if base, dated := catalog.Undated(id); dated {
		return []string{id, base}
	}
	return []string{id}
}
