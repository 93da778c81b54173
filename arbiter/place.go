package arbiter

import "cmp"

// verdict is how one rung stands to a request. The zero check is "it fits".
type verdict struct {
	check Check
	// at is when to ask again, logical ns; never means that waiting cannot cure it. row is the budget it is about, or freshRow; else rung.
	at  int64
	row uint32
	// shadow is what a shadowed limit would have refused, and the row it is about.
	shadow    Check
	shadowRow uint32
	// rung is the model's row.
	rung  uint32
	nanos int64
	// hopeless says that this rung cannot serve the call at all: not even in shadow mode.
	hopeless bool
}

// freshRow stands for the i-th row that the grant would create.
func freshRow(i int) uint32 { return ^uint32(i) }

const never = farFuture

func (v *verdict) fits() bool { return v.check.Reason == ReasonNone }

// object records that a limit refuses until at. Of several, the one that clears last is told.
func (v *verdict) object(c Check, at int64) (told bool) {
	if told = v.check.Reason == ReasonNone || at > v.at; told {
		v.check, v.at, v.row = c, at, v.rung
	}
	return told
}

// limitObjects is object for a limit that may be shadowed.
func (v *verdict) limitObjects(shadow bool, row uint32, c Check, at int64) {
	if !shadow {
		if v.object(c, at) {
			v.row = row
		}
	} else if v.shadow.Reason == ReasonNone {
		v.shadow, v.shadowRow = c, row
	}
}

// place decides where the request goes: a full grant on the best rung that has room, else a partial grant on the best rung, else
// the soonest wait, else a denial.
func (s *State) place(q *request, d *Decision) {
	var refusal verdict
	for c := d.next(); c != nil; c = d.next() {
		v := s.examine(q, c, c.output)
		if v.fits() {
			s.grant(q, c, c.output, &v, 0, d)
			return
		}
		if refusal.fits() || v.at < refusal.at {
			refusal = v
		}
		if v.at != never {
			d.wanted = d.wanted.Add(c.rules.number)
		}
	}
	if s.rules.policy.Shadow { // nothing is refused, delayed or cut
		for c := s.best(d); c != nil; c = d.next() {
			v := s.examine(q, c, c.output)
			if v.hopeless {
				continue
			}
			if v.shadow, v.shadowRow = refusal.check, refusal.row; refusal.hopeless {
				v.shadow, v.shadowRow = v.check, v.row
			}
			s.grant(q, c, c.output, &v, 0, d)
			return
		}
	}
	if q.Min > 0 && s.placePart(q, d) {
		return
	}
	if refusal.at != never {
		s.refuse(d, Deferred, refusal.check, max(refusal.at-s.now, Millisecond))
		return
	}
	if resets := refusal.check.ResetsAt; resets > 0 && resets-s.wall <= q.MaxWait && refusal.check.Reason == ReasonBudget {
		s.refuse(d, Deferred, refusal.check, max(resets-s.wall, Millisecond))
		return
	}
	s.refuse(d, Denied, refusal.check, 0)
}

func (s *State) refuse(d *Decision, status Status, c Check, wait int64) {
	d.Answer.Status, d.Answer.Check, d.Answer.RetryAfter = status, c, wait
	if status == Deferred && len(d.wanted) > 0 {
		d.Answer.Wanted = d.wanted
	}
}

// best is the candidate that would be tried first.
func (s *State) best(d *Decision) *candidate {
	for i := range d.candidates {
		d.candidates[i].tried = false
	}
	return d.next()
}

// placePart grants less output, on the best rung that has room for at least the request's minimum.
func (s *State) placePart(q *request, d *Decision) bool {
	for i := range d.candidates {
		d.candidates[i].tried = false
	}
	for c := d.next(); c != nil; c = d.next() {
		out := min(c.output, s.outputRoom(q, c))
		if out < 1 || c.input+out < int64(q.Min) {
			continue
		}
		if v := s.examine(q, c, out); v.fits() {
			s.grant(q, c, out, &v, FlagPartial, d)
			return true
		}
	}
	return false
}

