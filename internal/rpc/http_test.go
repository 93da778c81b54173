package rpc

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
	"github.com/token-budget-arbiter/tba/internal/identity"
)

func object(t testing.TB, body string) map[string]any {
	t.Helper()
	m := map[string]any{}
	if err := json.Unmarshal([]byte(body), &m); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	return m
}

func TestJSONOverHTTP(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	for _, path := range []string{"/TokenBudgetArbiter", "/tba.v1.TokenBudgetArbiter"} {
		resp, body := w.post(t, path+"/RequestLease", `{"agent_id": "a", "agentClass": "chat", "estimated_tokens": 100}`)
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d %s", path, resp.StatusCode, body)
		}
		lease := object(t, body)
		if lease["status"] != "GRANTED" || lease["granted_tokens"] != 100.0 || lease["reason"] != "" || lease["backpressure"] != "NONE" {
			t.Errorf("default values and names: %s", body)
		}
		if cost, ok := lease["estimated_cost_nanos"].(string); !ok || cost == "0" {
			t.Errorf("64-bit integers are strings: %v", lease["estimated_cost_nanos"])
		}
		resp, body = w.post(t, path+"/CommitLease", fmt.Sprintf(`{"lease_id": %q, "actual_tokens": "90"}`, lease["lease_id"]))
		if commit := object(t, body); resp.StatusCode != http.StatusOK || commit["result"] != "RECORDED" || commit["recorded_tokens"] != "90" {
			t.Errorf("commit: %d %s", resp.StatusCode, body)
		}
	}
	for _, test := range []struct{ path, body, code, text string }{
		{"/TokenBudgetArbiter/RequestLease", `{"agent_id": "a", "estimate": 1}`, "invalid_argument", `unknown field "estimate"`},
		{"/TokenBudgetArbiter/RequestLease", ``, "invalid_argument", "the body is empty"},
		{"/TokenBudgetArbiter/RequestLease", `{`, "invalid_argument", "decode JSON"},
		{"/TokenBudgetArbiter/RequestLease", `{"agent_id": "a", "priority": "URGENT"}`, "invalid_argument", "URGENT"},
		{"/TokenBudgetArbiter/RequestLease", `{"agent_id": "a", "estimated_tokens": -4}`, "invalid_argument", "estimated_tokens: -4 is outside"},
		{"/TokenBudgetArbiter/RequestLease", `{"agent_id": "a", "estimated_tokens": 1e300}`, "invalid_argument", "decode JSON"},
		{"/TokenBudgetArbiter/ExtendLease", `{"lease_id": "01ARZ3NDEKTSV4RRFFQ69G5FAV"}`, "not_found", "no such lease"},
		{"/tba.v1.Admin/RaiseBudget", `{}`, "unimplemented", "not built yet"},
		{"/tba.v1.TokenBudgetArbiter/Explain", `{"decision_id": "1"}`, "unimplemented", "not built yet"},
	} {
		_, body := w.post(t, test.path, test.body)
		if e := object(t, body); e["code"] != test.code || !strings.Contains(fmt.Sprint(e["message"]), test.text) {
			t.Errorf("%s %s: %s", test.path, test.body, body)
		}
	}
}

func TestPlainReads(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{opts: Options{About: About{Version: "1.2.3", Journal: "memory"}}})
	w.grant(t, &tbav1.LeaseRequest{AgentId: "a", AgentClass: "chat", EstimatedTokens: 100})
	for path, want := range map[string]string{
		"status": `"1.2.3"`, "budgets": `"provider/openai"`, "providers?provider=anthropic": `"anthropic"`, "leases?agent_id=a&limit=5": `"agent_id":"a"`,
		"classes": `"batch"`, "events": `"policy"`, "usage?group_by=class": `"agent_class":"chat"`,
	} {
		resp, body := w.get(t, "/api/v1/"+path)
		if resp.StatusCode != http.StatusOK || !strings.Contains(strings.ReplaceAll(body, `": "`, `":"`), want) || resp.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %s", path, resp.StatusCode, body)
		}
	}
	for path, want := range map[string]int{"leases?limit=x": 400, "leases?colour=red": 400, "budgets?period_id=77": 404, "budgets?pool=nowhere": 400, "nothing": 404, "leases?limit=5000": 400} {
		resp, body := w.get(t, "/api/v1/"+path)
		p := object(t, body)
		if resp.StatusCode != want || resp.Header.Get("Content-Type") != "application/problem+json" || p["status"] != float64(want) || p["detail"] == "" || p["reason"] == "" {
			t.Errorf("%s: %d %s", path, resp.StatusCode, body)
		}
	}
}

