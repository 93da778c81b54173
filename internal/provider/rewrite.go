package provider

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Edit is what must change in a body. The zero value changes nothing.
type Edit struct {
	Model             string // the new model; "": stays
	MaxOutput         int64  // the new cap in tokens; 0: stays
	IncludeUsage      bool   // ask a stream for its usage; nothing where the endpoint does not take the question
	DropStreamOptions bool   // the upstream refuses stream_options; wins over IncludeUsage
	OlderCap          bool   // the upstream knows chat's cap as max_tokens only
}

// plan is where a body has what may have to change. Offsets are into body.
type plan struct {
	body    []byte
	marks   []mark
	room    [8]mark
	end     int  // the closing brace
	members int  // fields at the top
	agent   bool // the model is an agent's
	form    bool // body is a multipart form
}

// mark is one field.
type mark struct {
	role     role
	parent   int // index of the mark of the object it stands in; -1: at the top
	key      int // offset of the key's quote
	from, to int // the value
	older    bool
	null     bool
	object   bool // the value is an object
	inner    bool // stands inside a message or a list
}

// splice puts text in place of body[from:to].
type splice struct {
	from, to int
	text     string
}

// Rewrite returns body with edit applied and every other byte as it was; body itself when nothing changes. c is what
// Parse or ParseForm returned for this body. A field that stands more than once is changed each time, so that it does
// not matter which one a server reads. Bodies that are not read come back as they are. It returns an error for a Call
// of another body and for a model that no form can carry.
//
//   - Model: everywhere the body names it, keeping Gemini's "models/"; added where it is missing, except for agents and
//     conversations, which have theirs at the provider.
//   - MaxOutput: in the spelling that the body has, else in the endpoint's newest; nothing for endpoints without a cap.
//   - IncludeUsage: stream_options keeps its other keys. Never at Mistral, which refuses unknown fields.
func (e *Endpoint) Rewrite(body []byte, c *Call, edit Edit) ([]byte, error) {
	if edit == (Edit{}) || e.form == formAny {
		return body, nil
	}
	p := c.plan
	if p == nil || len(p.body) != len(body) || len(body) > 0 && &p.body[0] != &body[0] {
		return nil, fmt.Errorf("rewrite %s %s request: the call was not parsed from this body", e.dialect.name, e.name)
	}
	r := rewriting{plan: p, e: e, c: c, left: p.members}
	if p.form {
		if strings.ContainsAny(edit.Model, "\r\n\x00") {
			return nil, fmt.Errorf("rewrite %s %s request: model %q has a line break", e.dialect.name, e.name, edit.Model)
		}
		r.model(edit.Model)
		return r.apply(), nil
	}
	older := edit.OlderCap && e.takesBothCaps() && r.has(roleCap, (*mark).newer)
	r.drop(func(m *mark) bool {
		return m.role == roleUsageOption && edit.DropStreamOptions || m.role == roleCap && !m.older && older
	})
	r.model(edit.Model)
	limit := edit.MaxOutput
	if older && limit <= 0 {
		limit = c.MaxOutput
	}
	if limit > 0 && len(e.caps) > 0 {
		r.cap(limit, edit.OlderCap)
	}
	if edit.IncludeUsage && !edit.DropStreamOptions && e.usageOpt {
		r.includeUsage()
	}
	return r.apply(), nil
}

// takesBothCaps says that the cap has a newer and an older name.
func (e *Endpoint) takesBothCaps() bool { return len(e.caps) > 1 }

func (m *mark) newer() bool { return !m.older }

type rewriting struct {
	*plan
	e       *Endpoint
	c       *Call
	splices []splice
	left    int // fields at the top that stay
	added   bool
}

func (r *rewriting) put(from, to int, text string) {
	if string(r.body[from:to]) != text {
		r.splices = append(r.splices, splice{from, to, text})
	}
}

// add appends a field at the top. Appended fields also win over a twin in servers that fold case.
func (r *rewriting) add(field string) {
	if r.left > 0 || r.added {
		field = "," + field
	}
	r.added = true
	r.splices = append(r.splices, splice{r.end, r.end, field})
}

func quoted(s string) string {
	b, _ := json.Marshal(s) // a string always encodes
	return string(b)
}

func (r *rewriting) has(want role, which func(*mark) bool) bool {
	for i := range r.marks {
		if m := &r.marks[i]; m.role == want && which(m) {
			return true
		}
	}
	return false
}

