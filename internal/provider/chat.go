package provider

import (
	"encoding/json"
	"fmt"
)

// ChatRequest is one plain chat call: one user message, no tools, no stream.
type ChatRequest struct {
	Model     string
	Text      string // the user's message
	MaxOutput int64  // output cap in tokens; 0 leaves it out (Anthropic demands one: 4,096 is sent)
}

// ChatBody is the JSON body of r. Mistral refuses unknown fields, so nothing optional is sent that r does not ask for.
func (d *Dialect) ChatBody(r ChatRequest) ([]byte, error) {
	b, err := json.Marshal(d.chatBody(r))
	if err != nil {
		return nil, fmt.Errorf("encode %s chat request: %w", d.name, err)
	}
	return b, nil
}

// message is the one message of a ChatRequest in the OpenAI family and at Anthropic.
type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}
