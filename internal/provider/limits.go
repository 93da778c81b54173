package provider

import (
	"cmp"
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
func (x Limit) concerns(dim arbiter.Dim) bool {
	if dim == arbiter.DimTPM {
		return x.Dim == arbiter.DimTPM || x.Dim == arbiter.DimInputTPM || x.Dim == arbiter.DimOutputTPM
	}
	return dim == arbiter.DimNone || x.Dim == dim
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

// limitRow says under which names a dialect states one limit; "" for a member that it never sends.
type limitRow struct {
	lim                     Limit
	limit, remaining, reset string
}

func readLimits(r reader, rows []limitRow) (l Limits) {
	for i := range rows {
		if x, ok := rows[i].read(r); ok {
			l.List = append(l.List, x)
		}
	}
	return l
}

// read reads one trio. ok is false when neither limit nor remaining is there, or one of them is negative.
func (row *limitRow) read(r reader) (x Limit, ok bool) {
	limit, remaining := first(r.h, row.limit), first(r.h, row.remaining)
	if limit == "" && remaining == "" {
		return Limit{}, false
	}
	x = row.lim
	x.Limit, x.Remaining = -1, -1
	for _, f := range [...]struct {
		text string
		into *int64
	}{{limit, &x.Limit}, {remaining, &x.Remaining}} {
		if f.text == "" {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(f.text), 10, 64)
		switch {
		case err != nil:
		case n < 0:
			return Limit{}, false
		default:
			*f.into, ok = min(n, maxCount), true
		}
	}
	if !ok {
		return Limit{}, false
	}
	if reset := first(r.h, row.reset); reset != "" {
		x.Reset, x.HasReset = ParseWait(reset, r.wall())
	}
	if x.HasReset && x.Reset == 0 && x.Remaining >= 0 && x.Remaining < x.Limit {
		x.HasReset = false // "full in 0 s" and "not full" cannot both be true
	}
	return x, true
}

// first is h.Get for a name that is canonical as it stands: the tables' names are.
func first(h http.Header, name string) string {
	if v := h[name]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// SetLimits writes limits in the header format of the dialect: those of OpenAI with durations, of Anthropic with instants,
// of Mistral with seconds. Where h states the same limit already, the tighter of the two stays whole: the one with less
// remaining. A limit that the dialect has no header for is left out; Gemini has none at all. A daily number of requests
// goes where requests go. now places instants where h has no Date. Resets are rounded up.
func (d *Dialect) SetLimits(h http.Header, l []Limit, now time.Time) {
	r := reader{h, now}
	for _, x := range l {
		if x.Limit < 0 && x.Remaining < 0 {
			continue
		}
		row := d.limitRow(x)
		if row == nil {
			continue
		}
		if theirs, ok := row.read(r); ok && !x.tighter(theirs) {
			continue
		}
		row.write(h, x, d, r)
	}
}

// write states x under the row's names.
func (row *limitRow) write(h http.Header, x Limit, d *Dialect, r reader) {
	// All values are parts of one text and one list: there are three for each of several limits in every answer.
	var room [96]byte
	text := strconv.AppendInt(room[:0], x.Limit, 10)
	at := len(text)
	text = strconv.AppendInt(text, x.Remaining, 10)
	to := len(text)
	if x.HasReset && row.reset != "" {
		text = d.appendReset(text, max(x.Reset, 0), r)
	}
	all := string(text)
	values := [...]string{all[:at], all[at:to], all[to:]}
	put := func(i int, name string, known bool) {
		switch {
		case name == "":
		case known:
			h[name] = values[i : i+1 : i+1]
		default:
			delete(h, name)
		}
	}
	put(0, row.limit, x.Limit >= 0)
	put(1, row.remaining, x.Remaining >= 0)
	put(2, row.reset, x.HasReset)
}

// limitRow is where the dialect states a limit like x; nil when it has no place for it.
func (d *Dialect) limitRow(x Limit) *limitRow {
	var rows []limitRow
	switch d.name {
	case OpenAI, HTTP:
		rows = openAILimitRows
	case Anthropic:
		rows = anthropicLimitRows
	case Mistral:
		rows = mistralLimitRows
	}
	if x.Dim == arbiter.DimRPD {
		x.Dim, x.Per = arbiter.DimRPM, 0
	}
	for i := range rows {
		row := &rows[i].lim
		if row.Dim == x.Dim && row.Scope == x.Scope && (row.Per == x.Per || row.Per == 0 || x.Per == 0) {
			return &rows[i]
		}
	}
	return nil
}

// tighter says whether x leaves less than y. What is not stated leaves anything.
func (x Limit) tighter(y Limit) bool {
	if c := cmp.Compare(uint64(x.Remaining), uint64(y.Remaining)); c != 0 { // -1 is the largest
		return c < 0
	}
	if c := cmp.Compare(uint64(x.Limit), uint64(y.Limit)); c != 0 {
		return c < 0
	}
	return x.HasReset && (!y.HasReset || x.Reset > y.Reset)
}

func (d *Dialect) appendReset(b []byte, in time.Duration, r reader) []byte {
	switch d.name {
	case Anthropic:
		t := r.wall().Add(in)
		if whole := t.Truncate(time.Second); whole.Before(t) {
			t = whole.Add(time.Second)
		}
		return t.UTC().AppendFormat(b, time.RFC3339)
	case Mistral:
		return strconv.AppendInt(b, int64((in+time.Second-1)/time.Second), 10)
	}
	return append(b, ((in + time.Millisecond - 1) / time.Millisecond * time.Millisecond).String()...)
}
