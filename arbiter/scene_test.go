package arbiter

import (
	"encoding/binary"
	"math/rand/v2"
	"strconv"

	"pgregory.net/rapid"
)

// dice draws numbers: from rapid, which can shrink them, or from a seed, which is fast.
type dice interface {
	// pick returns 0 to n−1.
	pick(what string, n int) int
}

type rapidDice struct{ t *rapid.T }

func (d rapidDice) pick(what string, n int) int { return rapid.IntRange(0, n-1).Draw(d.t, what) }

type seedDice struct{ r *rand.Rand }

func newSeed(seed uint64) seedDice { return seedDice{rand.New(rand.NewPCG(seed, 1))} }

func (d seedDice) pick(_ string, n int) int { return d.r.IntN(n) }

// scene makes random policies, commands and steps of time over a small world of names, so that they meet.
type scene struct {
	dice
	ids      int
	requests map[LeaseID]*Request // the first with each id
	explicit bool                 // policies give the TTL, so that a simple model knows it
	tame     bool                 // no shadow, no amounts out of bounds
}

func newScene(d dice, ids int) *scene {
	return &scene{dice: d, ids: ids, requests: map[LeaseID]*Request{}}
}

func (g *scene) chance(what string, percent int) bool { return g.pick(what, 100) < percent }

func (g *scene) from(what string, list ...string) string { return list[g.pick(what, len(list))] }

func of[T any](g *scene, what string, list ...T) T { return list[g.pick(what, len(list))] }

func (g *scene) limit() Limit {
	l := NoLimit
	if g.chance("limited", 40) {
		l.Tokens = of(g, "limit", Tokens(0), 3000, 20_000, 200_000)
	}
	if g.chance("priced", 30) {
		l.Nanos = of(g, "nanos", Nanos(0), 5_000_000, 40_000_000, 900_000_000)
	}
	l.Shadow = !g.tame && g.chance("shadowed", 10)
	return l
}

func (g *scene) ceilings() Ceilings {
	c := Ceilings{
		RPM:           of(g, "rpm", Requests(0), 0, 3, 20),
		TPM:           of(g, "tpm", Tokens(0), 0, 3000, 20_000),
		InputTPM:      of(g, "input", Tokens(0), 0, 0, 4000),
		OutputTPM:     of(g, "output", Tokens(0), 0, 0, 4000),
		RPD:           of(g, "rpd", Requests(0), 0, 0, 30),
		MaxConcurrent: of(g, "slots", Requests(0), 0, 1, 4),
		Burst:         of(g, "burst", 0, Whole/2, Whole),
		Generated:     g.chance("generated", 30),
		UncachedOnly:  g.chance("uncached", 40),
	}
	c.ShadowRates = !g.tame && g.chance("shadow rates", 10)
	return c
}

func price(in, out Pico) []Price {
	return []Price{{Rates: Rates{Input: in, CacheRead: in / 10, CacheWrite: in * 5 / 4, CacheWriteLong: in * 2, Output: out},
		Tiers: []Tier{{OverInput: 1500, Rates: Rates{Input: 2 * in, CacheRead: in / 5, CacheWrite: in * 5 / 2, CacheWriteLong: in * 4, Output: 2 * out}}}}}
}

