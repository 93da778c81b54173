package arbiter

import (
	"fmt"
	"math/big"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// twin is the obvious model: a list of leases, every sum counted over the whole list, every rule read from the policy's own text.
type twin struct {
	p      *Policy
	now    int64
	period uint32
	all    []*record
	known  map[LeaseID]*record
	// classes are those that any policy had.
	classes map[string]bool
}

// record is one lease as the model sees it. It stays in the list when it is forgotten: what it spent is spent.
type record struct {
	request              Request
	provider, model      string
	class                string
	input, output, nanos int64
	phase                Phase
	end                  int64 // when it moves by itself
	granted, startBy     int64
	period               uint32
	commitBy             int64 // how long after its end a bill counts
	spent, spentNanos    int64
	capped, recreated    bool
}

func (r *record) tokens() int64 { return r.input + r.output }

// key names one budget: tasks and workflows have no period.
type key struct {
	period       uint32
	kind         NodeKind
	parent, name string
}

func (r *record) keys() []key {
	list := []key{
		{period: r.period, kind: KindGlobal}, {period: r.period, kind: KindProvider, name: r.provider},
		{period: r.period, kind: KindModel, parent: r.provider, name: r.model}, {period: r.period, kind: KindClass, name: r.class},
		{period: r.period, kind: KindAgent, name: r.request.Agent},
	}
	if r.capped {
		list = append(list, key{period: r.period, kind: KindCredential, name: principalName(r.request.Principal)})
	}
	if r.request.Workflow != "" {
		list = append(list, key{kind: KindWorkflow, name: r.request.Workflow})
	}
	if r.request.Task != "" {
		list = append(list, key{kind: KindTask, name: r.request.Task})
	}
	return list
}

// sums counts S, H and A of every budget over all leases there ever were.
func (m *twin) sums() map[key]*account {
	all := map[key]*account{}
	for _, r := range m.all {
		for _, k := range r.keys() {
			if all[k] == nil {
				all[k] = &account{}
			}
			a := all[k]
			a.calls++
			switch {
			case r.phase.Live():
				a.held.tokens, a.held.nanos = a.held.tokens+r.tokens(), a.held.nanos+r.nanos
			case r.phase == Assumed:
				a.assumed.tokens, a.assumed.nanos = a.assumed.tokens+r.spent, a.assumed.nanos+r.spentNanos
			default:
				a.spent.tokens, a.spent.nanos = a.spent.tokens+r.spent, a.spent.nanos+r.spentNanos
			}
		}
	}
	return all
}

// advance ends what is over: the columns "TTL over" and "grace over".
func (m *twin) advance(now int64) {
	m.now = now
	for again := true; again; {
		again = false
		for id, r := range m.known {
			if r.end > now {
				continue
			}
			again = true
			switch {
			case r.phase == Reserved, (r.phase == Active || r.phase == RevokedPhase) && m.p.Lease.OnExpiry == ExpiryReturn:
				r.phase, r.end = Returned, r.end+r.commitBy
			case r.phase == Active, r.phase == RevokedPhase:
				r.phase, r.end = Held, r.end+m.p.Lease.Grace
			case r.phase == Held:
				r.phase, r.end, r.spent, r.spentNanos = Assumed, r.end+r.commitBy, r.tokens(), r.nanos
			default:
				delete(m.known, id)
			}
		}
	}
}

// limitOf reads a budget's limit from the policy.
func (m *twin) limitOf(k key) Limit {
	switch k.kind {
	case KindGlobal:
		return m.p.Global
	case KindTask:
		return m.p.Tasks
	case KindClass:
		for _, c := range m.p.Classes {
			if c.Name == k.name {
				return c.Limit
			}
		}
	case KindAgent, KindWorkflow:
		list := m.p.Agents
		if k.kind == KindWorkflow {
			list = m.p.Workflows
		}
		for _, a := range list {
			if a.Name == k.name {
				return a.Limit
			}
		}
	}
	for _, p := range m.p.Providers {
		if k.kind == KindProvider && p.Name == k.name {
			return p.Limit
		}
		for _, mo := range p.Models {
			if k.kind == KindModel && p.Name == k.parent && mo.Name == k.name {
				return mo.Limit
			}
		}
	}
	return NoLimit
}

func (m *twin) rung(provider, model string) (*Provider, *Model) {
	for i := range m.p.Providers {
		p := &m.p.Providers[i]
		for j := range p.Models {
			if p.Name == provider && p.Models[j].Name == model {
				return p, &p.Models[j]
			}
		}
	}
	return nil, nil
}

// cost prices with big numbers: prompt tier by the whole prompt, rounded up once.
func cost(prices []Price, u Usage, prompt Tokens) int64 { return costBy(prices, u, prompt, Whole) }

// costBy is cost in a service tier.
func costBy(prices []Price, u Usage, prompt Tokens, factor PPM) int64 {
	rates := prices[0].Rates
	for _, t := range prices[0].Tiers {
		if prompt > t.OverInput {
			rates = t.Rates
		}
	}
	sum := new(big.Int)
	for _, x := range [...][2]int64{{int64(u.Input), int64(rates.Input)}, {int64(u.CacheRead), int64(rates.CacheRead)}, {int64(u.CacheWrite), int64(rates.CacheWrite)},
		{int64(u.CacheWriteLong), int64(rates.CacheWriteLong)}, {int64(u.Output), int64(rates.Output)}} {
		sum.Add(sum, new(big.Int).Mul(big.NewInt(x[0]), big.NewInt(x[1])))
	}
	sum.Mul(sum, big.NewInt(int64(factor)))
	sum.Add(sum, big.NewInt(999_999_999)).Div(sum, big.NewInt(1_000_000_000))
	if !sum.IsInt64() || sum.Int64() > MaxAmount {
		return MaxAmount
	}
	return sum.Int64()
}

// verify holds the promises against one reply and then makes it true in the model.
func (m *twin) verify(c Command, got reply) error {
	switch c := c.(type) {
	case *Request:
		return m.request(c, got)
	case *Commit:
		return m.commit(c, got)
	case *Release:
		return m.release(c, got)
	case *Extend:
		return m.extend(c, got)
	case *Signal:
		return m.signal(c, got)
	case *Revoke:
		return m.revoke(c, got)
	case *Roll:
		if c.Provider == "" && got.Facts > 0 {
			m.period++
		}
	case *Adopt:
		if got.Err == nil {
			p, err := DecodePolicy(c.Policy)
			if err != nil {
				return err
			}
			if m.p = p; m.period == 0 {
				m.period = 1
			}
			for _, c := range p.Classes {
				m.classes[c.Name] = true
			}
		}
	}
	return nil
}

func (m *twin) request(q *Request, got reply) error {
	a := &got.Answer
	if r := m.known[q.Lease]; r != nil {
		if !r.recreated && r.request.Fingerprint != q.Fingerprint || r.request.Principal != q.Principal {
			return expect(got.Err != nil && got.Err.Code == CodeConflict, "another request with this id must be a conflict")
		}
		if got.Err != nil || a.Flags&FlagRepeat == 0 || got.Facts > 0 || a.Status != Granted {
			return fmt.Errorf("a repeat must have the first answer")
		}
		ended, resolved := r.phase > Active && r.phase != Committed && r.phase != ReleasedPhase, r.phase == Committed || r.phase == ReleasedPhase
		return expect(a.Flags&FlagExpired != 0 == ended && a.Flags&FlagResolved != 0 == resolved && int64(a.Lease.Tokens()) == r.tokens() && a.Lease.Phase == r.phase, "repeat of a lease that is %s", r.phase)
	}
	if got.Err != nil || a.Status != Granted {
		return m.refused(q, got)
	}
	l := &a.Lease
	r := &record{request: *q, provider: l.Provider, model: l.Model, class: l.Class, input: int64(l.Input), output: int64(l.Output), nanos: int64(l.Nanos),
		phase: Active, granted: m.now, startBy: m.now, end: m.now + m.p.Lease.TTL, commitBy: m.p.Lease.CommitBy, period: m.period, capped: q.Principal != 0 && (m.p.Lease.MaxOpen > 0 || m.p.Lease.MaxHeld > 0)}
	if !q.NoStartDelay && !q.Deferred {
		r.startBy += m.p.Lease.StartBy
	}
	if q.Deferred {
		r.startBy += m.deferredStart()
		r.phase, r.end = Reserved, min(r.end, r.startBy)
	}
	if a.Flags&FlagFallback != 0 {
		r.model = m.defaultModel(l.Provider)
	}
	if l.Phase != r.phase || l.Deadline != r.end || l.StartBy != r.startBy || l.CommitBy != r.end+m.p.Lease.CommitBy || l.Period != m.period {
		return fmt.Errorf("granted %+v, the model says %+v", l, r)
	}
	if err := m.overGrant(q, r, a); err != nil {
		return err
	}
	if model := m.defaultModel(l.Provider); excepted(q, l.Provider, l.Model) || a.Flags&FlagFallback != 0 && excepted(q, l.Provider, model) {
		return fmt.Errorf("granted on %s/%s although the request excepts %v", l.Provider, l.Model, q.Except)
	}
	if p, _ := m.rung(r.provider, r.model); p.Tool && q.Ladder == "" && q.Provider != p.Name && (q.Model == "" || a.Flags&FlagFallback != 0) {
		return fmt.Errorf("granted on %s, a tool that nobody named", l.Provider)
	}
	if q.Ladder != "" && !slices.ContainsFunc(m.rungsOf(q), func(r Rung) bool { return r.Provider == l.Provider && r.Model == l.Model }) {
		return fmt.Errorf("granted on %s/%s, which is not on the ladder", l.Provider, l.Model)
	}
	m.all = append(m.all, r)
	m.known[q.Lease] = r
	return nil
}

// deferredStart: a call cannot be told later to begin at once.
func (m *twin) deferredStart() int64 {
	if m.p.Lease.StartBy > 0 {
		return m.p.Lease.StartBy
	}
	return 2 * Second
}

func (m *twin) defaultModel(provider string) string {
	for _, p := range m.p.Providers {
		if p.Name == provider {
			return p.Models[0].Name
		}
	}
	return "?"
}

// overGrant is P1 and P6, and the price of what is held.
func (m *twin) overGrant(q *Request, r *record, a *Answer) error {
	p, model := m.rung(r.provider, r.model)
	if p == nil {
		return fmt.Errorf("granted on %s/%s, which the policy does not have", r.provider, r.model)
	}
	asked := int64(q.Output)
	if model.MaxOutput > 0 && !q.Undivided {
		asked = min(asked, int64(model.MaxOutput))
	}
	if asked += int64(q.Input); asked == 0 {
		asked = 1
	}
	if partial := a.Flags&FlagPartial != 0; r.tokens() != asked && !partial || partial && (r.tokens() > asked || r.tokens() < int64(q.Min) || q.Min == 0) || r.output < 0 {
		return fmt.Errorf("asked for %d, granted %d", asked, r.tokens())
	}
	if a.Flags&FlagFallback == 0 {
		prompt := q.Input
		if q.Undivided {
			prompt += q.Output
		}
		if want := priceOf(p, model, q.Tier, Usage{Input: q.Input, Output: Tokens(r.output)}, prompt); want != r.nanos {
			return fmt.Errorf("holds %d nanos, the price is %d", r.nanos, want)
		}
	}
	if m.p.Shadow {
		return nil
	}
	level := q.Priority
	if level == ClassPriority {
		for _, c := range m.p.Classes {
			if c.Name == r.class {
				level = c.Priority
			}
		}
	}
	var reserve Reserve
	for above := int(level) + 1; above < len(m.p.Reserves); above++ {
		reserve.Rate += m.p.Reserves[above].Rate
		reserve.Budget += m.p.Reserves[above].Budget
	}
	sums := m.sums()
	for _, k := range r.keys() {
		limit, now := m.limitOf(k), sums[k]
		if now == nil {
			now = &account{}
		}
		if k.kind == KindCredential {
			limit = NoLimit
			if most := m.p.Lease.MaxHeld; most > 0 && now.held.tokens+r.tokens() > int64(most) {
				return fmt.Errorf("credential holds %d + %d of %d", now.held.tokens, r.tokens(), most)
			}
		}
		if k.kind == KindGlobal {
			limit.Tokens, limit.Nanos = less(limit.Tokens, reserve.Budget), less(limit.Nanos, reserve.Budget)
		}
		if limit.Shadow {
			continue
		}
		if s := now.committedTokens() + now.held.tokens + r.tokens(); limit.Tokens != Unlimited && s > int64(limit.Tokens) {
			return fmt.Errorf("over-grant: %v has %+v, limit %d, granted %d", k, now, limit.Tokens, r.tokens())
		}
		if s := now.committedNanos() + now.held.nanos + r.nanos; limit.Nanos != Unlimited && s > int64(limit.Nanos) {
			return fmt.Errorf("over-grant: %v has %+v, limit %d nanos, granted %d", k, now, limit.Nanos, r.nanos)
		}
	}
	for _, s := range [...]struct {
		*Ceilings
		runs func(o *record) bool
	}{
		{&p.Ceilings, func(o *record) bool { return o.provider == p.Name }},
		{&model.Ceilings, func(o *record) bool {
			_, other := m.rung(o.provider, o.model)
			return o.provider == p.Name && (o.model == model.Name || model.LimitGroup != "" && other != nil && other.LimitGroup == model.LimitGroup)
		}},
	} {
		running := int64(1)
		for _, o := range m.all {
			if o.phase.running() && s.runs(o) {
				running++
			}
		}
		if slots := less(s.MaxConcurrent, reserve.Rate); s.MaxConcurrent > 0 && !s.ShadowRates && running > int64(slots) {
			return fmt.Errorf("%d leases run on %d slots", running, slots)
		}
	}
	return nil
}

// less is a limit without its reserve, rounded down.
func less[T ~int64](limit T, reserve PPM) T {
	if limit <= 0 {
		return limit
	}
	return limit - T(reserve.share(int64(limit)))
}

// refused checks that a refusal's figures are the model's and that they do refuse.
func (m *twin) refused(q *Request, got reply) error {
	a := &got.Answer
	if got.Facts > 0 || a.Status == Deferred && a.RetryAfter <= 0 || a.Status == Denied && a.RetryAfter != 0 {
		return fmt.Errorf("a refusal must change nothing, and a wait is for DEFERRED only")
	}
	if got.Err != nil {
		return expect(got.Err.Code == CodeInvalid || got.Err.Code == CodeResource, "a request can be invalid, nothing else")
	}
	if m.p.Shadow && a.Check.Reason != ReasonUnpricedModel && a.Check.Reason != ReasonNoRung {
		return fmt.Errorf("refused in shadow mode")
	}
	c := &a.Check
	if c.Reason == ReasonNone {
		return fmt.Errorf("refused without a reason")
	}
	if c.Reason == ReasonNoRung {
		for _, r := range m.rungsOf(q) {
			if !excepted(q, r.Provider, r.Model) {
				return fmt.Errorf("no rung is left of %v, but %s is none of them", q.Except, r)
			}
		}
		return nil
	}
	if c.Reason != ReasonBudget {
		return nil
	}
	k := key{period: m.period, kind: c.ScopeKind, name: c.Scope}
	if c.ScopeKind.perTask() {
		k.period = 0
	}
	if c.ScopeKind == KindModel {
		k.parent = c.Provider
	}
	now := m.sums()[k]
	if now == nil {
		now = &account{}
	}
	used, held := now.committedTokens(), now.held.tokens
	if c.Unit == UnitNanos {
		used, held = now.committedNanos(), now.held.nanos
	}
	return expect(used == c.Used && held == c.Held && used+held+c.Asked > c.Limit, "the model has %d used, %d held", used, held)
}

// excepted reads Request.Except.
func excepted(q *Request, provider, model string) bool {
	return slices.Contains(q.Except, provider) || model != "" && slices.Contains(q.Except, provider+"/"+model)
}

// rungsOf are the rungs that may serve a request by its wishes alone, a fallback apart.
func (m *twin) rungsOf(q *Request) (list []Rung) {
	for _, l := range m.p.Ladders {
		if l.Name == q.Ladder {
			return slices.Concat(l.Tiers...)
		}
	}
	for _, p := range m.p.Providers {
		for i, o := range p.Models {
			if p.Tool && q.Model == "" && q.Provider != p.Name {
				continue
			}
			if q.Model == "" && i == 0 || q.Model != "" && q.Model == o.Name {
				list = append(list, Rung{p.Name, o.Name})
			}
		}
	}
	return list
}

func expect(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, args...)
}

