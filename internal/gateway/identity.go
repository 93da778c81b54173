package gateway

import (
	"cmp"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/engine"
	"github.com/token-budget-arbiter/tba/internal/identity"
	"github.com/token-budget-arbiter/tba/internal/provider"
)

// Request headers by which a caller says who it is and what it asks for. They narrow what its credential allows and never widen it.
const (
	headerAgent    = "X-Tba-Agent"
	headerClass    = "X-Tba-Class"
	headerTask     = "X-Tba-Task"
	headerWorkflow = "X-Tba-Workflow"
	headerParent   = "X-Tba-Parent"
	headerPriority = "X-Tba-Priority"
	headerDeadline = "X-Tba-Deadline-Ms"
	headerMaxWait  = "X-Tba-Max-Wait-Ms"
	headerPool     = "X-Tba-Pool"
)

const (
	// namelessAgent is the agent of a caller that names none and has no credential to be named after.
	namelessAgent = "gateway"
	// maxWaitMS and maxDeadlineMS bound the two times, as the arbiter's own API does.
	maxWaitMS     = 3_600_000
	maxDeadlineMS = 31_622_400_000
	// answerTime is what is kept of a caller's patience for the call itself.
	answerTime = 5 * time.Second
)

// identifier finds out who makes a call and what it asks for. Immutable and safe for concurrent use.
type identifier struct {
	// keys are the credentials in force; nil, or a nil answer, is a gateway that needs none.
	keys func() *identity.Keyring
	// policy is a pool's policy in force, nil without one: the priority of a class is bounded by it. The field itself is nil where the
	// arbiter is across the network: it judges the credential and what it allows, so pool, class and priority go there as they were said.
	policy func(pool string) *arbiter.Policy
	// failed counts failed authentications by address; nil limits nobody.
	failed *identity.Addresses
	// compat are the words of identity.compat.
	compat compat
	// maxWait is the longest wait for a lease; a caller may ask for less.
	maxWait time.Duration
}

// identify reads headers and body of a call into a new Ask: what the caller of a credential says about itself. What is asked for (model,
// tokens) is added by whoever knows it. call is nil where there is no body to look into.
func (i *identifier) identify(r *http.Request, caller *identity.Caller, key string, call *provider.Call) (*Ask, *refusal) {
	a := &Ask{Caller: caller, Key: key, Priority: arbiter.ClassPriority}
	said := i.read(r.Header, call)
	for _, field := range [...]struct {
		to *string
		of told
	}{
		{&a.Agent, said.agent}, {&a.Class, said.class}, {&a.Task, said.task}, {&a.Workflow, said.workflow}, {&a.Pool, said.pool},
	} {
		if !identity.ValidID(field.of.value) {
			return nil, badHeader(field.of.from, field.of.value, "send at most 128 of the characters A-Z a-z 0-9 . _ : -")
		}
		*field.to = field.of.value
	}
	if p := said.parent; p.value != "" {
		if _, err := engine.ParseLeaseID(p.value); err != nil {
			return nil, badHeader(p.from, p.value, "send the "+strings.ToLower(headerLease)+" of the lease that this call belongs to")
		}
		a.Parent = p.value
	}
	if a.Agent == "" {
		a.Agent = cmp.Or(cleanID(caller.Name), namelessAgent)
	}
	if f := i.times(r.Header, a); f != nil {
		return nil, f
	}
	if p := said.priority; p.value != "" {
		var ok bool
		if a.Priority, ok = priorities[strings.ToLower(p.value)]; !ok {
			return nil, badHeader(p.from, p.value, "send low, medium, high or critical")
		}
	}
	if i.policy == nil {
		return a, nil
	}
	var err *arbiter.Error
	if a.Pool, err = caller.PoolFor(a.Pool); err != nil {
		return nil, refuseError(err)
	}
	if a.Class, err = caller.ClassFor(a.Class); err != nil {
		return nil, refuseError(err)
	}
	a.Priority = caller.PriorityIn(i.policy(a.Pool), a.Class, a.Priority)
	return a, nil
}

