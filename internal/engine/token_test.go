package engine

import (
	"bytes"
	"testing"

	"github.com/token-budget-arbiter/tba/arbiter"
)

func sampleClaims() arbiter.Claims {
	return arbiter.Claims{
		Lease: NewLeaseID(7, "a", "r"), Principal: 7, Agent: "agent-1", Class: "worker", Task: "t", Workflow: "w",
		Provider: "openai", Model: "gpt-4o", Priority: arbiter.High, Input: 1000, Output: arbiter.MaxAmount - 1000, Nanos: 123456789,
		Period: 42, Granted: 1e18, Deadline: 1e18 + 120e9, CommitBy: 1e18 + 3720e9, Epoch: 3, Seq: 1 << 60,
	}
}

func TestLeaseToken(t *testing.T) {
	t.Parallel()
	keys := NewTokenKeys()
	s := newSigner(keys)
	want := sampleClaims()
	token := s.appendLeaseToken([]byte("kept"), "pool-1", &want)
	if !bytes.HasPrefix(token, []byte("kept")) {
		t.Fatal("appended over the caller's bytes")
	}
	token = token[4:]
	pool, got, ok := s.parseLeaseToken(token)
	if !ok || pool != "pool-1" || got != want {
		t.Fatalf("%v %q\n%+v\n%+v", ok, pool, got, want)
	}
	if len(token) > 200 {
		t.Errorf("%d bytes", len(token))
	}
	for i := range token {
		bad := bytes.Clone(token)
		bad[i] ^= 0x10
		if _, _, ok := s.parseLeaseToken(bad); ok {
			t.Errorf("byte %d changed: accepted", i)
		}
		if _, _, ok := s.parseLeaseToken(token[:i]); ok {
			t.Errorf("cut at %d: accepted", i)
		}
	}

	// Rotation: the old key verifies as long as it is the previous one.
	next := NewKey(9)
	rotated := newSigner(TokenKeys{Current: next, Previous: keys.Current})
	if _, _, ok := rotated.parseLeaseToken(token); !ok {
		t.Error("token of the previous key refused")
	}
	gone := newSigner(TokenKeys{Current: NewKey(10), Previous: next})
	if _, _, ok := gone.parseLeaseToken(token); ok {
		t.Error("token of a dead key accepted")
	}
	// A ticket is no token, nor the other way round.
	if _, ok := s.parseTicket(token); ok {
		t.Error("lease token taken for a ticket")
	}
}

func TestTokenOfAnotherPrincipalLooksUnknown(t *testing.T) {
	t.Parallel()
	keys := NewTokenKeys()
	e := &Engine{signer: newSigner(keys)}
	c := sampleClaims()
	token := e.signer.appendLeaseToken(nil, "p", &c)
	if _, _, ok := e.VerifyToken(token, 7); !ok {
		t.Error("own token refused")
	}
	if _, _, ok := e.VerifyToken(token, 8); ok {
		t.Error("another principal's token accepted")
	}
	if e.TokenPool(token) != "p" || e.TokenPool([]byte("x")) != "" {
		t.Error("pool of a token")
	}
}

func TestTicket(t *testing.T) {
	t.Parallel()
	s := newSigner(NewTokenKeys())
	in := ticket{pool: nameHash("p"), principal: 5, agent: nameHash("a"), level: arbiter.Medium, firstSeen: 1e9, slot: 61e9}
	got, ok := s.parseTicket(s.appendTicket(nil, &in))
	if !ok || got != in {
		t.Fatalf("%v %+v", ok, got)
	}
	r := arbiter.Request{Principal: 5, Agent: "a"}
	now := int64(60e9)
	for name, c := range map[string]struct {
		pool  uint64
		r     arbiter.Request
		level arbiter.Priority
		now   int64
		want  int64
	}{
		"its own":              {in.pool, r, arbiter.Medium, now, 1e9},
		"for a lower level":    {in.pool, r, arbiter.Low, now, 1e9},
		"for a higher level":   {in.pool, r, arbiter.High, now, now},
		"in another pool":      {1, r, arbiter.Medium, now, now},
		"of another principal": {in.pool, arbiter.Request{Principal: 6, Agent: "a"}, arbiter.Medium, now, now},
		"of another agent":     {in.pool, arbiter.Request{Principal: 5, Agent: "b"}, arbiter.Medium, now, now},
		"long past its slot":   {in.pool, r, arbiter.Medium, 92e9, 92e9},
		"from the future":      {in.pool, r, arbiter.Medium, 5e8, 5e8},
	} {
		if got := got.seniority(c.pool, &c.r, c.level, c.now); got != c.want {
			t.Errorf("%s: first seen %d, want %d", name, got, c.want)
		}
	}
}

func TestLeaseIDText(t *testing.T) {
	t.Parallel()
	for _, id := range []arbiter.LeaseID{NewLeaseID(0, "", ""), NewLeaseID(1, "a", "r"), {15: 1}, {0: 0xff, 15: 0xff}} {
		s := FormatLeaseID(id)
		if len(s) != LeaseIDLength {
			t.Fatalf("%q", s)
		}
		back, err := ParseLeaseID(s)
		if err != nil || back != id {
			t.Errorf("%x → %s → %x %v", id, s, back, err)
		}
	}
	if FormatLeaseID(arbiter.LeaseID{}) != "" {
		t.Error("zero id has a text")
	}
	if a, b := NewLeaseID(1, "ab", "c"), NewLeaseID(1, "a", "bc"); a == b {
		t.Error("ids collide by concatenation")
	}
	if first, second := NewLeaseID(1, "a", "r"), NewLeaseID(1, "a", "r"); first != second || NewLeaseID(1, "a", "r") == NewLeaseID(2, "a", "r") {
		t.Error("the id is not a hash of its arguments")
	}
	for _, bad := range []string{"", "0", "00000000000000000000000000", "80000000000000000000000000", "0000000000000000000000000U", "0000000000000000000000000\x00", "000000000000000000000000001"} {
		if _, err := ParseLeaseID(bad); err == nil {
			t.Errorf("%q accepted", bad)
		}
	}
}

func FuzzLeaseToken(f *testing.F) {
	keys := TokenKeys{Current: Key{ID: 1}, Previous: Key{ID: 2}}
	s := newSigner(keys)
	c := sampleClaims()
	f.Add(s.appendLeaseToken(nil, "p", &c))
	f.Add(s.appendTicket(nil, &ticket{firstSeen: 1, slot: 2}))
	f.Add([]byte{leaseTokenV1, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		// Signed by the key, whatever the record says: nothing panics, and what is accepted reads back the same.
		for _, raw := range [][]byte{b, s.sign(append([]byte{leaseTokenV1, 1}, b...), 0), s.sign(append([]byte{ticketV1, 1}, b...), 0)} {
			if pool, c, ok := s.parseLeaseToken(raw); ok {
				pool2, c2, ok := s.parseLeaseToken(s.appendLeaseToken(nil, pool, &c))
				if !ok || pool2 != pool || c2 != c {
					t.Fatalf("%+v reads back as %+v", c, c2)
				}
			}
			if tk, ok := s.parseTicket(raw); ok {
				if back, ok := s.parseTicket(s.appendTicket(nil, &tk)); !ok || back != tk {
					t.Fatalf("%+v reads back as %+v", tk, back)
				}
			}
		}
	})
}