// policy makes one: prices depend on the name alone, so that a reload does not change old bills.
func (g *scene) policy(version uint64) *Policy {
	p := &Policy{
		Version: version, Guard: of(g, "guard", 0, 250*Millisecond, Second), Period: PeriodSpec{Kind: "daily"},
		Global: g.limit(), Tasks: g.limit(), Lease: DefaultLeaseRules, Breaker: DefaultBreaker, Weights: DefaultWeights, Backpressure: DefaultBackpressure,
	}
	p.Shadow = !g.tame && g.chance("shadow mode", 5)
	p.Breaker.Failures, p.Breaker.Ramp = int64(1+g.pick("failures", 3)), of(g, "ramp", 0, 10*Second, 2*Minute)
	l := &p.Lease
	l.StartBy = of(g, "start_by", 0, Second, 2*Second, 10*Second)
	l.TTL = of(g, "ttl", 0, 10*Second, 30*Second, 2*Minute)
	if g.explicit && l.TTL == 0 {
		l.TTL = Minute
	}
	l.Grace, l.CommitBy, l.Forget = of(g, "grace", Second, Minute, 10*Minute), of(g, "commit_by", Minute, Hour), of(g, "forget", Second, 10*Minute)
	l.OnExpiry = of(g, "expiry", ExpiryReturn, ExpiryAssume)
	l.Max = of(g, "max", 0, 0, 5*Minute)
	l.MaxHoldShare = of(g, "hold", 0, 0, Whole/4)
	l.MaxOpen, l.MaxHeld = of(g, "open", Requests(0), 0, 3), of(g, "held", Tokens(0), 0, 5000)
	for i := range 1 + g.pick("providers", 3) {
		pr := Provider{Name: "p" + strconv.Itoa(i), Limit: g.limit(), Ceilings: g.ceilings()}
		for j := range 1 + g.pick("models", 3) {
			m := Model{Name: "m" + strconv.Itoa(j), Limit: g.limit(), Ceilings: g.ceilings(), Prices: price(Pico(1_000_000*(i+1)), Pico(3_000_000*(j+1)))}
			if j == 0 && g.chance("nameless", 30) {
				m.Name = ""
			}
			if j == 1 {
				m.ServiceRates = []ServiceRates{{"fast", Rates{Input: 9_000_000, CacheRead: 900_000, Output: 45_000_000}}}
			}
			m.LimitGroup = g.from("group", "", "", "g")
			m.MaxOutput = of(g, "max output", Tokens(0), 500)
			pr.Models = append(pr.Models, m)
		}
		if pr.Tool = g.chance("tool", 10); i != 1 {
			pr.ServiceTiers = []ServiceTier{{"flex", Whole / 2}, {"priority", 1_800_000}, {"default", Whole}}
		}
		p.Providers = append(p.Providers, pr)
	}
	if g.chance("ladder", 60) {
		p.Ladders = []Ladder{g.ladder(p)}
	}
	p.Classes = []Class{{Name: DefaultClass, Limit: NoLimit}}
	for i := range g.pick("classes", 3) {
		p.Classes = append(p.Classes, Class{Name: "c" + strconv.Itoa(i), Share: of(g, "share", 0, Whole/4, Whole/2), Priority: Priority(g.pick("level", 4)), Limit: g.limit()})
	}
	if g.chance("agents", 30) {
		p.Agents = []NamedLimit{{"a0", g.limit()}}
		p.Workflows = []NamedLimit{{"w0", g.limit()}}
	}
	if g.chance("reserves", 30) {
		p.Reserves[High] = Reserve{Rate: Whole / 10, Budget: of(g, "reserve", 0, Whole/10)}
		p.Reserves[Critical] = Reserve{Rate: Whole / 5}
	}
	if g.chance("fallback", 30) {
		p.FallbackPrice = &Rates{Input: 1_000_000, Output: 2_000_000}
	}
	return p
}

// ladder has every rung of the policy, in its order, in tiers of one to three.
func (g *scene) ladder(p *Policy) Ladder {
	l := Ladder{Name: "l0"}
	for i := range p.Providers {
		for j := range p.Providers[i].Models {
			r := Rung{p.Providers[i].Name, p.Providers[i].Models[j].Name}
			if last := len(l.Tiers) - 1; last >= 0 && len(l.Tiers[last]) < 3 && g.chance("same tier", 60) {
				l.Tiers[last] = append(l.Tiers[last], r)
			} else {
				l.Tiers = append(l.Tiers, []Rung{r})
			}
		}
	}
	return l
}

