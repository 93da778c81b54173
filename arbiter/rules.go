package arbiter

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// rules are a policy joined with the rows, rungs and meters of one state: what Decide reads. Immutable once built.
type rules struct {
	policy *Policy
	packed []byte
	hash   [32]byte

	providers []providerRules
	byName    map[string]int // provider name → index
	// rungs by number; nil where the policy no longer has the rung.
	rungs         []*rungRules
	byModel       map[string][]uint32 // rungs that serve a model
	byProviderRow map[uint32][]uint32
	ladders       map[string]*ladderRules
	defaults      []uint32 // each provider's default rung
	classes       []classRules
	classByName   map[string]int
	classByRow    map[uint32]int
	agents, flows map[string]Limit
	// above is what a request of this priority must leave free.
	rateAbove, budgetAbove [4]PPM
	// capacity of all providers together: per minute, and running at once; 0 without such a ceiling.
	requests, tokens, slots int64
	// perCall is the largest part of that capacity that one call takes, whatever its tokens; at least a millionth.
	perCall PPM
	// unassigned is the share that no class has.
	unassigned PPM
}

type providerRules struct {
	name  string
	row   uint32
	rungs []uint32
}

type rungRules struct {
	number   uint32
	provider int
	// rows of the provider and the model.
	providerRow, row uint32
	model            *Model
	cheapness        []PPM // cost term of the score, one per Price
	gauges           []gauge
	// uncached says that one of the gauges leaves cached tokens out.
	uncached bool
}

type classRules struct {
	*Class
	row    uint32
	meters [2]uint32 // requests and tokens of the last 60 s, whatever the provider
}

// adopt brings a policy into force: rows, rungs and meters that it names and the state lacks are created, and those it no longer
// names stop counting.
func (s *State) adopt(p *Policy, packed []byte, hash [32]byte) {
	old := s.rules
	if s.undo.on {
		s.undo.savedRules = append(s.undo.savedRules, old)
	}
	s.note(undoPolicy, 0, 0)
	s.add(&s.adoptions, 1)
	r := &rules{
		policy: p, packed: packed, hash: hash,
		byName: map[string]int{}, byModel: map[string][]uint32{}, byProviderRow: map[uint32][]uint32{},
		classByName: map[string]int{}, classByRow: map[uint32]int{},
		agents: map[string]Limit{}, flows: map[string]Limit{},
		unassigned: Whole,
	}
	s.rules = r
	for _, a := range p.Agents {
		r.agents[a.Name] = a.Limit
	}
	for _, w := range p.Workflows {
		r.flows[w.Name] = w.Limit
	}
	if s.nodes.n == 0 {
		s.addRow(KindGlobal, 0, "")
	}
	used := map[uint32]bool{}
	for i := range p.Providers {
		s.adoptProvider(r, i, used)
	}
	r.adoptLadders()
	for len(r.rungs) < int(s.rungs.n) { // rungs that the policy no longer has may still have leases
		r.rungs = append(r.rungs, nil)
	}
	for i := range p.Classes {
		c := &p.Classes[i]
		cr := classRules{Class: c, row: s.ensureRow(KindClass, 0, c.Name)}
		for k, dim := range [...]Dim{DimRPM, DimTPM} {
			cr.meters[k] = s.ensureMeter("class/"+c.Name+"/"+dim.String(), dim, used)
		}
		r.classByName[c.Name], r.classByRow[cr.row] = len(r.classes), len(r.classes)
		r.classes = append(r.classes, cr)
		r.unassigned -= c.Share
	}
	r.perCall = 1
	for _, capacity := range [...]int64{r.requests, r.slots} {
		if capacity > 0 {
			r.perCall = max(r.perCall, ratio(1, capacity))
		}
	}
	for level := range r.rateAbove {
		for above := level + 1; above < len(p.Reserves); above++ {
			r.rateAbove[level] += p.Reserves[above].Rate
			r.budgetAbove[level] += p.Reserves[above].Budget
		}
	}
	for i := range s.meters.n {
		if m := s.meters.at(i); !used[i] && m.born != noAdoption {
			s.retireMeter(m)
		}
	}
	s.resolveLimits()
	s.recountHeld()
}

