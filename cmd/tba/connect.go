package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/token-budget-arbiter/tba/internal/catalog"
)

// connection is how one client reaches the gateway.
type connection struct {
	Client string `json:"client"`
	// BaseURL is the gateway's address in the form that this client wants: with the version of the API or without.
	BaseURL string `json:"base_url"`
	// BaseURLVariable and KeyVariable are the environment variables that the client reads; empty when it wants code.
	BaseURLVariable string `json:"base_url_variable,omitempty"`
	KeyVariable     string `json:"key_variable,omitempty"`
	// Settings are what the command prints: lines for a shell, code, or a file.
	Settings string `json:"settings"`
}

func (a *app) connectCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "connect CLIENT", Short: "Print the settings with which an SDK or a program calls through the gateway", Args: upTo(1),
		Long: `Prints settings that work as they stand: lines for a shell, or a program that can be run. The key is that of the arbiter, from
TBA_KEY; providers' keys stay with the arbiter. A server without keys takes any.

Clients: ` + strings.Join(clientNames(), ", ") + `.`,
		Example:   "  eval \"$(tba connect openai-python)\"\n  tba connect anthropic-go --server https://tba.example.com\n  tba connect mistral-python > first.py && python first.py",
		ValidArgs: clientNames(),
	}
	s := &api{a: a}
	cmd.Flags().StringVar(&s.server, "server", "", "address of the gateway's HTTP port (default http://127.0.0.1:7480; environment TBA_SERVER)")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		all := "the clients are " + strings.Join(clientNames(), ", ")
		if len(args) == 0 {
			return fail(exitUsage, "tba connect curl", "say which client: %s", all)
		}
		c, ok := findClient(args[0])
		if !ok {
			next := all
			if near := catalog.Nearest(strings.ToLower(args[0]), allClientNames()); near != "" {
				next = "tba connect " + near
			}
			return fail(exitUsage, next, "no client %q: %s", args[0], all)
		}
		base, err := s.base()
		if err != nil {
			return err
		}
		row := c.connect(base)
		if a.format == "table" {
			_, err := a.out.Write([]byte(row.Settings))
			return err
		}
		return a.printData(row)
	}
	return cmd
}

// client is one program that can be pointed at the gateway.
type client struct {
	name    string
	aliases []string
	path    string // of the base URL that it wants
	baseVar string
	keyVar  string
	text    string // {base} is the base URL, {root} the gateway's address, {shell} the key for a shell
}

func (c client) connect(server string) connection {
	base := server + c.path
	text := c.text
	if text == "" {
		text = "export " + c.baseVar + "={base}\nexport " + c.keyVar + "={shell}\n"
	}
	fill := strings.NewReplacer("{base}", base, "{root}", server, "{shell}", shellKey)
	return connection{Client: c.name, BaseURL: base, BaseURLVariable: c.baseVar, KeyVariable: c.keyVar, Settings: fill.Replace(text)}
}

// shellKey is the arbiter's key in a shell. SDKs refuse to start without one, so a server without keys gets a word.
const shellKey = `"${TBA_KEY:-tba}"`

func findClient(name string) (client, bool) {
	for _, c := range clients {
		if c.name == strings.ToLower(name) || oneOf(strings.ToLower(name), c.aliases...) {
			return c, true
		}
	}
	return client{}, false
}

func clientNames() (out []string) {
	for _, c := range clients {
		out = append(out, c.name)
	}
	return out
}

func allClientNames() []string {
	out := clientNames()
	for _, c := range clients {
		out = append(out, c.aliases...)
	}
	return out
}
