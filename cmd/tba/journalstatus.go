package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/token-budget-arbiter/tba/internal/engine"
	"github.com/token-budget-arbiter/tba/internal/filejournal"
	"github.com/token-budget-arbiter/tba/internal/journal"
)

var journalModes = map[journal.Mode]string{journal.ModeOpen: "open", journal.ModeRecovering: "recovering"}

type journalRow struct {
	Pool          string  `json:"pool"`
	Folder        string  `json:"folder"`
	Epoch         integer `json:"epoch"`
	Sequence      integer `json:"sequence"`
	Mode          string  `json:"mode"`
	Oldest        integer `json:"oldest_sequence"`
	Bytes         integer `json:"bytes"`
	Writer        string  `json:"writer"`
	Snapshot      integer `json:"snapshot_sequence"`
	SnapshotBytes integer `json:"snapshot_bytes"`
	Store         string  `json:"store"`
	Checked       bool    `json:"checked"` // false: a server has the folder and told epoch, sequence and writer alone
}

func (a *app) journalStatusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "status", Short: "What is in a data folder", Args: noArgs,
		Long: `Opens the folder, checks every record in it, and says how far each pool's log reaches. When a server has the folder, that one is
asked instead (--server), and nothing is checked.`,
	}
	journalFlags(cmd.Flags())
	server := a.serverFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		dir, _, err := a.folder(cmd.Flags())
		if err != nil {
			return err
		}
		store, err := openFolder(dir, filejournal.Options{})
		if errors.Is(err, journal.ErrLocked) {
			return a.askHolder(cmd.Context(), server, dir, err)
		}
		if err != nil {
			return err
		}
		defer store.Close()
		pools, err := store.Pools(cmd.Context())
		if err != nil {
			return fail(exitFailure, "", "%w", err)
		}
		if len(pools) == 0 {
			return absent(dir, engine.DefaultPool, "", journal.ErrUninitialised)
		}
		var rows []journalRow
		for _, name := range pools {
			row, err := poolStatus(cmd.Context(), store, name)
			if err != nil {
				return err
			}
			rows = append(rows, row)
		}
		return printRows(a, rows, journalColumns)
	}
	return cmd
}

func (r journalRow) ifChecked(text string) string {
	if !r.Checked {
		return ""
	}
	return text
}

var journalColumns = []column[journalRow]{
	{title: "POOL", cell: func(r journalRow) string { return r.Pool }},
	{title: "EPOCH", right: true, cell: func(r journalRow) string { return count(r.Epoch) }},
	{title: "ENTRY", right: true, cell: func(r journalRow) string { return count(r.Sequence) }},
	{title: "OLDEST", right: true, cell: func(r journalRow) string { return r.ifChecked(count(r.Oldest)) }},
	{title: "LOG", right: true, cell: func(r journalRow) string { return r.ifChecked(humanize.IBytes(uint64(r.Bytes))) }},
	{title: "SNAPSHOT AT", right: true, cell: func(r journalRow) string {
		if r.SnapshotBytes == 0 {
			return r.ifChecked("none yet")
		}
		return count(r.Snapshot) + ", " + humanize.IBytes(uint64(r.SnapshotBytes))
	}},
	{title: "WRITER", cell: func(r journalRow) string { return r.Writer }},
	{title: "FOLDER", cell: func(r journalRow) string { return r.Folder }},
}

// askHolder asks the process that has the folder how far its pools are. locked is what that folder said; it stays the
// answer when the server that was asked is another one than the process that has it.
func (a *app) askHolder(ctx context.Context, s *api, dir string, locked error) error {
	next := "ask the process that has it by its address: tba journal status --server URL; or stop it, to have the records checked"
	text, err := os.ReadFile(filepath.Join(dir, "journal.lock"))
	if err != nil {
		return fail(exitFailure, next, "%w", locked)
	}
	holder, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	var rows []journalRow
	for pools := []string{""}; len(pools) > 0; pools = pools[1:] {
		s.pool = pools[0]
		var v statusRow
		if err := s.get(ctx, "status", nil, &v); err != nil {
			return fail(exitFailure, next, "%w; the server that was asked instead: %w", locked, err)
		}
		if v.Writer != writerName(holder) {
			return fail(exitFailure, next, "%w; the server that was asked instead, %s, is another one", locked, v.Writer)
		}
		if s.pool == "" {
			pools = append(pools, v.Pools...)
			continue
		}
		rows = append(rows, journalRow{Pool: v.Pool, Folder: dir, Epoch: v.Epoch, Sequence: v.Sequence, Mode: journalModes[journal.ModeOpen], Writer: v.Writer, Store: v.Journal})
	}
	if err := printRows(a, rows, journalColumns); err != nil {
		return err
	}
	a.note("process %d has the folder: it was asked, and no record was checked", holder)
	return nil
}

func poolStatus(ctx context.Context, store *filejournal.Store, name string) (journalRow, error) {
	j, err := store.Open(ctx, name)
	if err != nil {
		return journalRow{}, fail(exitFailure, "", "%w", err)
	}
	head, err := j.Head(ctx)
	if err != nil {
		return journalRow{}, fmt.Errorf("pool %s: %w", name, err)
	}
	row := journalRow{
		Pool: name, Folder: store.Dir(), Epoch: integer(head.Epoch), Sequence: integer(head.Pos.Seq), Mode: journalModes[head.Mode],
		Oldest: integer(head.Oldest.Seq), Bytes: integer(head.Bytes), Writer: head.Writer, Store: "file", Checked: true,
	}
	manifest, r, err := j.Snapshots().Load(ctx)
	switch {
	case errors.Is(err, journal.ErrNoSnapshot):
		return row, nil
	case err != nil:
		return row, fail(exitFailure, "restore the folder from a backup", "pool %s: read snapshot: %w", name, err)
	}
	defer r.Close()
	if _, err := io.Copy(io.Discard, r); err != nil { // reading it checks it
		return row, fail(exitFailure, "restore the folder from a backup", "pool %s: read snapshot: %w", name, err)
	}
	row.Snapshot, row.SnapshotBytes = integer(manifest.At.Seq), integer(manifest.Bytes)
	return row, nil
}
