package mockprovider

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/gjson"

	"github.com/token-budget-arbiter/tba/internal/provider"
)

// shape is one endpoint, and where its answer has the text and the numbers.
type shape struct {
	name, dialect, path, body string
	stream                    string // what makes the body a streaming one; "" never streams
	text, piece               string // paths of the text in a whole body and in an event
	input, output             string // paths of the usage in a whole body
	prefix                    string // before the path of the usage in an event
	end                       string // how the stream ends
	less                      int64  // what the output count leaves out of reasoning
	uncached                  bool   // the input count leaves the cache out
}

const mockText = "abcdefgh abcdefgh abcdefgh abcdefgh abcdef" // 42 bytes are 11 tokens

var shapes = []shape{
	{name: "openai chat", dialect: provider.OpenAI, path: "/v1/chat/completions", body: `{"model":"m","messages":[{"role":"user","content":"TEXT"}]}`,
		stream: `"stream":true,"stream_options":{"include_usage":true},`, text: "choices.0.message.content", piece: "choices.0.delta.content",
		input: "usage.prompt_tokens", output: "usage.completion_tokens", end: "data: [DONE]\n\n"},
	{name: "openai responses", dialect: provider.OpenAI, path: "/v1/responses", body: `{"model":"m","input":"TEXT"}`,
		stream: `"stream":true,`, text: "output.0.content.0.text", piece: "delta", input: "usage.input_tokens", output: "usage.output_tokens",
		prefix: "response.", end: "}\n\n"},
	{name: "openai completions", dialect: provider.OpenAI, path: "/v1/completions", body: `{"model":"m","prompt":"TEXT","max_tokens":100}`,
		stream: `"stream":true,"stream_options":{"include_usage":true},`, text: "choices.0.text", piece: "choices.0.text",
		input: "usage.prompt_tokens", output: "usage.completion_tokens", end: "data: [DONE]\n\n"},
	{name: "anthropic messages", dialect: provider.Anthropic, path: "/v1/messages", body: `{"model":"m","max_tokens":100,"messages":[{"role":"user","content":"TEXT"}]}`,
		stream: `"stream":true,`, text: "content.0.text", piece: "delta.text", input: "usage.input_tokens", output: "usage.output_tokens",
		end: "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n", uncached: true},
	{name: "anthropic compatible", dialect: provider.Anthropic, path: "/v1/chat/completions", body: `{"model":"m","messages":[{"role":"user","content":"TEXT"}]}`,
		stream: `"stream":true,"stream_options":{"include_usage":true},`, text: "choices.0.message.content", piece: "choices.0.delta.content",
		input: "usage.prompt_tokens", output: "usage.completion_tokens", end: "data: [DONE]\n\n"},
	{name: "gemini", dialect: provider.Gemini, path: "/v1beta/models/m:generateContent", body: `{"contents":[{"role":"user","parts":[{"text":"TEXT"}]}]}`,
		stream: "alt=sse", text: "candidates.0.content.parts.0.text", piece: "candidates.0.content.parts.0.text",
		input: "usageMetadata.promptTokenCount", output: "usageMetadata.candidatesTokenCount", end: "}\r\n\r\n", less: 1},
	{name: "gemini compatible", dialect: provider.Gemini, path: "/v1beta/openai/chat/completions", body: `{"model":"m","messages":[{"role":"user","content":"TEXT"}]}`,
		stream: `"stream":true,"stream_options":{"include_usage":true},`, text: "choices.0.message.content", piece: "choices.0.delta.content",
		input: "usage.prompt_tokens", output: "usage.completion_tokens", end: "data: [DONE]\n\n", less: 1},
	{name: "gemini interactions", dialect: provider.Gemini, path: "/v1beta/interactions", body: `{"model":"m","input":"TEXT"}`,
		stream: `"stream":true,`, text: "steps.0.content.0.text", piece: "delta.text", input: "usage.total_input_tokens", output: "usage.total_output_tokens",
		prefix: "interaction.", end: "}\n\n", less: 1},
	{name: "mistral chat", dialect: provider.Mistral, path: "/v1/chat/completions", body: `{"model":"m","messages":[{"role":"user","content":"TEXT"}]}`,
		stream: `"stream":true,`, text: "choices.0.message.content", piece: "choices.0.delta.content",
		input: "usage.prompt_tokens", output: "usage.completion_tokens", end: "data: [DONE]\n\n"},
	{name: "mistral fim", dialect: provider.Mistral, path: "/v1/fim/completions", body: `{"model":"m","prompt":"TEXT"}`,
		stream: `"stream":true,`, text: "choices.0.message.content", piece: "choices.0.delta.content",
		input: "usage.prompt_tokens", output: "usage.completion_tokens", end: "data: [DONE]\n\n"},
	{name: "openai embeddings", dialect: provider.OpenAI, path: "/v1/embeddings", body: `{"model":"m","input":["TEXT"]}`, input: "usage.prompt_tokens"},
	{name: "mistral embeddings", dialect: provider.Mistral, path: "/v1/embeddings", body: `{"model":"m","input":["TEXT"]}`, input: "usage.prompt_tokens"},
	{name: "gemini embedding", dialect: provider.Gemini, path: "/v1beta/models/m:embedContent", body: `{"content":{"parts":[{"text":"TEXT"}]}}`,
		input: "usageMetadata.promptTokenCount"},
	{name: "gemini embeddings", dialect: provider.Gemini, path: "/v1beta/models/m:batchEmbedContents", body: `{"requests":[{"content":{"parts":[{"text":"TEXT"}]}}]}`,
		input: "usageMetadata.promptTokenCount"},
}

