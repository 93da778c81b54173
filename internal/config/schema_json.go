package config

import (
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/invopop/jsonschema"
)

// JSONSchema is the schema of the file for editors, from the same tags that the decoder reads.
func JSONSchema() ([]byte, error) {
	s := schemaOf(reflect.TypeFor[File](), field{})
	s.Version = jsonschema.Version
	s.ID = "https://github.com/token-budget-arbiter/tba/configuration.schema.json"
	s.Title = "Token Budget Arbiter configuration"
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write schema: %w", err)
	}
	return append(b, '\n'), nil
}

// Patterns of the words that are no plain JSON types. YAML reads 500_000_000 as a number in some editors and as a word in
// others, so both are allowed.
const (
	countPattern    = `^[0-9]+(_[0-9]+)*$`
	durationPattern = `^(0|([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+)$`
)

func number(minimum, maximum json.Number) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "number", Minimum: minimum, Maximum: maximum}
}

// schemaOf describes one type. The file's structs are a tree, so nothing is defined by reference.
func schemaOf(t reflect.Type, f field) *jsonschema.Schema {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	s := schemaOfType(t, f)
	s.Description = f.doc
	if f.later != "" {
		s.Description += " Not there yet: " + f.later + "."
	}
	if f.fallback != "" {
		s.Default = f.fallback
		if t.Kind() == reflect.Bool {
			s.Default = f.fallback == "true"
		}
	}
	return s
}

func schemaOfType(t reflect.Type, f field) *jsonschema.Schema {
	switch t {
	case reflect.TypeFor[Count]():
		return &jsonschema.Schema{OneOf: []*jsonschema.Schema{
			{Type: "integer", Minimum: "0", Maximum: json.Number(fmt.Sprint(int64(MaxAmount)))}, {Type: "string", Pattern: countPattern},
		}}
	case reflect.TypeFor[Share]():
		return number("0", "1")
	case reflect.TypeFor[USD]():
		return number("0", "9007199.254740991")
	case reflect.TypeFor[Decimal]():
		return number("0", "10000")
	case reflect.TypeFor[Duration]():
		return &jsonschema.Schema{OneOf: []*jsonschema.Schema{{Type: "string", Pattern: durationPattern}, {Const: 0}}}
	case reflect.TypeFor[Secret]():
		return &jsonschema.Schema{OneOf: []*jsonschema.Schema{one("env", "Name of an environment variable."), one("file", "Path of a file.")}}
	case reflect.TypeFor[Period]():
		s := &jsonschema.Schema{OneOf: []*jsonschema.Schema{{Type: "string"}, object(reflect.TypeFor[periodParts]())}}
		for _, k := range calendar {
			s.OneOf[0].Enum = append(s.OneOf[0].Enum, k)
		}
		return s
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[ordered]()) {
		e, _ := t.Elem().FieldByName("Value")
		return &jsonschema.Schema{Type: "object", AdditionalProperties: schemaOf(e.Type, field{})}
	}
	switch t.Kind() {
	case reflect.Struct:
		return object(t)
	case reflect.Slice:
		return &jsonschema.Schema{Type: "array", Items: schemaOf(t.Elem(), field{})}
	case reflect.Bool:
		return &jsonschema.Schema{Type: "boolean"}
	case reflect.String:
		s := &jsonschema.Schema{Type: "string"}
		for _, e := range f.enum {
			s.Enum = append(s.Enum, e)
		}
		return s
	}
	panic(fmt.Sprintf("config: no schema for %v", t))
}

func object(t reflect.Type) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "object", Properties: jsonschema.NewProperties(), AdditionalProperties: jsonschema.FalseSchema}
	for _, f := range fieldsOf(t) {
		s.Properties.Set(f.name, schemaOf(t.FieldByIndex(f.index).Type, f))
	}
	return s
}

func one(key, doc string) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "object", Properties: jsonschema.NewProperties(), AdditionalProperties: jsonschema.FalseSchema, Required: []string{key}}
	s.Properties.Set(key, &jsonschema.Schema{Type: "string", Description: doc})
	return s
}
