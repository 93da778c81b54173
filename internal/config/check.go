package config

import (
	"fmt"
	"math/bits"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/token-budget-arbiter/tba/internal/catalog"
)

// maxDelay bounds the recommended delay: the wire has milliseconds in 32 bits, and longer is a denial.
const maxDelay = 10 * time.Minute

// mulDown is a·b/c rounded down for 0 ≤ b ≤ c.
func mulDown(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(q)
}

// check finds what is well formed and still wrong. It goes on after a fault, like the decoder.
func (d *decoder) check(f *File) {
	d.checkRules(f)
	for _, p := range f.budgets() {
		d.checkBudget(p.budget, p.path)
	}
	d.checkPools(f)
	d.checkAuth(f)
	d.checkGateway(f)
}

type budgetAt struct {
	budget *Budget
	path   string
}

func (f *File) budgets() (out []budgetAt) {
	if f.Budget != nil {
		out = append(out, budgetAt{f.Budget, "budget"})
	}
	for i := range f.Pools {
		out = append(out, budgetAt{&f.Pools[i], item("pools", i)})
	}
	return out
}

// between checks a duration that the file sets.
func (d *decoder) between(path string, v, low, high Duration) {
	if d.has(path) && (v < low || v > high) {
		d.fault(path, "range", "%s is %s: from %s to %s", path, v, low, high)
	}
}

func (d *decoder) checkRules(f *File) {
	const second, hour = Duration(time.Second), Duration(time.Hour)
	d.between("window.guard", f.Window.Guard, Duration(120*time.Millisecond), 10*second)
	d.between("lease.start_by", f.Lease.StartBy, 0, 10*second)
	d.between("lease.grace", f.Lease.Grace, second, 24*hour)
	d.between("lease.commit_by", f.Lease.CommitBy, second, 30*24*hour)
	d.between("drain_timeout", f.DrainTimeout, 0, hour)
	d.between("reload.poll", f.Reload.Poll, Duration(100*time.Millisecond), hour)
	d.between("breaker.ramp", f.Breaker.Ramp, 0, Duration(10*time.Minute))
	d.between("breaker.recovery", f.Breaker.Recovery, Duration(100*time.Millisecond), hour)
	if f.Lease.TTL != nil {
		d.between("lease.ttl", *f.Lease.TTL, second, 24*hour)
		if f.Lease.Max != nil && *f.Lease.Max < *f.Lease.TTL {
			d.fault("lease.max", "range", "lease.max %s is below lease.ttl %s", *f.Lease.Max, *f.Lease.TTL)
		}
	}
	if f.Lease.Max != nil {
		d.between("lease.max", *f.Lease.Max, second, 30*24*hour)
	}
	if f.Lease.CommitBy < f.Lease.Grace {
		d.fault("lease.commit_by", "range", "lease.commit_by %s is below lease.grace %s: a late commit would come too late to correct what was assumed", f.Lease.CommitBy, f.Lease.Grace)
	}
	d.atLeastOne("breaker.failures", &f.Breaker.Failures, "the breaker would never close")
	d.atLeastOne("limits.per_address.rate", &f.Limits.PerAddress.Rate, "nobody could ask")
	d.atLeastOne("limits.per_address.burst", &f.Limits.PerAddress.Burst, "nobody could ask")
	d.atLeastOne("lease.max_open", f.Lease.MaxOpen, "nobody could hold a lease; leave the key out for no bound")
	d.atLeastOne("lease.max_held_tokens", f.Lease.MaxHeld, "nobody could hold a lease; leave the key out for no bound")
	if f.Lease.MaxHoldShare == 0 {
		d.fault("lease.max_hold_share", "zero-ceiling", "lease.max_hold_share is 0: nobody could hold a lease")
	}
	if f.Backpressure.Mode == "adaptive" {
		d.fault("backpressure.mode", "not-built", "backpressure.mode: adaptive is not there yet: use table")
	}
	d.checkLevels(f)
	d.checkWeights(f)
	d.checkJournal(f.Journal)
	d.checkListeners(f)
	if (f.TLS.Cert == "") != (f.TLS.Key == "") {
		d.fault("tls", "required", "tls needs both cert and key")
	}
}

func (d *decoder) atLeastOne(path string, v *Count, why string) {
	if v != nil && *v == 0 && d.has(path) {
		d.fault(path, "zero-ceiling", "%s is 0: %s", path, why)
	}
}

func (d *decoder) checkLevels(f *File) {
	c := compiler{file: f}
	t := c.levels()
	names := []string{"mild", "moderate", "severe", "critical"}
	for i, v := range []Level{f.Backpressure.Mild, f.Backpressure.Moderate, f.Backpressure.Severe, f.Backpressure.Critical} {
		path := "backpressure." + names[i]
		if v.Delay != nil {
			d.between(path+".delay", *v.Delay, 0, Duration(maxDelay))
		}
		if v.Consumed != nil && *v.Consumed == 0 {
			d.fault(path+".consumed", "levels", "%s.consumed is 0: the level would always hold", path)
		}
		if i == 0 {
			continue
		}
		if t.Consumed[i] < t.Consumed[i-1] || t.Headroom[i] > t.Headroom[i-1] || t.DelayMS[i] < t.DelayMS[i-1] {
			d.fault(path, "levels", "%s must come after %s: consumed and delay not lower, headroom not higher (defaults fill what is left out)", path, names[i-1])
		}
	}
}

