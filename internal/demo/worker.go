package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/token-budget-arbiter/tba/client"
	"github.com/token-budget-arbiter/tba/internal/mockprovider"
	"github.com/token-budget-arbiter/tba/internal/provider"
)

const (
	// patience is how long after its time a call may still be waiting for its lease; then it is stale.
	patience = 6 * time.Second
	// serverWait is how long the half of the fleet that waits inside the arbiter lets it hold a request.
	serverWait = 2 * time.Second
	// callTimeout bounds one call at a provider.
	callTimeout = 20 * time.Second
)

// fillerText is the longest prompt, four bytes a token; every prompt is a beginning of it.
var fillerText = strings.Repeat("lorem ipsum dolor sit amet ", 1500)

// caller makes calls at the mock providers, each in the dialect of the provider that the lease names.
type caller struct {
	url  func(provider string) string
	http *http.Client
}

func newCaller(url func(string) string) *caller {
	return &caller{url: url, http: &http.Client{Timeout: callTimeout, Transport: &http.Transport{MaxIdleConnsPerHost: 256}}}
}

func (c *caller) close() { c.http.CloseIdleConnections() }

// call makes one call under a lease and returns what the provider says that it used.
func (c *caller) call(ctx context.Context, l *client.Lease, j job) (client.Usage, error) {
	d, ok := provider.Lookup(l.Provider())
	if !ok {
		return client.Usage{}, client.NotSent(fmt.Errorf("the lease names provider %q, which the demo does not have", l.Provider()))
	}
	model := l.Model()
	if model == "" {
		model = upstreamModel[d.Name()]
	}
	body, err := d.ChatBody(provider.ChatRequest{Model: model, Text: prompt(j.prompt), MaxOutput: min(j.cap, l.OutputTokens())})
	if err != nil {
		return client.Usage{}, client.NotSent(err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url(l.Provider())+d.ChatPath(model), bytes.NewReader(body))
	if err != nil {
		return client.Usage{}, client.NotSent(err)
	}
	d.Authorize(r.Header, "demo")
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Traceparent", traceparent(j.number))
	r.Header.Set(mockprovider.OutputHeader, strconv.FormatInt(j.output, 10))
	resp, err := c.http.Do(r)
	if err != nil {
		var dial *net.OpError
		if errors.As(err, &dial) && dial.Op == "dial" {
			return client.Usage{}, client.NotSent(err)
		}
		return client.Usage{}, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return client.Usage{}, fmt.Errorf("read answer of %s: %w", l.Provider(), err)
	}
	if v := d.Classify(resp.StatusCode, resp.Header, answer, time.Now()); v.Class != provider.NoError {
		signal := client.ProviderSignal{Status: resp.StatusCode, RetryAfter: v.Wait, Code: v.Code, Dimension: v.Dim.String()}
		// The numbers of outcomes are those of the wire on both sides.
		return client.Usage{}, client.WithOutcome(fmt.Errorf("%s answered %d: %s", l.Provider(), resp.StatusCode, v.Message), client.Outcome(v.Class.Outcome()), &signal)
	}
	u, ok := d.Usage(answer)
	if !ok {
		return client.Usage{}, fmt.Errorf("%s answered without usage", l.Provider())
	}
	return client.Usage{
		Input: int64(u.Input), CacheRead: int64(u.CacheRead), CacheWrite: int64(u.CacheWrite), CacheWriteLong: int64(u.CacheWriteLong),
		Output: int64(u.Output), Reasoning: int64(u.Reasoning), Measured: true,
	}, nil
}

// prompt is a text of that many tokens.
func prompt(tokens int64) string {
	return fillerText[:min(max(tokens, 1)*4, int64(len(fillerText)))]
}

// worker is one agent with its queue of calls.
type worker struct {
	member
	agent *client.Agent
	queue chan job
	waits bool // inside the arbiter; else it asks for an answer at once and waits by itself

	door    *door // nil: it leases with the SDK
	speaks  *provider.Dialect
	asks    string // the model, or a ladder in its place
	path    string // at the gateway
	native  string // at the provider
	streams bool
}

// work makes the calls of the queue one after the other until it is closed or the run is over. ctx ends everything; end
// only stops new calls and the wait for leases, so that what a provider has begun is also counted.
func (w *worker) work(ctx context.Context, began, end time.Time, c *caller, t *tally) {
	for j := range w.queue {
		left := time.Until(began.Add(j.at + patience))
		if left <= 0 {
			t.add(&t.gaveUp, 1)
			continue
		}
		if !end.IsZero() {
			left = min(left, time.Until(end))
		}
		if ctx.Err() != nil || left <= 0 {
			return
		}
		spec := client.CallSpec{
			InputTokens: max(j.prompt, 1), OutputTokens: j.cap, Provider: w.prefers, Model: w.model,
			Task: "work-of-" + w.id, MaxWait: client.NoWait, Patience: left,
		}
		if w.waits {
			spec.MaxWait = serverWait
		}
		t.add(&t.calls, 1)
		if w.door != nil {
			used, err := w.door.call(ctx, w, j, left)
			t.add(&t.committed, used)
			t.answered(err)
			continue
		}
		begun, started := false, time.Now()
		err := w.agent.Call(ctx, spec, func(ctx context.Context, l *client.Lease) (client.Usage, error) {
			begun = true
			return c.call(ctx, l, j)
		})
		t.ended(err, begun, time.Since(started) >= left)
	}
}

// ended counts how a call came out. Those that were never sent because time, patience or the level of the pool was
// against it gave up (late: it had waited as long as it may); a denial is counted where it is heard.
func (t *tally) ended(err error, begun, late bool) {
	var denial *client.DeniedError
	var refusal *client.RefusedError
	var away *client.UnavailableError
	switch {
	case err == nil:
		t.add(&t.finished, 1)
	case errors.As(err, &denial):
	case !begun && (late || !errors.As(err, &refusal) && !errors.As(err, &away)):
		t.add(&t.gaveUp, 1)
	default:
		t.fail(err)
	}
}

// answered counts how a call through the gateway came out. Whom the arbiter put off until patience was over gave up; a denial
// was counted where it was heard.
func (t *tally) answered(err error) {
	var refusal *refusedError
	switch {
	case err == nil:
		t.add(&t.finished, 1)
	case errors.As(err, &refusal) && refusal.reason != "":
		if refusal.status == http.StatusTooManyRequests || refusal.status == http.StatusServiceUnavailable {
			t.add(&t.gaveUp, 1)
		}
	default:
		t.fail(err)
	}
}
