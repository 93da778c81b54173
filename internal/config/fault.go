package config

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Severity says whether a fault stops the load.
type Severity string

// The two severities: an error refuses the file, a warning is printed and the file is used.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
)

// Fault is one thing wrong with a configuration, where it is and what to do about it.
// The zero value of Line means that the fault is about the whole file.
type Fault struct {
	File       string   `json:"file"`
	Line       int      `json:"line"`   // from 1
	Column     int      `json:"column"` // from 1, in characters
	Severity   Severity `json:"severity"`
	Path       string   `json:"path,omitempty"` // of the key: budget.providers.openai.rpm_ceiling
	Text       string   `json:"text"`
	Suggestion string   `json:"suggestion,omitempty"` // what was probably meant
	Rule       string   `json:"rule"`                 // stable name of the check
	Source     string   `json:"source,omitempty"`     // the line itself, without control characters
	width      int      // characters the caret underlines
}

// String is the fault in one line: file:line:col: error: text; did you mean "x"? [rule].
func (f Fault) String() string {
	var b strings.Builder
	b.WriteString(f.File)
	if f.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", f.Line, f.Column)
	}
	fmt.Fprintf(&b, ": %s: %s", f.Severity, f.Text)
	if f.Suggestion != "" {
		fmt.Fprintf(&b, "; did you mean %q?", f.Suggestion)
	}
	fmt.Fprintf(&b, " [%s]", f.Rule)
	return b.String()
}

// Faults are all the faults of one file, in the order of their lines. It is the error that [Load] returns for a file
// that was read and found wrong; warnings are in [Config.Warnings] when there is no error among them.
type Faults []Fault

// Error is every fault with its source line, as [Faults.Print] writes it.
func (fs Faults) Error() string {
	var b strings.Builder
	fs.Print(&b)
	return strings.TrimRight(b.String(), "\n")
}

// Print writes each fault, its source line, and a caret under the place.
func (fs Faults) Print(w io.Writer) {
	for _, f := range fs {
		fmt.Fprintln(w, f)
		if f.Source == "" {
			continue
		}
		margin := fmt.Sprintf("%5d | ", f.Line)
		fmt.Fprintln(w, margin+f.Source)
		fmt.Fprintln(w, strings.Repeat(" ", len(margin)-2)+"| "+f.caret())
	}
}

// JSON writes the faults as one JSON array; no faults are an empty array.
func (fs Faults) JSON(w io.Writer) error {
	if fs == nil {
		fs = Faults{}
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	if err := e.Encode(fs); err != nil {
		return fmt.Errorf("write faults: %w", err)
	}
	return nil
}

// errors reports whether any of the faults refuses the file.
func (fs Faults) errors() bool {
	return slices.ContainsFunc(fs, func(f Fault) bool { return f.Severity == Error })
}

func (f Fault) caret() string {
	var b strings.Builder
	for i, r := range []rune(f.Source) {
		if i+1 >= f.Column {
			break
		}
		if r == '\t' {
			b.WriteByte('\t')
		} else {
			b.WriteByte(' ')
		}
	}
	left := utf8.RuneCountInString(f.Source) - f.Column + 1
	return b.String() + strings.Repeat("^", max(1, min(f.width, left)))
}

// maxSource bounds the source line shown with a fault, in characters.
const maxSource = 200

// sourceLine cuts line n (from 1) out of the text. Control characters, which could steer a terminal, are shown as dots.
func sourceLine(lines []string, n int) string {
	if n < 1 || n > len(lines) {
		return ""
	}
	line := []rune(strings.ToValidUTF8(strings.TrimRight(lines[n-1], "\r"), "\uFFFD"))
	if len(line) > maxSource {
		line = append(line[:maxSource], '…')
	}
	for i, r := range line {
		if r != '\t' && unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			line[i] = '·'
		}
	}
	return string(line)
}

// plain makes text from a file safe to repeat in a message: one line, no control characters, at most 80 characters.
func plain(s string) string {
	r := []rune(strings.ToValidUTF8(s, "\uFFFD"))
	if len(r) > 80 {
		r = append(r[:80], '…')
	}
	for i, c := range r {
		if unicode.IsControl(c) || unicode.Is(unicode.Bidi_Control, c) {
			r[i] = '·'
		}
	}
	return string(r)
}
