package mockprovider

import (
	"encoding/json"
	"strconv"
)

// object is a JSON object whose members stay in order, as providers write them; a member that is absent is left out.
type object []member

type member struct {
	name  string
	value any
}

type list []any

// absent is the value of a member that is not there.
type absent struct{}

// present is v, or nothing at all.
func present(is bool, v any) any {
	if is {
		return v
	}
	return absent{}
}

// orNull is v, or null.
func orNull(is bool, v any) any {
	if is {
		return v
	}
	return nil
}

// MarshalJSON lets an object stand inside a value that encoding/json writes.
func (o object) MarshalJSON() ([]byte, error) { return appendJSON(nil, o), nil }

// appendJSON adds v to b. What is written for every token of a stream takes the short ways.
func appendJSON(b []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(b, "null"...)
	case object:
		b = append(b, '{')
		first := true
		for _, m := range v {
			if _, none := m.value.(absent); none {
				continue
			}
			if !first {
				b = append(b, ',')
			}
			first = false
			b = append(appendString(b, m.name), ':')
			b = appendJSON(b, m.value)
		}
		return append(b, '}')
	case list:
		b = append(b, '[')
		for i, x := range v {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendJSON(b, x)
		}
		return append(b, ']')
	case string:
		return appendString(b, v)
	case int64:
		return strconv.AppendInt(b, v, 10)
	case int:
		return strconv.AppendInt(b, int64(v), 10)
	case bool:
		return strconv.AppendBool(b, v)
	}
	text, err := json.Marshal(v)
	if err != nil {
		panic("mockprovider: a body that cannot be encoded: " + err.Error())
	}
	return append(b, text...)
}

func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			text, _ := json.Marshal(s) // a string can always be encoded
			return append(b, text...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}
