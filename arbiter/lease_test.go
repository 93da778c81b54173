package arbiter

import (
	"fmt"
	"strings"
	"testing"
)

// The table of a lease's life (docs: concepts, lease): every row, every column. A cell says what the caller gets, then the phase,
// spent, held and assumed tokens, slots and window entries after it. The lease holds 100 + 50 tokens; its TTL is 30 s, start_by 2 s,
// grace 1 min, commit_by 1 h, forgetting 10 min.

const leaseTable = `
row       | column        | outcome
none      | request       | GRANTED → ACTIVE S0 H150 A0 slots1 rpm1
none      | activate      | unknown_lease → gone S0 H0 A0 slots0 rpm0
none      | extend        | unknown_lease → gone S0 H0 A0 slots0 rpm0
none      | commit 60     | UNKNOWN_LEASE → gone S0 H0 A0 slots0 rpm0
none      | commit token  | RECORDED recreated → COMMITTED S60 H0 A0 slots0 rpm1
none      | commit seen   | ALREADY_RECORDED → gone S0 H0 A0 slots0 rpm0
none      | commit late   | TOO_OLD → gone S0 H0 A0 slots0 rpm0 unattributed 60
none      | release       | UNKNOWN_LEASE → gone S0 H0 A0 slots0 rpm0
none      | release token | RELEASED recreated → RELEASED S0 H0 A0 slots0 rpm1
none      | revoke        | unknown_lease → gone S0 H0 A0 slots0 rpm0
RESERVED  | request       | GRANTED repeat → RESERVED S0 H150 A0 slots1 rpm1
RESERVED  | request other | request_id_reused → RESERVED S0 H150 A0 slots1 rpm1
RESERVED  | activate      | SIGNALLED → ACTIVE S0 H150 A0 slots1 rpm1
RESERVED  | extend        | EXTENDED → RESERVED S0 H150 A0 slots1 rpm1
RESERVED  | commit 60     | RECORDED → COMMITTED S60 H0 A0 slots0 rpm1
RESERVED  | commit none   | RECORDED estimated → COMMITTED S150 H0 A0 slots0 rpm1
RESERVED  | release       | RELEASED → RELEASED S0 H0 A0 slots0 rpm0
RESERVED  | revoke        | revoked 1 → RETURNED S0 H0 A0 slots0 rpm0
RESERVED  | TTL           | lease_expired → RETURNED S0 H0 A0 slots0 rpm0
ACTIVE    | request       | GRANTED repeat → ACTIVE S0 H150 A0 slots1 rpm1
ACTIVE    | request other | request_id_reused → ACTIVE S0 H150 A0 slots1 rpm1
ACTIVE    | activate      | SIGNALLED → ACTIVE S0 H150 A0 slots1 rpm1
ACTIVE    | extend        | EXTENDED → ACTIVE S0 H150 A0 slots1 rpm1
ACTIVE    | commit 60     | RECORDED → COMMITTED S60 H0 A0 slots0 rpm1
ACTIVE    | commit 200    | RECORDED overrun → COMMITTED S200 H0 A0 slots0 rpm1
ACTIVE    | commit 0      | RECORDED → COMMITTED S0 H0 A0 slots0 rpm1
ACTIVE    | commit none   | RECORDED estimated → COMMITTED S150 H0 A0 slots0 rpm1
ACTIVE    | commit unsent | RECORDED → COMMITTED S0 H0 A0 slots0 rpm0
ACTIVE    | release       | RELEASED → RELEASED S0 H0 A0 slots0 rpm1
ACTIVE    | release unsent | RELEASED → RELEASED S0 H0 A0 slots0 rpm0
ACTIVE    | revoke        | revoked 1 → REVOKED S0 H150 A0 slots1 rpm1
ACTIVE    | TTL           | lease_expired → RETURNED S0 H0 A0 slots0 rpm1
ACTIVE    | TTL assume    | lease_expired → HELD S0 H150 A0 slots0 rpm1
HELD      | request       | GRANTED repeat expired → HELD S0 H150 A0 slots0 rpm1
HELD      | activate      | lease_expired → HELD S0 H150 A0 slots0 rpm1
HELD      | extend        | lease_expired → HELD S0 H150 A0 slots0 rpm1
HELD      | commit 60     | RECORDED late → COMMITTED S60 H0 A0 slots0 rpm1
HELD      | commit 200    | RECORDED late overrun → COMMITTED S200 H0 A0 slots0 rpm1
HELD      | release       | RELEASED late → RELEASED S0 H0 A0 slots0 rpm1
HELD      | revoke        | revoked 0 → HELD S0 H150 A0 slots0 rpm1
HELD      | grace         | lease_assumed → ASSUMED S0 H0 A150 slots0 rpm0
REVOKED   | request       | GRANTED repeat expired → REVOKED S0 H150 A0 slots1 rpm1
REVOKED   | activate      | lease_revoked → REVOKED S0 H150 A0 slots1 rpm1
REVOKED   | extend        | lease_revoked → REVOKED S0 H150 A0 slots1 rpm1
REVOKED   | commit 60     | RECORDED late → COMMITTED S60 H0 A0 slots0 rpm1
REVOKED   | release       | RELEASED late → RELEASED S0 H0 A0 slots0 rpm1
REVOKED   | revoke        | revoked 0 → REVOKED S0 H150 A0 slots1 rpm1
REVOKED   | TTL           | lease_expired → RETURNED S0 H0 A0 slots0 rpm1
REVOKED   | TTL assume    | lease_expired → HELD S0 H150 A0 slots0 rpm1
COMMITTED | request       | GRANTED repeat resolved → COMMITTED S60 H0 A0 slots0 rpm1
COMMITTED | activate      | lease_resolved → COMMITTED S60 H0 A0 slots0 rpm1
COMMITTED | extend        | lease_resolved → COMMITTED S60 H0 A0 slots0 rpm1
COMMITTED | commit 60     | ALREADY_RECORDED 60 → COMMITTED S60 H0 A0 slots0 rpm1
COMMITTED | commit 200    | CONFLICT 60 → COMMITTED S60 H0 A0 slots0 rpm1
COMMITTED | release       | ALREADY_COMMITTED 60 → COMMITTED S60 H0 A0 slots0 rpm1
COMMITTED | revoke        | revoked 0 → COMMITTED S60 H0 A0 slots0 rpm1
COMMITTED | horizon       |  → gone S60 H0 A0 slots0 rpm0
RELEASED  | request       | GRANTED repeat resolved → RELEASED S0 H0 A0 slots0 rpm1
RELEASED  | activate      | lease_resolved → RELEASED S0 H0 A0 slots0 rpm1
RELEASED  | extend        | lease_resolved → RELEASED S0 H0 A0 slots0 rpm1
RELEASED  | commit 0      | RECORDED after_release → RELEASED S0 H0 A0 slots0 rpm1
RELEASED  | commit 60     | RECORDED after_release → COMMITTED S60 H0 A0 slots0 rpm1
RELEASED  | release       | ALREADY_RELEASED → RELEASED S0 H0 A0 slots0 rpm1
RELEASED  | revoke        | revoked 0 → RELEASED S0 H0 A0 slots0 rpm1
RELEASED  | commit_by     |  → gone S0 H0 A0 slots0 rpm0
ASSUMED   | request       | GRANTED repeat expired → ASSUMED S0 H0 A150 slots0 rpm0
ASSUMED   | activate      | lease_expired → ASSUMED S0 H0 A150 slots0 rpm0
ASSUMED   | extend        | lease_expired → ASSUMED S0 H0 A150 slots0 rpm0
ASSUMED   | commit 60     | RECORDED late → COMMITTED S60 H0 A0 slots0 rpm0
ASSUMED   | commit 200    | RECORDED late overrun → COMMITTED S200 H0 A0 slots0 rpm0
ASSUMED   | release       | lease_assumed → ASSUMED S0 H0 A150 slots0 rpm0
ASSUMED   | revoke        | revoked 0 → ASSUMED S0 H0 A150 slots0 rpm0
ASSUMED   | commit_by     |  → gone S0 H0 A150 slots0 rpm0
RETURNED  | request       | GRANTED repeat expired → RETURNED S0 H0 A0 slots0 rpm1
RETURNED  | activate      | lease_expired → RETURNED S0 H0 A0 slots0 rpm1
RETURNED  | extend        | lease_expired → RETURNED S0 H0 A0 slots0 rpm1
RETURNED  | commit 60     | RECORDED late → COMMITTED S60 H0 A0 slots0 rpm1
RETURNED  | commit 5000   | RECORDED late overrun → COMMITTED S5000 H0 A0 slots0 rpm1
RETURNED  | release       | RELEASED → RETURNED S0 H0 A0 slots0 rpm1
RETURNED  | revoke        | revoked 0 → RETURNED S0 H0 A0 slots0 rpm1
RETURNED  | commit_by     |  → gone S0 H0 A0 slots0 rpm0
`

