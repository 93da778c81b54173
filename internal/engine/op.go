package engine

import (
	"fmt"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
)

// DefaultPool is the pool of a command that names none.
const DefaultPool = "default"

// Op is one command on its way to a pool. The engine copies what it needs
// before Do returns or Submit returns, whichever the caller used.
type Op struct {
	// Pool is empty for the pool of the token, else DefaultPool.
	Pool string
	// Command is required: *arbiter.Request, *Commit, *Release, *Extend,
	// *Signal or *Revoke. In a Request a zero Lease gets a random id, a zero
	// Fingerprint its Sum, MaxWait and Blocked are set here; in Commit and
	// Release the Token field is set from Token, in Extend Arrival is set.
	Command arbiter.Command
	// MaxWait is how long a request may wait for room; 0 answers at once.
	MaxWait time.Duration
	// Deadline bounds waiting and repeated decisions of a request, from now;
	// 0 is MaxWait.
	Deadline time.Duration
	// Ticket is the seniority of an earlier deferral, as it was sent. A forged
	// one is CodeInvalid, one that is stale or of somebody else is ignored.
	Ticket []byte
	// Token is the lease token of a commit or release, as it was sent. One that
	// the live keys of this principal did not sign is as good as none.
	Token []byte
	// DryRun decides a request and charges nothing; it never waits.
	DryRun bool
}

// Outcome is the answer to an Op.
type Outcome struct {
	// Answer is the decision; its Wanted is nil.
	Answer arbiter.Answer
	// Token is the lease token of a grant, nil otherwise.
	Token []byte
	// Ticket is seniority: of a deferred request, or of a release that reports
	// a throttle. nil otherwise.
	Ticket []byte
	// Level and DelayMS are the pool's backpressure at the answer.
	Level   arbiter.Level
	DelayMS int32
	// Decision names the decision for Explain.
	Decision DecisionID
	// Now is the logical time of the decision, ns: what times of Answer.Lease
	// are compared with.
	Now int64
	// Waited is how long a request was held for room.
	Waited time.Duration
}

// DecisionID names a decision: the journal position it was made at and its
// number since the pool was opened. The zero value names none.
type DecisionID struct {
	Epoch, Seq, Number uint64
}

// String returns the text form, "epoch-seq-number"; empty for the zero value.
func (d DecisionID) String() string {
	if d == (DecisionID{}) {
		return ""
	}
	return fmt.Sprintf("%d-%d-%d", d.Epoch, d.Seq, d.Number)
}

// Reply is one answer of a batch or a Pipe.
type Reply struct {
	// Tag is the caller's mark on the op.
	Tag uint64
	Outcome
	// Err is nil or an *arbiter.Error or the error of a context.
	Err error
}
