package config

import (
	"fmt"
	"reflect"
	"strings"
)

// Value is one key with what is in force and where that came from.
type Value struct {
	Path   string `json:"path"`
	Value  string `json:"value"`
	Source string `json:"source"` // "FILE:LINE", "default", "environment NAME" or "flag --NAME"
}

// Values lists every key in force, process settings first, in the order of the schema. Secrets are ***.
func (c *Config) Values() []Value { return append([]Value(nil), c.values...) }

func (d *decoder) show(f *File, from map[string]string) []Value {
	s := shower{d: d, from: from}
	s.value(reflect.ValueOf(&f.Settings).Elem(), "", field{})
	s.value(reflect.ValueOf(f).Elem(), "", field{})
	return s.out
}

type shower struct {
	d    *decoder
	from map[string]string
	out  []Value
	seen map[string]bool
}

func (s *shower) put(path, text string) {
	if s.seen == nil {
		s.seen = map[string]bool{}
	}
	if s.seen[path] {
		return
	}
	s.seen[path] = true
	source := "default"
	if p, ok := s.d.places[path]; ok {
		source = fmt.Sprintf("%s:%d", s.d.file, p.value.Line)
	}
	if other := s.from[path]; other != "" {
		source = other
	}
	s.out = append(s.out, Value{path, text, source})
}

func (s *shower) value(v reflect.Value, path string, f field) {
	if f.later != "" {
		return // refused when set: there is nothing in force
	}
	switch x := v.Addr().Interface().(type) {
	case *Secret:
		if !x.IsZero() {
			s.put(path, x.String())
		}
		return
	case *Period:
		s.put(path, x.String())
		return
	case ordered:
		for i := range v.Len() {
			e := v.Index(i)
			s.value(e.FieldByName("Value"), child(path, e.FieldByName("Name").String()), field{})
		}
		return
	case fmt.Stringer:
		s.put(path, x.String())
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			s.value(v.Elem(), path, f)
		}
	case reflect.Struct:
		for _, f := range fieldsOf(v.Type()) {
			s.value(v.FieldByIndex(f.index), child(path, f.name), f)
		}
	case reflect.Slice:
		if v.Len() > 0 && v.Index(0).Kind() == reflect.String {
			words := make([]string, v.Len())
			for i := range words {
				words[i] = v.Index(i).String()
			}
			s.put(path, "["+strings.Join(words, ", ")+"]")
			return
		}
		for i := range v.Len() {
			s.value(v.Index(i), item(path, i), field{})
		}
	case reflect.String:
		if v.String() != "" {
			s.put(path, v.String())
		}
	case reflect.Bool:
		s.put(path, fmt.Sprint(v.Bool()))
	default:
		panic(fmt.Sprintf("config: cannot show %v at %s", v.Type(), path))
	}
}

// String is the period as the file may write it.
func (p Period) String() string {
	s := p.Spec
	switch {
	case s.Kind == "every":
		return fmt.Sprintf("every %s", Duration(s.Every))
	case s.Kind == "weekly":
		return "weekly, " + weekdays[s.Anchor]
	case s.Anchor > 0:
		return fmt.Sprintf("%s, day %d", s.Kind, s.Anchor)
	}
	return s.Kind
}
