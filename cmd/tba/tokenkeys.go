package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

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
	b, err := json.MarshalIndent(tokenKeysFile{toFile(keys.Current), toFile(keys.Previous)}, "", "  ")
	if err != nil {
		return keys, false, fmt.Errorf("write token keys: %w", err)
	}
	if err := replaceFile(path, append(b, '\n'), 0o600); err != nil {
		return keys, false, fail(exitFailure, "look at the folder and its permissions: "+quote(dir), "write token keys: %w", err)
	}
	return keys, true, nil
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
