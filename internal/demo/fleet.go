package demo

import (
	"fmt"

	"github.com/token-budget-arbiter/tba/internal/provider"
)

// The five classes of the example budget.
const (
	planner       = "planner"
	codeGenerator = "code_generator"
	retrieval     = "retrieval"
	summarizer    = "summarizer"
	validator     = "validator"
)

// upstreamModel is the one model that the demo's policy lists for each provider. An agent that names it is bound to that
// provider; the others are placed by score.
var upstreamModel = map[string]string{
	provider.OpenAI:    "gpt-5.4-mini",
	provider.Anthropic: "claude-haiku-4-5",
	provider.Gemini:    "gemini-3.5-flash",
	provider.Mistral:   "mistral-small-2603",
}

// The ladders of the demo's policy.
const (
	chatLadder  = "chat"
	codeLadder  = "code"
	factsLadder = "facts"
)

// ladders have the cheaper tiers first, or what counts as that: in chat all providers are equal.
var ladders = []struct {
	name  string
	tiers [][]string
}{
	{chatLadder, [][]string{{provider.OpenAI, provider.Anthropic, provider.Gemini, provider.Mistral}}},
	{codeLadder, [][]string{{provider.Anthropic}, {provider.OpenAI}, {provider.Gemini, provider.Mistral}}},
	{factsLadder, [][]string{{provider.OpenAI}, {provider.Gemini, provider.Mistral}, {provider.Anthropic}}},
}

// ladderOf is the ladder that an agent names at the gateway in the place of a model, "" for one that is bound to a provider.
// At the gateway neither writers of code nor look-ups are bound, so that their calls can move when a provider fails.
func ladderOf(m member) string {
	switch {
	case m.class == codeGenerator:
		return codeLadder
	case m.class == retrieval:
		return factsLadder
	case m.model == "":
		return chatLadder
	}
	return ""
}

// member is one agent of the fleet.
type member struct {
	id, class string
	model     string // "" is placed by score
	prefers   string // provider; "" has no wish
}

// classPlan says how many agents a class has and how many of them are bound to one provider, so that each ceiling has
// callers who cannot go round it.
type classPlan struct {
	class   string
	agents  int
	bound   int    // the first of them
	to      string // provider
	prefers string // of the rest
}

var plans = []classPlan{
	{planner, 12, 6, provider.Mistral, provider.Anthropic},
	{codeGenerator, 36, 18, provider.Anthropic, provider.OpenAI},
	{retrieval, 36, 36, provider.OpenAI, ""},
	{summarizer, 18, 9, provider.Mistral, provider.Gemini},
	{validator, 18, 18, provider.Gemini, ""},
}

// fleet is the same 120 agents each time.
func fleet() []member {
	var list []member
	for _, p := range plans {
		for i := range p.agents {
			m := member{id: fmt.Sprintf("%s-%02d", p.class, i+1), class: p.class, prefers: p.prefers}
			if i < p.bound {
				m.model, m.prefers = upstreamModel[p.to], ""
			}
			list = append(list, m)
		}
	}
	return list
}

// smallPrompt parts the trace into short calls (half of it) and long ones.
const smallPrompt = 1500

// classOf gives a call to a class by its size: look-ups and checks are short, code and summaries long. dice is in [0, 1).
func classOf(r row, dice float64) string {
	if r.prompt < smallPrompt {
		switch {
		case dice < 0.65:
			return retrieval
		case dice < 0.90:
			return validator
		}
		return planner
	}
	switch {
	case dice < 0.70:
		return codeGenerator
	case dice < 0.90:
		return summarizer
	}
	return planner
}
