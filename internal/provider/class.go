package provider

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
)

// Class says what an error of a provider means for whoever leases the next call. A status alone never decides it: 429
// can be a rate, a ramp, money that is gone, or a request that can never fit.
type Class uint8

// The classes. NoError is the zero value.
const (
	NoError    Class = iota
	Throttle         // healthy, this rate is unwelcome: wait, retry, shrink the provider's window
	Overload         // the provider lacks capacity: back off or fail over, our limit stays
	Exhausted        // money or quota gone until a known time or until an operator acts
	Impossible       // can never fit: the caller must shrink the request
	Caller           // the request is wrong
	Auth             // our credential is bad
	Provider         // the provider broke, or nobody answered
	Policy           // refused for its content
)

var classNames = [...]string{"none", "throttle", "overload", "exhausted", "impossible", "caller", "auth", "provider", "policy"}

func (c Class) String() string {
	if int(c) < len(classNames) {
		return classNames[c]
	}
	return "unknown"
}

// KeyHold is how long a rung stays shut after its provider refused our credential: then one call finds out whether somebody has
// replaced it.
const KeyHold = 5 * time.Minute

// Outcome is how a call that ended in c is reported when its lease is committed or released. A credential that is refused
// shuts the rung like an account without money; a request that is refused says nothing about the provider.
func (c Class) Outcome() arbiter.Outcome {
	switch c {
	case NoError:
		return arbiter.OutcomeOK
	case Throttle:
		return arbiter.OutcomeThrottled
	case Overload:
		return arbiter.OutcomeOverloaded
	case Exhausted, Auth:
		return arbiter.OutcomeExhausted
	case Provider:
		return arbiter.OutcomeError
	}
	return arbiter.OutcomeCancelled
}

// Until says when a call may be tried again.
type Until uint8

// The forms of Until. UntilNever is the zero value: the same request will fail again.
const (
	UntilNever      Until = iota
	UntilHint             // after the wait the provider gave, else the rule's Default, else back-off
	UntilBackoff          // after a back-off of the caller's own
	UntilShort            // once, after a short pause
	UntilOperator         // when somebody has acted
	UntilMonth            // 00:00 UTC on the first of the next month
	UntilPacificDay       // midnight in Los Angeles
	UntilTextDate         // the date in the message
	UntilUTCDay           // midnight UTC
)

// Rule is one row of the classification. Every condition that is set must hold; the first rule that holds decides.
type Rule struct {
	Name   string   // stable; goes into logs and decision records
	Status []int    // one of these; none: any error status
	Codes  []string // one of these equals the error's code, type, status word, exception or the code in its details
	Types  []string // one of these equals the error's type
	Text   []string // one of these (lower case) is part of the message: the last resort
	When   fact     // all of these were found in the body

	Class     Class
	Dim       arbiter.Dim // DimNone: taken from the quota id or the header that has nothing remaining
	Until     Until
	Default   time.Duration // for UntilHint without a hint; 0: back-off
	Grows     bool          // Default doubles when it happens again
	Repeats   Class         // what a second one in a row means; NoError: the same again
	Ambiguous bool          // the call may have been carried out and billed
}

// Verdict is what an error answer means.
type Verdict struct {
	Class     Class
	Dim       arbiter.Dim
	Rule      string // name of the rule that decided
	Until     Until
	Wait      time.Duration // until the next try makes sense; 0: not known (see Until)
	Hinted    bool          // Wait is the provider's word, not a default
	Grows     bool
	Repeats   Class
	Ambiguous bool
	Code      string // the provider's own code, "" when it gave none
	Message   string // the provider's own sentence, at most 300 bytes; "" when it gave none
}

// longestThrottle is the longest wait that is still a throttle. Who asks for more (86,400 s and 302,539 s were seen) has
// run out of something until then.
const longestThrottle = 15 * time.Minute

// maxErrorBody bounds the body that is decoded; a longer one counts as not JSON.
const maxErrorBody = 64 << 10

// Classify judges an answer by status, headers and body. A body is read as JSON only if it is JSON, whatever the status
// and the content type promise. Status 0 stands for a call that got no answer at all (refused,
// reset, timed out). A status below 400 is NoError. now places waits that end at an instant.
func (d *Dialect) Classify(status int, h http.Header, body []byte, now time.Time) Verdict {
	if status != 0 && status < 400 {
		return Verdict{}
	}
	e := decodeError(body)
	e.readHeader(h)
	for _, table := range [...][]Rule{d.rules, anyRules} {
		for i := range table {
			if r := &table[i]; r.holds(status, &e) {
				return d.verdict(r, &e, reader{h, now})
			}
		}
	}
	// anyRules ends with a rule that holds for everything.
	panic("provider: no rule for status")
}

func (r *Rule) holds(status int, e *errorBody) bool {
	if len(r.Status) > 0 && !slices.Contains(r.Status, status) {
		return false
	}
	if e.facts&r.When != r.When {
		return false
	}
	if len(r.Types) > 0 && !slices.Contains(r.Types, e.kind) {
		return false
	}
	if len(r.Codes) > 0 && !slices.ContainsFunc(r.Codes, e.named) {
		return false
	}
	return len(r.Text) == 0 || slices.ContainsFunc(r.Text, func(t string) bool { return strings.Contains(e.lower, t) })
}

func (d *Dialect) verdict(r *Rule, e *errorBody, h reader) Verdict {
	v := Verdict{
		Class: r.Class, Dim: r.Dim, Rule: r.Name, Until: r.Until, Grows: r.Grows, Repeats: r.Repeats,
		Ambiguous: r.Ambiguous, Code: e.code, Message: excerpt(e.sentence()),
	}
	limits := d.limits(h)
	if v.Dim == arbiter.DimNone && v.Class == Throttle {
		if v.Dim = e.dim; v.Dim == arbiter.DimNone {
			v.Dim = limits.Exhausted()
		}
	}
	switch r.Until {
	case UntilMonth:
		v.Wait = untilMonth(h.wall())
	case UntilPacificDay:
		v.Wait = untilPacificDay(h.wall())
	case UntilUTCDay:
		v.Wait = untilUTCDay(h.wall())
	case UntilTextDate:
		v.Wait, v.Hinted = untilTextDate(e.message, h.wall())
	case UntilHint, UntilBackoff, UntilShort:
		v.Wait, v.Hinted = hint(e, h)
		switch {
		case v.Class != Throttle:
		case v.Hinted && v.Wait > longestThrottle && r.When&factRetryWithinHour == 0:
			v.Class = Exhausted
		case !v.Hinted:
			// A reset is when the bucket is FULL again: the longest wait that can be needed, so it comes last.
			v.Wait, v.Hinted = limits.Wait(v.Dim)
		}
		if !v.Hinted {
			v.Wait = r.Default
		}
	}
	return v
}

// hint is the wait that the provider itself asks for: header, then RetryInfo, then its sentence.
func hint(e *errorBody, h reader) (time.Duration, bool) {
	if w, ok := h.retryAfter(); ok {
		return w, true
	}
	if e.hasRetryInfo {
		return e.retryInfo, true
	}
	return waitInText(e.message)
}
