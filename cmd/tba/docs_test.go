package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestDocsListTheCommandLine compares docs/cli.md with the program: commands, flags and exit codes.
func TestDocsListTheCommandLine(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	page, notYet, _ := strings.Cut(string(b), "## Not there yet")
	root := (&app{out: os.Stdout, err: os.Stderr}).root()
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			walk(sub)
		}
		if c.HasSubCommands() || c.Parent() != root && c.Parent().Name() == "completion" || c.Name() == "help" {
			return
		}
		if !strings.Contains(page, "`"+c.CommandPath()) {
			t.Errorf("docs/cli.md does not list %s", c.CommandPath())
		}
		if c.Short == "" {
			t.Errorf("%s has no short description", c.CommandPath())
		}
	}
	walk(root)
	for _, word := range []string{"simulate", "`top`", "doctor"} {
		if !strings.Contains(notYet, word) {
			t.Errorf("docs/cli.md does not say that %s is not there yet", word)
		}
	}
	for _, code := range []int{exitOK, exitFailure, exitUsage, exitConfig, exitUnreachable, exitUnauthorised, exitNotFound, exitDenied, exitTimeout, exitInterrupted} {
		if !strings.Contains(page, fmt.Sprintf("\n| %d |", code)) {
			t.Errorf("docs/cli.md does not list exit code %d", code)
		}
	}
	for _, flag := range []string{"--output", "--no-headers"} {
		if root.PersistentFlags().Lookup(strings.TrimPrefix(flag, "--")) == nil {
			t.Errorf("no flag %s", flag)
		}
	}
}
