package demo

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/gjson"

	"github.com/token-budget-arbiter/tba/internal/mockprovider"
	"github.com/token-budget-arbiter/tba/internal/provider"
)

// transport answers requests without a network, so that pauses pass in no time.
type transport func(r *http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func answer(status int, h map[string]string, body string) *http.Response {
	resp := &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}
	for name, value := range h {
		resp.Header.Set(name, value)
	}
	return resp
}

const whole = `{"model":"m","choices":[{"finish_reason":"stop","message":{"content":"x"}}],"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}}`

// The table of docs/gateway.md: what an SDK does with each answer, how long it waits, and how often it comes.
func TestTheDoorTriesAsAnSDKDoes(t *testing.T) {
	t.Parallel()
	refusal := `{"error":{"message":"no","tba":{"reason":"rpm"}}}`
	arbiter := func(h map[string]string) map[string]string {
		h["X-Tba-Origin"] = "arbiter"
		return h
	}
	for _, c := range []struct {
		name      string
		first     *http.Response
		fault     error
		tries     int
		least     time.Duration // of waiting
		most      time.Duration
		used      int64
		refusedBy string
	}{
		{name: "answered", first: answer(200, nil, whole), tries: 1, used: 15},
		{name: "throttled by the arbiter", first: answer(429, arbiter(map[string]string{"X-Should-Retry": "true", "Retry-After": "2"}), refusal), tries: 2, least: 2 * time.Second, most: 2 * time.Second, used: 15, refusedBy: "rpm"},
		{name: "milliseconds go first", first: answer(429, map[string]string{"Retry-After": "2", "Retry-After-Ms": "1500"}, "{}"), tries: 2, least: 1500 * time.Millisecond, most: 1500 * time.Millisecond, used: 15},
		{name: "told not to", first: answer(429, arbiter(map[string]string{"X-Should-Retry": "false"}), refusal), tries: 1, refusedBy: "rpm"},
		{name: "told to", first: answer(400, map[string]string{"X-Should-Retry": "true"}, "{}"), tries: 2, least: 375 * time.Millisecond, most: 500 * time.Millisecond, used: 15},
		{name: "not found", first: answer(404, nil, "{}"), tries: 1},
		{name: "down", first: answer(503, nil, "{}"), tries: 2, least: 375 * time.Millisecond, most: 500 * time.Millisecond, used: 15},
		{name: "no connection", fault: errors.New("refused"), tries: 2, least: 375 * time.Millisecond, most: 500 * time.Millisecond, used: 15},
		{name: "longer than its patience", first: answer(429, map[string]string{"Retry-After": "50"}, "{}"), tries: 1},
		{name: "without an end", first: answer(200, nil, whole[:40]), tries: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				tally := newTally()
				d := newDoor("http://gateway/", tally)
				var seen []*http.Request
				d.http = &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
					if seen = append(seen, r); len(seen) == 1 {
						return c.first, c.fault
					}
					return answer(200, nil, whole), nil
				})}
				w := &worker{member: member{id: "planner-01", class: planner}}
				if err := w.through(d, false); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				used, err := d.call(t.Context(), w, job{number: 7, prompt: 10, output: 5, cap: 64}, 30*time.Second)
				if took := time.Since(began); took < c.least || took > c.most {
					t.Errorf("waited %v, want %v to %v", took, c.least, c.most)
				}
				if len(seen) != c.tries || used != c.used || (err == nil) != (c.used > 0) {
					t.Errorf("%d tries, %d tokens, %v", len(seen), used, err)
				}
				for i, r := range seen {
					if got := r.Header.Get("X-Stainless-Retry-Count"); got != string(rune('0'+i)) || r.Header.Get("X-Tba-Class") != planner || r.Header.Get("X-Tba-Agent") != "planner-01" {
						t.Errorf("try %d: %v", i, r.Header)
					}
				}
				by := tally.counts().refusedBy
				if c.refusedBy != "" && by[c.refusedBy] != 1 || c.refusedBy == "" && len(by) != 0 {
					t.Errorf("refused by %v, want %q", by, c.refusedBy)
				}
				tally.answered(err)
				if n := tally.counts(); (n.finished == 1) != (err == nil) {
					t.Errorf("%+v", n)
				}
			})
		})
	}
}

