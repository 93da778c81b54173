package demo

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/token-budget-arbiter/tba/internal/mockprovider"
	"github.com/token-budget-arbiter/tba/internal/provider"
)

// What an official SDK does on failure, without a setting: two retries, half a second that doubles, less up to a quarter, at
// most 8 s. x-should-retry outranks the status, retry-after-ms and retry-after the pause.
const (
	sdkRetries  = 2
	firstPause  = 500 * time.Millisecond
	longPause   = 8 * time.Second
	pauseJitter = 0.25
)

// door is the way of a program that knows nothing of leases: it has the base URL of the gateway and speaks the dialect of its
// SDK. Safe for concurrent use.
type door struct {
	base  string
	http  *http.Client
	tally *tally
}

func newDoor(base string, t *tally) *door {
	return &door{base: strings.TrimSuffix(base, "/"), tally: t, http: &http.Client{Timeout: patience + callTimeout, Transport: &http.Transport{MaxIdleConnsPerHost: 256}}}
}

func (d *door) close() { d.http.CloseIdleConnections() }

// refusedError is an answer of the gateway, or of a provider behind it, that ends a call.
type refusedError struct {
	status int
	reason string // of the arbiter; "" when a provider says so
	body   []byte
}

func (e *refusedError) Error() string {
	return fmt.Sprintf("the gateway answered %d %s: %.200s", e.status, e.reason, e.body)
}

// call makes one call, tries again as an SDK would until left is over, and returns the tokens that the answer says were used.
func (d *door) call(ctx context.Context, w *worker, j job, left time.Duration) (used int64, err error) {
	until := time.Now().Add(left)
	for try := 0; ; try++ {
		a, err := d.try(ctx, w, j, try, time.Until(until))
		pause, again := nextTry(a, err, try)
		if err == nil && a.status == http.StatusOK {
			d.tally.answer(granted, "", true, 0)
			return d.used(w, a)
		}
		if err == nil {
			err = d.refused(a, again)
		}
		if !again || try >= sdkRetries || time.Until(until) <= pause {
			return 0, err
		}
		d.tally.add(&d.tally.agentRetries, 1)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return 0, fmt.Errorf("wait for the next try: %w", context.Cause(ctx))
		}
	}
}

// heard is an answer, read to its end.
type heard struct {
	status int
	header http.Header
	body   []byte
}

func (d *door) try(ctx context.Context, w *worker, j job, try int, left time.Duration) (heard, error) {
	body, err := w.speaks.ChatBody(provider.ChatRequest{Model: w.asks, Text: prompt(j.prompt), MaxOutput: j.cap})
	if err != nil {
		return heard{}, err
	}
	path := w.path
	if w.streams {
		if path, body = streaming(w.speaks, path, body); path == "" {
			return heard{}, fmt.Errorf("%s has no stream", w.speaks.Name())
		}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, d.base+path, bytes.NewReader(body))
	if err != nil {
		return heard{}, err
	}
	w.speaks.Authorize(r.Header, "any")
	for name, value := range map[string]string{
		"Content-Type": "application/json", "X-Stainless-Retry-Count": strconv.Itoa(try), "Traceparent": traceparent(j.number),
		"X-Tba-Agent": w.id, "X-Tba-Class": w.class, "X-Tba-Task": "work-of-" + w.id,
		"X-Tba-Max-Wait-Ms":       strconv.FormatInt(max(left.Milliseconds(), 0), 10),
		mockprovider.OutputHeader: strconv.FormatInt(j.output, 10),
	} {
		r.Header.Set(name, value)
	}
	resp, err := d.http.Do(r)
	if err != nil {
		return heard{}, err
	}
	defer resp.Body.Close()
	a := heard{status: resp.StatusCode, header: resp.Header}
	a.body, err = io.ReadAll(resp.Body)
	if err != nil {
		return heard{}, fmt.Errorf("read answer of the gateway: %w", err)
	}
	return a, nil
}