func (d *decoder) checkWeights(f *File) {
	c := compiler{file: f}
	for i, w := range c.weights() {
		if w.Headroom+w.Cost == 0 {
			d.fault("routing.weights."+[]string{"low", "medium", "high", "critical"}[i], "weights", "headroom and cost are both 0: nothing would decide between providers")
		}
	}
}

// CheckJournal says what is wrong with the place of a journal, or nil: memory and file:DIR are known.
func CheckJournal(place string) error {
	scheme, rest, _ := strings.Cut(place, ":")
	switch scheme {
	case "", "memory":
		if place == "memory:" || rest != "" {
			return &wrong{"journal", fmt.Sprintf("%q has nothing after memory", plain(place)), "memory"}
		}
		return nil
	case "file":
		if rest == "" {
			return &wrong{"journal", "file: needs a folder", "file:/var/lib/tba"}
		}
		return nil
	case "redis", "rediss", "redis-sentinel", "redis-cluster", "valkey", "etcd", "etcds":
		return &wrong{"not-built", fmt.Sprintf("journals on %s are not there yet: use file:DIR or memory", scheme), ""}
	}
	w := &wrong{"journal", fmt.Sprintf("%q is not memory or file:DIR", plain(place)), catalog.Nearest(place, []string{"memory"})}
	if strings.ContainsAny(place, "/\\") {
		w.suggestion = "file:" + plain(place)
	}
	return w
}

func (d *decoder) checkJournal(place string) {
	if err := CheckJournal(place); err != nil {
		w := err.(*wrong)
		if w.suggestion != "" {
			d.suggest("journal", w.rule, w.suggestion, "journal: %s", w.text)
			return
		}
		d.fault("journal", w.rule, "journal: %s", w.text)
	}
}

func (d *decoder) checkListeners(f *File) {
	seen := map[string]string{}
	for _, l := range []struct{ path, addr string }{{"listen.http", f.Listen.HTTP}, {"listen.grpc", f.Listen.GRPC}, {"listen.ops", f.Listen.Ops}} {
		host, port, err := net.SplitHostPort(l.addr)
		if err != nil {
			suggestion := ""
			if allDigits(l.addr) {
				suggestion = "127.0.0.1:" + l.addr
			}
			d.suggest(l.path, "address", suggestion, "%s: %q is not an address such as 127.0.0.1:7480", l.path, plain(l.addr))
			continue
		}
		var n Count
		if err := n.parse(port); err != nil || n > 65535 {
			d.fault(l.path, "address", "%s: port %q is not a number from 0 to 65535", l.path, plain(port))
			continue
		}
		if other := seen[l.addr]; other != "" && n != 0 {
			d.fault(l.path, "address", "%s and %s are both %s", other, l.path, l.addr)
		}
		seen[l.addr] = l.path
		if !loopback(host) && len(f.Auth.Keys) == 0 {
			d.fault(l.path, "open-listener", "%s is %s, which others can reach, and there are no auth.keys: add keys or listen on 127.0.0.1", l.path, l.addr)
		}
	}
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

func (d *decoder) checkAuth(f *File) {
	names, places := map[string]bool{}, map[Secret]string{}
	pools := map[string]*Budget{}
	var poolNames []string
	for _, b := range f.budgets() {
		pools[b.budget.Pool] = b.budget
		poolNames = append(poolNames, b.budget.Pool)
	}
	for i, k := range f.Auth.Keys {
		at := item("auth.keys", i)
		switch {
		case k.Name == "":
			d.fault(at, "required", "%s needs a name", at)
		case names[k.Name]:
			d.fault(child(at, "name"), "duplicate", "two keys are named %q", plain(k.Name))
		case checkID(k.Name) != nil:
			d.fault(child(at, "name"), "name", "%s: %v", child(at, "name"), checkID(k.Name))
		}
		names[k.Name] = true
		switch other, twice := places[k.Key]; {
		case k.Key.IsZero():
			if !d.has(child(at, "key")) {
				d.fault(at, "required", "%s needs a key: {env: NAME} or {file: PATH}", at)
			}
		case twice:
			d.fault(child(at, "key"), "duplicate", "%s and %s have the same key", other, at)
		default:
			places[k.Key] = at
		}
		budget := pools[k.Pool]
		switch {
		case k.Pool == "" && len(poolNames) == 1:
			budget = pools[poolNames[0]]
		case k.Pool == "":
			if k.Role != "operator" && len(poolNames) > 1 {
				d.fault(at, "required", "%s needs a pool: there are several", at)
			}
		case budget == nil:
			d.suggest(child(at, "pool"), "unknown-reference", catalog.Nearest(k.Pool, poolNames), "%s: there is no pool %q", child(at, "pool"), plain(k.Pool))
		}
		if budget == nil {
			continue
		}
		classes := []string{"default"}
		for _, e := range budget.AgentClasses {
			classes = append(classes, e.Name)
		}
		for j, c := range k.Classes {
			if !slices.Contains(classes, c) {
				path := item(child(at, "classes"), j)
				d.suggest(path, "unknown-reference", catalog.Nearest(c, classes), "%s: pool %s has no class %q", path, budget.Pool, plain(c))
			}
		}
	}
}
