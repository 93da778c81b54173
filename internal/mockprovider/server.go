package mockprovider

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/token-budget-arbiter/tba/internal/provider"
)

// OutputHeader is the request header that says how many tokens the model puts out (a trace knows). Without it the
// number follows from the body: the same body always gets the same answer. The cap of the request bounds both.
const OutputHeader = "X-Mock-Output-Tokens"

const maxBody = 8 << 20

// Server is a set of upstreams behind one handler. Its methods may be called from any number of goroutines.
type Server struct {
	options Options
	list    []*upstream
	byName  map[string]*upstream
	http    *http.Server
	addr    net.Addr
}

// New makes the upstreams; scripted times and reports count from this moment. The error names every option that is
// wrong.
func New(o Options) (*Server, error) {
	o, err := o.settle()
	if err != nil {
		return nil, fmt.Errorf("set up mock providers: %w", err)
	}
	s := &Server{options: o, byName: map[string]*upstream{}}
	began := time.Now()
	for i := range o.Upstreams {
		opt := o.Upstreams[i]
		d, _ := provider.Lookup(opt.Dialect)
		u := &upstream{
			Upstream: opt, dialect: d, speaks: speakerOf(d.Name()), began: began, keep: o.KeepCalls,
			gate: newGate(&opt, o.Window), watch: newWatch(&opt, o.Window),
			report: Report{Name: opt.Name, Dialect: d.Name()},
		}
		s.list = append(s.list, u)
		s.byName[opt.Name] = u
	}
	return s, nil
}

// Handler serves every upstream under /NAME.
func (s *Server) Handler() http.Handler { return http.HandlerFunc(s.serve) }

// Start listens on addr (":0" takes a free port) and serves until Close.
func (s *Server) Start(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("listen for mock providers: %w", err)
	}
	s.addr = l.Addr()
	s.http = &http.Server{Handler: s.Handler(), ReadHeaderTimeout: 10 * time.Second}
	go func() {
		// After Close nobody is there to tell; before it, Serve only ends when the listener breaks, and callers see that.
		_ = s.http.Serve(l)
	}()
	return nil
}

// URL is the base of one upstream, to which the dialect's paths are added; "" before Start.
func (s *Server) URL(name string) string {
	if s.addr == nil {
		return ""
	}
	return "http://" + s.addr.String() + "/" + name
}

// Close stops listening and waits for running calls until ctx ends. It does nothing before Start.
func (s *Server) Close(ctx context.Context) error {
	if s.http == nil {
		return nil
	}
	if err := s.http.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("stop mock providers: %w", err), s.http.Close())
	}
	return nil
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	name, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	u := s.byName[name]
	if u == nil {
		http.Error(w, fmt.Sprintf("no upstream %q", name), http.StatusNotFound)
		return
	}
	reply := &reply{w: w, u: u}
	chat, bad := u.read(r, "/"+path)
	if bad != nil {
		u.malformed()
		reply.fault(*bad)
		return
	}
	c := charge{prompt: provider.EstimateText(chat.TextBytes), cap: chat.MaxOutput}
	if c.cap == 0 {
		c.cap = u.DefaultCap
	}
	// A cap may be any number; what the limits count stays in a range that adds up.
	c.cap = min(c.cap, maxCeiling) * min(chat.Choices, 128)
	a := u.arrive(chat.Model, c)
	reply.number = a.number
	switch {
	case a.outage != nil && a.outage.Status == 0:
		panic(http.ErrAbortHandler)
	case a.outage != nil:
		reply.fault(fault{status: a.outage.Status})
		return
	case a.storm != nil:
		reply.throttled(a, refusal{wait: a.storm.RetryAfter}, chat.Model)
		return
	case a.refused.axis != noAxis:
		reply.throttled(a, a.refused, chat.Model)
		return
	}
	output := min(chat.output, c.cap)
	if done := s.work(r.Context(), u, output); done < output {
		u.leave(a, statusClientGone, c.prompt, done)
		return
	}
	u.leave(a, http.StatusOK, c.prompt, output)
	reply.answer(a, chat.Model, c, output)
}

// work takes the time that output needs, and returns how much of it was put out before the caller hung up.
func (s *Server) work(ctx context.Context, u *upstream, output int64) int64 {
	began := time.Now()
	timer := time.NewTimer(u.latency(output, s.options.Speedup))
	defer timer.Stop()
	select {
	case <-timer.C:
		return output
	case <-ctx.Done():
		spent := time.Since(began)*time.Duration(s.options.Speedup) - u.FirstToken
		return min(max(int64(spent.Seconds()*float64(u.Speed)), 0), max(output-1, 0))
	}
}

// request is a chat request with the answer's length.
type request struct {
	provider.Chat
	output int64
}

// read checks a call as the real upstream does, up to the point where limits come in.
func (u *upstream) read(r *http.Request, path string) (request, *fault) {
	if !u.isChat(path) {
		return request{}, &fault{status: http.StatusNotFound, message: "unknown path " + strconv.Quote(path)}
	}
	if r.Method != http.MethodPost {
		return request{}, &fault{status: http.StatusMethodNotAllowed, message: "use POST"}
	}
	if !u.knows(provider.Credential(r.Header, r.URL.RawQuery)) {
		return request{}, &fault{status: http.StatusUnauthorized}
	}
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxBody))
	if err != nil {
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			return request{}, &fault{status: http.StatusRequestEntityTooLarge, message: "request body is too large"}
		}
		return request{}, &fault{status: http.StatusBadRequest, message: "request body could not be read"}
	}
	chat, err := u.dialect.ParseChat(path, body)
	if err != nil {
		return request{}, &fault{status: http.StatusBadRequest, message: "request body is not valid JSON"}
	}
	if chat.Stream {
		return request{}, &fault{status: http.StatusBadRequest, message: "this upstream answers whole bodies only"}
	}
	if chat.Model == "" {
		return request{}, &fault{status: http.StatusBadRequest, message: "you must provide a model parameter"}
	}
	if bad := u.speaks.check(r.Header, body); bad != nil {
		return request{}, bad
	}
	output, ok := int64(0), false
	if n, err := strconv.ParseInt(r.Header.Get(OutputHeader), 10, 64); err == nil && n >= 0 {
		output, ok = n, true
	}
	if !ok {
		h := fnv.New32a()
		_, _ = h.Write(body)
		output = int64(h.Sum32()%256) + 1
	}
	return request{chat, output}, nil
}

// isChat says whether path is the dialect's chat path, for whatever model.
func (u *upstream) isChat(path string) bool {
	if u.dialect.Name() == provider.Gemini {
		model, ok := strings.CutPrefix(path, "/v1beta/models/")
		return ok && len(model) > len(":generateContent") && strings.HasSuffix(model, ":generateContent")
	}
	return path == u.dialect.ChatPath("")
}

// knows says whether key opens this upstream; without keys of its own any key does, but there must be one.
func (u *upstream) knows(key string) bool {
	if key == "" {
		return false
	}
	for _, k := range u.Keys {
		if k == key {
			return true
		}
	}
	return len(u.Keys) == 0
}
