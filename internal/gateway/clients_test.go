package gateway_test

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/token-budget-arbiter/tba/internal/mockprovider"
	"github.com/token-budget-arbiter/tba/internal/provider"
)

// clientTimeout bounds one call of an SDK with its retries and waits. The longest that a refusal may cost is two waits of at most 5 s.
const clientTimeout = 60

// clientScenario is something that happens to a call, and what must come of it.
type clientScenario struct {
	name string
	// set changes a plain call; nil leaves it plain.
	set func(s *clientSDK, c *clientCall)
	// server is the gateway that it goes to: "draining", "strict"; "" is main.
	server string
	// status is what the SDK must report, for each dialect its own where it differs; 0: the call succeeds.
	status     int
	statusesOf map[string]int
	// calls are the requests that may reach the gateway, by habit.
	calls map[clientHabit]int
	// succeeds are the habits that come through in the end although they were refused at first.
	succeeds []clientHabit
	// eager turns on the retries of those who have them off. They read no x-should-retry: status alone must stop them.
	eager bool
	// upstream is how many calls may reach a provider; -1: as many as reached the gateway.
	upstream int
	// broken is an answer that began: the SDK reports an error of whatever type, or nothing and the driver sees the cut.
	broken bool
}

// askedOnce is for a refusal that is final, askedThrice for one that clears: two retries.
var (
	askedOnce   = map[clientHabit]int{obeys: 1, quiet: 1, deafly: 1}
	askedThrice = map[clientHabit]int{obeys: 3, quiet: 1, deafly: 3}
	// lastingly is for a 429 that x-should-retry says to leave. The ai package does not read it.
	lastingly = map[clientHabit]int{obeys: 1, quiet: 1, deafly: 3}
)

var clientQuotaStatuses = map[string]int{
	provider.OpenAI: http.StatusTooManyRequests, provider.Anthropic: http.StatusTooManyRequests,
	provider.Gemini: http.StatusForbidden, provider.Mistral: http.StatusPaymentRequired,
}

func clientSetModel(scenario string) func(*clientSDK, *clientCall) {
	return func(s *clientSDK, c *clientCall) { c.Model = clientModel(s, scenario) }
}

func clientFault(text string) func(*clientSDK, *clientCall) {
	return func(s *clientSDK, c *clientCall) {
		c.Model = clientModel(s, "rough")
		c.Headers[mockprovider.FaultHeader] = text
	}
}

func clientStreams(set func(*clientSDK, *clientCall)) func(*clientSDK, *clientCall) {
	return func(s *clientSDK, c *clientCall) { set(s, c); c.Op = "stream" }
}

// clientOwn sends the call to a provider of the SDK's own: what happens there closes all of the account's rungs.
func clientOwn(name string, s *clientSDK, c *clientCall) {
	c.Model = clientModel(s, name)
	if s.dialect == provider.Mistral { // its path is pinned to one provider
		c.BaseURL = strings.TrimSuffix(c.BaseURL, s.base) + "/" + clientModel(s, name)
	}
}

func clientSpent(_ *clientSDK, c *clientCall) { c.Headers["x-tba-agent"] = clientSpentAgent }

// clientWaitsNot makes the gateway answer at once where it would rather wait for room.
func clientWaitsNot(set func(*clientSDK, *clientCall)) func(*clientSDK, *clientCall) {
	return func(s *clientSDK, c *clientCall) { set(s, c); c.Headers["x-tba-max-wait-ms"] = "0" }
}