func (p *Policy) adopt(tb failer, period Period) *Adopt {
	tb.Helper()
	packed, hash, err := p.Encode()
	if err != nil {
		tb.Fatalf("encode: %v", err)
	}
	return &Adopt{Version: p.Version, Hash: hash, Policy: packed, Period: period}
}

// leaseID is the id with a number; 0 is not the zero id.
func leaseID(n int) (id LeaseID) {
	binary.LittleEndian.PutUint64(id[:], uint64(n+1)*0x9E3779B97F4A7C15)
	return id
}

func (g *scene) id() LeaseID { return leaseID(g.pick("id", g.ids)) }

func (g *scene) amount() Tokens {
	if !g.tame && g.chance("odd amount", 3) {
		return of(g, "odd", Tokens(-1), MaxAmount, MaxAmount+1, 1<<62)
	}
	return of(g, "tokens", Tokens(0), 1, 100, 700, 1600)
}

func (g *scene) request() *Request {
	id := g.id()
	if old := g.requests[id]; old != nil && g.chance("repeat", 80) {
		r := *old
		return &r
	}
	r := &Request{
		Lease: id, Principal: uint64(g.pick("principal", 3)), Agent: g.from("agent", "a0", "a1", "a2", ""),
		Class: g.from("class", "", "c0", "c1"), Task: g.from("task", "", "t0", "t1", "t2"), Workflow: g.from("workflow", "", "", "w0"),
		Provider: g.from("preferred", "", "", "p0", "p1"), Model: g.from("model", "", "", "m0", "m1", "m2"),
		Priority: of(g, "priority", Low, Medium, High, Critical, ClassPriority), Input: g.amount(), Output: g.amount(),
		Min: of(g, "min", Tokens(0), 0, 50), Undivided: g.chance("undivided", 10), Deferred: g.chance("deferred", 25),
		NoStartDelay: g.chance("at once", 10), MaxWait: of(g, "wait", 0, Second, Hour),
	}
	if g.chance("in a tier", 15) {
		r.Tier = g.from("asked tier", "flex", "priority", "fast", "ultra")
	}
	if g.chance("on a ladder", 30) {
		r.Ladder, r.Model = "l0", ""
	}
	if g.chance("excepts", 15) {
		r.Except = []string{g.from("except", "p0", "p1/m0", "p0/m1", "ghost")}
		if g.chance("excepts more", 40) {
			r.Except = append(r.Except, g.from("except", "p1", "p2", "p0/m0"))
		}
	}
	if g.chance("unknown", 4) {
		r.Class, r.Model, r.Provider = g.from("class", "nobody", r.Class), g.from("model", "ghost", r.Model), g.from("provider", "nowhere", r.Provider)
	}
	if g.chance("child", 15) {
		r.Parent = g.id()
	}
	if g.chance("blocked", 5) {
		r.Blocked = RungSet(nil).Add(uint32(g.pick("rung", 4)))
	}
	r.Fingerprint = r.Sum()
	if g.requests[id] == nil {
		g.requests[id] = r
	}
	return r
}

// holder names a lease and, mostly, who holds it.
func (g *scene) holder() (id LeaseID, principal uint64) {
	id = g.id()
	if r := g.requests[id]; r != nil && !g.chance("foreign", 4) {
		return id, r.Principal
	}
	return id, uint64(g.pick("principal", 3))
}

func (g *scene) signal() ProviderSignal {
	return ProviderSignal{Dim: Dim(g.pick("dim", int(dimCount))), RetryAfter: of(g, "retry", 0, Second, Minute)}
}

func (g *scene) outcome() Outcome {
	if g.chance("usual", 60) {
		return OutcomeOK
	}
	return Outcome(g.pick("outcome", int(OutcomeNotSent)+1))
}

