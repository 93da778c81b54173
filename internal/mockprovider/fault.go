package mockprovider

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// FaultHeader is the request header that asks for one fault: `KIND[=N][;wait=2s][;times=1][;on=NAME][;id=ANY]`. With
// times the first so many calls that carry exactly this value fail, at whichever upstream they arrive, and later ones
// succeed: id keeps two tests apart. With on only the upstream of that name heeds it.
const FaultHeader = "X-Mock-Fault"

// The kinds of faults, and what their number N means.
const (
	// Before any byte of an answer: nothing is billed.
	FaultStatus     = "status"      // status N (500) in the words of the dialect
	FaultThrottle   = "throttle"    // 429: this rate is unwelcome
	FaultRamp       = "ramp"        // 429: the rate grows too fast
	FaultExhausted  = "exhausted"   // the money or the quota is gone, as the dialect says it (429, Mistral 402)
	FaultTooLarge   = "too_large"   // can never fit, as the dialect says it
	FaultOverloaded = "overloaded"  // 529 at Anthropic, else 503
	FaultReset      = "reset"       // the connection is reset
	FaultHTML       = "html"        // status N (503) from an edge proxy that speaks HTML
	FaultEmpty      = "empty"       // status N (200) without a body
	FaultRedirect   = "redirect"    // status N (307) to http://169.254.169.254/
	FaultEarlyError = "early"       // status N (413) before the body of the request is read
	FaultErrorBody  = "error_body"  // status 200 with the body of an error
	FaultErrorFirst = "error_first" // status 200, and the first event of the stream is an error

	// While it is answered: what was generated is billed.
	FaultEarlyHead = "early_head" // a stream begins before the body of the request is read
	FaultErrorMid  = "error_mid"  // after N pieces (half) the stream ends with an error of the dialect
	FaultCut       = "cut"        // after N bytes (100) of the body the connection is broken
	FaultStall     = "stall"      // after N pieces (half) nothing comes any more until the caller goes
	FaultNoUsage   = "no_usage"   // the answer has no usage
	FaultNullUsage = "null_usage" // usage is null in a whole body, and in each piece of a stream before the real one
	FaultComments  = "comments"   // a stream has a comment before each event

	// FaultZeroHits answers a search with nothing: N is 200 (empty list), 204 or 404. HTTP tools only.
	FaultZeroHits = "zero_hits"
)

type faultKind struct {
	name   string
	usual  int64 // the N of 0; -1: half of what there is
	least  int64
	most   int64
	billed bool // the call goes on until it happens
}

var faultKinds = []faultKind{
	{name: FaultStatus, usual: 500, least: 400, most: 599},
	{name: FaultThrottle},
	{name: FaultRamp},
	{name: FaultExhausted},
	{name: FaultTooLarge},
	{name: FaultOverloaded},
	{name: FaultReset},
	{name: FaultHTML, usual: 503, least: 200, most: 599},
	{name: FaultEmpty, usual: 200, least: 200, most: 599},
	{name: FaultRedirect, usual: 307, least: 300, most: 399},
	{name: FaultEarlyError, usual: 413, least: 400, most: 599},
	{name: FaultErrorBody},
	{name: FaultErrorFirst},
	{name: FaultEarlyHead, billed: true},
	{name: FaultErrorMid, usual: -1, most: maxCeiling, billed: true},
	{name: FaultCut, usual: 100, most: maxCeiling, billed: true},
	{name: FaultStall, usual: -1, most: maxCeiling, billed: true},
	{name: FaultNoUsage, billed: true},
	{name: FaultNullUsage, billed: true},
	{name: FaultComments, billed: true},
	{name: FaultZeroHits, usual: 200, least: 200, most: 404, billed: true},
}

// Fault is something that goes wrong with a call on purpose.
type Fault struct {
	Kind string
	// N is what the kind says; 0 takes the kind's usual value.
	N int64
	// Wait is what a refusal tells the caller to wait: 0 tells a second for throttle and ramp and nothing for the
	// others, negative tells nothing.
	Wait time.Duration
	// Times bounds it to the first so many calls; 0 is every call.
	Times int64
	// From and For bound it to a span since the start of the server; For 0 is until the end. Not in headers.
	From, For time.Duration
	// On bounds it to one upstream. In headers only.
	On string
}

func (f *Fault) kind() *faultKind {
	for i := range faultKinds {
		if faultKinds[i].name == f.Kind {
			return &faultKinds[i]
		}
	}
	return nil
}

