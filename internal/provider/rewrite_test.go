package provider

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
	"pgregory.net/rapid"
)

func TestRewrite(t *testing.T) {
	t.Parallel()
	all := Edit{Model: "new", MaxOutput: 9, IncludeUsage: true}
	mistralEdit := Edit{OlderCap: true, DropStreamOptions: true, Model: "new"}
	for _, c := range []struct {
		dialect, path, body string
		edit                Edit
		want                string // "": the very same bytes
	}{
		{OpenAI, chatPath, `{"model":"old"}`, Edit{}, ""},
		{OpenAI, chatPath, `{"model":"new","max_tokens":9,"stream_options":{"include_usage":true}}`, all, ""},
		{OpenAI, chatPath, `{ "model" : "old" , "x" : [ 1 ] }`, Edit{Model: "new"}, `{ "model" : "new" , "x" : [ 1 ] }`},
		{OpenAI, chatPath, `{}`, all, `{"model":"new","max_completion_tokens":9,"stream_options":{"include_usage":true}}`},
		{OpenAI, chatPath, "{\"x\":1\n}", all, "{\"x\":1\n,\"model\":\"new\",\"max_completion_tokens\":9,\"stream_options\":{\"include_usage\":true}}"},
		{OpenAI, chatPath, `{"max_tokens":100,"model":null}`, all, `{"max_tokens":9,"model":"new","stream_options":{"include_usage":true}}`},
		{OpenAI, chatPath, `{"max_tokens":100,"max_completion_tokens":50}`, Edit{MaxOutput: 9}, `{"max_tokens":9,"max_completion_tokens":9}`},
		{OpenAI, chatPath, `{"max_tokens":100,"max_completion_tokens":null}`, Edit{MaxOutput: 9}, `{"max_tokens":9,"max_completion_tokens":null}`},
		{OpenAI, chatPath, `{"max_completion_tokens":null}`, Edit{MaxOutput: 9}, `{"max_completion_tokens":9}`},
		{OpenAI, chatPath, `{"model":"a","model":"b","max_tokens":1,"max_tokens":2}`, Edit{Model: "new", MaxOutput: 9}, `{"model":"new","model":"new","max_tokens":9,"max_tokens":9}`},
		{OpenAI, chatPath, `{"mod\u0065l":"a","messages":[{"model":"b"}]}`, Edit{Model: "new"}, `{"mod\u0065l":"new","messages":[{"model":"b"}]}`},
		{OpenAI, chatPath, `{"stream_options":{"include_usage":false}}`, Edit{IncludeUsage: true}, `{"stream_options":{"include_usage":true}}`},
		{OpenAI, chatPath, `{"stream_options":{"include_obfuscation":false}}`, Edit{IncludeUsage: true}, `{"stream_options":{"include_obfuscation":false,"include_usage":true}}`},
		{OpenAI, chatPath, `{"stream_options":null,"a":1}`, Edit{IncludeUsage: true}, `{"stream_options":{"include_usage":true},"a":1}`},
		{OpenAI, chatPath, `{"stream_options":{ }}`, Edit{IncludeUsage: true}, `{"stream_options":{ "include_usage":true}}`},
		{OpenAI, "/v1/completions", `{"prompt":"a"}`, all, `{"prompt":"a","model":"new","max_tokens":9,"stream_options":{"include_usage":true}}`},
		{OpenAI, responsesPath, `{"input":"a"}`, all, `{"input":"a","model":"new","max_output_tokens":9}`},
		{OpenAI, "/v1/embeddings", `{"input":"a"}`, all, `{"input":"a","model":"new"}`},
		{OpenAI, "/v1/images/generations", `{"prompt":"a"}`, all, `{"prompt":"a","model":"new"}`},
		{Anthropic, "/v1/messages", `{"max_tokens":100}`, all, `{"max_tokens":9,"model":"new"}`},

		// The first, the last and all of the fields dropped; two in a row.
		{OpenAI, chatPath, `{"stream_options":{},"a":1}`, Edit{DropStreamOptions: true}, `{"a":1}`},
		{OpenAI, chatPath, `{"a":1, "stream_options":{} }`, Edit{DropStreamOptions: true, IncludeUsage: true}, `{"a":1 }`},
		{OpenAI, chatPath, `{"stream_options":{}}`, Edit{DropStreamOptions: true}, `{}`},
		{OpenAI, chatPath, `{"stream_options":{} , "stream_options":1}`, Edit{DropStreamOptions: true, Model: "new"}, `{ "model":"new"}`},
		{OpenAI, chatPath, `{"stream_options":1,"stream_options":2,"a":3}`, Edit{DropStreamOptions: true}, `{"a":3}`},
		{OpenAI, chatPath, `{"a":3,"stream_options":1,"stream_options":2}`, Edit{DropStreamOptions: true}, `{"a":3}`},
		{OpenAI, chatPath, `{"metadata":{"stream_options":1}}`, Edit{DropStreamOptions: true}, ""},

		// OpenAI's body for Mistral.
		{OpenAI, chatPath, `{"model":"old","max_completion_tokens":50,"stream_options":{"include_usage":true}}`, mistralEdit, `{"model":"new","max_tokens":50}`},
		{OpenAI, chatPath, `{"max_completion_tokens":50,"max_tokens":7,"model":"old"}`, mistralEdit, `{"max_tokens":50,"model":"new"}`},
		{OpenAI, chatPath, `{"model":"old","max_completion_tokens":null}`, mistralEdit, `{"model":"new"}`},
		{OpenAI, chatPath, `{"model":"old"}`, Edit{OlderCap: true, MaxOutput: 9}, `{"model":"old","max_tokens":9}`},
		{OpenAI, chatPath, `{"max_tokens":5}`, Edit{OlderCap: true}, ""},
		{OpenAI, chatPath, `{"max_tokens":5,"max_completion_tokens":6}`, Edit{OlderCap: true, MaxOutput: 4}, `{"max_tokens":4}`},

		{Gemini, plainGeneratePath, `{"contents":[]}`, all, `{"contents":[],"generationConfig":{"maxOutputTokens":9}}`},
		{Gemini, plainGeneratePath, `{"generationConfig":{"temperature":1}}`, all, `{"generationConfig":{"temperature":1,"maxOutputTokens":9}}`},
		{Gemini, plainGeneratePath, `{"generation_config":{"max_output_tokens":100}}`, all, `{"generation_config":{"max_output_tokens":9}}`},
		{Gemini, plainGeneratePath, `{"generationConfig":null}`, all, `{"generationConfig":{"maxOutputTokens":9}}`},
		{Gemini, plainGeneratePath, `{"generationConfig":{"max_tokens":3}}`, all, `{"generationConfig":{"max_tokens":3,"maxOutputTokens":9}}`},
		{Gemini, "/v1beta/models/g:batchEmbedContents", `{"requests":[{"model":"models/g"},{"model":"g"},{}]}`, all, `{"requests":[{"model":"models/new"},{"model":"new"},{}]}`},
		{Gemini, "/v1beta/models/g:countTokens", `{"generateContentRequest":{"model":"models/g"}}`, Edit{Model: "new"}, `{"generateContentRequest":{"model":"models/new"}}`},
		{Gemini, "/v1beta/interactions", `{"input":"a"}`, all, `{"input":"a","model":"new","generation_config":{"max_output_tokens":9}}`},
		{Gemini, "/v1beta/interactions", `{"agent":"deep"}`, Edit{Model: "new"}, ""},

		{Mistral, chatPath, `{"messages":[]}`, all, `{"messages":[],"model":"new","max_tokens":9}`},
		{Mistral, "/v1/agents/completions", `{"agent_id":"a"}`, all, `{"agent_id":"a","max_tokens":9}`},
		{Mistral, "/v1/conversations", `{"agent_id":"a"}`, all, `{"agent_id":"a","completion_args":{"max_tokens":9}}`},
		{Mistral, "/v1/conversations", `{"model":"a","completion_args":{"max_tokens":50}}`, all, `{"model":"new","completion_args":{"max_tokens":9}}`},
		{Mistral, "/v1/conversations/c1", `{"inputs":"a"}`, Edit{Model: "new"}, ""},
		{HTTP, "/search", `not json`, all, ""},
	} {
		e := endpoint(t, c.dialect, c.path)
		body := []byte(c.body)
		call, err := e.Parse(c.path, body)
		if err != nil {
			t.Fatalf("%s: %v", c.body, err)
		}
		got, err := e.Rewrite(body, &call, c.edit)
		want := c.want
		if want == "" {
			want = c.body
			if len(got) == 0 || &got[0] != &body[0] {
				t.Errorf("%s %s: not the same bytes", c.body, got)
			}
		}
		if err != nil || string(got) != want || string(body) != c.body {
			t.Errorf("%s %s %s with %+v:\n got %s, %v\nwant %s", c.dialect, c.path, c.body, c.edit, got, err, want)
		}
	}
	e := endpoint(t, OpenAI, chatPath)
	call, _ := e.Parse(chatPath, []byte(`{}`))
	if _, err := e.Rewrite([]byte(`{}`), &call, all); err == nil {
		t.Error("the call of one body was used for another")
	}
}

