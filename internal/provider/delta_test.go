package provider

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
	"pgregory.net/rapid"
)

// agrees holds plainDelta against the parser: what it takes is a plain chunk with that much text and nothing else in it.
func agrees(t interface{ Fatalf(string, ...any) }, data []byte) (taken bool) {
	quick, slow := Meter{model: "m"}, Meter{model: "m"}
	if !quick.plainDelta(data) {
		return false
	}
	if kind := slow.chat(gjson.ParseBytes(data)); kind != eventPlain || slow.text != quick.text || slow.finish != "" || slow.tally != quick.tally {
		t.Fatalf("%s: taken for %d bytes of text, the parser finds kind %v, %d bytes, finish %q, %+v", data, quick.text, kind, slow.text, slow.finish, slow.tally)
	}
	return true
}

func TestPlainDelta(t *testing.T) {
	t.Parallel()
	var taken int
	files, _ := filepath.Glob("testdata/streams/*.sse")
	for _, file := range files {
		stream, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(stream) {
			if data, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("data: ")); ok && gjson.ValidBytes(data) && agrees(t, data) {
				taken++
			}
		}
	}
	if taken == 0 {
		t.Error("no recorded chunk is plain")
	}
	rapid.Check(t, func(t *rapid.T) {
		some := func(parts ...string) string { return rapid.SampledFrom(parts).Draw(t, "part") }
		var text strings.Builder
		for range rapid.IntRange(0, 4).Draw(t, "pieces") {
			text.WriteString(some("word ", "{", "}", `\"`, `\\`, "é", "error", `\u00e9`, `\"usage\":{`, ":"))
		}
		data := fmt.Sprintf(`{"id":%q,%s"object":"chat.completion.chunk","model":"m","choices":[{"index":0,%s"delta":{"content":"%s"%s}%s,"finish_reason":%s}%s]%s}`,
			some("c1", "c{1"), some("", `"usage":{"prompt_tokens":3},`, `"error":"no",`), some("", `"message":{"content":"more"},`), text.String(),
			some("", "", "", `,"refusal":"no"`, `,"tool_calls":[{"function":{"arguments":"x"}}]`), some("", `,"logprobs":null`, `,"logprobs":{"content":[]}`),
			some("null", "null", "null", `"stop"`), some("", "", "", `,{"index":1,"delta":{"content":"two"}}`),
			some("", `,"usage":null`, `,"usage":{"prompt_tokens":3,"completion_tokens":1}`, `,"x_groq":{"usage":{"prompt_tokens":3}}`, `,"error":"late"`, `,"obfuscation":"abc"`))
		agrees(t, []byte(data))
	})
}
