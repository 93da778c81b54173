package gateway

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/identity"
	"github.com/token-budget-arbiter/tba/internal/provider"
)

const (
	fleetKey = "fleet-0123456789abcdef"
	freeKey  = "free-0123456789abcdef"
	readKey  = "read-0123456789abcdef"
)

// testIdentifier has a key bound to pool p and class batch, one that is bound to nothing, and one that may only read.
func testIdentifier(t testing.TB) *identifier {
	t.Helper()
	ring, err := identity.NewKeyring([]identity.Key{
		{Name: "fleet", Secret: fleetKey, Pool: "p", Classes: []string{"batch"}},
		{Name: "free lance", Secret: freeKey, HasCeiling: true, MaxPriority: arbiter.High},
		{Name: "reader", Secret: readKey, Role: identity.RoleReader},
	})
	if err != nil {
		t.Fatal(err)
	}
	policy := &arbiter.Policy{Classes: []arbiter.Class{{Name: "default"}, {Name: "batch"}, {Name: "chat", Priority: arbiter.Medium}}}
	return &identifier{
		keys: func() *identity.Keyring { return ring }, policy: func(string) *arbiter.Policy { return policy }, maxWait: 30 * time.Second,
	}
}

// request is a call with these headers, "name: value" each.
func request(headers ...string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1/v1/chat/completions", nil)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	return r
}

func describe(a *Ask) string {
	priority := "-"
	if a.Priority != arbiter.ClassPriority {
		priority = a.Priority.String()
	}
	return fmt.Sprintf("%s/%s/%s/%s/%s/%s/%s/%v/%v", a.Pool, a.Agent, a.Class, a.Task, a.Workflow, a.Parent, priority, a.MaxWait, a.Deadline)
}

