package arbiter

// The undo log makes a batch of decisions revocable until its journal entry is known to be in the log. State changes only through
// setters that record the old value; law: encode(rollback(s)) == encode(before).

type undoOp uint8

const (
	undoWord       undoOp = iota // *p had the value old
	undoLeaseNew                 // the lease in slot n was created
	undoLeaseGone                // the lease in slot n was forgotten; its record is the last in saved
	undoEnd                      // the wheel entry {old, n} was taken
	undoEndNew                   // the entry {old, n} was added to the wheel of ends
	undoAccount                  // an account was written: the last in accounts
	undoTally                    // a row's counters were written: the last in tallies
	undoMeter                    // a meter's words were written: the last in meters
	undoNodeNew                  // budget row n was created
	undoNodeGone                 // budget row n was dropped; it is the last in savedNodes
	undoRungNew                  // a rung was created
	undoMeterNew                 // a meter was created
	undoBookNew                  // a period was opened
	undoBookGone                 // a period was dropped; it is the last in savedBooks, at position n
	undoPolicy                   // a policy was adopted; the old rules are the last in savedRules
	undoTombNew                  // a tombstone was written for key old
	undoTombGone                 // a tombstone was taken; it is the last in savedTombs, key old
	undoTombQueued               // a tombstone joined the queue
)

type undoRecord struct {
	p   *int64
	old int64
	op  undoOp
	n   uint32
}

type undoLog struct {
	on      bool
	records []undoRecord
	// epoch counts marks. The records that every grant writes are kept whole, once per epoch, instead of word by word.
	epoch    int64
	accounts []kept[account]
	tallies  []kept[tally]
	meters   []kept[meterWords]

	saved      []lease
	savedNodes []node
	savedBooks []*book
	savedRules []*rules
	savedTombs []tombstone
}

// kept is a record as it was when it was first written after a mark.
type kept[T any] struct {
	at  *T
	old T
}

// Mark is a point in the undo log.
type Mark int

// Begin starts recording. Changes made before it cannot be rolled back.
func (s *State) Begin() {
	s.Confirm()
	s.undo.on = true
	s.undo.epoch++
}

// Confirm makes all changes since Begin final and stops recording.
func (s *State) Confirm() {
	u := &s.undo
	u.on = false
	u.records = u.records[:0]
	u.accounts, u.tallies, u.meters = u.accounts[:0], u.tallies[:0], u.meters[:0]
	u.saved = u.saved[:0]
	clear(u.savedNodes)
	u.savedNodes = u.savedNodes[:0]
	clear(u.savedBooks)
	u.savedBooks = u.savedBooks[:0]
	clear(u.savedRules)
	u.savedRules = u.savedRules[:0]
	u.savedTombs = u.savedTombs[:0]
	s.packTombs()
}

// Rollback restores the state as it was at Begin and stops recording.
func (s *State) Rollback() {
	s.RollbackTo(0)
	s.undo.on = false
}

// Mark names this point for RollbackTo. It is valid until Confirm, Rollback or a RollbackTo an earlier mark.
func (s *State) Mark() Mark {
	s.undo.epoch++
	return Mark(len(s.undo.records))
}

// RollbackTo restores the state as it was at the mark and goes on recording.
func (s *State) RollbackTo(m Mark) {
	u := &s.undo
	for i := len(u.records) - 1; i >= int(m); i-- {
		s.revert(u.records[i])
	}
	u.records = u.records[:m]
	u.epoch++
}

func (s *State) revert(r undoRecord) {
	u := &s.undo
	switch r.op {
	case undoWord:
		*r.p = r.old
	case undoLeaseNew:
		s.ends.drop(endEntry{s.leases.at(r.n).wake, r.n})
		s.leaseIndex.remove(s.leases.at(r.n).id, r.n)
		s.freeLease(r.n, r.old != 0)
	case undoLeaseGone:
		l := s.leases.at(r.n)
		*l = popLast(&u.saved)
		s.leaseIndex.put(l.id, r.n)
		s.leaseFree = s.leaseFree[:len(s.leaseFree)-1]
	case undoEnd:
		s.ends.add(endEntry{r.old, r.n})
	case undoEndNew:
		s.ends.drop(endEntry{r.old, r.n})
	case undoAccount:
		k := popLast(&u.accounts)
		*k.at = k.old
	case undoTally:
		k := popLast(&u.tallies)
		*k.at = k.old
	case undoMeter:
		k := popLast(&u.meters)
		*k.at = k.old
	case undoNodeNew:
		n := s.nodes.at(r.n)
		s.unindexRow(n)
		*n = node{}
		if r.old != 0 {
			s.nodeFree = append(s.nodeFree, r.n)
		} else {
			s.nodes.n--
		}
	case undoNodeGone:
		n := s.nodes.at(r.n)
		*n = popLast(&u.savedNodes)
		s.indexRow(r.n, n)
		s.nodeFree = s.nodeFree[:len(s.nodeFree)-1]
	case undoRungNew:
		s.rungs.n--
		*s.rungs.at(s.rungs.n) = rung{}
	case undoMeterNew:
		s.meters.n--
		m := s.meters.at(s.meters.n)
		delete(s.meterIndex, m.key)
		*m = meter{}
	case undoBookNew:
		s.books = s.books[:len(s.books)-1]
	case undoBookGone:
		s.books = append(s.books[:r.n], append([]*book{popLast(&u.savedBooks)}, s.books[r.n:]...)...)
	case undoPolicy:
		s.rules = popLast(&u.savedRules)
		s.resolveLimits()
	case undoTombNew:
		delete(s.tombs, uint64(r.old))
	case undoTombGone:
		s.tombs[uint64(r.old)] = popLast(&u.savedTombs)
	case undoTombQueued:
		s.tombQueue = s.tombQueue[:len(s.tombQueue)-1]
	}
}

func popLast[T any](list *[]T) T {
	last := len(*list) - 1
	v := (*list)[last]
	*list = (*list)[:last]
	return v
}

// keepAccount is called before the fields of an account are written in place; keepTally and keepMeter likewise.
func (s *State) keepAccount(a *account) {
	if u := &s.undo; u.on && a.saved != u.epoch {
		u.records = append(u.records, undoRecord{op: undoAccount})
		u.accounts = append(u.accounts, kept[account]{a, *a})
		a.saved = u.epoch
	}
}

func (s *State) keepTally(t *tally) {
	if u := &s.undo; u.on && t.saved != u.epoch {
		u.records = append(u.records, undoRecord{op: undoTally})
		u.tallies = append(u.tallies, kept[tally]{t, *t})
		t.saved = u.epoch
	}
}

func (s *State) keepMeter(m *meterWords) {
	if u := &s.undo; u.on && m.saved != u.epoch {
		u.records = append(u.records, undoRecord{op: undoMeter})
		u.meters = append(u.meters, kept[meterWords]{m, *m})
		m.saved = u.epoch
	}
}

// set writes one word of the state.
func (s *State) set(p *int64, v int64) {
	if s.undo.on {
		s.undo.records = append(s.undo.records, undoRecord{p: p, old: *p})
	}
	*p = v
}

func (s *State) add(p *int64, d int64) { s.set(p, *p+d) }

func (s *State) note(op undoOp, n uint32, old int64) {
	if s.undo.on {
		s.undo.records = append(s.undo.records, undoRecord{op: op, n: n, old: old})
	}
}
