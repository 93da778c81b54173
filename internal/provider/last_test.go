package provider

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// TestLast asserts that Last is Pass and Finish in one, wherever an answer is cut.
func TestLast(t *testing.T) {
	t.Parallel()
	chat := plainAnswers[0].body
	for name, c := range map[string]struct {
		dialect, path, kind, body string
		stream                    bool
	}{
		"chat":          {OpenAI, plainAnswers[0].path, "application/json", chat, false},
		"message":       {Anthropic, plainAnswers[1].path, "application/json; charset=utf-8", plainAnswers[1].body, false},
		"mark":          {OpenAI, plainAnswers[0].path, "application/json", "\xef\xbb\xbf" + chat, false},
		"blank":         {OpenAI, plainAnswers[0].path, "", " \n", false},
		"empty":         {OpenAI, plainAnswers[0].path, "application/json", "", false},
		"cut":           {OpenAI, plainAnswers[0].path, "application/json", chat[:len(chat)-90], false},
		"fault":         {OpenAI, plainAnswers[0].path, "application/json", `{"error":{"message":"overloaded","code":503}}`, false},
		"escaped fault": {OpenAI, plainAnswers[0].path, "application/json", `{"\u0065rror":{"message":"overloaded","code":503}}`, false},
		"long":          {OpenAI, plainAnswers[0].path, "application/json", strings.Replace(chat, "word", strings.Repeat("word", maxHeld/4), 1), false},
		"raw":           {OpenAI, "/v1/audio/speech", "audio/mpeg", "\x00\x01\x02", false},
		"stream": {OpenAI, plainAnswers[0].path, "text/event-stream", `data: {"choices":[{"delta":{"content":"a"}}]}` + "\n\n" +
			`data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}` + "\n\ndata: [DONE]\n\n", true},
	} {
		e, _, ok := dialect(t, c.dialect).Endpoint("POST", c.path)
		if !ok {
			t.Fatal(c.path)
		}
		read := func(at int, last bool) (out []byte, r Metered) {
			m := e.NewMeter(MeterOptions{ContentType: c.kind, Stream: c.stream, StripUsage: c.stream})
			out = append(out, m.Pass([]byte(c.body[:at]))...)
			if last {
				out = append(out, m.Last([]byte(c.body[at:]))...)
			} else {
				out = append(out, m.Pass([]byte(c.body[at:]))...)
				out = append(out, m.Finish()...)
			}
			if more := m.Finish(); len(more) > 0 {
				t.Errorf("%s: %q after the end", name, more)
			}
			return out, m.Result()
		}
		for at := 0; at <= len(c.body); at += 1 + len(c.body)/200 {
			out, r := read(at, true)
			want, result := read(at, false)
			if !bytes.Equal(out, want) || !reflect.DeepEqual(r, result) {
				t.Fatalf("%s cut at %d: %d bytes, %s\nwant %d bytes, %s", name, at, len(out), fmt.Sprintf("%+v", r), len(want), fmt.Sprintf("%+v", result))
			}
		}
		if _, r := read(0, true); strings.Contains(name, "fault") != (r.Fault != nil) {
			t.Errorf("%s: fault %v", name, r.Fault)
		}
	}
}
