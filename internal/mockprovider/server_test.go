package mockprovider

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/token-budget-arbiter/tba/internal/provider"
)

// call is one request to an upstream named like its dialect.
type call struct {
	dialect     string
	prompt, cap int64
	output      int64
	key         string
	ctx         context.Context
}

func (c call) request(t testing.TB, base string) *http.Request {
	t.Helper()
	d, _ := provider.Lookup(c.dialect)
	body, err := d.ChatBody(provider.ChatRequest{Model: "m-1", Text: strings.Repeat("abc ", int(c.prompt)), MaxOutput: c.cap})
	if err != nil {
		t.Fatal(err)
	}
	if c.ctx == nil {
		c.ctx = context.Background()
	}
	r, err := http.NewRequestWithContext(c.ctx, http.MethodPost, base+d.ChatPath("m-1"), bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if c.key == "" {
		c.key = "k"
	}
	d.Authorize(r.Header, c.key)
	r.Header.Set(OutputHeader, strconv.FormatInt(c.output, 10))
	return r
}

// do calls the handler directly; inside a synctest bubble the latency is exact.
func (c call) do(t testing.TB, s *Server) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, c.request(t, "/"+c.dialect))
	return w
}

func server(t testing.TB, o Options) *Server {
	t.Helper()
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func verdict(dialect string, w *httptest.ResponseRecorder) provider.Verdict {
	d, _ := provider.Lookup(dialect)
	return d.Classify(w.Code, w.Header(), w.Body.Bytes(), time.Now())
}

// Over a real connection each dialect answers in its own words, and package provider understands them.
func TestEachDialectOverHTTP(t *testing.T) {
	t.Parallel()
	for _, name := range provider.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server(t, Options{Speedup: 1000, Upstreams: []Upstream{{
				Name: "up", Dialect: name, Keys: []string{"secret"}, RPM: 2, TPM: 10_000, InputTPM: 9_000,
			}}})
			if err := s.Start("127.0.0.1:0"); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := s.Close(context.Background()); err != nil {
					t.Error(err)
				}
			})
			d, _ := provider.Lookup(name)
			send := func(c call) (status int, h http.Header, body []byte) {
				c.dialect = name
				resp, err := http.DefaultClient.Do(c.request(t, s.URL("up")))
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				if body, err = io.ReadAll(resp.Body); err != nil {
					t.Fatal(err)
				}
				return resp.StatusCode, resp.Header, body
			}
			status, h, body := send(call{prompt: 100, cap: 50, output: 20, key: "secret"})
			u, ok := d.Usage(body)
			if status != http.StatusOK || !ok || u.Input != 100 || u.Output != 20 || u.Model != "m-1" {
				t.Fatalf("%d %s: %+v", status, body, u)
			}
			limits := d.Limits(h, time.Now())
			if name == provider.Gemini {
				if len(limits.List) != 0 {
					t.Errorf("gemini told its limits: %+v", limits)
				}
			} else if len(limits.List) < 2 || limits.List[0].Limit != 2 || limits.List[0].Remaining != 1 {
				t.Errorf("limits %+v from %v", limits, h)
			}

			if status, h, body := send(call{prompt: 1, cap: 1, key: "wrong"}); d.Classify(status, h, body, time.Now()).Class != provider.Auth {
				t.Errorf("a wrong key got %d %s", status, body)
			}
			if status, _, body := send(call{prompt: 1, cap: 5, output: 99, key: "secret"}); status != http.StatusOK {
				t.Errorf("second call: %d %s", status, body)
			} else if u, _ := d.Usage(body); u.Output != 5 {
				t.Errorf("the cap of 5 let %d through", u.Output)
			}
			status, h, body = send(call{prompt: 1, cap: 1, key: "secret"})
			v := d.Classify(status, h, body, time.Now())
			if v.Class != provider.Throttle || v.Wait <= 50*time.Second || v.Wait > time.Minute {
				t.Errorf("third call of a minute: %+v from %d %s", v, status, body)
			}
			if v.Dim.String() != "rpm" {
				t.Errorf("throttled on %v, not on requests: %s", v.Dim, body)
			}

			want := Report{Name: "up", Dialect: name, Calls: 3, OK: 2, Throttled: 1, Malformed: 1, WindowViolations: 1, PeakInFlight: 1, Bill: Bill{Input: 101, Output: 25}}
			if got := s.Report()[0]; got != want {
				t.Errorf("report\n got %+v\nwant %+v", got, want)
			}
		})
	}
}

