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

	"github.com/token-budget-arbiter/tba/internal/catalog"
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

func (a *app) explainCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "explain [KEY]", Short: "What a key means: type, default, example", Args: upTo(1),
		Example: "  tba config explain lease.on_expiry\n  tba config explain budget.providers\n  tba config explain rpm_ceiling",
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			var keys []string
			for _, k := range config.Reference() {
				keys = append(keys, k.Path)
			}
			return keys, cobra.ShellCompDirectiveNoFileComp
		},
	}
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		keys := config.Reference()
		if len(args) == 0 {
			return a.listKeys(keys)
		}
		found, exact := matching(keys, args[0])
		switch {
		case len(found) == 0:
			var paths []string
			for _, k := range keys {
				paths = append(paths, k.Path)
			}
			next := "tba config explain"
			if near := catalog.Nearest(args[0], paths); near != "" {
				next += " " + quote(near)
			}
			return fail(exitNotFound, next, "no key %q", args[0])
		case !exact || a.format != "table":
			return a.listKeys(found)
		}
		return a.explain(found)
	}
	return cmd
}

// matching finds the keys a person may mean: the path itself with its children, or any path that ends in the word.
// Names in the path (budget.providers.openai.rpm_ceiling) stand for <name>.
func matching(keys []config.KeyDoc, word string) (found []config.KeyDoc, exact bool) {
	want := strings.Split(word, ".")
	for _, k := range keys {
		have := strings.Split(k.Path, ".")
		if len(have) < len(want) {
			continue
		}
		same := true
		for i := range want {
			same = same && (have[i] == want[i] || have[i] == "<name>" || strings.TrimSuffix(have[i], "[]") == want[i])
		}
		if same {
			exact = exact || len(have) == len(want)
			found = append(found, k)
		}
	}
	if len(found) > 0 {
		return found, exact
	}
	for _, k := range keys {
		if strings.HasSuffix("."+k.Path, "."+word) {
			found = append(found, k)
		}
	}
	return found, len(found) == 1
}

func (a *app) listKeys(keys []config.KeyDoc) error {
	return printRows(a, keys, []column[config.KeyDoc]{
		{title: "KEY", cell: func(k config.KeyDoc) string { return k.Path }},
		{title: "TYPE", cell: func(k config.KeyDoc) string { return k.Type }},
		{title: "DEFAULT", cell: func(k config.KeyDoc) string { return k.Default }},
		{title: "WHAT", cell: func(k config.KeyDoc) string {
			first, _, _ := strings.Cut(k.Doc, ". ")
			return strings.TrimSuffix(first, ".")
		}},
	})
}

// explain prints one key in full and the names of those below it.
func (a *app) explain(found []config.KeyDoc) error {
	k := found[0]
	err := printOne(a, k, []column[config.KeyDoc]{
		{title: "key", cell: func(k config.KeyDoc) string { return k.Path }},
		{title: "what", cell: func(k config.KeyDoc) string { return k.Doc }},
		{title: "type", cell: func(k config.KeyDoc) string { return k.Type }},
		{title: "values", cell: func(k config.KeyDoc) string { return strings.Join(k.Words, ", ") }},
		{title: "default", cell: func(k config.KeyDoc) string { return k.Default }},
		{title: "example", cell: func(k config.KeyDoc) string { return k.Example }},
		{title: "flag", cell: func(k config.KeyDoc) string { return k.Flag }},
		{title: "variable", cell: func(k config.KeyDoc) string { return k.Env }},
		{title: "not yet", shade: func(config.KeyDoc) shade { return warn }, cell: func(k config.KeyDoc) string { return k.Later }},
	})
	if err != nil || len(found) == 1 {
		return err
	}
	fmt.Fprintln(a.out)
	return a.listKeys(found[1:])
}

func (a *app) initCommand() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use: "init [FILE]", Short: "Write a commented configuration", Args: upTo(1),
		Long: "Writes a commented configuration that is valid as it stands. FILE is " + defaultFile + " when left out; - is stdout.",
	}
	cmd.Flags().BoolVar(&force, "force", false, "replace a file that is there")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		path := defaultFile
		if len(args) == 1 {
			path = args[0]
		}
		if path == "-" {
			_, err := a.out.Write(config.Template())
			return err
		}
		mode := os.O_WRONLY | os.O_CREATE | os.O_EXCL
		if force {
			mode = os.O_WRONLY | os.O_CREATE | os.O_TRUNC
		}
		f, err := os.OpenFile(path, mode, 0o644)
		if errors.Is(err, fs.ErrExist) {
			return fail(exitFailure, "tba init --force "+quote(path)+", or another name", "write configuration: %w", err)
		}
		if err != nil {
			return fail(exitFailure, "", "write configuration: %w", err)
		}
		if _, err = f.Write(config.Template()); err != nil {
			return errors.Join(fmt.Errorf("write configuration: %w", err), f.Close())
		}
		if err := f.Close(); err != nil {
			return fmt.Errorf("write configuration: %w", err)
		}
		at := ""
		if path != defaultFile {
			at = " -c " + quote(path)
		}
		a.note("%s is written. Set your limits in it, then:\n\n  tba config validate%s\n  tba journal init%s\n  tba serve%s", path, at, at, at)
		return nil
	}
	return cmd
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
