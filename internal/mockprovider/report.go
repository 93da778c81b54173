package mockprovider

import "time"

// Call is one line of an upstream's log. Times are since the start of the server.
type Call struct {
	Upstream     string
	Endpoint     string // "chat", "responses", "messages", "generate", "embed", "search", ...
	Model        string
	Stream       bool
	Arrival, End time.Duration
	Prompt, Cap  int64 // their sum is what TPM charged
	// Bill is what was really used; zero for a call that was refused or failed.
	Bill
	Status   int  // 499: the caller hung up; 0: the connection was broken before the answer
	Scripted bool // the status was an outage's, a storm's or a fault's
	// Fault is the kind of the fault that met the call, "" of none. Broken says that the answer began and did not come
	// to its proper end because of it.
	Fault  string
	Broken bool
	// Trace is the trace id of the traceparent header, "" without one.
	Trace          string
	BrokenCeilings int64 // windows that were over a declared ceiling when this call arrived
}

// Bill is what one call is billed, in tokens.
type Bill struct {
	Input      int64 // the whole prompt, cached or not
	CacheRead  int64 // part of Input
	CacheWrite int64 // part of Input
	Output     int64 // reasoning included
	Reasoning  int64 // part of Output
}

func (b *Bill) add(o Bill) {
	b.Input += o.Input
	b.CacheRead += o.CacheRead
	b.CacheWrite += o.CacheWrite
	b.Output += o.Output
	b.Reasoning += o.Reasoning
}

// Report is what one upstream saw since the start of the server.
type Report struct {
	Name    string
	Dialect string
	// Calls reached the limits: well formed and with a credential. They are OK, refused, failed, broken or cancelled.
	// Running ones are in Calls alone.
	Calls, OK, Cancelled int64
	// Throttled were refused by the upstream's own limits (429), Stormed by the script (429), Failed by an outage or a
	// fault, before anything was billed; Broken by a fault after that.
	Throttled, Stormed, Failed, Broken int64
	// Malformed never reached the limits: bad key, bad body, unknown path.
	Malformed int64
	// Free cost nothing and were held against no limit: lists of models, counts of tokens, moderations.
	Free int64
	// WindowViolations counts, for each arrival, the declared ceilings that the window ending with it was over.
	WindowViolations int64
	// SlotViolations counts arrivals that found MaxConcurrency calls running; PeakInFlight is the most that ran.
	SlotViolations, PeakInFlight int64
	// Bill is the sum of what was really used.
	Bill
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

// Running is how many calls are being answered.
func (r Report) Running() int64 {
	return r.Calls - r.OK - r.Cancelled - r.Throttled - r.Stormed - r.Failed - r.Broken
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
