package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/token-budget-arbiter/tba/internal/config"
)

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