// nextTry says whether an SDK would try again, and after which pause.
func nextTry(a heard, err error, try int) (pause time.Duration, again bool) {
	pause = min(firstPause<<try, longPause)
	pause -= time.Duration(rand.Float64() * pauseJitter * float64(pause))
	if err != nil {
		return pause, true
	}
	switch s := a.status; {
	case a.header.Get("X-Should-Retry") == "true":
		again = true
	case a.header.Get("X-Should-Retry") == "false":
	default:
		again = s == http.StatusRequestTimeout || s == http.StatusConflict || s == http.StatusTooManyRequests || s >= 500
	}
	if wait, told := provider.RetryAfter(a.header, time.Now()); told {
		pause = wait
	}
	return pause, again
}

// refused counts a refusal by the arbiter, and makes an error of it.
func (d *door) refused(a heard, again bool) error {
	e := &refusedError{status: a.status, body: a.body}
	if a.header.Get("X-Tba-Origin") == "arbiter" {
		e.reason = detail(a.body).Get("reason").Str
		status := denied
		if again {
			status = deferred
		}
		d.tally.answer(status, e.reason, true, 0)
	}
	return e
}

// detail is the member tba of an error, which Anthropic, OpenAI and Gemini nest in error and Mistral does not.
func detail(body []byte) gjson.Result {
	if d := gjson.GetBytes(body, "tba"); d.Exists() {
		return d
	}
	return gjson.GetBytes(body, "error.tba")
}

// used reads the bill from an answer, which has to be whole.
func (d *door) used(w *worker, a heard) (int64, error) {
	path, _, _ := strings.Cut(w.native, "?")
	e, _, ok := w.speaks.Endpoint(http.MethodPost, path)
	if !ok {
		return 0, fmt.Errorf("%s has no endpoint %s", w.speaks.Name(), path)
	}
	m := e.NewMeter(provider.MeterOptions{ContentType: a.header.Get("Content-Type"), Stream: w.streams})
	m.Pass(a.body)
	m.Finish()
	result := m.Result()
	switch {
	case result.Fault != nil:
		return 0, fmt.Errorf("the answer of %s ended with an error: %.200s", a.header.Get("X-Tba-Provider"), result.Fault.Body)
	case !result.Complete:
		return 0, fmt.Errorf("the answer of %s has no proper end", a.header.Get("X-Tba-Provider"))
	case !result.HasUsage:
		return 0, fmt.Errorf("the answer of %s has no usage", a.header.Get("X-Tba-Provider"))
	}
	return int64(result.Usage.Total()), nil
}

// streaming turns a plain call into one that streams.
func streaming(d *provider.Dialect, path string, body []byte) (string, []byte) {
	switch d.Name() {
	case provider.Gemini:
		return strings.Replace(path, ":generateContent", ":streamGenerateContent", 1) + "?alt=sse", body
	case provider.OpenAI:
		return path, append([]byte(`{"stream":true,"stream_options":{"include_usage":true},`), body[1:]...)
	}
	return path, append([]byte(`{"stream":true,`), body[1:]...)
}

// traceparent names a job in the W3C form, so that the providers' books tell which calls were made for it.
func traceparent(job int64) string { return fmt.Sprintf("00-%032x-%016x-01", job+1, job+1) }

// through makes the worker one that calls the gateway: at its provider in that one's dialect, without a provider by a
// ladder in OpenAI's.
func (w *worker) through(d *door, streams bool) error {
	dialect, root, asks := provider.OpenAI, "", ladderOf(w.member)
	for name, model := range upstreamModel {
		if asks == "" && model == w.model {
			dialect, asks = name, model
			if name != provider.OpenAI {
				root = "/" + name
			}
		}
	}
	var ok bool
	if w.speaks, ok = provider.Lookup(dialect); !ok {
		return fmt.Errorf("dialect %q is not known", dialect)
	}
	w.door, w.streams, w.asks = d, streams, asks
	w.native = w.speaks.ChatPath(asks)
	w.path = root + w.native
	if streams {
		w.native, _ = streaming(w.speaks, w.native, []byte("{"))
	}
	return nil
}
