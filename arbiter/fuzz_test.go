package arbiter

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Decoders never panic, never return a part, and what they accept is what they wrote.

// taped is a desk after a short scene, for seeds: every kind of fact is in its log.
func taped(tb failer, seed uint64) *desk {
	tb.Helper()
	m := newDirector(tb, newSeed(seed), 12)
	m.open(tb)
	for range 120 {
		m.k.run(tb, m.next(tb, 8))
	}
	return m.k
}

func FuzzDecodeFact(f *testing.F) {
	kinds := map[FactKind]int{}
	for seed := uint64(1); seed < 4; seed++ {
		for _, e := range taped(f, seed).log {
			for i, kind := range e.kinds {
				if kinds[kind]++; kinds[kind] < 4 && len(e.payloads[i]) < 1000 {
					f.Add(uint16(kind), e.payloads[i])
				}
			}
		}
	}
	f.Add(uint16(FactUnattributed), []byte{0})
	f.Add(uint16(99), []byte{1, 2, 3})
	names := []string{"t0", "a1", strings.Repeat("n", 128)}
	f.Fuzz(func(t *testing.T, kind uint16, payload []byte) {
		var fact Fact
		err := DecodeFact(FactKind(kind), payload, func(n uint32) (string, bool) {
			if int(n) < len(names) {
				return names[n], true
			}
			return "", false
		}, &fact)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Errorf("error %v", err)
			}
			return
		}
		again := AppendFact(nil, &fact, func(s string) uint32 {
			for i := range names {
				if names[i] == s {
					return uint32(i)
				}
			}
			return 0
		})
		var second Fact
		if err := DecodeFact(fact.Kind, again, func(n uint32) (string, bool) { return names[n], true }, &second); err != nil {
			t.Fatalf("%x decodes, %x that it encodes to does not: %v", payload, again, err)
		}
		if len(again) > len(payload) {
			t.Fatalf("%x became longer: %x", payload, again)
		}
	})
}

func FuzzDecodeState(f *testing.F) {
	for seed := uint64(1); seed < 4; seed++ {
		k := taped(f, seed)
		f.Add(k.w.AppendTo(nil))
	}
	f.Add(openDesk(f, onePolicy()).w.AppendTo(nil))
	f.Add(NewState("empty").AppendTo(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := DecodeState(b)
		if err != nil {
			if s != nil {
				t.Error("an error with a part of a state")
			}
			return
		}
		first := s.AppendTo(nil)
		if len(first) >= len(b) && !bytes.Equal(first, b) { // a number may have been written longer than need be; nothing else
			t.Fatal("decoded to another state")
		}
		again, err := DecodeState(first)
		if err != nil {
			t.Fatalf("what it encodes to does not decode: %v", err)
		}
		if !bytes.Equal(first, again.AppendTo(nil)) {
			t.Fatal("the second round is another")
		}
		if s.Check() != nil {
			return // the references hold, the sums do not: that is Check's affair
		}
		// What holds together can be used.
		s.BudgetRows(0)
		s.LeaseRows(LeaseFilter{Ended: true})
		s.Pressure()
		var d Decision
		s.Decide(requestOf(1), &d)
	})
}

