package tba_test

import (
	"fmt"
	"hash/fnv"
	"io/fs"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// tables returns the worked tables of a page by the name in the comment above them.
func tables(page string) map[string][][]string {
	found := map[string][][]string{}
	name := ""
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		if after, ok := strings.CutPrefix(line, "<!-- table: "); ok {
			name = strings.TrimSuffix(after, " -->")
			continue
		}
		if name == "" || !strings.HasPrefix(line, "|") {
			if line == "" && len(found[name]) > 0 {
				name = ""
			}
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		found[name] = append(found[name], cells)
	}
	for name, rows := range found {
		found[name] = rows[2:] // heading and rule
	}
	return found
}

func whole(cell string) int64 {
	n, err := strconv.ParseInt(cell, 10, 64)
	if err != nil {
		panic(fmt.Sprintf("table cell %q: %v", cell, err))
	}
	return n
}

func decimal(cell string) float64 {
	f, err := strconv.ParseFloat(cell, 64)
	if err != nil {
		panic(fmt.Sprintf("table cell %q: %v", cell, err))
	}
	return f
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// permille multiplies and rounds down.
func permille(n, share int64) int64 { return n * share / 1000 }

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }

// fnv1a is the 64-bit FNV-1a of a byte and a text.
func fnv1a(kind byte, text string) uint64 {
	h := fnv.New64a()
	h.Write(append([]byte{kind}, text...))
	return h.Sum64()
}

// mix is the finaliser of SplitMix64.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// formulas computes the last cells of a row from the first ones, as docs/algorithms.md states them.
var formulas = map[string]func(row []string) []string{
	"ladder": func(r []string) []string {
		best, least := "", math.Inf(1)
		for i, name := range []string{"a", "b", "c"} {
			if name == r[1] {
				continue
			}
			u := (float64(mix(mix(fnv1a(6, r[0]))^mix(fnv1a(1, name+"\x00")))) + 1) / math.Exp2(64)
			if rank := -math.Log2(u) / []float64{100, 200, 500}[i]; rank < least {
				best, least = name, rank
			}
		}
		return []string{best}
	},
	"ramp": func(r []string) []string {
		ceiling := whole(r[2])
		part := int64(1_000_000)
		if whole(r[0]) > 0 {
			part = min(100_000+900_000*whole(r[1])/whole(r[0]), part)
		}
		return []string{strconv.FormatInt(min(max(ceiling*part/1_000_000, 1), ceiling-1), 10)}
	},
	"uncached": func(r []string) []string {
		learned := -1.0
		for _, call := range strings.Fields(r[0]) {
			fresh, prompt, ok := strings.Cut(call, "/")
			switch part := 0.0; {
			case !ok:
			case learned < 0:
				learned = decimal(fresh) / decimal(prompt)
			default:
				part = decimal(fresh) / decimal(prompt)
				learned += (part - learned) / 8
			}
		}
		if learned < 0 {
			learned = 1
		}
		millionths := int64(learned*1e6 + 1e-4)
		return []string{fmt.Sprintf("%d.%06d", millionths/1_000_000, millionths%1_000_000), strconv.FormatInt(ceilDiv(whole(r[1])*millionths, 1_000_000)+whole(r[2]), 10)}
	},
	"budget": func(r []string) []string {
		limit, used, asked := whole(r[0]), whole(r[1])+whole(r[2])+whole(r[3]), whole(r[4])
		fits := used+asked <= limit
		if fits {
			used += asked
		}
		return []string{yes(fits), strconv.FormatInt(limit-used, 10)}
	},
	"cost": func(r []string) []string {
		var pico int64
		for k := 0; k < 8; k += 2 {
			pico += whole(r[k]) * whole(r[k+1])
		}
		return []string{strconv.FormatInt(ceilDiv(pico, 1000), 10)}
	},
	"window": func(r []string) []string {
		return []string{strconv.FormatInt(ceilDiv(60_000+whole(r[0])+whole(r[1]), 100)+2, 10)}
	},
	"pacing-cost": func(r []string) []string {
		product := new(big.Int).Mul(big.NewInt(whole(r[1])), big.NewInt(60_000_000_000))
		product.Add(product, big.NewInt(whole(r[0])-1))
		return []string{product.Div(product, big.NewInt(whole(r[0]))).String()}
	},
	"pacing-times": func(r []string) []string {
		const cost, burst = 1000, 6
		var tat, at int64
		for range whole(r[0]) {
			at = max(0, tat-cost*(burst-1))
			tat = max(tat, at) + cost
		}
		return []string{strconv.FormatInt(at, 10)}
	},
	"reserve": func(r []string) []string {
		c := whole(r[0])
		critical := permille(c, whole(r[2]))
		return []string{fmt.Sprint(c - permille(c, whole(r[1])+whole(r[2]))), fmt.Sprint(c - critical), fmt.Sprint(c)}
	},
	"class-share": func(r []string) []string {
		limit := whole(r[0])
		free, idle := permille(limit, whole(r[2])), int64(0)
		for _, other := range strings.Fields(r[4]) {
			share, used, _ := strings.Cut(other, "/")
			part := permille(limit, whole(share))
			free -= max(0, whole(used)-part)
			idle += max(0, permille(part, whole(r[3]))-whole(used))
		}
		return []string{strconv.FormatInt(permille(limit, whole(r[1]))+max(0, free)+idle, 10)}
	},
	"score": func(r []string) []string {
		w := map[string][2]float64{"HIGH": {0.7, 0.3}, "MEDIUM": {0.5, 0.5}, "LOW": {0.3, 0.7}}[r[0]]
		c := 1.0
		if price := decimal(r[2]); price > 0 {
			c = min(1, 1/math.Log(1+price))
		}
		score := w[0]*decimal(r[1]) + w[1]*c
		if r[3] == "yes" {
			score += 0.15
		}
		return []string{strconv.FormatFloat(score, 'f', 3, 64)}
	},
	"backpressure": func(r []string) []string {
		consumed, headroom := decimal(r[0]), decimal(r[1])
		level, delay := "NONE", 0
		for _, row := range []struct {
			level              string
			consumed, headroom float64
			delay              int
		}{{"MILD", 0.50, 0.30, 200}, {"MODERATE", 0.70, 0.20, 800}, {"SEVERE", 0.85, 0.10, 3000}, {"CRITICAL", 0.95, 0, 10000}} {
			if consumed >= row.consumed || headroom <= row.headroom {
				level, delay = row.level, row.delay
			}
		}
		return []string{level, strconv.Itoa(delay), yes(delay >= 3000)}
	},
	"jitter": func(r []string) []string {
		return []string{strconv.FormatFloat(min(30_000, 1000*math.Pow(2, decimal(r[0]))), 'f', 0, 64)}
	},
}

// TestWorkedTables computes every worked table of docs/algorithms.md again.
func TestWorkedTables(t *testing.T) {
	t.Parallel()
	found := tables(read(t, "docs/algorithms.md"))
	for name, formula := range formulas {
		if len(found[name]) == 0 {
			t.Errorf("docs/algorithms.md has no table %q", name)
		}
		for _, row := range found[name] {
			want := formula(row)
			if got := row[len(row)-len(want):]; strings.Join(got, " ") != strings.Join(want, " ") {
				t.Errorf("table %s, row %v: the formula gives %v", name, row, want)
			}
		}
	}
	for name := range found {
		if formulas[name] == nil {
			t.Errorf("table %q has no formula in docs_test.go", name)
		}
	}
}

// pages are the texts a person reads.
func pages(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, name := range []string{"README.md", "SECURITY.md", "CHANGELOG.md"} {
		found[name] = read(t, name)
	}
	err := filepath.WalkDir("docs", func(path string, d fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".md" {
			found[path] = read(t, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

var (
	link       = regexp.MustCompile(`\]\(([^)#: ]+)(?:#[^)]*)?\)`)
	makeTarget = regexp.MustCompile("(?m)(?:^`?|`)make ([a-z]+)")
	namedTest  = regexp.MustCompile("`((?:[a-z]+/)*[a-z]+)\\.((?:Test|Fuzz|Benchmark|Example)[A-Za-z0-9_]+)`")
)

// TestDocsNameWhatExists checks that links, make targets and tests named in the pages exist. A test is named
// by its package folder, as in `internal/engine.TestDrain`.
func TestDocsNameWhatExists(t *testing.T) {
	t.Parallel()
	makefile := read(t, "Makefile")
	for name, text := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(name), m[1])); err != nil {
				t.Errorf("%s: link to %s, which does not exist", name, m[1])
			}
		}
		for _, m := range makeTarget.FindAllStringSubmatch(text, -1) {
			if !strings.Contains(makefile, "\n"+m[1]+":") {
				t.Errorf("%s: make %s, which the Makefile does not have", name, m[1])
			}
		}
		for _, m := range namedTest.FindAllStringSubmatch(text, -1) {
			if !declared(t, m[1], m[2]) {
				t.Errorf("%s: test %s is not in %s", name, m[2], m[1])
			}
		}
	}
}

// declared reports whether a test file of the folder declares the function.
func declared(t *testing.T, dir, fn string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if strings.Contains(read(t, f), "\nfunc "+fn+"(") {
			return true
		}
	}
	return false
}

// TestEveryPromiseNamesItsTest: docs/guarantees.md is a list of claims, so each row must name a test.
func TestEveryPromiseNamesItsTest(t *testing.T) {
	t.Parallel()
	rows := tables(read(t, "docs/guarantees.md"))["promises"]
	if len(rows) != 7 {
		t.Fatalf("docs/guarantees.md has %d promises, want P1 to P7", len(rows))
	}
	for i, row := range rows {
		if row[0] != fmt.Sprintf("P%d", i+1) || !namedTest.MatchString(row[2]) || row[3] == "" {
			t.Errorf("row %d: want P%d, the promise, its tests, what voids it; got %q", i+1, i+1, row)
		}
	}
}

// TestReadme keeps the first page short and CI honest: .ci/run calls the command that the README names.
func TestReadme(t *testing.T) {
	t.Parallel()
	text := read(t, "README.md")
	if n := strings.Count(text, "\n"); n >= 200 {
		t.Errorf("README.md has %d lines, want fewer than 200", n)
	}
	for _, command := range []string{"go run ./cmd/tba dev --demo", "\nmake "} {
		if !strings.Contains(text, command) {
			t.Errorf("README.md does not name %q", strings.TrimSpace(command))
		}
	}
	lines := strings.Split(strings.TrimSpace(read(t, ".ci/run")), "\n")
	if last := lines[len(lines)-1]; last != "make" {
		t.Errorf(".ci/run ends with %q, want the README's command: make", last)
	}
}
