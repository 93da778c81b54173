// Package config turns the YAML file into process settings and a compiled, immutable arbiter.Policy; every error has its line and column.
//
// One run names every fault of a file. What a later version will read is known to the schema and refused with a sentence
// that says so, so that a file never means less than it says.
package config

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/token-budget-arbiter/tba/arbiter"
	"github.com/token-budget-arbiter/tba/internal/catalog"
)

// MaxFile bounds a configuration file, in bytes.
const MaxFile = 4 << 20

// Config is a file that was read, checked and compiled. Immutable.
type Config struct {
	Settings   Settings
	Pools      []Pool // at least one
	Keys       []Key  // of auth.keys; none means loopback only
	PerAddress PerAddress
	// PerAddressSet is true when the file has limits.per_address: then the loopback is limited too.
	PerAddressSet bool
	Gateway       Gateway
	Estimation    Estimation
	Identity      Identity
	Catalog       *catalog.Catalog // the built-in one with the operator's rows over it
	// Path is the file as given; PriceFile its catalog.file, "" without one. Sum is the SHA-256 over both.
	Path, PriceFile string
	Sum             [32]byte
	// Warnings do not stop the load; print them.
	Warnings Faults

	values []Value
}

// Pool returns the pool of a name; "" is the only one, or the one named default.
func (c *Config) Pool(name string) (*Pool, bool) {
	for i := range c.Pools {
		if c.Pools[i].Name == name || name == "" && (len(c.Pools) == 1 || c.Pools[i].Name == "default") {
			return &c.Pools[i], true
		}
	}
	return nil, false
}

// Load reads a file, with TBA_* environment variables over its process settings.
// A file that was read and is wrong gives [Faults]; one that cannot be read gives another error, which names it.
func Load(path string) (*Config, error) { return Sources{Env: os.LookupEnv}.Load(path) }

// LoadBytes is [Load] of text that is already there, without the environment. Name stands for the file in messages, and
// relative paths in the text start at its folder.
func LoadBytes(name string, text []byte) (*Config, error) { return Sources{}.LoadBytes(name, text) }

// Load is the function Load with other sources of process settings.
func (s Sources) Load(path string) (*Config, error) {
	text, err := readFile(path)
	if err != nil {
		return nil, err
	}
	return s.LoadBytes(path, text)
}

// Settings are the process settings without any file, for commands that need none.
func (s Sources) Settings() (Settings, error) {
	var f File
	d := newDecoder("", nil)
	d.decode(nil, reflect.ValueOf(&f).Elem(), "")
	from, faults := s.override(&f.Settings)
	d.from, d.checking = from, true
	d.checkRules(&f)
	if faults = append(faults, d.faults...); len(faults) > 0 {
		return Settings{}, faults
	}
	return f.Settings, nil
}