var clientScenarios = []clientScenario{
	{name: "budget", set: clientSpent, statusesOf: clientQuotaStatuses, calls: lastingly},
	{name: "budget_stream", set: clientStreams(clientSpent), statusesOf: clientQuotaStatuses, calls: lastingly},
	{name: "budget_403", set: clientSpent, server: "strict", status: http.StatusForbidden, calls: askedOnce},
	{name: "budget_eager", set: clientSpent, statusesOf: clientQuotaStatuses, calls: askedOnce, eager: true},
	{name: "soon", set: clientWaitsNot(clientSetModel("busy")), status: http.StatusTooManyRequests, calls: askedThrice},
	{name: "soon_stream", set: clientStreams(clientWaitsNot(clientSetModel("busy"))), status: http.StatusTooManyRequests, calls: askedThrice},
	{
		name: "freed", set: clientWaitsNot(clientSetModel("freed")), status: http.StatusTooManyRequests, upstream: -1,
		calls: map[clientHabit]int{obeys: 2, quiet: 1, deafly: 2}, succeeds: []clientHabit{obeys, deafly},
	},
	{name: "later", set: clientWaitsNot(clientSetModel("daily")), status: http.StatusTooManyRequests, calls: lastingly},
	{name: "too_large", set: func(s *clientSDK, c *clientCall) { c.Model, c.MaxTokens = clientModel(s, "small"), 4000 }, status: http.StatusBadRequest, calls: askedOnce},
	{name: "too_large_eager", set: func(s *clientSDK, c *clientCall) { c.Model, c.MaxTokens = clientModel(s, "small"), 4000 }, status: http.StatusBadRequest, calls: askedOnce, eager: true},
	{name: "class", set: func(_ *clientSDK, c *clientCall) { c.Headers["x-tba-class"] = clientClosedClass }, status: http.StatusForbidden, calls: askedOnce},
	{name: "class_eager", set: func(_ *clientSDK, c *clientCall) { c.Headers["x-tba-class"] = clientClosedClass }, status: http.StatusForbidden, calls: askedOnce, eager: true},
	{name: "key", set: func(_ *clientSDK, c *clientCall) { c.Key = "a-key-that-nobody-has-ever-issued" }, status: http.StatusUnauthorized, calls: askedOnce},
	{name: "unavailable", server: "draining", status: http.StatusServiceUnavailable, calls: askedThrice},
	{name: "upstream_500", set: clientFault("status=500"), status: http.StatusInternalServerError, calls: askedThrice, upstream: -1},
	{name: "upstream_400", set: clientFault("status=400"), status: http.StatusBadRequest, calls: askedOnce, upstream: -1},
	{name: "upstream_exhausted", status: -1, calls: lastingly, upstream: 1, set: func(s *clientSDK, c *clientCall) {
		clientOwn("drained", s, c)
		c.Headers[mockprovider.FaultHeader] = "exhausted"
	}},
	// The gateway waits in the SDK's place.
	{name: "upstream_throttled", calls: askedOnce, upstream: 2, set: func(s *clientSDK, c *clientCall) {
		c.Model = clientModel(s, "held")
		c.Headers[mockprovider.FaultHeader] = "throttle;wait=1s;times=1;id=" + c.ID
	}},
	// Some SDKs would sleep for the hour, others would not wait at all.
	{name: "upstream_hour", status: http.StatusTooManyRequests, calls: lastingly, upstream: 1, set: func(s *clientSDK, c *clientCall) {
		clientOwn("sleepy", s, c)
		c.Headers[mockprovider.FaultHeader] = "throttle;wait=1h"
	}},
	{name: "cut", set: clientStreams(clientFault("cut=700")), status: -1, calls: askedOnce, upstream: 1, broken: true},
	{name: "error_mid", set: clientStreams(clientFault("error_mid=6")), status: -1, calls: askedOnce, upstream: 1, broken: true},
	{name: "failover", calls: askedOnce, upstream: 2, set: func(s *clientSDK, c *clientCall) {
		c.Model = clientLadder(s)
		c.Headers[mockprovider.FaultHeader] = "status=503;times=1;id=" + c.ID
	}},
	{name: "failover_stream", calls: askedOnce, upstream: 2, set: func(s *clientSDK, c *clientCall) {
		c.Model, c.Op = clientLadder(s), "stream"
		c.Headers[mockprovider.FaultHeader] = "error_first;times=1;id=" + c.ID
	}},
}

