package filejournal

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/token-budget-arbiter/tba/internal/journal"
)

const lockName = "journal.lock"

// lockFolder makes this store the only user of the folder. The lock is the
// kernel's and ends with the process; the file stays and holds the process id,
// for messages only.
func lockFolder(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o640)
	if err != nil {
		return nil, fmt.Errorf("lock journal folder %s: %w", dir, err)
	}
	got, err := tryLock(f)
	if err == nil && !got {
		holder := "another process"
		buf := make([]byte, 20)
		n, _ := f.ReadAt(buf, 0)
		if pid, perr := strconv.Atoi(strings.TrimSpace(string(buf[:n]))); perr == nil {
			holder = fmt.Sprintf("process %d", pid)
		}
		err = fmt.Errorf("%w: %s has it; stop that one or use another folder", journal.ErrLocked, holder)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock journal folder %s: %w", dir, err)
	}
	// Best effort: only the message of a refused second process needs it.
	if f.Truncate(0) == nil {
		_, _ = f.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
	}
	return f, nil
}
