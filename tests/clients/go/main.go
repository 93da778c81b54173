// Package main drives the official Go SDKs for the tests of the gateway: one call per line of standard input, one
// result per line of standard output. tests/clients/README.md has the protocol that all drivers speak.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// call is one line of input.
type call struct {
	ID        string            `json:"id"`
	SDK       string            `json:"sdk"`
	Op        string            `json:"op"`
	BaseURL   string            `json:"base_url"`
	Key       string            `json:"key"`
	Model     string            `json:"model"`
	Headers   map[string]string `json:"headers"`
	Text      string            `json:"text"`
	MaxTokens int64             `json:"max_tokens"`
	Retries   bool              `json:"retries"` // turn on the retries of an SDK that has them off
	TimeoutS  float64           `json:"timeout_s"`
}

// result is one line of output.
type result struct {
	ID        string   `json:"id"`
	OK        bool     `json:"ok"`
	Text      string   `json:"text"`
	Tool      *tool    `json:"tool,omitempty"`
	Vectors   int      `json:"vectors,omitempty"`
	Usage     *usage   `json:"usage,omitempty"`
	Error     *problem `json:"error,omitempty"`
	ElapsedMS int64    `json:"elapsed_ms"`
}

type tool struct {
	Name      string `json:"name"`
	Arguments any    `json:"arguments"`
}

// usage is what the SDK says was used, in the words of its dialect: nothing is added to or taken from it.
type usage struct {
	Input  int64 `json:"input"`
	Output int64 `json:"output"`
}

// problem is the error that the SDK raised. Type is its own name of the error's type.
type problem struct {
	Type    string `json:"type"`
	Status  int    `json:"status"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (p *problem) Error() string { return p.Message }

// The one tool that every driver offers, so that requests are alike.
const (
	toolName   = "weather"
	toolText   = "The weather in a city."
	toolSchema = `{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}`
)

func toolProperties() (schema map[string]any) {
	if err := json.Unmarshal([]byte(toolSchema), &schema); err != nil {
		panic(err) // the constant above
	}
	return schema
}

func main() {
	out := json.NewEncoder(os.Stdout)
	var mu sync.Mutex
	var running sync.WaitGroup
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var c call
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			fmt.Fprintln(os.Stderr, "read a call:", err)
			os.Exit(2)
		}
		running.Go(func() {
			r := do(c)
			mu.Lock()
			defer mu.Unlock()
			if err := out.Encode(r); err != nil {
				os.Exit(2) // nobody listens any more
			}
		})
	}
	running.Wait()
}

func do(c call) result {
	if c.TimeoutS == 0 {
		c.TimeoutS = 30
	}
	if c.Text == "" {
		c.Text = "Say hello."
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(c.TimeoutS*float64(time.Second)))
	defer cancel()
	began := time.Now()
	r := result{ID: c.ID}
	var err error
	switch c.SDK {
	case "openai":
		err = callOpenAI(ctx, c, &r)
	case "anthropic":
		err = callAnthropic(ctx, c, &r)
	case "genai":
		err = callGemini(ctx, c, &r)
	default:
		err = fmt.Errorf("no SDK %q in this driver", c.SDK)
	}
	r.ElapsedMS = time.Since(began).Milliseconds()
	r.OK = err == nil
	if err == nil {
		return r
	}
	var p *problem
	switch {
	case errors.As(err, &p):
		r.Error = p
	case ctx.Err() != nil:
		r.Error = &problem{Type: "driver timeout", Message: err.Error()}
	default:
		r.Error = &problem{Type: fmt.Sprintf("%T", err), Message: err.Error()}
	}
	return r
}

func unknownOp(c call) error { return fmt.Errorf("the %s driver has no operation %q", c.SDK, c.Op) }

// arguments are a tool's arguments as a value; what is no JSON stays a string.
func arguments(text string) (v any) {
	if json.Unmarshal([]byte(text), &v) != nil {
		return text
	}
	return v
}
