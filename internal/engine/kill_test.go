package engine_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/engine"
	"github.com/token-budget-arbiter/tba/internal/filejournal"
	"github.com/token-budget-arbiter/tba/internal/journal"
)

// killFolder names the data folder to a child process of TestKill9.
const killFolder = "TBA_TEST_KILL_FOLDER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(killFolder); dir != "" {
		if err := serveUntilKilled(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	leakTest(m)
}

// serveUntilKilled takes and commits leases from many callers. It prints the lease id and the figure of each commit once it was
// acknowledged, and repeats some of the commits.
func serveUntilKilled(dir string) error {
	store, err := filejournal.Open(dir, filejournal.Options{SegmentBytes: 1 << 20})
	if err != nil {
		return err
	}
	e, err := engine.New(engine.Options{Store: store, SnapshotEvery: 64 << 10})
	if err != nil {
		return err
	}
	if err := store.Init(context.Background(), pool); err != nil && !errors.Is(err, journal.ErrExists) {
		return err
	}
	if err := e.Open(context.Background(), pool, policy(ttl(30*time.Second))); err != nil {
		return err
	}
	run := strconv.FormatInt(time.Now().UnixNano(), 36)
	var mu sync.Mutex
	say := func(line string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Println(line)
	}
	for i := range 16 {
		go func() {
			for k := 0; ; k++ {
				name := fmt.Sprintf("%s-%d-%d", run, i, k)
				o, err := e.Do(context.Background(), ask(10, named(name)))
				if err != nil || o.Answer.Status != arbiter.Granted {
					continue
				}
				c := commit(o, 1+k%9)
				if _, err := e.Do(context.Background(), c); err != nil {
					continue
				}
				// Under load a grant may come too late and be decided again, under another id.
				say(engine.FormatLeaseID(o.Answer.Lease.Lease) + " " + strconv.Itoa(1+k%9))
				if k%4 == 0 {
					_, _ = e.Do(context.Background(), c) // the answer was lost: the caller repeats it
				}
			}
		}()
	}
	select {}
}

// kill -9 at any moment: every acknowledged commit is present, nothing is counted twice, and the folder opens again.
func TestKill9(t *testing.T) {
	if testing.Short() {
		t.Skip("50 processes")
	}
	t.Parallel()
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	acknowledged := map[arbiter.LeaseID]int64{}
	for round := range 50 {
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), killFolder+"="+dir)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			name, figure, _ := strings.Cut(lines.Text(), " ")
			id, err := engine.ParseLeaseID(name)
			if err != nil {
				t.Fatal(err)
			}
			acknowledged[id], _ = strconv.ParseInt(figure, 10, 64)
			if n == 40+round*7 {
				_ = cmd.Process.Kill() // the lines that are in the pipe still come
			}
		}
		_ = cmd.Wait()
	}
	store, err := filejournal.Open(dir, filejournal.Options{SegmentBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	e := start(t, store, engine.Options{}, nil)
	spent, _ := totals(t, e)
	err = e.View(context.Background(), pool, func(s *arbiter.State) error {
		var sum int64
		for _, row := range s.LeaseRows(arbiter.LeaseFilter{Ended: true, Limit: 1 << 30}) {
			sum += int64(row.SpentTokens)
			if want, ok := acknowledged[row.Lease]; ok {
				if row.Phase != arbiter.Committed || int64(row.SpentTokens) != want {
					return fmt.Errorf("lease %x: acknowledged with %d, recorded %s with %d", row.Lease, want, row.Phase, row.SpentTokens)
				}
				delete(acknowledged, row.Lease)
			}
		}
		if sum != spent {
			return fmt.Errorf("spent %d, the leases sum to %d", spent, sum)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(acknowledged) > 0 {
		t.Fatalf("%d acknowledged commits are lost", len(acknowledged))
	}
	if spent < 5000 {
		t.Fatalf("only %d tokens: the test proves little", spent)
	}
}
