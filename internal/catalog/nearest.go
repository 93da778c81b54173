package catalog

import (
	"slices"
	"strings"
	"time"
)

// Undated removes the date a provider hangs on a model id: gpt-5.4-2026-03-01, claude-haiku-4-5-20251001, claude-opus-4-5@20251101.
// ok is false when there is none, or when the digits are no date (mistral-large-2512 is a name).
func Undated(id string) (base string, ok bool) {
	for _, layout := range []string{"-2006-01-02", "-20060102", "@20060102"} {
		if len(id) <= len(layout) {
			continue
		}
		at := len(id) - len(layout)
		if _, err := time.Parse(layout, id[at:]); err == nil {
			return id[:at], true
		}
	}
	return id, false
}

// normal maps an id to the form in which two spellings of one model are compared: lower case, one kind of separator,
// no path before the name, no date and no "latest" after it.
func normal(id string) string {
	id = strings.ToLower(strings.TrimSpace(id))
	if at := strings.LastIndexByte(id, '/'); at >= 0 {
		id = id[at+1:]
	}
	id, _ = Undated(id)
	id = strings.TrimSuffix(id, "-latest")
	return strings.Map(func(r rune) rune {
		switch r {
		case '.', '_', ':', ' ', '@':
			return '-'
		}
		return r
	}, id)
}

// Nearest returns the candidate whose spelling is closest to id, or "" when none is close enough to be meant
// (more than a third of the letters differ). Separators, case, dates and a path before the name cost nothing.
// Among equals the first one of candidates wins; for an id that ends in -latest it is the last one of that family.
// An id above 256 bytes has no nearest.
func Nearest(id string, candidates []string) string {
	want := normal(id)
	if want == "" || len(id) > 256 {
		return ""
	}
	if family, ok := strings.CutSuffix(id, "-latest"); ok {
		for _, c := range slices.Backward(candidates) {
			if strings.HasPrefix(c, family+"-") {
				return c
			}
		}
	}
	best, bestDistance := "", max(1, len(want)/3)+1
	for _, c := range candidates {
		if d := distance(want, normal(c), bestDistance); d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

// distance is the optimal string alignment distance (insert, delete, replace, swap of neighbours), in bytes.
// It returns limit as soon as the result cannot be below it.
func distance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		least := i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
			least = min(least, row[j])
		}
		if least > limit {
			return limit
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