func TestLeaseTable(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	for line := range strings.Lines(strings.TrimSpace(leaseTable)) {
		cells := strings.SplitN(strings.TrimSpace(line), "|", 3)
		row, column, want := strings.TrimSpace(cells[0]), strings.TrimSpace(cells[1]), strings.TrimSpace(cells[2])
		if row == "row" {
			continue
		}
		seen[row]++
		for _, expiry := range []ExpiryRule{ExpiryReturn, ExpiryAssume} {
			if assume := expiry == ExpiryAssume; assume != (row == "HELD" || row == "ASSUMED" || column == "TTL assume") {
				continue
			}
			c := newTableCase(t, row, expiry)
			if got := c.column(t, column); got != want {
				t.Errorf("%s, %s:\n got %s\nwant %s", row, column, got, want)
			}
		}
	}
	for _, row := range []string{"none", "RESERVED", "ACTIVE", "HELD", "REVOKED", "COMMITTED", "RELEASED", "ASSUMED", "RETURNED"} {
		if seen[row] < 7 {
			t.Errorf("row %s has %d columns", row, seen[row])
		}
	}
}

// tableCase is one lease in the phase of a row.
type tableCase struct {
	k   *desk
	now int64
	r   *Request
}

func newTableCase(t *testing.T, row string, expiry ExpiryRule) *tableCase {
	t.Helper()
	p := onePolicy()
	p.Global.Tokens = 1000
	p.Providers[0].Ceilings = Ceilings{RPM: 10, Burst: Whole, MaxConcurrent: 5}
	l := &p.Lease
	l.StartBy, l.TTL, l.Grace, l.CommitBy, l.Forget, l.OnExpiry = 2*Second, 30*Second, Minute, Hour, 10*Minute, expiry
	c := &tableCase{k: openDesk(t, p), now: Hour, r: requestOf(1)}
	c.r.Deferred = row == "RESERVED"
	c.r.Fingerprint = c.r.Sum()
	if row == "none" {
		return c
	}
	c.do(t, c.r)
	c.now += Second
	switch row {
	case "HELD":
		c.now += 30 * Second
	case "ASSUMED":
		c.now += 30*Second + Minute
	case "RETURNED":
		c.now += 30 * Second
	case "REVOKED":
		c.do(t, &Revoke{Lease: c.r.Lease})
	case "COMMITTED":
		c.do(t, &Commit{Lease: c.r.Lease, HasActual: true, Actual: 60})
	case "RELEASED":
		c.do(t, &Release{Lease: c.r.Lease, Outcome: OutcomeCancelled})
	}
	c.advance(t)
	if got, ok := c.k.w.Lease(c.r.Lease); !ok || got.Phase.String() != row {
		t.Fatalf("set up %s: %s", row, got.Phase)
	}
	c.k.w.ClearEvents()
	return c
}