// rates are the request's rates on a rung, nil when no price is in force, and the factor of its service tier.
func (s *State) rates(q *request, c *candidate) (*Rates, PPM) {
	factor := Whole
	if q.Tier != "" {
		if own := c.rules.model.serviceRates(q.Tier); own != nil && !q.fallback {
			return own, Whole
		}
		factor, _ = s.rules.policy.Providers[c.rules.provider].factor(q.Tier)
	}
	if q.fallback {
		return s.rules.policy.FallbackPrice, factor
	}
	p := PriceAt(c.rules.model.Prices, s.wall)
	if p == nil {
		return s.rules.policy.FallbackPrice, factor
	}
	prompt := c.input
	if q.Undivided {
		prompt += c.output
	}
	return p.RatesFor(Tokens(prompt)), factor
}

// examine asks every limit on the way whether the request fits on this rung with this much output. All checks and the charge are
// one step: nothing is charged unless all agree.
func (s *State) examine(q *request, c *candidate, output int64) verdict {
	v := verdict{rung: c.rules.row}
	s.ask(q, c, output, &v)
	for _, check := range [...]*Check{&v.check, &v.shadow} {
		if check.ScopeKind == KindModel {
			check.Provider = s.rules.providers[c.rules.provider].name
		}
	}
	return v
}

// ask is examine without the names.
func (s *State) ask(q *request, c *candidate, output int64, v *verdict) {
	r := c.rules
	model := cmp.Or(r.model.Name, s.rules.providers[r.provider].name)
	if m := int64(r.model.MaxInput); m > 0 && c.input > m {
		v.object(Check{Reason: ReasonTooLarge, Of: ReasonInputTPM, ScopeKind: KindModel, Scope: model, Unit: UnitTokens, Limit: m, Asked: c.input}, never)
		v.hopeless = true
		return
	}
	rates, factor := s.rates(q, c)
	if rates == nil {
		v.object(Check{Reason: ReasonUnpricedModel, ScopeKind: KindModel, Scope: model}, never)
		v.hopeless = true
		return
	}
	// What a lease holds: prompt at the input rate, answer at the output rate, in the tier of the prompt and the service tier asked for.
	v.nanos = int64(rates.cost(Usage{Input: Tokens(c.input), Output: Tokens(output)}, factor))
	if h := c.health; h.reason != ReasonNone {
		v.object(Check{Reason: h.reason, ScopeKind: KindModel, Scope: model}, h.until)
	}
	if q.Blocked.Has(r.number) {
		v.object(Check{Reason: ReasonQueue, ScopeKind: KindModel, Scope: model}, s.now+s.rungs.at(r.number).callTime())
	}
	whole := counted{c.input, c.fresh, output}
	for i := range r.gauges {
		s.examineGauge(q, &r.gauges[i], r, whole, v)
	}
	s.examineRamp(r, whole, v)

	b := s.current()
	tokens := c.input + output
	s.examineRow(q, b, 0, tokens, s.rules.budgetAbove[q.priority], r, v)
	s.examineRow(q, b, r.providerRow, tokens, noReserve, r, v)
	s.examineRow(q, b, r.row, tokens, noReserve, r, v)
	s.examineRow(q, b, q.rows.class, tokens, noReserve, r, v)
	for i, row := range [...]uint32{q.rows.agent, q.rows.workflow, q.rows.task} {
		if row != 0 {
			s.examineRow(q, b, row, tokens, noReserve, r, v)
		} else if q.rows.fresh[i] {
			s.examineFresh(q, i, tokens, v)
		}
	}
	if q.Principal != 0 {
		s.examinePrincipal(q, b, tokens, r, v)
	}
	if len(s.rules.classes) > 1 && s.rules.unassigned < Whole {
		s.examineShare(q, b, tokens, v)
	}
}

// examineGauge asks one ceiling: window sum, pace, slots or day.
func (s *State) examineGauge(q *request, g *gauge, r *rungRules, c counted, v *verdict) {
	x := g.amount(c)
	rung, reserve := s.rungs.at(r.number), s.rules.rateAbove[q.priority]
	most := g.ceiling - reserve.share(g.ceiling)
	inForce := rung.inForce(g)
	ceiling := inForce - reserve.share(inForce)
	used, held := s.load(g)
	if used+held == 0 { // a cut below the size of one call must not shut it out for good
		ceiling = max(ceiling, min(x, most))
	}
	var at int64
	reason := Reason(g.dim)
	switch {
	case x > most:
		reason, at, ceiling = ReasonTooLarge, never, most
	case g.dim == DimSlots:
		if held+1 <= ceiling {
			return
		}
		at = s.now + rung.callTime()
	case g.dim == DimRPD:
		if used+x <= ceiling {
			return
		}
		at = s.now + max(s.meters.at(g.meter).resets-s.wall, Second)
	default:
		if used+held+x > ceiling {
			at = s.roomAt(s.meters.at(g.meter), max(ceiling-held-x, 0))
			if held > 0 {
				at = max(at, s.now+rung.callTime())
			}
		}
		at = max(at, s.paceAt(g, x, inForce))
		if at <= s.now {
			return
		}
	}
	v.limitObjects(g.shadow, r.row, g.check(reason, ceiling, used, held, x), at)
}

// check is the figures with which a ceiling refuses.
func (g *gauge) check(reason Reason, limit, used, held, asked int64) Check {
	c := Check{Reason: reason, ScopeKind: g.kind, Scope: g.name, Unit: UnitRequests, Limit: limit, Used: used, Held: held, Asked: asked}
	if g.dim.tokens() {
		c.Unit = UnitTokens
	}
	if reason == ReasonTooLarge {
		c.Of = Reason(g.dim)
	}
	return c
}

const noReserve PPM = 0

// examineRow asks one budget, tokens and money: S + A + H + n ≤ L. What is spent can only be cured by the next period; what is held
// may come back.
func (s *State) examineRow(q *request, b *book, row uint32, tokens int64, reserve PPM, r *rungRules, v *verdict) {
	n := s.nodes.at(row)
	l := &n.limit
	if l.Tokens == Unlimited && l.Nanos == Unlimited {
		return
	}
	a := s.balance(b, row)
	ask := func(unit Unit, limit, spent, held, asked int64) {
		if limit == Unlimited {
			return
		}
		usable := limit - reserve.share(limit)
		if spent+held+asked <= usable {
			most := usable
			if share := s.rules.policy.Lease.MaxHoldShare; share > 0 {
				most = share.share(limit)
			}
			if asked <= most {
				return
			}
			usable = most
		}
		check := Check{Reason: ReasonBudget, Of: ReasonBudget, ScopeKind: n.kind, Scope: n.name, Unit: unit, Limit: usable, Used: spent, Held: held, Asked: asked}
		at := never
		switch {
		case asked > usable:
			check.Reason = ReasonTooLarge
		case spent+asked <= usable:
			at = s.now + s.rungs.at(r.number).callTime()
		case !n.kind.perTask():
			check.ResetsAt = b.period.End
		}
		v.limitObjects(l.Shadow, row, check, at)
	}
	ask(UnitTokens, int64(l.Tokens), a.committedTokens(), a.held.tokens, tokens)
	ask(UnitNanos, int64(l.Nanos), a.committedNanos(), a.held.nanos, v.nanos)
}

// fresh names a row that the grant would create.
func (q *request) fresh(i int) (kind NodeKind, name string) {
	return [...]NodeKind{KindAgent, KindWorkflow, KindTask}[i], [...]string{q.Agent, q.Workflow, q.Task}[i]
}

// spentBefore is what such a row spent before it was dropped.
func (s *State) spentBefore(q *request, i int) amounts {
	kind, name := q.fresh(i)
	if !kind.perTask() {
		return amounts{}
	}
	t := s.tombs[tombKey(kind, name)]
	return amounts{t.spent.tokens + t.assumed.tokens, t.spent.nanos + t.assumed.nanos}
}

// examineFresh asks the limit of a row that the grant would create.
func (s *State) examineFresh(q *request, i int, tokens int64, v *verdict) {
	l := &q.rows.limits[i]
	kind, name := q.fresh(i)
	spent := s.spentBefore(q, i)
	ask := func(unit Unit, limit, spent, asked int64) {
		if limit == Unlimited || spent+asked <= limit {
			return
		}
		check := Check{Reason: ReasonBudget, Of: ReasonBudget, ScopeKind: kind, Scope: name, Unit: unit, Limit: limit, Used: spent, Asked: asked}
		if asked > limit {
			check.Reason = ReasonTooLarge
		}
		v.limitObjects(l.Shadow, freshRow(i), check, never)
	}
	ask(UnitTokens, int64(l.Tokens), spent.tokens, tokens)
	ask(UnitNanos, int64(l.Nanos), spent.nanos, v.nanos)
}

// examinePrincipal asks the caps of the credential: open leases and held tokens.
func (s *State) examinePrincipal(q *request, b *book, tokens int64, r *rungRules, v *verdict) {
	l := &s.rules.policy.Lease
	if l.MaxOpen == 0 && l.MaxHeld == 0 {
		return
	}
	var open, held int64
	if q.rows.credential != 0 {
		open, held = s.nodes.at(q.rows.credential).open, s.balance(b, q.rows.credential).held.tokens
	}
	check := Check{Reason: ReasonPrincipal, ScopeKind: KindCredential}
	at := s.now + s.rungs.at(r.number).callTime()
	if m := int64(l.MaxOpen); m > 0 && open >= m {
		check.Unit, check.Limit, check.Held, check.Asked = UnitRequests, m, open, 1
		v.object(check, at)
	}
	if m := int64(l.MaxHeld); m > 0 && held+tokens > m {
		check.Unit, check.Limit, check.Held, check.Asked = UnitTokens, m, held, tokens
		if tokens > m {
			check.Reason, check.Of, at = ReasonTooLarge, ReasonPrincipal, never
		}
		v.object(check, at)
	}
}

// examineShare asks the class's part of the period budget (share.go).
func (s *State) examineShare(q *request, b *book, tokens int64, v *verdict) {
	global := &s.nodes.at(0).limit
	for _, u := range [...]struct {
		unit         Unit
		limit, asked int64
	}{{UnitTokens, int64(global.Tokens), tokens}, {UnitNanos, int64(global.Nanos), v.nanos}} {
		if u.limit == Unlimited || u.asked > u.limit {
			continue
		}
		used, allowed, wait := s.classRoom(q.class, b, u.unit, u.limit, u.asked)
		if used+u.asked <= allowed {
			continue
		}
		v.limitObjects(global.Shadow, v.rung, Check{Reason: ReasonClass, ScopeKind: KindClass, Scope: q.class.Name, Unit: u.unit,
			Limit: allowed, Used: used, Asked: u.asked, ResetsAt: b.period.End}, s.now+wait)
	}
}

// outputRoom is how much output the windows and budgets of a rung leave beside the prompt now.
func (s *State) outputRoom(q *request, c *candidate) int64 {
	r, b := c.rules, s.current()
	room := int64(MaxAmount)
	for i := range r.gauges {
		g := &r.gauges[i]
		if !g.dim.tokens() || g.shadow {
			continue
		}
		used, held := s.load(g)
		inForce := s.rungs.at(r.number).inForce(g)
		left := inForce - s.rules.rateAbove[q.priority].share(inForce) - used - held
		switch g.dim {
		case DimTPM:
			if g.uncached {
				left += c.input - c.fresh
			}
			room = min(room, left-c.input)
		case DimOutputTPM:
			room = min(room, left)
		}
	}
	rates, factor := s.rates(q, c)
	if rates == nil {
		return 0
	}
	prompt := int64(rates.cost(Usage{Input: Tokens(c.input)}, factor))
	most := s.rules.policy.Lease.MaxHoldShare
	if most <= 0 {
		most = Whole
	}
	fit := func(l *Limit, a *account, reserve PPM) {
		if l.Shadow {
			return
		}
		if l.Tokens != Unlimited {
			limit := int64(l.Tokens)
			left := limit - reserve.share(limit) - a.committedTokens() - a.held.tokens
			room = min(room, min(left, most.share(limit))-c.input)
		}
		if l.Nanos != Unlimited && rates.Output > 0 && factor > 0 {
			limit := int64(l.Nanos)
			left := limit - reserve.share(limit) - a.committedNanos() - a.held.nanos
			if left = min(left, most.share(limit)) - prompt; left > 0 {
				room = min(room, mulDiv(mulDiv(left, int64(Whole), int64(factor)), picosPerNano, int64(rates.Output)))
			} else {
				room = 0
			}
		}
	}
	fit(&s.nodes.at(0).limit, s.balance(b, 0), s.rules.budgetAbove[q.priority])
	for _, row := range [...]uint32{r.providerRow, r.row, q.rows.class, q.rows.agent, q.rows.workflow, q.rows.task} {
		if row != 0 {
			fit(&s.nodes.at(row).limit, s.balance(b, row), noReserve)
		}
	}
	for i := range rowCredential {
		if q.rows.fresh[i] {
			fit(&q.rows.limits[i], &account{spent: s.spentBefore(q, i)}, noReserve)
		}
	}
	if m := int64(s.rules.policy.Lease.MaxHeld); m > 0 && q.Principal != 0 {
		if row := q.rows.credential; row != 0 {
			m -= s.balance(b, row).held.tokens
		}
		room = min(room, m-c.input)
	}
	if l := s.nodes.at(0).limit; l.Tokens != Unlimited && len(s.rules.classes) > 1 && s.rules.unassigned < Whole {
		used, allowed, _ := s.classRoom(q.class, b, UnitTokens, int64(l.Tokens), 0)
		room = min(room, allowed-used-c.input)
	}
	return room
}

// grantShadow notes what would have refused the lease: a budget, or a limit of a rung.
func (s *State) grantShadow(q *request, v *verdict, g *GrantFact) {
	g.Shadow, g.ShadowUnit, g.ShadowNode = cmp.Or(v.shadow.Of, v.shadow.Reason), v.shadow.Unit, v.shadowRow
	for i, row := range [...]uint32{q.rows.agent, q.rows.workflow, q.rows.task} {
		if v.shadowRow == freshRow(i) {
			g.ShadowNode = row
		}
	}
}

// grant emits the facts of a lease and answers with it.
func (s *State) grant(q *request, c *candidate, output int64, v *verdict, flags Flags, d *Decision) {
	s.addRows(q, d)
	r, lease := c.rules, &s.rules.policy.Lease
	rung := s.rungs.at(r.number)
	startBy := s.now
	switch {
	case q.Deferred:
		startBy += lease.deferredStart()
	case !q.NoStartDelay:
		startBy += lease.StartBy
	}
	if q.fallback {
		flags |= FlagFallback
	}
	if c.health.probe {
		flags |= FlagProbe
		b := s.breaker(rung)
		if BreakerState(rung.breaker.state) == BreakerProbing { // the probe before never answered
			d.fact(Fact{Kind: FactBreakerMoved, Rung: r.number, Lease: rung.breaker.probe(), Health: HealthFact{State: BreakerOpen, Failures: b.failures, Until: b.until, Epoch: b.epoch}})
		}
		d.fact(Fact{Kind: FactBreakerMoved, Rung: r.number, Lease: q.Lease, Health: HealthFact{
			State: BreakerProbing, Failures: b.failures, Epoch: b.epoch, Probe: q.Lease, Until: s.now + max(minProbeWait, rung.latency.p99)}})
	}
	deadline := s.now + s.ttl(rung)
	if q.Deferred { // a call that has not begun must begin in time
		deadline = min(deadline, startBy)
	}
	f := d.emit(FactGranted, q.Lease)
	f.Rung = r.number
	g := &f.Grant
	*g = GrantFact{
		Fingerprint: q.Fingerprint, Principal: q.Principal,
		Agent: q.rows.agent, Class: q.rows.class, Task: q.rows.task, Workflow: q.rows.workflow, Model: r.row, Credential: q.rows.credential,
		Priority: q.priority, Flags: flags, Input: Tokens(c.input), Output: Tokens(output), Nanos: Nanos(v.nanos), Charge: Tokens(c.input + output),
		Period: s.current().number, StartBy: startBy, Deadline: deadline, CommitBy: lease.CommitBy, Parent: q.Parent, Reserved: q.Deferred,
	}
	if r.uncached {
		g.Uncached = 1 + s.rungs.at(r.number).freshRatio()
	}
	if v.shadow.Reason != ReasonNone {
		s.grantShadow(q, v, g)
	}
	phase := Active
	if q.Deferred {
		phase = Reserved
	}
	d.Answer.Check, d.Answer.Flags = v.shadow, flags // Status is Granted already
	d.Answer.Lease = LeaseState{
		Lease: q.Lease, Provider: s.rules.providers[r.provider].name, Model: r.model.Name, Phase: phase, Class: q.class.Name, Priority: q.priority,
		Input: g.Input, Output: g.Output, Nanos: g.Nanos, Period: g.Period,
		Granted: s.now, StartBy: startBy, Deadline: deadline, CommitBy: deadline + lease.CommitBy,
	}
	if q.fallback {
		d.Answer.Lease.Model = q.Model
	}
}
