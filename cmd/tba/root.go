package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// app is what all commands share: streams, environment and the flags of the root.
type app struct {
	out, err  io.Writer
	environ   []string
	format    string // -o
	noHeaders bool
	began     bool // a command runs: what it returns is no usage error
}

// env looks a variable up. A listener at :0, with no host named, is a port of this machine for this machine: nobody could
// know it elsewhere.
func (a *app) env(name string) (string, bool) {
	v, ok := os.LookupEnv(name)
	if strings.HasPrefix(name, "TBA_LISTEN_") {
		v = anyPort(v)
	}
	return v, ok
}

func anyPort(addr string) string {
	if addr == ":0" {
		return "127.0.0.1:0"
	}
	return addr
}

func (a *app) run(args []string) int {
	root := a.root()
	root.SetArgs(args)
	err := root.ExecuteContext(context.Background())
	if err != nil && !a.began {
		if _, ours := err.(*failure); !ours {
			err = &failure{code: exitUsage, err: err, next: "tba --help"}
		}
	}
	return report(a.err, err)
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "tba",
		Short: "Token Budget Arbiter: leases tokens to agents before each LLM call",
		Long: `tba decides, before each LLM call of a fleet of agents, whether that call may be made now and at which provider,
so that token budgets, rate limits and concurrency limits hold for the fleet as a whole.

  tba dev --demo --for 25s      see it work: mock providers, a fleet of agents, no keys
  tba init                      write a commented configuration
  tba serve -c tba.yaml         run the arbiter
  tba status                    ask a running one how it is`,
		SilenceErrors: true, SilenceUsage: true,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if !oneOf(a.format, formats...) {
				return fail(exitUsage, "tba "+cmd.Name()+" -o json", "-o %s: the forms are %s", a.format, strings.Join(formats, ", "))
			}
			a.began = true
			return nil
		},
	}
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &failure{code: exitUsage, err: err, next: cmd.CommandPath() + " --help"}
	})
	flags := root.PersistentFlags()
	flags.StringVarP(&a.format, "output", "o", "table", "form of the data on stdout: "+strings.Join(formats, ", "))
	flags.BoolVar(&a.noHeaders, "no-headers", false, "no header line in tables and csv")
	_ = root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)) // the flag is defined above

	root.AddGroup(
		&cobra.Group{ID: "run", Title: "Run an arbiter:"},
		&cobra.Group{ID: "ask", Title: "Ask a running one:"},
	)
	for _, c := range []*cobra.Command{a.devCommand(), a.serveCommand(), a.gatewayCommand(), a.initCommand(), a.configCommand(), a.journalCommand()} {
		c.GroupID = "run"
		root.AddCommand(c)
	}
	for _, c := range a.readCommands() {
		c.GroupID = "ask"
		root.AddCommand(c)
	}
	connect := a.connectCommand()
	connect.GroupID = "ask"
	root.AddCommand(connect, a.versionCommand())
	root.InitDefaultCompletionCmd()
	return root
}

// interrupt is a context that ends with the first SIGINT or SIGTERM.
func interrupt(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
}

// noArgs and upTo say what is wrong with the arguments in the words of the other usage errors.
func noArgs(cmd *cobra.Command, args []string) error { return upTo(0)(cmd, args) }

func upTo(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) <= n {
			return nil
		}
		if n == 0 && cmd.HasSubCommands() {
			next := cmd.CommandPath() + " --help"
			cmd.SuggestionsMinimumDistance = 2
			if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
				next = cmd.CommandPath() + " " + near[0]
			}
			return fail(exitUsage, next, "no command %q in %s", args[0], cmd.CommandPath())
		}
		return fail(exitUsage, cmd.CommandPath()+" --help", "%s more than %q takes: %q", plural(len(args)-n, "argument"), cmd.CommandPath(), args[n:])
	}
}

// group is a command that only holds others.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cmd.Help(); err != nil {
				return err
			}
			return fail(exitUsage, cmd.CommandPath()+" "+cmd.Commands()[0].Name(), "say which command of %q", cmd.CommandPath())
		},
	}
	c.AddCommand(commands...)
	return c
}

func oneOf(word string, words ...string) bool {
	for _, w := range words {
		if w == word {
			return true
		}
	}
	return false
}

// note prints a message for people.
func (a *app) note(format string, args ...any) { fmt.Fprintf(a.err, format+"\n", args...) }
