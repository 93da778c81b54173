package engine

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/token-budget-arbiter/tba/arbiter"
)

// The writer digests its state in passing while that is short, and no more once it has many rows, with however few leases.
func TestRowsBoundTheDigest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		e := openForTest(t, Options{})
		defer e.Close()
		p, _ := e.find("")
		order := func() (s *snapshot, bound int64) {
			synctest.Wait() // the writer and the follower rest
			counts := p.state.Counts()
			bound = p.mass.bound(known(&counts))
			s = p.order()
			p.follow.mu.Lock()
			defer p.follow.mu.Unlock()
			p.follow.encode(s)
			if p.follow.err != nil {
				t.Fatal(p.follow.err)
			}
			if int64(len(s.bytes)) > bound {
				t.Fatalf("encoded %d bytes, bound %d", len(s.bytes), bound)
			}
			return s, bound
		}
		const leases = 4000
		for i := range leases {
			if i == 100 {
				if s, _ := order(); s.digest == ([32]byte{}) {
					t.Fatal("a small state was not digested")
				}
			}
			name := strings.Repeat("n", 120) + fmt.Sprint(i)
			if _, err := e.Do(ctx, Op{Command: &arbiter.Request{Agent: name, Task: name, Workflow: name, Output: 10}}); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 { // estimated, then measured
			s, bound := order()
			if len(s.bytes) < inlineDigest {
				t.Fatalf("only %d bytes: the test proves nothing", len(s.bytes))
			}
			if s.digest != ([32]byte{}) {
				t.Fatalf("a state of %d bytes was digested in passing, bound %d", len(s.bytes), bound)
			}
		}
	})
}