func (r *rewriting) model(name string) {
	if name == "" || r.e.fixed || r.agent {
		return
	}
	found := false
	for i := range r.marks {
		m := &r.marks[i]
		if m.role != roleModel {
			continue
		}
		found = found || !m.inner
		switch {
		case r.form:
			r.put(m.from, m.to, name)
		case r.e.dialect.name == Gemini && bytes.HasPrefix(r.body[m.from:m.to], []byte(`"models/`)):
			r.put(m.from, m.to, quoted("models/"+strings.TrimPrefix(name, "models/")))
		default:
			r.put(m.from, m.to, quoted(name))
		}
	}
	// At Gemini the path has it, except for interactions.
	if !found && !r.form && (r.e.dialect.name != Gemini || r.e.answer == answerInteractions) {
		r.add(`"model":` + quoted(name))
	}
}

// cap sets the cap where the body has it, else adds it. A cap that is null counts only where no other is.
func (r *rewriting) cap(limit int64, older bool) {
	want := strconv.FormatInt(limit, 10)
	dropped := func(m *mark) bool { return older && r.e.takesBothCaps() && !m.older }
	filled := r.has(roleCap, func(m *mark) bool { return !m.null && !dropped(m) })
	var first *mark
	for i := range r.marks {
		m := &r.marks[i]
		if m.role != roleCap || dropped(m) || filled && m.null || first != nil && !filled && m.older != first.older {
			continue
		}
		first = m
		r.put(m.from, m.to, want)
	}
	if first != nil {
		return
	}
	field := r.e.caps[0]
	if older {
		field = r.e.caps[len(r.e.caps)-1]
	}
	if field.parent == "" {
		r.add(quoted(field.name) + ":" + want)
		return
	}
	found := false
	for i := range r.marks {
		if m := &r.marks[i]; m.role == roleConfig && m.parent < 0 {
			r.into(i, quoted(field.name)+":"+want)
			found = true
		}
	}
	if !found {
		r.add(quoted(field.parent) + ":{" + quoted(field.name) + ":" + want + "}")
	}
}

// into puts a field into an object that does not have it; a value that is no object makes way for one.
func (r *rewriting) into(i int, field string) {
	m := &r.marks[i]
	if !m.object {
		r.put(m.from, m.to, "{"+field+"}")
		return
	}
	at := m.to - 1
	if inside := bytes.TrimSpace(r.body[m.from+1 : at]); len(inside) > 0 {
		field = "," + field
	}
	r.splices = append(r.splices, splice{at, at, field})
}

func (r *rewriting) includeUsage() {
	found := false
	for i := range r.marks {
		if r.marks[i].role != roleUsageOption {
			continue
		}
		found = true
		has := false
		for k := range r.marks {
			if m := &r.marks[k]; m.role == roleInclude && m.parent == i {
				has = true
				r.put(m.from, m.to, "true")
			}
		}
		if !has {
			r.into(i, `"include_usage":true`)
		}
	}
	if !found {
		r.add(`"stream_options":{"include_usage":true}`)
	}
}

// drop takes fields at the top away, each with one comma.
func (r *rewriting) drop(which func(*mark) bool) {
	gone := -1 // up to here everything was dropped
	for i := range r.marks {
		m := &r.marks[i]
		if m.parent >= 0 || !which(m) {
			continue
		}
		r.left--
		from, to := m.key, m.to
		before := len(bytes.TrimRight(r.body[:from], " \t\r\n"))
		if r.body[before-1] == ',' && before != gone {
			r.splices = append(r.splices, splice{before - 1, to, ""})
			continue
		}
		// The first field: its comma comes after it.
		rest := bytes.TrimLeft(r.body[to:], " \t\r\n")
		if len(rest) > 0 && rest[0] == ',' {
			to = len(r.body) - len(rest) + 1
			gone = to
		}
		r.splices = append(r.splices, splice{from, to, ""})
	}
}

func (r *rewriting) apply() []byte {
	if len(r.splices) == 0 {
		return r.body
	}
	slices.SortStableFunc(r.splices, func(a, b splice) int { return cmp.Compare(a.from, b.from) })
	size := len(r.body)
	for _, s := range r.splices {
		size += len(s.text) - (s.to - s.from)
	}
	out := make([]byte, 0, size)
	at := 0
	for _, s := range r.splices {
		out = append(append(out, r.body[at:s.from]...), s.text...)
		at = s.to
	}
	return append(out, r.body[at:]...)
}
