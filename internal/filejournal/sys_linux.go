package filejournal

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const errQuota = syscall.EDQUOT

// retry repeats a system call that a signal has interrupted.
func retry(call func() error) error {
	for {
		if err := call(); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

func fdatasync(f *os.File) error {
	return retry(func() error { return unix.Fdatasync(int(f.Fd())) })
}

func syncFolder(d *os.File) error { return d.Sync() }

func reserve(f *os.File, size int64) error {
	err := retry(func() error { return unix.Fallocate(int(f.Fd()), 0, 0, size) })
	if errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENOSYS) {
		return nil // the zeros that follow do it
	}
	return err
}

// boot returns what names this boot of the machine and the time since it,
// suspends included. An empty id means that it cannot be known.
func boot() (id string, since time.Duration) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", 0
	}
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return "", 0
	}
	return strings.TrimSpace(string(b)), time.Duration(ts.Nano())
}
