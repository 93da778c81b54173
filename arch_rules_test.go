package tba_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// rule is one habit of the repository. check returns a sentence for each place that breaks it.
type rule struct {
	name  string
	check func(pkg) []string
}

var rules = []rule{
	{"every package has its place", checkPlace},
	{"imports go down", checkImports},
	{"arbiter is pure", checkPure},
	{"package names say what is inside", checkName},
	{"files stay readable", checkLength},
	{"nothing happens at import", checkInit},
	{"tests do not sleep", checkSleep},
	{"packages introduce themselves", checkComment},
}

// maxLines bounds a file that a person has to read.
const maxLines = 800

var forbiddenNames = []string{
	"util", "utils", "common", "helpers", "types", "models", "base", "core", "shared", "misc", "lib", "manager",
}

// blankImports are the imports for effect that register nothing: embed enables a directive, tzdata is data.
var blankImports = []string{"embed", "time/tzdata"}

// impure are the standard packages that arbiter may not use; a name covers the packages under it.
var impure = map[string]string{
	"context":     "a decision cannot be cancelled half way",
	"sync":        "one writer calls it, so there is nothing to lock",
	"os":          "a decision depends on state, time and command alone",
	"net":         "a decision depends on state, time and command alone",
	"log":         "answers and facts say what happened",
	"math/rand":   "replay must give the same state",
	"crypto/rand": "replay must give the same state; ids are arguments",
	"unsafe":      "the state is plain structs and integers",
	"C":           "the state is plain structs and integers",
}

// clockReads are the functions of package time that look at a clock or wait for one.
var clockReads = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}

type parsed struct {
	fset   *token.FileSet
	file   *ast.File
	source source
}

func (p *parsed) at(n ast.Node) string {
	return fmt.Sprintf("%s:%d", p.source.name, p.fset.Position(n.Pos()).Line)
}

// external reports whether the file is in package x_test.
func (p *parsed) external() bool { return strings.HasSuffix(p.file.Name.Name, "_test") }

// each parses the files of a package and gathers what visit finds in them.
func each(p pkg, visit func(*parsed) []string) []string {
	var faults []string
	for _, s := range p.files {
		f, fault := parse(s)
		if fault != "" {
			faults = append(faults, fault)
			continue
		}
		faults = append(faults, visit(f)...)
	}
	return faults
}

func importPath(spec *ast.ImportSpec) string {
	s, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		return spec.Path.Value
	}
	return s
}

func checkPlace(p pkg) []string {
	if p.path == "" {
		return each(p, func(f *parsed) []string {
			if f.source.test {
				return nil
			}
			return []string{f.source.name + ": the root has no package: put code in the package whose line in docs/architecture.md fits"}
		})
	}
	if _, ok := find(p.path); ok {
		return nil
	}
	return []string{fmt.Sprintf("package %s is not in the import table: put its code into the package of docs/architecture.md whose line fits, "+
		"or, when none does, add a row with its floor and a reason to the table in arch_test.go and to that page", p.path)}
}

func checkImports(p pkg) []string {
	from, ok := find(p.path)
	if !ok {
		return nil // checkPlace reports it, or it is the root, which holds tests alone
	}
	return each(p, func(f *parsed) []string {
		var faults []string
		for _, spec := range f.file.Imports {
			below, ours := strings.CutPrefix(importPath(spec), module+"/")
			if !ours {
				continue
			}
			to, ok := find(below)
			if !ok {
				faults = append(faults, fmt.Sprintf("%s: imports %s, which is not in the import table", f.at(spec), below))
				continue
			}
			switch {
			case f.source.test && mayImportInTest(from, to, below, f.external()):
			case !f.source.test && (p.generated() || mayImport(from, to, below)):
			default:
				faults = append(faults, fmt.Sprintf("%s: %s must not import %s: %s; %s", f.at(spec), p.path, below, from.why, to.why))
			}
		}
		return faults
	})
}

func checkPure(p pkg) []string {
	if r, ok := find(p.path); !ok || r.floor != 0 {
		return nil
	}
	return each(p, func(f *parsed) []string {
		if f.source.test {
			return nil
		}
		var faults []string
		timeName := "time"
		for _, spec := range f.file.Imports {
			name := importPath(spec)
			if name == "time" && spec.Name != nil {
				timeName = spec.Name.Name
			}
			if first, _, _ := strings.Cut(name, "/"); strings.Contains(first, ".") {
				faults = append(faults, fmt.Sprintf("%s: arbiter imports %s: it uses the standard library only", f.at(spec), name))
			}
			for banned, why := range impure {
				if name == banned || strings.HasPrefix(name, banned+"/") {
					faults = append(faults, fmt.Sprintf("%s: arbiter imports %s: %s", f.at(spec), name, why))
				}
			}
		}
		ast.Inspect(f.file, func(n ast.Node) bool {
			if name := selected(n, timeName); slices.Contains(clockReads, name) {
				faults = append(faults, fmt.Sprintf("%s: arbiter uses time.%s: now is an argument", f.at(n), name))
			}
			return true
		})
		return faults
	})
}

