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

// EstimateText is the number of tokens of n bytes of text: bytes/4, rounded up. Measured against the o200k vocabulary
// it is off by +5 % for English prose, -1 % for Go and -20 % for JSON; runes/4 would be off by -64 % for Chinese.
func EstimateText(n int64) int64 { return (max(n, 0) + 3) / 4 }

// ErrNotForm says that a body is not the multipart form that its Content-Type announces, or is one that servers could
// read in different ways.
var ErrNotForm = errors.New("body is not a multipart form")

// object parses body when it is one JSON object, perhaps after blank keep-alive lines, or an array whose first element
// is one (Vertex wraps its errors so).
func object(body []byte) (gjson.Result, bool) {
	if !ValidJSON(body) {
		return gjson.Result{}, false
	}
	doc := gjson.ParseBytes(body)
	if doc.IsArray() {
		doc = doc.Get("0")
	}
	return doc, doc.IsObject()
}

// message is the one message of a ChatRequest in the OpenAI family and at Anthropic.
type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}