func (s shape) request(streams bool, h map[string]string) *http.Request {
	path, body := s.path, strings.Replace(s.body, "TEXT", mockText, 1)
	if streams && s.stream == "alt=sse" {
		path = strings.Replace(path, ":generateContent", ":streamGenerateContent", 1) + "?alt=sse"
	} else if streams {
		body = "{" + s.stream + body[1:]
	}
	r := httptest.NewRequest(http.MethodPost, "/"+s.dialect+path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer k")
	r.Header.Set("Anthropic-Version", "2023-06-01")
	for name, value := range h {
		r.Header.Set(name, value)
	}
	return r
}

// events are the data of a stream, one for each event.
func events(body string) (list []gjson.Result) {
	for _, event := range strings.Split(strings.ReplaceAll(body, "\r\n", "\n"), "\n\n") {
		for _, line := range strings.Split(event, "\n") {
			if data, ok := strings.CutPrefix(line, "data: "); ok && data != "[DONE]" {
				list = append(list, gjson.Parse(data))
			}
		}
	}
	return list
}

// Whole or as a stream, every endpoint says what is in the books, and the text has as many tokens.
func TestEveryEndpointTellsItsBill(t *testing.T) {
	t.Parallel()
	for _, x := range shapes {
		for _, streams := range []bool{false, true} {
			if streams && x.stream == "" {
				continue
			}
			name := x.name
			if streams {
				name += " as a stream"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					s := server(t, Options{Upstreams: []Upstream{{Name: x.dialect, Dialect: x.dialect}}})
					w := httptest.NewRecorder()
					s.Handler().ServeHTTP(w, x.request(streams, map[string]string{OutputHeader: "50", CachedHeader: "4", ReasoningHeader: "7"}))
					if w.Code != http.StatusOK {
						t.Fatalf("%d %s", w.Code, w.Body)
					}
					c := s.Calls(x.dialect)[0]
					want := Bill{Input: 11, CacheRead: 4, Output: 50, Reasoning: 7}
					if x.output == "" {
						want.Output, want.Reasoning = 0, 0
					}
					if c.Bill != want || c.Status != 200 || c.Stream != streams {
						t.Fatalf("in the books: %+v", c)
					}
					body, prefix, text := gjson.ParseBytes(w.Body.Bytes()), "", ""
					if streams {
						all := events(w.Body.String())
						prefix = x.prefix
						for _, e := range all {
							text += e.Get(x.piece).Str
							if e.Get(prefix + x.input).Exists() {
								body = e
							}
						}
						if !strings.HasSuffix(w.Body.String(), x.end) {
							t.Errorf("the stream ends with %q", w.Body.String()[max(0, w.Body.Len()-80):])
						}
						if took := c.End - c.Arrival; took != 800*time.Millisecond {
							t.Errorf("50 tokens of 100 a second after 300 ms took %v", took)
						}
					} else if x.text != "" {
						text = body.Get(x.text).Str
					}
					input, output := want.Input, want.Output-x.less*want.Reasoning
					if x.uncached {
						input -= want.CacheRead
					}
					if got := body.Get(prefix + x.input).Int(); got != input {
						t.Errorf("told %d of input, want %d: %s", got, input, body.Raw)
					}
					if x.output == "" {
						return
					}
					if got := body.Get(prefix + x.output).Int(); got != output {
						t.Errorf("told %d of output, want %d: %s", got, output, body.Raw)
					}
					if len(text) != 4*43 {
						t.Errorf("a text of %d bytes, want 43 tokens of 4", len(text))
					}
				})
			})
		}
	}
}