// selected returns X when n is the expression pkg.X, otherwise "".
func selected(n ast.Node, pkg string) string {
	sel, ok := n.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	if id, ok := sel.X.(*ast.Ident); ok && id.Name == pkg {
		return sel.Sel.Name
	}
	return ""
}

func checkName(p pkg) []string {
	names := []string{path.Base(p.path)}
	for _, s := range p.files {
		if f, fault := parse(s); fault == "" {
			names = append(names, strings.TrimSuffix(f.file.Name.Name, "_test"))
		}
	}
	for _, name := range names {
		if slices.Contains(forbiddenNames, name) {
			return []string{fmt.Sprintf("package %s is named %q, which says nothing about what is inside: name it after what it provides", p.path, name)}
		}
	}
	return nil
}

func checkLength(p pkg) []string {
	if p.generated() {
		return nil
	}
	var faults []string
	for _, s := range p.files {
		if n := strings.Count(s.text, "\n"); n > maxLines {
			faults = append(faults, fmt.Sprintf("%s: %d lines, at most %d: split it by topic", s.name, n, maxLines))
		}
	}
	return faults
}

func checkInit(p pkg) []string {
	if p.generated() {
		return nil
	}
	return each(p, func(f *parsed) []string {
		var faults []string
		for _, d := range f.file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				faults = append(faults, fmt.Sprintf("%s: init function: do it in a constructor that the caller sees", f.at(fn)))
			}
		}
		for _, spec := range f.file.Imports {
			if name := importPath(spec); spec.Name != nil && spec.Name.Name == "_" && !slices.Contains(blankImports, name) {
				faults = append(faults, fmt.Sprintf("%s: blank import of %s: register by an explicit call", f.at(spec), name))
			}
		}
		return faults
	})
}

// checkSleep refuses time.Sleep in tests and in the suites they run. On the fake clock it takes no time, so it is
// allowed in a function that calls synctest.Test itself, and in the cases of a suite that runs them there.
func checkSleep(p pkg) []string {
	suite := p.path == "internal/journal/journaltest"
	if suite {
		each(p, func(f *parsed) []string {
			suite = suite && (f.source.test || !runsBubble(f.file))
			return nil
		})
	}
	return each(p, func(f *parsed) []string {
		if !f.source.test && !suite {
			return nil
		}
		var faults []string
		ast.Inspect(f.file, func(n ast.Node) bool {
			if fn, ok := n.(*ast.FuncDecl); ok && runsBubble(fn) {
				return false
			}
			if selected(n, "time") == "Sleep" {
				faults = append(faults, fmt.Sprintf("%s: time.Sleep in a test: wait on a channel, or run inside synctest.Test", f.at(n)))
			}
			return true
		})
		return faults
	})
}

// runsBubble reports whether the syntax calls synctest.Test.
func runsBubble(root ast.Node) (found bool) {
	ast.Inspect(root, func(n ast.Node) bool {
		found = found || selected(n, "synctest") == "Test"
		return !found
	})
	return found
}

var firstSentence = regexp.MustCompile(`^(Package|Command) [a-z0-9_]+:? [^.]+[^\s.]`)

// checkComment wants one package comment, whose first sentence says what the package is.
func checkComment(p pkg) []string {
	if p.generated() || p.path == "" {
		return nil
	}
	var comments []string
	faults := each(p, func(f *parsed) []string {
		if f.file.Doc != nil && !f.source.test {
			comments = append(comments, strings.TrimSpace(f.file.Doc.Text()))
		}
		return nil
	})
	if !slices.ContainsFunc(p.files, func(s source) bool { return !s.test }) {
		return faults
	}
	switch {
	case len(comments) == 0:
		faults = append(faults, fmt.Sprintf("package %s has no package comment: its first sentence is its line in docs/architecture.md", p.path))
	case len(comments) > 1:
		faults = append(faults, fmt.Sprintf("package %s has %d package comments: keep one (doc.go or the main file)", p.path, len(comments)))
	case !firstSentence.MatchString(comments[0]):
		faults = append(faults, fmt.Sprintf("package %s: its comment must start with a sentence \"Package %s ...\"", p.path, path.Base(p.path)))
	}
	return faults
}
