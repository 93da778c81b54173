package journal

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite golden files")

func id(b byte) (id EntryID) {
	for i := range id {
		id[i] = b
	}
	return id
}

// goldens are the entries whose bytes must never change.
func goldens() map[string]func(*Encoder) []byte {
	return map[string]func(*Encoder) []byte{
		"v1-empty": func(e *Encoder) []byte {
			e.Reset()
			return e.Finish(Header{Pool: "p", Epoch: 1, Seq: 1, ID: id(1), PrevID: id(2)})
		},
		"v1-full": func(e *Encoder) []byte {
			e.Reset()
			a, b := e.Intern("anthropic/claude"), e.Intern("agent-7")
			e.AddFact(1, true, []byte{byte(a), byte(b), 0xff})
			e.AddFact(0xfffe, false, nil)
			e.BeginFact(300, true)
			*e.Buf() = append(*e.Buf(), bytes.Repeat([]byte{7}, 200)...)
			e.EndFact()
			return e.Finish(Header{
				Flags: FlagEssential | FlagRecovery, Pool: "acme:prod", Epoch: 3, Seq: 1 << 40, ID: id(0xab), PrevID: id(0xcd),
				Now: 1_700_000_000, Wall: 1_750_000_000_000_000_001, Writer: "replica-1", Proven: 1<<40 - 2, Policy: 42,
			})
		},
	}
}

