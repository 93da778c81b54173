package arbiter

import "testing"

// TestVoidedGrantIsTold: a grant that reached nobody is told apart from one that its holder released, also after a snapshot, so
// that a repeat of its request is asked anew and a repeat of the other is not.
func TestVoidedGrantIsTold(t *testing.T) {
	t.Parallel()
	for _, void := range []bool{true, false} {
		c := newCycler(t)
		id := c.grant(t)
		c.do(t, &Release{Lease: id, Outcome: OutcomeNotSent, Void: void})
		loaded, err := DecodeState(c.s.AppendTo(nil))
		if err != nil {
			t.Fatal(err)
		}
		c.s = loaded
		c.do(t, &c.request)
		if got := c.d.Answer.Flags&FlagVoid != 0; got != void || c.d.Answer.Flags&FlagResolved == 0 || len(c.d.Facts) != 0 {
			t.Fatalf("void %v: flags %b, %d facts", void, c.d.Answer.Flags, len(c.d.Facts))
		}
	}
}