// clientErrorTypes are the names that each SDK gives to the error of a status, by "language-sdk".
func clientErrorTypes(s *clientSDK, status int) []string {
	named := map[int]string{
		400: "BadRequestError", 401: "AuthenticationError", 403: "PermissionDeniedError", 429: "RateLimitError", 500: "InternalServerError", 503: "InternalServerError",
	}
	switch s.String() {
	case "go-openai":
		return []string{"*openai.Error"}
	case "go-anthropic":
		return []string{"*anthropic.Error"}
	case "go-genai":
		return []string{"genai.APIError"}
	case "python-genai":
		if status >= 500 {
			return []string{"genai.ServerError"}
		}
		return []string{"genai.ClientError"}
	case "node-genai":
		return []string{"genai.ApiError"}
	case "python-mistral", "node-mistral":
		return []string{"mistral.SDKError"}
	case "node-ai", "node-ai_compatible":
		return []string{"ai.APICallError", "ai.RetryError"}
	}
	if s.name == "anthropic" && status == 503 {
		return []string{"anthropic.ServiceUnavailableError", "anthropic.InternalServerError"}
	}
	kinds := []string{s.name + "." + named[status]}
	if s.name == "anthropic" && status == http.StatusTooManyRequests {
		kinds = append(kinds, "anthropic.EnforcedSpendLimitReachedError") // a RateLimitError, by the code in the body
	}
	return kinds
}

func (c *clientScenario) statusOf(s *clientSDK) int {
	if n, ok := c.statusesOf[s.dialect]; ok {
		return n
	}
	return c.status
}

func (c *clientScenario) failsFor(s *clientSDK) bool {
	return (c.status != 0 || c.statusesOf != nil) && !slices.Contains(c.succeeds, s.habit)
}

// applies says whether the scenario is one for this SDK.
func (c *clientScenario) applies(s *clientSDK) bool { return !c.eager || s.habit == quiet }

// clientCase is one call of one SDK.
type clientCase struct {
	sdk      *clientSDK
	scenario *clientScenario // nil: an operation that must succeed
	call     clientCall
	direct   bool // without a gateway: what the same call gets from the provider itself
}

// newCase is a plain call of op. The same call to the provider itself gets the same answer: its length is told in a header.
func (w *clientWorld) newCase(s *clientSDK, id, op string) *clientCase {
	c := &clientCase{sdk: s}
	c.call = clientCall{
		ID: id, SDK: s.name, Op: op, BaseURL: w.main.URL + s.base, Key: clientAgentKey, Model: "any-" + s.dialect, MaxTokens: 64, TimeoutS: clientTimeout,
		Headers: map[string]string{
			"traceparent": clientTraceparent(id), "x-tba-task": id, "x-tba-class": clientOpenClass, mockprovider.OutputHeader: "40",
		},
	}
	return c
}

func (w *clientWorld) cases() (list []*clientCase) {
	for _, s := range clientSDKs {
		for _, op := range s.ops {
			c := w.newCase(s, s.String()+"."+op, op)
			d := w.newCase(s, s.String()+"."+op+".direct", op)
			d.direct, d.call.Key, d.call.BaseURL = true, clientProviderKey+s.dialect, w.mocks.URL(s.dialect)
			if s.dialect == provider.OpenAI {
				d.call.BaseURL += "/v1"
			}
			list = append(list, c, d)
		}
		for i := range clientScenarios {
			sc := &clientScenarios[i]
			if !sc.applies(s) {
				continue
			}
			c := w.newCase(s, s.String()+"."+sc.name, "plain")
			c.scenario, c.call.Retries = sc, sc.eager
			switch sc.server {
			case "draining":
				c.call.BaseURL = w.draining.URL + s.base
			case "strict":
				c.call.BaseURL = w.strict.URL + s.base
			}
			if sc.set != nil {
				sc.set(s, &c.call)
			}
			list = append(list, c)
		}
	}
	return list
}

