package provider

// passthroughs are the endpoints of paths that an operator lets through although their calls cannot be metered.
var passthroughs = map[string]*Endpoint{
	OpenAI:    {name: "passthrough", operation: "passthrough", dialect: &openai, form: formAny, unbilled: true, silent: true},
	Anthropic: {name: "passthrough", operation: "passthrough", dialect: &anthropic, form: formAny, unbilled: true, silent: true},
	Gemini:    {name: "passthrough", operation: "passthrough", dialect: &gemini, form: formAny, unbilled: true, silent: true},
	Mistral:   {name: "passthrough", operation: "passthrough", dialect: &mistral, form: formAny, unbilled: true, silent: true},
	HTTP:      &toolEndpoint,
}

// Passthrough is the endpoint of any path that an operator lets through although its calls cannot be metered: a call costs a request
// and no tokens, and neither its body nor its answer is read.
func (d *Dialect) Passthrough() *Endpoint { return passthroughs[d.name] }