// A caller who goes in the middle of a stream is billed for what was made until then: 300 ms to the first token, then 10
// a second; the piece in the making counts as far as it is.
func TestACutStreamIsBilledForWhatWasMade(t *testing.T) {
	t.Parallel()
	for _, x := range shapes {
		if x.stream == "" {
			continue
		}
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := server(t, Options{Upstreams: []Upstream{{Name: x.dialect, Dialect: x.dialect, MaxConcurrency: 1, Speed: 10}}})
				ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
				defer cancel()
				w := httptest.NewRecorder()
				s.Handler().ServeHTTP(w, x.request(true, map[string]string{OutputHeader: "50", ReasoningHeader: "3"}).WithContext(ctx))
				c := s.Calls(x.dialect)[0]
				if (c.Bill != Bill{Input: 11, Output: 22, Reasoning: 3}) || c.Status != 499 || c.Broken {
					t.Errorf("%+v", c)
				}
				var text string
				for _, e := range events(w.Body.String()) {
					text += e.Get(x.piece).Str
				}
				if len(text) != 4*16 {
					t.Errorf("%d bytes of text came, want four pieces of 4 tokens", len(text))
				}
				if strings.HasSuffix(w.Body.String(), "[DONE]\n\n") || strings.Contains(w.Body.String(), "message_stop") {
					t.Error("a stream that was left has a proper end")
				}
				if r := s.Report()[0]; r.Cancelled != 1 || r.Running() != 0 {
					t.Errorf("%+v", r)
				}
			})
		})
	}
}

func TestUsageOnlyWhenItIsAskedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := server(t, Options{Upstreams: []Upstream{{Name: "openai", Dialect: provider.OpenAI}, {Name: "mistral", Dialect: provider.Mistral}}})
		for _, c := range []struct {
			dialect, option string
			nulls, usages   int
		}{
			{"openai", "", 0, 0},
			{"openai", `"stream_options":{"include_usage":true},`, 5, 1},
			{"mistral", "", 0, 1},
		} {
			x := shape{dialect: c.dialect, path: "/v1/chat/completions", body: `{"model":"m","messages":[]}`, stream: `"stream":true,` + c.option}
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, x.request(true, map[string]string{OutputHeader: "10"}))
			nulls, usages := 0, 0
			for _, e := range events(w.Body.String()) {
				u := e.Get("usage")
				switch {
				case u.IsObject():
					usages++
					if empty := len(e.Get("choices").Array()) == 0; empty != (c.dialect == "openai") {
						t.Errorf("%+v: the usage is in %s", c, e.Raw)
					}
				case u.Exists():
					nulls++
				}
			}
			if nulls != c.nulls || usages != c.usages {
				t.Errorf("%+v: %d nulls, %d usages in %s", c, nulls, usages, w.Body)
			}
		}
	})
}

