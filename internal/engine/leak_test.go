package engine_test

import (
	"testing"

	"go.uber.org/goleak"
)

// leakTest runs the tests and fails when a goroutine outlives them.
func leakTest(m *testing.M) { goleak.VerifyTestMain(m) }
