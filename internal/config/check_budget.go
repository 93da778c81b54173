package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/token-budget-arbiter/tba/internal/catalog"
)

func (d *decoder) checkBudget(b *Budget, path string) {
	if err := checkID(b.Pool); err != nil {
		d.fault(child(path, "pool"), "name", "%s: %v", child(path, "pool"), err)
	}
	d.checkZone(child(path, "time_zone"), b.TimeZone)
	d.checkZeroBudget(child(path, "global_tokens"), b.GlobalTokens != nil && *b.GlobalTokens == 0)
	d.checkZeroBudget(child(path, "global_usd"), b.GlobalUSD != nil && *b.GlobalUSD == 0)
	if n := d.places[child(path, "providers")].value; len(b.Providers) == 0 && (n == nil || len(n.Content) == 0) {
		d.fault(child(path, "providers"), "required", "%s has no providers: name at least one, such as providers: {openai: {rpm_ceiling: 500}}", path)
	}
	at := child(path, "providers")
	d.checkSlices(at, "allocated_tokens", child(path, "global_tokens"), count(b.GlobalTokens), cut(b.Providers, func(p Provider) int64 { return count(p.Tokens) }), showCount)
	d.checkSlices(at, "allocated_usd", child(path, "global_usd"), money(b.GlobalUSD), cut(b.Providers, func(p Provider) int64 { return money(p.USD) }), showUSD)
	for _, e := range b.Providers {
		d.checkProvider(e.Name, e.Value, child(at, e.Name), b)
	}
	d.checkClasses(b, path)
	d.checkReserves(b, path)
	for _, e := range b.Agents {
		d.checkBelow(child(child(path, "agents"), e.Name), e.Value.LimitTokens, e.Value.LimitUSD, b)
	}
}

func (d *decoder) checkZeroBudget(path string, zero bool) {
	if zero {
		d.fault(path, "zero-ceiling", "%s is 0: nothing could be granted; leave the key out for no limit", path)
	}
}

func (d *decoder) checkZone(path, zone string) {
	if zone == "" || zone == "UTC" {
		return
	}
	// Local would mean another zone on each machine.
	if _, err := time.LoadLocation(zone); err != nil || zone == "Local" {
		suggestion := ""
		if fixed := strings.ReplaceAll(strings.TrimSpace(zone), " ", "_"); fixed != zone {
			if _, err := time.LoadLocation(fixed); err == nil {
				suggestion = fixed
			}
		}
		d.suggest(path, "time-zone", suggestion, "%s: %q is not an IANA time zone such as Europe/Berlin", path, plain(zone))
	}
}

// unset stands for a limit that the file leaves out.
const unset = -1

func count(c *Count) int64 {
	if c == nil {
		return unset
	}
	return int64(*c)
}

func money(u *USD) int64 {
	if u == nil {
		return unset
	}
	return int64(*u)
}

func showCount(n int64) string { return Count(n).String() }
func showUSD(n int64) string   { return USD(n).String() + " USD" }

type slice struct {
	name string
	n    int64
}

func cut[T any](m Map[T], of func(T) int64) (out []slice) {
	for _, e := range m {
		if n := of(e.Value); n != unset {
			out = append(out, slice{e.Name, n})
		}
	}
	return out
}

// checkSlices compares slices with the budget they are cut from: none above it, and their sum neither.
func (d *decoder) checkSlices(path, key, wholePath string, whole int64, parts []slice, show func(int64) string) {
	var sum int64
	for _, s := range parts {
		at := child(child(path, s.name), key)
		if s.n == 0 {
			d.warn(at, "zero-limit", "%s is 0: nothing can be granted there", at)
		}
		if whole != unset && s.n > whole {
			d.fault(at, "above-budget", "%s is %s, above %s of %s", at, show(s.n), wholePath, show(whole))
			return
		}
		if sum += s.n; sum > MaxAmount {
			break
		}
	}
	if whole != unset && sum > whole {
		d.fault(path, "above-budget", "the %s of %s sum to %s, above %s of %s", key, path, show(sum), wholePath, show(whole))
	}
}

func (d *decoder) checkBelow(path string, tokens *Count, usd *USD, b *Budget) {
	if tokens != nil && b.GlobalTokens != nil && *tokens > *b.GlobalTokens {
		d.fault(child(path, "limit_tokens"), "above-budget", "%s is %s, above global_tokens of %s", child(path, "limit_tokens"), *tokens, *b.GlobalTokens)
	}
	if usd != nil && b.GlobalUSD != nil && *usd > *b.GlobalUSD {
		d.fault(child(path, "limit_usd"), "above-budget", "%s is %s USD, above global_usd of %s USD", child(path, "limit_usd"), *usd, *b.GlobalUSD)
	}
}