// Gemini without alt=sse streams one JSON array.
func TestGeminiStreamsAnArray(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := server(t, Options{Upstreams: []Upstream{{Name: "gemini", Dialect: provider.Gemini}}})
		x := shape{dialect: "gemini", path: "/v1beta/models/m:streamGenerateContent", body: `{"contents":[{"parts":[{"text":"TEXT"}]}]}`}
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, x.request(false, map[string]string{OutputHeader: "10"}))
		if !gjson.ValidBytes(w.Body.Bytes()) {
			t.Fatal(w.Body)
		}
		all := gjson.ParseBytes(w.Body.Bytes()).Array()
		if len(all) != 4 || all[3].Get("usageMetadata.totalTokenCount").Int() != 21 || all[0].Get("usageMetadata.candidatesTokenCount").Int() != 4 {
			t.Error(w.Body)
		}
	})
}

func TestToolsAreCalledOnce(t *testing.T) {
	t.Parallel()
	const schema = `{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"},"unit":{"enum":["C"]}}}`
	chat := `{"model":"m","messages":[LAST],"tools":[{"type":"function","function":{"name":"weather","parameters":` + schema + `}}]}`
	for _, c := range []struct {
		name                                    string
		x                                       shape
		call, answered, function, arguments, is string
	}{
		{"openai", shape{dialect: "openai", path: "/v1/chat/completions", body: chat, stream: `"stream":true,`}, `{"role":"user","content":"x"}`,
			`{"role":"tool","content":"x"}`, "choices.0.message.tool_calls.0.function.name", "choices.0.delta.tool_calls.0.function.arguments", "tool_calls"},
		{"mistral", shape{dialect: "mistral", path: "/v1/chat/completions", body: chat, stream: `"stream":true,`}, `{"role":"user","content":"x"}`,
			`{"role":"tool","content":"x"}`, "choices.0.message.tool_calls.0.function.name", "choices.0.delta.tool_calls.0.function.arguments", "tool_calls"},
		{"responses", shape{dialect: "openai", path: "/v1/responses", stream: `"stream":true,`,
			body: `{"model":"m","input":[LAST],"tools":[{"type":"function","name":"weather","parameters":` + schema + `}]}`},
			`{"role":"user","content":"x"}`, `{"type":"function_call_output","output":"x"}`, "output.0.name", "delta", "function_call"},
		{"anthropic", shape{dialect: "anthropic", path: "/v1/messages", stream: `"stream":true,`,
			body: `{"model":"m","max_tokens":90,"messages":[LAST],"tools":[{"name":"weather","input_schema":` + schema + `}]}`},
			`{"role":"user","content":"x"}`, `{"role":"user","content":[{"type":"tool_result","content":"x"}]}`, "content.0.name", "delta.partial_json", "tool_use"},
		{"gemini", shape{dialect: "gemini", path: "/v1beta/models/m:generateContent", stream: "alt=sse",
			body: `{"contents":[LAST],"tools":[{"functionDeclarations":[{"name":"weather","parameters":` + schema + `}]}]}`},
			`{"role":"user","parts":[{"text":"x"}]}`, `{"role":"user","parts":[{"functionResponse":{"response":{}}}]}`,
			"candidates.0.content.parts.0.functionCall.name", "candidates.0.content.parts.0.functionCall.args", "functionCall"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := server(t, Options{Upstreams: []Upstream{{Name: c.x.dialect, Dialect: c.x.dialect}}})
				ask := func(last string, streams bool) *httptest.ResponseRecorder {
					x := c.x
					x.body = strings.Replace(x.body, "LAST", last, 1)
					w := httptest.NewRecorder()
					s.Handler().ServeHTTP(w, x.request(streams, map[string]string{OutputHeader: "20"}))
					return w
				}
				if w := ask(c.call, false); gjson.GetBytes(w.Body.Bytes(), c.function).Str != "weather" {
					t.Errorf("no call in %s", w.Body)
				}
				arguments := ""
				w := ask(c.call, true)
				for _, e := range events(w.Body.String()) {
					arguments += e.Get(c.arguments).String()
				}
				if a := gjson.Parse(arguments); !gjson.Valid(arguments) || a.Get("city").Str != "tok tok" || a.Get("days").Int() != 7 || a.Get("unit").Str != "C" {
					t.Errorf("arguments %q in %s", arguments, w.Body)
				}
				if w := ask(c.answered, false); strings.Contains(w.Body.String(), c.is) {
					t.Errorf("called again: %s", w.Body)
				}
				for _, call := range s.Calls(c.x.dialect) {
					if call.Output != 20 || call.Status != 200 {
						t.Errorf("%+v", call)
					}
				}
			})
		})
	}
}

