package arbiter

import "strconv"

// node is one row of the budget tree. Row 0 is the global budget.
type node struct {
	kind   NodeKind
	name   string
	parent uint32
	rung   uint32 // of a model row
	limit  Limit  // resolved from the policy
	share  PPM    // of a class row
	tally
}

// tally is the counters of a row.
type tally struct {
	// refs counts lease records on this row, open those that hold a slot; idle is when refs last fell to 0.
	refs, open, idle int64
	// virtual is a class's virtual time, parts per billion of capacity per share.
	virtual int64
	saved   int64 // undoLog.epoch
}

// rowKey is a row's key among those of its kind: its name, for a model with its provider's row before it.
func rowKey(kind NodeKind, parent uint32, name string) string {
	if kind == KindModel {
		return strconv.FormatUint(uint64(parent), 10) + "/" + name
	}
	return name
}

func (s *State) indexRow(row uint32, n *node) {
	s.nodeIndex[n.kind][rowKey(n.kind, n.parent, n.name)] = row
}

func (s *State) unindexRow(n *node) {
	delete(s.nodeIndex[n.kind], rowKey(n.kind, n.parent, n.name))
}

// perTask reports whether rows of this kind last as long as the task instead of a period.
func (k NodeKind) perTask() bool { return k == KindTask || k == KindWorkflow }

// account is what one row spent and holds, in one period.
type account struct {
	spent, held, assumed, shadow amounts
	// shadowCalls is how many leases a shadowed limit would have refused, by the unit of the limit.
	shadowCalls amounts
	calls       int64
	saved       int64 // undoLog.epoch
}

// empty reports whether nothing was ever counted.
func (a *account) empty() bool {
	b := *a
	b.saved = 0
	return b == account{}
}

type amounts struct{ tokens, nanos int64 }

func (a *account) committedTokens() int64 { return a.spent.tokens + a.assumed.tokens }
func (a *account) committedNanos() int64  { return a.spent.nanos + a.assumed.nanos }

// book is the accounts of one period, by row number.
type book struct {
	number   uint32
	period   Period
	leases   int64 // lease records of this period, ended ones included
	accounts slab[account]
}

func (b *book) at(row uint32) *account {
	b.accounts.grow(row + 1)
	return b.accounts.at(row)
}

// account returns a row's account in the lease's period, or in the task book, to be changed.
func (s *State) account(b *book, row uint32) *account {
	if s.nodes.at(row).kind.perTask() {
		b = &s.tasks
	}
	return b.at(row)
}

// balance is account for readers: it changes nothing, and rows that were never charged are the zero account.
func (s *State) balance(b *book, row uint32) *account {
	if s.nodes.at(row).kind.perTask() {
		b = &s.tasks
	}
	if b == nil || row >= b.accounts.n {
		return &emptyAccount
	}
	return b.accounts.at(row)
}

var emptyAccount account

// tombstone keeps what an idle task or workflow spent, or is assumed to have spent, after its row was dropped.
type tombstone struct {
	spent, assumed amounts
	calls          int64
	until          int64
}

// tombEntry is a tombstone's place in the queue, oldest first. It is stale when its task came back: a later tombstone has another
// until, and a place of its own.
type tombEntry struct {
	key   uint64
	until int64
}

const (
	// idleRow is how long a row without leases stays before Tick drops it.
	idleRow = Hour
	// tombLife is how long the spend of a dropped task is remembered.
	tombLife = 7 * 24 * Hour
	// maxTombs bounds the tombstones, about 100 bytes each: beyond it the oldest go first, and a task that comes back after that
	// starts from nothing.
	maxTombs = 1_000_000
	// sweepRows is how many rows one Tick looks at.
	sweepRows = 4096
)

// rowBounds is how many rows of a kind there may be; 0 is no bound, where the policy names them. Beyond it new agents share the row
// named OtherAgents, new tasks and workflows are refused.
var rowBounds = [kindCount]int{KindAgent: 200_000, KindWorkflow: 1_000_000, KindTask: 1_000_000}

// crowded reports whether there may be no more rows of this kind.
func (s *State) crowded(kind NodeKind) bool { return len(s.nodeIndex[kind]) >= s.rowBounds[kind] }

// OtherAgents is the row of agents beyond the first 200,000.
const OtherAgents = "(others)"

func tombKey(kind NodeKind, name string) uint64 {
	h := uint64(14695981039346656037)
	h = (h ^ uint64(kind)) * 1099511628211
	for i := 0; i < len(name); i++ {
		h = (h ^ uint64(name[i])) * 1099511628211
	}
	return h
}

