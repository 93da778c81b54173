package config

import (
	"strings"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
)

// Gateway is the reverse proxy's part of a file. Every field is set, from the file or by its default. Immutable.
type Gateway struct {
	// BudgetStatus is the HTTP status of a refusal by an exhausted budget: 402, 403 or 429; 0 leaves it to the dialect.
	BudgetStatus int
	// Passthrough are the paths that are forwarded although they cannot be metered: see [Gateway.Passes].
	Passthrough []string
	// MaxWait bounds how long a call waits for its lease. A request may ask for less.
	MaxWait time.Duration
	// MaxBody bounds a request body, bytes.
	MaxBody int64
	// MaxAttempts bounds the executed tries of one call. A pool may have its own: see Pool.MaxAttempts.
	MaxAttempts int
	// Drain reads an answer on to its usage when the client has left: at most MaxDrains at once, each for at most DrainFor.
	Drain     bool
	MaxDrains int
	DrainFor  time.Duration
	// HeaderTimeout bounds the wait for the head of a provider's answer, IdleTimeout the silence within the answer.
	HeaderTimeout, IdleTimeout time.Duration
}

// Passes reports whether the file forwards a path of the gateway that cannot be metered: one that passthrough lists, or one below it.
func (g *Gateway) Passes(path string) bool {
	for _, p := range g.Passthrough {
		if rest, ok := strings.CutPrefix(path, p); ok && (rest == "" || rest[0] == '/' || strings.HasSuffix(p, "/")) {
			return true
		}
	}
	return false
}

// Estimation says how the gateway guesses what a call will cost.
type Estimation struct {
	// Buffer is added to input estimates: a part of them.
	Buffer arbiter.PPM
	// Output is "cap": the output cap of the request is held; or "learned": what calls like it have needed, once LearnedMin were seen.
	Output string
	// DefaultOutput is the cap of a call that names none, on a model whose own cap is unknown.
	DefaultOutput arbiter.Tokens
	LearnedMin    int64
}

// Identity says where the caller's identity is taken from beside its key.
type Identity struct {
	// Compat are the headers and fields of other products that are read, in lower case: see [CompatWords].
	Compat []string
}

// Words of identity.compat.
const (
	CompatPortkey  = "x-portkey-metadata"
	CompatHelicone = "helicone-user-id"
	CompatLiteLLM  = "x-litellm-tags"
	// CompatUser is the field user of OpenAI's dialect and metadata.user_id of Anthropic's.
	CompatUser = "user"
)

// CompatWords are the words that identity.compat may list.
func CompatWords() []string {
	return []string{CompatPortkey, CompatHelicone, CompatLiteLLM, CompatUser}
}

// Ladder is an ordered choice of rungs, by a name that requests use in the place of a model.
type Ladder struct {
	Name string
	// Tiers has the cheapest one first; the rungs of a tier count as equal.
	Tiers [][]Rung
	// Zero says how an empty answer of a tool looks; nil is that no answer counts as empty.
	Zero *ZeroHits
}

// Rung is one step of a ladder.
type Rung struct {
	Provider string
	// Model is the name in the policy; empty at a provider whose file names no model.
	Model string
	// Paid says that an empty answer is a result here: it has been paid for, and the call does not go further down.
	Paid bool
}

// ZeroHits is how an empty answer looks: one of the statuses, or nothing at the path of the JSON body.
type ZeroHits struct {
	Status []int
	// JSONPath has dots between its keys; empty looks at no body.
	JSONPath string
	// Empty says that an empty list (object, string) at JSONPath is an empty answer; otherwise only a missing or null one is.
	Empty bool
}

// decided is what the arbiter needs of a ladder.
func (l *Ladder) decided() arbiter.Ladder {
	out := arbiter.Ladder{Name: l.Name}
	for _, tier := range l.Tiers {
		var rungs []arbiter.Rung
		for _, r := range tier {
			rungs = append(rungs, arbiter.Rung{Provider: r.Provider, Model: r.Model})
		}
		out.Tiers = append(out.Tiers, rungs)
	}
	return out
}

// Rungs are the rungs of all tiers in order.
func (l *Ladder) Rungs() []Rung {
	var out []Rung
	for _, t := range l.Tiers {
		out = append(out, t...)
	}
	return out
}

// Rung finds a rung.
func (l *Ladder) Rung(provider, model string) (Rung, bool) {
	for _, t := range l.Tiers {
		for _, r := range t {
			if r.Provider == provider && r.Model == model {
				return r, true
			}
		}
	}
	return Rung{}, false
}

// Ladder finds a ladder of the pool by name.
func (p *Pool) Ladder(name string) (*Ladder, bool) {
	for i := range p.Ladders {
		if p.Ladders[i].Name == name {
			return &p.Ladders[i], true
		}
	}
	return nil, false
}