func TestIdentify(t *testing.T) {
	t.Parallel()
	i := testIdentifier(t)
	fleet, free := "Authorization: Bearer "+fleetKey, "x-api-key: "+freeKey
	const lease = "01JABCDEFGHJKMNPQRSTVWXYZ0"
	for _, test := range []struct {
		headers []string
		want    string // describe, or "status reason"
	}{
		{[]string{fleet}, "p/fleet/batch////-/30s/0s"},
		{[]string{free}, "default/free-lance/default////LOW/30s/0s"},
		{[]string{free, "x-tba-agent: a-1", "x-tba-class: chat", "x-tba-task: t", "x-tba-workflow: w", "x-tba-priority: Critical", "x-tba-pool: q"}, "q/a-1/chat/t/w//HIGH/30s/0s"},
		{[]string{free, "x-tba-class: chat", "x-tba-priority: low"}, "default/free-lance/chat////LOW/30s/0s"},
		{[]string{fleet, "x-tba-priority: critical"}, "p/fleet/batch////LOW/30s/0s"},
		{[]string{fleet, "x-tba-parent: " + lease}, "p/fleet/batch///" + lease + "/-/30s/0s"},
		{[]string{fleet, "x-tba-max-wait-ms: 250", "x-tba-deadline-ms: 60000"}, "p/fleet/batch////-/250ms/1m0s"},
		{[]string{fleet, "x-tba-max-wait-ms: 0"}, "p/fleet/batch////-/0s/0s"},
		{[]string{fleet, "x-tba-max-wait-ms: 3600000"}, "p/fleet/batch////-/30s/0s"},
		{[]string{fleet, "x-tba-deadline-ms: 2000"}, "p/fleet/batch////-/2s/2s"},
		{[]string{fleet, "X-Stainless-Timeout: 20"}, "p/fleet/batch////-/15s/0s"},
		{[]string{fleet, "X-Stainless-Read-Timeout: 3.5"}, "p/fleet/batch////-/0s/0s"},
		{[]string{fleet, "X-Server-Timeout: 600"}, "p/fleet/batch////-/30s/0s"},
		{[]string{fleet, "X-Stainless-Timeout: None"}, "p/fleet/batch////-/30s/0s"},
		{[]string{fleet, "baggage: user=alice, tba.agent=crawler-7;p=1,tba.task=a%2Db , broken,%%=x", "baggage: tba.workflow=w9"}, "p/crawler-7/batch/a-b/w9//-/30s/0s"},
		{[]string{fleet, "baggage: tba.agent=other", "x-tba-agent: mine"}, "p/mine/batch////-/30s/0s"},

		{nil, "401 no_credential"},
		{[]string{"Authorization: Bearer sk-provider-key-of-somebody"}, "401 bad_credential"},
		{[]string{"x-goog-api-key: " + readKey}, "403 role"},
		{[]string{fleet, "x-tba-class: chat"}, "403 class_not_allowed"},
		{[]string{fleet, "x-tba-pool: q"}, "403 pool_not_allowed"},
		{[]string{fleet, "x-tba-agent: two words"}, "400 bad_header x-tba-agent"},
		{[]string{fleet, "x-tba-task: " + strings.Repeat("x", 129)}, "400 bad_header x-tba-task"},
		{[]string{fleet, "x-tba-priority: urgent"}, "400 bad_header x-tba-priority"},
		{[]string{fleet, "x-tba-deadline-ms: 0"}, "400 bad_header x-tba-deadline-ms"},
		{[]string{fleet, "x-tba-max-wait-ms: 1.5"}, "400 bad_header x-tba-max-wait-ms"},
		{[]string{fleet, "x-tba-max-wait-ms: -1"}, "400 bad_header x-tba-max-wait-ms"},
		{[]string{fleet, "x-tba-parent: 17"}, "400 bad_header x-tba-parent"},
		{[]string{fleet, "baggage: tba.agent=a%20b"}, "400 bad_header baggage tba.agent"},
	} {
		a, f := i.asks(request(test.headers...), nil)
		got := ""
		if f != nil {
			got = fmt.Sprintf("%d %s", f.status, f.detail.Reason)
			if f.detail.Reason == "bad_header" {
				name, _, _ := strings.Cut(f.message, ":")
				got += " " + name
			}
		} else {
			got = describe(a)
		}
		if got != test.want {
			t.Errorf("%q: %s, want %s", test.headers, got, test.want)
		}
		if f != nil && strings.Contains(f.message, "sk-provider") {
			t.Errorf("%q prints the credential", f.message)
		}
	}
}

// TestEveryCredentialSlot asserts that each SDK may send the agent's key where it sends the provider's.
func TestEveryCredentialSlot(t *testing.T) {
	t.Parallel()
	i := testIdentifier(t)
	for _, header := range []string{"Authorization: Bearer " + fleetKey, "X-Api-Key: " + fleetKey, "X-Goog-Api-Key: " + fleetKey, "Api-Key: " + fleetKey} {
		if a, f := i.asks(request(header), nil); f != nil || a.Caller.Name != "fleet" || a.Key != fleetKey {
			t.Errorf("%s: %+v, %+v", header, a, f)
		}
	}
	r := httptest.NewRequest(http.MethodPost, "/gemini/v1beta/models/m:generateContent?key="+fleetKey, nil)
	if a, f := i.asks(r, nil); f != nil || a.Caller.Name != "fleet" {
		t.Errorf("query: %+v, %+v", a, f)
	}
}

// TestWithoutKeys asserts that an open gateway serves this machine and no page of somebody else's.
func TestWithoutKeys(t *testing.T) {
	t.Parallel()
	i := &identifier{policy: func(string) *arbiter.Policy { return nil }, maxWait: time.Second}
	a, f := i.asks(request("Authorization: Bearer sk-whatever"), nil)
	if f != nil || a.Caller != identity.Local || describe(a) != "default/gateway/default////-/1s/0s" {
		t.Errorf("%+v, %+v", a, f)
	}
	r := request()
	r.Host = "rebound.example.com"
	if _, f := i.asks(r, nil); f == nil || f.status != 403 {
		t.Errorf("foreign host: %+v", f)
	}
	i.policy = nil
	if a, f = i.asks(request("x-tba-priority: critical"), nil); f != nil || a.Pool != "" || a.Class != "" || a.Priority != arbiter.Critical {
		t.Errorf("remote: %+v, %+v: what was not said is the arbiter's to fill in", a, f)
	}
	for at, status := range map[string]int{"127.0.0.1": 403, "192.0.2.1": 0} {
		r := r.WithContext(context.WithValue(t.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.ParseIP(at), Port: 80}))
		if _, f := i.asks(r, nil); (f == nil) != (status == 0) {
			t.Errorf("remote, foreign host at %s: %+v, want %d", at, f, status)
		}
	}
}

