package main

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/token-budget-arbiter/tba/internal/config"
	"github.com/token-budget-arbiter/tba/internal/engine"
	"github.com/token-budget-arbiter/tba/internal/filejournal"
	"github.com/token-budget-arbiter/tba/internal/journal"
)

const memoryJournal = "memory"

// place splits a journal setting: the folder of file:DIR, or memory.
func place(setting string) (dir string, memory bool, err error) {
	if setting == "" {
		return "", false, fail(exitConfig, "add journal: file:DIR to the configuration, or --data DIR", "no place for the journal: grants and commits must be remembered somewhere")
	}
	if err := config.CheckJournal(setting); err != nil {
		return "", false, fail(exitConfig, "tba config explain journal", "journal: %w", err)
	}
	if setting == memoryJournal {
		return "", true, nil
	}
	return filepath.Clean(strings.TrimPrefix(setting, "file:")), false, nil
}

// openFolder opens a data folder and says what to do about it when that fails.
func openFolder(dir string, o filejournal.Options) (*filejournal.Store, error) {
	store, err := filejournal.Open(dir, o)
	var corrupt *journal.CorruptError
	switch {
	case err == nil:
		return store, nil
	case errors.Is(err, journal.ErrLocked):
		return nil, fail(exitFailure, "stop that process, ask it (tba status), or name another folder: --data DIR", "%w", err)
	case errors.As(err, &corrupt):
		return nil, fail(exitFailure, "restore the folder from a backup; what is there is kept as it is", "%w", err)
	}
	return nil, fail(exitFailure, "look at the folder and its permissions: --data "+quote(dir), "%w", err)
}

// absent is the answer to a folder, or a pool in it, that was never made: it may be lost, so nobody starts at zero.
func absent(dir, pool, file string, err error) error {
	next := "tba journal init --data " + quote(dir)
	if file != "" {
		next = "tba journal init -c " + quote(file) + " --data " + quote(dir)
	}
	return fail(exitFailure, next+"   if it is new; restore it or correct --data if it is not",
		"pool %s has no journal in %s, and absent is not zero: what was spent may be recorded elsewhere: %w", pool, dir, err)
}

func (a *app) journalCommand() *cobra.Command {
	return group("journal", "Create the journal of a server, look at it, rotate its keys", a.journalInitCommand(), a.journalStatusCommand(), a.rotateKeysCommand())
}

// journalFlags are those that say where the journal is.
func journalFlags(flags *pflag.FlagSet) {
	configFlag(flags)
	flags.String("data", "", "folder of the journal (TBA_DATA), instead of journal: in the configuration")
	flags.String("journal", "", "the same as file:DIR (TBA_JOURNAL)")
}

// folder finds the data folder by flag, environment or configuration, and the pools of the configuration. Without a
// configuration file there is the pool default alone.
func (a *app) folder(flags *pflag.FlagSet) (dir string, pools []string, err error) {
	sources, path := a.sources(flags), a.file(flags)
	setting, pools := "", []string{engine.DefaultPool}
	c, err := sources.Load(path)
	named := flags.Changed("config") || exists(path)
	switch {
	case err == nil:
		c.Warnings.Print(a.err)
		setting, pools = c.Settings.Journal, nil
		for _, p := range c.Pools {
			pools = append(pools, p.Name)
		}
	case named:
		return "", nil, badConfig(path, err)
	default: // no file, and none was asked for: the flag says enough
		s, err := sources.Settings()
		if err != nil {
			return "", nil, badConfig(path, err)
		}
		setting = s.Journal
	}
	dir, memory, err := place(setting)
	if err != nil {
		return "", nil, err
	}
	if memory {
		return "", nil, fail(exitUsage, "tba journal init --data DIR", "journal: memory keeps nothing, so there is nothing to create or to look at")
	}
	return dir, pools, nil
}

type initRow struct {
	Pool    string `json:"pool"`
	Folder  string `json:"folder"`
	Created bool   `json:"created"`
}

func (a *app) journalInitCommand() *cobra.Command {
	var pools []string
	cmd := &cobra.Command{
		Use: "init", Short: "Create the journal: once, never implicit", Args: noArgs,
		Long: `Creates an empty journal for each pool of the configuration. It is a command of its own because an empty journal says that
nothing was spent: a server that made one by itself would grant a period's budget twice when a folder is lost.
What is there already is not touched.`,
		Example: "  tba journal init -c tba.yaml\n  tba journal init --data /var/lib/tba",
	}
	journalFlags(cmd.Flags())
	cmd.Flags().StringSliceVar(&pools, "pool", nil, "pools to create (default: those of the configuration, else default)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		dir, names, err := a.folder(cmd.Flags())
		if err != nil {
			return err
		}
		if len(pools) > 0 {
			names = pools
		}
		rows, err := initPools(cmd.Context(), dir, names)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(rows, func(r initRow) bool { return r.Created }) {
			return fail(exitFailure, "tba journal status --data "+quote(dir), "journal of %s in %s: %w: nothing was changed", strings.Join(names, ", "), dir, journal.ErrExists)
		}
		return printRows(a, rows, []column[initRow]{
			{title: "POOL", cell: func(r initRow) string { return r.Pool }},
			{title: "JOURNAL", cell: func(r initRow) string {
				if r.Created {
					return "created"
				}
				return "was there already"
			}},
			{title: "FOLDER", cell: func(r initRow) string { return r.Folder }},
		})
	}
	return cmd
}

// initPools makes the journals that are not there yet.
func initPools(ctx context.Context, dir string, names []string) ([]initRow, error) {
	store, err := openFolder(dir, filejournal.Options{})
	if err != nil {
		return nil, err
	}
	defer store.Close()
	var rows []initRow
	for _, name := range names {
		err := store.Init(ctx, name)
		switch {
		case err == nil || errors.Is(err, journal.ErrExists):
			rows = append(rows, initRow{Pool: name, Folder: dir, Created: err == nil})
		case errors.Is(err, journal.ErrInvalid):
			return nil, fail(exitUsage, "", "%w", err)
		default:
			return nil, fail(exitFailure, "look at the folder and its permissions: --data "+quote(dir), "create journal: %w", err)
		}
	}
	return rows, nil
}
