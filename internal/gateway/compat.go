package gateway

import (
	"fmt"
	"hash/fnv"
	"net/http"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/token-budget-arbiter/tba/internal/identity"
	"github.com/token-budget-arbiter/tba/internal/provider"
)

// compat says which headers and fields of other products are read for identity.
//
//	word                what is read                                                  becomes
//	x-portkey-metadata  JSON: agent or _user / task / workflow, session_id or _session   agent / task / workflow
//	helicone-user-id    Helicone-Property-Agent, else Helicone-User-Id                  agent
//	                    Helicone-Property-Task / Helicone-Property-Workflow, else Helicone-Session-Id   task / workflow
//	x-litellm-tags      tags agent:NAME / task:NAME / workflow:NAME, also with =          agent / task / workflow
//	user                body user, metadata.user_id                                      agent; the session of Claude Code's: workflow
//
// Our own headers and baggage come first, then these in the order of the table. Nothing here is ever refused: what does not make an id is
// made one, and what cannot be read is not there.
type compat uint8

const (
	compatPortkey compat = 1 << iota
	compatHelicone
	compatLiteLLM
	compatUser
)

// compatOf reads the words of identity.compat. The configuration has checked them; others are passed over.
func compatOf(words []string) (c compat) {
	for _, w := range words {
		switch strings.ToLower(w) {
		case "x-portkey-metadata":
			c |= compatPortkey
		case "helicone-user-id":
			c |= compatHelicone
		case "x-litellm-tags":
			c |= compatLiteLLM
		case "user":
			c |= compatUser
		}
	}
	return c
}

// maxCompat bounds a header of others that is looked into.
const maxCompat = 8 << 10

func (c compat) read(s *sayings, h http.Header, call *provider.Call) {
	say := func(word, value, from string) {
		if id := cleanID(value); id != "" {
			s.say(word, id, from)
		}
	}
	if v := h.Get("X-Portkey-Metadata"); c&compatPortkey != 0 && v != "" && len(v) <= maxCompat && gjson.Valid(v) {
		for _, m := range [...][2]string{{"agent", "agent"}, {"agent", "_user"}, {"task", "task"}, {"workflow", "workflow"}, {"workflow", "session_id"}, {"workflow", "_session"}} {
			if value := gjson.Get(v, m[1]); value.Type == gjson.String || value.Type == gjson.Number {
				say(m[0], value.String(), "x-portkey-metadata")
			}
		}
	}
	if c&compatHelicone != 0 {
		for _, m := range [...][2]string{
			{"agent", "Helicone-Property-Agent"}, {"agent", "Helicone-User-Id"}, {"task", "Helicone-Property-Task"},
			{"workflow", "Helicone-Property-Workflow"}, {"workflow", "Helicone-Session-Id"},
		} {
			say(m[0], h.Get(m[1]), m[1])
		}
	}
	if v := h.Get("X-Litellm-Tags"); c&compatLiteLLM != 0 && len(v) <= maxCompat {
		for tag := range strings.SplitSeq(v, ",") {
			if at := strings.IndexAny(tag, ":="); at > 0 {
				switch word := strings.ToLower(strings.TrimSpace(tag[:at])); word {
				case "agent", "task", "workflow":
					say(word, tag[at+1:], "x-litellm-tags")
				}
			}
		}
	}
	if c&compatUser != 0 && call != nil {
		agent, session := splitUser(call.User)
		say("agent", agent, "user")
		say("workflow", session, "user")
	}
}

// splitUser takes a session off the user id that Claude Code sends: "user_H_account_A_session_S", later a JSON object.
func splitUser(user string) (agent, session string) {
	if strings.HasPrefix(user, "{") && len(user) <= maxCompat && gjson.Valid(user) {
		o := gjson.Parse(user)
		for _, name := range [...]string{"account_uuid", "user_id", "device_id"} {
			if agent = o.Get(name).String(); agent != "" {
				break
			}
		}
		return agent, o.Get("session_id").String()
	}
	if at := strings.LastIndex(user, "_session_"); at > 0 {
		return user[:at], user[at+len("_session_"):]
	}
	return user, ""
}

// cleanID makes an id of what others call one: other characters become "-", and what is too long keeps its beginning and a hash of the
// whole, so that two long names stay two. "" when nothing is left.
func cleanID(s string) string {
	s = strings.TrimSpace(s)
	if s == "" || identity.ValidID(s) {
		return s
	}
	long := len(s) > identity.MaxID
	tail := ""
	if long {
		h := fnv.New64a()
		h.Write([]byte(s))
		tail = fmt.Sprintf("-%016x", h.Sum64())
		s = s[:identity.MaxID-len(tail)]
	}
	b := []byte(s)
	left := false
	for i := range b {
		if identity.ValidID(string(b[i : i+1])) {
			left = true
		} else {
			b[i] = '-'
		}
	}
	if !left {
		return ""
	}
	return string(b) + tail
}