// is says whether f is of one of the kinds; a nil fault is of none.
func (f *Fault) is(kinds ...string) bool { return f != nil && slices.Contains(kinds, f.Kind) }

// billed says whether the call goes on until the fault happens; a nil fault never happens.
func (f *Fault) billed() bool { return f == nil || f.kind().billed }

// n is N with the usual value for 0; whole is what -1 takes the half of.
func (f *Fault) n(whole int) int {
	if n := f.N; n > 0 {
		return int(n)
	}
	if usual := f.kind().usual; usual >= 0 {
		return int(usual)
	}
	return whole / 2
}

// zeroHits is the status with which a search finds nothing, 0 when it finds something.
func (f *Fault) zeroHits() int {
	if !f.is(FaultZeroHits) {
		return 0
	}
	return f.n(0)
}

func (f *Fault) wait() time.Duration {
	if f.Wait == 0 && f.is(FaultThrottle, FaultRamp) {
		return time.Second
	}
	return max(f.Wait, 0)
}

func (f *Fault) check() error {
	k := f.kind()
	if k == nil {
		names := make([]string, len(faultKinds))
		for i := range faultKinds {
			names[i] = faultKinds[i].name
		}
		return fmt.Errorf("fault %q is not known: use one of %s", f.Kind, strings.Join(names, ", "))
	}
	if f.N != 0 && (f.N < k.least || f.N > k.most) {
		return fmt.Errorf("fault %s has the number %d: use %d to %d, or 0 for its usual one", f.Kind, f.N, k.least, k.most)
	}
	if f.Times < 0 || f.From < 0 || f.For < 0 {
		return fmt.Errorf("fault %s: use 0 or more for times, from and for", f.Kind)
	}
	return nil
}

// ParseFault reads the value of FaultHeader. The error says which part it does not take.
func ParseFault(text string) (Fault, error) {
	var f Fault
	var faults []error
	for i, part := range strings.Split(text, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		var err error
		switch {
		case i == 0:
			f.Kind = name
			if value != "" {
				f.N, err = strconv.ParseInt(value, 10, 64)
			}
		case name == "wait":
			f.Wait, err = time.ParseDuration(value)
		case name == "times":
			f.Times, err = strconv.ParseInt(value, 10, 64)
		case name == "on":
			f.On = value
		case name == "id":
		default:
			err = errors.New("use wait, times, on or id")
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", part, err))
		}
	}
	if err := errors.Join(append(faults, f.check())...); err != nil {
		return Fault{}, fmt.Errorf("read fault %q: %w", text, err)
	}
	return f, nil
}

// scriptedFault is a fault of an upstream with the number of calls that met it.
type scriptedFault struct {
	Fault
	met int64
}

// SetFaults replaces the scripted faults of an upstream; their counts begin anew. The error names an unknown upstream
// or what is wrong with a fault.
func (s *Server) SetFaults(name string, list ...Fault) error {
	u := s.byName[name]
	if u == nil {
		return fmt.Errorf("set faults: no upstream %q", name)
	}
	for i := range list {
		if err := list[i].check(); err != nil {
			return fmt.Errorf("set faults of %q: %w", name, err)
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.setFaults(list)
	return nil
}

func (u *upstream) setFaults(list []Fault) {
	u.faults = make([]scriptedFault, len(list))
	for i, f := range list {
		u.faults[i].Fault = f
	}
}

// fault says what goes wrong with a call that has just been routed: what its header asks for, else the first fault of the
// script that is not used up. It counts it as met.
func (s *Server) fault(u *upstream, h http.Header) (*Fault, error) {
	if text := h.Get(FaultHeader); text != "" {
		f, err := ParseFault(text)
		if err != nil {
			return nil, err
		}
		if f.On != "" && f.On != u.Name {
			return nil, nil
		}
		if f.Times > 0 && s.met(text) > f.Times {
			return nil, nil
		}
		return &f, nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.faults) == 0 {
		return nil, nil
	}
	at := time.Since(u.began)
	for i := range u.faults {
		f := &u.faults[i]
		if at < f.From || f.For > 0 && at >= f.From+f.For || f.Times > 0 && f.met >= f.Times {
			continue
		}
		f.met++
		copied := f.Fault
		return &copied, nil
	}
	return nil, nil
}

// maxMet bounds the header values whose calls are counted; then counting starts anew.
const maxMet = 100_000

// met counts one more call with that value of FaultHeader, this one included.
func (s *Server) met(text string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.asked) >= maxMet {
		clear(s.asked)
	}
	s.asked[text]++
	return s.asked[text]
}
