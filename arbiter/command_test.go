package arbiter

import (
	"reflect"
	"testing"
)

// TestSumCoversTheRequest: every field but those that the comment names makes another request.
func TestSumCoversTheRequest(t *testing.T) {
	t.Parallel()
	base := Request{Agent: "a", Output: 100}
	left := map[string]bool{"Lease": true, "Fingerprint": true, "Principal": true, "MaxWait": true, "Blocked": true}
	seen := map[uint64]string{base.Sum(): "nothing"}
	for i := range reflect.TypeFor[Request]().NumField() {
		r := base
		name, f := reflect.TypeFor[Request]().Field(i).Name, reflect.ValueOf(&r).Elem().Field(i)
		switch f.Kind() {
		case reflect.String:
			f.SetString("other")
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Int64:
			f.SetInt(77)
		case reflect.Uint8, reflect.Uint64:
			f.SetUint(3)
		case reflect.Array:
			f.Index(0).SetUint(9)
		case reflect.Slice:
			if f.Set(reflect.MakeSlice(f.Type(), 1, 1)); name == "Except" {
				f.Index(0).SetString("openai")
			}
		default:
			t.Fatalf("%s: a %s", name, f.Kind())
		}
		switch as, same := seen[r.Sum()]; {
		case left[name] && as != "nothing":
			t.Errorf("%s makes another request", name)
		case !left[name] && same:
			t.Errorf("%s changes as much as %s", name, as)
		}
		seen[r.Sum()] = name
		seen[base.Sum()] = "nothing"
	}
}
