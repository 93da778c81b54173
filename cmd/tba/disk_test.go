package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/rogpeppe/go-internal/testscript"
)

// mayMount reports whether this user may mount a file system: root outside of a locked container.
var mayMount = sync.OnceValue(func() bool {
	dir, err := os.MkdirTemp("", "tba-mount-")
	if err != nil {
		return false
	}
	defer os.Remove(dir)
	if exec.Command("mount", "-t", "tmpfs", "-o", "size=64k", "tba-test", dir).Run() != nil {
		return false
	}
	return exec.Command("umount", dir).Run() == nil
})

func mount(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: mount DIR OPTIONS")
	}
	dir := ts.MkAbs(args[0])
	ts.Check(os.MkdirAll(dir, 0o755))
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", args[1], "tba-test", dir).CombinedOutput(); err != nil {
		ts.Fatalf("mount %s: %v: %s", dir, err, out)
	}
	if !strings.HasPrefix(args[1], "remount") {
		// Deferred calls run last in, first out: processes that were started later have ended by then.
		ts.Defer(func() { _ = exec.Command("umount", "-l", dir).Run() })
	}
}

func gorge(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: gorge FILE")
	}
	f, err := os.Create(ts.MkAbs(args[0]))
	ts.Check(err)
	defer f.Close()
	block := make([]byte, 4096)
	for range 1 << 16 { // 256 MiB: no file system that a script mounts has so much
		if _, err := f.Write(block); err != nil {
			return
		}
	}
	ts.Fatalf("%s: there is room for more than 256 MiB", args[0])
}

// floodLimit bounds a flood: many times what a segment of the log holds.
const floodLimit = 200_000

func flood(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: flood BODY TEXT")
	}
	url := ts.Getenv("HTTP") + "/tba.v1.TokenBudgetArbiter/RequestLease"
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
	defer client.CloseIdleConnections()
	var n atomic.Int64
	var found atomic.Bool
	var wrong atomic.Pointer[string]
	var wait sync.WaitGroup
	for range 16 {
		wait.Go(func() {
			for !found.Load() && wrong.Load() == nil && n.Load() < floodLimit {
				resp, err := client.Post(url, "application/json", strings.NewReader(strings.ReplaceAll(args[0], "%d", fmt.Sprint(n.Add(1)))))
				if err != nil {
					text := err.Error()
					wrong.Store(&text)
					return
				}
				b, _ := io.ReadAll(resp.Body) // what is cut has no text to find
				resp.Body.Close()
				switch text := string(b); {
				case strings.Contains(text, args[1]):
					found.Store(true)
				case resp.StatusCode == http.StatusServiceUnavailable: // a slow disk: for now alone
				case !strings.Contains(text, `"GRANTED"`):
					wrong.Store(&text)
				}
			}
		})
	}
	wait.Wait()
	if text := wrong.Load(); text != nil && !found.Load() {
		ts.Fatalf("after %d requests: %s", n.Load(), *text)
	}
	if !found.Load() {
		ts.Fatalf("%d requests and no %q", n.Load(), args[1])
	}
	ts.Logf("%d requests", n.Load())
}
