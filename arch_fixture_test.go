package tba_test

import (
	"strings"
	"testing"
)

// one returns a package of a single file, the form of most fixtures.
func one(path, file, text string) pkg {
	return pkg{path: path, files: []source{{name: path + "/" + file, text: text, test: strings.HasSuffix(file, "_test.go")}}}
}

// imports returns the text of a file that imports packages of this module.
func imports(name string, below ...string) string {
	text := "package " + name + "\n"
	for _, b := range below {
		text += "import \"" + module + "/" + b + "\"\n"
	}
	return text
}

// TestRulesCanFail shows each rule a tree that is wrong on purpose, and one beside it that is right: a rule
// that never fails would keep nothing in order.
func TestRulesCanFail(t *testing.T) {
	t.Parallel()
	long := "package engine\n" + strings.Repeat("// line\n", maxLines)
	doc := "// Package engine runs pools.\npackage engine\n"
	cases := []struct {
		name  string
		check func(pkg) []string
		in    pkg
		want  string // part of the only fault; empty: no fault
	}{
		{"unknown package", checkPlace, one("internal/quota", "quota.go", "package quota"), "package internal/quota is not in the import table"},
		{"known package", checkPlace, one("internal/engine", "engine.go", "package engine"), ""},
		{"package below a listed tree", checkPlace, one("internal/gen/tba/v1", "x.pb.go", "package tbav1"), ""},
		{"package below a listed package", checkPlace, one("internal/engine/queue", "queue.go", "package queue"), "not in the import table"},
		{"root code", checkPlace, one("", "tba.go", "package tba"), "the root has no package"},
		{"root test", checkPlace, one("", "arch_test.go", "package tba_test"), ""},

		{"upward", checkImports, one("internal/engine", "a.go", imports("engine", "internal/rpc")), "internal/engine must not import internal/rpc"},
		{"downward", checkImports, one("internal/engine", "a.go", imports("engine", "arbiter", "internal/journal", "internal/config")), ""},
		{"siblings", checkImports, one("internal/rpc", "a.go", imports("rpc", "internal/ops")), "internal/rpc must not import internal/ops"},
		{"store in the engine", checkImports, one("internal/engine", "a.go", imports("engine", "internal/filejournal")), "must not import internal/filejournal"},
		{"floor 1 sibling that is allowed", checkImports, one("internal/config", "a.go", imports("config", "internal/catalog")), ""},
		{"floor 1 sibling that is not", checkImports, one("internal/catalog", "a.go", imports("catalog", "internal/config")), "internal/catalog must not import internal/config"},
		{"arbiter imports ours", checkImports, one("arbiter", "a.go", imports("arbiter", "internal/catalog")), "arbiter must not import internal/catalog"},
		{"client is narrower than its floor", checkImports, one("client", "a.go", imports("client", "internal/config")), "client must not import internal/config"},
		{"client and gen", checkImports, one("client", "a.go", imports("client", "arbiter", "internal/gen/tba/v1")), ""},
		{"gen elsewhere", checkImports, one("internal/engine", "a.go", imports("engine", "internal/gen/tba/v1")), "generated code is imported by rpc, client and the command only"},
		{"gen among itself", checkImports, one("internal/gen/tba/v1/tbav1connect", "a.go", imports("tbav1connect", "internal/gen/tba/v1")), ""},
		{"dashboard imports nothing of ours", checkImports, one("internal/dashboard", "a.go", imports("dashboard", "arbiter")), "internal/dashboard must not import arbiter"},
		{"command", checkImports, one("cmd/tba", "main.go", imports("main", "internal/rpc", "internal/demo", "client", "internal/gen/tba/v1")), ""},
		{"unlisted target", checkImports, one("internal/engine", "a.go", imports("engine", "internal/quota")), "imports internal/quota, which is not in the import table"},
		{"suite outside tests", checkImports, one("internal/filejournal", "a.go", imports("filejournal", "internal/journal/journaltest")), "must not import internal/journal/journaltest"},
		{"suite in tests", checkImports, one("internal/filejournal", "a_test.go", imports("filejournal", "internal/journal/journaltest")), ""},
		{"neighbour in a test", checkImports, one("internal/engine", "a_test.go", imports("engine", "internal/filejournal")), ""},
		{"upward in a test inside the package", checkImports, one("client", "a_test.go", imports("client", "internal/rpc")), "client must not import internal/rpc"},
		{"upward in a test from outside", checkImports, one("client", "a_test.go", imports("client_test", "internal/rpc", "internal/engine")), ""},
		{"the command in a test", checkImports, one("internal/rpc", "a_test.go", imports("rpc_test", "cmd/tba/serve")), "must not import cmd/tba/serve"},
		{"arbiter's tests stay alone", checkImports, one("arbiter", "a_test.go", imports("arbiter_test", "internal/journal")), "arbiter must not import internal/journal"},
		{"does not parse", checkImports, one("internal/engine", "a.go", "package engine\nimport {"), "cannot be parsed"},

		{"arbiter reads the clock", checkPure, one("arbiter", "a.go", "package arbiter\nimport \"time\"\nvar t = time.Now()"), "arbiter uses time.Now"},
		{"arbiter measures", checkPure, one("arbiter", "a.go", "package arbiter\nimport clock \"time\"\nfunc f(t clock.Time) { _ = clock.Since(t) }"), "arbiter uses time.Since"},
		{"arbiter uses durations", checkPure, one("arbiter", "a.go", "package arbiter\nimport \"time\"\nconst d = time.Second"), ""},
		{"arbiter locks", checkPure, one("arbiter", "a.go", "package arbiter\nimport \"sync/atomic\"\nvar n atomic.Int64"), "arbiter imports sync/atomic"},
		{"arbiter is random", checkPure, one("arbiter", "a.go", "package arbiter\nimport \"math/rand/v2\"\nvar n = rand.Int()"), "arbiter imports math/rand/v2"},
		{"arbiter takes a context", checkPure, one("arbiter", "a.go", "package arbiter\nimport \"context\"\nvar c context.Context"), "arbiter imports context"},
		{"arbiter opens files", checkPure, one("arbiter", "a.go", "package arbiter\nimport \"os\"\nvar a = os.Args"), "arbiter imports os"},
		{"arbiter dials", checkPure, one("arbiter", "a.go", "package arbiter\nimport \"net/http\"\nvar a http.Client"), "arbiter imports net/http"},
		{"arbiter logs", checkPure, one("arbiter", "a.go", "package arbiter\nimport \"log/slog\"\nvar a slog.Logger"), "arbiter imports log/slog"},
		{"arbiter uses a library", checkPure, one("arbiter", "a.go", "package arbiter\nimport \"pgregory.net/rapid\"\nvar a rapid.T"), "the standard library only"},
		{"arbiter's tests use a library", checkPure, one("arbiter", "a_test.go", "package arbiter\nimport \"pgregory.net/rapid\"\nvar a rapid.T"), ""},
		{"engine reads the clock", checkPure, one("internal/engine", "a.go", "package engine\nimport \"time\"\nvar t = time.Now()"), ""},

		{"drawer", checkName, one("internal/util", "a.go", "package util"), `named "util"`},
		{"drawer behind another folder name", checkName, one("internal/engine", "a.go", "package helpers"), `named "helpers"`},
		{"good name", checkName, one("internal/engine", "a.go", "package engine"), ""},

		{"endless file", checkLength, one("internal/engine", "a.go", long), "801 lines, at most 800"},
		{"endless generated file", checkLength, one("internal/gen/tba/v1", "a.pb.go", long), ""},
		{"short file", checkLength, one("internal/engine", "a.go", doc), ""},

		{"init", checkInit, one("internal/engine", "a.go", "package engine\nfunc init() {}"), "init function"},
		{"method called init", checkInit, one("internal/engine", "a.go", "package engine\ntype p struct{}\nfunc (p) init() {}"), ""},
		{"registration", checkInit, one("internal/engine", "a.go", "package engine\nimport _ \"image/png\""), "blank import of image/png"},
		{"embed", checkInit, one("internal/engine", "a.go", "package engine\nimport _ \"embed\""), ""},
		{"generated init", checkInit, one("internal/gen/tba/v1", "a.pb.go", "package tbav1\nfunc init() {}"), ""},

		{"sleep in a test", checkSleep, one("internal/engine", "a_test.go", "package engine\nimport \"time\"\nfunc f() { time.Sleep(1) }"), "time.Sleep in a test"},
		{"sleep in the suite", checkSleep, one("internal/journal/journaltest", "a.go", "package journaltest\nimport \"time\"\nfunc f() { time.Sleep(1) }"), "time.Sleep in a test"},
		{"sleep in a suite on the fake clock", checkSleep, one("internal/journal/journaltest", "a.go",
			"package journaltest\nimport (\"testing/synctest\"; \"time\")\nfunc f() { time.Sleep(1) }\nfunc run() { synctest.Test(nil, nil) }"), ""},
		{"sleep outside tests", checkSleep, one("internal/engine", "a.go", "package engine\nimport \"time\"\nfunc f() { time.Sleep(1) }"), ""},
		{"sleep on the fake clock", checkSleep, one("internal/engine", "a_test.go",
			"package engine\nimport (\"testing\"; \"testing/synctest\"; \"time\")\nfunc TestX(t *testing.T) { synctest.Test(t, func(t *testing.T) { time.Sleep(1) }) }"), ""},

		{"no package comment", checkComment, one("internal/engine", "a.go", "package engine"), "has no package comment"},
		{"comment that says nothing", checkComment, one("internal/engine", "a.go", "// Misc things\npackage engine"), `must start with a sentence "Package engine`},
		{"two comments", checkComment, pkg{"internal/engine", []source{{"a.go", doc, false}, {"b.go", doc, false}}}, "has 2 package comments"},
		{"good comment", checkComment, one("internal/engine", "a.go", doc), ""},
		{"command", checkComment, one("cmd/tba", "main.go", "// Command tba arbitrates token budgets.\npackage main"), ""},
		{"tests alone", checkComment, one("cmd/tba", "a_test.go", "package main"), ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := c.check(c.in)
			switch {
			case c.want == "" && len(got) > 0:
				t.Errorf("want no fault, got %q", got)
			case c.want != "" && (len(got) != 1 || !strings.Contains(got[0], c.want)):
				t.Errorf("want one fault that contains %q, got %q", c.want, got)
			}
		})
	}
}

// TestTableIsSound checks the table itself: a row without a reason, twice, or naming a package that has no row.
func TestTableIsSound(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, r := range table {
		if seen[r.path] {
			t.Errorf("%s has two rows", r.path)
		}
		seen[r.path] = true
		if r.why == "" {
			t.Errorf("%s has no reason", r.path)
		}
	}
	for _, r := range table {
		for _, name := range append(append([]string{}, r.only...), r.beside...) {
			if !seen[name] {
				t.Errorf("%s may import %s, which has no row", r.path, name)
			}
		}
	}
}