var kinds = []string{"openai", "anthropic", "gemini", "google", "mistral"}

func (d *decoder) checkProvider(name string, p Provider, path string, b *Budget) {
	if err := checkID(name); err != nil {
		d.faultKey(path, "name", "%s: %v", path, err)
	} else if slices.Contains(reservedNames, name) || strings.HasPrefix(name, "tba.") {
		d.faultKey(path, "name", "%s: /%s is a path of the HTTP port already, and each provider has its name there: give it another name", path, name)
	}
	if p.Kind == "" && !slices.Contains(kinds, name) {
		d.suggest(path, "kind", catalog.Nearest(name, kinds), "%s needs a kind: %q is none of %s", path, name, strings.Join(kinds, ", "))
	}
	if p.BaseURL != "" {
		d.checkBaseURL(child(path, "base_url"), p)
	}
	if p.Kind == "http" && p.BaseURL == "" {
		d.fault(path, "required", "%s is of kind http and needs a base_url", path)
	}
	if p.Split != nil && *p.Split == 0 {
		d.fault(child(path, "split"), "zero-ceiling", "%s is 0: nothing could be granted", child(path, "split"))
	}
	d.checkZone(child(path, "rpd_time_zone"), p.RPDZone)
	d.checkCeilings(p.Ceilings, path)
	at := child(path, "models")
	tokens, tokensPath := count(p.Tokens), child(path, "allocated_tokens")
	if tokens == unset {
		tokens, tokensPath = count(b.GlobalTokens), "global_tokens"
	}
	usd, usdPath := money(p.USD), child(path, "allocated_usd")
	if usd == unset {
		usd, usdPath = money(b.GlobalUSD), "global_usd"
	}
	d.checkSlices(at, "allocated_tokens", tokensPath, tokens, cut(p.Models, func(m Model) int64 { return count(m.Tokens) }), showCount)
	d.checkSlices(at, "allocated_usd", usdPath, usd, cut(p.Models, func(m Model) int64 { return money(m.USD) }), showUSD)
	groups := map[string]Entry[Model]{}
	for _, e := range p.Models {
		m := child(at, e.Name)
		d.checkCeilings(e.Value.Ceilings, m)
		for _, c := range ceilingPairs(e.Value.Ceilings, p.Ceilings) {
			if c.own != nil && c.over != nil && *c.own > *c.over {
				d.warn(child(m, c.key), "never-binds", "%s of %s is above the provider's %s and never binds", child(m, c.key), *c.own, *c.over)
			}
		}
		d.atLeastOne(child(m, "max_output"), e.Value.MaxOutput, "no call could answer")
		d.atLeastOne(child(m, "max_input"), e.Value.MaxInput, "no call would fit")
		if g := e.Value.LimitGroup; g != "" {
			first, ok := groups[g]
			if !ok {
				groups[g] = e
			} else if text := ceilingText(e.Value.Ceilings); text != ceilingText(first.Value.Ceilings) {
				d.fault(m, "limit-group", "models %s and %s share limit_group %s and must state the same ceilings", first.Name, e.Name, g)
			}
		}
	}
}

type ceilingPair struct {
	key       string
	own, over *Count
}

func ceilingPairs(own, over Ceilings) []ceilingPair {
	return []ceilingPair{
		{"rpm_ceiling", own.RPM, over.RPM}, {"tpm_ceiling", own.TPM, over.TPM}, {"input_tpm_ceiling", own.InputTPM, over.InputTPM},
		{"output_tpm_ceiling", own.OutputTPM, over.OutputTPM}, {"rpd_ceiling", own.RPD, over.RPD}, {"max_concurrency", own.MaxConcurrency, over.MaxConcurrency},
	}
}

func ceilingText(c Ceilings) string {
	var b strings.Builder
	for _, p := range ceilingPairs(c, Ceilings{}) {
		fmt.Fprint(&b, count(p.own), " ")
	}
	if c.Burst != nil {
		fmt.Fprint(&b, *c.Burst)
	}
	fmt.Fprint(&b, " ", c.TokenAccounting, c.CountCached, c.Shadow)
	return b.String()
}

