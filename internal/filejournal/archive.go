package filejournal

import (
	"bytes"
	"context"
	"encoding/base32"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/token-budget-arbiter/tba/internal/journal"
)

const archiveFolder = "archive"

// rowNames makes file names of keys that differ also where case does not count.
var rowNames = base32.HexEncoding.WithPadding(base32.NoPadding)

const rowSuffix = ".row"

func (s *Store) rowFolder(p *pool) string {
	return filepath.Join(s.dir, archiveFolder, strconv.FormatUint(uint64(p.number), 10))
}

func rowName(key string) string {
	return strings.ToLower(rowNames.EncodeToString([]byte(key))) + rowSuffix
}

func (s *Store) findPool(ctx context.Context, name string) (*pool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.find(ctx, name)
}

// PutOnce implements journal.Archive.
func (s *Store) PutOnce(ctx context.Context, pool, key string, row []byte) error {
	if err := s.putOnce(ctx, pool, key, row); err != nil {
		return fmt.Errorf("archive row %q of pool %q: %w", key, pool, err)
	}
	return nil
}

func (s *Store) putOnce(ctx context.Context, pool, key string, row []byte) error {
	p, err := s.findPool(ctx, pool)
	if err != nil {
		return err
	}
	if err := journal.CheckRow(key, row); err != nil {
		return err
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	path := filepath.Join(s.rowFolder(p), rowName(key))
	switch old, err := s.readRow(p, path, key); {
	case err == nil && bytes.Equal(old, row):
		return nil
	case err == nil:
		return journal.ErrExists
	case !errors.Is(err, journal.ErrNotFound):
		return err
	}
	if err := os.Mkdir(filepath.Dir(path), 0o750); err == nil {
		err = s.disk.SyncDir(filepath.Join(s.dir, archiveFolder))
		if err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrExist) {
		return named(err)
	} else if err := removeTemporaries(filepath.Dir(path)); err != nil {
		return err
	}
	payload := append(append([]byte{byte(len(key))}, key...), row...)
	return replaceFile(s.disk, path, s.seed.appendFrame(nil, frame{kind: kindRow, owner: p.number, payload: payload}))
}

// readRow returns ErrNotFound for an absent row.
func (s *Store) readRow(p *pool, path, key string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, journal.ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	f, n, err := s.seed.parseFrame(b)
	switch {
	case err != nil:
	case n != len(b):
		err = fmt.Errorf("%d bytes follow the row", len(b)-n)
	case f.kind != kindRow || f.owner != p.number || !bytes.HasPrefix(f.payload, append([]byte{byte(len(key))}, key...)):
		err = fmt.Errorf("it holds another row")
	default:
		return f.payload[1+len(key):], nil
	}
	return nil, &journal.CorruptError{File: path, Reason: err.Error()}
}

// Get implements journal.Archive.
func (s *Store) Get(ctx context.Context, pool, key string) ([]byte, error) {
	p, err := s.findPool(ctx, pool)
	var row []byte
	if err == nil {
		row, err = s.readRow(p, filepath.Join(s.rowFolder(p), rowName(key)), key)
	}
	if err != nil {
		return nil, fmt.Errorf("read archive row %q of pool %q: %w", key, pool, err)
	}
	return row, nil
}

// List implements journal.Archive.
func (s *Store) List(ctx context.Context, pool, after string, limit int) ([]string, error) {
	p, err := s.findPool(ctx, pool)
	var entries []os.DirEntry
	if err == nil {
		entries, err = os.ReadDir(s.rowFolder(p))
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("list archive of pool %q: %w", pool, err)
	}
	keys := make([]string, 0, len(entries))
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), rowSuffix)
		if key, err := rowNames.DecodeString(strings.ToUpper(name)); ok && err == nil {
			keys = append(keys, string(key))
		}
	}
	return journal.PageKeys(keys, after, limit), nil
}