// TestClients makes every official SDK do what it can through the gateway: calls that succeed, with the usage that it sees on the books,
// and calls that are refused, for which it counts how often the SDK asks.
func TestClients(t *testing.T) {
	if os.Getenv("TBA_SKIP_CLIENTS") == "1" {
		t.Skip("TBA_SKIP_CLIENTS=1")
	}
	t.Parallel()
	w := newClientWorld(t)
	w.use(t, clientSpentAgent, "any-"+provider.OpenAI, clientSpentLimit/2)
	w.use(t, clientSpentAgent, "any-"+provider.OpenAI, clientSpentLimit/2-10)
	calls := map[string][]clientCall{}
	cases := w.cases()
	for _, c := range cases {
		calls[c.sdk.language] = append(calls[c.sdk.language], c.call)
	}
	for _, s := range clientSDKs {
		w.use(t, "somebody", clientModel(s, "daily"), 10)
		w.take(t, "somebody", clientModel(s, "busy"), 10)
		freed := w.take(t, "somebody", clientModel(s, "freed"), 10)
		w.door.after[clientTrace(s.String()+".freed")] = func() { w.giveBack(freed) }
	}
	results := runClients(t, calls)
	w.settle(t)
	bills, upstream := w.billed()
	tasks, open := w.spent(t)
	if open != len(clientSDKs) { // those of busy
		t.Errorf("%d leases are open, want %d", open, len(clientSDKs))
	}
	for _, c := range cases {
		if c.direct {
			continue
		}
		t.Run(strings.ReplaceAll(c.call.ID, ".", "/"), func(t *testing.T) {
			r := results[c.call.ID]
			if r == nil {
				t.Fatal("the driver gave no result")
			}
			visits := w.door.of(c.call.ID)
			bill := bills[clientTrace(c.call.ID)]
			if c.scenario == nil {
				c.succeeded(t, r, results[c.call.ID+".direct"], bill, tasks[c.call.ID])
				if len(visits) != 1 {
					t.Errorf("%d requests reached the gateway, want 1", len(visits))
				}
				return
			}
			t.Logf("%s", clientRow(r, visits, upstream[clientTrace(c.call.ID)]))
			c.turnedOut(t, r, visits, upstream[clientTrace(c.call.ID)], bill, tasks[c.call.ID])
		})
	}
}

// clientRow is one line for the table in docs/gateway.md.
func clientRow(r *clientResult, visits []clientVisit, upstream int) string {
	outcome := "ok"
	if r.Error != nil {
		outcome = fmt.Sprintf("%s %d %q %q", r.failure(), r.Error.Status, r.Error.Code, r.Error.Message)
	}
	var hints []string
	for _, v := range visits {
		hints = append(hints, fmt.Sprintf("%d retry=%s after=%s", v.status, v.header.Get("X-Should-Retry"), v.header.Get("Retry-After")))
	}
	return fmt.Sprintf("%d requests (%s), %d upstream, %d ms: %s", len(visits), strings.Join(hints, "; "), upstream, r.ElapsedMS, outcome)
}

// succeeded checks a call against the same call without a gateway, and the three books against each other.
func (c *clientCase) succeeded(t *testing.T, r, direct *clientResult, bill mockprovider.Bill, task int64) {
	t.Helper()
	if direct == nil || !direct.OK {
		t.Fatalf("the call without a gateway failed: the driver or the mock is at fault: %+v", direct)
	}
	if !r.OK {
		t.Fatalf("%s %d %q: %s", r.failure(), r.Error.Status, r.Error.Code, r.Error.Message)
	}
	if r.Text != direct.Text || r.Vectors != direct.Vectors || (r.Tool == nil) != (direct.Tool == nil) {
		t.Errorf("the answer is not that of the provider itself:\n%+v\n%+v", r, direct)
	}
	switch op := c.call.Op; {
	case strings.Contains(op, "tools"):
		if r.Tool == nil || r.Tool.Name != "weather" || len(r.Tool.Arguments) == 0 {
			t.Errorf("tool call %+v, want weather with arguments", r.Tool)
		}
	case op == "embed":
		if r.Vectors == 0 {
			t.Error("no vectors")
		}
	case op == "count":
		if r.Usage == nil || r.Usage.Input == 0 {
			t.Error("no count")
		}
		if task != 0 || bill != (mockprovider.Bill{}) {
			t.Errorf("a count is free: billed %+v, booked %d", bill, task)
		}
		return
	case r.Text == "":
		t.Error("no text")
	}
	if c.call.Op == "stream_no_usage" {
		if r.Usage != nil {
			t.Errorf("usage %+v for a caller that did not ask for it", r.Usage)
		}
	} else if r.Usage != nil && (r.Usage.Input != bill.Input || r.Usage.Output != bill.Output) {
		t.Errorf("the SDK says %+v, the provider billed %+v", *r.Usage, bill)
	} else if r.Usage == nil && c.sdk.dialect != provider.Gemini {
		t.Error("the SDK tells no usage")
	}
	if total := bill.Input + bill.Output; total == 0 || task != total {
		if c.call.Op == "embed" && c.sdk.dialect == provider.Gemini && task > 0 {
			return // Gemini tells no usage for embeddings: an estimate is booked
		}
		t.Errorf("booked %d, the provider billed %+v", task, bill)
	}
}

