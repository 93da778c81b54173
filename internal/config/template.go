package config

import _ "embed"

//go:embed template.yaml
var template []byte

// Template is the commented file that tba init writes. It loads as it is.
func Template() []byte { return append([]byte(nil), template...) }