func TestTokensInAWindowAndTheWaitThatIsTold(t *testing.T) {
	t.Parallel()
	for _, name := range provider.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := server(t, Options{Window: 6 * time.Second, Upstreams: []Upstream{{Name: name, Dialect: name, TPM: 1000}}})
				c := call{dialect: name, prompt: 300, cap: 200, output: 100} // 300 ms + 1 s
				for range 2 {
					if w := c.do(t, s); w.Code != 200 {
						t.Fatalf("%d %s", w.Code, w.Body)
					}
				}
				if at := s.Calls(name)[1].Arrival; at != 1300*time.Millisecond {
					t.Fatalf("the first call took %v", at)
				}
				w := c.do(t, s) // at 2.6 s; the first charge leaves at 6 s
				v := verdict(name, w)
				if v.Class != provider.Throttle || v.Wait < 3400*time.Millisecond || v.Wait > 4*time.Second {
					t.Fatalf("%+v from %s", v, w.Body)
				}
				<-time.After(v.Wait)
				if w := c.do(t, s); w.Code != 200 {
					t.Errorf("after the wait that was told: %d %s", w.Code, w.Body)
				}
				large := call{dialect: name, prompt: 900, cap: 200}.do(t, s)
				if v := verdict(name, large); name == provider.OpenAI && v.Class != provider.Impossible || large.Code != 429 {
					t.Errorf("larger than the limit: %+v from %s", v, large.Body)
				}
				if r := s.Report()[0]; r.OK != 3 || r.Throttled != 2 || r.Input != 900 || r.Output != 300 {
					t.Errorf("%+v", r)
				}
			})
		})
	}
}

func TestSlots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := server(t, Options{Upstreams: []Upstream{{Name: provider.Mistral, Dialect: provider.Mistral, MaxConcurrency: 3}}})
		codes := make(chan int, 5)
		for range 5 {
			go func() { codes <- call{dialect: provider.Mistral, prompt: 1, cap: 100, output: 50}.do(t, s).Code }()
		}
		synctest.Wait()
		count := map[int]int{}
		for range 5 {
			count[<-codes]++
		}
		if count[200] != 3 || count[429] != 2 {
			t.Errorf("codes %v", count)
		}
		if w := (call{dialect: provider.Mistral, prompt: 1, cap: 1}).do(t, s); w.Code != 200 {
			t.Errorf("with all slots free: %d", w.Code)
		}
		if r := s.Report()[0]; r.PeakInFlight != 3 || r.SlotViolations != 2 {
			t.Errorf("%+v", r)
		}
	})
}

func TestScriptedOutagesAndStorms(t *testing.T) {
	t.Parallel()
	for _, name := range provider.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := server(t, Options{Speedup: 10, Upstreams: []Upstream{{
					Name: name, Dialect: name,
					Outages: []Outage{{From: 10 * time.Second, For: time.Second, Status: 503}, {From: 20 * time.Second, For: time.Second}},
					Storms:  []Storm{{From: 30 * time.Second, For: time.Second, RetryAfter: 7 * time.Second}},
				}}})
				began := time.Now()
				at := func(second int) { <-time.After(time.Until(began.Add(time.Duration(second)*time.Second + 1))) }
				c := call{dialect: name, prompt: 10, cap: 10, output: 5}
				if w := c.do(t, s); w.Code != 200 {
					t.Errorf("before: %d", w.Code)
				}
				at(10)
				if w := c.do(t, s); w.Code != 503 || verdict(name, w).Class != provider.Overload && name != provider.Anthropic {
					t.Errorf("outage: %d %+v %s", w.Code, verdict(name, w), w.Body)
				}
				at(20)
				func() {
					defer func() {
						if err, ok := recover().(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
							t.Error("the connection was not broken")
						}
					}()
					c.do(t, s)
				}()
				at(30)
				if v := verdict(name, c.do(t, s)); v.Class != provider.Throttle || v.Wait != 7*time.Second {
					t.Errorf("storm: %+v", v)
				}
				at(31)
				if w := c.do(t, s); w.Code != 200 {
					t.Errorf("after: %d", w.Code)
				}
				want := Report{Name: name, Dialect: name, Calls: 5, OK: 2, Stormed: 1, Failed: 2, PeakInFlight: 1, Bill: Bill{Input: 20, Output: 10}}
				if got := s.Report()[0]; got != want {
					t.Errorf("report\n got %+v\nwant %+v", got, want)
				}
			})
		})
	}
}

func TestACallerThatHangsUpIsBilledForWhatWasMade(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := server(t, Options{Upstreams: []Upstream{{Name: provider.OpenAI, Dialect: provider.OpenAI, MaxConcurrency: 1, FirstToken: time.Second, Speed: 10}}})
		ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
		defer cancel()
		call{dialect: provider.OpenAI, prompt: 40, cap: 100, output: 100, ctx: ctx}.do(t, s)
		c := s.Calls(provider.OpenAI)[0]
		if c.Status != 499 || c.Input != 40 || c.Output != 25 || c.End != 3500*time.Millisecond {
			t.Errorf("%+v", c)
		}
		if r := s.Report()[0]; r.Cancelled != 1 || r.OK != 0 {
			t.Errorf("%+v", r)
		}
		if w := (call{dialect: provider.OpenAI, prompt: 1, cap: 1}).do(t, s); w.Code != 200 {
			t.Errorf("the slot did not come back: %d", w.Code)
		}
	})
}

