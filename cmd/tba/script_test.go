package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain lets scripts run this test binary as the program tba.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"tba": main})
}

// TestScripts types what a person types. Beside testscript's own commands:
//
//	exits CODE COMMAND...      run it and want this exit code
//	server NAME tba serve ...  start it in the background on free ports, wait until /readyz is 200; sets TBA_SERVER, HTTP, GRPC, OPS
//	                           to its addresses; its output is in NAME.out and NAME.err
//	begin NAME COMMAND...      start it in the background and do not wait for it to be ready
//	signal NAME SIGNAL         TERM, INT, HUP or KILL
//	ended NAME CODE            wait until it has ended, with this exit code (killed: -1)
//	until FILE TEXT            wait until the file has the text
//	fetch URL STATUS FILE      GET it, want the status, write the body to the file
//	post PATH STATUS BODY FILE POST it as JSON to the server, want the status, write the answer to the file
//	load FILE KEY VAR          the value of a key of the JSON object in the file
//	fill FILE BYTES            make a file of that many bytes
//	flip PATTERN OFFSET        change one bit of the first file that matches
//	certify CERT KEY           make a certificate of 127.0.0.1, its own authority
//	mount DIR OPTIONS          a file system in memory there, with these options (size=16m); again with remount,... Condition: [mount]
//	gorge FILE                 make a file that takes all the room of its file system
//	flood BODY TEXT            ask for leases by 16 callers at once until an answer has the text; %d in the body is a number each time
//	occupy VAR                 take a port and put its address into the variable
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(e *testscript.Env) error {
			e.Values[running{}] = map[string]*process{}
			e.Setenv("NO_COLOR", "1")
			e.Setenv("TZ", "UTC")
			return nil
		},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "root":
				return os.Getuid() == 0, nil
			case "mount":
				return mayMount(), nil
			}
			return false, fmt.Errorf("unknown condition %s", cond)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "server": serverUp, "begin": begin, "signal": signalTo, "ended": ended, "until": until, "fetch": fetch, "post": post, "load": load, "fill": fill, "occupy": occupy, "certify": certify, "flip": flip, "mount": mount, "gorge": gorge, "flood": flood,
		},
		RequireExplicitExec: true,
		Deadline:            time.Now().Add(6 * time.Minute), // a command that hangs must not hold the whole run
	})
}

// patience bounds each wait. It is never reached unless something is broken.
const patience = 30 * time.Second

type running struct{}

type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	code int
}

func processes(ts *testscript.TestScript) map[string]*process {
	return ts.Value(running{}).(map[string]*process)
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND...")
	}
	err := ts.Exec(args[1], args[2:]...)
	code := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

func spawn(ts *testscript.TestScript, name string, args []string) *process {
	path := args[0]
	for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
		if full := filepath.Join(dir, args[0]); !strings.Contains(args[0], "/") {
			if _, err := os.Stat(full); err == nil {
				path = full
				break
			}
		}
	}
	p := &process{cmd: exec.Command(path, args[1:]...), done: make(chan struct{})}
	p.cmd.Dir = ts.MkAbs(".")
	for _, name := range []string{"HOME", "PATH", "TMPDIR", "NO_COLOR", "TZ", "GOCOVERDIR", "TBA_SERVER", "TBA_KEY", "TBA_KEY_ONE", "TBA_KEY_TWO"} {
		if v := ts.Getenv(name); v != "" {
			p.cmd.Env = append(p.cmd.Env, name+"="+v)
		}
	}
	out, err := os.Create(ts.MkAbs(name + ".out"))
	ts.Check(err)
	errs, err := os.Create(ts.MkAbs(name + ".err"))
	ts.Check(err)
	p.cmd.Stdout, p.cmd.Stderr = out, errs
	ts.Check(p.cmd.Start())
	go func() {
		_ = p.cmd.Wait() // the exit code says it
		p.code = p.cmd.ProcessState.ExitCode()
		out.Close()
		errs.Close()
		close(p.done)
	}()
	processes(ts)[name] = p
	ts.Defer(func() {
		_ = p.cmd.Process.Kill() // most have ended by then
		<-p.done
	})
	return p
}

func begin(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: begin NAME COMMAND...")
	}
	spawn(ts, args[0], args[1:])
}