// readFile reads a regular file of at most MaxFile bytes, and says what is there when it is something else.
func readFile(path string) ([]byte, error) {
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("read configuration: %w: tba init writes a commented one", err)
	case err != nil:
		return nil, fmt.Errorf("read configuration: %w", err)
	case st.IsDir():
		return nil, fmt.Errorf("read configuration: %s is a directory: name the file in it", path)
	case !st.Mode().IsRegular():
		return nil, fmt.Errorf("read configuration: %s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return text, nil
}

func newDecoder(name string, text []byte) *decoder {
	return &decoder{
		file: name, lines: strings.Split(string(text), "\n"),
		places: map[string]place{}, anchors: map[string]string{}, hidden: map[int]bool{}, failed: map[string]bool{},
	}
}

// LoadBytes is the function LoadBytes with other sources of process settings.
func (s Sources) LoadBytes(name string, text []byte) (*Config, error) {
	d := newDecoder(name, text)
	root := d.parse(text)
	if root == nil {
		return nil, d.sorted()
	}
	var f File
	d.decode(root, reflect.ValueOf(&f).Elem(), "")
	if root.Kind != yaml.MappingNode {
		return nil, d.sorted()
	}
	d.checking = true
	from, faults := s.override(&f.Settings)
	d.from = from
	d.check(&f)
	c := &Config{
		Keys: f.Auth.Keys, PerAddress: f.Limits.PerAddress, PerAddressSet: d.has("limits.per_address"),
		Gateway: f.compiledGateway(), Identity: f.compiledIdentity(),
		Estimation: Estimation{
			Buffer: arbiter.PPM(f.Estimation.Buffer), Output: f.Estimation.Output,
			DefaultOutput: arbiter.Tokens(f.Estimation.DefaultOutput), LearnedMin: int64(f.Estimation.LearnedMin),
		},
		Path: name, PriceFile: beside(name, f.Catalog.File),
	}
	c.Catalog = d.catalog(c.PriceFile)
	c.Sum = sumOf(text, c.PriceFile)
	if c.Catalog != nil {
		comp := compiler{d: d, file: &f, cat: c.Catalog, now: time.Now()}
		for _, b := range f.budgets() {
			p := comp.pool(b.budget, b.path)
			// A policy that is only too large would hide what else is wrong: measured last.
			if !d.faults.errors() {
				if _, _, err := p.Policy.Encode(); err != nil {
					d.fault(b.path, "policy-size", "pool %s: %v", p.Name, err)
				} else if err := p.Policy.Validate(); err != nil {
					d.fault(b.path, "policy", "pool %s: %v", p.Name, err)
				}
			}
			c.Pools = append(c.Pools, p)
		}
	}
	if all := append(faults, d.sorted()...); all.errors() {
		return nil, all
	}
	c.Settings, c.Warnings = f.Settings, d.faults
	c.values = d.show(&f, from)
	return c, nil
}

// parse reads the YAML tree. nil means that a fault says why there is none.
func (d *decoder) parse(text []byte) *yaml.Node {
	whole := func(rule, format string, args ...any) *yaml.Node {
		d.note(Fault{Severity: Error, Rule: rule, Text: fmt.Sprintf(format, args...)}, nil)
		return nil
	}
	switch {
	case len(text) > MaxFile:
		return whole("too-large", "the file is above %d bytes (4 MiB)", MaxFile)
	case len(bytes.TrimSpace(text)) == 0:
		return whole("empty", "the file is empty: tba init writes a commented one")
	case bytes.IndexByte(text, 0) >= 0:
		return whole("syntax", "the file is not text: it has zero bytes")
	}
	var docs []*yaml.Node
	if err := load(text, &docs); err != nil {
		d.syntax(err)
		return nil
	}
	if len(docs) > 1 {
		d.note(Fault{Severity: Error, Rule: "documents", Text: fmt.Sprintf("the file has %d documents (---): one is read", len(docs))}, docs[1])
		return nil
	}
	if len(docs) == 1 && docs[0].Kind == yaml.DocumentNode && len(docs[0].Content) == 1 {
		if root := docs[0].Content[0]; root.Kind != yaml.ScalarNode || root.Tag != "!!null" {
			return root
		}
	}
	return whole("empty", "the file has comments alone: tba init writes a commented one that loads")
}

func load(text []byte, docs *[]*yaml.Node) (err error) {
	// The parser has been seen to panic on broken input: a file must never bring the process down.
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("not YAML: %v", r)
		}
	}()
	loader, err := yaml.NewLoader(bytes.NewReader(text))
	if err != nil {
		return err
	}
	for len(*docs) < 3 {
		var n yaml.Node
		if err := loader.Load(&n); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		*docs = append(*docs, &n)
	}
	return nil
}

var linePrefix = regexp.MustCompile(`^(?:go-yaml load error.*? at |yaml: )?(?:line )?([0-9]+)(?::([0-9]+))?[^:]*: `)

// syntax notes what the YAML parser stopped at. It stops at the first fault, so this one stands alone.
func (d *decoder) syntax(err error) {
	var at *yaml.LoadError
	n := &yaml.Node{}
	text := err.Error()
	if errors.As(err, &at) {
		n.Line, n.Column, text = at.Mark.Line, at.Mark.Column, at.Message
	} else if m := linePrefix.FindStringSubmatch(text); m != nil {
		n.Line, _ = strconv.Atoi(m[1])
		n.Column, _ = strconv.Atoi(m[2])
		text = text[len(m[0]):]
	}
	if n.Line == 0 {
		n = nil
	} else if last := len(d.lines); n.Line >= last && d.lines[last-1] == "" {
		// It missed something at the very end: show the last line that has text.
		for last > 1 && strings.TrimSpace(d.lines[last-1]) == "" {
			last--
		}
		n.Line, n.Column = last, len([]rune(d.lines[last-1]))+1
	}
	d.note(Fault{Severity: Error, Rule: "syntax", Text: "not YAML: " + plain(text)}, n)
}

// beside is a path of the file, from the file's folder when it is relative.
func beside(file, path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(file), path)
}

// sumOf is the SHA-256 over the file and its price file; a price file that cannot be read counts as its error.
func sumOf(text []byte, priceFile string) (sum [32]byte) {
	h := sha256.New()
	h.Write(text)
	if priceFile != "" {
		prices, err := readFile(priceFile)
		fmt.Fprintf(h, "\x00%v\x00", err)
		h.Write(prices)
	}
	h.Sum(sum[:0])
	return sum
}

// catalog is the embedded one with the rows of the named file over it. nil means that a fault says why.
func (d *decoder) catalog(path string) *catalog.Catalog {
	if path == "" {
		return catalog.Embedded()
	}
	text, err := readFile(path)
	if err != nil {
		d.fault("catalog.file", "catalog", "catalog.file: %v", errors.Unwrap(err))
		return nil
	}
	over, err := catalog.Parse(path, text)
	if err != nil {
		for _, line := range strings.Split(err.Error(), "\n") {
			d.fault("catalog.file", "catalog", "catalog.file: %s", strings.TrimSpace(line))
		}
		return nil
	}
	return catalog.Embedded().Override(over)
}
