package main

import (
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/token-budget-arbiter/tba/internal/config"
	"github.com/token-budget-arbiter/tba/internal/mockprovider"
	"github.com/token-budget-arbiter/tba/internal/provider"
)

// devRow is where things are.
type devRow struct {
	HTTP   string            `json:"http"`
	GRPC   string            `json:"grpc"`
	Ops    string            `json:"ops"`
	Mocks  map[string]string `json:"mocks"`
	Policy string            `json:"policy"`
	Data   string            `json:"data"`
}

func newDevRow(s *server, mocks *mockprovider.Server, o mockprovider.Options, policy, dir string) devRow {
	at := s.ports.addresses()
	row := devRow{HTTP: s.url(), GRPC: at.GRPC, Ops: "http://" + at.Ops, Mocks: map[string]string{}, Policy: policy, Data: dir}
	for _, u := range o.Upstreams {
		row.Mocks[u.Name] = mocks.URL(u.Name)
	}
	return row
}

// print tells a person what is there and how to go on.
func (d devRow) print(w io.Writer, o devOptions, c *config.Config) {
	kept := "kept"
	if o.data == "" {
		kept = "removed at the end; --data DIR keeps it"
	}
	wide := len(d.HTTP)
	for _, url := range d.Mocks {
		wide = max(wide, len(url))
	}
	line := func(name, at, what string) { fmt.Fprintf(w, "  %-8s %-*s   %s\n", name, wide, at, what) }
	fmt.Fprint(w, "The arbiter is ready.\n\n")
	line("HTTP", d.HTTP, "the gateway, JSON, Server-Sent Events")
	line("gRPC", d.GRPC, "for client.Dial")
	line("ops", d.Ops, "/readyz, /metrics")
	title := "mocks"
	for _, p := range c.Pools {
		for _, u := range p.Upstreams {
			if url, ok := d.Mocks[u.Name]; ok {
				line(title, url, "speaks "+u.Kind+", any key")
				title = ""
			}
		}
	}
	fmt.Fprintf(w, `  policy   %s (change it: it is taken over)
  journal  %s (%s)
  In memory only: who waits, recent events, metrics, and the books of the mock providers.

`, d.Policy, d.Data, kept)
	if o.demo {
		return
	}
	key, server := "", ""
	if len(c.Keys) > 0 {
		key = ` -H "authorization: Bearer $TBA_KEY"`
	}
	if _, port, err := net.SplitHostPort(strings.TrimPrefix(d.HTTP, "http://")); err != nil || port != "7480" {
		server = " --server " + d.HTTP
	}
	class := "default"
	if classes := c.Pools[0].Policy.Classes; len(classes) > 0 {
		class = classes[0].Name
	}
	if call := d.call(c, key); call != "" {
		fmt.Fprintf(w, `Call a model, leased and metered:
  %s

Point an SDK at it:
  tba connect openai-python%s     or anthropic, genai, mistral, claude-code, ...

`, call, server)
	}
	fmt.Fprintf(w, `Or ask for a lease alone:
  curl -s %s/tba.v1.TokenBudgetArbiter/RequestLease -H 'content-type: application/json'%s -d '{"agent_id":"a1","agent_class":"%s","estimated_tokens":1200}'

Go on:
  tba budgets%s --watch      what is held and spent
  tba dev --demo --for 25s %s a fleet of agents at work
  tba init                 %s a configuration of your own, then: tba serve

Ctrl-C ends it.
`, d.HTTP, key, class, server, strings.Repeat(" ", len(server)), strings.Repeat(" ", len(server)))
}

// call is a line that calls a model of the first provider that has one, through the gateway.
func (d devRow) call(c *config.Config, key string) string {
	pool := &c.Pools[0]
	for i, up := range pool.Upstreams {
		if _, ok := d.Mocks[up.Name]; !ok {
			continue
		}
		for _, m := range pool.Policy.Providers[i].Models {
			if m.Name == "" || m.MaxOutput == 0 && len(pool.Policy.Providers[i].Models) > 1 { // an embedding model says nothing
				continue
			}
			return curlTo(d.HTTP, up.Kind, m.Name, key)
		}
	}
	return ""
}

// curlTo asks a model to say hello, in the words of a dialect; "" for one that has no models.
func curlTo(base, dialect, model, key string) string {
	path, body := "", ""
	switch dialect {
	case provider.OpenAI, provider.Mistral:
		path, body = "/v1/chat/completions", `{"model":"`+model+`","max_tokens":64,"messages":[{"role":"user","content":"Say hello."}]}`
	case provider.Anthropic:
		path, body = "/anthropic/v1/messages", `{"model":"`+model+`","max_tokens":64,"messages":[{"role":"user","content":"Say hello."}]}`
	case provider.Gemini:
		path, body = "/gemini/v1beta/models/"+model+":generateContent", `{"contents":[{"role":"user","parts":[{"text":"Say hello."}]}],"generationConfig":{"maxOutputTokens":64}}`
	default:
		return ""
	}
	return "curl -s " + base + path + " -H 'content-type: application/json'" + key + " -d '" + body + "'"
}
