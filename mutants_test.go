package tba_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestMutantRunner runs mutants/run.sh on a module of one function, with one patch for each verdict.
func TestMutantRunner(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"bash", "git", "tar", "timeout"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("mutants/run.sh needs %s", tool)
		}
	}
	script, err := filepath.Abs("mutants/run.sh")
	if err != nil {
		t.Fatal(err)
	}
	tree, patches := t.TempDir(), t.TempDir()
	write := func(dir, name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(tree, "go.mod", "module example.test/room\n\ngo 1.26\n")
	write(tree, "room.go", "package room\n\nfunc fits(held, n, limit int) bool {\n\treturn held+n <= limit\n}\n")
	write(tree, "room_test.go", "package room\n\nimport \"testing\"\n\nfunc TestFits(t *testing.T) {\n"+
		"\tif fits(9, 2, 10) {\n\t\tt.Error(\"over-grant\")\n\t}\n}\n\nfunc TestAlwaysFails(t *testing.T) { t.Fail() }\n")

	patch := func(name, test, before, after string) {
		write(patches, name+".patch", "# promise: P1\n# test: go test . -run "+test+"\n"+
			"--- a/room.go\n+++ b/room.go\n@@ -1,5 +1,5 @@\n package room\n \n func fits(held, n, limit int) bool {\n"+
			"-\t"+before+"\n+\t"+after+"\n }\n")
	}
	const guard = "return held+n <= limit"
	patch("killed", "TestFits", guard, "return held <= limit")
	patch("survives", "TestFits", guard, "return held+n < limit")
	patch("moved", "TestFits", "return held+n <= ceiling", "return true")
	patch("broken", "TestFits", guard, "return held + limit")
	patch("noTest", "TestNoSuch", guard, "return true")
	patch("redBefore", "TestAlwaysFails", guard, "return true")
	write(patches, "headless.patch", "--- a/room.go\n")

	out, err := exec.Command("bash", script, patches, tree).CombinedOutput()
	if err == nil {
		t.Error("exit status 0 although mutants survived")
	}
	_, results, ok := strings.Cut(string(out), "verdict        promise")
	if !ok {
		t.Fatalf("no table in:\n%s", out)
	}
	for name, verdict := range map[string]string{
		"killed": "killed", "survives": "SURVIVED", "moved": "DOES NOT APPLY", "broken": "DOES NOT BUILD",
		"noTest": "BAD TEST", "redBefore": "BAD TEST", "headless": "BAD HEADER",
	} {
		found := false
		for line := range strings.Lines(results) {
			if strings.Contains(line, " "+name+" ") {
				found = strings.HasPrefix(line, verdict+" ")
			}
		}
		if !found {
			t.Errorf("mutant %s: want verdict %s in:\n%s", name, verdict, results)
		}
	}

	for _, name := range []string{"survives", "moved", "broken", "noTest", "redBefore", "headless"} {
		if err := os.Remove(filepath.Join(patches, name+".patch")); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("bash", script, patches, tree).CombinedOutput(); err != nil {
		t.Errorf("all mutants killed, yet %v:\n%s", err, out)
	}
	if out, err := exec.Command("bash", script, t.TempDir(), tree).CombinedOutput(); err == nil {
		t.Errorf("no patch at all counts as success:\n%s", out)
	}
}
