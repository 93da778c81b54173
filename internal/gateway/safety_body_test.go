package gateway

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/token-budget-arbiter/tba/internal/provider"
)

func zipped(t testing.TB, plain []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// bomb is n bytes of nothing, compressed a thousandfold.
func bomb(t testing.TB, n int) []byte {
	t.Helper()
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
	zero := make([]byte, 64<<10)
	for ; n > 0; n -= len(zero) {
		if _, err := w.Write(zero[:min(n, len(zero))]); err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	return b.Bytes()
}

// untouched fails the test when it is read.
type untouched struct{ t *testing.T }

func (u untouched) Read([]byte) (int, error) {
	u.t.Error("the body was read")
	return 0, io.EOF
}

func TestReadBody(t *testing.T) {
	t.Parallel()
	const limit = 1000
	exact := bytes.Repeat([]byte("a"), limit)
	over := append(exact[:limit:limit], 'a')
	stream := func(b []byte) io.Reader { return io.MultiReader(bytes.NewReader(b)) } // length unknown
	for name, c := range map[string]struct {
		kind   string
		body   io.Reader
		length int64 // 0: what NewRequest finds
		coding []string
		want   []byte
		status int
	}{
		"empty":                      {kind: provider.OpenAI, body: http.NoBody},
		"small":                      {kind: provider.OpenAI, body: strings.NewReader("{}"), want: []byte("{}")},
		"at the limit":               {kind: provider.OpenAI, body: bytes.NewReader(exact), want: exact},
		"at the limit, chunked":      {kind: provider.OpenAI, body: stream(exact), length: -1, want: exact},
		"over the limit":             {kind: provider.OpenAI, body: untouched{t}, length: limit + 1, status: 413},
		"over the limit, chunked":    {kind: provider.OpenAI, body: stream(over), length: -1, status: 413},
		"over the limit, lying":      {kind: provider.OpenAI, body: stream(over), length: 5, status: 413},
		"shorter than it says":       {kind: provider.OpenAI, body: io.MultiReader(strings.NewReader("{"), failing{io.ErrUnexpectedEOF}), length: 900, status: 400},
		"identity":                   {kind: provider.OpenAI, body: strings.NewReader("{}"), coding: []string{"identity"}, want: []byte("{}")},
		"gzip where it is allowed":   {kind: provider.Anthropic, body: bytes.NewReader(zipped(t, []byte("{}"))), coding: []string{"GZIP"}, want: []byte("{}")},
		"x-gzip":                     {kind: provider.Anthropic, body: bytes.NewReader(zipped(t, exact)), coding: []string{"x-gzip, identity"}, want: exact},
		"gzip where it is not":       {kind: provider.OpenAI, body: untouched{t}, length: 10, coding: []string{"gzip"}, status: 415},
		"zstd":                       {kind: provider.Anthropic, body: untouched{t}, length: 10, coding: []string{"zstd"}, status: 415},
		"deflate":                    {kind: provider.Anthropic, body: untouched{t}, length: 10, coding: []string{"deflate"}, status: 415},
		"br":                         {kind: provider.Mistral, body: untouched{t}, length: 10, coding: []string{"br"}, status: 415},
		"gzip in gzip":               {kind: provider.Anthropic, body: untouched{t}, length: 10, coding: []string{"gzip, gzip"}, status: 415},
		"gzip in gzip, two lines":    {kind: provider.Anthropic, body: untouched{t}, length: 10, coding: []string{"gzip", "gzip"}, status: 415},
		"not gzip":                   {kind: provider.Anthropic, body: strings.NewReader("{}"), coding: []string{"gzip"}, status: 400},
		"gzip of nothing":            {kind: provider.Anthropic, body: bytes.NewReader(zipped(t, nil)), coding: []string{"gzip"}, want: []byte{}},
		"half a gzip":                {kind: provider.Anthropic, body: bytes.NewReader(zipped(t, exact)[:20]), coding: []string{"gzip"}, status: 400},
		"gzip, too long inside":      {kind: provider.Anthropic, body: bytes.NewReader(zipped(t, over)), coding: []string{"gzip"}, status: 413},
		"gzip members, together":     {kind: provider.Anthropic, body: bytes.NewReader(append(zipped(t, exact), zipped(t, exact)...)), coding: []string{"gzip"}, status: 413},
		"a bomb":                     {kind: provider.Anthropic, body: bytes.NewReader(bomb(t, 900<<10)), coding: []string{"gzip"}, status: 413},
		"garbage after gzip":         {kind: provider.Anthropic, body: bytes.NewReader(append(zipped(t, exact), "garbage"...)), coding: []string{"gzip"}, status: 400},
		"an empty coding is not one": {kind: provider.OpenAI, body: strings.NewReader("{}"), coding: []string{" , "}, want: []byte("{}")},
	} {
		r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", c.body)
		if c.length != 0 {
			r.ContentLength = c.length
		}
		r.Header["Content-Encoding"] = c.coding
		d, _ := provider.Lookup(c.kind)
		w := httptest.NewRecorder()
		got, f := readBody(w, r, limit, d)
		switch {
		case c.status == 0 && (f != nil || !bytes.Equal(got, c.want)):
			t.Errorf("%s: %d bytes, %+v", name, len(got), f)
		case c.status != 0 && (f == nil || f.status != c.status || got != nil):
			t.Errorf("%s: %d bytes, %+v, want %d", name, len(got), f, c.status)
		case c.status != 0 && (f.retry == nil || *f.retry):
			t.Errorf("%s: may be tried again", name)
		}
		if accepts := w.Header().Get("Accept-Encoding"); (accepts != "") != (c.status == 415) {
			t.Errorf("%s: accept-encoding %q", name, accepts)
		}
	}
	r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(make([]byte, defaultMaxBody)))
	if got, f := readBody(httptest.NewRecorder(), r, 0, nil); f != nil || len(got) != defaultMaxBody {
		t.Errorf("the default limit: %d bytes, %v", len(got), f)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// A promise of a long body holds no memory. What has come is held at most twice.
func TestPromisedBodyIsNotHeld(t *testing.T) {
	t.Parallel()
	for _, sent := range []int{0, 100, 70 << 10, 300 << 10} {
		got, err := readAll(bytes.NewReader(make([]byte, sent)), defaultMaxBody, defaultMaxBody)
		if err != nil || len(got) != sent || cap(got) > max(firstRead+1, 2*sent) {
			t.Errorf("%d bytes came of 8 MiB: %d held, %v", sent, cap(got), err)
		}
	}
	if got, err := readAll(strings.NewReader("{}"), 2, defaultMaxBody); err != nil || cap(got) > 16 {
		t.Errorf("a body of two bytes holds %d: %v", cap(got), err)
	}
}

// A body ends in the same place however it comes.
func FuzzReadAll(f *testing.F) {
	f.Add([]byte("{}"), int64(2), int64(10), 1)
	f.Add(make([]byte, 100), int64(-1), int64(99), 7)
	f.Fuzz(func(t *testing.T, body []byte, declared, limit int64, step int) {
		if limit < 0 || limit > 1<<20 || step <= 0 {
			return
		}
		got, err := readAll(&steps{bytes.NewReader(body), step}, declared, limit)
		if want := int64(len(body)) <= limit && declared <= limit; want != (err == nil) || err == nil && !bytes.Equal(got, body) {
			t.Errorf("%d bytes, declared %d, limit %d: %d bytes, %v", len(body), declared, limit, len(got), err)
		}
	})
}

// steps reads a few bytes at a time.
type steps struct {
	r io.Reader
	n int
}

func (s *steps) Read(p []byte) (int, error) { return s.r.Read(p[:min(len(p), s.n)]) }

func answerOf(coding string, body io.Reader) *http.Response {
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Encoding": {coding}, "Content-Length": {"7"}, "Etag": {"a"}, "Content-Type": {"application/json"}},
		ContentLength: 7, Body: io.NopCloser(body),
	}
}

func TestDecodeResponse(t *testing.T) {
	t.Parallel()
	plain := bytes.Repeat([]byte(`{"usage":{}}`), 1000)
	var deflated bytes.Buffer
	z := zlib.NewWriter(&deflated)
	z.Write(plain)
	z.Close()
	for coding, body := range map[string][]byte{"gzip": zipped(t, plain), "X-GZIP": zipped(t, plain), " deflate ": deflated.Bytes()} {
		resp := answerOf(coding, &steps{bytes.NewReader(body), 3})
		if err := decodeResponse(resp); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		if err != nil || !bytes.Equal(got, plain) {
			t.Errorf("%s: %d bytes, %v", coding, len(got), err)
		}
		if resp.ContentLength != -1 || resp.Header.Get("Content-Length") != "" || resp.Header.Get("Content-Encoding") != "" || resp.Header.Get("Etag") != "" {
			t.Errorf("%s: %d %v", coding, resp.ContentLength, resp.Header)
		}
		if resp.Header.Get("Content-Type") == "" {
			t.Errorf("%s: the type is gone", coding)
		}
	}
	for _, coding := range []string{"", "identity"} {
		resp := answerOf(coding, bytes.NewReader(plain[:7]))
		if err := decodeResponse(resp); err != nil || resp.ContentLength != 7 || resp.Header.Get("Content-Encoding") != "" {
			t.Errorf("%q: %v %v", coding, err, resp.Header)
		}
	}
	for _, coding := range []string{"br", "zstd", "gzip, gzip", "compress"} {
		resp := answerOf(coding, failing{errors.New("read")})
		if err := decodeResponse(resp); err == nil || resp.Header.Get("Content-Encoding") != coding {
			t.Errorf("%q: %v", coding, err)
		}
	}
	// A stream opens before its first event: nothing is read until somebody reads.
	resp := answerOf("gzip", failing{errors.New("read")})
	if err := decodeResponse(resp); err != nil {
		t.Fatal(err)
	}
	if _, err := resp.Body.Read(make([]byte, 1)); err == nil || err.Error() != "read" {
		t.Errorf("got %v", err)
	}
	resp = answerOf("gzip", bytes.NewReader(zipped(t, plain)[:60]))
	if err := decodeResponse(resp); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(resp.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("half an answer: %v", err)
	}
}

// The end of an answer at the bound is an end, one byte more is an error.
func TestDecodedAnswerIsBounded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		size int
		over bool
	}{{maxDecoded, false}, {maxDecoded + 1, true}, {maxDecoded + 4<<20, true}} {
		resp := answerOf("gzip", bytes.NewReader(bomb(t, c.size)))
		if err := decodeResponse(resp); err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(struct{ io.Writer }{io.Discard}, resp.Body)
		if n != maxDecoded || errors.Is(err, errDecoded) != c.over || !c.over && err != nil {
			t.Errorf("%d bytes: %d passed, %v", c.size, n, err)
		}
		if _, err := resp.Body.Read(make([]byte, 1)); err == nil {
			t.Errorf("%d bytes: there is more after the end", c.size)
		}
	}
}