func FuzzDecodePolicy(f *testing.F) {
	for seed := uint64(1); seed < 6; seed++ {
		g := newScene(newSeed(seed), 1)
		packed, _, err := g.policy(seed).Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(packed)
	}
	f.Add([]byte{})
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, packed []byte) {
		p, err := DecodePolicy(packed)
		if err != nil {
			return
		}
		if p.Validate() != nil {
			return
		}
		again, hash, err := p.Encode()
		if err != nil {
			return // too large
		}
		second, err := DecodePolicy(again)
		if err != nil {
			t.Fatalf("what it encodes to does not decode: %v", err)
		}
		if _, same, _ := second.Encode(); same != hash {
			t.Fatal("the second round has another hash")
		}
		s := NewState("pool")
		s.Advance(Time{Hour, Hour})
		var d Decision
		if err := s.Decide(&Adopt{Version: p.Version, Hash: hash, Policy: again, Period: Period{0, 1 << 60}}, &d); err != nil {
			t.Fatalf("a valid policy is not adopted: %v", err)
		}
		for i := range d.Facts {
			s.Apply(&d.Facts[i])
		}
		s.Decide(requestOf(1), &d)
		for i := range d.Facts {
			s.Apply(&d.Facts[i])
		}
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestDecodeStateRefuses flips bytes of a state with everything in it and cuts it at every length: an error, or another state as a
// whole; never a panic, never a part. (That a flip is found at all is the snapshot's checksum's work.)
func TestDecodeStateRefuses(t *testing.T) {
	t.Parallel()
	whole := taped(t, 2).w.AppendTo(nil)
	stride := 3
	if underRace {
		stride = 50
	}
	for n := 0; n < len(whole); n += stride {
		if s, err := DecodeState(whole[:n]); err == nil || s != nil {
			t.Fatalf("cut at %d of %d: %v", n, len(whole), err)
		}
	}
	if s, err := DecodeState(append(bytes.Clone(whole), 0)); err == nil || s != nil {
		t.Fatal("a byte too much")
	}
	refused := 0
	for n := 0; n < len(whole); n += stride {
		for _, flip := range []byte{1, 0x80, 0xff} {
			b := bytes.Clone(whole)
			b[n] ^= flip
			s, err := DecodeState(b)
			if err != nil {
				refused++
				continue
			}
			if s.Check() == nil && !bytes.Equal(s.AppendTo(nil), b) && len(s.AppendTo(nil)) >= len(b) {
				t.Fatalf("byte %d: decoded to something longer", n)
			}
		}
	}
	if refused == 0 {
		t.Error("nothing was refused")
	}
	if s, err := DecodeState([]byte{99}); s != nil || err == nil || !strings.Contains(err.Error(), "format 99") {
		t.Errorf("a newer format: %v", err)
	}
}

// TestSeedsAreCommitted keeps the corpus that a checkout fuzzes from.
func TestSeedsAreCommitted(t *testing.T) {
	t.Parallel()
	for _, target := range []string{"FuzzDecodeFact", "FuzzDecodeState", "FuzzDecodePolicy"} {
		if files, err := filepath.Glob("testdata/fuzz/" + target + "/*"); err != nil || len(files) == 0 {
			t.Errorf("%s has no seed in testdata/fuzz: %v", target, err)
		}
	}
	if *update {
		seeds := map[string][]string{}
		for _, e := range taped(t, 5).log {
			for i, kind := range e.kinds {
				seeds["FuzzDecodeFact"] = append(seeds["FuzzDecodeFact"], "uint16("+strconv.Itoa(int(kind))+")\n[]byte("+strconv.Quote(string(e.payloads[i]))+")\n")
			}
		}
		seeds["FuzzDecodeFact"] = seeds["FuzzDecodeFact"][1:25]
		k := openDesk(t, onePolicy())
		k.grant(t, Hour, requestOf(1))
		seeds["FuzzDecodeState"] = []string{"[]byte(" + strconv.Quote(string(k.w.AppendTo(nil))) + ")\n"}
		packed, _, err := onePolicy().Encode()
		if err != nil {
			t.Fatal(err)
		}
		seeds["FuzzDecodePolicy"] = []string{"[]byte(" + strconv.Quote(string(packed)) + ")\n"}
		for target, list := range seeds {
			dir := filepath.Join("testdata/fuzz", target)
			if err := os.MkdirAll(dir, 0o750); err != nil {
				t.Fatal(err)
			}
			for i, text := range list {
				if err := os.WriteFile(filepath.Join(dir, "seed-"+strconv.Itoa(i)), []byte("go test fuzz v1\n"+text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}
