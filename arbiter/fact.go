package arbiter

// FactKind numbers the facts in the journal. Numbers are never reused.
type FactKind uint16

// Kinds of fact. All are critical: a reader that does not know one must stop granting.
const (
	FactNodeAdded FactKind = iota + 1
	FactNodeDropped
	FactGranted
	FactActivated
	FactExtended
	FactCommitted
	FactReleased
	FactRevoked
	FactThrottled
	FactBreakerMoved
	FactPolicyAdopted
	FactPeriodRolled
	FactDayRolled
	FactPeriodFinal
	FactUnattributed
)

// Fact is something decided, in absolute numbers: Apply is arithmetic and never asks the policy of the day. Kind says which parts are set.
type Fact struct {
	Kind  FactKind
	Lease LeaseID
	// Node is a budget row's number in State, Rung a rung's.
	Node, Rung uint32
	Grant      GrantFact
	End        EndFact
	Health     HealthFact
	// At is a logical time: Activated: the true start; Extended: the new end; Throttled: hold until.
	At int64
	// Name and NodeKind, with Node and Parent, describe NodeAdded.
	Name     string
	NodeKind NodeKind
	Parent   uint32
	// Version, Hash, Policy and Period of PolicyAdopted; Period of PeriodRolled and DayRolled. Number is the period of PeriodFinal.
	Version uint64
	Hash    [32]byte
	Policy  []byte
	Period  Period
	Number  uint32
	// slot is where Decide saw the lease: a hint for Apply, never written to the journal.
	slot uint32
}

// GrantFact is a lease as granted. Rows are node numbers, 0 for none (row 0 is the global budget, always on the path).
type GrantFact struct {
	Fingerprint, Principal                          uint64
	Agent, Class, Task, Workflow, Model, Credential uint32
	Priority                                        Priority
	Flags                                           Flags
	Input, Output                                   Tokens
	Nanos                                           Nanos
	// Charge is what token windows count for it.
	Charge   Tokens
	Period   uint32
	StartBy  int64
	Deadline int64
	// CommitBy is how long after its end a bill still counts, ns.
	CommitBy int64
	Parent   LeaseID
	// Reserved: the call has not begun.
	Reserved bool
	// Shadow is the kind of limit that would have refused, ReasonNone when none. ShadowNode is the budget's row, with its unit, or
	// the model's row of the rung.
	Shadow     Reason
	ShadowUnit Unit
	ShadowNode uint32
	// Uncached is 1 + the part of the prompt, in millionths, that windows without cached tokens count; 0 where the rung has no such window.
	Uncached PPM
}

// EndFact settles a lease.
type EndFact struct {
	Usage   Usage
	Tokens  Tokens
	Nanos   Nanos
	Outcome Outcome
	Flags   Flags
	Latency int64
	// KeepWindow is false when the window entry is dropped (the call was never sent).
	KeepWindow bool
	Forget     int64
}

// HealthFact is a rung's breaker after the move.
type HealthFact struct {
	State    BreakerState
	Failures int64
	// Until is when an open rung may be probed, or when an outstanding probe counts as failed.
	Until int64
	Epoch int64
	Probe LeaseID
	Dim   Dim
	// Exhausted shuts the rung for money or daily quota, not for load.
	Exhausted bool
	// Ramp is the part of its ceilings from which a rung that was open grows back; 0 begins no ramp.
	Ramp PPM
	// Factor is the part of its ceilings that a throttle leaves in force; 0 leaves it as it is.
	Factor PPM
}
