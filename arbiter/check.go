package arbiter

import "fmt"

// Check asserts the invariants of docs/guarantees.md over the whole state: H is the sum of what leases hold; a parent equals its children;
// open leases are counted once; windows equal their buckets; nothing is negative. It returns the first that is broken. It costs a
// pass over all leases.
func (s *State) Check() error {
	type sum struct {
		held       amounts
		open, refs int64
	}
	rows := make([]sum, s.nodes.n)
	perBook := map[uint32]map[uint32]amounts{}
	phases := [int(Returned) + 1]int64{}
	for slot := range s.leases.n {
		l := s.leases.at(slot)
		p := l.phase()
		if p == PhaseNone {
			continue
		}
		if got, ok := s.leaseIndex.get(&s.leases, l.id); !ok || got != slot {
			return fmt.Errorf("lease %x: not in the index", l.id)
		}
		phases[p]++
		b := s.book(l.period)
		if b == nil {
			return fmt.Errorf("lease %x: period %d is gone", l.id, l.period)
		}
		if perBook[l.period] == nil {
			perBook[l.period] = map[uint32]amounts{}
		}
		path := s.path(l)
		for _, row := range path.rows[:path.n] {
			rows[row].refs++
			if p.running() {
				rows[row].open++
			}
			if !p.Live() {
				continue
			}
			if s.nodes.at(row).kind.perTask() {
				rows[row].held.tokens += l.tokens()
				rows[row].held.nanos += l.nanos
				continue
			}
			h := perBook[l.period][row]
			h.tokens += l.tokens()
			h.nanos += l.nanos
			perBook[l.period][row] = h
		}
	}
	if [int(Returned)]int64(phases[1:]) != [int(Returned)]int64(s.live[1:]) {
		return fmt.Errorf("phases: counted %v, kept %v", phases, s.live)
	}
	for i := range s.nodes.n {
		n := s.nodes.at(i)
		if n.open != rows[i].open || n.refs != rows[i].refs {
			return fmt.Errorf("%s %q: %d open and %d records, counted %d and %d", n.kind, n.name, n.open, n.refs, rows[i].open, rows[i].refs)
		}
		if n.kind.perTask() {
			if a := s.balance(nil, i); s.tasks.accounts.n > i && a.held != rows[i].held {
				return fmt.Errorf("%s %q: holds %v, leases hold %v", n.kind, n.name, a.held, rows[i].held)
			}
		}
	}
	for _, b := range s.books {
		if err := s.checkBook(b, perBook[b.number]); err != nil {
			return fmt.Errorf("period %d: %w", b.number, err)
		}
	}
	for i := range s.rungs.n {
		r := s.rungs.at(i)
		if !r.plausible() || r.ramp.part != 0 && BreakerState(r.breaker.state) != BreakerClosed {
			return fmt.Errorf("rung %d: ramp %+v, %d millionths cut, breaker %s", i, r.ramp, r.cut, BreakerState(r.breaker.state))
		}
	}
	for i := range s.meters.n {
		m := s.meters.at(i)
		var in int64
		if m.buckets != nil {
			for _, x := range m.buckets {
				if in += x; x < 0 {
					return fmt.Errorf("meter %s: a bucket is negative", m.key)
				}
			}
		}
		if m.dim != DimRPD && in != m.sum || m.sum < 0 || m.held < 0 {
			return fmt.Errorf("meter %s: sum %d, buckets %d, held %d", m.key, m.sum, in, m.held)
		}
	}
	return nil
}

// checkBook asserts that every row holds what its leases hold and that the global row equals the sum of providers and of classes,
// and a provider the sum of its models.
func (s *State) checkBook(b *book, held map[uint32]amounts) error {
	children := map[uint32]*account{}
	var classes account
	for i := range s.nodes.n {
		n := s.nodes.at(i)
		if n.kind.perTask() {
			continue
		}
		a := s.balance(b, i)
		if a.held != held[i] {
			return fmt.Errorf("%s %q: holds %v, leases hold %v", n.kind, n.name, a.held, held[i])
		}
		for _, v := range [...]int64{a.spent.tokens, a.spent.nanos, a.held.tokens, a.held.nanos, a.assumed.tokens, a.assumed.nanos} {
			if v < 0 {
				return fmt.Errorf("%s %q: negative: %+v", n.kind, n.name, *a)
			}
		}
		switch n.kind {
		case KindProvider, KindModel:
			if children[n.parent] == nil {
				children[n.parent] = new(account)
			}
			children[n.parent].include(a)
		case KindClass:
			classes.include(a)
		}
	}
	for row, sum := range children {
		if a := *s.balance(b, row); !a.equals(sum) {
			return fmt.Errorf("%s %q: %+v, its children sum to %+v", s.nodes.at(row).kind, s.nodes.at(row).name, a, *sum)
		}
	}
	if a := *s.balance(b, 0); !a.equals(&classes) {
		return fmt.Errorf("global: %+v, classes sum to %+v", a, classes)
	}
	return nil
}

func (a *account) include(o *account) {
	for _, p := range [...]struct{ to, from *amounts }{{&a.spent, &o.spent}, {&a.held, &o.held}, {&a.assumed, &o.assumed}} {
		p.to.tokens += p.from.tokens
		p.to.nanos += p.from.nanos
	}
	a.calls += o.calls
}

// equals compares what is counted; shadow counters belong to single rows.
func (a *account) equals(o *account) bool {
	return a.spent == o.spent && a.held == o.held && a.assumed == o.assumed && a.calls == o.calls
}
