package provider

import (
	"bytes"
	"reflect"
	"testing"
)

// FuzzWholeChat asserts that the short way through an ordinary answer finds what the long way finds, or leaves the answer to it.
func FuzzWholeChat(f *testing.F) {
	f.Add([]byte(plainAnswers[0].body))
	for _, s := range []string{
		``, `{}`, ` { } `, `[]`, `{"choices":[]}`, `{"choices":{"a":{"text":"b"}}}`, `{"choices":[1,[{"text":"a"}],{"text":"b"}],"choices":[]}`,
		`{"model":"a","model":"","service_tier":"flex","usage":null,"usage":{"prompt_tokens":1}}`,
		`{"model":"a\u0062","usage":{"prompt_tokens":"7","completion_tokens":2.5}}`, `{"m\u006fdel":"a"}`,
		`{"x_groq":{"usage":{"total_tokens":3}},"choices":[{"message":{"content":"a\nb\u00e9","reasoning":"abc","reasoning_content":"ab"},"finish_reason":"length"}]}`,
		`{"choices":[{"delta":{"refusal":"no","content":null},"text":"t","finish_reason":null},{"message":"a","finish_reason":"stop"}]}`,
		`{"choices":[{"message":{"content":[{"type":"text","text":"abc"}]}}]}`, `{"choices":[{"message":{"tool_calls":[{"function":{"arguments":"{}"}}]}}]}`,
		`{"choices":[{"message":{"content":"a"}]}`, `{"usage":{"prompt_tokens":1}`, `{"usage":[1],"model":1}`, `{"usage":"a"} x`,
	} {
		f.Add([]byte(s))
	}
	e, _, _ := openai.Endpoint("POST", "/v1/chat/completions")
	f.Fuzz(func(t *testing.T, body []byte) {
		body = bytes.TrimSpace(body)
		short := e.NewMeter(MeterOptions{})
		ok := short.wholeChat(body)
		long := e.NewMeter(MeterOptions{})
		if !ok {
			if !reflect.DeepEqual(short, long) {
				t.Fatalf("left alone, yet %+v", short)
			}
			return
		}
		doc, valid := document(body, true)
		if !valid {
			t.Fatal("read, but no JSON object")
		}
		long.chat(doc)
		if short.text != long.text { // gjson takes what follows half a surrogate pair for its other half
			if long.text > short.text {
				t.Fatalf("%d bytes of text, want %d", short.text, long.text)
			}
			long.text = short.text
		}
		if !reflect.DeepEqual(short, long) {
			t.Fatalf("%+v\nwant %+v", short, long)
		}
	})
}
