package arbiter

// State is everything one pool knows. It is built from facts alone, so every replica that applied the same entries holds the same
// state, byte for byte (AppendTo). It is not safe for concurrent use.
type State struct {
	pool       string
	now, wall  int64
	epoch, seq uint64
	// survivors has the last surviving position of each earlier epoch, in order.
	survivors []survivor

	rules *rules // nil before the first policy
	// adoptions counts adopted policies: a lease charged the meters that were born at or before its adoption.
	adoptions int64

	nodes     slab[node]
	nodeFree  []uint32
	nodeIndex [kindCount]map[string]uint32 // by kind and key
	rowBounds *[kindCount]int

	rungs slab[rung]

	meters     slab[meter]
	meterIndex map[string]uint32
	// firstBucket is the oldest 100 ms bucket that windows still count.
	firstBucket int64

	leases     slab[lease]
	leaseFree  []uint32
	leaseIndex leaseIndex
	ends       endWheel

	// books are the accounts of the open period (last) and of closed ones that are not final; tasks holds what outlives periods.
	books []*book
	tasks book

	tombs map[uint64]tombstone
	// tombQueue has the tombstones from tombHead on, oldest first.
	tombQueue []tombEntry
	tombHead  int64

	live [int(Returned) + 1]int64 // leases by phase
	// shut is how many breakers are not closed; derived.
	shut int64
	// level is the backpressure level at the last Advance, for the choice of a rung; derived, not part of the canonical state.
	level        Level
	unattributed unattributed

	undo   undoLog
	events eventLog
}

type survivor struct{ epoch, seq uint64 }

// unattributed is spend that came after commit_by: reported, in no budget.
type unattributed struct {
	calls, tokens, nanos int64
	// ids are the leases of the last calls, in two words each, the next one's place being calls modulo their number: a commit that is
	// sent again adds nothing. nil before the first.
	ids *[rememberedLate][2]int64
}

// rememberedLate is how many leases are remembered whose bill came after commit_by.
const rememberedLate = 256

// has reports whether the lease's late bill was counted lately.
func (u *unattributed) has(id LeaseID) bool {
	low, high := splitID(id)
	for i := range min(u.calls, rememberedLate) {
		if u.ids[i] == [2]int64{low, high} {
			return true
		}
	}
	return false
}

// NewState returns the state of a pool whose journal is empty. It refuses requests until a policy is adopted.
func NewState(pool string) *State {
	s := &State{
		pool:       pool,
		meterIndex: map[string]uint32{},
		tombs:      map[uint64]tombstone{},
		rowBounds:  &rowBounds,
	}
	for kind := range s.nodeIndex {
		s.nodeIndex[kind] = map[string]uint32{}
	}
	return s
}

// Pool is the pool's name.
func (s *State) Pool() string { return s.pool }

// Now is the logical time of the last Advance, ns.
func (s *State) Now() int64 { return s.now }

// Wall is the Unix time of the last Advance, ns.
func (s *State) Wall() int64 { return s.wall }

// Policy is the one in force, nil before the first. It must not be changed.
func (s *State) Policy() *Policy {
	if s.rules == nil {
		return nil
	}
	return s.rules.policy
}

// PolicyHash is the hash of the policy in force; zero before the first.
func (s *State) PolicyHash() [32]byte {
	if s.rules == nil {
		return [32]byte{}
	}
	return s.rules.hash
}

// Position is the journal position of the last entry in this state.
func (s *State) Position() (epoch, seq uint64) { return s.epoch, s.seq }

// SetPosition notes that the state holds everything up to this entry.
func (s *State) SetPosition(epoch, seq uint64) { s.epoch, s.seq = epoch, seq }

// survived reports whether the entry (epoch, seq) is part of this history.
func (s *State) survived(epoch, seq uint64) bool {
	if epoch == s.epoch {
		return seq <= s.seq
	}
	for _, v := range s.survivors {
		if v.epoch == epoch {
			return seq <= v.seq
		}
	}
	return false
}

// book returns the accounts of a period, or nil when that period is final and gone.
func (s *State) book(number uint32) *book {
	for i := len(s.books) - 1; i >= 0; i-- {
		if s.books[i].number == number {
			return s.books[i]
		}
	}
	return nil
}

// current is the open period's book; nil before the first policy.
func (s *State) current() *book {
	if len(s.books) == 0 {
		return nil
	}
	return s.books[len(s.books)-1]
}
