package provider

import (
	"net/http"
	"net/url"
	"strings"
)

// Endpoint is one thing that a dialect can be asked for: how its request is read and changed, and how its answer is
// metered. The values come from Dialect.Endpoint, are never changed and may be used by any number of goroutines.
type Endpoint struct {
	name      string
	dialect   *Dialect
	answer    answer
	form      form
	fields    map[string]role   // what the top-level fields of the body mean; absent ones cost nothing
	caps      []capField        // where the output cap may stand; the first is where a new one goes
	implied   func(*walk) int64 // the output cap that a request without one has by what it asks for; nil: none
	unbilled  bool
	silent    bool // bills input only: nothing is held for output
	fixed     bool // the model belongs to an agent or a conversation at the provider and cannot be changed
	usageOpt  bool // takes stream_options.include_usage
	streams   bool // answers as a stream whatever the body says
	continues bool // the path names earlier turns
}

// answer says in what shape an endpoint's answer and its stream carry usage and text.
type answer uint8

const (
	answerNone          answer = iota // nothing to meter
	answerChat                        // OpenAI chat and completions, Mistral: choices, usage, data: [DONE]
	answerResponses                   // response.* events, usage in response.usage
	answerMessages                    // Anthropic: message_start .. message_stop
	answerGenerate                    // Gemini: usageMetadata in every chunk
	answerInteractions                // Gemini: interaction.* events
	answerConversations               // Mistral: conversation.response.* events
	answerInput                       // one JSON body whose usage has input only: embeddings, ocr
	answerImages                      // input_tokens and output_tokens, also as image_generation.* events
	answerAudio                       // transcriptions, speech: usage in tokens or seconds, or none at all
)

// form is the encoding of a request body.
type form uint8

const (
	formJSON      form = iota
	formMultipart      // multipart/form-data: read by ParseForm
	formAny            // not read at all
)

// Name is the endpoint's name: chat, completions, responses, embeddings, messages, count_tokens, generate, embed,
// interactions, fim, agents, conversations, ocr, moderations, images, image_edits, audio_speech, audio_transcriptions,
// audio_translations, models, stored (an answer that is already paid for), passthrough, tool.
func (e *Endpoint) Name() string { return e.name }

// Unbilled says that a call costs a request and no tokens: it is leased with 0 tokens and committed as an explicit zero.
func (e *Endpoint) Unbilled() bool { return e.unbilled }

// Multipart says that the body is a form and is read by ParseForm rather than Parse.
func (e *Endpoint) Multipart() bool { return e.form == formMultipart }

// route is one line of a dialect's table. In a path "*" stands for one segment. Gemini's verb after the colon is part
// of its last segment: "*:generateContent".
type route struct {
	method, path string
	e            *Endpoint
}

// Endpoint finds what method and path ask for. The path starts at the dialect's root, decoded and without the query:
// "/v1/chat/completions", "/v1beta/models/m:generateContent". model is the one in the path (Gemini), else "". ok is
// false when the call cannot be metered.
func (d *Dialect) Endpoint(method, path string) (e *Endpoint, model string, ok bool) {
	if d.name == HTTP {
		return toolEndpoint, "", true
	}
	for _, r := range d.routes() {
		if r.method != method {
			continue
		}
		if wild, ok := match(r.path, path); ok {
			if d.name == Gemini && strings.Contains(r.path, "*:") {
				return r.e, wild, true
			}
			return r.e, "", true
		}
	}
	return nil, "", false
}

// unread is an endpoint whose calls cost a request and no tokens, and whose bodies are not read.
func unread(d *Dialect, name string) *Endpoint {
	return &Endpoint{name: name, dialect: d, form: formAny, unbilled: true, silent: true}
}

// stored is an answer that was paid for when it was made: reading, cancelling and deleting it costs a request.
func stored(d *Dialect) *Endpoint { return unread(d, "stored") }

// models is the provider's list of models.
func models(d *Dialect) *Endpoint { return unread(d, "models") }

var passthroughs = map[string]*Endpoint{
	OpenAI:    unread(&openai, "passthrough"),
	Anthropic: unread(&anthropic, "passthrough"),
	Gemini:    unread(&gemini, "passthrough"),
	Mistral:   unread(&mistral, "passthrough"),
	HTTP:      toolEndpoint,
}

// Passthrough is the endpoint of any path that an operator lets through although its calls cannot be metered: a call costs a request
// and no tokens, and neither its body nor its answer is read.
func (d *Dialect) Passthrough() *Endpoint { return passthroughs[d.name] }

// routes is a function because the endpoints point at their dialects.
func (d *Dialect) routes() []route {
	switch d.name {
	case OpenAI:
		return openAIRoutes
	case Anthropic:
		return anthropicRoutes
	case Gemini:
		return geminiRoutes
	case Mistral:
		return mistralRoutes
	}
	return nil
}

// match compares a path with a pattern that has at most one "*", and returns what the star stands for.
func match(pattern, path string) (wild string, ok bool) {
	before, after, starred := strings.Cut(pattern, "*")
	if !starred {
		return "", pattern == path
	}
	if len(path) <= len(before)+len(after) || !strings.HasPrefix(path, before) || !strings.HasSuffix(path, after) {
		return "", false
	}
	wild = path[len(before) : len(path)-len(after)]
	return wild, plainSegment(wild)
}

// plainSegment accepts what model names and answer ids are made of. Everything that could move the path's meaning
// (slash, dot segment, escape, query, control bytes) is left out.
func plainSegment(s string) bool {
	if s == "." || s == ".." {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_', c == '.', c == '@', c == ':':
		default:
			return false
		}
	}
	return true
}

// Path is path with the model replaced. Only Gemini has it there, every other path comes back as it is, as does one
// without a model of its own. An empty model changes nothing.
func (e *Endpoint) Path(path, model string) string {
	if e.dialect.name != Gemini || model == "" {
		return path
	}
	before, _, verb, ok := geminiPath(path)
	if !ok {
		return path
	}
	return before + url.PathEscape(strings.TrimPrefix(model, "models/")) + verb
}

const (
	get  = http.MethodGet
	post = http.MethodPost
	del  = http.MethodDelete
)