// Who goes on from an earlier response pays for its turns again.
func TestAConversationIsPaidAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := server(t, Options{Upstreams: []Upstream{{Name: "openai", Dialect: provider.OpenAI}}})
		x := shape{dialect: "openai", path: "/v1/responses", body: `{"model":"m","input":"TEXT"}`}
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, x.request(false, map[string]string{OutputHeader: "20"}))
		x.body = `{"model":"m","previous_response_id":"` + gjson.GetBytes(w.Body.Bytes(), "id").Str + `","input":"TEXT"}`
		s.Handler().ServeHTTP(httptest.NewRecorder(), x.request(false, nil))
		if c := s.Calls("openai")[1]; c.Input != 11+20+11 {
			t.Errorf("%+v", c)
		}
	})
}

func TestFreeCallsCostNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var list []Upstream
		for _, n := range provider.Names() {
			list = append(list, Upstream{Name: n, Dialect: n, RPM: 1, Models: []string{"big", "small"}})
		}
		s := server(t, Options{Upstreams: list})
		for _, c := range []struct{ dialect, path, body, at, want string }{
			{"openai", "/v1/models", "", "data.1.id", "small"},
			{"openai", "/v1/models/big", "", "id", "big"},
			{"anthropic", "/v1/models", "", "last_id", "small"},
			{"anthropic", "/v1/models/big", "", "id", "big"},
			{"gemini", "/v1beta/models", "", "models.0.name", "models/big"},
			{"gemini", "/v1beta/models/big", "", "name", "models/big"},
			{"mistral", "/v1/models", "", "data.0.id", "big"},
			{"openai", "/v1/responses/input_tokens", `{"model":"m","input":"TEXT"}`, "input_tokens", "11"},
			{"openai", "/v1/moderations", `{"model":"m","input":"TEXT"}`, "results.0.flagged", "false"},
			{"anthropic", "/v1/messages/count_tokens", `{"model":"m","messages":[{"role":"user","content":"TEXT"}]}`, "input_tokens", "11"},
			{"gemini", "/v1beta/models/m:countTokens", `{"contents":[{"parts":[{"text":"TEXT"}]}]}`, "totalTokens", "11"},
		} {
			r := shape{dialect: c.dialect, path: c.path, body: c.body}.request(false, nil)
			if c.body == "" {
				r.Method = http.MethodGet
			}
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, r)
			if got := gjson.GetBytes(w.Body.Bytes(), c.at).String(); w.Code != 200 || got != c.want {
				t.Errorf("%s%s: %d %s", c.dialect, c.path, w.Code, w.Body)
			}
		}
		for _, r := range s.Report() {
			if r.Calls != 0 || r.Free == 0 || r.Malformed != 0 || r.Used() != 0 {
				t.Errorf("%+v", r)
			}
		}
	})
}
