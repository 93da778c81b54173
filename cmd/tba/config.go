package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/token-budget-arbiter/tba/internal/config"
)

const defaultFile = "tba.yaml"

// settings adds a flag for each process setting, and --data and --config beside them. What config needs of them is
// their text: it parses, checks and explains them like the keys of the file.
func settings(flags *pflag.FlagSet) {
	for _, s := range config.AllSettings() {
		flags.String(s.Flag, "", strings.TrimSuffix(s.Doc, ".")+" (default "+orNone(s.Default)+"; "+s.Env+")")
	}
	flags.String("addr-file", "", flags.Lookup("listen-addr-file").Usage)
	_ = flags.MarkHidden("listen-addr-file") // the name by rule; people write the short one
	flags.String("data", "", "folder of the journal, short for --journal file:DIR (TBA_DATA)")
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

// configFlag adds -c.
func configFlag(flags *pflag.FlagSet) {
	flags.StringP("config", "c", "", "configuration file (default "+defaultFile+"; TBA_CONFIG)")
}

// sources are the flags that were given, and the environment.
func (a *app) sources(flags *pflag.FlagSet) config.Sources {
	given := map[string]string{}
	flags.Visit(func(f *pflag.Flag) { given[f.Name] = f.Value.String() })
	for _, name := range []string{"listen-http", "listen-grpc", "listen-ops"} {
		if addr, ok := given[name]; ok {
			given[name] = anyPort(addr)
		}
	}
	if file, ok := given["addr-file"]; ok {
		given["listen-addr-file"] = file
	}
	return config.Sources{Flags: given, Env: a.env}
}

// file is the configuration file that a command works on.
func (a *app) file(flags *pflag.FlagSet) string {
	if f := flags.Lookup("config"); f != nil && f.Changed {
		return f.Value.String()
	}
	if path, ok := a.env("TBA_CONFIG"); ok && path != "" {
		return path
	}
	return defaultFile
}

// load reads the configuration; its warnings go to stderr.
func (a *app) load(flags *pflag.FlagSet) (*config.Config, error) {
	path := a.file(flags)
	c, err := a.sources(flags).Load(path)
	if err != nil {
		return nil, badConfig(path, err)
	}
	c.Warnings.Print(a.err)
	return c, nil
}

func badConfig(path string, err error) error {
	var faults config.Faults
	switch {
	case errors.As(err, &faults):
		return &failure{code: exitConfig, err: err, next: "tba config validate -c " + quote(path) + ", and tba config explain KEY"}
	case errors.Is(err, fs.ErrNotExist):
		return &failure{code: exitConfig, err: err, next: "tba init writes one; -c FILE names another"}
	}
	return &failure{code: exitConfig, err: err, next: "name a readable YAML file: -c FILE"}
}

// quote makes a path safe to paste.
func quote(path string) string {
	if strings.ContainsAny(path, " \t'\"$\\*?()&;|<>") {
		return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
	}
	return path
}

func (a *app) configCommand() *cobra.Command {
	return group("config", "Check, show and explain the configuration", a.validateCommand(), a.showCommand(), a.schemaCommand(), a.explainCommand())
}

func (a *app) validateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "validate [FILE]", Short: "Name every fault of a file in one run", Args: upTo(1),
		Example: "  tba config validate -c tba.yaml\n  tba config validate -o json",
	}
	configFlag(cmd.Flags())
	settings(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		path := a.file(cmd.Flags())
		if len(args) == 1 {
			path = args[0]
		}
		c, err := a.sources(cmd.Flags()).Load(path)
		var faults config.Faults
		if err != nil && !errors.As(err, &faults) {
			return badConfig(path, err)
		}
		if err == nil {
			faults = c.Warnings
		}
		if a.format == "table" {
			faults.Print(a.out) // the faults are what was asked for, so they are data
		} else if err := a.printData(append([]config.Fault{}, faults...)); err != nil {
			return err
		}
		if err != nil {
			n := len(faults)
			a.note("%s: %s", path, plural(n, "fault"))
			return silent(exitConfig)
		}
		a.note("%s is valid: %s", path, summary(c))
		return nil
	}
	return cmd
}

// summary says in one line what a configuration has.
func summary(c *config.Config) string {
	var parts []string
	for _, p := range c.Pools {
		parts = append(parts, fmt.Sprintf("pool %s with %s and %d classes", p.Name, plural(len(p.Policy.Providers), "provider"), len(p.Policy.Classes)))
	}
	return strings.Join(parts, "; ")
}

func (a *app) showCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "show [PREFIX]", Short: "Each value in force with where it came from", Args: upTo(1),
		Example: "  tba config show -c tba.yaml\n  tba config show budget.providers.openai",
	}
	configFlag(cmd.Flags())
	settings(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := a.load(cmd.Flags())
		if err != nil {
			return err
		}
		values := c.Values()
		if len(args) == 1 {
			values = slices.DeleteFunc(values, func(v config.Value) bool {
				return v.Path != args[0] && !strings.HasPrefix(v.Path, args[0]+".") && !strings.HasPrefix(v.Path, args[0]+"[")
			})
			if len(values) == 0 {
				return fail(exitNotFound, "tba config explain "+quote(args[0]), "nothing is set under %q", args[0])
			}
		}
		return printRows(a, values, []column[config.Value]{
			{title: "KEY", cell: func(v config.Value) string { return v.Path }},
			{title: "VALUE", cell: func(v config.Value) string { return v.Value }},
			{title: "FROM", cell: func(v config.Value) string { return v.Source }, shade: func(v config.Value) shade {
				if v.Source == "default" {
					return dim
				}
				return plain
			}},
		})
	}
	return cmd
}

func (a *app) schemaCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "schema", Short: "JSON Schema of the file, for editors", Args: noArgs,
		Example: "  tba config schema > tba.schema.json\n  # first line of tba.yaml:  # yaml-language-server: $schema=tba.schema.json",
	}
	cmd.RunE = func(*cobra.Command, []string) error {
		b, err := config.JSONSchema()
		if err != nil {
			return err
		}
		if b[len(b)-1] != '\n' {
			b = append(b, '\n')
		}
		if _, err := a.out.Write(b); err != nil {
			return fmt.Errorf("write schema: %w", err)
		}
		return nil
	}
	return cmd
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