// caller authenticates. It looks at headers and query only, so that a stranger's body need not be read.
func (i *identifier) caller(r *http.Request) (*identity.Caller, string, *refusal) {
	key := provider.Credential(r.Header, r.URL.RawQuery)
	var keys *identity.Keyring
	if i.keys != nil {
		keys = i.keys()
	}
	if keys.Empty() && i.onlyHere(r) && !identity.LoopbackHost(r.Host) {
		// Only this machine is served, but a name that an attacker's page resolves to it would reach us through the browser.
		return nil, "", refuseError(arbiter.Errorf(arbiter.CodePermission, "host",
			"host %q: without auth.keys only localhost is answered: call 127.0.0.1, or set auth.keys", clip(r.Host)))
	}
	c, err := keys.Secret(key)
	if err == nil {
		if err = c.Allow(identity.ActionLease); err != nil {
			return nil, "", refuseError(err)
		}
		return c, key, nil
	}
	if wait, ok := i.failed.TakeHost(r.RemoteAddr); !ok {
		err = arbiter.Errorf(arbiter.CodeResource, "failed_authentications",
			"too many failed authentications from your address: send a key of auth.keys, in %v at the earliest", wait.Round(time.Millisecond))
		err.RetryAfter = int64(wait)
	}
	return nil, "", refuseError(err)
}

// onlyHere reports whether a call may come from this machine alone. That is every call without keys, except in front of a remote arbiter:
// the keys are there, and the calls that came in on a loopback address are meant.
func (i *identifier) onlyHere(r *http.Request) bool {
	at, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return i.policy != nil || ok && identity.IsLoopback(at)
}

// times reads how long the caller waits: what it says, and what its SDK tells.
func (i *identifier) times(h http.Header, a *Ask) *refusal {
	a.MaxWait = i.maxWait
	if v := valueOf(h, headerMaxWait); v != "" {
		ms, ok := wholeMillis(v, 0, maxWaitMS)
		if !ok {
			return badHeader(headerMaxWait, v, "send whole milliseconds, 0 to "+strconv.Itoa(maxWaitMS))
		}
		a.MaxWait = min(a.MaxWait, ms)
	}
	if v := valueOf(h, headerDeadline); v != "" {
		ms, ok := wholeMillis(v, 1, maxDeadlineMS)
		if !ok {
			return badHeader(headerDeadline, v, "send whole milliseconds, 1 to "+strconv.Itoa(maxDeadlineMS))
		}
		a.Deadline = ms
		a.MaxWait = min(a.MaxWait, ms)
	}
	if patience, _ := patienceOf(h); patience > 0 {
		a.MaxWait = min(a.MaxWait, max(patience-answerTime, 0))
	}
	return nil
}

func wholeMillis(v string, least, most int64) (time.Duration, bool) {
	n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
	return time.Duration(n) * time.Millisecond, err == nil && n >= least && n <= most
}

// patienceOf reads the headers of the official SDKs: how long this attempt may take until its client gives it up (0: not told), and
// whether it is the client's own retry, so that retries of ours would multiply.
func patienceOf(h http.Header) (patience time.Duration, retried bool) {
	for _, name := range [...]string{"X-Stainless-Timeout", "X-Stainless-Read-Timeout", "X-Server-Timeout"} {
		text := valueOf(h, name)
		if text == "" {
			continue
		}
		seconds, err := strconv.ParseFloat(text, 64)
		if err != nil || !(seconds > 0) || seconds > maxDeadlineMS/1000 { // a zero or a "None" is no promise
			continue
		}
		if d := time.Duration(seconds * float64(time.Second)); patience == 0 || d < patience {
			patience = d
		}
	}
	if count := valueOf(h, "X-Stainless-Retry-Count"); count != "" {
		n, err := strconv.Atoi(count)
		retried = err == nil && n > 0
	}
	return patience, retried
}

var priorities = map[string]arbiter.Priority{
	"low": arbiter.Low, "medium": arbiter.Medium, "high": arbiter.High, "critical": arbiter.Critical,
}

// badHeader refuses a header of ours that cannot be read. The value is shown, cut short and without control characters.
func badHeader(name, value, cure string) *refusal {
	return refuseError(arbiter.Errorf(arbiter.CodeInvalid, "bad_header", "%s: %q is not understood: %s", strings.ToLower(name), clip(value), cure))
}

// clip shortens what a stranger sent for a message.
func clip(s string) string {
	if len(s) > 64 {
		s = s[:64] + "..."
	}
	return strings.ToValidUTF8(s, "?")
}