// recountHeld makes each meter hold what running leases will give back under the rules in force: those of a dropped rung give back
// nothing, and hold again when it returns.
func (s *State) recountHeld() {
	generated := false
	for i := range s.meters.n {
		m := s.meters.at(i)
		generated = generated || m.held != 0 || m.born != noAdoption && strings.HasSuffix(m.key, generatedKey)
	}
	if !generated { // no pass over the leases for nothing
		return
	}
	held := map[*meter]int64{}
	for slot := range s.leases.n {
		if l := s.leases.at(slot); l.phase().running() {
			s.eachCharge(l, func(g *gauge, m *meter, x int64) {
				if g.held() {
					held[m] += x
				}
			})
		}
	}
	for i := range s.meters.n {
		if m := s.meters.at(i); m.held != held[m] {
			s.set(&m.held, held[m])
		}
	}
}

func (s *State) adoptProvider(r *rules, i int, used map[uint32]bool) {
	p := &r.policy.Providers[i]
	pr := providerRules{name: p.Name, row: s.ensureRow(KindProvider, 0, p.Name)}
	r.byName[p.Name] = i
	var rows []uint32
	groups := map[string][]uint32{}
	for j := range p.Models {
		m := &p.Models[j]
		row := s.ensureRow(KindModel, pr.row, m.Name)
		rows = append(rows, row)
		if m.LimitGroup != "" {
			groups[m.LimitGroup] = append(groups[m.LimitGroup], row)
		}
	}
	shared := s.gauges(KindProvider, p.Name, "provider/"+p.Name, &p.Ceilings, []uint32{pr.row}, used)
	for j := range p.Models {
		m := &p.Models[j]
		rr := &rungRules{provider: i, providerRow: pr.row, row: rows[j], model: m, number: s.nodes.at(rows[j]).rung}
		scope, members := "model/"+p.Name+"/"+m.Name, []uint32{rows[j]}
		if m.LimitGroup != "" {
			scope, members = "group/"+p.Name+"/"+m.LimitGroup, groups[m.LimitGroup]
		}
		rung, key := s.rungs.at(rr.number), int64(tombKey(KindModel, scope))
		if rung.scope != key { // older leases did not charge the meters that it shares from now on
			s.set(&rung.scope, key)
			s.set(&rung.scoped, s.adoptions)
		}
		name := cmp.Or(m.Name, p.Name)
		rr.gauges = slices.Concat(shared, s.gauges(KindModel, name, scope, &m.Ceilings, members, used))
		for k := range rr.gauges {
			rr.uncached = rr.uncached || rr.gauges[k].uncached
		}
		for k := range m.Prices {
			rr.cheapness = append(rr.cheapness, cheapness(m.Prices[k].Output))
		}
		for int(rr.number) >= len(r.rungs) {
			r.rungs = append(r.rungs, nil)
		}
		r.rungs[rr.number] = rr
		r.byProviderRow[pr.row] = append(r.byProviderRow[pr.row], rr.number)
		if m.Name != "" {
			r.byModel[m.Name] = append(r.byModel[m.Name], rr.number)
		}
		if j == 0 {
			r.defaults = append(r.defaults, rr.number)
		}
		pr.rungs = append(pr.rungs, rr.number)
	}
	r.providers = append(r.providers, pr)
	r.requests = addAmount(r.requests, p.capacity(func(c *Ceilings) int64 { return int64(c.RPM) }))
	r.tokens = addAmount(r.tokens, p.capacity(func(c *Ceilings) int64 { return int64(c.TPM) }))
	r.slots = addAmount(r.slots, p.capacity(func(c *Ceilings) int64 { return int64(c.MaxConcurrent) }))
}

// capacity is what a provider can do in one dimension: its own ceiling, else those of its models, a limit group's once.
func (p *Provider) capacity(of func(*Ceilings) int64) (sum int64) {
	if own := of(&p.Ceilings); own > 0 {
		return own
	}
	groups := map[string]bool{}
	for i := range p.Models {
		m := &p.Models[i]
		if m.LimitGroup == "" || !groups[m.LimitGroup] {
			groups[m.LimitGroup] = true
			sum = addAmount(sum, of(&m.Ceilings))
		}
	}
	return sum
}