func serverUp(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: server NAME tba serve|dev ...")
	}
	name := args[0]
	file := ts.MkAbs(name + ".json")
	_ = os.Remove(file) // of an earlier run under the name
	p := spawn(ts, name, append(args[1:], "--listen-http", ":0", "--listen-grpc", ":0", "--listen-ops", ":0", "--addr-file", file))
	var at addresses
	waitFor(ts, name+" to be ready", func() bool {
		select {
		case <-p.done:
			b, _ := os.ReadFile(ts.MkAbs(name + ".err"))
			ts.Fatalf("%s ended with exit code %d:\n%s", name, p.code, b)
		default:
		}
		b, err := os.ReadFile(file)
		if err != nil || json.Unmarshal(b, &at) != nil {
			return false
		}
		resp, err := http.Get("http://" + at.Ops + "/readyz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	ts.Setenv("HTTP", "http://"+at.HTTP)
	ts.Setenv("GRPC", at.GRPC)
	ts.Setenv("OPS", "http://"+at.Ops)
	ts.Setenv("TBA_SERVER", at.HTTP)
}

// waitFor looks until ready says yes.
func waitFor(ts *testscript.TestScript, what string, ready func() bool) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(patience)
	for !ready() {
		select {
		case <-tick.C:
		case <-limit:
			ts.Fatalf("waited %v for %s", patience, what)
		}
	}
}

func find(ts *testscript.TestScript, name string) *process {
	p := processes(ts)[name]
	if p == nil {
		ts.Fatalf("no process %s", name)
	}
	return p
}

func signalTo(ts *testscript.TestScript, neg bool, args []string) {
	signals := map[string]syscall.Signal{"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "HUP": syscall.SIGHUP, "KILL": syscall.SIGKILL}
	if neg || len(args) != 2 || signals[args[1]] == 0 {
		ts.Fatalf("usage: signal NAME TERM|INT|HUP|KILL")
	}
	ts.Check(find(ts, args[0]).cmd.Process.Signal(signals[args[1]]))
}

func ended(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: ended NAME CODE")
	}
	p := find(ts, args[0])
	select {
	case <-p.done:
	case <-time.After(patience + 30*time.Second):
		_ = p.cmd.Process.Signal(syscall.SIGQUIT) // its goroutines say what it waits for
		<-p.done
		b, _ := os.ReadFile(ts.MkAbs(args[0] + ".err"))
		ts.Fatalf("%s runs on:\n%s", args[0], b)
	}
	if strconv.Itoa(p.code) != args[1] {
		b, _ := os.ReadFile(ts.MkAbs(args[0] + ".err"))
		ts.Fatalf("%s: exit code %d, want %s\n%s", args[0], p.code, args[1], b)
	}
}

func until(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: until FILE TEXT")
	}
	waitFor(ts, args[1]+" in "+args[0], func() bool {
		b, err := os.ReadFile(ts.MkAbs(args[0]))
		return err == nil && strings.Contains(string(b), args[1])
	})
}

func fetch(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: fetch URL STATUS FILE")
	}
	resp, err := http.Get(args[0])
	ts.Check(err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[2]), b, 0o600))
	if strconv.Itoa(resp.StatusCode) != args[1] {
		ts.Fatalf("%s: %s\n%s", args[0], resp.Status, b)
	}
}

func post(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 4 {
		ts.Fatalf("usage: post PATH STATUS BODY FILE")
	}
	resp, err := http.Post(ts.Getenv("HTTP")+args[0], "application/json", strings.NewReader(args[2]))
	ts.Check(err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[3]), b, 0o600))
	if strconv.Itoa(resp.StatusCode) != args[1] {
		ts.Fatalf("%s: %s\n%s", args[0], resp.Status, b)
	}
}

func load(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: load FILE KEY VAR")
	}
	var v map[string]any
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &v))
	ts.Setenv(args[2], fmt.Sprint(v[args[1]]))
}

func fill(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: fill FILE BYTES")
	}
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(strings.Repeat("# filler\n", n/9+1)[:n]), 0o600))
}

func occupy(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: occupy VAR")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { l.Close() })
	ts.Setenv(args[0], l.Addr().String())
}

func certify(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: certify CERT KEY")
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ts.Check(err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	ts.Check(err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), 0o600))
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
}

func flip(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: flip PATTERN OFFSET")
	}
	files, err := filepath.Glob(ts.MkAbs(args[0]))
	ts.Check(err)
	at, err := strconv.Atoi(args[1])
	ts.Check(err)
	if len(files) == 0 {
		ts.Fatalf("no file matches %s", args[0])
	}
	b, err := os.ReadFile(files[0])
	ts.Check(err)
	b[at] ^= 1
	ts.Check(os.WriteFile(files[0], b, 0o600))
}