func (c *tableCase) do(t *testing.T, cmd Command) reply {
	t.Helper()
	return c.k.do(t, at(c.now), cmd)
}

// advance lets time do what is due, over as many batches as it takes.
func (c *tableCase) advance(t *testing.T) {
	t.Helper()
	c.k.run(t, &batch{t: at(c.now)})
}

func (c *tableCase) column(t *testing.T, column string) string {
	t.Helper()
	word, arg, _ := strings.Cut(column, " ")
	token := &Claims{Lease: c.r.Lease, Agent: "a", Class: DefaultClass, Provider: "openai", Input: 100, Output: 50, Nanos: 700_000, Epoch: 9, CommitBy: c.now + Hour}
	commit := &Commit{Lease: c.r.Lease}
	release := &Release{Lease: c.r.Lease}
	var r reply
	switch word {
	case "request":
		q := *c.r
		if arg == "other" {
			q.Output = 51
			q.Fingerprint = q.Sum()
		}
		r = c.do(t, &q)
	case "activate":
		r = c.do(t, &Signal{Lease: c.r.Lease, Activate: true})
	case "extend":
		r = c.do(t, &Extend{Lease: c.r.Lease, Arrival: c.now})
	case "commit":
		switch arg {
		case "none":
		case "unsent":
			commit.Outcome = OutcomeNotSent
		case "token", "seen", "late":
			commit.Token, commit.HasActual, commit.Actual = token, true, 60
			if arg == "seen" {
				token.Epoch = 1
			}
			if arg == "late" {
				token.CommitBy = c.now
			}
		default:
			commit.HasActual = true
			fmt.Sscan(arg, &commit.Actual)
		}
		r = c.do(t, commit)
	case "release":
		release.Outcome = OutcomeCancelled
		if arg == "unsent" {
			release.Outcome = OutcomeNotSent
		}
		if arg == "token" {
			release.Token = token
		}
		r = c.do(t, release)
	case "revoke":
		r = c.do(t, &Revoke{Lease: c.r.Lease})
	case "TTL":
		c.now += 30 * Second
		c.advance(t)
	case "grace":
		c.now += Minute
		c.advance(t)
	case "horizon":
		c.now += 10 * Minute
		c.advance(t)
	case "commit_by":
		c.now += Hour + Minute
		c.advance(t)
	default:
		t.Fatalf("column %q", column)
	}
	said := tell(word, r)
	if events := c.k.w.Events(); said == "" && len(events) > 0 {
		said = events[0].Kind.String()
	}
	return strings.TrimSpace(said + " → " + c.shows(t))
}

