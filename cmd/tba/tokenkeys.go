package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/token-budget-arbiter/tba/internal/engine"
)

// tokenKeysName is the file in the data folder with the keys that sign lease tokens and tickets. They belong to the
// folder: a lease that outlives a restart comes back with a token of before.
const tokenKeysName = "token.keys"

// tokenKeysFile is what stands in it. Secrets are base64.
type tokenKeysFile struct {
	Current  tokenKey `json:"current"`
	Previous tokenKey `json:"previous"`
}

type tokenKey struct {
	ID     uint8  `json:"id"`
	Secret []byte `json:"secret"`
}

// tokenKeys reads the keys of a data folder, or makes them on its first use. made says that they are new.
func tokenKeys(dir string) (keys engine.TokenKeys, made bool, err error) {
	path := filepath.Join(dir, tokenKeysName)
	keys, err = readTokenKeys(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return keys, false, err
	}
	keys = engine.NewTokenKeys()
	return keys, true, writeTokenKeys(dir, keys)
}

func writeTokenKeys(dir string, keys engine.TokenKeys) error {
	b, err := json.MarshalIndent(tokenKeysFile{toFile(keys.Current), toFile(keys.Previous)}, "", "  ")
	if err != nil {
		return fmt.Errorf("write token keys: %w", err)
	}
	if err := replaceFile(filepath.Join(dir, tokenKeysName), append(b, '\n'), 0o600); err != nil {
		return fail(exitFailure, "look at the folder and its permissions: "+quote(dir), "write token keys: %w", err)
	}
	return nil
}

func readTokenKeys(path string) (engine.TokenKeys, error) {
	var keys engine.TokenKeys
	st, err := os.Stat(path)
	if err != nil {
		return keys, fmt.Errorf("read token keys: %w", err)
	}
	if open := st.Mode().Perm() & 0o077; open != 0 {
		return keys, fail(exitFailure, "chmod 600 "+quote(path), "token keys %s have mode %04o: whoever reads them can make lease tokens", path, st.Mode().Perm())
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return keys, fmt.Errorf("read token keys: %w", err)
	}
	var f tokenKeysFile
	if err := json.Unmarshal(b, &f); err != nil {
		return keys, fail(exitFailure, "restore the file from a backup; or remove it: running leases then need no token but cannot be recreated", "read token keys %s: %w", path, err)
	}
	for _, k := range []struct {
		name string
		from tokenKey
		to   *engine.Key
	}{{"current", f.Current, &keys.Current}, {"previous", f.Previous, &keys.Previous}} {
		if len(k.from.Secret) != engine.KeyBytes {
			return keys, fail(exitFailure, "restore the file from a backup", "read token keys %s: %s has %d bytes instead of %d", path, k.name, len(k.from.Secret), engine.KeyBytes)
		}
		k.to.ID = k.from.ID
		copy(k.to.Secret[:], k.from.Secret)
	}
	return keys, nil
}

// reloadTokenKeys takes over keys that rotate-keys has written. The old ones stay when the file cannot be read.
func (s *server) reloadTokenKeys() {
	if s.dir == "" {
		return // made for this process alone
	}
	keys, err := readTokenKeys(filepath.Join(s.dir, tokenKeysName))
	if err != nil {
		s.log.Error("token keys not read again: those before go on", "error", err)
		return
	}
	s.pools.SetTokenKeys(keys)
	s.log.Info("token keys read again", "current", keys.Current.ID, "previous", keys.Previous.ID)
}

type rotationRow struct {
	File     string `json:"file"`
	Current  uint8  `json:"current"`
	Previous uint8  `json:"previous"`
	Dropped  uint8  `json:"dropped"`
}

func (a *app) rotateKeysCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "rotate-keys", Short: "Write a new key that signs lease tokens, and keep the one before", Args: noArgs,
		Long: `Writes a new signing key into token.keys of the data folder. The key that signed until now is kept for what it has signed; the one
before that is dropped, and a lease token of it counts as none from then on. A running server takes the new file over on SIGHUP,
any other at its start. Run it as the user of the server. Between two rotations leave as long as a lease may live, and lease.commit_by.`,
		Example: "  tba journal rotate-keys --data /var/lib/tba && kill -HUP PID",
	}
	journalFlags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		dir, _, err := a.folder(cmd.Flags())
		if err != nil {
			return err
		}
		path := filepath.Join(dir, tokenKeysName)
		old, err := readTokenKeys(path)
		if errors.Is(err, fs.ErrNotExist) {
			return fail(exitFailure, "tba serve makes them at its first start; correct --data if there should be some", "%w", err)
		}
		if err != nil {
			return err
		}
		keys := engine.TokenKeys{Current: engine.NewKey(old.Current.ID + 1), Previous: old.Current}
		if err := writeTokenKeys(dir, keys); err != nil {
			return err
		}
		row := rotationRow{File: path, Current: keys.Current.ID, Previous: keys.Previous.ID, Dropped: old.Previous.ID}
		err = printOne(a, row, []column[rotationRow]{
			{title: "file", cell: func(r rotationRow) string { return r.File }},
			{title: "current", cell: func(r rotationRow) string { return fmt.Sprintf("key %d, new", r.Current) }},
			{title: "previous", cell: func(r rotationRow) string {
				return fmt.Sprintf("key %d, still good for what it has signed", r.Previous)
			}},
			{title: "dropped", cell: func(r rotationRow) string { return fmt.Sprintf("key %d", r.Dropped) }},
		})
		a.note("Send the running server SIGHUP: it signs with the old key until then.")
		return err
	}
	return cmd
}

func toFile(k engine.Key) tokenKey { return tokenKey{ID: k.ID, Secret: k.Secret[:]} }

// replaceFile writes a file so that a reader sees the old one or the whole new one, also after a crash.
func replaceFile(path string, b []byte, mode os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // after the rename it is gone already
	_, err = f.Write(b)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
