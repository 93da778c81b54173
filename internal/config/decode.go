package config

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/token-budget-arbiter/tba/internal/catalog"
)

// maxNodes bounds the values one file may hold once its aliases are followed: a few bytes of aliases of aliases
// can otherwise stand for billions.
const maxNodes = 500_000

// decoder turns a tree of YAML nodes into structs and goes on after a fault, so that one run names them all.
// It also remembers where each key stood, for the checks that come after it.
type decoder struct {
	file     string
	lines    []string
	faults   Faults
	places   map[string]place
	anchors  map[string]string // by path of the period: dates that wait for their zone
	hidden   map[int]bool      // lines that may hold a credential: never shown
	from     map[string]string // settings that did not come from the file, and what they came from
	failed   map[string]bool   // paths with an error already: a second one would only repeat it
	checking bool              // the tree is decoded: errors from here on are those of checks
	nodes    int
	depth    int
}

// place is where a key and its value stand. Key is nil for list items and for the whole file.
type place struct{ key, value *yaml.Node }

// scalar is a value written as one word. Parse gets the text as written.
type scalar interface{ parse(text string) error }

// noder is a value with a grammar of its own (a word or a mapping).
type noder interface {
	decode(d *decoder, n *yaml.Node, path string)
}

// wrong is an error of a scalar that knows its rule and perhaps what was meant.
type wrong struct{ rule, text, suggestion string }

func (w *wrong) Error() string { return w.text }

// has reports whether the file names the key.
func (d *decoder) has(path string) bool { _, ok := d.places[path]; return ok }

// fault notes an error at the value of path, or at the nearest key above it that the file names.
func (d *decoder) fault(path, rule, format string, args ...any) {
	d.note(Fault{Severity: Error, Path: path, Rule: rule, Text: fmt.Sprintf(format, args...)}, d.value(path))
}

// warn is fault without refusing the file.
func (d *decoder) warn(path, rule, format string, args ...any) {
	d.note(Fault{Severity: Warning, Path: path, Rule: rule, Text: fmt.Sprintf(format, args...)}, d.value(path))
}

// suggest is fault with what was probably meant.
func (d *decoder) suggest(path, rule, suggestion, format string, args ...any) {
	d.note(Fault{Severity: Error, Path: path, Rule: rule, Text: fmt.Sprintf(format, args...), Suggestion: suggestion}, d.value(path))
}

// faultKey is fault at the key itself, for keys that must not be there.
func (d *decoder) faultKey(path, rule, format string, args ...any) {
	n := d.value(path)
	if p := d.places[path]; p.key != nil {
		n = p.key
	}
	d.note(Fault{Severity: Error, Path: path, Rule: rule, Text: fmt.Sprintf(format, args...)}, n)
}

func (d *decoder) value(path string) *yaml.Node {
	for {
		if p, ok := d.places[path]; ok {
			// A mapping starts at its first key: its own name is the better place to point at.
			if p.key != nil && p.value.Kind != yaml.ScalarNode {
				return p.key
			}
			return p.value
		}
		if path == "" {
			return nil
		}
		path = parent(path)
	}
}

func (d *decoder) note(f Fault, n *yaml.Node) {
	f.File = d.file
	if where := d.from[f.Path]; where != "" {
		f.File, n = where, nil // a flag or variable is to blame, not the file
	}
	if d.checking && d.failed[f.Path] {
		return
	}
	if f.Path != "" && f.Severity == Error {
		d.failed[f.Path] = true
	}
	if n != nil && n.Line > 0 {
		f.Line, f.Column, f.width = n.Line, max(1, n.Column), 1
		if n.Kind == yaml.ScalarNode && !strings.Contains(n.Value, "\n") {
			f.width = utf8.RuneCountInString(n.Value)
			if n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0 {
				f.width += 2
			}
		}
	}
	d.faults = append(d.faults, f)
}

