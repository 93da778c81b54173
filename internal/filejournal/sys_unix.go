//go:build unix && !linux

package filejournal

import (
	"os"
	"syscall"
	"time"
)

const errQuota = syscall.EDQUOT

func fdatasync(f *os.File) error { return f.Sync() }

func syncFolder(d *os.File) error { return d.Sync() }

func reserve(*os.File, int64) error { return nil }

// boot is unknown: logical time stands still between two processes.
func boot() (id string, since time.Duration) { return "", 0 }
