package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// told is a call in one line: what is zero is left out.
func told(c *Call) string {
	var parts []string
	add := func(name string, v any, zero bool) {
		if !zero {
			parts = append(parts, fmt.Sprintf("%s=%v", name, v))
		}
	}
	add("model", c.Model, c.Model == "")
	add("stream", c.Stream, !c.Stream)
	add("cap", c.MaxOutput, c.MaxOutput == 0)
	add("choices", c.Choices, c.Choices == 1)
	add("text", c.TextBytes, c.TextBytes == 0)
	add("json", c.JSONBytes, c.JSONBytes == 0)
	add("media", c.MediaTokens, c.MediaTokens == 0)
	add("messages", c.Messages, c.Messages == 0)
	add("tools", c.Tools, c.Tools == 0)
	add("usage", c.WantsUsage, !c.WantsUsage)
	add("continues", c.Continues, !c.Continues)
	add("tier", c.Tier, c.Tier == "")
	add("user", c.User, c.User == "")
	add("refuse", c.Refuse, c.Refuse == "")
	return strings.Join(parts, " ")
}

// plainGeneratePath is a call without a stream, generatePath one with.
const plainGeneratePath = "/v1beta/models/g:generateContent"

func TestParse(t *testing.T) {
	t.Parallel()
	b64 := strings.Repeat("QUJD", 100) // 300 bytes
	for _, c := range []struct{ dialect, path, body, want string }{
		// Fields.
		{OpenAI, chatPath, `{"model":"m","stream":true,"max_completion_tokens":100,"n":3,"service_tier":"flex","user":"u"}`,
			"model=m stream=true cap=100 choices=3 tier=flex user=u"},
		{OpenAI, chatPath, `{"max_tokens":5}`, "cap=5"},
		{OpenAI, chatPath, `{"max_tokens":500,"max_completion_tokens":5}`, "cap=500"},
		{OpenAI, chatPath, `{"max_completion_tokens":"7","n":"2","stream":"true"}`, "stream=true cap=7 choices=2"},
		{OpenAI, chatPath, `{"max_completion_tokens":12.2,"n":2e0,"stream":1}`, "stream=true cap=13 choices=2"},
		{OpenAI, chatPath, `{"max_completion_tokens":-5,"n":-1,"stream":null,"model":5}`, ""},
		{OpenAI, chatPath, `{"max_completion_tokens":1e99,"n":0}`, "cap=9007199254740991"},
		{OpenAI, chatPath, `{"max_completion_tokens":[1],"n":{},"model":["m"]}`, ""},
		{OpenAI, chatPath, `{"model":"cheap","model":"dear","max_tokens":9,"max_tokens":3}`, "model=dear cap=3"},
		{OpenAI, chatPath, `{"mod\u0065l":"m","str\u0065am":true}`, "model=m stream=true"},
		{OpenAI, chatPath, `{"model":"a\u002fb\n"}`, "model=a/b\n"},
		{OpenAI, chatPath, `{"stream_options":{"include_usage":true}}`, "usage=true"},
		{OpenAI, chatPath, `{"stream_options":{"include_usage":false}}`, ""},
		{OpenAI, chatPath, `{"stream_options":null,"metadata":null,"tools":null,"messages":null}`, ""},
		{OpenAI, chatPath, `{"metadata":{"user_id":"u","model":"x"}}`, "user=u"},
		{OpenAI, chatPath, `{"Model":"m"}`, `refuse=the field "Model" can be taken for "model": spell it so`},
		{OpenAI, chatPath, "{\"\u017ftream\":true}", "refuse=the field \"\u017ftream\" can be taken for \"stream\": spell it so"},
		{OpenAI, chatPath, `{"temperature":1,"logit_bias":{"1":2},"stop":["a","b"]}`, ""},

		// Messages: text is counted decoded, in bytes; tool arguments are JSON.
		{OpenAI, chatPath, `{"messages":[{"role":"system","content":"abc"},{"role":"user","content":[{"type":"text","text":"é\n\u4e2d\ud83d\ude00"}]}]}`,
			"text=13 messages=2"},
		{OpenAI, chatPath, `{"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]},{"role":"tool","tool_call_id":"c","content":"done"}]}`,
			"text=5 json=7 messages=2"},
		{OpenAI, chatPath, `{"tools":[ {"type":"function", "function":{"name":"f f"}} ],"functions":[{}]}`, "json=51 tools=2"},
		{OpenAI, chatPath, `{"response_format":{"type":"json_schema","json_schema":{}}}`, "json=39"},
		{OpenAI, "/v1/completions", `{"prompt":["ab","c"],"n":2,"best_of":3}`, "choices=6 text=3"},
		{OpenAI, "/v1/completions", `{"prompt":[1,2,3],"max_tokens":5}`, "cap=5 text=12"},
		{OpenAI, "/v1/completions", `{"prompt":[[1,2],[3]],"suffix":"xy"}`, "choices=2 text=14"},
		{OpenAI, "/v1/embeddings", `{"model":"e","input":["abc","de"],"dimensions":5}`, "model=e text=5"},
		{OpenAI, "/v1/embeddings", `{"input":[[1,2],[3,4]]}`, "text=16"},
		{OpenAI, "/v1/moderations", `{"input":"abc"}`, "text=3"},
		{OpenAI, responsesPath, `{"model":"m","input":"hello","instructions":"be brief","max_output_tokens":9,"previous_response_id":"r"}`,
			"model=m cap=9 text=13 messages=2 continues=true"},
		{OpenAI, responsesPath, `{"input":[{"role":"user","content":[{"type":"input_text","text":"hi"}]},{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"ok"}]}`,
			"text=5 json=2 messages=3"},
		{OpenAI, responsesPath, `{"input":[{"type":"reasoning","id":"r","summary":[],"encrypted_content":"` + b64 + `"}]}`, "text=300 messages=1"},
		{OpenAI, responsesPath, `{"background":true,"previous_response_id":null,"conversation":""}`,
			"refuse=a background call is billed after its answer: send it without background"},
		{OpenAI, responsesPath, `{"conversation":{"id":"c"},"text":{"format":{"type":"text"}}}`, "json=26 continues=true"},
		{OpenAI, "/v1/images/generations", `{"model":"i","prompt":"a cat","n":2,"size":"1024x1024","quality":"low"}`, "model=i cap=272 choices=2 text=5"},
		{OpenAI, "/v1/images/generations", `{"prompt":"a cat"}`, "cap=6240 text=5"},
		{OpenAI, "/v1/audio/speech", `{"input":"read this","voice":"x"}`, "cap=18 text=9"},

		{Anthropic, "/v1/messages", `{"model":"c","max_tokens":10,"system":[{"type":"text","text":"abc","cache_control":{"type":"ephemeral"}}],"messages":[{"role":"user","content":"de"}],"speed":"fast","metadata":{"user_id":"u"}}`,
			"model=c cap=10 text=5 messages=2 tier=fast user=u"},
		{Anthropic, "/v1/messages", `{"messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"abcd","signature":"` + b64 + `"},{"type":"tool_use","id":"t","name":"f","input":{"a": [1, 2]}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"xyz"}]}]}],"tools":[{"name":"f","input_schema":{}}]}`,
			"text=8 json=43 messages=2 tools=1"},
		{Anthropic, "/v1/messages", `{"messages":[{"role":"user","content":[{"type":"document","source":{"type":"text","media_type":"text/plain","data":"` + b64 + `"}}]}]}`,
			"text=400 messages=1"},
		{Anthropic, "/v1/messages", `{"messages":[{"role":"user","content":[{"type":"search_result","source":"https://x","title":"t","content":[{"type":"text","text":"abc"}]}]}]}`,
			"text=13 messages=1"},

		{Gemini, plainGeneratePath, `{"contents":[{"role":"user","parts":[{"text":"abc"}]}],"systemInstruction":{"parts":[{"text":"de"}]},"generationConfig":{"maxOutputTokens":7,"candidateCount":2}}`,
			"model=g cap=7 choices=2 text=5 messages=2"},
		{Gemini, plainGeneratePath, `{"contents":{"parts":{"text":"abc"}},"generation_config":{"max_output_tokens":7},"cachedContent":"cachedContents/1"}`,
			"model=g cap=7 text=3 messages=1 continues=true"},
		{Gemini, "/v1beta/models/g:streamGenerateContent", `{"contents":[{"parts":[{"functionCall":{"name":"f","args":{"a":1}}},{"functionResponse":{"name":"f","response":{"r": 2}}}]}]}`,
			"model=g stream=true text=2 json=14 messages=1"},
		{Gemini, plainGeneratePath, `{"tools":[{"functionDeclarations":[{"name":"a"},{"name":"b"}]},{"googleSearch":{}}]}`, "model=g json=74 tools=3"},
		{Gemini, "/v1beta/models/g:countTokens", `{"generateContentRequest":{"model":"models/g","contents":[{"parts":[{"text":"abc"}]}]}}`, "model=g text=3 messages=1"},
		{Gemini, "/v1beta/models/g:batchEmbedContents", `{"requests":[{"model":"models/g","content":{"parts":[{"text":"abc"}]}},{"content":{"parts":[{"text":"de"}]}}]}`, "model=g text=5"},
		{Gemini, "/v1beta/interactions", `{"model":"models/g4","input":"hello","system_instruction":"x","generation_config":{"max_output_tokens":3},"previous_interaction_id":"i","stream":true}`,
			"model=g4 stream=true cap=3 text=6 messages=2 continues=true"},
		{Gemini, "/v1beta/interactions", `{"agent":"deep","input":[{"type":"text","text":"abc"}]}`, "model=deep text=3 messages=1"},

		{Mistral, chatPath, `{"model":"m","max_tokens":4,"n":2,"messages":[{"role":"user","content":"abc"}],"stream_options":{"include_usage":true}}`,
			"model=m cap=4 choices=2 text=3 messages=1"},
		{Mistral, "/v1/fim/completions", `{"model":"m","prompt":"abc","suffix":"de"}`, "model=m text=5"},
		{Mistral, "/v1/agents/completions", `{"agent_id":"ag","messages":[]}`, "model=ag"},
		{Mistral, "/v1/conversations", `{"model":"m","inputs":"abc","instructions":"d","completion_args":{"max_tokens":6}}`, "model=m cap=6 text=4 messages=2"},
		{Mistral, "/v1/conversations/c1", `{"inputs":[{"role":"user","content":"abc"}]}`, "text=3 messages=1 continues=true"},
		{Mistral, "/v1/embeddings", `{"model":"m","input":["abc"]}`, "model=m text=3"},
	} {
		e := endpoint(t, c.dialect, c.path)
		got, err := e.Parse(c.path, []byte(c.body))
		if err != nil {
			t.Errorf("%s %s %s: %v", c.dialect, c.path, c.body, err)
			continue
		}
		if s := told(&got); s != c.want {
			t.Errorf("%s %s %.200s:\n got %s\nwant %s", c.dialect, c.path, c.body, s, c.want)
		}
	}
}

