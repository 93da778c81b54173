package gateway

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/token-budget-arbiter/tba/internal/provider"
)

// told is one thing a caller says about itself, and the header that said it.
type told struct{ value, from string }

// sayings are what a caller says about itself, before anything of it is checked.
type sayings struct {
	agent, class, task, workflow, parent, priority, pool told
}

// field is the place for a word: the name of our header without its prefix, which is also the baggage key without its own.
func (s *sayings) field(word string) *told {
	switch word {
	case "agent":
		return &s.agent
	case "class":
		return &s.class
	case "task":
		return &s.task
	case "workflow":
		return &s.workflow
	case "parent":
		return &s.parent
	case "priority":
		return &s.priority
	case "pool":
		return &s.pool
	}
	return nil
}

// say fills a place that is still empty.
func (s *sayings) say(word, value, from string) {
	if to := s.field(word); to != nil && to.value == "" {
		*to = told{value, from}
	}
}

// read gathers what the caller says. Our own headers come first, then baggage, which an agent's tracing carries along by itself, then
// what other products' clients send.
func (i *identifier) read(h http.Header, call *provider.Call) (s sayings) {
	s.agent, s.class, s.task = heard(h, headerAgent), heard(h, headerClass), heard(h, headerTask)
	s.workflow, s.parent = heard(h, headerWorkflow), heard(h, headerParent)
	s.priority, s.pool = heard(h, headerPriority), heard(h, headerPool)
	readBaggage(&s, h["Baggage"])
	if i.compat != 0 {
		i.compat.read(&s, h, call)
	}
	return s
}

// heard is what a header of ours says.
func heard(h http.Header, name string) (t told) {
	if v := valueOf(h, name); v != "" {
		t = told{v, name}
	}
	return t
}

// valueOf is the first value of a header whose name is canonical, without blanks; "" when there is none.
func valueOf(h http.Header, name string) string {
	if v := h[name]; len(v) > 0 {
		return strings.TrimSpace(v[0])
	}
	return ""
}

// maxBaggage bounds what is looked through: the least that the W3C recommendation lets everybody carry is 8192 bytes.
const maxBaggage = 16 << 10

// readBaggage reads the members tba.agent, tba.task and so on of W3C baggage. Members of others are theirs, however they are written.
func readBaggage(s *sayings, lines []string) {
	left := maxBaggage
	for _, line := range lines {
		if left -= len(line); left < 0 {
			return
		}
		for member := range strings.SplitSeq(line, ",") {
			member, _, _ = strings.Cut(member, ";") // properties
			key, value, ok := strings.Cut(member, "=")
			word, ours := strings.CutPrefix(strings.TrimSpace(key), "tba.")
			if !ok || !ours {
				continue
			}
			value = strings.TrimSpace(value)
			if plain, err := url.PathUnescape(value); err == nil {
				value = plain
			}
			if value != "" {
				s.say(word, value, "baggage "+"tba."+word)
			}
		}
	}
}

// traceOf is the trace id of a W3C traceparent header, "" without a valid one.
func traceOf(h http.Header) string {
	parts := strings.SplitN(h.Get("Traceparent"), "-", 5)
	if len(parts) < 4 || len(parts[0]) != 2 || parts[0] == "ff" || parts[0] == "00" && len(parts) != 4 || len(parts[2]) != 16 || len(parts[3]) != 2 {
		return ""
	}
	if id := parts[1]; len(id) == 32 && strings.Trim(id, "0123456789abcdef") == "" && strings.Trim(id, "0") != "" {
		return id
	}
	return ""
}
