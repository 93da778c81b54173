package provider

// Call is what a request says about its own cost. Counts are at most 2^53-1.
type Call struct {
	Model     string // "" when neither body nor path names one
	Stream    bool
	MaxOutput int64 // the output cap in tokens; 0: none
	Choices   int64 // answers asked for, at least 1: each may use the whole cap

	TextBytes   int64 // text of prompts and messages, decoded
	JSONBytes   int64 // tool schemas, tool arguments, answer schemas
	MediaTokens int64 // images, sound, films, documents, by the dialect's rules
	Messages    int64
	Tools       int64

	WantsUsage bool   // stream_options.include_usage is true
	Continues  bool   // earlier turns or stored prompts count as input although they are not in the body
	Tier       string // the service tier asked for; "" when none is. The bill goes by the answer's
	User       string // user, or metadata.user_id
	Refuse     string // why this cannot be metered; "" when it can

	silent bool  // bills no output
	plan   *plan // where the body has what Rewrite may change
}

// EstimateText is the number of tokens of n bytes of text: bytes/4, rounded up. Measured against the o200k vocabulary
// it is off by +5 % for English prose, -1 % for Go and -20 % for JSON; runes/4 would be off by -64 % for Chinese.
func EstimateText(n int64) int64 { return ceilDiv(max(n, 0), 4) }

// Input is the estimated input in tokens: text/4 + JSON/3 + media + 4 for each message + 12 for each tool, before any
// learned ratio. Measured against o200k: +5 % for English prose, -1 % for Go, +7 % for JSON.
func (c *Call) Input() int64 {
	n := EstimateText(c.TextBytes) + ceilDiv(max(c.JSONBytes, 0), 3) + c.MediaTokens + 4*c.Messages + 12*c.Tools
	return min(n, maxCount)
}

// Output is how many tokens of output to hold: the smaller of the request's cap and modelMax; without a cap in the
// request the smaller of fallback and modelMax; all of it for each choice. modelMax and fallback of 0 say nothing. It is
// 0 for endpoints that bill input only, and at most 2^53-1.
func (c *Call) Output(modelMax, fallback int64) int64 {
	if c.silent {
		return 0
	}
	n := c.MaxOutput
	if n <= 0 {
		n = fallback
	}
	if n <= 0 || modelMax > 0 && n > modelMax {
		n = modelMax
	}
	return times(max(n, 0), max(c.Choices, 1))
}

// times multiplies within the bound of a count.
func times(a, b int64) int64 {
	if a > 0 && b > maxCount/a {
		return maxCount
	}
	return a * b
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }
