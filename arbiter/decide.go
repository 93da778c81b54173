package arbiter

// Decision is the result of Decide. Reuse it: after the first few decisions it allocates nothing. The zero value is ready.
type Decision struct {
	Answer Answer
	// Facts make the answer true once applied, in order. They are valid until the next decision.
	Facts []Fact

	candidates []candidate
	wanted     RungSet
	slot       uint32 // of the lease in question
}

func (d *Decision) reset() {
	d.Facts = d.Facts[:0]
	d.candidates = d.candidates[:0]
	d.wanted = d.wanted[:0]
	d.Answer = Answer{}
	d.slot = 0
}

func (d *Decision) fact(f Fact) { d.Facts = append(d.Facts, f) }

// emit is fact for the grant path: the caller fills the zeroed fact in place.
func (d *Decision) emit(kind FactKind, id LeaseID) *Fact {
	if len(d.Facts) < cap(d.Facts) {
		d.Facts = d.Facts[:len(d.Facts)+1]
	} else {
		d.Facts = append(d.Facts, Fact{})
	}
	f := &d.Facts[len(d.Facts)-1]
	*f = Fact{Kind: kind, Lease: id}
	return f
}

// Decide answers a command from the state as it is: no clock, no randomness, no input or output, no change to the state. The
// caller applies the facts, in order, before it decides the next command. The time is that of the last Advance; only an Extend is
// decided before the Advance of its batch, by its Arrival.
//
// An error means that there is no verdict: CodeInvalid for what can never be right, CodeConflict for a lease id used with other
// parameters, CodeNotFound and CodePrecondition for leases that cannot be extended or signalled, CodeUnavailable before the first policy.
func (s *State) Decide(cmd Command, d *Decision) *Error {
	d.reset()
	if adopt, ok := cmd.(*Adopt); ok {
		return s.decideAdopt(adopt, d)
	}
	if s.rules == nil {
		return Errorf(CodeUnavailable, "no_policy", "pool %s has no policy yet: adopt one (tba serve -c FILE)", s.pool)
	}
	switch c := cmd.(type) {
	case *Request:
		return s.decideRequest(c, d)
	case *Commit:
		return s.decideCommit(c, d)
	case *Release:
		return s.decideRelease(c, d)
	case *Extend:
		return s.decideExtend(c, d)
	case *Signal:
		return s.decideSignal(c, d)
	case *Revoke:
		return s.decideRevoke(c, d)
	case *Roll:
		return s.decideRoll(c, d)
	case *Tick:
		return s.decideTick(c, d)
	}
	return Errorf(CodeUnimplemented, "command", "unknown command %T", cmd)
}

// candidate is a rung that could serve a request.
type candidate struct {
	rules *rungRules
	// tier of the ladder; 0 without one.
	tier  int32
	score int64
	// narrow says that a headroom is below 5 %: used only when no other rung fits.
	narrow bool
	// input and output are the estimate clamped to this model; fresh is the part of the prompt that the rung's cache does not hold, as far
	// as is learned.
	input, fresh, output int64
	health               health
	tried                bool
}

// rows are the budget rows of a request that do not depend on the rung. fresh ones do not exist yet.
type rows struct {
	agent, class, task, workflow, credential uint32
	limits                                   [4]Limit // of agent, workflow, task, credential while they do not exist yet
	fresh                                    [4]bool
}

const (
	rowAgent = iota
	rowWorkflow
	rowTask
	rowCredential
)

func (s *State) decideRequest(r *Request, d *Decision) *Error {
	if l := s.find(r.Lease); l != nil {
		return s.repeat(r, l, d)
	}
	class, err := s.validRequest(r)
	if err != nil {
		return err
	}
	if s.balance(s.current(), 0).full() { // limits or not
		return s.counterFull()
	}
	priority := r.Priority
	if priority == ClassPriority {
		priority = class.Priority
	}
	q := request{Request: r, class: class, priority: priority}
	if err := s.findRows(&q, d); err != nil {
		return err
	}
	if excepted := s.findCandidates(&q, d); len(d.candidates) == 0 {
		check := Check{Reason: ReasonUnpricedModel, ScopeKind: KindModel, Scope: r.Model}
		if excepted {
			check = Check{Reason: ReasonNoRung}
		}
		s.refuse(d, Denied, check, 0)
		return nil
	}
	s.place(&q, d)
	return nil
}

// request is a Request with what was looked up for it.
type request struct {
	*Request
	class    *classRules
	priority Priority
	rows     rows
	// fallback says that the model is unknown and takes the policy's fallback price.
	fallback bool
}

func (s *State) validRequest(r *Request) (*classRules, *Error) {
	name := r.Class
	if name == "" {
		name = DefaultClass
	}
	i, ok := s.rules.classByName[name]
	if !ok {
		return nil, Errorf(CodeInvalid, "unknown_class", "agent_class %q is not in the policy of pool %s: add it under budget.agent_classes or leave it empty", r.Class, s.pool)
	}
	if r.Provider != "" {
		if _, ok := s.rules.byName[r.Provider]; !ok {
			return nil, Errorf(CodeInvalid, "unknown_provider", "preferred_provider %q is not in the policy of pool %s: add it under budget.providers or leave it empty", r.Provider, s.pool)
		}
	}
	if r.Ladder != "" {
		if r.Model != "" {
			return nil, Errorf(CodeInvalid, "ladder_and_model", "ladder %q and model %q exclude each other: send one", r.Ladder, r.Model)
		}
		if s.rules.ladders[r.Ladder] == nil {
			return nil, s.unknownLadder(r.Ladder)
		}
	}
	if r.Priority > Critical && r.Priority != ClassPriority {
		return nil, Errorf(CodeInvalid, "priority", "priority %d is not one of LOW 0, MEDIUM 1, HIGH 2, CRITICAL 3", r.Priority)
	}
	if !validAmount(int64(r.Input)) || !validAmount(int64(r.Output)) || !validAmount(int64(r.Input+r.Output)) {
		return nil, Errorf(CodeInvalid, "estimated_tokens", "estimated_tokens: %v", ErrAmount)
	}
	if !validAmount(int64(r.Min)) {
		return nil, Errorf(CodeInvalid, "min_tokens", "min_tokens: %v", ErrAmount)
	}
	return &s.rules.classes[i], nil
}

// repeat answers a request whose lease exists already.
func (s *State) repeat(r *Request, l *lease, d *Decision) *Error {
	recreated := l.flags()&FlagRecreated != 0 // from its token, which does not tell the parameters
	if l.fingerprint != r.Fingerprint && !recreated || l.principal != r.Principal {
		return Errorf(CodeConflict, "request_id_reused", "this request_id was used with other parameters: use a fresh one, or repeat the same call")
	}
	d.Answer.Lease = s.leaseState(l)
	if l.flags()&FlagFallback != 0 {
		d.Answer.Lease.Model = r.Model
	}
	d.Answer.Flags = l.flags()&(FlagPartial|FlagProbe|FlagFallback|FlagVoid) | FlagRepeat
	switch l.phase() {
	case Committed, ReleasedPhase:
		d.Answer.Flags |= FlagResolved
	case Held, RevokedPhase, Assumed, Returned:
		d.Answer.Flags |= FlagExpired
	}
	return nil
}

// findRows looks up the request's own rows. Those that do not exist yet are created by facts, before the grant.
func (s *State) findRows(q *request, d *Decision) *Error {
	w := &q.rows
	w.class = q.class.row
	find := func(i int, kind NodeKind, name string, limit func() Limit) uint32 {
		if row, ok := s.row(kind, 0, name); ok {
			return row
		}
		w.fresh[i], w.limits[i] = true, limit()
		return 0
	}
	w.agent = find(rowAgent, KindAgent, q.Agent, func() Limit { return named(s.rules.agents, q.Agent) })
	if w.fresh[rowAgent] && s.crowded(KindAgent) && w.limits[rowAgent] == NoLimit {
		w.fresh[rowAgent] = false
		w.agent = find(rowAgent, KindAgent, OtherAgents, func() Limit { return NoLimit })
	}
	if q.Workflow != "" {
		w.workflow = find(rowWorkflow, KindWorkflow, q.Workflow, func() Limit { return named(s.rules.flows, q.Workflow) })
		if w.fresh[rowWorkflow] && s.crowded(KindWorkflow) {
			return Errorf(CodeResource, "too_many_workflows", "pool %s follows %d workflows already: finish some, they go an hour after their last lease, or leave workflow_id empty", s.pool, len(s.nodeIndex[KindWorkflow]))
		}
	}
	if q.Task != "" {
		w.task = find(rowTask, KindTask, q.Task, func() Limit { return s.rules.policy.Tasks })
		if w.fresh[rowTask] && s.crowded(KindTask) {
			return Errorf(CodeResource, "too_many_tasks", "pool %s follows %d tasks already: finish some, they go an hour after their last lease, or leave task_id empty", s.pool, len(s.nodeIndex[KindTask]))
		}
	}
	if l := &s.rules.policy.Lease; q.Principal != 0 && (l.MaxOpen > 0 || l.MaxHeld > 0) {
		w.credential = find(rowCredential, KindCredential, principalName(q.Principal), func() Limit { return NoLimit })
	}
	return nil
}

func named(m map[string]Limit, name string) Limit {
	if l, ok := m[name]; ok {
		return l
	}
	return NoLimit
}

func principalName(p uint64) string {
	const hex = "0123456789abcdef"
	var b [16]byte
	for i := range b {
		b[i] = hex[p>>(60-4*i)&15]
	}
	return string(b[:])
}

// addRows emits the facts that create the request's missing rows and numbers them.
func (s *State) addRows(q *request, d *Decision) {
	w, k := &q.rows, 0
	add := func(i int, row *uint32, kind NodeKind, name string) {
		if !w.fresh[i] {
			return
		}
		*row = s.nextRow(k)
		k++
		d.fact(Fact{Kind: FactNodeAdded, Node: *row, NodeKind: kind, Name: name})
	}
	agent := q.Agent
	if w.limits[rowAgent] == NoLimit && s.crowded(KindAgent) {
		agent = OtherAgents
	}
	add(rowAgent, &w.agent, KindAgent, agent)
	add(rowWorkflow, &w.workflow, KindWorkflow, q.Workflow)
	add(rowTask, &w.task, KindTask, q.Task)
	if w.fresh[rowCredential] {
		add(rowCredential, &w.credential, KindCredential, principalName(q.Principal))
	}
}

// findCandidates lists the rungs that could serve the request, ranked. It reports whether the request excepts some.
func (s *State) findCandidates(q *request, d *Decision) (excepted bool) {
	if q.Ladder != "" {
		return s.findOnLadder(q, d)
	}
	rungs := s.rules.defaults
	if q.Model != "" {
		rungs = s.rules.byModel[q.Model]
		if len(rungs) == 0 && s.rules.policy.FallbackPrice != nil {
			q.fallback = true
			rungs = s.rules.defaults
			if i, ok := s.rules.byName[q.Provider]; ok {
				rungs = rungs[i : i+1]
			}
		}
	}
	latency := len(rungs) > 1
	for _, number := range rungs {
		latency = latency && (s.rungs.at(number).latency.seen >= learnedCalls || s.keptOut(q, number))
	}
	for _, number := range rungs {
		if s.keptOut(q, number) {
			excepted = true
			continue
		}
		c := s.candidate(q, number, d)
		if c == nil {
			excepted = true
			continue
		}
		if len(rungs) > 1 { // one alone needs no rank
			s.score(q, c, latency)
		}
	}
	return excepted
}

// keptOut reports whether a rung is that of a tool which the request does not name: it does not speak the language of a model.
func (s *State) keptOut(q *request, number uint32) bool {
	p := &s.rules.policy.Providers[s.rules.rungs[number].provider]
	return p.Tool && (q.Model == "" || q.fallback) && q.Provider != p.Name
}

// findOnLadder is findCandidates along a ladder.
func (s *State) findOnLadder(q *request, d *Decision) (excepted bool) {
	spot := q.spot()
	l := s.rules.ladders[q.Ladder]
	for i := range l.rungs {
		r := &l.rungs[i]
		c := s.candidate(q, r.number, d)
		if c == nil {
			excepted = true
			continue
		}
		c.tier = r.tier
		c.narrow = s.rateHeadroom(c.rules, c.health) < narrowHeadroom || s.budgetHeadroom(c.rules) < narrowHeadroom
		if c.score = r.rankOf(spot, s.ramped(s.rungs.at(r.number))); q.Provider != "" && q.Provider == s.rules.providers[c.rules.provider].name {
			c.score = 1 // above every rank: the wish decides inside a tier
		}
	}
	return excepted
}

// candidate adds a rung to those that could serve the request; nil when the request excepts it.
func (s *State) candidate(q *request, number uint32, d *Decision) *candidate {
	r := s.rules.rungs[number]
	if len(q.Except) > 0 {
		provider := s.rules.providers[r.provider].name
		if q.excepts(provider, r.model.Name) || q.fallback && q.excepts(provider, q.Model) {
			return nil
		}
	}
	c := candidate{rules: r, input: int64(q.Input), output: int64(q.Output)}
	if m := int64(r.model.MaxOutput); m > 0 && q.Undivided && r.model.MaxInput > 0 {
		c.output = min(c.output, m+int64(r.model.MaxInput))
	} else if m > 0 && !q.Undivided {
		c.output = min(c.output, m)
	}
	if c.input+c.output == 0 { // unknown is not nothing: budgets and windows that are full refuse it
		c.output = 1
	}
	if c.fresh = c.input; r.uncached {
		c.fresh = freshPart(s.rungs.at(number).freshRatio(), c.input)
	}
	c.health = s.health(number)
	d.candidates = append(d.candidates, c)
	return &d.candidates[len(d.candidates)-1]
}

