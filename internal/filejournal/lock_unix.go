//go:build unix

package filejournal

import (
	"os"

	"golang.org/x/sys/unix"
)

// unlock gives the lock back at once. Closing alone would leave it for a moment
// with a child process that has been forked and not yet started its program.
func unlock(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_UN) }

// tryLock takes the lock of an open file, or returns false when another open
// file has it. The lock ends with the process.
func tryLock(f *os.File) (bool, error) {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == unix.EWOULDBLOCK {
		return false, nil
	}
	return err == nil, err
}
