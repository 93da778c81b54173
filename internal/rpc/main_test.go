package rpc

import (
	"testing"

	"go.uber.org/goleak"
)

// No test may leave a goroutine behind: a stream that outlives its client is how servers fill up.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