// TestTwin plays tame scenes (no shadowed limit, amounts in bounds) against the model: P1, P2, P6, one phase a lease, and every sum.
func TestTwin(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) { playTwin(t, rapidDice{t}, 12, 40, 6) })
}

// TestTwinLong plays longer scenes from fixed seeds.
func TestTwinLong(t *testing.T) {
	t.Parallel()
	seeds := 100
	switch {
	case soak:
		seeds = 2000
	case underRace:
		seeds = 10
	}
	for seed := range seeds {
		playTwin(t, newSeed(uint64(1000+seed)), 30, 200, 12)
	}
}

func playTwin(tb failer, d dice, ids, batches, size int) {
	tb.Helper()
	g := newDirector(tb, d, ids)
	g.tame, g.explicit = true, true
	m := &twin{known: map[LeaseID]*record{}, classes: map[string]bool{}}
	first := g.adopt(tb)
	if err := m.verify(first, g.k.do(tb, at(g.now), first)); err != nil || m.p == nil {
		tb.Fatalf("the scene's policy: %v", err)
	}
	for i := range batches {
		b := g.next(tb, size)
		replies := g.k.run(tb, b)
		for j, x := range b.extends {
			if err := m.verify(x, replies[j]); err != nil {
				tb.Fatalf("batch %d, extension %+v: %v\n%v", i, x, err, replies[j])
			}
		}
		m.advance(max(m.now, b.t.Now))
		for j, c := range b.commands {
			if err := m.verify(c, replies[len(b.extends)+j]); err != nil {
				tb.Fatalf("batch %d at %d, %T %+v: %v\n%v", i, b.t.Now, c, c, err, replies[len(b.extends)+j])
			}
		}
		if err := m.agrees(g.k.w); err != nil {
			tb.Fatalf("batch %d: %v", i, err)
		}
	}
}

