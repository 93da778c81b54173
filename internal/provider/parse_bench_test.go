package provider

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

// longChat is a chat body of about 50,000 tokens: 40 messages of prose with line breaks and some words that are not
// ASCII, and eight tools.
func longChat() []byte {
	prose := strings.Repeat("The lease is granted before the call, and the bill comes after it.\n\t\"Größe\" counts in bytes. ", 51)
	type m map[string]any
	messages := []m{}
	for range 40 {
		messages = append(messages, m{"role": "user", "content": prose})
	}
	tools := []m{}
	for range 8 {
		tools = append(tools, m{"type": "function", "function": m{"name": "search", "parameters": m{"type": "object",
			"properties": m{"q": m{"type": "string", "description": strings.Repeat("what to look for ", 10)}}}}})
	}
	b, err := json.Marshal(m{"model": "gpt-6.2-sol", "messages": messages, "tools": tools, "stream": true, "max_completion_tokens": 4096})
	if err != nil {
		panic(err)
	}
	return b
}

// BenchmarkParse reads a prompt of 50,000 tokens. Target: 2 ms. The baseline checks the same bytes with gjson.
func BenchmarkParse(b *testing.B) {
	body := longChat()
	e, _, _ := openai.Endpoint("POST", "/v1/chat/completions")
	b.Run("call", func(b *testing.B) {
		b.SetBytes(int64(len(body)))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := e.Parse("", body); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("rewrite", func(b *testing.B) {
		c, _ := e.Parse("", body)
		b.SetBytes(int64(len(body)))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := e.Rewrite(body, &c, Edit{Model: "m", MaxOutput: 1, IncludeUsage: true}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("baseline-valid", func(b *testing.B) {
		b.SetBytes(int64(len(body)))
		b.ReportAllocs()
		for b.Loop() {
			if !gjson.ValidBytes(body) {
				b.Fatal("not valid")
			}
		}
	})
	b.Run("baseline-foreach", func(b *testing.B) {
		b.SetBytes(int64(len(body)))
		b.ReportAllocs()
		for b.Loop() {
			var n int
			gjson.GetBytes(body, "messages").ForEach(func(_, m gjson.Result) bool {
				n += len(m.Get("content").Str)
				return true
			})
		}
	})
}
