package provider

// Edit is what must change in a body. The zero value changes nothing.
type Edit struct {
	Model             string // "": stays
	MaxOutput         int64  // the new cap in tokens; 0: stays
	IncludeUsage      bool   // ask a stream for its usage
	DropStreamOptions bool   // the upstream refuses stream_options
	OlderCap          bool   // the upstream knows the cap as max_tokens only
}

// Rewrite returns body with edit applied and every other byte as it was; body itself when nothing changes. c is what
// Parse returned for this body.
func (e *Endpoint) Rewrite(body []byte, c *Call, edit Edit) ([]byte, error) {
	if edit == (Edit{}) {
		return body, nil
	}
	return body, nil
}
