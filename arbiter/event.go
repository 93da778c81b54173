package arbiter

// EventKind is the kind of an Event. String gives the wire word.
type EventKind uint8

// Kinds of event.
const (
	EventLeaseExpired EventKind = iota + 1
	EventLeaseAssumed
	EventLeaseRevoked
	EventThrottled
	EventBreaker
	EventPeriodClosed
	EventPeriodFinal
	EventPolicy
	EventUnattributed
	EventOverrun
	eventKinds
)

var eventWords = [eventKinds]string{"", "lease_expired", "lease_assumed", "lease_revoked", "throttled", "breaker", "period_closed", "period_final", "policy", "unattributed", "overrun"}

func (k EventKind) String() string { return eventWords[min(k, eventKinds-1)] }

// EventKindOf is the kind with this word; ok is false when there is none.
func EventKindOf(word string) (kind EventKind, ok bool) {
	for k, w := range eventWords {
		if w == word && k > 0 {
			return EventKind(k), true
		}
	}
	return 0, false
}

// Event is something worth telling that follows from facts and time. Which fields are set depends on Kind.
type Event struct {
	Kind EventKind
	// At is logical, Wall is Unix time, ns.
	At, Wall                     int64
	Lease                        LeaseID
	Provider, Model, Agent, Task string
	Class                        string
	Dim                          Dim
	State                        BreakerState
	// Until is the end of a hold or of an open breaker, logical ns.
	Until int64
	// Exhausted says of a throttle that the account at the provider is used up, not its rate. Either is the provider's own limit: what we
	// defer ourselves is no event.
	Exhausted bool
	Tokens    Tokens
	Nanos     Nanos
	// Period is the period's number, Version the policy's.
	Period  uint32
	Version uint64
}

type eventLog struct {
	on   bool
	list []Event
}

// SetEvents starts or stops the recording of events. They are not part of the canonical state: one replica may record, another not.
func (s *State) SetEvents(on bool) { s.events.on = on }

// Events are those recorded since ClearEvents, oldest first. The slice is reused after ClearEvents.
func (s *State) Events() []Event { return s.events.list }

// ClearEvents forgets the recorded events.
func (s *State) ClearEvents() {
	clear(s.events.list)
	s.events.list = s.events.list[:0]
}

func (s *State) event(e Event) {
	if !s.events.on {
		return
	}
	if e.At == 0 {
		e.At = s.now
	}
	e.Wall = s.wall - (s.now - e.At)
	s.events.list = append(s.events.list, e)
}

func (s *State) leaseEvent(kind EventKind, l *lease, at int64) {
	if !s.events.on {
		return
	}
	e := Event{Kind: kind, At: at, Lease: l.id, Class: s.nodes.at(l.class).name, Tokens: Tokens(l.tokens()), Nanos: Nanos(l.nanos), Period: l.period}
	m := s.nodes.at(l.model)
	e.Model, e.Provider = m.name, s.nodes.at(m.parent).name
	e.Agent = s.nodes.at(l.agent).name
	if l.task != 0 {
		e.Task = s.nodes.at(l.task).name
	}
	s.event(e)
}

// throttleEvent tells that a provider asked to wait, and whose call it told so: once, however many rungs it holds.
func (s *State) throttleEvent(f *Fact, until int64) {
	if !s.events.on {
		return
	}
	e := Event{Lease: f.Lease, Dim: f.Health.Dim, Until: until, Exhausted: f.Health.Exhausted}
	if l := s.find(f.Lease); l != nil {
		if l.rung != f.Rung {
			return
		}
		e.Class, e.Agent = s.nodes.at(l.class).name, s.nodes.at(l.agent).name
		if l.task != 0 {
			e.Task = s.nodes.at(l.task).name
		}
	}
	s.rungEvent(EventThrottled, f.Rung, e)
}

func (s *State) rungEvent(kind EventKind, number uint32, e Event) {
	r := s.rungs.at(number)
	e.Kind, e.Provider, e.Model = kind, s.nodes.at(r.provider).name, s.nodes.at(r.model).name
	s.event(e)
}
