package provider

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/token-budget-arbiter/tba/arbiter"
)

// Limit is one limit as a provider's headers state it.
type Limit struct {
	Dim       arbiter.Dim   // DimRPM for requests, whatever their window
	Scope     string        // "" for the account's own; else whose or which: "project", "priority", "fast", "unified_5h"
	Per       time.Duration // length of the window; 0 when the headers do not say
	Limit     int64         // -1: not stated
	Remaining int64         // -1: not stated
	Reset     time.Duration // until it is FULL again, not until the next call fits
	HasReset  bool
}

// Limits is what the headers of one answer say. The zero value says nothing, which is neither "unlimited" nor "none
// left". Cost is what the provider charged for this call (Mistral alone says so), 0 when it does not say.
type Limits struct {
	List []Limit
	Cost int64
}

// Limits reads the rate-limit headers of an answer. Gemini sends none. A trio with a negative number is dropped whole:
// it means "not known" (Azure's Responses API sends -1, -1, 0).
func (d *Dialect) Limits(h http.Header, now time.Time) Limits { return d.limits(reader{h, now}) }

// Wait is how long a call that needs dim should stay away: until the exhausted limits on its dimension are full again, or,
// when no limit says it is exhausted, until the last of the resets. arbiter.DimNone asks for any. ok is false when no
// header names a reset.
func (l Limits) Wait(dim arbiter.Dim) (wait time.Duration, ok bool) {
	if w, found := l.longest(func(x Limit) bool { return x.Remaining == 0 && x.concerns(dim) }); found {
		return w, true
	}
	return l.longest(func(x Limit) bool { return x.concerns(dim) })
}

func (l Limits) longest(take func(Limit) bool) (wait time.Duration, ok bool) {
	for _, x := range l.List {
		if x.HasReset && take(x) {
			wait, ok = max(wait, x.Reset), true
		}
	}
	return wait, ok
}

// concerns says whether a call throttled on dim is bound by this limit. A call that is heavy in tokens also waits for
// the limits that count only its input or its output.
func (l Limit) concerns(dim arbiter.Dim) bool {
	if dim == arbiter.DimTPM {
		return l.Dim == arbiter.DimTPM || l.Dim == arbiter.DimInputTPM || l.Dim == arbiter.DimOutputTPM
	}
	return dim == arbiter.DimNone || l.Dim == dim
}

// Exhausted is the dimension of the first limit that has nothing remaining, arbiter.DimNone when none says so.
func (l Limits) Exhausted() arbiter.Dim {
	for _, x := range l.List {
		if x.Remaining == 0 {
			return x.Dim
		}
	}
	return arbiter.DimNone
}

// add reads one trio of headers into the list; an empty header name stands for a member that the provider never sends.
func (l *Limits) add(r reader, x Limit, limit, remaining, reset string) {
	var known bool
	x.Limit, x.Remaining = -1, -1
	for _, f := range [...]struct {
		header string
		into   *int64
	}{{limit, &x.Limit}, {remaining, &x.Remaining}} {
		n, err := strconv.ParseInt(strings.TrimSpace(r.h.Get(f.header)), 10, 64)
		switch {
		case err != nil:
		case n < 0:
			return
		default:
			*f.into, known = min(n, maxCount), true
		}
	}
	if !known {
		return
	}
	x.Reset, x.HasReset = ParseWait(r.h.Get(reset), r.wall())
	if x.HasReset && x.Reset == 0 && x.Remaining >= 0 && x.Remaining < x.Limit {
		x.HasReset = false // "full in 0 s" and "not full" cannot both be true
	}
	l.List = append(l.List, x)
}