func TestWithoutTheHeaderTheBodyDecides(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := server(t, Options{Upstreams: []Upstream{{Name: provider.OpenAI, Dialect: provider.OpenAI}}})
		for range 2 {
			r := call{dialect: provider.OpenAI, prompt: 5}.request(t, "/openai")
			r.Header.Del(OutputHeader)
			s.Handler().ServeHTTP(httptest.NewRecorder(), r)
		}
		calls := s.Calls(provider.OpenAI)
		if calls[0].Output != calls[1].Output || calls[0].Output < 1 || calls[0].Cap != 4096 {
			t.Errorf("%+v", calls)
		}
	})
}

func TestBadRequestsSpeakTheDialect(t *testing.T) {
	t.Parallel()
	post := func(path, body string, h map[string]string) *http.Request {
		r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer k")
		for k, v := range h {
			r.Header.Set(k, v)
		}
		return r
	}
	version := map[string]string{"Anthropic-Version": "2023-06-01"}
	for _, c := range []struct {
		name, path, body string
		h                map[string]string
		status           int
		says             string
	}{
		{"unknown upstream", "/cohere/v1/chat", `{}`, nil, 404, "no upstream"},
		{"unknown path", "/openai/v1/realtime", `{}`, nil, 404, `"type":"invalid_request_error"`},
		{"gemini without a model", "/gemini/v1beta/models/:generateContent", `{}`, nil, 404, `"status":"NOT_FOUND"`},
		{"not JSON", "/openai/v1/chat/completions", `{`, nil, 400, "not valid JSON"},
		{"no model", "/openai/v1/chat/completions", `{}`, nil, 400, "model"},
		{"too large", "/openai/v1/chat/completions", strings.Repeat(" ", maxBody+1), nil, 413, "too large"},
		{"anthropic without version", "/anthropic/v1/messages", `{"model":"m","max_tokens":1}`, nil, 400, `"type":"error"`},
		{"anthropic without cap", "/anthropic/v1/messages", `{"model":"m"}`, version, 400, "max_tokens"},
		{"mistral with an extra field", "/mistral/v1/chat/completions", `{"model":"m","messages":[],"stream_options":{}}`, nil, 422, "stream_options"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var list []Upstream
			for _, n := range provider.Names() {
				list = append(list, Upstream{Name: n, Dialect: n})
			}
			s := server(t, Options{Upstreams: list})
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, post(c.path, c.body, c.h))
			if w.Code != c.status || !strings.Contains(w.Body.String(), c.says) {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		})
	}
}

func TestOnlyTheNewestCallsAreKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := server(t, Options{KeepCalls: 3, Upstreams: []Upstream{{Name: provider.OpenAI, Dialect: provider.OpenAI}}})
		for i := range 20 {
			call{dialect: provider.OpenAI, prompt: int64(i + 1), cap: 1, output: 1}.do(t, s)
		}
		calls := s.Calls(provider.OpenAI)
		if n := len(calls); n < 3 || n > 6 || calls[n-1].Input != 20 || s.Report()[0].OK != 20 {
			t.Errorf("%d calls kept: %+v", n, calls)
		}
		if s.Calls("nobody") != nil {
			t.Error("calls of an unknown upstream")
		}
	})
}

func TestOptionsNameEveryFault(t *testing.T) {
	t.Parallel()
	_, err := New(Options{Window: time.Hour, Speedup: -1, KeepCalls: -1, Upstreams: []Upstream{
		{Name: "a b", Dialect: provider.OpenAI},
		{Name: "x", Dialect: "cohere"},
		{Name: "x", Dialect: provider.OpenAI, TPM: -1},
		{Name: "y", Dialect: provider.OpenAI, BurstTokens: 1},
		{Name: "z", Dialect: provider.OpenAI, Outages: []Outage{{Status: 200, For: 1}}},
		{Name: "w", Dialect: provider.OpenAI, Storms: []Storm{{}}},
		{Name: "v", Dialect: provider.OpenAI, FirstToken: -1},
	}})
	if err == nil {
		t.Fatal("taken")
	}
	for _, word := range []string{"window", "speedup", "keep_calls", `"a b"`, "twice", `"cohere"`, "tpm is -1", "burst", "outage", "storm", "first token"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q is not in: %v", word, err)
		}
	}
	if _, err := New(Options{}); err == nil {
		t.Error("no upstreams were taken")
	}
}
