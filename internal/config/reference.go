package config

import (
	"reflect"
	"strings"
)

// KeyDoc describes one key of the file, for the documentation and for tba config explain.
type KeyDoc struct {
	// Path has <name> where the file names something and [] where it lists.
	Path    string   `json:"path"`
	Type    string   `json:"type"`
	Default string   `json:"default,omitempty"`
	Words   []string `json:"words,omitempty"` // the values it may have, when they are few
	Doc     string   `json:"doc"`
	Example string   `json:"example,omitempty"` // "key: value"
	// Later says why the key is refused for now; empty for a key that works.
	Later string `json:"later,omitempty"`
	// Flag and Env give it too; empty for a key that stands in the file alone.
	Flag string `json:"flag,omitempty"`
	Env  string `json:"env,omitempty"`
}

// Reference lists every key in the order of the schema. Pools have the keys of budget, which are listed once.
func Reference() []KeyDoc {
	settings := map[string]Setting{}
	for _, s := range AllSettings() {
		settings[s.Path] = s
	}
	var out []KeyDoc
	listKeys(reflect.TypeFor[File](), "", "", &out)
	for i, k := range out {
		if s, ok := settings[k.Path]; ok {
			out[i].Flag, out[i].Env = "--"+s.Flag, s.Env
		}
	}
	return out
}

// listKeys appends the keys of t; later is inherited, since nothing inside a refused section works.
func listKeys(t reflect.Type, path, later string, out *[]KeyDoc) {
	for _, f := range fieldsOf(t) {
		ft := t.FieldByIndex(f.index).Type
		name, inner := typeName(ft)
		k := KeyDoc{Path: child(path, f.name), Type: name, Default: f.fallback, Words: f.enum, Doc: f.doc, Later: f.later}
		if k.Later == "" {
			k.Later = later
		}
		if f.example != "" {
			k.Example = f.name + ": " + f.example
			if strings.HasPrefix(name, "mapping of names") && !strings.HasPrefix(f.example, "{") {
				k.Example = f.name + ": {" + f.example + "}"
			}
		}
		*out = append(*out, k)
		if inner == nil || k.Path == "pools" {
			continue
		}
		at := k.Path
		switch {
		case strings.HasPrefix(name, "mapping of names"):
			at += ".<name>"
		case strings.HasPrefix(name, "list"):
			at += "[]"
		}
		listKeys(inner, at, k.Later, out)
	}
}

// typeName is a type in the words of the documentation, and the struct inside it whose keys come next.
func typeName(t reflect.Type) (name string, inner reflect.Type) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t {
	case reflect.TypeFor[Count]():
		return "count", nil
	case reflect.TypeFor[Share]():
		return "share", nil
	case reflect.TypeFor[USD]():
		return "USD", nil
	case reflect.TypeFor[Decimal]():
		return "price", nil
	case reflect.TypeFor[Duration]():
		return "duration", nil
	case reflect.TypeFor[Secret]():
		return "secret", nil
	case reflect.TypeFor[Period]():
		return "word or mapping", reflect.TypeFor[periodParts]()
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[ordered]()) {
		e, _ := t.Elem().FieldByName("Value")
		of, inner := typeName(e.Type)
		return "mapping of names to " + of, inner
	}
	switch t.Kind() {
	case reflect.Struct:
		return "mapping", t
	case reflect.Slice:
		of, inner := typeName(t.Elem())
		return "list of " + of, inner
	case reflect.Bool:
		return "true or false", nil
	}
	return "word", nil
}