// TestParseOfNoJSON: everything that is not one JSON object is refused, at once and without a panic.
func TestParseOfNoJSON(t *testing.T) {
	t.Parallel()
	deep := func(open, shut string, n int) string { return strings.Repeat(open, n) + strings.Repeat(shut, n) }
	for _, body := range []string{
		"", " ", "null", "[]", "[{}]", `"a"`, "1", "{", "}", "{}}", "{} {}", "{}x", "{,}", `{"a"}`, `{"a":}`, `{"a":1,}`, `{"a":1 "b":2}`,
		`{a:1}`, `{'a':1}`, `{"a":01}`, `{"a":1.}`, `{"a":.5}`, `{"a":+1}`, `{"a":1e}`, `{"a":-}`, `{"a":NaN}`, `{"a":tru}`, `{"a":truex}`,
		`{"a":"\x"}`, `{"a":"\u12"}`, `{"a":"\u12g4"}`, "{\"a\":\"\n\"}", "{\"a\":\"\x00\"}", `{"a":"`, `{"a":"\`, `{"a":[1,]}`, `{"a":[1 2]}`,
		"\xef\xbb\xbf{}", "\x00", "{\"a\":1}\x00", `{"messages":[{"content":"a"}`, `{"messages":[{"content":"a"}]`, `{"tools":[{"functionDeclarations":[}]}`,
		`{"stream_options":{"include_usage":}}`, `{"messages":` + deep("[", "]", 100_000) + "}", `{"x":` + deep(`{"a":`, "}", 100_000) + "}",
		`{"messages":[{"content":` + deep("[", "]", 100_000) + "}]}", deep(`{"messages":`, "}", 5_000), strings.Repeat("[", 1<<20), `{"a":` + strings.Repeat("[", 1<<20),
		`{"messages":` + strings.Repeat(`[{"content":`, 1<<18), `{"generateContentRequest":` + strings.Repeat(`{"generateContentRequest":`, 1<<18),
	} {
		for _, name := range Names() {
			for _, r := range dialect(t, name).routes() {
				if r.e.form != formJSON {
					continue
				}
				if len(body) > 50_000 && r.e.answer == answerNone {
					continue // the same fields as a billed endpoint's
				}
				_, err := r.e.Parse(r.path, []byte(body))
				if !errors.Is(err, ErrNotJSON) {
					t.Fatalf("%s %s %.60q: %v", name, r.path, body, err)
				}
			}
		}
		if ValidJSON([]byte(body)) != json.Valid([]byte(body)) && len(body) < 50_000 {
			t.Errorf("%.60q: valid %v", body, ValidJSON([]byte(body)))
		}
	}
	if !ValidJSON([]byte(deep("[", "]", maxDepth))) || ValidJSON([]byte(deep("[", "]", maxDepth+1))) {
		t.Error("the bound on depth is not where it is said to be")
	}
	_, err := endpoint(t, OpenAI, chatPath).Parse(chatPath, []byte(`{"a":1,}`))
	if want := "read openai chat request: body is not a JSON object: it has no key where one is due (byte 7)"; err == nil || err.Error() != want {
		t.Errorf("%v; want %s", err, want)
	}
}

// TestParseOfLargeBodies: 32 MiB of text, of brackets and of bytes that are no UTF-8.
func TestParseOfLargeBodies(t *testing.T) {
	t.Parallel()
	const size = 32 << 20
	e := endpoint(t, OpenAI, chatPath)
	body := func(unit string) []byte {
		const before, after = `{"messages":[{"role":"user","content":"`, `"}]}`
		return slices.Concat([]byte(before), bytes.Repeat([]byte(unit), size/len(unit)), []byte(after))
	}
	for _, unit := range []string{"a", "\xff\xfe", `\n`, `\ud800`} {
		if _, err := e.Parse(chatPath, body(unit)); err != nil {
			t.Errorf("%q: %v", unit, err)
		}
	}
	many := append([]byte(`{"messages":[`), bytes.Repeat([]byte("{},"), size/3)...)
	many = append(many, "{}]}"...)
	if c, err := e.Parse(chatPath, many); err != nil || c.Messages != size/3+1 {
		t.Errorf("%d messages, %v", c.Messages, err)
	}
}

func TestInputAndOutputOfACall(t *testing.T) {
	t.Parallel()
	c := Call{TextBytes: 9, JSONBytes: 7, MediaTokens: 100, Messages: 2, Tools: 3}
	if n := c.Input(); n != 3+3+100+8+36 {
		t.Errorf("input %d", n)
	}
	for _, o := range []struct {
		limit, choices, model, fallback, want int64
	}{
		{100, 1, 0, 0, 100}, {100, 1, 50, 7, 50}, {100, 3, 0, 0, 300}, {0, 1, 50, 7, 7}, {0, 2, 5, 7, 10}, {0, 1, 50, 0, 50}, {0, 1, 0, 0, 0},
		{maxCount, 128, 0, 0, maxCount}, {maxCount, maxCount, 0, 0, maxCount}, {100, 0, 0, 0, 100},
	} {
		c := Call{MaxOutput: o.limit, Choices: o.choices}
		if got := c.Output(o.model, o.fallback); got != o.want {
			t.Errorf("%+v: %d", o, got)
		}
	}
	silent := Call{Choices: 1, silent: true}
	if silent.Output(100, 100) != 0 {
		t.Error("output is held for a call that bills none")
	}
}

// FuzzParse: whatever the body, each endpoint either refuses it or counts within bounds, and does so exactly for what is
// one JSON object to encoding/json too.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgo="}}]}],"stream_options":{"include_usage":false}}`))
	f.Add([]byte(`{"contents":[{"parts":[{"inlineData":{"mimeType":"audio/wav","data":"UklGRiQAAABXQVZF"}}]}],"generationConfig":{"maxOutputTokens":1e3}}`))
	f.Add([]byte(`{"requests":[{"model":"models/x","content":{}}],"tools":[{"functionDeclarations":[{}]}],"prompt":[[1],[2,3]]}`))
	f.Add([]byte("{\"a\":\"\\ud800\\udc00\xff\",\"n\":-0.0e-7}"))
	f.Fuzz(func(t *testing.T, body []byte) {
		good := json.Valid(body) && bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("{"))
		for _, name := range Names() {
			for _, r := range dialect(t, name).routes() {
				if r.e.form != formJSON {
					continue
				}
				path := strings.Replace(r.path, "*", "m", 1)
				c, err := r.e.Parse(path, body)
				if (err == nil) != good && bytes.Count(body, []byte("["))+bytes.Count(body, []byte("{")) <= maxDepth {
					t.Fatalf("%s %s: %v, but JSON: %v", name, path, err, good)
				}
				if err != nil {
					continue
				}
				for _, n := range []int64{c.MaxOutput, c.TextBytes, c.JSONBytes, c.MediaTokens, c.Messages, c.Tools, c.Input(), c.Output(1e6, 1e3), c.Choices - 1} {
					if n < 0 || n > maxCount {
						t.Fatalf("%s %s: %+v out of range", name, path, c)
					}
				}
				// What is counted once was there once.
				if n := c.TextBytes + c.JSONBytes; n > 4*int64(len(body)) {
					t.Fatalf("%s %s: %d bytes of text and JSON in %d", name, path, n, len(body))
				}
				if utf8.Valid(body) && !utf8.ValidString(c.Model) {
					t.Fatalf("%s %s: model %q", name, path, c.Model)
				}
			}
		}
	})
}
