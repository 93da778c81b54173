package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the expected output in testdata and docs")

// golden compares got with a file, or writes it with -update.
func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (-update rewrites it)\n got:\n%s\nwant:\n%s", file, got, want)
	}
}

// TestBad has one wrong file for each mistake, and the exact message it must produce.
func TestBad(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil || len(files) < 100 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			_, err = LoadBytes(filepath.Base(file), text)
			var faults Faults
			if !errors.As(err, &faults) || !faults.errors() {
				t.Fatalf("accepted: %v", err)
			}
			var out bytes.Buffer
			faults.Print(&out)
			golden(t, strings.TrimSuffix(file, ".yaml")+".txt", out.Bytes())
			for _, secret := range []string{"sk-live", "hunter2222"} {
				if strings.Contains(out.String(), secret) {
					t.Errorf("the message repeats a credential:\n%s", out.String())
				}
			}
			if strings.ContainsFunc(out.String(), func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' }) {
				t.Errorf("the message has control characters: %q", out.String())
			}
		})
	}
}

func TestFaultsAsJSON(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/bad/many.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, err = LoadBytes("many.yaml", text)
	var faults Faults
	if !errors.As(err, &faults) {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := faults.JSON(&out); err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/many.json", out.Bytes())
	var back []Fault
	if err := json.Unmarshal(out.Bytes(), &back); err != nil || len(back) != len(faults) {
		t.Errorf("%d of %d, %v", len(back), len(faults), err)
	}
	out.Reset()
	if err := Faults(nil).JSON(&out); err != nil || strings.TrimSpace(out.String()) != "[]" {
		t.Errorf("no faults: %q, %v", out.String(), err)
	}
}

// FuzzLoad: whatever the bytes, an answer; and a file that loads has a policy that can be encoded.
func FuzzLoad(f *testing.F) {
	files, _ := filepath.Glob("testdata/bad/*.yaml")
	for _, file := range append(files, "../../examples/budget-example.yaml", "template.yaml") {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte("a: &a [*a, *a]\nb: &b [*a, *b]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := LoadBytes("f.yaml", text)
		if err != nil {
			if err.Error() == "" {
				t.Fatal("an error without words")
			}
			return
		}
		for _, p := range c.Pools {
			if _, _, err := p.Policy.Encode(); err != nil {
				t.Fatal(err)
			}
			if err := p.Policy.Validate(); err != nil {
				t.Fatal(err)
			}
		}
		c.Values()
	})
}
