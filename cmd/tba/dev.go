package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/token-budget-arbiter/tba/internal/config"
	"github.com/token-budget-arbiter/tba/internal/demo"
	"github.com/token-budget-arbiter/tba/internal/mockprovider"
	"github.com/token-budget-arbiter/tba/internal/provider"
)

// devOptions are the flags of dev.
type devOptions struct {
	demo   bool
	length time.Duration // 0: until a signal
	data   string        // "": a temporary folder
	file   string        // "": the demo's budget
}

// devPolicy is the file that dev writes its own budget to, so that it can be read, changed and taken over.
const devPolicy = "dev.yaml"

// mockKey writes a key for the mock providers, which want one and take any, and returns the file's path. It is not in the data folder: that
// one may be full, and what is kept there is the operator's.
func mockKey() (string, error) {
	f, err := os.CreateTemp("", "tba-mock-*.key")
	if err != nil {
		return "", fmt.Errorf("make temporary file: %w", err)
	}
	_, err = f.WriteString("any-key-will-do\n")
	if err = errors.Join(err, f.Close()); err != nil {
		return "", fmt.Errorf("write key of the mock providers: %w", err)
	}
	return f.Name(), nil
}

func (a *app) devCommand() *cobra.Command {
	var o devOptions
	cmd := &cobra.Command{
		Use: "dev", Short: "Run an arbiter to try things, with mock providers; --demo adds a fleet of agents", Args: noArgs,
		Long: `Runs an arbiter with a file journal in a temporary folder and four mock providers that speak the dialects of OpenAI, Anthropic,
Gemini and Mistral and enforce real limits. Nothing is needed: no key, no configuration, no network.

--demo replays a production trace through a fleet of agents that lease each call, and checks the outcome from the mock
providers' own books. With --for it ends by itself, and with exit code 1 if it proves nothing.`,
		Example: "  tba dev\n  tba dev --demo --for 25s\n  tba dev --demo --for 25s -o json > summary.json\n  tba dev -c tba.yaml",
	}
	configFlag(cmd.Flags())
	settings(cmd.Flags())
	cmd.Flags().BoolVar(&o.demo, "demo", false, "let a fleet of agents work")
	cmd.Flags().DurationVar(&o.length, "for", 0, "end by itself after this time (default: at Ctrl-C)")
	cmd.Flags().Lookup("data").Usage = "folder of the journal, kept (default: a temporary one, removed at the end)"
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o.data = cmd.Flags().Lookup("data").Value.String()
		if cmd.Flags().Changed("config") { // TBA_CONFIG is for serve: dev must not depend on where it is started
			o.file = a.file(cmd.Flags())
		}
		switch {
		case o.length < 0:
			return fail(exitUsage, "tba dev --demo --for 25s", "--for %v: more than 0", o.length)
		case o.demo && o.file != "":
			return fail(exitUsage, "tba dev -c "+quote(o.file), "--demo brings a budget of its own: it runs without -c")
		case cmd.Flags().Changed("journal"):
			return fail(exitUsage, "tba dev --data DIR", "dev keeps its journal in a folder: --data DIR names it")
		}
		return a.dev(cmd.Context(), o, a.devSources(cmd))
	}
	return cmd
}

// devSources are the process settings of dev: quieter logs and a shorter drain than a server's, unless somebody says so.
func (a *app) devSources(cmd *cobra.Command) config.Sources {
	s := a.sources(cmd.Flags())
	for flag, value := range map[string]string{"log-level": "warn", "drain-timeout": "2s"} {
		_, byFlag := s.Flags[flag]
		_, byEnv := a.env("TBA_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_")))
		if !byFlag && !byEnv {
			s.Flags[flag] = value
		}
	}
	return s
}

