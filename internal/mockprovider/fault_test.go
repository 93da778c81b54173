package mockprovider

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/gjson"

	"github.com/token-budget-arbiter/tba/internal/provider"
)

// Every refusal that can be asked for is understood as what it stands for, in each dialect.
func TestRefusalsAreWhatTheyStandFor(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fault string
		class map[string]provider.Class // "" for all others
		wait  time.Duration
	}{
		{FaultThrottle + ";wait=7s", map[string]provider.Class{"": provider.Throttle}, 7 * time.Second},
		{FaultThrottle, map[string]provider.Class{"": provider.Throttle}, time.Second},
		{FaultRamp, map[string]provider.Class{"": provider.Throttle}, 0},
		{FaultExhausted, map[string]provider.Class{"": provider.Exhausted}, 0},
		{FaultTooLarge, map[string]provider.Class{"": provider.Impossible, provider.Anthropic: provider.Caller, provider.Mistral: provider.Caller}, 0},
		{FaultOverloaded, map[string]provider.Class{"": provider.Overload}, 0},
		{FaultStatus, map[string]provider.Class{"": provider.Provider}, 0},
		{FaultStatus + "=400", map[string]provider.Class{"": provider.Caller}, 0},
		{FaultHTML, map[string]provider.Class{"": provider.Provider, provider.OpenAI: provider.Provider, provider.Gemini: provider.Overload}, 0},
		{FaultHTML + "=429", map[string]provider.Class{"": provider.Throttle}, 0},
		{FaultEmpty + "=429", map[string]provider.Class{"": provider.Throttle}, 0},
	} {
		for _, dialect := range provider.Names() {
			t.Run(c.fault+" "+dialect, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					s := server(t, Options{Upstreams: []Upstream{{Name: dialect, Dialect: dialect}}})
					r := call{dialect: dialect, prompt: 10, cap: 10}.request(t, "/"+dialect)
					r.Header.Set(FaultHeader, c.fault)
					w := httptest.NewRecorder()
					s.Handler().ServeHTTP(w, r)
					want, own := c.class[dialect]
					if !own {
						want = c.class[""]
					}
					v := verdict(dialect, w)
					if v.Class != want || c.wait > 0 && v.Wait != c.wait {
						t.Errorf("%d %s is %v, wait %v; want %v, %v", w.Code, w.Body, v.Class, v.Wait, want, c.wait)
					}
					line := s.Calls(dialect)[0]
					if line.Status != w.Code || line.Bill != (Bill{}) || !line.Scripted || !strings.HasPrefix(c.fault, line.Fault) {
						t.Errorf("in the books: %+v", line)
					}
					if rep := s.Report()[0]; rep.Calls != 1 || rep.Running() != 0 || rep.OK != 0 || (rep.Stormed == 1) != (w.Code == 429) {
						t.Errorf("%+v", rep)
					}
				})
			})
		}
	}
}

