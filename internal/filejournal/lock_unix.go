//go:build unix

package filejournal

import (
	"os"

	"golang.org/x/sys/unix"
)

// tryLock takes the lock of an open file, or returns false when another open
// file has it. The lock ends with the process.
func tryLock(f *os.File) (bool, error) {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == unix.EWOULDBLOCK {
		return false, nil
	}
	return err == nil, err
}