// member is one field of a generated body, with the white space around its parts.
type member struct{ key, value, before, colon, after string }

func render(members []member, tail string) string {
	var b strings.Builder
	b.WriteString("{")
	for i, m := range members {
		if i > 0 {
			b.WriteString(",")
		}
		b.WriteString(m.before + m.key + m.colon + m.value + m.after)
	}
	b.WriteString(tail + "}")
	return b.String()
}

// TestRewriteChangesNothingElse holds Rewrite against a slow twin that knows the parts a body was made of: the result
// is the same text with the named values replaced and the missing fields at its end.
func TestRewriteChangesNothingElse(t *testing.T) {
	t.Parallel()
	space := rapid.SampledFrom([]string{"", "", "", " ", "\n\t", "\r\n"})
	options := map[string]string{ // stream_options and what becomes of it
		`null`: `{"include_usage":true}`, `{}`: `{"include_usage":true}`, `[ ]`: `{"include_usage":true}`,
		`{"include_usage":false}`: `{"include_usage":true}`, `{"a":{"include_usage":false}}`: `{"a":{"include_usage":false},"include_usage":true}`,
		`{ "include_usage" : true }`: `{ "include_usage" : true }`, `{"include_usage":null,"b":[]}`: `{"include_usage":true,"b":[]}`,
	}
	keys := make([]string, 0, len(options))
	for k := range options {
		keys = append(keys, k)
	}
	others := rapid.SampledFrom([]member{
		{key: `"messages"`, value: `[{"role":"user","content":"\u00e9\n{\"model\":1}","model":"x"} , 5]`}, {key: `"temperature"`, value: `1.50`},
		{key: `"x\"y"`, value: `{"max_tokens":1,"stream_options":{}}`}, {key: `"tools"`, value: `[ ]`}, {key: `""`, value: `"\ud800"`},
		{key: `"model "`, value: `"no"`}, {key: `"metadata"`, value: `{"model":"no","max_completion_tokens":[]}`},
	})
	e := endpoint(t, OpenAI, chatPath)
	rapid.Check(t, func(t *rapid.T) {
		draw := rapid.Custom(func(t *rapid.T) member {
			var m member
			switch rapid.IntRange(0, 6).Draw(t, "kind") {
			case 0:
				m = member{key: rapid.SampledFrom([]string{`"model"`, `"mod\u0065l"`}).Draw(t, "key"), value: rapid.SampledFrom([]string{`"old"`, `null`, `"new"`, `""`}).Draw(t, "model")}
			case 1:
				m = member{key: rapid.SampledFrom([]string{`"max_tokens"`, `"max_completion_tokens"`}).Draw(t, "key"), value: rapid.SampledFrom([]string{`1`, `77`, `null`, `"5"`, `{}`}).Draw(t, "cap")}
			case 2:
				m = member{key: `"stream_options"`, value: rapid.SampledFrom(keys).Draw(t, "options")}
			default:
				m = others.Draw(t, "other")
			}
			m.before, m.colon, m.after = space.Draw(t, "before"), space.Draw(t, "c")+":"+space.Draw(t, "d"), space.Draw(t, "after")
			return m
		})
		members := rapid.SliceOfN(draw, 0, 8).Draw(t, "members")
		tail := space.Draw(t, "tail")
		edit := Edit{Model: rapid.SampledFrom([]string{"", "new", `a"b`}).Draw(t, "model"), MaxOutput: rapid.SampledFrom([]int64{0, 77}).Draw(t, "cap"), IncludeUsage: rapid.Bool().Draw(t, "usage")}

		body := []byte(render(members, tail))
		call, err := e.Parse(chatPath, body)
		if err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		got, err := e.Rewrite(body, &call, edit)
		if err != nil {
			t.Fatal(err)
		}

		twin := append([]member(nil), members...)
		var hasModel, hasOptions, filled bool
		nullKey := ""
		for _, m := range twin {
			isCap := strings.HasPrefix(m.key, `"max_`)
			filled = filled || isCap && m.value != "null"
			if isCap && nullKey == "" {
				nullKey = m.key
			}
		}
		for i := range twin {
			m := &twin[i]
			switch {
			case m.key == `"model"` || m.key == `"mod\u0065l"`:
				hasModel = true
				if edit.Model != "" {
					m.value = quoted(edit.Model)
				}
			case strings.HasPrefix(m.key, `"max_`):
				if edit.MaxOutput > 0 && (filled && m.value != "null" || !filled && m.key == nullKey) {
					m.value = fmt.Sprint(edit.MaxOutput)
				}
			case m.key == `"stream_options"`:
				hasOptions = true
				if edit.IncludeUsage {
					m.value = options[m.value]
				}
			}
		}
		want := strings.TrimSuffix(render(twin, tail), "}")
		comma := len(twin) > 0
		add := func(field string) {
			if comma {
				want += ","
			}
			want += field
			comma = true
		}
		if edit.Model != "" && !hasModel {
			add(`"model":` + quoted(edit.Model))
		}
		if edit.MaxOutput > 0 && nullKey == "" {
			add(`"max_completion_tokens":77`)
		}
		if edit.IncludeUsage && !hasOptions {
			add(`"stream_options":{"include_usage":true}`)
		}
		if string(got) != want+"}" {
			t.Fatalf("%s with %+v:\n got %s\nwant %s", body, edit, got, want+"}")
		}
	})
}

