package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

// checked are keys that change no policy: what reads them instead.
var checked = map[string]string{
	"budget.providers.<name>.api_key":       "TestUpstreams: the gateway's key, and checkPools: two pools with one key must state their split",
	"budget.providers.<name>.allow_private": "TestUpstreams, and checkBaseURL",
	"budget.providers.<name>.base_url":      "TestUpstreams, and defaultPrice: a server of one's own has no price of the catalogue",
	"catalog.file":                          "TestWatchSeesThePriceFile",
}

// inProcess are the keys that change no policy, and are read from fields of the same name in Config: by cmd/tba or by the gateway.
var inProcess = []string{"listen", "journal", "log", "tls", "drain_timeout", "reload", "auth", "limits", "gateway", "estimation", "identity"}

// TestEveryKeyHasAReader changes each key of the full example by itself: the compiled policy must become another one, or the
// file must be refused because that value is not there yet. A key that is accepted and changes nothing promises what
// nobody keeps.
func TestEveryKeyHasAReader(t *testing.T) {
	t.Parallel()
	keys := map[string]KeyDoc{}
	for _, k := range Reference() {
		keys[k.Path] = k
	}
	text, err := os.ReadFile("../../examples/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	// What hides another key is left out in the second: the pool's on_expiry, the pool that a key of auth names.
	bases := [][]byte{text, regexp.MustCompile(`(?m)^  (  )*(on_expiry: return   .*|pool: default)$`).ReplaceAll(text, nil)}
	read := map[string]bool{} // by field: ceilings are read alike at a provider and at a model
	for _, base := range bases {
		before, err := compiledForm(base)
		if err != nil {
			t.Fatal(err)
		}
		for i, l := range leaves(t, base, keys) {
			for _, word := range others(keys[l.path]) {
				if read[goName(t, l.path)] {
					break
				}
				changed := leaves(t, base, keys)[i]
				changed.set(word)
				text, err := yaml.Marshal(changed.root)
				if err != nil {
					t.Fatal(err)
				}
				after, err := compiledForm(text)
				var faults Faults
				notBuilt := errors.As(err, &faults) && slices.ContainsFunc(faults, func(f Fault) bool { return f.Rule == "not-built" })
				read[goName(t, l.path)] = notBuilt || err == nil && after != before
			}
		}
	}
	program := source(t, "../../cmd/tba") + source(t, "../gateway")
	for path, k := range keys {
		top, _, _ := strings.Cut(path, ".")
		switch {
		case k.Later != "" || strings.HasPrefix(k.Type, "mapping") || strings.HasPrefix(k.Type, "list of mapping") || top == "pools" || path == "budget.period.every" || path == "budget.period.anchor":
		case checked[path] != "":
		case slices.Contains(inProcess, top):
			_, name, _ := strings.Cut(goName(t, path), ".")
			if !regexp.MustCompile(`\.` + name + `\b`).MatchString(program) {
				t.Errorf("%s: neither cmd/tba nor the gateway reads the field %s", path, name)
			}
		case !read[goName(t, path)]:
			t.Errorf("%s is accepted and changes nothing: give it a reader, or refuse it (later)", path)
		}
	}
}

// compiledForm is what the engine gets of a file.
func compiledForm(text []byte) (string, error) {
	c, err := LoadBytes("../../examples/full.yaml", text)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, p := range c.Pools {
		packed, _, err := p.Policy.Encode()
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "%s %x\n", p.Name, packed)
		for _, u := range p.Upstreams {
			fmt.Fprintln(&b, u.Name, u.Kind)
		}
		for _, l := range p.Ladders {
			zero, err := json.Marshal(l.Zero)
			if err != nil {
				return "", err
			}
			fmt.Fprintf(&b, "%s %v %s\n", l.Name, l.Tiers, zero)
		}
		fmt.Fprintln(&b, p.MaxAttempts)
	}
	return b.String(), nil
}

// leaf is a key with a value that is no mapping.
type leaf struct {
	path     string // as in Reference
	root, in *yaml.Node
	at       int // of the key in in.Content
}

func (l leaf) set(word string) {
	if word == "" {
		l.in.Content = slices.Delete(l.in.Content, l.at, l.at+2)
		return
	}
	var n yaml.Node
	if err := yaml.Unmarshal([]byte(word), &n); err == nil && n.Content[0].Kind == yaml.SequenceNode {
		l.in.Content[l.at+1] = n.Content[0]
		return
	}
	l.in.Content[l.at+1] = &yaml.Node{Kind: yaml.ScalarNode, Value: word}
}

func leaves(t *testing.T, text []byte, keys map[string]KeyDoc) (out []leaf) {
	t.Helper()
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	var walk func(n *yaml.Node, path string)
	walk = func(n *yaml.Node, path string) {
		for i := 0; i+1 < len(n.Content); i += 2 {
			at := path + ".<name>"
			if !strings.HasPrefix(keys[path].Type, "mapping of names") {
				at = child(path, n.Content[i].Value)
			}
			if strings.HasSuffix(at, "<name>") || strings.HasPrefix(keys[at].Type, "mapping") {
				walk(n.Content[i+1], at)
			} else {
				out = append(out, leaf{at, doc.Content[0], n, i})
			}
		}
	}
	walk(doc.Content[0], "")
	return out
}

// others are words to try in the place of a value; "" leaves the key out.
func others(k KeyDoc) []string {
	switch {
	case len(k.Words) > 0:
		return k.Words
	case k.Path == "ladders.<name>.rungs":
		return []string{"[openai/gpt-5.4]"}
	case k.Path == "ladders.<name>.tiers":
		return []string{"[[openai/gpt-5.4]]"}
	case strings.HasPrefix(k.Type, "list"):
		return []string{""}
	case k.Type == "true or false":
		return []string{"true", "false"}
	case k.Type == "count":
		return []string{"7", "3_000_000", "7_999", ""}
	case k.Type == "USD", k.Type == "price":
		return []string{"1", "0.00000001", ""}
	case k.Type == "share":
		return []string{"0.011", "0.21", "0.92", "0.71"}
	case k.Type == "duration":
		return []string{"1s", "3s", "5s", "7m", "100m", ""}
	case strings.HasSuffix(k.Path, "zone"):
		return []string{"Asia/Tokyo"}
	}
	return []string{"weekly", "other"}
}

// goName is the field behind a key, as Struct.Field.
func goName(t *testing.T, path string) string {
	t.Helper()
	at, name := reflect.TypeFor[File](), ""
	for step := range strings.SplitSeq(path, ".") {
		if _, inner := typeName(at); inner != nil {
			at = inner
		}
		if step == "<name>" {
			continue
		}
		f, ok := fieldsOf(at).find(strings.TrimSuffix(step, "[]"))
		if !ok {
			t.Fatalf("no field for %s", path)
		}
		owner := at
		if n := len(f.index); n > 1 {
			owner = at.FieldByIndex(f.index[:n-1]).Type
		}
		sf := at.FieldByIndex(f.index)
		at, name = sf.Type, owner.Name()+"."+sf.Name
	}
	return name
}

// source is the text of a package without its tests.
func source(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	for _, f := range files {
		if !strings.HasSuffix(f, "_test.go") {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			b.Write(text)
		}
	}
	return b.String()
}
