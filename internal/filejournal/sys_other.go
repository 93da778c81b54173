//go:build !unix

package filejournal

import (
	"errors"
	"fmt"
	"os"
	"time"
)

// There the program builds, with every other store.

var errQuota = errors.New("no quota on this system")

func tryLock(*os.File) (bool, error) {
	return false, fmt.Errorf("%w: the file journal needs a Unix system", errors.ErrUnsupported)
}

func unlock(*os.File) error { return nil }

func fdatasync(f *os.File) error { return f.Sync() }

func syncFolder(*os.File) error { return nil }

func reserve(*os.File, int64) error { return nil }

func boot() (id string, since time.Duration) { return "", 0 }