// FuzzRewrite: whatever the body, the changed one says what was asked, everything at its top that was not named is
// there as it was, and a second pass finds nothing to do.
func FuzzRewrite(f *testing.F) {
	f.Add([]byte(`{"model":"a","max_tokens":1,"stream_options":{"include_usage":false},"x":[1,{"model":2}]}`), "new", int64(9), uint8(0))
	f.Add([]byte(`{ "stream_options":1, "stream_options":2 , "max_completion_tokens":null}`), `q"\`, int64(0), uint8(7))
	f.Add([]byte(`{"generationConfig":{"maxOutputTokens":[1]},"generation_config":5,"requests":[{"model":"models/x"}]}`), "m", int64(1<<53-1), uint8(1))
	f.Add([]byte(`{"agent_id":"x","completion_args":{},"completion_args":null}`), "m", int64(3), uint8(2))
	f.Fuzz(func(t *testing.T, body []byte, model string, limit int64, flags uint8) {
		model = strings.ToValidUTF8(strings.TrimPrefix(model, "models/"), "")
		edit := Edit{Model: model, MaxOutput: min(max(limit, 0), maxCount), IncludeUsage: flags&1 != 0, DropStreamOptions: flags&2 != 0, OlderCap: flags&4 != 0}
		for _, name := range Names() {
			for _, r := range dialect(t, name).routes() {
				if r.e.form != formJSON {
					continue
				}
				path := strings.Replace(r.path, "*", "g", 1)
				c, err := r.e.Parse(path, body)
				if err != nil {
					continue
				}
				out, err := r.e.Rewrite(body, &c, edit)
				if err != nil {
					t.Fatal(err)
				}
				again, err := r.e.Parse(path, out)
				if err != nil {
					t.Fatalf("%s %s: %s became %s: %v", name, path, body, out, err)
				}
				if _, inPath, _, _ := geminiPath(path); edit.Model != "" && !r.e.fixed && !c.plan.agent && (name != Gemini || inPath == "") && again.Model != edit.Model {
					t.Fatalf("%s %s: model %q, want %q: %s", name, path, again.Model, edit.Model, out)
				}
				if edit.MaxOutput > 0 && len(r.e.caps) > 0 && again.MaxOutput != edit.MaxOutput {
					t.Fatalf("%s %s: cap %d, want %d: %s", name, path, again.MaxOutput, edit.MaxOutput, out)
				}
				if edit.IncludeUsage && !edit.DropStreamOptions && r.e.usageOpt && !again.WantsUsage {
					t.Fatalf("%s %s: usage is not asked for: %s", name, path, out)
				}
				same, err := r.e.Rewrite(out, &again, edit)
				if err != nil || !bytes.Equal(same, out) {
					t.Fatalf("%s %s: a second pass makes %s of %s, %v", name, path, same, out, err)
				}
				if a, b := untouched(r.e, body), untouched(r.e, out); a != b {
					t.Fatalf("%s %s: %s became %s", name, path, a, b)
				}
			}
		}
	})
}

// untouched is every field at the top that Rewrite may not change.
func untouched(e *Endpoint, body []byte) string {
	var b strings.Builder
	gjson.ParseBytes(body).ForEach(func(k, v gjson.Result) bool {
		switch e.fields[k.Str] {
		case roleModel, roleCap, roleUsageOption, roleConfig, roleGenerate:
		case roleContent:
		default:
			b.WriteString(k.Raw + ":" + v.Raw + "\n")
		}
		return true
	})
	return b.String()
}
