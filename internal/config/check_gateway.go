package config

import (
	"slices"
	"strings"
	"time"

	"github.com/token-budget-arbiter/tba/internal/catalog"
)

// gatewayRoots are the paths of the HTTP port that belong to the gateway, each with all below it: those of the dialects, and each
// provider's own name. The rest is the API's.
func (f *File) gatewayRoots() []string {
	roots := []string{"/v1/", "/anthropic/", "/gemini/", "/tools/"}
	for _, b := range f.budgets() {
		for _, e := range b.budget.Providers {
			if r := "/" + e.Name + "/"; !slices.Contains(roots, r) {
				roots = append(roots, r)
			}
		}
	}
	return roots
}

// reservedNames are first segments of paths that no provider may take.
var reservedNames = []string{"v1", "tools", "api"}

// countBetween checks a count that the file sets.
func (d *decoder) countBetween(path string, v, low, high Count) {
	if d.has(path) && (v < low || v > high) {
		d.fault(path, "range", "%s is %s: from %s to %s", path, v, low, high)
	}
}

func (d *decoder) checkGateway(f *File) {
	const second, minute = Duration(time.Second), Duration(time.Minute)
	g := &f.Gateway
	if s := g.BudgetStatus; s != nil && *s != 402 && *s != 403 && *s != 429 {
		d.fault("gateway.budget_status", "enum", "gateway.budget_status is %s: 402, 403 or 429, what a client takes for a refusal and not for a fault", *s)
	}
	d.between("gateway.max_wait", g.MaxWait, 0, 10*minute)
	d.between("gateway.drain_for", g.DrainFor, second, 10*minute)
	d.between("gateway.header_timeout", g.HeaderTimeout, second, 120*minute)
	d.between("gateway.idle_timeout", g.IdleTimeout, second, 120*minute)
	d.countBetween("gateway.max_body", g.MaxBody, 1<<10, 256<<20)
	d.countBetween("gateway.max_attempts", g.MaxAttempts, 1, maxAttempts)
	d.countBetween("gateway.max_drains", g.MaxDrains, 1, 10_000)
	for i, p := range g.Passthrough {
		d.checkPassthrough(item("gateway.passthrough", i), p, f.gatewayRoots())
	}
	for i, w := range f.Identity.Compat {
		at := item("identity.compat", i)
		switch {
		case !slices.Contains(CompatWords(), strings.ToLower(w)):
			d.suggest(at, "enum", catalog.Nearest(strings.ToLower(w), CompatWords()), "%s is one of %s, not %q", at, strings.Join(CompatWords(), ", "), plain(w))
		case slices.ContainsFunc(f.Identity.Compat[:i], func(b string) bool { return strings.EqualFold(b, w) }):
			d.fault(at, "duplicate", "%s: %s is listed twice", at, plain(w))
		}
	}
	d.countBetween("estimation.default_output", f.Estimation.DefaultOutput, 1, 10_000_000)
	d.countBetween("estimation.learned_min_calls", f.Estimation.LearnedMin, 1, 1_000_000)
	for _, b := range f.budgets() {
		if n := b.budget.Tasks.MaxAttempts; n != nil {
			d.countBetween(child(child(b.path, "tasks"), "max_attempts"), *n, 1, maxAttempts)
		}
	}
}

// maxAttempts bounds the tries of one call: each is paid for.
const maxAttempts = 10

// checkPassthrough wants a path as it arrives, with nothing in it that two programs could read in two ways.
func (d *decoder) checkPassthrough(at, p string, roots []string) {
	below := slices.ContainsFunc(roots, func(r string) bool { return strings.HasPrefix(p, r) && len(p) > len(r) })
	switch {
	case p == "" || strings.ContainsAny(p, `%?#\ *`) || strings.Contains(p, "//") || strings.Contains(p+"/", "/./") || strings.Contains(p+"/", "/../"):
		d.fault(at, "path", "%s: %q is not a plain path such as /openai/v1/files: no patterns, dot segments, escapes or queries", at, plain(p))
	case !below:
		suggestion := ""
		if s := "/" + strings.TrimPrefix(p, "/"); slices.ContainsFunc(roots, func(r string) bool { return strings.HasPrefix(s, r) && len(s) > len(r) }) {
			suggestion = s
		}
		d.suggest(at, "path", plain(suggestion), "%s: %q is not below a path of the gateway: %s", at, plain(p), strings.Join(roots, ", "))
	case strings.HasPrefix(p, "/tools/"):
		d.fault(at, "path", "%s: every path of a tool is forwarded already", at)
	}
}

// compiledGateway and compiledIdentity are the checked keys in the units of the program.
func (f *File) compiledGateway() Gateway {
	g := &f.Gateway
	out := Gateway{
		Passthrough: slices.Clone(g.Passthrough), MaxWait: time.Duration(g.MaxWait), MaxBody: int64(g.MaxBody), MaxAttempts: int(g.MaxAttempts),
		Drain: g.Drain, MaxDrains: int(g.MaxDrains), DrainFor: time.Duration(g.DrainFor),
		HeaderTimeout: time.Duration(g.HeaderTimeout), IdleTimeout: time.Duration(g.IdleTimeout),
	}
	if g.BudgetStatus != nil {
		out.BudgetStatus = int(*g.BudgetStatus)
	}
	return out
}

func (f *File) compiledIdentity() Identity {
	var out Identity
	for _, w := range f.Identity.Compat {
		out.Compat = append(out.Compat, strings.ToLower(w))
	}
	return out
}
