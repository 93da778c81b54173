package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"

	"charm.land/lipgloss/v2"
	"charm.land/lipgloss/v2/table"
	"github.com/charmbracelet/colorprofile"
	"go.yaml.in/yaml/v4"
)

// formats are the values of -o. table is for people: numbers with separators, times as durations. All others carry
// every field under its name in the API, raw.
var formats = []string{"table", "json", "jsonl", "csv", "yaml"}

// column is one column of a table. right aligns numbers.
type column[T any] struct {
	title string
	right bool
	cell  func(T) string
	shade func(T) shade // nil: plain
}

// shade is the colour of a cell. It repeats what the text says, so nothing is lost without colours.
type shade int

const (
	plain shade = iota
	good
	warn
	bad
	dim
)

var shades = map[shade]lipgloss.Style{
	plain: lipgloss.NewStyle(),
	good:  lipgloss.NewStyle().Foreground(lipgloss.Green),
	warn:  lipgloss.NewStyle().Foreground(lipgloss.Yellow),
	bad:   lipgloss.NewStyle().Foreground(lipgloss.Red),
	dim:   lipgloss.NewStyle().Faint(true),
}

// printRows writes rows in the form of -o. Column functions are called for tables alone.
func printRows[T any](a *app, rows []T, columns []column[T]) error {
	if a.format == "table" {
		return printTable(a, rows, columns)
	}
	if rows == nil {
		rows = []T{}
	}
	return a.printData(rows)
}

// printOne writes a single object: in a table its columns become lines.
func printOne[T any](a *app, row T, columns []column[T]) error {
	if a.format != "table" {
		return a.printData(row)
	}
	type line struct {
		name, value string
		shade       shade
	}
	var lines []line
	for _, c := range columns {
		l := line{name: strings.ToLower(c.title), value: c.cell(row)}
		if c.shade != nil {
			l.shade = c.shade(row)
		}
		if l.value != "" {
			lines = append(lines, l)
		}
	}
	bare := *a
	bare.noHeaders = true
	return printTable(&bare, lines, []column[line]{
		{cell: func(l line) string { return l.name }, shade: func(line) shade { return dim }},
		{cell: func(l line) string { return l.value }, shade: func(l line) shade { return l.shade }},
	})
}

func printTable[T any](a *app, rows []T, columns []column[T]) error {
	t := table.New().Border(lipgloss.Border{}).BorderTop(false).BorderBottom(false).BorderLeft(false).BorderRight(false).
		BorderColumn(false).BorderHeader(false).Wrap(false)
	if !a.noHeaders {
		titles := make([]string, len(columns))
		for i, c := range columns {
			titles[i] = c.title
		}
		t.Headers(titles...)
	}
	for _, r := range rows {
		cells := make([]string, len(columns))
		for i, c := range columns {
			cells[i] = strings.ReplaceAll(c.cell(r), "\n", " ")
		}
		t.Row(cells...)
	}
	t.StyleFunc(func(row, col int) lipgloss.Style {
		c := columns[col]
		style := lipgloss.NewStyle()
		switch {
		case row == table.HeaderRow:
			style = style.Bold(true)
		case c.shade != nil:
			style = shades[c.shade(rows[row])]
		}
		if c.right {
			style = style.Align(lipgloss.Right)
		}
		if col < len(columns)-1 {
			style = style.PaddingRight(3)
		}
		return style
	})
	w := colorprofile.NewWriter(a.out, a.environ)
	if v, ok := a.env("NO_COLOR"); ok && v != "" && w.Profile > colorprofile.ASCII { // any value counts, not only a true one
		w.Profile = colorprofile.ASCII
	}
	for line := range strings.Lines(t.Render() + "\n") {
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " \n")); err != nil {
			return fmt.Errorf("write table: %w", err)
		}
	}
	return nil
}

// printData writes a struct, or a slice of them, in a form for programs.
func (a *app) printData(v any) error {
	var err error
	switch a.format {
	case "json", "table":
		e := json.NewEncoder(a.out)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		err = e.Encode(v)
	case "jsonl":
		e := json.NewEncoder(a.out)
		e.SetEscapeHTML(false)
		for _, row := range rowsOf(v) {
			if err = e.Encode(row.Interface()); err != nil {
				break
			}
		}
	case "csv":
		err = writeCSV(a.out, v, !a.noHeaders)
	case "yaml":
		err = writeYAML(a.out, v)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", a.format, err)
	}
	return nil
}

// rowsOf is the elements of a slice, or the single value.
func rowsOf(v any) []reflect.Value {
	r := reflect.ValueOf(v)
	if r.Kind() != reflect.Slice {
		return []reflect.Value{r}
	}
	out := make([]reflect.Value, r.Len())
	for i := range out {
		out[i] = r.Index(i)
	}
	return out
}

// writeCSV writes one line for each row. A field that is a list or an object is written as JSON.
func writeCSV(w io.Writer, v any, header bool) error {
	t := reflect.TypeOf(v)
	if t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	var fields []reflect.StructField
	for _, f := range reflect.VisibleFields(t) {
		if f.IsExported() {
			fields = append(fields, f)
		}
	}
	out := csv.NewWriter(w)
	if header {
		names := make([]string, len(fields))
		for i, f := range fields {
			names[i], _, _ = strings.Cut(f.Tag.Get("json"), ",")
		}
		_ = out.Write(names) // Flush keeps the error
	}
	for _, row := range rowsOf(v) {
		cells := make([]string, len(fields))
		for i, f := range fields {
			b, err := json.Marshal(row.FieldByIndex(f.Index).Interface())
			if err != nil {
				return err
			}
			var text string
			switch {
			case string(b) == "null":
			case json.Unmarshal(b, &text) == nil:
				cells[i] = text
			default:
				cells[i] = string(b)
			}
		}
		_ = out.Write(cells)
	}
	out.Flush()
	return out.Error()
}

// writeYAML goes by way of JSON, of which YAML is a superset: names, order and numbers are then the same in both.
func writeYAML(w io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var n yaml.Node
	if err := yaml.Unmarshal(b, &n); err != nil {
		return err
	}
	unquote(&n)
	var buf bytes.Buffer
	e := yaml.NewEncoder(&buf)
	e.SetIndent(2)
	if err := e.Encode(&n); err != nil {
		return err
	}
	_, err = w.Write(buf.Bytes())
	return err
}

// unquote drops the style of JSON and lets the encoder quote what needs it.
func unquote(n *yaml.Node) {
	if n.Kind != yaml.ScalarNode && len(n.Content) > 0 || n.Kind == yaml.ScalarNode {
		n.Style = 0
	}
	for _, c := range n.Content {
		unquote(c)
	}
}