func TestGoldenEntries(t *testing.T) {
	t.Parallel()
	var enc Encoder
	for name, build := range goldens() {
		path := filepath.Join("testdata", name+".hex")
		raw := build(&enc)
		if *update {
			var s strings.Builder
			for b := raw; len(b) > 0; b = b[min(32, len(b)):] {
				s.WriteString(hex.EncodeToString(b[:min(32, len(b))]) + "\n")
			}
			if err := os.WriteFile(path, []byte(s.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		golden, err := hex.DecodeString(strings.ReplaceAll(string(text), "\n", ""))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(raw, golden) {
			t.Errorf("%s: the encoder no longer writes the golden bytes", name)
		}
		e, err := Decode(golden)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if again := reencode(&e); !bytes.Equal(again, golden) {
			t.Errorf("%s: decoding and encoding changed it", name)
		}
	}
}

func TestDecodeGivesBackWhatWasEncoded(t *testing.T) {
	t.Parallel()
	var enc Encoder
	raw := goldens()["v1-full"](&enc)
	e, err := Decode(raw)
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintf("%s %v %d %q %q %d %d", e.Pos(), e.Flags, e.Now, e.Pool, e.Writer, e.Proven, e.Policy)
	want := fmt.Sprintf("3/%d/%s 3 1700000000 \"acme:prod\" \"replica-1\" %d 42", uint64(1)<<40, id(0xab), uint64(1)<<40-2)
	if got != want {
		t.Errorf("header: got %s, want %s", got, want)
	}
	if s := strings.Join(e.Strings, "|"); s != "|anthropic/claude|agent-7" {
		t.Errorf("strings: %q", s)
	}
	var facts []string
	for f := range e.Facts() {
		facts = append(facts, fmt.Sprint(f.Kind, f.Critical, len(f.Payload)))
	}
	if s := strings.Join(facts, ", "); s != "1 true 3, 65534 false 0, 300 true 200" {
		t.Errorf("facts: %s", s)
	}
	for range e.Facts() {
		break // an iterator that is left early must not panic
	}
}

// TestEveryFlipIsFound is the checksum's promise on one entry.
func TestEveryFlipIsFound(t *testing.T) {
	t.Parallel()
	var enc Encoder
	raw := goldens()["v1-full"](&enc)
	for i := range raw {
		for bit := range 8 {
			raw[i] ^= 1 << bit
			if _, err := Decode(raw); !errors.Is(err, ErrInvalid) {
				t.Fatalf("byte %d bit %d: %v", i, bit, err)
			}
			raw[i] ^= 1 << bit
		}
		if _, err := Decode(raw[:i]); !errors.Is(err, ErrInvalid) {
			t.Fatalf("cut at %d: %v", i, err)
		}
	}
}

func TestNewerFormats(t *testing.T) {
	t.Parallel()
	var enc Encoder
	h := Header{Format: 2, MinReader: 1, Pool: "p", Seq: 1, ID: id(1), PrevID: id(2), Extra: []byte("later")}
	enc.Reset()
	enc.AddFact(9, false, []byte("x"))
	raw := bytes.Clone(enc.Finish(h))
	e, err := Decode(raw)
	if err != nil || string(e.Extra) != "later" {
		t.Fatalf("a newer entry that format 1 may read: %q, %v", e.Extra, err)
	}
	if !bytes.Equal(reencode(&e), raw) {
		t.Error("a newer header was not kept")
	}
	h.MinReader = 2
	enc.Reset()
	if _, err := Decode(enc.Finish(h)); !errors.Is(err, ErrFormat) {
		t.Errorf("an entry for newer readers only: %v", err)
	}
	h.Format, h.MinReader = 1, 1
	enc.Reset()
	if _, err := Decode(enc.Finish(h)); !errors.Is(err, ErrInvalid) {
		t.Errorf("format 1 with a longer header: %v", err)
	}
}

func TestEncoderRollback(t *testing.T) {
	t.Parallel()
	var enc, plain Encoder
	for _, e := range []*Encoder{&enc, &plain} {
		e.Reset()
		e.Intern("kept")
		e.AddFact(1, true, []byte("kept"))
	}
	m := enc.Mark()
	enc.Intern("dropped")
	enc.AddFact(2, true, make([]byte, 1000))
	if enc.Len() <= plain.Len() {
		t.Error("Len does not grow")
	}
	enc.Rollback(m)
	if enc.Len() != plain.Len() || enc.Facts() != 1 {
		t.Errorf("Len %d, want %d; facts %d", enc.Len(), plain.Len(), enc.Facts())
	}
	if i := enc.Intern("dropped"); i != plain.Intern("dropped") {
		t.Errorf("a string of a dropped fact kept index %d", i)
	}
	bound := enc.Len()
	a, b := enc.Finish(Header{Pool: "p"}), plain.Finish(Header{Pool: "p"})
	if !bytes.Equal(a, b) {
		t.Error("the dropped fact left a trace")
	}
	if len(a) > bound || bound-len(a) > 258 {
		t.Errorf("Len said %d, the entry has %d bytes", bound, len(a))
	}
}

func TestEncoderDoesNotAllocate(t *testing.T) {
	var enc Encoder
	names := []string{"openai", "gpt", "anthropic", "agent-1", "agent-2"}
	payload := make([]byte, 100)
	n := testing.AllocsPerRun(200, func() {
		enc.Reset()
		for range 100 {
			for _, s := range names {
				enc.Intern(s)
			}
			m := enc.Mark()
			enc.AddFact(3, true, payload)
			enc.Rollback(m)
			enc.AddFact(3, true, payload)
		}
		enc.Finish(Header{Pool: "p", Writer: "w"})
	})
	if n != 0 {
		t.Errorf("%v allocations an entry", n)
	}
}

// reencode writes a decoded entry again.
func reencode(e *Entry) []byte {
	var enc Encoder
	enc.Reset()
	for _, s := range e.Strings[1:] {
		enc.addString(s)
	}
	for f := range e.Facts() {
		enc.AddFact(f.Kind, f.Critical, f.Payload)
	}
	return enc.Finish(e.Header)
}

func FuzzDecode(f *testing.F) {
	var enc Encoder
	for _, build := range goldens() {
		f.Add(bytes.Clone(build(&enc)), false)
	}
	f.Add([]byte(nil), true)
	f.Fuzz(func(t *testing.T, b []byte, repair bool) {
		if repair && len(b) >= crcBytes { // let the fuzzer past the checksum
			b = seal(b[:len(b)-crcBytes])
		}
		e, err := Decode(b)
		if err != nil {
			if !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrFormat) && !errors.Is(err, ErrTooLarge) {
				t.Fatalf("error without a name: %v", err)
			}
			return
		}
		if again := reencode(&e); !bytes.Equal(again, b) {
			t.Fatalf("encoded again:\n%x\nwas:\n%x", again, b)
		}
	})
}

func seal(body []byte) []byte {
	return binary.LittleEndian.AppendUint32(bytes.Clone(body), crc32.Checksum(body, castagnoli))
}