// TestFailedAuthentications asserts that who guesses keys is slowed down, and who has one is not.
func TestFailedAuthentications(t *testing.T) {
	t.Parallel()
	i := testIdentifier(t)
	i.failed = identity.NewAddresses(1e-3, 2, true)
	for n := range 4 {
		_, f := i.asks(request("Authorization: Bearer guess-number-123456"), nil)
		if want := map[bool]int{true: 401, false: 429}[n < 2]; f == nil || f.status != want {
			t.Fatalf("guess %d: %+v, want %d", n, f, want)
		}
	}
	if _, f := i.asks(request("Authorization: Bearer "+fleetKey), nil); f != nil {
		t.Errorf("the right key: %+v", f)
	}
}

func TestPatience(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		headers  []string
		patience time.Duration
		retried  bool
	}{
		{nil, 0, false},
		{[]string{"X-Stainless-Retry-Count: 0", "X-Stainless-Timeout: 600"}, 10 * time.Minute, false},
		{[]string{"X-Stainless-Retry-Count: 2"}, 0, true},
		{[]string{"x-stainless-read-timeout: 60.0", "x-server-timeout: 30"}, 30 * time.Second, false},
		{[]string{"X-Stainless-Timeout: NaN"}, 0, false},
		{[]string{"X-Stainless-Timeout: -4"}, 0, false},
		{[]string{"X-Stainless-Timeout: 1e300"}, 0, false},
		{[]string{"X-Stainless-Retry-Count: many"}, 0, false},
	} {
		if patience, retried := patienceOf(request(test.headers...).Header); patience != test.patience || retried != test.retried {
			t.Errorf("%q: %v %v, want %v %v", test.headers, patience, retried, test.patience, test.retried)
		}
	}
}

func TestCompat(t *testing.T) {
	t.Parallel()
	all := []string{"x-portkey-metadata", "Helicone-User-Id", "x-litellm-tags", "user"}
	for _, test := range []struct {
		words   []string
		headers []string
		user    string
		want    string // agent/task/workflow
	}{
		{nil, []string{"Helicone-User-Id: h"}, "u", "gateway//"},
		{all, []string{`x-portkey-metadata: {"_user":"alice@example.com","task":"t1","session_id":42}`, "Helicone-User-Id: h"}, "u", "alice-example.com/t1/42"},
		{all, []string{`x-portkey-metadata: {"agent":"a","_user":"alice"}`}, "", "a//"},
		{all, []string{`x-portkey-metadata: {"_user":{"x":1}} trailing`}, "u", "u//"},
		{all, []string{"Helicone-User-Id: bob", "Helicone-Session-Id: s/1", "Helicone-Property-Task: summary"}, "u", "bob/summary/s-1"},
		{all, []string{"Helicone-User-Id: bob", "Helicone-Property-Agent: planner", "Helicone-Property-Workflow: trip"}, "", "planner//trip"},
		{all, []string{"x-litellm-tags: prod, agent:crawler, task=t2,workflow: w 1 ,:,=x"}, "", "crawler/t2/w-1"},
		{all, []string{"x-litellm-tags: agent:crawler", "x-tba-agent: mine"}, "u", "mine//"},
		{all, nil, "user_abc_account_1-2_session_9-8", "user_abc_account_1-2//9-8"},
		{all, nil, `{"device_id":"d","account_uuid":"acc","session_id":"ses"}`, "acc//ses"},
		{all, nil, "\xff\xfe", "gateway//"},
		{[]string{"user"}, []string{"Helicone-User-Id: h"}, "u", "u//"},
	} {
		i := &identifier{compat: compatOf(test.words)}
		a, f := i.asks(request(test.headers...), &provider.Call{User: test.user})
		if f != nil {
			t.Errorf("%q: %+v", test.headers, f)
			continue
		}
		if got := a.Agent + "/" + a.Task + "/" + a.Workflow; got != test.want {
			t.Errorf("%q %q: %s, want %s", test.headers, test.user, got, test.want)
		}
	}
}

