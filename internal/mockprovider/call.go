package mockprovider

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/token-budget-arbiter/tba/internal/provider"
)

const maxBody = 64 << 20

// api is what a dialect's upstream can be asked for.
type api struct {
	speaks *speaker
	paths  map[string]*endpoint
	// route finds what paths cannot name, and the model in the path. nil: nothing.
	route func(path string) (e *endpoint, model string)
}

var apis = map[string]*api{
	provider.OpenAI: &openaiAPI, provider.Anthropic: &anthropicAPI, provider.Gemini: &geminiAPI, provider.Mistral: &mistralAPI,
	provider.HTTP: &toolAPI,
}

func (a *api) find(path string) (e *endpoint, model string) {
	if e = a.paths[path]; e == nil && a.route != nil {
		e, model = a.route(path)
	}
	return e, model
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	name, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	u := s.byName[name]
	if u == nil {
		http.Error(w, fmt.Sprintf("no upstream %q", name), http.StatusNotFound)
		return
	}
	if u.instant != nil && u.instant.serve(w, r, "/"+path) {
		return
	}
	c := &calling{s: s, u: u, w: w, r: r, reply: &reply{w: w, u: u, speaks: u.api.speaks}}
	if bad := c.serve("/" + path); bad != nil {
		u.malformed()
		if c.begun {
			panic(http.ErrAbortHandler)
		}
		c.reply.fault(*bad)
	}
}

// calling is one request on its way through an upstream.
type calling struct {
	s        *Server
	u        *upstream
	w        http.ResponseWriter
	r        *http.Request
	reply    *reply
	endpoint *endpoint
	fault    *Fault
	body     []byte
	begun    bool // the head of the answer is out
}

// serve answers, or says what is wrong with the request.
func (c *calling) serve(path string) *fault {
	e, model := c.u.api.find(path)
	if e == nil {
		return &fault{status: http.StatusNotFound, message: "unknown path " + strconv.Quote(path)}
	}
	c.endpoint, c.reply.speaks = e, e.speaks
	method := http.MethodPost
	if e.get {
		method = http.MethodGet
	}
	if c.r.Method != method && c.u.Dialect != provider.HTTP {
		return &fault{status: http.StatusMethodNotAllowed, message: "use " + method}
	}
	if !c.u.knows(provider.Credential(c.r.Header, c.r.URL.RawQuery)) {
		return &fault{status: http.StatusUnauthorized}
	}
	var err error
	if c.fault, err = c.s.fault(c.u, c.r.Header); err != nil {
		return &fault{status: http.StatusBadRequest, message: err.Error()}
	}
	if c.fault.is(FaultEarlyError) {
		// Without it net/http would read the rest of the body before it lets the answer out.
		_ = http.NewResponseController(c.w).EnableFullDuplex()
		a := c.u.arrive(Call{Endpoint: e.name, Model: model, Trace: trace(c.r.Header)}, charge{}, c.fault)
		c.reply.number = a.number
		c.fail(a, model)
		_ = http.NewResponseController(c.w).Flush()
		return nil
	}
	if c.fault.is(FaultEarlyHead) {
		c.headFirst()
	}
	if bad := c.read(); bad != nil {
		return bad
	}
	q, bad := c.query(model)
	if bad != nil {
		return bad
	}
	c.answer(q)
	return nil
}

// headFirst begins a stream while the caller is still sending. The status is out by then, so that whatever else is wrong
// with the request can only break it.
func (c *calling) headFirst() {
	c.begun = true
	_ = http.NewResponseController(c.w).EnableFullDuplex()
	c.w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	c.w.WriteHeader(http.StatusOK)
	_, _ = io.WriteString(c.w, ": early\n\n")
	_ = http.NewResponseController(c.w).Flush()
}

func (c *calling) read() *fault {
	var err error
	if c.body, err = io.ReadAll(http.MaxBytesReader(nil, c.r.Body, maxBody)); err != nil {
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			return &fault{status: http.StatusRequestEntityTooLarge, message: "request body is too large"}
		}
		return &fault{status: http.StatusBadRequest, message: "request body could not be read"}
	}
	return nil
}

