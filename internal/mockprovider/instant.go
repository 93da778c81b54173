package mockprovider

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// instantInput is the input that each answer of an instant upstream bills.
const instantInput = 100

// instant answers with bytes made beforehand.
type instant struct {
	s       *Server
	u       *upstream
	buffers sync.Pool
	made    sync.Map // of *prepared by path, and whether it streams
}

type preparedKey struct {
	path   string
	stream bool
}

// prepared is one answer: a body, or the events of a stream.
type prepared struct {
	header http.Header
	events [][]byte
	output int64
}

func newInstant(s *Server, u *upstream) *instant {
	i := &instant{s: s, u: u}
	i.buffers.New = func() any { return new(bytes.Buffer) }
	return i
}

// serve answers, or returns false for what is not prepared: then the call goes the long way.
func (i *instant) serve(w http.ResponseWriter, r *http.Request, path string) bool {
	e, model := i.u.api.find(path)
	if e == nil || e.free || r.Method != http.MethodPost {
		return false
	}
	b := i.buffers.Get().(*bytes.Buffer)
	b.Reset()
	_, err := io.Copy(b, r.Body)
	stream := e.stream != nil && (bytes.Contains(b.Bytes(), []byte(`"stream":true`)) || bytes.Contains(b.Bytes(), []byte(`"stream": true`)))
	i.buffers.Put(b)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if e == geminiVerbs["streamGenerateContent"] {
		stream = true
	}
	p := i.prepared(e, preparedKey{path, stream}, model)
	h := w.Header()
	for name, values := range p.header {
		h[name] = values
	}
	i.u.instantly(Bill{Input: instantInput, Output: p.output})
	if !stream {
		_, _ = w.Write(p.events[0])
		return true
	}
	control := http.NewResponseController(w)
	for _, event := range p.events {
		if _, err := w.Write(event); err != nil {
			return true
		}
		_ = control.Flush()
	}
	return true
}

// prepared makes an answer once, by the long way, with every call like the first.
func (i *instant) prepared(e *endpoint, key preparedKey, model string) *prepared {
	if p, ok := i.made.Load(key); ok {
		return p.(*prepared)
	}
	if model == "" {
		model = i.u.Models[0]
	}
	q := &query{model: model, stream: key.stream, wantsUsage: true, choices: 1, inputs: 1, width: 8, prompt: instantInput, output: i.u.InstantOutput}
	q.outputless = e.name == "embeddings" || e.name == "embed"
	// It began long ago, so that nothing waits.
	u := &upstream{Upstream: i.u.Upstream, api: i.u.api}
	u.PieceTokens = 1
	rec := &recorder{header: http.Header{}}
	t := &turn{
		s: i.s, u: u, w: rec, ctx: context.Background(), endpoint: e, charge: charge{instantInput, i.u.InstantOutput + 1}, q: q,
		reply: &reply{w: rec, u: u, speaks: e.speaks}, id: i.u.Name + "-instant", created: time.Now().Unix(),
		bill: q.bill(i.u.InstantOutput), left: true,
	}
	if key.stream {
		t.streamed()
	} else {
		t.whole()
		rec.header.Set("Content-Length", strconv.Itoa(len(rec.events[0])))
	}
	p := &prepared{header: rec.header, events: rec.events, output: t.bill.Output}
	i.made.Store(key, p)
	return p
}

// recorder keeps what is written, event by event.
type recorder struct {
	header http.Header
	events [][]byte
}

func (r *recorder) Header() http.Header { return r.header }

func (r *recorder) WriteHeader(int) {}

func (r *recorder) Write(b []byte) (int, error) {
	r.events = append(r.events, bytes.Clone(b))
	return len(b), nil
}

func (r *recorder) Flush() {}