// credential recognises a line that may hold one under a name we do not know, such as apikey: it is not repeated.
var credential = regexp.MustCompile(`(?i)(api_?key|secret|passw|credential|bearer|\bkey)\w*["']?\s*:\s*["']?[^\s{\[#"']{6,}`)

// child and item are the paths of what is inside: budget.providers.openai, models["gpt-5.4"], pools[0].
func child(path, key string) string {
	if strings.ContainsAny(key, ".[]\"") {
		return path + "[" + fmt.Sprintf("%q", key) + "]"
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

func item(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }

func parent(path string) string {
	if strings.HasSuffix(path, "\"]") {
		return path[:strings.LastIndex(path, "[\"")]
	}
	if at := strings.LastIndexAny(path, ".["); at >= 0 {
		return path[:at]
	}
	return ""
}

// decode fills v, which is settable, from n. A nil n leaves the defaults.
func (d *decoder) decode(n *yaml.Node, v reflect.Value, path string) {
	if d.nodes++; d.nodes > maxNodes {
		if d.nodes == maxNodes+1 {
			d.note(Fault{Severity: Error, Path: path, Rule: "too-large", Text: fmt.Sprintf("more than %d values once aliases are followed", maxNodes)}, n)
		}
		return
	}
	if d.depth++; d.depth > 100 {
		d.note(Fault{Severity: Error, Path: path, Rule: "too-deep", Text: "more than 100 levels"}, n)
		d.depth--
		return
	}
	defer func() { d.depth-- }()
	for n != nil && n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n != nil && v.CanAddr() {
		switch x := v.Addr().Interface().(type) {
		case noder:
			x.decode(d, n, path)
			return
		case ordered:
			d.entries(n, x, path)
			return
		case scalar:
			d.scalar(n, path, x.parse)
			return
		}
	}
	switch v.Kind() {
	case reflect.Pointer:
		if n != nil {
			p := reflect.New(v.Type().Elem())
			d.decode(n, p.Elem(), path)
			v.Set(p)
		}
	case reflect.Struct:
		d.structure(n, v, path)
	case reflect.Slice:
		if n != nil {
			d.list(n, v, path)
		}
	case reflect.String:
		if n != nil {
			d.scalar(n, path, func(s string) error { v.SetString(s); return clean(s) })
		}
	case reflect.Bool:
		if n != nil {
			d.scalar(n, path, func(s string) error { b, err := parseBool(s); v.SetBool(b); return err })
		}
	default:
		panic(fmt.Sprintf("config: no decoder for %v at %s", v.Type(), path))
	}
}

func (d *decoder) scalar(n *yaml.Node, path string, parse func(string) error) {
	switch {
	case n.Kind != yaml.ScalarNode:
		d.note(Fault{Severity: Error, Path: path, Rule: "type", Text: fmt.Sprintf("%s is one value, not %s", path, kind(n))}, n)
	case n.Tag == "!!null":
		d.fault(path, "empty", "%s has no value: give it one or leave the key out", path)
	default:
		d.outcome(path, n, parse(n.Value))
	}
}

func (d *decoder) outcome(path string, n *yaml.Node, err error) {
	switch w := err.(type) {
	case nil:
	case *wrong:
		d.note(Fault{Severity: Error, Path: path, Rule: w.rule, Text: path + ": " + w.text, Suggestion: w.suggestion}, n)
	default:
		d.note(Fault{Severity: Error, Path: path, Rule: "value", Text: path + ": " + err.Error()}, n)
	}
}

// pairs are the keys and values of a mapping, each key once, merge keys (<<) followed. Keys that are no words are faults.
func (d *decoder) pairs(n *yaml.Node, path string) []place {
	if n.Kind != yaml.MappingNode {
		if n.Kind != yaml.ScalarNode || n.Tag != "!!null" {
			d.note(Fault{Severity: Error, Path: path, Rule: "type", Text: fmt.Sprintf("%s is a mapping of keys to values, not %s", named(path), kind(n))}, n)
		}
		return nil
	}
	var out []place
	first := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		for key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		switch {
		case key.Kind != yaml.ScalarNode:
			d.note(Fault{Severity: Error, Path: path, Rule: "key", Text: "a key is one word"}, key)
		case key.Tag == "!!merge":
			d.note(Fault{Severity: Error, Path: path, Rule: "merge-key", Text: "merge keys (<<) are not read: name the values, or use an alias (*name) for a whole value"}, key)
		case first[key.Value] != nil:
			d.note(Fault{Severity: Error, Path: child(path, key.Value), Rule: "duplicate-key",
				Text: fmt.Sprintf("%s is already set in line %d", child(path, plain(key.Value)), first[key.Value].Line)}, key)
		default:
			first[key.Value] = key
			out = append(out, place{key, value})
		}
	}
	return out
}

func (d *decoder) structure(n *yaml.Node, v reflect.Value, path string) {
	fields := fieldsOf(v.Type())
	set := map[string]bool{}
	if n != nil {
		for _, p := range d.pairs(n, path) {
			name := p.key.Value
			f, ok := fields.find(name)
			if !ok {
				d.note(Fault{Severity: Error, Path: child(path, plain(name)), Rule: "unknown-key", Suggestion: catalog.Nearest(name, fields.names()),
					Text: fmt.Sprintf("unknown key %q in %s", plain(name), named(path))}, p.key)
				continue
			}
			set[name] = true
			at := child(path, name)
			d.places[at] = p
			d.decode(p.value, v.FieldByIndex(f.index), at)
			if word := v.FieldByIndex(f.index); len(f.enum) > 0 && word.String() != "" && !slices.Contains(f.enum, word.String()) {
				d.suggest(at, "enum", catalog.Nearest(word.String(), f.enum), "%s is one of %s, not %q", at, strings.Join(f.enum, ", "), plain(word.String()))
				word.SetString(f.enum[0])
			}
			if f.later != "" {
				d.faultKey(at, "not-built", "%s is not there yet: %s", at, f.later)
			}
		}
	}
	for _, f := range fields {
		if set[f.name] {
			continue
		}
		fv := v.FieldByIndex(f.index)
		if f.fallback != "" {
			setDefault(fv, f)
		} else if fv.Kind() == reflect.Struct {
			d.decode(nil, fv, child(path, f.name))
		}
	}
}

func (d *decoder) entries(n *yaml.Node, m ordered, path string) {
	for _, p := range d.pairs(n, path) {
		name := p.key.Value
		at := child(path, plain(name))
		if err := checkName(name); err != nil {
			d.note(Fault{Severity: Error, Path: at, Rule: "name", Text: fmt.Sprintf("%q in %s: %v", plain(name), named(path), err)}, p.key)
			continue
		}
		d.places[at] = p
		e := m.elem()
		d.decode(p.value, e, at)
		m.put(name, e)
	}
}

func (d *decoder) list(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.SequenceNode {
		if n.Kind != yaml.ScalarNode || n.Tag != "!!null" {
			d.note(Fault{Severity: Error, Path: path, Rule: "type", Text: fmt.Sprintf("%s is a list, not %s", path, kind(n))}, n)
		}
		return
	}
	s := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
	for i, c := range n.Content {
		at := item(path, i)
		d.places[at] = place{value: c}
		d.decode(c, s.Index(i), at)
	}
	v.Set(s)
}

// sorted puts the faults in the order of the lines and adds the lines themselves.
func (d *decoder) sorted() Faults {
	for i, f := range d.faults {
		if f.Line > 0 && !d.hidden[f.Line] {
			if line := sourceLine(d.lines, f.Line); !credential.MatchString(line) {
				d.faults[i].Source = line
			}
		}
	}
	slices.SortStableFunc(d.faults, func(a, b Fault) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
	return d.faults
}

func named(path string) string {
	if path == "" {
		return "the file"
	}
	return path
}

func kind(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	if n.Tag == "!!null" {
		return "nothing"
	}
	return fmt.Sprintf("%q", plain(n.Value))
}