// A compressed stream is decoded event by event, not when it ends.
func TestDecodedStreamIsNotHeldBack(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	u := newUpstreamLog(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Content-Type", "text/event-stream")
		z := gzip.NewWriter(w)
		for range 3 {
			io.WriteString(z, "data: 1\n\n")
			z.Flush()
			w.(http.Flusher).Flush()
			<-gate
		}
		z.Close()
	})
	s := serveThrough(t, u.upstream(t, provider.OpenAI, ""), 0)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/v1/chat/completions", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := agent.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.Header.Get("Content-Encoding") != "" {
		t.Errorf("headers %v", resp.Header)
	}
	event := make([]byte, len("data: 1\n\n"))
	for range 3 {
		if _, err := io.ReadFull(resp.Body, event); err != nil || string(event) != "data: 1\n\n" {
			t.Fatalf("%q %v", event, err)
		}
		gate <- struct{}{}
	}
	if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) != 0 {
		t.Fatalf("%q %v", rest, err)
	}
}

// Five hundred connections promise 8 MiB each and send a few bytes, and fifty send bombs: neither holds what it pretends to be.
// Not parallel: it looks at the heap.
func TestSlowLorisAndBombsHoldNoMemory(t *testing.T) {
	u := newUpstreamLog(t, nil)
	s := serveThrough(t, u.upstream(t, provider.Anthropic, ""), 0)
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	const slow = 500
	head := "POST /v1/messages HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: " + strconv.Itoa(defaultMaxBody) + "\r\nExpect: 100-continue\r\n\r\n"
	for range slow {
		c, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, head); err != nil {
			t.Fatal(err)
		}
		// The server says Continue when the handler begins to read: then its buffer is there.
		if _, err := io.ReadFull(c, make([]byte, len("HTTP/1.1 100 Continue\r\n\r\n"))); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, `{"model":`); err != nil {
			t.Fatal(err)
		}
	}
	if held := int64(heap()) - int64(before); held > slow*(firstRead+64<<10) {
		t.Errorf("%d slow connections hold %d KiB", slow, held>>10)
	}
	small := bomb(t, 64<<20)
	for range 20 {
		resp, _ := post(t, s.URL+"/v1/messages", http.Header{"Content-Encoding": {"gzip"}}, small)
		if resp.StatusCode != http.StatusRequestEntityTooLarge {
			t.Fatalf("a bomb of %d bytes got %d", len(small), resp.StatusCode)
		}
	}
	if calls := u.take(); len(calls) != 0 {
		t.Errorf("%d calls went up", len(calls))
	}
}