func (d *decoder) checkCeilings(c Ceilings, path string) {
	for _, p := range ceilingPairs(c, Ceilings{}) {
		d.atLeastOne(child(path, p.key), p.own, "every call would be refused; leave the key out for no ceiling")
	}
	if c.Burst != nil && *c.Burst == 0 {
		d.fault(child(path, "burst"), "zero-ceiling", "%s is 0: every call would be refused; leave the key out for a tenth", child(path, "burst"))
	}
	if c.TPM != nil {
		for _, p := range ceilingPairs(c, Ceilings{})[2:4] {
			if p.own != nil && *p.own > *c.TPM {
				d.warn(child(path, p.key), "never-binds", "%s of %s is above tpm_ceiling of %s and never binds", child(path, p.key), *p.own, *c.TPM)
			}
		}
	}
	if c.TokenAccounting == "headers" {
		d.fault(child(path, "token_accounting"), "not-built", "%s: headers is not there yet: use admission or generated", child(path, "token_accounting"))
	}
}

func (d *decoder) checkClasses(b *Budget, path string) {
	at := child(path, "agent_classes")
	var sum Share
	for _, e := range b.AgentClasses {
		if err := checkID(e.Name); err != nil {
			d.faultKey(child(at, e.Name), "name", "%s: %v", child(at, e.Name), err)
		}
		sum += e.Value.Share
		d.checkBelow(child(at, e.Name), e.Value.LimitTokens, e.Value.LimitUSD, b)
	}
	if sum > ShareOne {
		d.fault(at, "share", "the shares of %s sum to %s, above 1", at, sum)
	}
}

func (d *decoder) checkReserves(b *Budget, path string) {
	at := child(path, "priorities")
	if b.Priorities.Low.Reserve > 0 || b.Priorities.Low.BudgetReserve > 0 {
		d.fault(child(at, "low"), "reserve", "%s: low is the lowest priority, a reserve keeps nothing free for it", child(at, "low"))
	}
	var rate, budget Share
	for _, r := range []Reserve{b.Priorities.Medium, b.Priorities.High, b.Priorities.Critical} {
		rate, budget = rate+r.Reserve, budget+r.BudgetReserve
	}
	if rate >= ShareOne || budget >= ShareOne {
		d.fault(at, "reserve", "the reserves of %s sum to %s: low priority would get nothing, ever", at, max(rate, budget))
	}
}

// sharedKey is one use of a provider credential.
type sharedKey struct {
	path  string
	split *Share
}

// checkPools looks over the whole file: a provider sees keys, not pools.
func (d *decoder) checkPools(f *File) {
	switch {
	case f.Budget == nil && len(f.Pools) == 0:
		d.note(Fault{Severity: Error, Rule: "required", Text: "there is no budget: write budget: or pools:, or start from tba init"}, nil)
	case f.Budget != nil && len(f.Pools) > 0:
		d.faultKey("pools", "conflict", "budget and pools are both there: move the budget into the list of pools")
	}
	names := map[string]string{}
	keys := map[Secret][]sharedKey{}
	var order []Secret
	for _, b := range f.budgets() {
		if first, ok := names[b.budget.Pool]; ok {
			d.fault(child(b.path, "pool"), "duplicate", "%s and %s are both pool %q", first, b.path, b.budget.Pool)
		}
		names[b.budget.Pool] = b.path
		for _, e := range b.budget.Providers {
			k := e.Value.APIKey
			if k.IsZero() {
				continue
			}
			if keys[k] == nil {
				order = append(order, k)
			}
			keys[k] = append(keys[k], sharedKey{child(child(b.path, "providers"), e.Name), e.Value.Split})
		}
	}
	for _, k := range order {
		uses := keys[k]
		if len(uses) < 2 {
			continue
		}
		var sum Share
		for _, u := range uses {
			if u.split == nil {
				d.fault(child(u.path, "api_key"), "shared-key", "%s is used %d times: a provider sees one key, so each use states its split, and they sum to at most 1", child(u.path, "api_key"), len(uses))
				continue
			}
			sum += *u.split
		}
		if sum > ShareOne {
			d.fault(child(uses[len(uses)-1].path, "split"), "shared-key", "the splits of one api_key sum to %s, above 1", sum)
		}
	}
}

// checkID bounds names that travel on the wire and into metrics.
func checkID(s string) error {
	if err := checkName(s); err != nil {
		return err
	}
	if strings.ContainsAny(s, "/@") {
		return fmt.Errorf("the name %q has a / or @: only A-Z a-z 0-9 . _ : - are allowed", plain(s))
	}
	return nil
}
