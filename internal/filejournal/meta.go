package filejournal

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/token-budget-arbiter/tba/internal/journal"
)

const (
	metaName   = "journal.meta"
	metaFormat = 1
)

// meta is the store's description: what must be known to tell a complete log
// from one that has lost a file. It is replaced as a whole.
type meta struct {
	Format int        `json:"format"`
	Store  string     `json:"store"` // random id, hex
	First  uint64     `json:"first"` // oldest segment still needed
	Pools  []metaPool `json:"pools"`
}

// metaPool is a pool and the position its log begins after.
type metaPool struct {
	Number uint32 `json:"number"` // owner of its frames, from 1
	Name   string `json:"name"`
	Epoch  uint64 `json:"epoch"`
	// The trim position, at first the random id of the new log.
	AnchorEpoch uint64 `json:"anchor_epoch"`
	AnchorSeq   uint64 `json:"anchor_seq"`
	AnchorID    string `json:"anchor_id"`
	AnchorNow   int64  `json:"anchor_now"`
	Writer      string `json:"writer,omitempty"`
}

func (p *metaPool) anchor() (journal.Position, error) {
	id, err := parseID(p.AnchorID)
	return journal.Position{Epoch: p.AnchorEpoch, Seq: p.AnchorSeq, ID: id}, err
}

func parseID(s string) (id journal.EntryID, err error) {
	b, err := hex.DecodeString(s)
	if err == nil && len(b) != len(id) {
		err = fmt.Errorf("an id of %d bytes", len(b))
	}
	copy(id[:], b)
	return id, err
}

// The description is checked without a seed: it is what the seed comes from.
const metaSeed = seed(0)

func (s *Store) writeMeta(m meta) error {
	b, err := json.Marshal(m)
	if err == nil {
		err = replaceFile(s.disk, filepath.Join(s.dir, metaName), metaSeed.appendFrame(nil, frame{kind: kindMeta, payload: b}))
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", metaName, err)
	}
	return nil
}

// readMeta returns ErrUninitialised for a folder in which no store ever was.
func readMeta(dir string) (meta, error) {
	path := filepath.Join(dir, metaName)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if name := leftover(dir); name != "" {
			return meta{}, &journal.CorruptError{File: path, Reason: fmt.Sprintf("the file is missing, but %s is there: restore the folder as a whole", name)}
		}
		return meta{}, journal.ErrUninitialised
	}
	if err != nil {
		return meta{}, err
	}
	var m meta
	f, n, err := metaSeed.parseFrame(b)
	switch {
	case err != nil:
	case n != len(b):
		err = fmt.Errorf("%d bytes follow the frame", len(b)-n)
	case f.kind != kindMeta:
		err = fmt.Errorf("it holds something else than a description")
	default:
		err = json.Unmarshal(f.payload, &m)
	}
	if err != nil {
		return meta{}, &journal.CorruptError{File: path, Reason: err.Error()}
	}
	if m.Format != metaFormat {
		return meta{}, fmt.Errorf("read %s: %w: it has format %d, this version reads %d", path, journal.ErrFormat, m.Format, metaFormat)
	}
	return m, nil
}

// buildingName exists while a folder is being initialised.
const buildingName = "journal.building"

// leftover names a part of a store that lost its description.
func leftover(dir string) string {
	if _, err := os.Stat(filepath.Join(dir, buildingName)); err == nil {
		return "" // an init was interrupted; it acknowledged nothing
	}
	for _, name := range []string{markName, logFolder, snapshotFolder, archiveFolder} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return name
		}
	}
	return ""
}