func TestFaultsWithinAnAnswer(t *testing.T) {
	t.Parallel()
	for _, x := range shapes {
		if x.stream == "" {
			continue
		}
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := server(t, Options{Upstreams: []Upstream{{Name: x.dialect, Dialect: x.dialect, MaxConcurrency: 1}}})
				ask := func(fault string, streams bool) (w *httptest.ResponseRecorder, line Call, cut bool) {
					w = httptest.NewRecorder()
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					func() {
						defer func() {
							if err, ok := recover().(error); ok {
								cut = errors.Is(err, http.ErrAbortHandler)
							}
						}()
						s.Handler().ServeHTTP(w, x.request(streams, map[string]string{OutputHeader: "40", FaultHeader: fault}).WithContext(ctx))
					}()
					calls := s.Calls(x.dialect)
					return w, calls[len(calls)-1], cut
				}
				text := func(w *httptest.ResponseRecorder) (n int) {
					for _, e := range events(w.Body.String()) {
						n += len(e.Get(x.piece).Str)
					}
					return n
				}
				hasUsage := func(w *httptest.ResponseRecorder, prefix string) bool {
					for _, e := range append(events(w.Body.String()), gjson.ParseBytes(w.Body.Bytes())) {
						if e.Get(prefix+x.input).Type == gjson.Number {
							return true
						}
					}
					return false
				}

				w, line, _ := ask(FaultErrorFirst, true)
				if w.Code != 200 || !strings.Contains(w.Body.String(), "error") || text(w) != 0 || line.Bill != (Bill{}) || line.Status != 200 || !line.Scripted {
					t.Errorf("error first: %d %s, %+v", w.Code, w.Body, line)
				}
				w, line, _ = ask(FaultErrorMid, true)
				if text(w) != 80 || line.Output != 20 || line.Input != 11 || !line.Broken {
					t.Errorf("error in the middle: %s, %+v", w.Body, line)
				}
				w, line, _ = ask(FaultErrorMid+"=99", true)
				if text(w) != 160 || line.Output != 40 || !line.Broken {
					t.Errorf("error at the end: %s, %+v", w.Body, line)
				}
				w, line, cut := ask(FaultCut+"=900", true)
				if !cut || w.Body.Len() != 900 || !line.Broken || line.Input != 11 || int(line.Output)*4 < text(w) || line.Output > 40 {
					t.Errorf("cut after 900 bytes: %v, %d bytes, %+v", cut, w.Body.Len(), line)
				}
				w, line, cut = ask(FaultCut+"=90", false)
				if !cut || w.Body.Len() != 90 || !line.Broken || line.Output != 40 {
					t.Errorf("a whole answer cut after 90 bytes: %v, %d bytes, %+v", cut, w.Body.Len(), line)
				}
				w, line, _ = ask(FaultStall+"=2", true)
				if text(w) != 32 || line.Output != 8 || line.Status != 499 || !line.Broken || line.End-line.Arrival != time.Minute {
					t.Errorf("stalled: %s, %+v", w.Body, line)
				}
				for _, streams := range []bool{false, true} {
					if w, line, _ = ask(FaultNoUsage, streams); hasUsage(w, map[bool]string{true: x.prefix}[streams]) || line.Output != 40 || line.Status != 200 || line.Broken {
						t.Errorf("no usage, stream %v: %s, %+v", streams, w.Body, line)
					}
					if w, line, _ = ask(FaultNullUsage, streams); hasUsage(w, map[bool]string{true: x.prefix}[streams]) != streams || line.Output != 40 {
						t.Errorf("null usage, stream %v: %s, %+v", streams, w.Body, line)
					}
					if w, line, _ = ask(FaultErrorBody, streams); w.Code != 200 || !strings.Contains(w.Body.String(), "message") || line.Bill != (Bill{}) {
						t.Errorf("the body of an error: %s, %+v", w.Body, line)
					}
				}
				if w, _, _ = ask(FaultComments, true); strings.Count(w.Body.String(), ": keep-alive") < 10 || text(w) != 160 {
					t.Errorf("comments: %s", w.Body)
				}
				w, line, _ = ask(FaultRedirect, true)
				if w.Code != 307 || !strings.HasPrefix(w.Header().Get("Location"), "http://169.254.169.254/") || line.Bill != (Bill{}) {
					t.Errorf("redirect: %d, %+v", w.Code, line)
				}
				if w, _, _ = ask(FaultEmpty, true); w.Code != 200 || w.Body.Len() != 0 {
					t.Errorf("empty: %d %q", w.Code, w.Body)
				}
				if r := s.Report()[0]; r.Running() != 0 {
					t.Errorf("a call was never closed: %+v", r)
				}
			})
		})
	}
}

