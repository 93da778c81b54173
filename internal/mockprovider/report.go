package mockprovider

import (
	"time"
)

// Call is one line of an upstream's log. Times are since the start of the server.
type Call struct {
	Upstream       string
	Model          string
	Arrival, End   time.Duration
	Prompt, Cap    int64 // their sum is what TPM charged
	Input, Output  int64 // what was really used; both 0 for a call that was refused or failed
	Status         int   // 499: the caller hung up; 0: the connection was broken by an outage
	Scripted       bool  // the status was an outage's or a storm's
	BrokenCeilings int64 // windows that were over a declared ceiling when this call arrived
}

// Report is what one upstream saw since the start of the server.
type Report struct {
	Name    string
	Dialect string
	// Calls reached the limits: well formed and with a credential. They are OK, refused, failed or cancelled. Running
	// ones are in Calls alone.
	Calls, OK, Cancelled int64
	// Throttled were refused by the upstream's own limits (429), Stormed by the script (429), Failed by an outage.
	Throttled, Stormed, Failed int64
	// Malformed never reached the limits: bad key, bad body, unknown path.
	Malformed int64
	// WindowViolations counts, for each arrival, the declared ceilings that the window ending with it was over.
	WindowViolations int64
	// SlotViolations counts arrivals that found MaxConcurrency calls running; PeakInFlight is the most that ran.
	SlotViolations, PeakInFlight int64
	// Input and Output were really used.
	Input, Output int64
}

// Used is the sum of tokens really used.
func (r Report) Used() int64 { return r.Input + r.Output }

// Answered429 is how many calls were answered 429, for whatever reason.
func (r Report) Answered429() int64 { return r.Throttled + r.Stormed }

// Report returns one row per upstream in the order of the options, all taken at one instant each. It may be called at
// any time.
func (s *Server) Report() []Report {
	rows := make([]Report, len(s.list))
	for i, u := range s.list {
		u.mu.Lock()
		rows[i] = u.report
		u.mu.Unlock()
	}
	return rows
}

// Calls returns the newest calls of one upstream in order of arrival, at most Options.KeepCalls; running ones have an
// End of 0. It returns nil for an unknown name.
func (s *Server) Calls(name string) []Call {
	u := s.byName[name]
	if u == nil {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]Call(nil), u.calls...)
}
