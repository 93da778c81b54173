package gateway_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/token-budget-arbiter/tba/arbiter"
)

// oneTier is rungsAt with all rungs in one tier.
func oneTier(urls ...string) string {
	return strings.Replace(strings.Replace(rungsAt(urls...), "rungs: [", "tiers: [[", 1), "]}\n", "]]}\n", 1)
}

// task makes a call of a task and returns the rung's provider.
func (w *world) task(name string) string {
	w.t.Helper()
	got := w.post(chatCall.path, helloLadder, "X-Tba-Task", name)
	if got.status != http.StatusOK {
		w.t.Fatalf("%s: %d %s", name, got.status, got.body)
	}
	return got.header.Get("X-Tba-Provider")
}

// A task stays where its prompt is cached, and tasks are spread. When a rung fails its tasks go to all the others, and nobody else moves.
func TestTasksOverATier(t *testing.T) {
	t.Parallel()
	const tasks = 60
	var broken [3]atomic.Bool
	var urls []string
	for i := range broken {
		var calls atomic.Int64
		urls = append(urls, answering(t, &calls, func(n int64, w http.ResponseWriter, body string) {
			if broken[i].Load() {
				failing(500, serverError)(n, w, body)
				return
			}
			fine(n, w, body)
		}))
	}
	w := newWorld(t, setup{file: oneTier(urls...)})
	home := w.task("still")
	for n := range 50 {
		if at := w.task("still"); at != home {
			t.Fatalf("call %d of a task went to %s, those before to %s", n, at, home)
		}
	}
	spread := func() (at map[string]string, count map[string]int) {
		at, count = map[string]string{}, map[string]int{}
		for n := range tasks {
			name := fmt.Sprintf("task-%d", n)
			at[name] = w.task(name)
			count[at[name]]++
		}
		return at, count
	}
	before, count := spread()
	for i := range broken {
		if n := count[fmt.Sprintf("p%d", i)]; n < tasks/6 {
			t.Errorf("%d tasks of %d on rung %d: %v", n, tasks, i, count)
		}
	}
	broken[1].Store(true)
	after, _ := spread()
	moved := map[string]int{}
	for name, at := range after {
		switch {
		case before[name] == "p1":
			moved[at]++
		case at != before[name]:
			t.Errorf("%s left %s for %s, which did not fail", name, before[name], at)
		}
	}
	if moved["p0"] < 3 || moved["p2"] < 3 || moved["p1"] != 0 {
		t.Errorf("the tasks of the rung that failed went to %v", moved)
	}
	if w.rung("p1", "m1").Breaker != arbiter.BreakerOpen {
		t.Errorf("%+v", w.rung("p1", "m1"))
	}
	w.settled()
}

// taskRow is the row of a task in tokens.
func (w *world) taskRow(name string) (row arbiter.BudgetRow) {
	for _, r := range w.rows(arbiter.KindTask) {
		if r.Name == name && r.Unit == arbiter.UnitTokens {
			return r
		}
	}
	return row
}

const timedOutBody = `{"error":{"message":"upstream timed out","type":"server_error"}}`

// Each try is held by and booked on the task: one that may have run costs it its prompt, one that was refused nothing.
func TestEachTryIsTheTasks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		first  func(int64, http.ResponseWriter, string)
		limit  int
		status int
		spent  int64
		second int64 // calls of the second rung
	}{
		"it may have run":            {failing(504, timedOutBody), 1000, 200, prompt + 18, 1},
		"it was refused":             {failing(500, serverError), 1000, 200, 18, 1},
		"no room for a second":       {failing(504, timedOutBody), 60, 504, prompt, 0}, // 9 + 50 are held for each
		"room, as the first is free": {failing(500, serverError), 60, 200, 18, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var first, second atomic.Int64
			file := strings.Replace(rungsAt(answering(t, &first, c.first), answering(t, &second, fine)), "  providers:", fmt.Sprintf("  tasks: {default_tokens: %d}\n  providers:", c.limit), 1)
			w := newWorld(t, setup{file: file})
			got := w.post(chatCall.path, helloLadder, "X-Tba-Task", "t")
			if got.status != c.status || first.Load() != 1 || second.Load() != c.second {
				t.Errorf("%d after %d and %d calls: %s", got.status, first.Load(), second.Load(), got.body)
			}
			b := w.settled()
			if row := w.taskRow("t"); row.Spent != c.spent || row.Held != 0 || b.spent != arbiter.Tokens(c.spent) {
				t.Errorf("the task's row %+v, books %+v, want %d", row, b, c.spent)
			}
		})
	}
	t.Run("a task that is used up", func(t *testing.T) {
		t.Parallel()
		var calls atomic.Int64
		w := newWorld(t, setup{file: strings.Replace(oneProvider(answering(t, &calls, fine)), "  providers:", "  tasks: {default_tokens: 80}\n  providers:", 1)})
		for n, want := range []int{200, 200, 429} { // 59 are held, 18 are spent
			got := w.post(chatCall.path, hello, "X-Tba-Task", "t")
			if got.status != want || want == 429 && (got.header.Get("X-Should-Retry") != "false" || gjson.Get(got.body, "error.tba.budget").String() != "task/t") {
				t.Errorf("call %d: %d %v %s", n, got.status, got.header, got.body)
			}
			w.settled()
		}
		if got := w.post(chatCall.path, hello, "X-Tba-Task", "another"); got.status != http.StatusOK {
			t.Errorf("another task: %d %s", got.status, got.body)
		}
		w.settled()
	})
}