// gauges builds the ceilings of one provider, model or group; rungs that share them get the same meters.
func (s *State) gauges(kind NodeKind, name, scope string, c *Ceilings, rows []uint32, used map[uint32]bool) []gauge {
	var list []gauge
	for _, d := range [...]struct {
		dim     Dim
		ceiling int64
	}{
		{DimRPM, int64(c.RPM)}, {DimTPM, int64(c.TPM)}, {DimInputTPM, int64(c.InputTPM)}, {DimOutputTPM, int64(c.OutputTPM)},
		{DimRPD, int64(c.RPD)}, {DimSlots, int64(c.MaxConcurrent)},
	} {
		if d.ceiling == 0 {
			continue
		}
		uncached := c.UncachedOnly && (d.dim == DimTPM || d.dim == DimInputTPM)
		g := gauge{uncached: uncached, dim: d.dim, ceiling: d.ceiling, generated: c.Generated, shadow: c.ShadowRates, kind: kind, name: name}
		burst := c.Burst
		if burst == 0 {
			burst = Whole / 10
		}
		g.burst = max(burst.share(d.ceiling), 1)
		if d.dim == DimSlots {
			g.rows = rows
		} else {
			key := scope + "/" + d.dim.String()
			if g.uncached { // as below
				key += "/uncached"
			}
			if g.held() {
				key += generatedKey // another accounting is another meter: what one held the other must not drop
			}
			g.meter = s.ensureMeter(key, d.dim, used)
		}
		list = append(list, g)
	}
	return list
}

const generatedKey = "/generated"

func (s *State) ensureRow(kind NodeKind, parent uint32, name string) uint32 {
	if row, ok := s.row(kind, parent, name); ok {
		return row
	}
	return s.addRow(kind, parent, name)
}

func (s *State) ensureMeter(key string, dim Dim, used map[uint32]bool) uint32 {
	i, ok := s.meterIndex[key]
	if !ok {
		i = s.meters.push()
		*s.meters.at(i) = meter{key: key, dim: dim, meterWords: meterWords{born: s.adoptions}}
		s.meterIndex[key] = i
		s.note(undoMeterNew, 0, 0)
	}
	if m := s.meters.at(i); m.born == noAdoption {
		s.set(&m.born, s.adoptions)
	}
	used[i] = true
	return i
}

// retireMeter empties a meter that no ceiling uses. If its ceiling comes back it starts empty, and older leases leave it alone.
func (s *State) retireMeter(m *meter) {
	s.set(&m.born, noAdoption)
	for _, p := range []*int64{&m.sum, &m.held, &m.tat, &m.resets, &m.rolled} {
		s.set(p, 0)
	}
	if m.buckets != nil {
		for i := range m.buckets {
			if m.buckets[i] != 0 {
				s.set(&m.buckets[i], 0)
			}
		}
	}
}

// cheapness is the cost term of the published score: min(1, 1/ln(1 + USD per million output tokens)), 1 for a price of 0.
// 10 $/M gives 0.417.
func cheapness(output Pico) PPM {
	if output <= 0 {
		return Whole
	}
	c := 1 / math.Log1p(float64(output)/1e6)
	return PPM(min(1, c) * float64(Whole))
}

// resolveLimits gives every row its limit under the rules in force.
func (s *State) resolveLimits() {
	for i := range s.nodes.n {
		s.resolveLimit(s.nodes.at(i))
	}
}

// resolveLimit derives a row's limit from the rules. It is not recorded for undo: the rules that are restored resolve it again.
func (s *State) resolveLimit(n *node) {
	n.limit, n.share = NoLimit, 0
	if s.rules == nil {
		return
	}
	p := s.rules.policy
	switch n.kind {
	case KindGlobal:
		n.limit = p.Global
	case KindProvider:
		if i, ok := s.rules.byName[n.name]; ok {
			n.limit = p.Providers[i].Limit
		}
	case KindModel:
		if i := int(n.rung); i < len(s.rules.rungs) && s.rules.rungs[i] != nil {
			n.limit = s.rules.rungs[i].model.Limit
		}
	case KindClass:
		if i, ok := s.rules.classByName[n.name]; ok {
			n.limit, n.share = s.rules.classes[i].Limit, s.rules.classes[i].Share
		}
	case KindAgent:
		if l, ok := s.rules.agents[n.name]; ok {
			n.limit = l
		}
	case KindWorkflow:
		if l, ok := s.rules.flows[n.name]; ok {
			n.limit = l
		}
	case KindTask:
		n.limit = p.Tasks
	case KindCredential: // bounded by what it holds, not by what it spends
	}
}

// classMeters are the class's request and token windows for this lease; nil when the class was not metered then.
func (s *State) classMeters(l *lease) *[2]uint32 {
	i, ok := s.rules.classByRow[l.class]
	if !ok {
		return nil
	}
	m := &s.rules.classes[i].meters
	if s.meters.at(m[0]).born > int64(l.adopted) || s.meters.at(m[1]).born > int64(l.adopted) {
		return nil
	}
	return m
}