// The first calls fail, those after them succeed: by header over all upstreams, by script at one.
func TestFaultsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := server(t, Options{Upstreams: []Upstream{
			{Name: "a", Dialect: provider.OpenAI, Faults: []Fault{{Kind: FaultStatus, N: 502, Times: 1}, {Kind: FaultOverloaded, From: 10 * time.Second, For: time.Second}}},
			{Name: "b", Dialect: provider.OpenAI},
		}})
		began := time.Now()
		ask := func(name, fault string) int {
			r := call{dialect: provider.OpenAI, prompt: 1, cap: 1}.request(t, "/"+name)
			if fault != "" {
				r.Header.Set(FaultHeader, fault)
			}
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, r)
			return w.Code
		}
		for i, c := range []struct {
			name, fault string
			want        int
		}{
			{"a", "", 502}, {"a", "", 200}, {"b", "", 200},
			{"a", "throttle;times=2;id=1", 429}, {"b", "throttle;times=2;id=1", 429}, {"a", "throttle;times=2;id=1", 200}, {"b", "throttle;times=2;id=2", 429},
			{"a", "status=418;on=b", 200}, {"b", "status=418;on=b", 418},
			{"a", "status=600", 400}, {"a", "earthquake", 400}, {"a", "status=x", 400}, {"a", "status;when=never", 400},
		} {
			if got := ask(c.name, c.fault); got != c.want {
				t.Errorf("call %d, %+v: %d", i, c, got)
			}
		}
		<-time.After(time.Until(began.Add(10500 * time.Millisecond)))
		if got := ask("a", ""); got != 503 {
			t.Errorf("in the span: %d", got)
		}
		<-time.After(time.Second)
		if got := ask("a", ""); got != 200 {
			t.Errorf("after the span: %d", got)
		}
		if err := s.SetFaults("a", Fault{Kind: FaultStatus}); err != nil || ask("a", "") != 500 {
			t.Errorf("a fault set later: %v", err)
		}
		if s.SetFaults("c") == nil || s.SetFaults("a", Fault{Kind: "x"}) == nil {
			t.Error("an unknown upstream or fault was taken")
		}
	})
}

func TestSearch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := server(t, Options{Upstreams: []Upstream{{Name: "search", Dialect: provider.HTTP, RPM: 8}}})
		for _, c := range []struct {
			query, fault string
			status       int
			hits         int64
		}{
			{"?q=tea", "", 200, 3}, {"?q=nothing", "", 200, 0}, {"?q=tea", "zero_hits", 200, 0}, {"?q=tea", "zero_hits=204", 204, 0},
			{"?q=tea", "zero_hits=404", 404, 0}, {"?q=tea", "throttle;wait=3s", 429, 0}, {"?q=tea", "status", 500, 0}, {"?q=tea", "exhausted", 402, 0},
		} {
			r := httptest.NewRequest(http.MethodGet, "/search/any/path"+c.query, nil)
			if c.fault != "" {
				r.Header.Set(FaultHeader, c.fault)
			}
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, r)
			if w.Code != c.status || gjson.GetBytes(w.Body.Bytes(), "results.#").Int() != c.hits {
				t.Errorf("%+v: %d %s", c, w.Code, w.Body)
			}
		}
		if r := s.Report()[0]; r.Calls != 8 || r.OK != 5 || r.Used() != 0 {
			t.Errorf("%+v", r)
		}
		for range 4 {
			s.Handler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/search/", strings.NewReader(`{"q":1}`)))
		}
		if r := s.Report()[0]; r.Throttled != 1 {
			t.Errorf("%+v", r)
		}
	})
}

// listening is a server on a real port.
func listening(t *testing.T, o Options) *Server {
	t.Helper()
	s := server(t, o)
	if err := s.Start("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestConnectionIsReset(t *testing.T) {
	t.Parallel()
	s := listening(t, Options{Upstreams: []Upstream{{Name: "openai", Dialect: provider.OpenAI}}})
	r := call{dialect: provider.OpenAI, prompt: 1, cap: 1}.request(t, s.URL("openai"))
	r.Header.Set(FaultHeader, FaultReset)
	if _, err := http.DefaultTransport.RoundTrip(r); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v", err)
	}
	if c := s.Calls("openai")[0]; c.Status != 0 || !c.Scripted || c.End == 0 {
		t.Errorf("%+v", c)
	}
}