func TestTriesAreBounded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		budget, more string
		want         []int64
	}{
		"by default":         {"", "", []int64{1, 1, 0, 0}},
		"by the gateway":     {"", "gateway: {max_attempts: 3}", []int64{1, 1, 1, 0}},
		"by the pool":        {"  tasks: {max_attempts: 1}\n", "gateway: {max_attempts: 3}", []int64{1, 0, 0, 0}},
		"more than there is": {"", "gateway: {max_attempts: 9}", []int64{1, 1, 1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var calls [4]atomic.Int64
			var urls []string
			for i := range calls {
				urls = append(urls, answering(t, &calls[i], failing(500, serverError)))
			}
			w := newWorld(t, setup{file: strings.Replace(rungsAt(urls...), "  providers:", c.budget+"  providers:", 1) + c.more})
			if got := w.post(chatCall.path, helloLadder); got.status != 500 || got.body != serverError {
				t.Errorf("%d %s", got.status, got.body)
			}
			for i, want := range c.want {
				if calls[i].Load() != want {
					t.Errorf("rung %d was asked %d times, want %d", i, calls[i].Load(), want)
				}
			}
			if b := w.settled(); b.spent != 0 {
				t.Errorf("books: %+v", b)
			}
		})
	}
}

// A rung serves the paths whose dialect its provider has an endpoint for, each with the credential that goes with that endpoint.
func TestALadderOfMixedDialects(t *testing.T) {
	t.Parallel()
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("sk-ant-test"), 0o600); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var seen []string
	claude := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, strings.Join([]string{r.URL.Path, gjson.GetBytes(body, "model").String(), r.Header.Get("Authorization"), r.Header.Get("X-Api-Key")}, " "))
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/v1/messages" {
			_, _ = io.WriteString(w, `{"id":"m","type":"message","role":"assistant","model":"claude-sonnet-5","content":[],"stop_reason":"end_turn","usage":{"input_tokens":11,"output_tokens":7}}`)
			return
		}
		_, _ = io.WriteString(w, chatReply(11, 7))
	})
	var others atomic.Int64
	other := answering(t, &others, fine)
	w := newWorld(t, setup{file: fmt.Sprintf(`
budget:
  global_tokens: 1_000_000
  providers:
    anthropic: {base_url: %s, allow_private: true, api_key: {file: %s}, models: {claude-sonnet-5: {}}}
    openai: {base_url: %s/v1, allow_private: true, models: {gpt-5.4: {}}}
ladders:
  chat: {tiers: [[anthropic/claude-sonnet-5], [openai/gpt-5.4]]}
  claude: {tiers: [[anthropic/claude-sonnet-5]]}
`, claude, key, other)})
	for _, path := range []struct{ path, body, want string }{
		{chatCall.path, helloLadder, "/v1/chat/completions claude-sonnet-5 Bearer sk-ant-test "},
		{messages.path, strings.Replace(messages.body, "claude-sonnet-5", "chat", 1), "/v1/messages claude-sonnet-5  sk-ant-test"},
	} {
		got := w.post(path.path, path.body, "Authorization", "Bearer agent", "X-Api-Key", "agent")
		if got.status != http.StatusOK || got.header.Get("X-Tba-Provider") != "anthropic" {
			t.Errorf("%s: %d %s", path.path, got.status, got.body)
		}
		if mu.Lock(); len(seen) == 0 || seen[len(seen)-1] != path.want {
			t.Errorf("%s went up as %q, want %q", path.path, seen, path.want)
		}
		mu.Unlock()
	}
	// An endpoint that only the second rung has, and a dialect that none has.
	if got := w.post("/v1/embeddings", `{"model":"chat","input":"hello"}`); got.status != http.StatusOK || got.header.Get("X-Tba-Provider") != "openai" {
		t.Errorf("embeddings: %d %s", got.status, got.body)
	}
	for _, c := range []struct{ path, body string }{
		{"/gemini/v1beta/models/chat:generateContent", generate.body},
		{"/gemini/v1beta/models/claude:streamGenerateContent?alt=sse", generate.body},
		{"/v1/embeddings", `{"model":"claude","input":"hello"}`},
	} {
		got := w.post(c.path, c.body)
		if got.status < 400 || got.status >= 500 || got.header.Get("X-Tba-Origin") != "arbiter" || got.header.Get("X-Should-Retry") != "false" || !gjson.Get(got.body, "error").Exists() {
			t.Errorf("%s: %d %v %s", c.path, got.status, got.header, got.body)
		}
	}
	if len(seen) != 2 || others.Load() != 1 {
		t.Errorf("asked %q, and the other %d times", seen, others.Load())
	}
	if b := w.settled(); b.spent != 3*18 {
		t.Errorf("books: %+v", b)
	}
}
