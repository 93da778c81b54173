package provider

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/tidwall/gjson"
)

// ChatRequest is one plain chat call: one user message, no tools, no stream.
type ChatRequest struct {
	Model     string
	Text      string // the user's message
	MaxOutput int64  // output cap in tokens; 0 leaves it out (Anthropic demands one: 4,096 is sent)
}

// Chat is what a chat request says about its own cost.
type Chat struct {
	Model     string // "" when the body and the path name none
	Stream    bool
	MaxOutput int64 // output cap in tokens; 0 when the request has none
	Choices   int64 // answers asked for (`n`), at least 1: each may use the whole cap
	TextBytes int64 // bytes of text in system prompt and messages; media and tool schemas are not in it
}

// ErrNotJSON says that a body is not a JSON object.
var ErrNotJSON = errors.New("body is not a JSON object")

// ChatBody is the JSON body of r. Mistral refuses unknown fields, so nothing optional is sent that r does not ask for.
func (d *Dialect) ChatBody(r ChatRequest) ([]byte, error) {
	b, err := json.Marshal(d.chatBody(r))
	if err != nil {
		return nil, fmt.Errorf("encode %s chat request: %w", d.name, err)
	}
	return b, nil
}

// ParseChat reads the cost of a chat request from its path and body. It returns ErrNotJSON (wrapped) for anything but
// a JSON object; missing or odd fields are left at zero, because it is the provider who judges them.
func (d *Dialect) ParseChat(path string, body []byte) (Chat, error) {
	doc, ok := object(body)
	if !ok {
		return Chat{}, fmt.Errorf("read %s chat request: %w", d.name, ErrNotJSON)
	}
	c := d.parse(path, doc)
	c.Choices = max(c.Choices, 1)
	return c, nil
}

// EstimateText is the number of tokens of n bytes of text: bytes/4, rounded up. Measured against the o200k vocabulary
// it is off by +5 % for English prose, -1 % for Go and -20 % for JSON; runes/4 would be off by -64 % for Chinese.
func EstimateText(n int64) int64 { return (max(n, 0) + 3) / 4 }

// ErrNotForm says that a body is not the multipart form that its Content-Type announces, or is one that servers could
// read in different ways.
var ErrNotForm = errors.New("body is not a multipart form")

// object parses body when it is one JSON object, perhaps after blank keep-alive lines, or an array whose first element
// is one (Vertex wraps its errors so).
func object(body []byte) (gjson.Result, bool) {
	if !validJSON(body) {
		return gjson.Result{}, false
	}
	doc := gjson.ParseBytes(body)
	if doc.IsArray() {
		doc = doc.Get("0")
	}
	return doc, doc.IsObject()
}

// textBytes adds up the text of a message field that is a string or a list of parts with a `text` each.
func textBytes(content gjson.Result) int64 {
	if content.Type == gjson.String {
		return int64(len(content.Str))
	}
	var n int64
	content.ForEach(func(_, part gjson.Result) bool {
		if t := part.Get("text"); t.Type == gjson.String {
			n += int64(len(t.Str))
		}
		return true
	})
	return n
}

// messageBytes adds up the text of the messages of an OpenAI, Mistral or Anthropic request.
func messageBytes(messages gjson.Result) int64 {
	var n int64
	messages.ForEach(func(_, m gjson.Result) bool {
		n += textBytes(m.Get("content"))
		return true
	})
	return n
}

// cap0 reads a cap or a count that a caller wrote; absent, negative and nonsense are 0.
func cap0(r gjson.Result) int64 {
	n, _, _ := count(r)
	return n
}

// message is the one message of a ChatRequest in the OpenAI family and at Anthropic.
type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}
