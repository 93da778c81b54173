package gateway_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/token-budget-arbiter/tba/arbiter"
)

// measured is a world whose provider says what each call held and which cap it had, and answers with an output of choice.
type measured struct {
	*world
	output int64 // of the next answer
	held   arbiter.Tokens
	cap    int64 // that the call went up with; 0: none
}

func measure(t *testing.T, file func(url string) string) *measured {
	m := &measured{output: 10}
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		m.held = 0
		for _, row := range m.rows(arbiter.KindGlobal) {
			if row.Unit == arbiter.UnitTokens {
				m.held = arbiter.Tokens(row.Held)
			}
		}
		m.cap = gjson.GetBytes(body, "max_completion_tokens").Int()
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"model":"gpt-5.4","choices":[{"index":0,"message":{"content":"ok"},"finish_reason":"stop"}],"usage":{"prompt_tokens":%d,"completion_tokens":%d}}`, prompt, m.output)
	})
	m.world = newWorld(t, setup{file: file(up)})
	return m
}

// call makes one call and returns what it added to the budget.
func (m *measured) call(body string, headers ...string) (spent arbiter.Tokens) {
	m.t.Helper()
	before := m.settled().spent
	if got := m.post(chatCall.path, body, headers...); got.status != http.StatusOK {
		m.t.Fatalf("%d %s", got.status, got.body)
	}
	return m.settled().spent - before
}

// With `estimation.output: learned` the hold shrinks to what such calls needed; the call's own cap stays, and what a call needs above its
// hold is spent all the same, to the token.
func TestLearnedOutputShrinksTheHold(t *testing.T) {
	t.Parallel()
	m := measure(t, func(url string) string {
		return oneProvider(url, "  agent_classes: {writer: {share: 0.5}}", "estimation: {output: learned, learned_min_calls: 5, buffer: 0}")
	})
	for n := range 8 {
		if spent := m.call(hello); spent != prompt+10 {
			t.Errorf("call %d is booked at %d", n, spent)
		}
		want := arbiter.Tokens(prompt + 50)
		if n >= 5 {
			want = prompt + 11 // an eighth of a doubling is how exact it is
		}
		if m.held != want || m.cap != 50 {
			t.Errorf("call %d: held %d with a cap of %d, want %d and 50", n, m.held, m.cap, want)
		}
	}
	m.output = 50 // as long as the agent allowed
	if spent := m.call(hello); spent != prompt+50 || m.held != prompt+11 {
		t.Errorf("a long answer is booked at %d, its lease held %d", spent, m.held)
	}
	if m.call(hello, "X-Tba-Class", "writer"); m.held != prompt+50 {
		t.Errorf("another class: held %d, nothing is known of it", m.held)
	}
	short := strings.Replace(hello, "50", "5", 1) // less than what such calls need
	if m.output = 5; m.call(short) != prompt+5 || m.held != prompt+5 {
		t.Errorf("a smaller cap: held %d", m.held)
	}
}

// A call without a cap gets the default one, and that is what it may cost: learned or not.
func TestACallWithoutACapIsBounded(t *testing.T) {
	t.Parallel()
	open := strings.Replace(hello, `,"max_completion_tokens":50`, "", 1)
	for _, output := range []string{"cap", "learned"} {
		m := measure(t, func(url string) string {
			return oneProvider(url, "estimation: {output: "+output+", learned_min_calls: 2, buffer: 0, default_output: 100}")
		})
		for n := range 4 {
			m.call(open)
			want := arbiter.Tokens(prompt + 100)
			if output == "learned" && n >= 2 {
				want = prompt + 11
			}
			if m.held != want || m.cap != 100 {
				t.Errorf("%s, call %d: held %d with a cap of %d, want %d and 100", output, n, m.held, m.cap, want)
			}
		}
		twice := strings.Replace(open, "{", `{"n":2,`, 1)
		if m.call(twice); output == "cap" && m.held != prompt+200 || m.cap != 100 {
			t.Errorf("%s, two choices: held %d with a cap of %d", output, m.held, m.cap)
		}
	}
}

// The ratio that was learned enters the hold, and a call that continues another by its id teaches none.
func TestLearnedInputEntersTheHold(t *testing.T) {
	t.Parallel()
	m := measure(t, func(url string) string { return oneProvider(url, "estimation: {buffer: 0}") })
	long := strings.Replace(hello, "Say hello.", strings.Repeat("word", 996), 1) // 1,000 tokens are estimated, seven are billed
	for range 100 {
		m.call(long)
	}
	if m.held < 500+50 || m.held > 510+50 {
		t.Errorf("held %d: the ratio goes to its lower bound of a half", m.held)
	}

	r := measure(t, func(url string) string { return oneProvider(url, "estimation: {buffer: 0}") })
	for range 50 {
		if got := r.post("/v1/responses", `{"model":"gpt-5.4","previous_response_id":"resp_1","input":"`+strings.Repeat("word", 996)+`","max_output_tokens":50}`); got.status != http.StatusOK {
			t.Fatalf("%d %s", got.status, got.body)
		}
	}
	if r.call(long); r.held != 1000+50 {
		t.Errorf("held %d after calls that continue others", r.held)
	}
}
