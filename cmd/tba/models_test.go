package main

import (
	"strings"
	"testing"

	"github.com/token-budget-arbiter/tba/internal/config"
)

// TestModelsOfTheFileInForce: an alias or a dated id stands for the model whose limits hold, and the advice comes from the operator's list.
func TestModelsOfTheFileInForce(t *testing.T) {
	t.Parallel()
	load := func(text string) *config.Config {
		c, err := config.LoadBytes("tba.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	s := &server{}
	s.names.Store(load("budget: {providers: {openai: {models: {gpt-5.4: {}}}}}"))
	for _, provider := range []string{"", "openai", "anthropic"} { // a preference, not a filter
		if name, err := s.model("default", provider, "gpt-5.4-2026-03-01"); name != "gpt-5.4" || err != nil {
			t.Errorf("dated, preferring %q: %q, %v", provider, name, err)
		}
	}
	if name, err := s.model("default", "", "house-modell"); name != "" || err == nil {
		t.Errorf("unknown: %q, %v", name, err)
	}
	s.names.Store(load("budget: {providers: {openai: {models: {house-model: {price: {input: 1, output: 2}}}}}}"))
	if _, err := s.model("default", "", "house-modell"); err == nil || !strings.Contains(err.Error(), `did you mean "house-model"?`) {
		t.Errorf("after a reload: %v", err)
	}
	if name, err := s.model("elsewhere", "", "x"); name != "x" || err != nil {
		t.Errorf("a pool that left the file: %q, %v", name, err)
	}
}
