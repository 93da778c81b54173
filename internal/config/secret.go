package config

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v4"
)

// Secret names where a credential is: an environment variable or a file. It never holds the value, and prints as ***
// however it is printed. The zero value is "none".
type Secret struct{ env, file string }

// maxSecret bounds a secret file.
const maxSecret = 64 << 10

// ErrNoSecret is the cause when a secret's variable is unset or its file is empty.
var ErrNoSecret = errors.New("no value")

// FileSecret is a credential in a file, for programs that bring one of their own.
func FileSecret(path string) Secret { return Secret{file: path} }

// IsZero reports whether the file names no secret.
func (s Secret) IsZero() bool { return s == Secret{} }

// Where says where the value comes from ("environment variable NAME", "file PATH"): never the value.
func (s Secret) Where() string {
	switch {
	case s.env != "":
		return "environment variable " + s.env
	case s.file != "":
		return "file " + s.file
	}
	return "nowhere"
}

// String is *** for a secret and empty for none.
func (s Secret) String() string {
	if s.IsZero() {
		return ""
	}
	return "***"
}

// GoString, MarshalText and LogValue keep the place out of %#v, JSON and logs too: one habit everywhere.
func (s Secret) GoString() string { return "config.Secret(***)" }

// MarshalText is [Secret.String].
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue is [Secret.String].
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// Value reads the credential now, so that a rotated file is seen at the next read. White space around it is not part of it.
// Errors name the place and wrap [ErrNoSecret] or the error of the file.
func (s Secret) Value() (string, error) {
	switch {
	case s.env != "":
		if v := strings.TrimSpace(os.Getenv(s.env)); v != "" {
			return v, nil
		}
		return "", fmt.Errorf("read secret from %s: %w: set it", s.Where(), ErrNoSecret)
	case s.file != "":
		st, err := os.Stat(s.file)
		if err != nil {
			return "", fmt.Errorf("read secret: %w", err)
		}
		if !st.Mode().IsRegular() || st.Size() > maxSecret {
			return "", fmt.Errorf("read secret from %s: want a regular file of at most %d bytes", s.Where(), maxSecret)
		}
		b, err := os.ReadFile(s.file)
		if err != nil {
			return "", fmt.Errorf("read secret: %w", err)
		}
		if v := strings.TrimSpace(string(b)); v != "" {
			return v, nil
		}
		return "", fmt.Errorf("read secret from %s: %w: the file is empty", s.Where(), ErrNoSecret)
	}
	return "", fmt.Errorf("read secret: %w", ErrNoSecret)
}

// lookEvery is how often a secret's file is compared with what was read of it.
const lookEvery = time.Second

// Reader returns a function that gives the value for each call: a file is read again when it has changed, at most once a second; while it
// cannot be read, the value before stays. "" and no error for the zero value. Errors as [Secret.Value]. The function is safe for
// concurrent use.
func (s Secret) Reader() func() (string, error) {
	if s.IsZero() {
		return func() (string, error) { return "", nil }
	}
	if s.file == "" {
		return s.Value
	}
	r := &secretFile{secret: s}
	return r.value
}

// secretFile remembers what was read of a file.
type secretFile struct {
	secret Secret

	mu      sync.Mutex
	text    string
	size    int64
	changed time.Time // of the file when it was read
	looked  time.Time
}

func (r *secretFile) value() (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if r.text != "" && now.Sub(r.looked) < lookEvery {
		return r.text, nil
	}
	r.looked = now
	st, err := os.Stat(r.secret.file)
	if err == nil && r.text != "" && st.Size() == r.size && st.ModTime().Equal(r.changed) {
		return r.text, nil
	}
	text, readErr := r.secret.Value()
	switch {
	case readErr == nil && err == nil:
		r.text, r.size, r.changed = text, st.Size(), st.ModTime()
		return text, nil
	case r.text != "": // a rotation replaces the file in several steps
		return r.text, nil
	case readErr != nil:
		return "", readErr
	}
	return text, nil
}

func (s *Secret) decode(d *decoder, n *yaml.Node, path string) {
	if n.Kind == yaml.ScalarNode {
		d.places[path] = place{key: d.places[path].key, value: &yaml.Node{Kind: yaml.ScalarNode, Line: n.Line, Column: n.Column}}
		// The text may be the credential itself: the source line must not be shown.
		d.note(Fault{Severity: Error, Path: path, Rule: "secret",
			Text: path + " must not stand in the file: write {env: NAME} or {file: PATH}"}, &yaml.Node{Line: n.Line, Column: n.Column})
		d.hidden[n.Line] = true
		return
	}
	pairs := d.pairs(n, path)
	for _, p := range pairs {
		var to *string
		switch p.key.Value {
		case "env":
			to = &s.env
		case "file":
			to = &s.file
		default:
			d.note(Fault{Severity: Error, Path: path, Rule: "secret", Text: fmt.Sprintf("%s is {env: NAME} or {file: PATH}, not %q", path, plain(p.key.Value))}, p.key)
			continue
		}
		d.scalar(p.value, path, func(t string) error {
			*to = t
			if t == "" {
				return &wrong{"secret", "is empty", ""}
			}
			return clean(t)
		})
	}
	if s.env != "" && s.file != "" || len(pairs) == 0 && n.Kind == yaml.MappingNode {
		d.fault(path, "secret", "%s is either {env: NAME} or {file: PATH}", path)
	}
}
