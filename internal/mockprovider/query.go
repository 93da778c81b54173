package mockprovider

import (
	"hash/fnv"
	"net/http"
	"strconv"

	"github.com/tidwall/gjson"
)

// The request headers that say what a call uses. Each is bounded by what there is: cached tokens by the prompt, output by
// the cap, reasoning by the output.
const (
	// OutputHeader says how many tokens the model puts out (a trace knows). Without it the number follows from the body:
	// the same body always gets the same answer.
	OutputHeader = "X-Mock-Output-Tokens"
	// CachedHeader says how many tokens of the prompt were read from the cache, CacheWriteHeader how many were written
	// to it (OpenAI and Anthropic say so).
	CachedHeader     = "X-Mock-Cached-Tokens"
	CacheWriteHeader = "X-Mock-Cache-Write-Tokens"
	// ReasoningHeader says how many tokens of the output are reasoning that is not shown.
	ReasoningHeader = "X-Mock-Reasoning-Tokens"
)

// query is what an upstream reads from one request. It counts by itself: what the gateway believes about the same
// request is not asked.
type query struct {
	model              string
	stream, wantsUsage bool
	cap, choices       int64 // cap: 0 without one
	prompt             int64
	tool               *toolCall // the answer is this call
	previous           string    // the response that this one goes on from
	outputless         bool      // embeddings and the like
	inputs, width      int64     // embeddings: how many, of how many numbers
	base64             bool
	array              bool // Gemini without alt=sse: the stream is one JSON array
	terms              string

	output, cached, written, reasoning int64 // as planned, before any bound
}

// toolCall is the call of a function that answers a request with tools.
type toolCall struct{ name, arguments string }

// plan reads from the headers what the call will use.
func (q *query) plan(h http.Header, body []byte) {
	number := func(name string) (int64, bool) {
		n, err := strconv.ParseInt(h.Get(name), 10, 64)
		return n, err == nil && n >= 0
	}
	var told bool
	if q.output, told = number(OutputHeader); !told {
		f := fnv.New32a()
		_, _ = f.Write(body)
		q.output = int64(f.Sum32()%256) + 1
	}
	q.cached, _ = number(CachedHeader)
	q.written, _ = number(CacheWriteHeader)
	q.reasoning, _ = number(ReasoningHeader)
}

// bill is what the whole answer will cost under a cap.
func (q *query) bill(limit int64) Bill {
	b := Bill{Input: q.prompt, CacheRead: min(q.cached, q.prompt)}
	b.CacheWrite = min(q.written, b.Input-b.CacheRead)
	if !q.outputless {
		b.Output = min(q.output, limit)
		b.Reasoning = min(q.reasoning, b.Output)
	}
	return b
}

// tokensOf is the number of tokens of n bytes of text: a quarter, rounded up.
func tokensOf(n int64) int64 { return (n + 3) / 4 }

// textMembers are those whose text a model reads, whatever the dialect; ids, roles and names are not among them.
var textMembers = map[string]bool{
	"text": true, "content": true, "input": true, "prompt": true, "suffix": true, "system": true, "instructions": true,
	"arguments": true, "output": true, "thinking": true,
}

// jsonMembers are those that a model reads as JSON.
var jsonMembers = map[string]bool{"tools": true, "functions": true, "args": true, "response": true}

// mediaMembers are those that hold a picture, a sound or a file.
var mediaMembers = map[string]bool{
	"image_url": true, "input_audio": true, "inlineData": true, "inline_data": true, "fileData": true, "file_data": true,
	"source": true, "document_url": true,
}

const (
	mediaTokens = 258
	maxDepth    = 64
)

// promptTokens counts the prompt of a request: text and JSON by their bytes, media by the piece, token numbers by the
// number.
func promptTokens(doc gjson.Result) int64 {
	var bytes, tokens int64
	var walk func(v gjson.Result, counts bool, depth int)
	walk = func(v gjson.Result, counts bool, depth int) {
		switch {
		case depth > maxDepth:
		case v.Type == gjson.String && counts:
			bytes += int64(len(v.Str))
		case v.Type == gjson.Number && counts:
			tokens++
		case v.IsArray():
			v.ForEach(func(_, x gjson.Result) bool {
				walk(x, counts, depth+1)
				return true
			})
		case v.IsObject():
			v.ForEach(func(key, x gjson.Result) bool {
				switch {
				case jsonMembers[key.Str], key.Str == "input" && x.IsObject():
					bytes += int64(len(x.Raw))
				case mediaMembers[key.Str]:
					tokens += mediaTokens
				default:
					walk(x, textMembers[key.Str], depth+1)
				}
				return true
			})
		}
	}
	walk(doc, false, 0)
	return tokens + tokensOf(bytes)
}

// firstOf is the first of the paths that exists.
func firstOf(doc gjson.Result, paths ...string) gjson.Result {
	for _, p := range paths {
		if r := doc.Get(p); r.Exists() {
			return r
		}
	}
	return gjson.Result{}
}

// count is a number that a caller wrote; absent, negative and nonsense are 0.
func count(r gjson.Result) int64 {
	if r.Type != gjson.Number {
		return 0
	}
	return max(r.Int(), 0)
}

// last is the last element of an array.
func last(v gjson.Result) gjson.Result {
	list := v.Array()
	if len(list) == 0 {
		return gjson.Result{}
	}
	return list[len(list)-1]
}

// callOf makes the call of a function with arguments that its schema takes: every property gets a value of its kind.
func callOf(name string, schema gjson.Result) *toolCall {
	arguments := object{}
	schema.Get("properties").ForEach(func(key, p gjson.Result) bool {
		arguments = append(arguments, member{key.Str, example(p)})
		return true
	})
	return &toolCall{name, string(appendJSON(nil, arguments))}
}

func example(schema gjson.Result) any {
	if first := schema.Get("enum.0"); first.Exists() {
		return first.Value()
	}
	kind := schema.Get("type")
	if kind.IsArray() {
		kind = kind.Get("0")
	}
	switch kind.Str {
	case "integer", "number", "INTEGER", "NUMBER":
		return 7
	case "boolean", "BOOLEAN":
		return true
	case "array", "ARRAY":
		return list{}
	case "object", "OBJECT":
		return object{}
	}
	return "tok tok"
}