// token makes claims to a lease: of this history, or of one that a failover lost.
func (g *scene) token(now int64, id LeaseID, principal uint64) *Claims {
	if !g.chance("token", 25) {
		return nil
	}
	r := g.requests[id]
	if r == nil {
		r = &Request{Agent: "a0"}
	}
	c := &Claims{Lease: id, Principal: principal, Agent: r.Agent, Class: r.Class, Task: r.Task, Workflow: r.Workflow, Provider: "p0", Model: g.from("model", "m0", "m1", ""),
		Input: 100, Output: 50, Nanos: 1000, Period: uint32(g.pick("period", 3)), Granted: now, Epoch: 1, CommitBy: now + of(g, "token commit_by", -Minute, Minute, Hour)}
	if g.chance("lost", 60) {
		c.Epoch = 7
	}
	if g.tame {
		c.Period = 0 // gone: it counts in the open one
	}
	return c
}

func (g *scene) commit(now int64) *Commit {
	id, principal := g.holder()
	c := &Commit{Lease: id, Principal: principal, Outcome: g.outcome(), Latency: of(g, "latency", 0, Millisecond, 2*Second, 20*Second), Signal: g.signal()}
	switch g.pick("figure", 4) {
	case 0:
		c.HasActual, c.Actual = true, max(g.amount(), 0)
	case 1, 2:
		c.HasUsage = true
		c.Usage = Usage{Input: max(g.amount(), 0) % 2000, CacheRead: Tokens(of(g, "read", 0, 50, 900)), CacheWrite: Tokens(g.pick("write", 20)), Output: max(g.amount(), 0) % 2000}
		c.Usage.Reasoning = c.Usage.Output / 2
	}
	c.Estimated = g.chance("estimated", 5)
	if g.chance("served", 30) {
		c.Model, c.Tier, c.Longest = g.from("served model", "", "m0", "m1", "ghost"), g.from("tier", "", "flex", "priority", "fast", "ultra"), of(g, "longest", Tokens(0), 0, 700, 1600)
	}
	c.Token = g.token(now, id, principal)
	return c
}

// command makes anything but an extension.
func (g *scene) command(s *State) Command {
	switch n := g.pick("command", 100); {
	case n < 45:
		return g.request()
	case n < 70:
		return g.commit(s.Now())
	case n < 80:
		id, principal := g.holder()
		return &Release{Lease: id, Principal: principal, Outcome: g.outcome(), Signal: g.signal(), Token: g.token(s.Now(), id, principal)}
	case n < 90:
		id, principal := g.holder()
		return &Signal{Lease: id, Principal: principal, Activate: g.chance("activate", 80), FirstByte: g.chance("first byte", 20), Outcome: of(g, "signal", OutcomeUnset, OutcomeUnset, OutcomeThrottled, OutcomeError), Signal: g.signal()}
	case n < 94:
		return &Revoke{Lease: g.id(), Tree: g.chance("tree", 50)}
	default:
		return &Tick{From: uint32(g.pick("from", 8))}
	}
}

func (g *scene) extend(s *State) *Extend {
	id, principal := g.holder()
	return &Extend{Lease: id, Principal: principal, Arrival: s.Now() + of(g, "arrival", 0, 0, Millisecond, Second)}
}

// later is a step of time: mostly small, at times past every deadline.
func (g *scene) later() int64 {
	return of(g, "step", 0, 0, Millisecond, 50*Millisecond, 100*Millisecond, 300*Millisecond, Second, Second, 2*Second, 7*Second, 31*Second, 61*Second, 11*Minute, 61*Minute, 5*Hour)
}

// calendar is what is due: the engine sends it before the commands of a batch.
func (g *scene) calendar(s *State, wall int64) []Command {
	var list []Command
	for _, d := range s.Due(wall, nil) {
		list = append(list, &Roll{Provider: d.Provider, Next: day(wall)})
	}
	return list
}

func day(wall int64) Period {
	start := wall - wall%(24*Hour)
	return Period{start, start + 24*Hour}
}
