package arbiter

// NodeKind is the kind of a budget row.
type NodeKind uint8

// Kinds of budget row. Global, provider, model, class, agent and credential rows count by period; task and workflow rows last as long as the task.
const (
	KindGlobal NodeKind = iota
	KindProvider
	KindModel
	KindClass
	KindAgent
	KindWorkflow
	KindTask
	KindCredential
	kindCount
)

func (k NodeKind) String() string {
	return [...]string{"global", "provider", "model", "class", "agent", "workflow", "task", "credential"}[min(k, kindCount-1)]
}

// Phase is where a lease is in its life (docs/concepts.md, life of a lease).
type Phase uint8

// Phases.
const (
	PhaseNone Phase = iota
	Reserved
	Active
	Held
	RevokedPhase
	Committed
	ReleasedPhase
	Assumed
	Returned
)

func (p Phase) String() string {
	return [...]string{"", "RESERVED", "ACTIVE", "HELD", "REVOKED", "COMMITTED", "RELEASED", "ASSUMED", "RETURNED"}[min(p, Returned)]
}

// Live reports whether the lease still holds tokens.
func (p Phase) Live() bool { return p >= Reserved && p <= RevokedPhase }

// BreakerState is a rung's breaker.
type BreakerState uint8

// Breaker states.
const (
	BreakerClosed BreakerState = iota
	BreakerOpen
	BreakerProbing
)

func (b BreakerState) String() string {
	return [...]string{"closed", "open", "probing"}[min(b, BreakerProbing)]
}