// tell puts a reply in words.
func tell(word string, r reply) string {
	if r.Err != nil {
		return r.Err.Reason
	}
	a := &r.Answer
	switch word {
	case "request":
		return a.Status.String() + flagWords(a.Flags)
	case "revoke":
		return fmt.Sprintf("revoked %d", a.Revoked)
	case "activate", "extend", "commit", "release":
		said := resultWords[a.Result] + flagWords(a.Flags)
		if a.Result == AlreadyRecorded && a.Tokens > 0 || a.Result == Conflict || a.Result == AlreadyCommitted {
			said += fmt.Sprintf(" %d", a.Tokens)
		}
		return said
	}
	return ""
}

var resultWords = [...]string{"RECORDED", "ALREADY_RECORDED", "CONFLICT", "ACCEPTED_PENDING", "TOO_OLD", "UNKNOWN_LEASE",
	"RELEASED", "ALREADY_RELEASED", "ALREADY_COMMITTED", "EXTENDED", "SIGNALLED"}

func flagWords(f Flags) (list string) {
	for i, w := range [...]string{"late", "after_release", "recreated", "estimated", "overrun", "repeat", "expired", "resolved", "probe", "partial", "started", "fallback"} {
		if f&(1<<i) != 0 {
			list += " " + w
		}
	}
	return list
}

func (c *tableCase) shows(t *testing.T) string {
	t.Helper()
	phase := "gone"
	if l, ok := c.k.w.Lease(c.r.Lease); ok {
		phase = l.Phase.String()
	}
	g := c.k.w.BudgetRows(0)[0]
	_, slots := used(t, c.k.w, "openai", "", DimSlots)
	rpm, _ := used(t, c.k.w, "openai", "", DimRPM)
	s := fmt.Sprintf("%s S%d H%d A%d slots%d rpm%d", phase, g.Spent, g.Held, g.Assumed, slots, rpm)
	if n := c.k.w.Counts().UnattributedTokens; n > 0 {
		s += fmt.Sprintf(" unattributed %d", n)
	}
	return s
}
