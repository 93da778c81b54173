// Package tba_test holds the rules of this repository that the compiler does not check: which package may
// import which, and a few habits that keep the tree readable.
package tba_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const module = "github.com/token-budget-arbiter/tba"

// row is one line of the import table in docs/architecture.md.
type row struct {
	path   string   // below the module; "x/..." covers the packages under x too
	floor  int      // a package may import the floors below its own
	only   []string // when set, replaces "all floors below"
	beside []string // packages of the same floor that are allowed all the same
	why    string   // printed with every violation
}

// outside marks packages that no floor rule opens: each importer names them in only or beside.
const outside = -1

var table = []row{
	{path: "arbiter", floor: 0, why: "arbiter decides as a pure function: it knows nothing of how it is called, stored or shown"},

	{path: "internal/catalog", floor: 1, why: "catalog is dated data about models and prices"},
	{path: "internal/config", floor: 1, beside: []string{"internal/catalog"}, why: "config turns a file into policy and settings, and needs prices to do so"},
	{path: "internal/provider", floor: 1, beside: []string{"internal/catalog"}, why: "provider knows dialects, not sockets and not leases"},
	{path: "internal/identity", floor: 1, why: "identity says who asks, not what is asked"},
	{path: "internal/journal", floor: 1, why: "journal is the contract that every store implements"},
	{path: "internal/journal/journaltest", floor: 1, beside: []string{"internal/journal"}, why: "journaltest is the contract's suite: it must run against any store, so it knows none"},

	{path: "internal/engine", floor: 2, why: "engine drives a pool over any journal; it must not know which"},
	{path: "internal/filejournal", floor: 2, why: "a store implements the journal contract and knows nothing of who uses it"},
	{path: "internal/redisjournal", floor: 2, why: "a store implements the journal contract and knows nothing of who uses it"},
	{path: "internal/etcdjournal", floor: 2, why: "a store implements the journal contract and knows nothing of who uses it"},
	{path: "internal/mockprovider", floor: 2, only: []string{"arbiter", "internal/provider", "internal/catalog"}, why: "mockprovider stands for somebody else's server: of ours it may use units and dialects"},
	{path: "client", floor: 2, only: []string{"arbiter", "internal/gen/..."}, why: "client is what other programs compile in: it speaks the wire and nothing else"},

	{path: "internal/rpc", floor: 3, beside: []string{"internal/gen/..."}, why: "rpc translates wire messages to commands"},
	{path: "internal/gateway", floor: 3, why: "gateway takes a lease through an interface of its own, so that it also runs as a sidecar"},
	{path: "internal/ops", floor: 3, why: "ops serves health and metrics"},
	{path: "internal/dashboard", floor: 3, only: []string{}, why: "dashboard is a plain client of the public API"},
	{path: "internal/demo", floor: 3, only: []string{"client", "internal/mockprovider", "arbiter", "internal/catalog", "internal/config", "internal/provider", "internal/identity"}, why: "the demo fleet reaches the arbiter as any program would, through client"},
	{path: "internal/sim", floor: 3, why: "the simulator drives the real arbiter and engine"},

	{path: "cmd/tba/...", floor: 4, beside: []string{"internal/gen/..."}, why: "cmd/tba wires everything and decides nothing"},

	{path: "internal/gen/...", floor: outside, only: []string{"internal/gen/..."}, why: "generated code is imported by rpc, client and the command only"},
}

// source is one parsed Go file of a package.
type source struct {
	name string // relative to the repository root
	text string
	test bool
}

// pkg is the in-memory description that the rules read, so that each rule can be shown a broken one.
type pkg struct {
	path  string // below the module, "" for the root
	files []source
}

func (p pkg) generated() bool { return strings.HasPrefix(p.path, "internal/gen/") }

func TestArchitecture(t *testing.T) {
	t.Parallel()
	pkgs := load(t)
	if len(pkgs) < 2 {
		t.Fatalf("go list found %d packages: the test would prove nothing", len(pkgs))
	}
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			for _, p := range pkgs {
				for _, fault := range r.check(p) {
					t.Error(fault)
				}
			}
		})
	}
}

// load asks the go command for the packages and reads every Go file of their folders, so that no build tag
// hides a file from the rules. It reads the folders itself, which lets the test cache notice a change.
func load(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-find", "-json=Dir,ImportPath", "./...")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	var pkgs []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var listed struct{ Dir, ImportPath string }
		if err := dec.Decode(&listed); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatalf("go list: %v", err)
		}
		p := pkg{path: strings.TrimPrefix(strings.TrimPrefix(listed.ImportPath, module), "/")}
		entries, err := os.ReadDir(listed.Dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.IsDir() || filepath.Ext(e.Name()) != ".go" {
				continue
			}
			text, err := os.ReadFile(filepath.Join(listed.Dir, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			name, err := filepath.Rel(root, filepath.Join(listed.Dir, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			p.files = append(p.files, source{name: name, text: string(text), test: strings.HasSuffix(name, "_test.go")})
		}
		pkgs = append(pkgs, p)
	}
}

// find returns the table row of a package, the most exact one first.
func find(path string) (row, bool) {
	for _, r := range table {
		if r.path == path {
			return r, true
		}
	}
	for _, r := range table {
		if matches(r.path, path) {
			return r, true
		}
	}
	return row{}, false
}

func matches(pattern, path string) bool {
	tree, ok := strings.CutSuffix(pattern, "/...")
	return pattern == path || ok && (path == tree || strings.HasPrefix(path, tree+"/"))
}

func anyMatches(patterns []string, path string) bool {
	for _, p := range patterns {
		if matches(p, path) {
			return true
		}
	}
	return false
}

// mayImport says whether a package with row from may import the package with row to, outside its tests.
func mayImport(from, to row, path string) bool {
	switch {
	case to.path == "internal/journal/journaltest":
		return false // tests only
	case from.only != nil:
		return anyMatches(from.only, path)
	case anyMatches(from.beside, path):
		return true
	case to.floor == outside:
		return false
	default:
		return to.floor < from.floor
	}
}

// mayImportInTest is the looser rule of test files. A test inside the package may use its own row, the suite
// and real neighbours of its floor. A test from outside (package x_test) may start the whole server, but not
// the command. The arbiter's own tests stay alone with it: they must say what it does without a server.
func mayImportInTest(from, to row, path string, external bool) bool {
	switch {
	case matches("cmd/tba/...", from.path):
		return true
	case mayImport(from, to, path) || from.path == to.path:
		return true
	case from.floor == 0 || to.floor == 4:
		return false
	case external || to.path == "internal/journal/journaltest":
		return true
	default:
		return to.floor != outside && to.floor <= from.floor
	}
}

// parse returns the syntax of a file, or the fault that it cannot be parsed.
func parse(s source) (*parsed, string) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, s.name, s.text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Sprintf("%s: cannot be parsed: %v", s.name, err)
	}
	return &parsed{fset: fset, file: f, source: s}, ""
}