// An upstream may answer while the caller is still sending: with an error at once, or with the head of a stream.
func TestAnswersBeforeTheBodyIsRead(t *testing.T) {
	t.Parallel()
	s := listening(t, Options{Speedup: 1000, Upstreams: []Upstream{{Name: "openai", Dialect: provider.OpenAI}}})
	body := []byte(`{"model":"m","stream":true,"messages":[{"role":"user","content":"` + strings.Repeat("abc ", 1000) + `"}]}`)
	open := func(fault string) (net.Conn, *bufio.Reader, *http.Response) {
		conn, err := net.Dial("tcp", strings.TrimPrefix(strings.TrimSuffix(s.URL("openai"), "/openai"), "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "POST /openai/v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer k\r\n%s: %s\r\nContent-Length: %d\r\n\r\n%s",
			FaultHeader, fault, len(body), body[:100])
		from := bufio.NewReader(conn)
		resp, err := http.ReadResponse(from, nil)
		if err != nil {
			t.Fatal(err)
		}
		return conn, from, resp
	}
	conn, _, resp := open(FaultEarlyError)
	if resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("status %d", resp.StatusCode)
	}
	_ = conn.Close()

	conn, _, resp = open(FaultEarlyHead)
	defer conn.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("status %d", resp.StatusCode)
	}
	if _, err := conn.Write(body[100:]); err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(resp.Body)
	if err != nil || !bytes.HasPrefix(all, []byte(": early\n\n")) || !bytes.HasSuffix(all, []byte("data: [DONE]\n\n")) {
		t.Errorf("%v: %.60q ... ", err, all)
	}
	if calls := s.Calls("openai"); calls[0].Status != 413 || calls[1].Input != 1000 || calls[1].Status != 200 {
		t.Errorf("%+v", calls)
	}
}

// An instant upstream answers what the long way answers, with the same numbers each time.
func TestInstant(t *testing.T) {
	t.Parallel()
	for _, x := range shapes {
		for _, streams := range []bool{false, true} {
			if streams && x.stream == "" {
				continue
			}
			s := server(t, Options{Upstreams: []Upstream{{Name: x.dialect, Dialect: x.dialect, Instant: true, InstantOutput: 9}}})
			for range 2 {
				w := httptest.NewRecorder()
				s.Handler().ServeHTTP(w, x.request(streams, nil))
				if w.Code != 200 || w.Header().Get("Content-Type") == "" || !streams && !gjson.ValidBytes(w.Body.Bytes()) {
					t.Fatalf("%s: %d %v %s", x.name, w.Code, w.Header(), w.Body)
				}
				if streams {
					text := ""
					for _, e := range events(w.Body.String()) {
						text += e.Get(x.piece).Str
					}
					if len(text) != 36 || !strings.HasSuffix(w.Body.String(), x.end) {
						t.Errorf("%s: %s", x.name, w.Body)
					}
				}
			}
			want := Bill{Input: 200, Output: 18}
			if x.output == "" {
				want.Output = 0
			}
			if r := s.Report()[0]; r.Calls != 2 || r.OK != 2 || r.Bill != want {
				t.Errorf("%s: %+v", x.name, r)
			}
		}
	}
}

func BenchmarkInstant(b *testing.B) {
	s := server(b, Options{Upstreams: []Upstream{{Name: "openai", Dialect: provider.OpenAI, Instant: true}}})
	body := `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("abc ", 240) + `"}]}`
	for b.Loop() {
		r := httptest.NewRequest(http.MethodPost, "/openai/v1/chat/completions", strings.NewReader(body))
		s.Handler().ServeHTTP(httptest.NewRecorder(), r)
	}
}