// turnedOut checks a call to which something happened.
func (c *clientCase) turnedOut(t *testing.T, r *clientResult, visits []clientVisit, upstream int, bill mockprovider.Bill, task int64) {
	t.Helper()
	sc := c.scenario
	if want := sc.calls[c.sdk.habit]; len(visits) != want {
		t.Errorf("%d requests reached the gateway, want %d", len(visits), want)
	}
	clientWaited(t, c.sdk, visits)
	most := sc.upstream
	if most < 0 {
		most = len(visits)
		if len(sc.succeeds) > 0 {
			most = 1
		}
	}
	if upstream > most {
		t.Errorf("%d calls reached a provider, want at most %d", upstream, most)
	}
	if !sc.failsFor(c.sdk) {
		if !r.OK || r.Text == "" {
			t.Fatalf("the call failed: %s %+v", r.failure(), r.Error)
		}
		if upstream != max(sc.upstream, 1) {
			t.Errorf("%d calls reached a provider, want %d", upstream, max(sc.upstream, 1))
		}
		if total := bill.Input + bill.Output; task < total {
			t.Errorf("booked %d, the providers billed %+v", task, bill)
		}
		return
	}
	if r.OK {
		t.Fatalf("the call succeeded: %+v", r)
	}
	if r.failure() == "driver timeout" {
		t.Fatalf("the SDK was still waiting after %d s", clientTimeout)
	}
	if sc.broken {
		if total := bill.Input + bill.Output; task <= bill.Input || task == 0 {
			t.Errorf("booked %d for a stream that was cut, the provider billed %+v (%d)", task, bill, total)
		}
		return
	}
	want := sc.statusOf(c.sdk)
	if want < 0 {
		want = visits[0].status
	}
	if r.Error.Status != want {
		t.Errorf("the SDK reports status %d, want %d", r.Error.Status, want)
	}
	kind, _, _ := strings.Cut(r.failure(), " ")
	if types := clientErrorTypes(c.sdk, want); want != http.StatusPaymentRequired && !slices.Contains(types, kind) {
		t.Errorf("the SDK raises %s, want one of %v", kind, types)
	}
	if origin := visits[0].header.Get("X-Tba-Origin"); (origin == "arbiter") != (sc.upstream == 0 || len(sc.succeeds) > 0) {
		t.Errorf("the refusal says that it is of the %q", origin)
	}
	if upstream == 0 && task != 0 {
		t.Errorf("booked %d for a call that never went up", task)
	}
}

// clientWaited checks that an SDK which reads Retry-After came back no earlier than it was told. That holds on a machine of any speed.
func clientWaited(t *testing.T, s *clientSDK, visits []clientVisit) {
	t.Helper()
	if s.habit == quiet {
		return
	}
	for i := 1; i < len(visits); i++ {
		told := visits[i-1].header.Get("Retry-After-Ms")
		ms, err := strconv.ParseFloat(told, 64)
		if err != nil {
			continue
		}
		const grain = 2 * time.Millisecond // timers of Node end up to a millisecond early
		if gap := visits[i].came.Sub(visits[i-1].came) + grain; gap < time.Duration(ms*float64(time.Millisecond)) {
			t.Errorf("request %d came after %v, it was told to wait %s ms", i+1, gap, told)
		}
	}
}
