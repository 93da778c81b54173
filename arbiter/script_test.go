package arbiter

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Script tests read as stories: testdata/*.txt has one command a line and below it, indented, exactly what it says. -update rewrites
// the outcomes; the difference is reviewed like code. Lines before "adopt" build the policy; the clock starts at 0s of the pool's day.

var update = flag.Bool("update", false, "rewrite the outcomes in testdata/*.txt")

func TestScripts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("testdata/*.txt: %d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, file, string(text))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			} else if got != string(text) {
				t.Errorf("%s says otherwise now:\n%s", file, lineDiff(string(text), got))
			}
		})
	}
}

// lineDiff shows the first lines that differ.
func lineDiff(want, got string) string {
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("line %d\nwant %s\n got %s\nthe whole:\n%s", i+1, a[i], b[i], got)
		}
	}
	return got
}

// play runs a script and returns it with its outcomes.
func play(t *testing.T, file, text string) string {
	t.Helper()
	var out bytes.Buffer
	st := &story{t: t, k: newDesk("pool"), p: onePolicy(), leases: map[string]LeaseID{}, epoch: day(at(24*Hour).Wall).Start - wallBase}
	st.p.Providers, st.p.Lease.TTL = nil, 0
	st.now = st.epoch
	st.k.w.SetEvents(true)
	for n, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		if strings.HasPrefix(line, "    ") {
			continue
		}
		out.WriteString(line + "\n")
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		st.where = fmt.Sprintf("%s:%d", file, n+1)
		for said := range strings.Lines(st.run(strings.Fields(line))) {
			out.WriteString("    " + strings.TrimRight(said, "\n") + "\n")
		}
	}
	return out.String()
}

// story is a script as it runs.
type story struct {
	t      *testing.T
	where  string
	k      *desk
	p      *Policy
	epoch  int64
	now    int64
	leases map[string]LeaseID
	args   map[string]string
	used   map[string]bool
}

func (st *story) fail(format string, args ...any) {
	st.t.Helper()
	st.t.Fatalf("%s: %s", st.where, fmt.Sprintf(format, args...))
}

// run does one line: a word, perhaps a name, and settings of the form key=value or key.
func (st *story) run(words []string) string {
	st.t.Helper()
	verb, name := words[0], ""
	words = words[1:]
	if len(words) > 0 && !strings.Contains(words[0], "=") {
		name, words = words[0], words[1:]
	}
	st.args, st.used = map[string]string{}, map[string]bool{}
	for _, w := range words {
		k, v, _ := strings.Cut(w, "=")
		st.args[k] = v
	}
	said := st.do(verb, name)
	for k := range st.args {
		if !st.used[k] {
			st.fail("%s does not know %q", verb, k)
		}
	}
	for _, e := range st.k.w.Events() {
		said += "event " + st.event(&e) + "\n"
	}
	st.k.w.ClearEvents()
	return said
}

func (st *story) has(k string) bool {
	_, ok := st.args[k]
	st.used[k] = true
	return ok
}

func (st *story) text(k, absent string) string {
	if st.has(k) {
		return st.args[k]
	}
	return absent
}

func (st *story) number(k string, absent int64) int64 {
	if !st.has(k) {
		return absent
	}
	n, err := strconv.ParseInt(strings.ReplaceAll(st.args[k], "_", ""), 10, 64)
	if err != nil {
		st.fail("%s: %v", k, err)
	}
	return n
}

// dollars reads money or a price: USD to the unit's 10⁻⁹ or 10⁻¹².
func (st *story) scaled(k string, unit float64, absent int64) int64 {
	if !st.has(k) {
		return absent
	}
	f, err := strconv.ParseFloat(st.args[k], 64)
	if err != nil {
		st.fail("%s: %v", k, err)
	}
	return int64(f*unit + 0.5)
}

func (st *story) fraction(k string) PPM { return PPM(st.scaled(k, float64(Whole), 0)) }

func (st *story) duration(k string, absent int64) int64 {
	if !st.has(k) {
		return absent
	}
	return st.parse(st.args[k])
}

func (st *story) parse(text string) int64 {
	d, err := time.ParseDuration(text)
	if err != nil {
		st.fail("%v", err)
	}
	return int64(d)
}

func (st *story) priority(k string, absent Priority) Priority {
	if st.has(k) {
		for p := Low; p <= Critical; p++ {
			if strings.EqualFold(p.String(), st.args[k]) {
				return p
			}
		}
		st.fail("%s: no priority %q", k, st.args[k])
	}
	return absent
}

func (st *story) limit() Limit {
	return Limit{Tokens: Tokens(st.number("tokens", Unlimited)), Nanos: Nanos(st.scaled("usd", 1e9, Unlimited)), Shadow: st.has("shadow")}
}

func (st *story) ceilings() Ceilings {
	return Ceilings{RPM: Requests(st.number("rpm", 0)), TPM: Tokens(st.number("tpm", 0)), InputTPM: Tokens(st.number("input_tpm", 0)), OutputTPM: Tokens(st.number("output_tpm", 0)),
		RPD: Requests(st.number("rpd", 0)), MaxConcurrent: Requests(st.number("slots", 0)), Burst: st.fraction("burst"), Generated: st.has("generated"), ShadowRates: st.has("shadow_rates")}
}

// clock is a time of the story as people read it.
func (st *story) clock(now int64) string { return time.Duration(now - st.epoch).String() }