// events reads Server-Sent Events: the data of each event named backpressure.
func events(t *testing.T, w *world, query string) (next func() map[string]any, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/api/v1/backpressure?"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := w.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%d %s", resp.StatusCode, resp.Header.Get("Content-Type"))
	}
	lines := bufio.NewScanner(resp.Body)
	return func() map[string]any {
			name := ""
			for lines.Scan() {
				switch line := lines.Text(); {
				case strings.HasPrefix(line, "event: "):
					name = line[len("event: "):]
				case strings.HasPrefix(line, "data: ") && name == "backpressure":
					return object(t, line[len("data: "):])
				}
			}
			t.Fatalf("stream ended: %v", lines.Err())
			return nil
		}, func() {
			cancel()
			resp.Body.Close()
		}
}

func TestSSE(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{policy: testPolicy(func(p *arbiter.Policy) { p.Global.Tokens = 1000 })})
		next, stop := events(t, w, "agent_id=a&agent_class=chat")
		defer stop()
		if e := next(); e["level"] != "NONE" || e["shed_low_priority"] != false {
			t.Errorf("first: %v", e)
		}
		began := time.Now()
		if e := next(); e["level"] != "NONE" || time.Since(began) != signalEvery {
			t.Errorf("heartbeat after %v: %v", time.Since(began), e)
		}
		lease := w.grant(t, &tbav1.LeaseRequest{AgentId: "a", EstimatedTokens: 900})
		tokens := int64(900)
		if _, err := w.lease.CommitLease(t.Context(), &tbav1.LeaseCommit{LeaseId: lease.GetLeaseId(), ActualTokens: &tokens}); err != nil {
			t.Fatal(err)
		}
		began = time.Now()
		if e := next(); e["level"] != "SEVERE" || e["shed_low_priority"] != true || e["recommended_delay_ms"] != 3000.0 || time.Since(began) > time.Second {
			t.Errorf("change after %v: %v", time.Since(began), e)
		}
	})
}

func TestSSERefusals(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	for query, field := range map[string]string{"": "agent_id", "agent_id=a&agent_class=nobody": "agent_class", "agent_id=a&pool=nowhere": "pool", "agent_id=a%00": "agent_id", "agent_id=a&min_interval_ms=-1": "min_interval_ms"} {
		resp, body := w.get(t, "/api/v1/backpressure?"+query)
		if resp.StatusCode != http.StatusBadRequest || !strings.HasPrefix(fmt.Sprint(object(t, body)["detail"]), field) {
			t.Errorf("%s: %d %s", query, resp.StatusCode, body)
		}
	}
}

