package arbiter

// classRoom is a class's part of the period budget (docs/algorithms.md §6): its own share, plus the share assigned to nobody as far as
// others have not used it, plus what other classes have left idle so far. wait is how long until asked fits if the others stay
// idle; at most the rest of the period. So a runaway class cannot drain the period, and nothing is wasted.
//
// Worked example: L = 1000, shares a 0.4, b 0.4, nobody 0.2, half the period gone, b used 50: a may use 400 + 200 + (200 − 50) = 750.
func (s *State) classRoom(c *classRules, b *book, unit Unit, limit, asked int64) (used, allowed, wait int64) {
	length := max(b.period.End-b.period.Start, 1)
	elapsed := min(max(s.wall-b.period.Start, 0), length)
	used = s.committed(b, c.row, unit)
	free := s.rules.unassigned.share(limit)
	var idle, growing int64
	for i := range s.rules.classes {
		o := &s.rules.classes[i]
		if o.row == c.row {
			continue
		}
		theirs, part := s.committed(b, o.row, unit), o.Share.share(limit)
		free -= max(theirs-part, 0)
		if due := mulDiv(part, elapsed, length) - theirs; due > 0 {
			idle += due
			growing += part
		}
	}
	allowed = c.Share.share(limit) + max(free, 0) + idle
	rest := length - elapsed
	wait = rest
	if short := used + asked - allowed; short > 0 && growing > 0 {
		wait = min(mulDivUp(short, length, growing), rest)
	}
	return used, allowed, max(wait, Millisecond)
}

// committed is S + A + H of a row in one unit.
func (s *State) committed(b *book, row uint32, unit Unit) int64 {
	a := s.balance(b, row)
	if unit == UnitNanos {
		return a.committedNanos() + a.held.nanos
	}
	return a.committedTokens() + a.held.tokens
}

// ClassRank orders the waiting classes of one priority level, lower first: first those below their guarantee (share of all
// ceilings less the reserves above the level), by how much of it they used in the last 60 s or, of slots, hold now, in parts per
// million; then the borrowers by virtual time. Unknown classes rank last.
func (s *State) ClassRank(class string, p Priority) int64 {
	if s.rules == nil {
		return 0
	}
	if class == "" {
		class = DefaultClass
	}
	i, ok := s.rules.classByName[class]
	if !ok {
		return never
	}
	c := &s.rules.classes[i]
	used := PPM(0)
	for _, d := range [...]struct{ capacity, used int64 }{
		{s.rules.requests, s.meters.at(c.meters[0]).sum},
		{s.rules.tokens, s.meters.at(c.meters[1]).sum},
		{s.rules.slots, s.nodes.at(c.row).open},
	} {
		if d.capacity > 0 {
			guarantee := c.Share.share(d.capacity - s.rules.rateAbove[p&3].share(d.capacity))
			used = max(used, ratio(d.used, guarantee))
		}
	}
	if used < Whole {
		return int64(used)
	}
	return int64(Whole) + s.nodes.at(c.row).virtual
}