func (a *app) dev(ctx context.Context, o devOptions, sources config.Sources) (err error) {
	stop := stopSignals()
	dir := o.data
	if dir == "" {
		if dir, err = os.MkdirTemp("", "tba-dev-"); err != nil {
			return fmt.Errorf("make temporary folder: %w", err)
		}
		defer os.RemoveAll(dir)
	} else if err := os.MkdirAll(dir, 0o750); err != nil {
		return fail(exitFailure, "name a folder that can be written: --data DIR", "--data: %w", err)
	}
	sources.Flags["data"] = dir

	scale := demo.ScaleFor(o.length, time.Now())
	if !o.demo {
		scale = playground()
	}
	upstreams, path := scale.MockOptions(), o.file
	if o.file != "" {
		c, err := sources.Load(o.file)
		if err != nil {
			return badConfig(o.file, err)
		}
		upstreams = a.mocksFor(c)
	}
	mocks, err := mockprovider.New(upstreams)
	if err == nil {
		err = mocks.Start("127.0.0.1:0")
	}
	if err != nil {
		return fmt.Errorf("start mock providers: %w", err)
	}
	defer mocks.Close(context.WithoutCancel(ctx))
	if path == "" {
		path = filepath.Join(dir, devPolicy)
		text := append([]byte("# Written by tba dev at each start. Change it while dev runs: it is taken over.\n"), scale.PolicyYAML(mocks.URL)...)
		if err := replaceFile(path, text, 0o644); err != nil {
			return fail(exitFailure, "name a folder that can be written: --data DIR", "--data: %w", err)
		}
	}
	c, err := sources.Load(path)
	if err != nil {
		return badConfig(path, err)
	}
	c.Warnings.Print(a.err)

	key, err := mockKey()
	if err != nil {
		return err
	}
	defer os.Remove(key)
	s, err := startOrStop(ctx, startOptions{config: c, log: logger(a.err, c.Settings.Log), create: true, file: path, place: mocked(mocks, upstreams, key)}, stop)
	if err != nil {
		return err
	}
	watching, done := context.WithCancel(ctx)
	defer done()
	s.watchConfig(watching, path, sources)

	about := newDevRow(s, mocks, upstreams, path, dir)
	words := a.out
	if a.format != "table" {
		words = a.err
	}
	about.print(words, o, c)
	if o.demo {
		return a.fleet(ctx, s, o, scale, mocks, words, stop)
	}
	if a.format != "table" {
		if err := a.printData(about); err != nil {
			return errors.Join(err, s.drain(ctx))
		}
	}
	if o.length > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.length)
		defer cancel()
	}
	return s.until(ctx, stop)
}

// playground is the budget of a person who tries things: that of an hour, not one that runs out in a demonstration, in a
// period that is neither new nor over soon, so that no class has to wait for its share, and the same at each start.
func playground() demo.Scale {
	const year = 365 * 24 * time.Hour
	s := demo.ScaleFor(time.Hour, time.Now())
	s.Every, s.Anchor = year, time.Date(2025, time.July, 1, 0, 0, 0, 0, time.UTC)
	return s
}

// mocksFor makes a mock of each provider of a configuration, with the limits that the file says it has.
func (a *app) mocksFor(c *config.Config) mockprovider.Options {
	var o mockprovider.Options
	have := map[string]bool{}
	for _, pool := range c.Pools {
		for i, up := range pool.Upstreams {
			if have[up.Name] {
				continue
			}
			have[up.Name] = true
			if _, known := provider.Lookup(up.Kind); !known {
				a.note("provider %s speaks %s, for which there is no mock", up.Name, up.Kind)
				continue
			}
			p := &pool.Policy.Providers[i]
			o.Upstreams = append(o.Upstreams, mockprovider.Upstream{
				Name: up.Name, Dialect: up.Kind, RPM: int64(p.RPM), TPM: int64(p.TPM), InputTPM: int64(p.InputTPM), MaxConcurrency: int64(p.MaxConcurrent),
			})
		}
	}
	return o
}

// mocked places each provider that has a mock there, whatever address and key the file has for it.
func mocked(mocks *mockprovider.Server, o mockprovider.Options, key string) *placement {
	have := map[string]bool{}
	for _, u := range o.Upstreams {
		have[u.Name] = true
	}
	return &placement{key: config.FileSecret(key), at: func(name, kind string) (string, bool) {
		if !have[name] {
			return "", false
		}
		return sdkBase(mocks.URL(name), kind), true
	}}
}

// sdkBase is the base URL that the SDK of a dialect wants for a server at root: OpenAI's alone has the version in it.
func sdkBase(root, dialect string) string {
	if dialect == provider.OpenAI {
		return root + "/v1"
	}
	return root
}