func TestBodiesThatAreTooLarge(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	resp, body := w.post(t, "/TokenBudgetArbiter/RequestLease", `{"agent_id": "`+strings.Repeat("a", maxMessage)+`"}`)
	if object(t, body)["code"] != "invalid_argument" || !strings.Contains(body, "too_large") { // not a 429: to repeat it is in vain
		t.Errorf("HTTP: %d %s", resp.StatusCode, body)
	}
	form, err := http.NewRequest(http.MethodPost, "http://localhost/TokenBudgetArbiter/RequestLease", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	form.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if resp, body := w.send(t, form); resp.StatusCode != http.StatusBadRequest || !strings.Contains(body, "application/json") {
		t.Errorf("a form: %d %s", resp.StatusCode, body)
	}
	_, err = w.lease.RequestLease(t.Context(), &tbav1.LeaseRequest{AgentId: strings.Repeat("a", maxMessage)})
	check(t, "gRPC", fmt.Sprint(violation(err)), "ResourceExhausted")
}

// TestSlowHeader: a client that never finishes its header is cut off, and others are served meanwhile.
func TestSlowHeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{})
		conn, err := w.http.Transport.(*http.Transport).DialContext(t.Context(), "tcp", "localhost:80")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprint(conn, "POST /TokenBudgetArbiter/RequestLease HTTP/1.1\r\nHost: local")
		if resp, body := w.get(t, "/api/v1/status"); resp.StatusCode != http.StatusOK {
			t.Errorf("beside it: %d %s", resp.StatusCode, body)
		}
		began := time.Now()
		for {
			if _, err := conn.Read(make([]byte, 512)); err != nil {
				break
			}
		}
		if took := time.Since(began); took != headerTimeout {
			t.Errorf("cut off after %v", took)
		}
	})
}

// TestSlowBody: so is one that stops in the middle of a body. A call that waits for room is not: its body has come.
func TestSlowBody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{policy: testPolicy(func(p *arbiter.Policy) {
			p.Providers = p.Providers[:1]
			p.Providers[0].Ceilings = arbiter.Ceilings{MaxConcurrent: 1}
		})})
		w.grant(t, &tbav1.LeaseRequest{AgentId: "a", EstimatedTokens: 1})
		conn, err := w.http.Transport.(*http.Transport).DialContext(t.Context(), "tcp", "localhost:80")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprint(conn, "POST /TokenBudgetArbiter/RequestLease HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
		began := time.Now()
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err == nil {
			resp.Body.Close()
		}
		if took := time.Since(began); took != bodyTimeout {
			t.Errorf("cut off after %v", took)
		}
		began = time.Now()
		_, body := w.post(t, "/TokenBudgetArbiter/RequestLease", `{"agent_id": "a", "estimated_tokens": 1, "max_wait_ms": "45000"}`)
		if took := time.Since(began); object(t, body)["status"] != "DEFERRED" || took != 45*time.Second {
			t.Errorf("waited %v: %s", took, body)
		}
	})
}

