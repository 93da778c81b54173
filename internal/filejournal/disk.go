package filejournal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/token-budget-arbiter/tba/internal/journal"
)

// disk is what the log does to its files. It is an interface so that tests can
// make it fail.
type disk interface {
	// WriteAt writes all of b or returns an error.
	WriteAt(f *os.File, b []byte, off int64) error
	// Sync makes the content of f durable, not its times.
	Sync(f *os.File) error
	// Allocate gives an empty f size bytes of real, zeroed blocks.
	Allocate(f *os.File, size int64) error
	// SyncDir makes the names in a folder durable.
	SyncDir(dir string) error
}

// systemDisk is the operating system's.
type systemDisk struct{}

func (systemDisk) WriteAt(f *os.File, b []byte, off int64) error {
	_, err := f.WriteAt(b, off)
	return err
}

func (systemDisk) Sync(f *os.File) error { return fdatasync(f) }

func (systemDisk) Allocate(f *os.File, size int64) error {
	// First reserve, which fails at once on a full disk. Then write zeros: a
	// reserved but unwritten block costs a metadata commit in the sync that
	// first writes it, and some file systems do not count it as space taken.
	if err := reserve(f, size); err != nil {
		return err
	}
	zeros := make([]byte, 1<<20)
	for off := int64(0); off < size; off += int64(len(zeros)) {
		if _, err := f.WriteAt(zeros[:min(int64(len(zeros)), size-off)], off); err != nil {
			return err
		}
	}
	return f.Sync()
}

// errUncertain marks a failure after which nobody knows what the medium holds,
// whatever its cause: after a failed sync, which pages are lost.
var errUncertain = errors.New("what was written is uncertain")

// isFull reports whether an error means that there is no room, as opposed to a
// medium that cannot be trusted any more.
func isFull(err error) bool {
	if errors.Is(err, errUncertain) {
		return false
	}
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, errQuota) || errors.Is(err, syscall.EFBIG)
}

// named adds ErrFull to an error that means it.
func named(err error) error {
	if err != nil && isFull(err) {
		return fmt.Errorf("%w: %w", journal.ErrFull, err)
	}
	return err
}

func (systemDisk) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return syncFolder(d)
}

// replaceFile writes a file so that a crash leaves the old or the new content.
func replaceFile(d disk, path string, content []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp")
	if err != nil {
		return named(err)
	}
	defer os.Remove(tmp.Name()) // gone after the rename
	_, err = tmp.Write(content)
	if err == nil {
		err = tmp.Sync()
	}
	if err = errors.Join(err, tmp.Close()); err != nil {
		return named(err)
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return named(err)
	}
	return d.SyncDir(filepath.Dir(path))
}

// removeTemporaries deletes what a crash has left of replaceFile and Save.
func removeTemporaries(dir string) error {
	names, err := filepath.Glob(filepath.Join(dir, "*.tmp"))
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
