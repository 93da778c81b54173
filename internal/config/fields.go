package config

import (
	"fmt"
	"reflect"
	"strings"
	"sync"
)

// field is one key of a mapping, as the tags of its struct field describe it. The tags are the only description there is:
// the decoder, the defaults, the JSON Schema and docs/configuration.md all read them.
type field struct {
	name     string
	index    []int
	doc      string // one sentence and more, plain text
	fallback string // the default as one would write it
	example  string
	enum     []string
	later    string // why a key that is accepted is refused for now
	required bool
}

type fields []field

var fieldCache sync.Map // reflect.Type → fields

// fieldsOf lists the keys of a struct type in the order of its fields; embedded structs are part of it.
func fieldsOf(t reflect.Type) fields {
	if f, ok := fieldCache.Load(t); ok {
		return f.(fields)
	}
	var out fields
	for i := range t.NumField() {
		sf := t.Field(i)
		if sf.Anonymous {
			for _, f := range fieldsOf(sf.Type) {
				f.index = append([]int{i}, f.index...)
				out = append(out, f)
			}
			continue
		}
		name := sf.Tag.Get("yaml")
		if name == "" || name == "-" {
			continue
		}
		f := field{
			name: name, index: []int{i}, doc: sf.Tag.Get("doc"), fallback: sf.Tag.Get("default"),
			example: sf.Tag.Get("example"), later: sf.Tag.Get("later"), required: sf.Tag.Get("required") != "",
		}
		if e := sf.Tag.Get("enum"); e != "" {
			f.enum = strings.Split(e, "|")
		}
		out = append(out, f)
	}
	fieldCache.Store(t, out)
	return out
}

func (fs fields) find(name string) (field, bool) {
	for _, f := range fs {
		if f.name == name {
			return f, true
		}
	}
	return field{}, false
}

func (fs fields) names() []string {
	names := make([]string, len(fs))
	for i, f := range fs {
		names[i] = f.name
	}
	return names
}

// setDefault parses the default of a tag into v. A default that does not parse is a mistake in this package.
func setDefault(v reflect.Value, f field) {
	if s, ok := v.Addr().Interface().(scalar); ok {
		if err := s.parse(f.fallback); err != nil {
			panic(fmt.Sprintf("config: default of %s: %v", f.name, err))
		}
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(f.fallback)
	case reflect.Bool:
		v.SetBool(f.fallback == "true")
	default:
		panic(fmt.Sprintf("config: no default for %v of %s", v.Type(), f.name))
	}
}