func TestRateLimitPerAddress(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{tcp: true, opts: Options{Addresses: identity.NewAddresses(0.001, 3, true)}})
	addr := ""
	base := w.http.Transport.(*http.Transport).DialContext
	if c, err := base(t.Context(), "tcp", ""); err == nil {
		addr = c.RemoteAddr().String()
		c.Close()
	}
	from := func(local string) *http.Client {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(local)}}
		tr := &http.Transport{DialContext: d.DialContext}
		t.Cleanup(tr.CloseIdleConnections)
		return &http.Client{Transport: tr}
	}
	for _, local := range []string{"127.0.0.2", "127.0.0.3"} {
		c := from(local)
		for i := range 4 {
			resp, err := c.Get("http://" + addr + "/api/v1/status")
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			want := http.StatusOK
			if i == 3 {
				want = http.StatusTooManyRequests
			}
			if resp.StatusCode != want {
				t.Errorf("%s, request %d: %d", local, i, resp.StatusCode)
			}
			if after := resp.Header.Get("Retry-After"); (after != "") != (i == 3) {
				t.Errorf("%s, request %d: Retry-After %q", local, i, after)
			}
		}
	}
	req, err := http.NewRequest(http.MethodPost, "http://"+addr+"/TokenBudgetArbiter/RequestLease", stringReader(`{"agent_id":"a"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := from("127.0.0.2").Do(req)
	if err != nil {
		t.Fatal(err)
	}
	var body map[string]any
	if err := json.NewDecoder(resp.Body).Decode(&body); err != nil || body["code"] != "resource_exhausted" || resp.StatusCode != http.StatusTooManyRequests {
		t.Errorf("Connect: %d %v %v", resp.StatusCode, body, err)
	}
	resp.Body.Close()
}

// TestBrowsersOfOtherOrigins: neither a foreign page nor a foreign name for this machine may act.
func TestBrowsersOfOtherOrigins(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	for name, test := range map[string]struct {
		host, origin, site string
		want               int
	}{
		"plain client":  {"127.0.0.1:7480", "", "", 200},
		"own page":      {"localhost:7480", "http://localhost:7480", "same-origin", 200},
		"foreign page":  {"localhost:7480", "http://evil.example", "cross-site", 403},
		"old browser":   {"localhost:7480", "http://evil.example", "", 403},
		"rebound name":  {"evil.example", "", "", 403},
		"ipv6 loopback": {"[::1]:7480", "", "", 200},
	} {
		req, err := http.NewRequest(http.MethodPost, "http://localhost/tba.v1.Admin/GetStatus", stringReader(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Host = test.host
		req.Header.Set("Content-Type", "application/json")
		if test.origin != "" {
			req.Header.Set("Origin", test.origin)
		}
		if test.site != "" {
			req.Header.Set("Sec-Fetch-Site", test.site)
		}
		if resp, body := w.send(t, req); resp.StatusCode != test.want {
			t.Errorf("%s: %d %s", name, resp.StatusCode, body)
		}
	}
}

// TestSSEReaderThatStalls is cut off by the deadline of a write; the subscription goes with it.
func TestSSEReaderThatStalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{})
		next, stop := events(t, w, "agent_id=lazy")
		defer stop()
		next()
		subscribers := func() int64 {
			s, err := w.engine.PoolStatus("default")
			if err != nil {
				t.Fatal(err)
			}
			return s.Subscribers
		}
		if n := subscribers(); n != 1 {
			t.Fatalf("%d subscribers", n)
		}
		time.Sleep(24 * time.Hour)
		if n := subscribers(); n != 0 {
			t.Errorf("%d subscribers after a day without a read", n)
		}
	})
}

func TestHTTPCallerVanishesWhileItWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{policy: oneSlot()})
		w.grant(t, &tbav1.LeaseRequest{AgentId: "a", EstimatedTokens: 1})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost/TokenBudgetArbiter/RequestLease", stringReader(`{"agent_id": "b", "max_wait_ms": "600000"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		if resp, err := w.http.Do(req); err == nil {
			resp.Body.Close()
			t.Error("an answer after the client has gone")
		}
		time.Sleep(2 * time.Second)
		if s, err := w.engine.PoolStatus("default"); err != nil || s.Waiting != 0 {
			t.Errorf("%+v, %v", s, err)
		}
	})
}

// TestGoingDown: a client is told to come back, also when the pool is closed already: its commit must not be dropped as malformed.
func TestGoingDown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	lease := w.grant(t, &tbav1.LeaseRequest{AgentId: "a", EstimatedTokens: 10})
	x := openSession(t, w.lease)
	frames := x.reader()
	w.server.Drain(0)
	if f := <-frames; f.GetDrain() == nil {
		t.Errorf("%v", f)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // do not wait for the lease
	_ = w.engine.Drain(ctx)
	for path, body := range map[string]string{
		"/TokenBudgetArbiter/RequestLease": `{"agent_id": "a"}`, "/tba.v1.Admin/GetStatus": `{}`,
		"/TokenBudgetArbiter/CommitLease": fmt.Sprintf(`{"lease_id": %q}`, lease.GetLeaseId()),
	} {
		resp, body := w.post(t, path, body)
		if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") != "1" || object(t, body)["code"] != "unavailable" {
			t.Errorf("%s: %d %v %s", path, resp.StatusCode, resp.Header, body)
		}
	}
	if resp, body := w.get(t, "/api/v1/budgets"); resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") != "1" ||
		object(t, body)["reason"] != "draining" || object(t, body)["retry_after_ms"] != 1000.0 {
		t.Errorf("GET: %d %v %s", resp.StatusCode, resp.Header, body)
	}
	x.push(commitFrame(1, lease.GetLeaseId(), 5))
	if f := <-frames; f.GetError().GetReason() != "draining" || f.GetError().GetRetryAfterMs() != 1000 {
		t.Errorf("%v", f)
	}
}