// agrees compares every budget and every lease.
func (m *twin) agrees(s *State) error {
	sums := m.sums()
	for i := range s.nodes.n {
		n := s.nodes.at(i)
		if n.kind == KindGlobal && i > 0 {
			continue
		}
		k := key{kind: n.kind, name: n.name}
		if n.kind == KindModel {
			k.parent = s.nodes.at(n.parent).name
		}
		for _, b := range s.books {
			if !n.kind.perTask() {
				k.period = b.number
			}
			want, got := sums[k], *s.balance(b, i)
			if want == nil {
				want = &account{}
			}
			got.saved = 0
			if got.shadow = (amounts{}); got != *want {
				return fmt.Errorf("%v: %+v, the model has %+v", k, got, *want)
			}
		}
	}
	if n := int(s.leases.n) - len(s.leaseFree); n != len(m.known) {
		return fmt.Errorf("%d leases, the model knows %d", n, len(m.known))
	}
	for id, r := range m.known {
		l := s.find(id)
		if l == nil {
			return fmt.Errorf("lease %x, %s in the model, is unknown", id[:4], r.phase)
		}
		if l.phase() != r.phase || l.deadline != r.end || l.startBy != r.startBy && r.phase.running() || l.spentTokens != r.spent || l.spentNanos != r.spentNanos {
			return fmt.Errorf("lease %x: %s until %d, start by %d, spent %d/%d, the model has %s until %d, start by %d, spent %d/%d", id[:4],
				l.phase(), l.deadline, l.startBy, l.spentTokens, l.spentNanos, r.phase, r.end, r.startBy, r.spent, r.spentNanos)
		}
	}
	if !slices.IsSortedFunc(s.books, func(a, b *book) int { return int(a.number) - int(b.number) }) {
		return fmt.Errorf("periods are out of order")
	}
	return nil
}