func TestCleanID(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 200)
	for s, want := range map[string]string{"": "", " ok ": "ok", "a b/c": "a-b-c", "///": ""} {
		if got := cleanID(s); got != want {
			t.Errorf("%q: %q, want %q", s, got, want)
		}
	}
	one, two := cleanID(strings.Repeat("x", 200)+"1"), cleanID(strings.Repeat("x", 200)+"2")
	if one == two || len(one) != identity.MaxID || !identity.ValidID(one) || !identity.ValidID(cleanID(long+"x")) {
		t.Errorf("long names: %q, %q, %q", one, two, cleanID(long+"x"))
	}
}

func TestTraceOf(t *testing.T) {
	t.Parallel()
	const id = "4bf92f3577b34da6a3ce929d0e0e4736"
	for header, want := range map[string]string{
		"00-" + id + "-00f067aa0ba902b7-01": id, "01-" + id + "-00f067aa0ba902b7-01-more": id,
		"": "", "00-" + id: "", "ff-" + id + "-00f067aa0ba902b7-01": "", "00-" + strings.Repeat("0", 32) + "-00f067aa0ba902b7-01": "",
		"00-" + strings.ToUpper(id) + "-00f067aa0ba902b7-01": "", "00-" + id + "-00f067aa0ba902b7-01-more": "",
	} {
		h := http.Header{"Traceparent": {header}}
		if got := traceOf(h); got != want {
			t.Errorf("%q: %q, want %q", header, got, want)
		}
	}
}

// FuzzIdentify asserts that whatever a stranger sends makes valid ids or a refusal.
func FuzzIdentify(f *testing.F) {
	f.Add("crawler-7", "tba.agent=x,tba.task=%41", `{"_user":"u"}`, "agent:a", "user_x_session_y", "600")
	f.Add("\x00", "tba.=,=,;;", "{", ",,:", "{}", "1e9")
	i := &identifier{compat: compatOf([]string{"x-portkey-metadata", "helicone-user-id", "x-litellm-tags", "user"}), maxWait: time.Minute}
	f.Fuzz(func(t *testing.T, agent, baggage, portkey, tags, user, timeout string) {
		r := request()
		r.Header["X-Tba-Agent"], r.Header["Baggage"] = []string{agent}, []string{baggage}
		r.Header["X-Portkey-Metadata"], r.Header["X-Litellm-Tags"], r.Header["X-Stainless-Timeout"] = []string{portkey}, []string{tags}, []string{timeout}
		a, refused := i.asks(r, &provider.Call{User: user})
		if refused != nil {
			if refused.status < 400 || refused.status > 499 {
				t.Fatalf("%+v", refused)
			}
			return
		}
		for _, id := range []string{a.Agent, a.Class, a.Task, a.Workflow, a.Pool} {
			if !identity.ValidID(id) {
				t.Fatalf("%q is no id", id)
			}
		}
		if a.Agent == "" || a.MaxWait < 0 || a.MaxWait > time.Minute {
			t.Fatalf("%+v", a)
		}
	})
}

// asks is what a request says about who asks, from its credential on.
func (i *identifier) asks(r *http.Request, call *provider.Call) (*Ask, *refusal) {
	caller, key, f := i.caller(r)
	if f != nil {
		return nil, f
	}
	return i.identify(r, caller, key, call)
}