// score ranks a rung by the published formula (docs/algorithms.md §7): w_h·headroom + w_c·cheapness, plus a bonus for the preferred
// provider and, once every candidate has 50 samples, latency with its weight taken evenly from the two.
// Worked example: HIGH, headroom 0.8, 10 $/M (c = 0.417), preferred: 0.7·0.8 + 0.3·0.417 + 0.15 = 0.835.
func (s *State) score(q *request, c *candidate, latency bool) {
	r := c.rules
	w := s.rules.policy.Weights[q.priority]
	h := s.rateHeadroom(r, c.health)
	budget := s.budgetHeadroom(r)
	c.narrow = h < narrowHeadroom || budget < narrowHeadroom
	h = min(h, budget)
	cheap := Whole / 4
	for i := range r.model.Prices {
		if PriceAt(r.model.Prices[i:i+1], s.wall) != nil {
			cheap = r.cheapness[i]
			break
		}
	}
	if s.level == LevelMild { // prefer cheap providers
		shift := min(mildShift, w.Headroom)
		w.Headroom -= shift
		w.Cost += shift
	}
	if latency {
		w.Headroom -= w.Latency / 2
		w.Cost -= w.Latency / 2
		p50 := s.rungs.at(r.number).latency.p50
		c.score += int64(w.Latency) * mulDiv(int64(Whole), 5*Second, 5*Second+p50)
	}
	c.score += int64(w.Headroom)*int64(h) + int64(w.Cost)*int64(cheap)
	if q.Provider != "" && q.Provider == s.rules.providers[r.provider].name {
		c.score += int64(w.Preferred) * int64(Whole)
	}
}

const narrowHeadroom = Whole / 20

// mildShift moves from headroom to cost at MILD.
const mildShift = Whole / 10

// rateHeadroom is the smallest free part of a rung's ceilings; 0 while it is held or open.
func (s *State) rateHeadroom(r *rungRules, h health) PPM {
	if h.reason != ReasonNone || h.probe {
		return 0
	}
	least, rung := Whole, s.rungs.at(r.number)
	for i := range r.gauges {
		g := &r.gauges[i]
		used, held := s.load(g)
		least = min(least, Whole-min(ratio(used+held, rung.inForce(g)), Whole))
	}
	return least
}

// budgetHeadroom is the smallest free part of the rung's own budgets, or of the global one when it has none.
func (s *State) budgetHeadroom(r *rungRules) PPM {
	b := s.current()
	least, limited := Whole, false
	for _, row := range [...]uint32{r.providerRow, r.row} {
		if free, ok := s.free(b, row); ok {
			least, limited = min(least, free), true
		}
	}
	if free, ok := s.free(b, 0); ok && !limited {
		least = free
	}
	return least
}

// free is 1 − (S+A+H)/L of one row, tokens or money, whichever is smaller; ok is false without a limit.
func (s *State) free(b *book, row uint32) (least PPM, ok bool) {
	l := &s.nodes.at(row).limit
	if l.Tokens == Unlimited && l.Nanos == Unlimited {
		return Whole, false
	}
	a := s.balance(b, row)
	least = Whole
	if l.Tokens != Unlimited {
		least = min(least, Whole-min(ratio(a.committedTokens()+a.held.tokens, int64(l.Tokens)), Whole))
	}
	if l.Nanos != Unlimited {
		least = min(least, Whole-min(ratio(a.committedNanos()+a.held.nanos, int64(l.Nanos)), Whole))
	}
	return least, true
}

// next takes the best candidate not yet tried: a due probe first (else an open rung would never be asked again), then by tier of the
// ladder, then those with room, then by score; the order of the file breaks ties.
func (d *Decision) next() *candidate {
	var best *candidate
	for i := range d.candidates {
		c := &d.candidates[i]
		if !c.tried && (best == nil || c.before(best)) {
			best = c
		}
	}
	if best != nil {
		best.tried = true
	}
	return best
}

func (c *candidate) before(o *candidate) bool {
	if c.health.probe != o.health.probe {
		return c.health.probe
	}
	if c.tier != o.tier {
		return c.tier < o.tier
	}
	if c.narrow != o.narrow {
		return o.narrow
	}
	return c.score > o.score
}
