package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

const (
	docsFile = "../../docs/configuration.md"
	mark     = "<!-- generated from here on: go test ./internal/config -run TestDocs -update -->\n"
)

// page is the generated part of docs/configuration.md.
func page() string {
	var b strings.Builder
	section := ""
	for _, k := range Reference() {
		top, _, _ := strings.Cut(k.Path, ".")
		if top != section {
			section = top
			fmt.Fprintf(&b, "\n## `%s`\n\n%s\n", top, k.Doc)
			notBuilt(&b, k)
			if k.Type != "mapping" {
				facts(&b, k)
			}
			continue
		}
		fmt.Fprintf(&b, "\n### `%s`\n\n%s\n", k.Path, k.Doc)
		notBuilt(&b, k)
		if k.Type != "mapping" {
			facts(&b, k)
		}
	}
	return b.String()
}

func notBuilt(b *strings.Builder, k KeyDoc) {
	if k.Later != "" {
		fmt.Fprintf(b, "\n**Not there yet**, refused at start: %s.\n", k.Later)
	}
}

func facts(b *strings.Builder, k KeyDoc) {
	fmt.Fprintf(b, "\n- type: %s", k.Type)
	if len(k.Words) > 0 {
		fmt.Fprintf(b, ", one of `%s`", strings.Join(k.Words, "`, `"))
	}
	if k.Default != "" {
		fmt.Fprintf(b, "\n- default: `%s`", k.Default)
	} else if k.Type != "mapping" && !strings.HasPrefix(k.Type, "mapping of") {
		fmt.Fprint(b, "\n- default: none")
	}
	if k.Flag != "" {
		fmt.Fprintf(b, "\n- also: `%s`, `%s`", k.Flag, k.Env)
	}
	if k.Example != "" {
		fmt.Fprintf(b, "\n- example: `%s`", k.Example)
	}
	fmt.Fprintln(b)
}

// TestDocs keeps docs/configuration.md complete: its second half is written from the tags of the structs.
func TestDocs(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(docsFile)
	if err != nil {
		t.Fatal(err)
	}
	head, _, ok := strings.Cut(string(text), mark)
	if !ok {
		t.Fatalf("%s has lost its mark %q", docsFile, mark)
	}
	golden(t, docsFile, []byte(head+mark+page()))
}

func TestEveryKeyIsDescribed(t *testing.T) {
	t.Parallel()
	for _, k := range Reference() {
		if !strings.HasSuffix(k.Doc, ".") || len(k.Doc) < 10 {
			t.Errorf("%s: %q is no sentence", k.Path, k.Doc)
		}
		open := k.Default == "" && len(k.Words) == 0 && k.Type != "mapping" && k.Path != "budget" && k.Path != "pools" && k.Path != "auth.keys" && k.Path != "ladders"
		if open && k.Example == "" {
			t.Errorf("%s has neither default nor example", k.Path)
		}
	}
}

// TestFullExampleNamesEveryKey: a key that works and is not in the example is a key nobody finds.
func TestFullExampleNamesEveryKey(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../examples/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range Reference() {
		name := k.Path[strings.LastIndexByte(k.Path, '.')+1:]
		if k.Later == "" && !regexp.MustCompile(`\b`+regexp.QuoteMeta(name)+`:`).Match(text) {
			t.Errorf("examples/full.yaml has no %s", k.Path)
		}
	}
	c, err := LoadBytes("../../examples/full.yaml", text)
	if err != nil || len(c.Warnings) > 0 {
		t.Errorf("%v %v", err, c)
	}
}

func TestTemplateLoads(t *testing.T) {
	t.Parallel()
	c := must(t, string(Template()))
	if c.Settings.Journal != "file:./tba-data" || len(c.Pools[0].Policy.Providers) != 2 {
		t.Errorf("%+v", c.Settings)
	}
	// What is commented out must load too when it is put in.
	commented := regexp.MustCompile(`(?m)^( *)# ( *(?:- )?[a-z0-9_.-]+:(?: .*)?)$`).ReplaceAll(Template(), []byte("$1$2"))
	if _, err := LoadBytes("t.yaml", commented); err != nil {
		t.Errorf("with its comments:\n%v", err)
	}
}

func TestJSONSchema(t *testing.T) {
	t.Parallel()
	b, err := JSONSchema()
	if err != nil {
		t.Fatal(err)
	}
	var root map[string]any
	if err := json.Unmarshal(b, &root); err != nil {
		t.Fatal(err)
	}
	again, _ := JSONSchema()
	if !bytes.Equal(b, again) {
		t.Error("not the same twice")
	}
	for _, k := range Reference() {
		at := root
		for _, step := range regexp.MustCompile(`[^.\[\]]+|\[\]`).FindAllString(k.Path, -1) {
			if alternatives, ok := at["oneOf"].([]any); ok {
				at = alternatives[len(alternatives)-1].(map[string]any)
			}
			switch step {
			case "<name>":
				at, _ = at["additionalProperties"].(map[string]any)
			case "[]":
				at, _ = at["items"].(map[string]any)
			default:
				properties, _ := at["properties"].(map[string]any)
				at, _ = properties[step].(map[string]any)
			}
			if at == nil {
				t.Fatalf("the schema has no %s (at %s)", k.Path, step)
			}
		}
		if d, _ := at["description"].(string); !strings.HasPrefix(d, k.Doc) {
			t.Errorf("%s: described as %q", k.Path, d)
		}
	}
}