func TestTheDoorGivesUpAfterThreeTries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, tries := newDoor("http://gateway", newTally()), 0
		d.http = &http.Client{Transport: transport(func(*http.Request) (*http.Response, error) {
			tries++
			return answer(500, nil, "{}"), nil
		})}
		w := &worker{member: member{class: planner}}
		if err := w.through(d, false); err != nil {
			t.Fatal(err)
		}
		if _, err := d.call(t.Context(), w, job{}, time.Hour); err == nil || tries != 3 || d.tally.counts().agentRetries != 2 {
			t.Errorf("%d tries, %v", tries, err)
		}
	})
}

// Every dialect, plain and as a stream, is understood by the mock provider that stands behind the gateway.
func TestTheDoorSpeaksEveryDialect(t *testing.T) {
	t.Parallel()
	mocks, err := mockprovider.New(ScaleFor(25*time.Second, time.Now()).MockOptions())
	if err != nil {
		t.Fatal(err)
	}
	if err := mocks.Start("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := mocks.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	for name, model := range upstreamModel {
		for _, streams := range []bool{false, true} {
			d := newDoor(strings.TrimSuffix(mocks.URL(name), "/"+name), newTally())
			w := &worker{member: member{id: "a", class: validator, model: model}}
			if err := w.through(d, streams); err != nil {
				t.Fatal(err)
			}
			if name == provider.OpenAI {
				d.base += "/openai"
			}
			used, err := d.call(t.Context(), w, job{number: 3, prompt: 100, output: 20, cap: 64}, time.Minute)
			if err != nil || used != 120 {
				t.Errorf("%s, stream %v: %d tokens, %v", name, streams, used, err)
			}
			d.close()
		}
	}
	var s Summary
	s.books(mocks, ScaleFor(25*time.Second, time.Now()))
	if s.Failovers != 1 { // all eight calls have one trace
		t.Errorf("%+v", s)
	}
}

func TestDisturbancesComeAndGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		scale := ScaleFor(25*time.Second, time.Now())
		mocks, err := mockprovider.New(scale.MockOptions())
		if err != nil {
			t.Fatal(err)
		}
		var live strings.Builder
		r := &run{Options: Options{Mocks: mocks, Scale: scale, Live: &live, For: 12500 * time.Millisecond}, began: time.Now()}
		r.disturb(t.Context()) // the run is half as long: all comes twice as fast, and the next wave is not waited for
		for _, words := range []string{"   1s  openai is down", "   3s  openai is well again", "   7s  gemini throttles", "   8s  gemini is well again"} {
			if !strings.Contains(live.String(), words) {
				t.Errorf("%q is not in\n%s", words, live.String())
			}
		}
		if took := time.Since(r.began); took != 8*time.Second {
			t.Errorf("it ended after %v", took)
		}
	})
}

func TestWhoGoesThroughTheGateway(t *testing.T) {
	t.Parallel()
	paths := map[string]int{}
	for i, m := range fleet() {
		if i%4 >= 2 {
			continue
		}
		w := &worker{member: m}
		if err := w.through(nil, i%4 == 1); err != nil {
			t.Fatal(err)
		}
		path, _, _ := strings.Cut(w.path, "?")
		paths[path+" "+w.asks]++
	}
	for _, want := range []string{
		"/v1/chat/completions chat", "/v1/chat/completions code", "/v1/chat/completions facts", "/mistral/v1/chat/completions mistral-small-2603",
		"/gemini/v1beta/models/gemini-3.5-flash:generateContent gemini-3.5-flash",
	} {
		if paths[want] == 0 {
			t.Errorf("nobody goes %s: %v", want, paths)
		}
	}
}

func TestDetailIsFoundInEveryDialect(t *testing.T) {
	t.Parallel()
	for _, name := range []string{provider.OpenAI, provider.Anthropic, provider.Gemini, provider.Mistral} {
		d, _ := provider.Lookup(name)
		body := d.ErrorBody(provider.Problem{Status: 429, Kind: provider.RateLimited, Message: "no", Detail: []byte(`{"reason":"tpm"}`)})
		if detail(body).Get("reason").Str != "tpm" {
			t.Errorf("%s: %s", name, gjson.ParseBytes(body))
		}
	}
}