// query reads what is asked, as the real upstream checks it.
func (c *calling) query(model string) (*query, *fault) {
	q := &query{model: model, choices: 1}
	if c.u.Dialect == provider.HTTP || c.endpoint.get {
		q.terms = c.r.URL.RawQuery
		q.outputless = true
		return q, nil
	}
	doc := gjson.ParseBytes(c.body)
	if !gjson.ValidBytes(c.body) || !doc.IsObject() {
		return nil, &fault{status: http.StatusBadRequest, message: "request body is not valid JSON"}
	}
	if m := doc.Get("model"); q.model == "" && m.Type == gjson.String {
		q.model = m.Str
	}
	if q.model == "" {
		return nil, &fault{status: http.StatusBadRequest, message: "you must provide a model parameter"}
	}
	if check := c.endpoint.speaks.check; check != nil {
		if bad := check(c.r.Header, c.body); bad != nil {
			return nil, bad
		}
	}
	q.stream = doc.Get("stream").Bool()
	q.prompt = promptTokens(doc)
	q.array = c.r.URL.Query().Get("alt") != "sse"
	if bad := c.endpoint.read(doc, q); bad != nil {
		return nil, bad
	}
	if q.stream && c.endpoint.stream == nil {
		return nil, &fault{status: http.StatusBadRequest, message: "this endpoint answers whole bodies only"}
	}
	q.array = q.array && q.stream && c.endpoint.newline != ""
	q.prompt += c.s.conversation(q.previous)
	q.plan(c.r.Header, c.body)
	return q, nil
}

func (c *calling) answer(q *query) {
	ch := charge{prompt: q.prompt, cap: q.cap}
	switch {
	case q.outputless:
		ch.cap = 0
	case ch.cap == 0:
		ch.cap = c.u.DefaultCap
	}
	// A cap may be any number; what the limits count stays in a range that adds up.
	ch.cap = min(ch.cap, maxCeiling) * min(max(q.choices, 1), 128)
	t := &turn{
		s: c.s, u: c.u, w: c.w, ctx: c.r.Context(), endpoint: c.endpoint, charge: ch, q: q, fault: c.fault, reply: c.reply, begun: c.begun,
		bill: q.bill(ch.cap), began: time.Now(), created: time.Now().Unix(),
	}
	if c.endpoint.free {
		c.free(t)
		return
	}
	t.arrival = c.u.arrive(Call{Endpoint: c.endpoint.name, Model: q.model, Stream: q.stream, Trace: trace(c.r.Header)}, ch, c.fault)
	c.reply.number = t.arrival.number
	t.id = c.reply.id("")
	switch a := t.arrival; {
	case a.outage != nil && a.outage.Status == 0:
		panic(http.ErrAbortHandler)
	case a.outage != nil:
		c.reply.fault(fault{status: a.outage.Status})
	case a.storm != nil:
		c.reply.throttled(a, refusal{wait: a.storm.RetryAfter}, q.model)
	case a.faulted && c.fault.is(FaultErrorFirst) && q.stream:
		c.u.fails(a, http.StatusOK)
		t.head("text/event-stream; charset=utf-8")
		c.w.WriteHeader(http.StatusOK)
		c.endpoint.speaks.streamError(t)
	case a.faulted:
		c.fail(a, q.model)
	case a.refused.axis != noAxis:
		c.reply.throttled(a, a.refused, q.model)
	case q.stream:
		t.streamed()
	default:
		t.whole()
	}
}

// free answers what costs nothing. Only an outage and a fault with a status of its own stand against it.
func (c *calling) free(t *turn) {
	c.u.free()
	c.reply.number = time.Since(c.u.began).Milliseconds()
	t.id = c.reply.id("")
	outage, _ := c.u.scripted(time.Since(c.u.began))
	switch {
	case outage != nil && outage.Status == 0:
		panic(http.ErrAbortHandler)
	case outage != nil:
		c.reply.fault(fault{status: outage.Status})
	case !c.fault.billed():
		c.answerFault(t.q.model)
	default:
		t.left = true
		body := c.endpoint.plain(t)
		if f, bad := body.(fault); bad {
			c.reply.fault(f)
			return
		}
		c.reply.write(http.StatusOK, body)
	}
}

// knows says whether key opens this upstream; without keys of its own any key does, but a model wants one.
func (u *upstream) knows(key string) bool {
	if key == "" {
		return u.Dialect == provider.HTTP && len(u.Keys) == 0
	}
	return len(u.Keys) == 0 || slices.Contains(u.Keys, key)
}

// trace is the trace id of a W3C traceparent header.
func trace(h http.Header) string {
	parts := strings.Split(h.Get("Traceparent"), "-")
	if len(parts) < 4 {
		return ""
	}
	return parts[1]
}