// row finds a budget row; ok is false when it does not exist yet.
func (s *State) row(kind NodeKind, parent uint32, name string) (uint32, bool) {
	r, ok := s.nodeIndex[kind][rowKey(kind, parent, name)]
	return r, ok
}

// nextRow is the number that the k-th row created from here on will get.
func (s *State) nextRow(k int) uint32 {
	if free := len(s.nodeFree); k < free {
		return s.nodeFree[free-1-k]
	}
	return s.nodes.n + uint32(k-len(s.nodeFree))
}

// addRow creates a budget row. Dropped tasks come back with what they spent.
func (s *State) addRow(kind NodeKind, parent uint32, name string) uint32 {
	var row uint32
	reused := int64(0)
	if free := len(s.nodeFree); free > 0 {
		row, reused = s.nodeFree[free-1], 1
		s.nodeFree = s.nodeFree[:free-1]
	} else {
		row = s.nodes.push()
	}
	n := s.nodes.at(row)
	*n = node{kind: kind, name: name, parent: parent, limit: NoLimit, tally: tally{idle: s.now}}
	s.indexRow(row, n)
	s.note(undoNodeNew, row, reused)
	if kind == KindModel {
		n.rung = s.rungs.push()
		r := s.rungs.at(n.rung)
		*r = rung{model: row, provider: parent}
		s.note(undoRungNew, 0, 0)
	}
	if s.rules != nil {
		s.resolveLimit(n)
	}
	if kind.perTask() {
		key := tombKey(kind, name)
		if t, ok := s.tombs[key]; ok {
			a := s.tasks.at(row)
			s.keepAccount(a)
			a.spent, a.assumed, a.calls = t.spent, t.assumed, t.calls
			s.dropTomb(key)
		}
	}
	return row
}

func (s *State) dropTomb(key uint64) {
	t, ok := s.tombs[key]
	if !ok {
		return
	}
	if s.undo.on {
		s.undo.savedTombs = append(s.undo.savedTombs, t)
	}
	s.note(undoTombGone, 0, int64(key))
	delete(s.tombs, key)
}

// pruneTombs forgets old tombstones, a few at a time: what is over, and the oldest of more than most. Stale places go too; they may
// be as many again.
func (s *State) pruneTombs(most int) {
	for range 4 {
		waiting := s.tombQueue[s.tombHead:]
		if len(waiting) == 0 {
			break
		}
		head := waiting[0]
		if t, ok := s.tombs[head.key]; ok && t.until == head.until {
			if head.until > s.now && len(s.tombs) <= most && len(waiting) <= 2*most {
				break
			}
			s.dropTomb(head.key)
		}
		s.add(&s.tombHead, 1)
	}
	if !s.undo.on {
		s.packTombs()
	}
}

// packTombs gives back what left the queue. Only where nothing can be taken back.
func (s *State) packTombs() {
	if h := int(s.tombHead); h > 1024 && h > len(s.tombQueue)/2 {
		s.tombQueue = s.tombQueue[:copy(s.tombQueue, s.tombQueue[h:])]
		s.tombHead = 0
	}
}

// dropRow removes an idle row. A task's spend goes to a tombstone.
func (s *State) dropRow(row uint32) {
	n := s.nodes.at(row)
	if n.kind.perTask() {
		a := s.tasks.at(row)
		if !a.empty() {
			key := tombKey(n.kind, n.name)
			s.dropTomb(key)
			s.tombs[key] = tombstone{a.spent, a.assumed, a.calls, s.now + tombLife}
			s.note(undoTombNew, 0, int64(key))
			s.tombQueue = append(s.tombQueue, tombEntry{key, s.now + tombLife})
			s.note(undoTombQueued, 0, 0)
			s.keepAccount(a)
			*a = account{saved: a.saved} // the next on this row starts from nothing
		}
		s.pruneTombs(maxTombs)
	}
	if s.undo.on {
		s.undo.savedNodes = append(s.undo.savedNodes, *n)
	}
	s.note(undoNodeGone, row, 0)
	s.unindexRow(n)
	*n = node{}
	s.nodeFree = append(s.nodeFree, row)
}

// add counts o, which may be negative. Sums stay exact: a path's parent gets the same figure as its children.
func (a *amounts) add(o amounts) {
	a.tokens += o.tokens
	a.nanos += o.nanos
}
