//go:build unix

package filejournal

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/token-budget-arbiter/tba/internal/journal"
	"github.com/token-budget-arbiter/tba/internal/journal/journaltest"
)

// childEnv makes the test binary play a process of its own: "role folder".
const childEnv = "TBA_FILEJOURNAL_CHILD"

func TestMain(m *testing.M) {
	role, dir, ok := strings.Cut(os.Getenv(childEnv), " ")
	if !ok {
		os.Exit(m.Run())
	}
	roles := map[string]func(string) error{"append": appendForEver, "hold": holdFolder, "limit": fillUnderLimit}
	if err := roles[role](dir); err != nil {
		fmt.Fprintln(os.Stderr, role+":", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func child(t *testing.T, role, dir string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childEnv+"="+role+" "+dir)
	cmd.Stderr = os.Stderr
	return cmd
}

const killPools = 6

// appendForEver appends to all pools at once and prints each acknowledgement.
// Two pools take snapshots and trim, too.
func appendForEver(dir string) error {
	s, err := Open(dir, Options{SegmentBytes: minSegmentBytes})
	if err != nil {
		return err
	}
	ctx := context.Background()
	errs := make(chan error)
	for i := range killPools {
		name := fmt.Sprint("p", i)
		if err := s.Init(ctx, name); err != nil && !errors.Is(err, journal.ErrExists) {
			return err
		}
		if i == 0 { // everything is beyond the trim horizon
			s.mu.Lock()
			s.openedNow += int64(journal.TrimHorizon)
			s.mu.Unlock()
		}
		j, err := s.Open(ctx, name)
		if err != nil {
			return err
		}
		head, err := j.Head(ctx)
		if err != nil {
			return err
		}
		l := &journaltest.Log{Pool: name, Journal: j, Pos: head.Pos, Epoch: head.Epoch, Writer: "w"}
		go func() {
			for n := 1; ; n++ {
				payload := make([]byte, 20+rand.IntN(3000))
				copy(payload, fmt.Sprintf("%d/%d ", os.Getpid(), n))
				res, err := j.Append(ctx, l.Build(journal.Header{Now: journal.FirstNow}, payload))
				if err != nil {
					errs <- err
					return
				}
				l.Pos = res.Pos
				fmt.Printf("%s %d %s\n", name, res.Pos.Seq, res.Pos.ID)
				if i < 2 && n%50 == 0 {
					_, err := j.Snapshots().Save(ctx, res.Pos, func(w io.Writer) error {
						_, err := fmt.Fprint(w, res.Pos.Seq)
						return err
					})
					if err = errors.Join(err, j.Snapshots().Trim(ctx)); err != nil {
						errs <- err
						return
					}
				}
			}
		}()
	}
	return <-errs
}

// TestKill kills a process again and again in the middle of its appends.
func TestKill(t *testing.T) {
	t.Parallel()
	rounds := 50
	if testing.Short() {
		rounds = 10
	}
	dir := filepath.Join(t.TempDir(), "j")
	type key struct {
		pool string
		seq  uint64
	}
	acknowledged := map[key]string{}
	kills, trimmed := 0, 0
	rnd := rand.New(rand.NewPCG(7, 7))
	for round := range rounds {
		cmd := child(t, "append", dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		stop := 1 + rnd.IntN(600)
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			var k key
			var id string
			if _, err := fmt.Sscan(lines.Text(), &k.pool, &k.seq, &id); err != nil {
				t.Fatalf("round %d: %q: %v", round, lines.Text(), err)
			}
			if old, ok := acknowledged[k]; ok {
				t.Fatalf("round %d: %v was acknowledged as %s and again as %s", round, k, old, id)
			}
			acknowledged[k] = id
			if n == stop {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		var exit *exec.ExitError
		if err := cmd.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("round %d: the process ended by itself: %v", round, err)
		}
		kills++
		if round%5 != 4 && round != rounds-1 {
			continue // the next process finds what the kill left
		}
		s := mustOpen(t, dir, Options{})
		found := map[key]string{}
		heads := map[string]journal.Head{}
		payloads := map[string]bool{}
		for i := range killPools {
			name := fmt.Sprint("p", i)
			j, err := s.Open(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			head, err := j.Head(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			heads[name] = head
			for _, e := range journaltest.ReadAll(t, j, head.Oldest) {
				found[key{name, e.Seq}] = e.ID.String()
				unique, _, _ := strings.Cut(journaltest.Payload(e), " ")
				if unique = name + " " + unique; payloads[unique] {
					t.Fatalf("entry %s is there twice", unique)
				}
				payloads[unique] = true
			}
			if m, r, err := j.Snapshots().Load(t.Context()); err == nil {
				state, err := io.ReadAll(r)
				r.Close()
				if err != nil || string(state) != fmt.Sprint(m.At.Seq) || m.At.Seq < head.Oldest.Seq {
					t.Fatalf("snapshot %+v holds %q: %v", m, state, err)
				}
			} else if !errors.Is(err, journal.ErrNoSnapshot) || head.Oldest.Seq > 0 {
				t.Fatal(err)
			}
		}
		for k, id := range acknowledged {
			switch {
			case k.seq <= heads[k.pool].Oldest.Seq:
				trimmed++
			case found[k] != id:
				t.Fatalf("round %d: %v was acknowledged as %s, found %q", round, k, id, found[k])
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d kills, %d acknowledged appends, all present", kills, len(acknowledged))
	if len(acknowledged) < rounds*10 || trimmed == 0 {
		t.Errorf("too little happened: %d acknowledged, %d checked as trimmed", len(acknowledged), trimmed)
	}
}

// holdFolder opens the folder and waits for the end of its input.
func holdFolder(dir string) error {
	s, err := Open(dir, Options{SegmentBytes: minSegmentBytes})
	if err != nil {
		return err
	}
	fmt.Println("open")
	_, err = io.Copy(io.Discard, os.Stdin)
	return errors.Join(err, s.Close())
}

func TestTwoProcesses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := mustOpen(t, dir, Options{})
	journaltest.NewLog(t, s, "p")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	cmd := child(t, "hold", dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	_, err = Open(dir, Options{})
	if !errors.Is(err, journal.ErrLocked) || !strings.Contains(err.Error(), fmt.Sprintf("process %d", cmd.Process.Pid)) || !strings.Contains(err.Error(), dir) {
		t.Errorf("the second process: %v", err)
	}
	if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
		t.Fatal(err)
	}
	mustOpen(t, dir, Options{})
}

// fillUnderLimit meets real errors of the system: no file may grow beyond half
// a segment, neither the new ones nor the writes into the present one.
func fillUnderLimit(dir string) error {
	s, err := Open(dir, Options{SegmentBytes: minSegmentBytes})
	if err != nil {
		return err
	}
	ctx := context.Background()
	if err := s.Init(ctx, "p"); err != nil {
		return err
	}
	j, err := s.Open(ctx, "p")
	if err != nil {
		return err
	}
	head, err := j.Head(ctx)
	if err != nil {
		return err
	}
	l := &journaltest.Log{Pool: "p", Journal: j, Pos: head.Pos, Epoch: head.Epoch, Writer: "w"}
	send := func(flags journal.Flags) error {
		res, err := j.Append(ctx, l.Build(journal.Header{Now: journal.FirstNow, Flags: flags}, bytes.Repeat([]byte{'x'}, 10_000)))
		if err == nil {
			l.Pos = res.Pos
		}
		return err
	}
	p := <-s.next // whole before the limit, so that it cannot fail later
	s.next <- p
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	low := limit
	low.Cur = minSegmentBytes / 2
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &low); err != nil {
		return err
	}
	ordinary, essential := 0, 0
	for err = nil; err == nil; ordinary++ {
		err = send(0)
	}
	if !errors.Is(err, journal.ErrFull) {
		return fmt.Errorf("ordinary append %d: %w", ordinary, err)
	}
	for err = nil; err == nil; essential++ {
		err = send(journal.FlagEssential)
	}
	if !errors.Is(err, journal.ErrFull) || essential < 20 {
		return fmt.Errorf("essential append %d: %w", essential, err)
	}
	if err := send(0); !errors.Is(err, journal.ErrFull) {
		return fmt.Errorf("ordinary append into the full store: %w", err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	if err := errors.Join(send(0), send(journal.FlagEssential)); err != nil {
		return fmt.Errorf("with room again: %w", err)
	}
	fmt.Println(l.Pos.Seq)
	return s.Close()
}

func TestRealFileLimit(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "j")
	out, err := child(t, "limit", dir).Output()
	if err != nil {
		t.Fatal(err)
	}
	l := journaltest.OpenLog(t, mustOpen(t, dir, Options{}), "p")
	all := journaltest.ReadAll(t, l.Journal, journal.Position{})
	if got := fmt.Sprintln(len(all)); got != string(out) {
		t.Fatalf("%s entries after the reopen, %s were acknowledged", got, out)
	}
}

// TestAcknowledgementsAreOrdered keeps many writers of one store honest about
// what they see: an entry is readable once its append has returned.
func TestAcknowledgementsAreOrdered(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, filepath.Join(t.TempDir(), "j"), Options{})
	var wg sync.WaitGroup
	for i := range 8 {
		l := journaltest.NewLog(t, s, fmt.Sprint("p", i))
		wg.Go(func() {
			for n := range 30 {
				after := l.Pos
				res, err := l.Journal.Append(t.Context(), l.Build(journal.Header{Now: journal.FirstNow}, fmt.Append(nil, n)))
				if err != nil {
					t.Error(err)
					return
				}
				got, err := l.Journal.Read(t.Context(), after, 0)
				if err != nil || len(got) != 1 || got[0].Pos() != res.Pos {
					t.Errorf("%d entries after the append: %v", len(got), err)
					return
				}
				l.Pos = res.Pos
			}
		})
	}
	wg.Wait()
}
