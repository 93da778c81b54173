package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/token-budget-arbiter/tba/internal/catalog"
	"github.com/token-budget-arbiter/tba/internal/config"
)

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
